//! What holds in every good directory: files, keys and totals fit together, and no byte of the stream belongs to two sections.

use super::{BASE_ALIGNMENT, SegmentDirectory};
use crate::container::HEADER_BYTES;
use crate::error::{FormatError, Result};
use crate::manifest::MAX_FILE_ROWS;
use crate::path::check_path;

impl SegmentDirectory {
    /// Checks the directory of a stream that ends at `stream_length`, before it is written and after it was read.
    pub(super) fn validate(&self, stream_length: u64) -> Result<()> {
        self.key_type.validate()?;
        self.validate_files()?;
        self.validate_keys()?;
        self.validate_totals()?;
        self.validate_sections(stream_length)
    }

    fn validate_files(&self) -> Result<()> {
        let mut end = 0u64;
        for file in &self.files {
            check_path("the path of a data file", &file.path)?;
            if !file.base.is_multiple_of(BASE_ALIGNMENT) {
                return Err(FormatError::invalid("the base of a file", file.base, "a multiple of 64"));
            }
            if u64::from(file.base) < end {
                return Err(FormatError::invalid("the base of a file", file.base, format_args!("at least {end}")));
            }
            let rows = file.rows();
            if rows > MAX_FILE_ROWS {
                return Err(FormatError::TooLong { what: "the rows of a data file", got: rows, limit: MAX_FILE_ROWS });
            }
            end = u64::from(file.base) + rows;
        }
        if end > u64::from(self.universe) {
            return Err(FormatError::invalid("the row space", self.universe, format_args!("at least {end} rows")));
        }
        Ok(())
    }

    fn validate_keys(&self) -> Result<()> {
        for block in &self.blocks {
            self.key_type.check(&block.first_key)?;
        }
        if !self.blocks.is_sorted_by(|a, b| a.first_key < b.first_key) {
            return Err(FormatError::invalid(
                "the first keys of the value blocks",
                "out of order",
                "strictly ascending",
            ));
        }
        match (self.blocks.last(), &self.max_key) {
            (None, None) => Ok(()),
            (Some(last), Some(max)) => {
                self.key_type.check(max)?;
                let fits = if last.values == 1 { *max == last.first_key } else { *max > last.first_key };
                if fits {
                    return Ok(());
                }
                Err(FormatError::invalid("the largest key", "out of place", "the last key of the last value block"))
            }
            (last, _) => Err(FormatError::invalid(
                "the largest key",
                if last.is_some() { "absent" } else { "present" },
                "present exactly when there are values",
            )),
        }
    }

    fn validate_totals(&self) -> Result<()> {
        let mut rows = u64::from(self.nulls.rows) + u64::from(self.opaque.rows);
        let mut values = 0u64;
        for block in &self.blocks {
            if block.values == 0 || block.rows < u64::from(block.values) {
                return Err(FormatError::invalid(
                    "a value block",
                    format_args!("of {} values and {} rows", block.values, block.rows),
                    "at least one value, and a row for each",
                ));
            }
            rows = rows.saturating_add(block.rows);
            values += u64::from(block.values);
        }
        if values != self.value_count {
            return Err(FormatError::invalid("the number of values", self.value_count, values));
        }
        if rows != self.rows() {
            return Err(FormatError::invalid("the rows of values, NULL and opaque", rows, self.rows()));
        }
        Ok(())
    }

    /// Every section lies between the header and the end of the stream, and no byte belongs to two.
    fn validate_sections(&self, stream_length: u64) -> Result<()> {
        let mut sections = Vec::with_capacity(2 + 2 * self.blocks.len());
        for posting in [&self.nulls, &self.opaque] {
            if posting.rows > 0 && posting.length == 0 {
                return Err(FormatError::invalid("a posting list with rows", "empty", "at least one byte"));
            }
            sections.push((posting.offset, u64::from(posting.length)));
        }
        for block in &self.blocks {
            if block.length == 0 {
                return Err(FormatError::invalid("a value block", "empty", "at least one byte"));
            }
            sections.push((block.offset, u64::from(block.length)));
            sections.push((block.postings_offset, block.postings_length));
        }
        sections.retain(|(_, length)| *length > 0);
        sections.sort_unstable();
        let mut free = HEADER_BYTES;
        for (offset, length) in sections {
            if offset < free {
                return Err(FormatError::invalid("a section's offset", offset, format_args!("at least {free}")));
            }
            free = match offset.checked_add(length) {
                Some(end) if end <= stream_length => end,
                _ => {
                    return Err(FormatError::invalid(
                        "a section",
                        format_args!("{length} bytes at {offset}"),
                        format_args!("inside the stream of {stream_length} bytes"),
                    ));
                }
            };
        }
        Ok(())
    }
}

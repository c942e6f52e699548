//! What holds in every good directory: files, keys and totals fit together, and no byte of the stream belongs to two sections.

use super::encoding::{CoarseLevel, Encoding, MAX_COARSE_BITMAPS};
use super::{BASE_ALIGNMENT, SegmentDirectory};
use crate::container::HEADER_BYTES;
use crate::error::{FormatError, Result};
use crate::key::{Key, MAX_KEY_LENGTH};
use crate::limits::MAX_FILE_ROWS;
use crate::links::{MAX_LEAF_LINKS, validate_predicates};
use crate::path::check_path;
use crate::riding::RidingColumn;
use crate::zones::Filters;

impl SegmentDirectory {
    /// Checks the directory of a stream that ends at `stream_length`, before it is written and after it was read.
    pub(super) fn validate(&self, stream_length: u64) -> Result<()> {
        self.key_type.validate()?;
        if self.key_type.is_list() && self.encoding != Encoding::Equality {
            return Err(FormatError::invalid("the encoding of lists", self.encoding.name(), Encoding::Equality.name()));
        }
        if self.key_type.hash_bits().is_some() && self.encoding != Encoding::Packed {
            return Err(FormatError::invalid("the encoding of hashes", self.encoding.name(), Encoding::Packed.name()));
        }
        self.validate_files()?;
        self.validate_keys()?;
        self.validate_totals()?;
        self.validate_levels()?;
        self.validate_tree()?;
        self.validate_riding()?;
        self.validate_links()?;
        self.validate_zones()?;
        self.validate_sections(stream_length)
    }

    fn validate_files(&self) -> Result<()> {
        let mut end = 0u64;
        for file in self.files.iter() {
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
        let has_separators = self.encoding == Encoding::Packed && !self.key_type.is_fixed();
        for (number, block) in self.blocks.iter().enumerate() {
            match &block.first_key {
                Key::Bytes(separator) if has_separators && number > 0 && separator.len() <= MAX_KEY_LENGTH => {}
                first => self.key_type.check(first)?,
            }
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
                let fits = match last.values {
                    1 if has_separators => *max >= last.first_key,
                    1 if self.encoding == Encoding::Binned => *max >= last.first_key,
                    1 => *max == last.first_key,
                    _ => *max > last.first_key,
                };
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
        let valued = self.rows().saturating_sub(rows);
        let mut values = 0u64;
        for block in &self.blocks {
            if block.values == 0 || block.rows < u64::from(block.values) {
                return Err(FormatError::invalid(
                    "a value block",
                    format_args!("of {} values and {} rows", block.values, block.rows),
                    "at least one value, and a row for each",
                ));
            }
            if self.key_type.is_list() && block.rows > valued.saturating_mul(block.values.into()) {
                let expected = format!("at most {valued} for each of its {} values", block.values);
                return Err(FormatError::invalid("the rows of a value block", block.rows, expected));
            }
            rows = rows.saturating_add(block.rows);
            values += u64::from(block.values);
        }
        if let Some(zones) = &self.zones {
            let keys = zones.keys.iter().copied().map(u64::from).sum::<u64>();
            if self.value_count != keys || !self.blocks.is_empty() {
                let expected = format!("{keys}, and no value blocks");
                return Err(FormatError::invalid("the values of zones", self.value_count, expected));
            }
            if rows > self.rows() {
                let expected = format!("at most the {} of the files", self.rows());
                return Err(FormatError::invalid("the NULL and opaque rows", rows, expected));
            }
            return Ok(());
        }
        // A bin has a value or more, and a row for each.
        let most = match self.encoding {
            Encoding::Binned => self.blocks.iter().fold(0u64, |all, block| all.saturating_add(block.rows)),
            _ => values,
        };
        if self.value_count < values || self.value_count > most {
            let expected = format!("{values} to {most}");
            return Err(FormatError::invalid("the number of values", self.value_count, expected));
        }
        if self.key_type.is_list() {
            // A row counts for each of its elements; that NULL and opaque rows are among those of the files is left to check.
            let without = u64::from(self.nulls.rows) + u64::from(self.opaque.rows);
            if without > self.rows() {
                let expected = format!("at most the {} of the files", self.rows());
                return Err(FormatError::invalid("the NULL and opaque rows", without, expected));
            }
        } else if rows != self.rows() {
            return Err(FormatError::invalid("the rows of values, NULL and opaque", rows, self.rows()));
        }
        Ok(())
    }

    /// The levels are those of the encoding, and every bitmap has rows for its values and leaves rows for the others.
    fn validate_levels(&self) -> Result<()> {
        let orders = if self.encoding == Encoding::Binned { self.blocks.len() } else { 0 };
        if self.orders.len() != orders || orders > 0 && !self.key_type.is_fixed() {
            let got = format!("{} of {}", self.orders.len(), self.key_type.code());
            return Err(FormatError::invalid(
                "the orders of bins",
                got,
                format_args!("{orders}, of keys that are numbers"),
            ));
        }
        if !self.encoding.has_postings() && self.blocks.iter().any(|block| block.postings_length > 0) {
            return Err(FormatError::invalid(
                "the postings of a value block",
                "present",
                format_args!("none with the encoding {}", self.encoding.name()),
            ));
        }
        let values: u64 = self.bins.iter().copied().map(u64::from).sum();
        let fits = if self.encoding.has_bins() {
            values == self.value_count && self.bins.iter().all(|values| *values > 0)
        } else {
            self.bins.is_empty()
        };
        if !fits {
            let expected = format!("bins of a value or more, {} in all", self.value_count);
            return Err(FormatError::invalid("the bins", format_args!("of {values} values"), expected));
        }
        let level = self.encoding.coarse_level();
        let expected = level.map_or(0, |level| level.bitmaps(self.bin_count()));
        if self.bitmaps.len() as u64 != expected || expected > MAX_COARSE_BITMAPS as u64 {
            let expected = format!("{expected}, and at most {MAX_COARSE_BITMAPS}");
            return Err(FormatError::invalid("the number of bitmaps", self.bitmaps.len(), expected));
        }
        level.map_or(Ok(()), |level| self.validate_bitmap_rows(level))
    }

    fn validate_tree(&self) -> Result<()> {
        let inner = self.blocks.iter().filter(|block| block.is_inner).count();
        let fits = inner == 0 || inner == self.blocks.len() && self.encoding == Encoding::Packed;
        if fits {
            return Ok(());
        }
        let expected = format!("all {} of a packed tree, or none", self.blocks.len());
        Err(FormatError::invalid("the inner pages of a directory", inner, expected))
    }

    fn validate_riding(&self) -> Result<()> {
        if self.encoding != Encoding::Packed && !self.riding.is_empty() {
            let expected = format_args!("none with the encoding {}", self.encoding.name());
            return Err(FormatError::invalid("the columns that ride along", self.riding.len(), expected));
        }
        RidingColumn::validate_all(&self.riding)
    }

    fn validate_links(&self) -> Result<()> {
        if self.encoding != Encoding::Linked {
            if self.predicates.is_empty() {
                return Ok(());
            }
            let expected = format_args!("none with the encoding {}", self.encoding.name());
            return Err(FormatError::invalid("the predicates of links", self.predicates.len(), expected));
        }
        if let Some(block) = self.blocks.iter().find(|block| block.values as usize > MAX_LEAF_LINKS) {
            let (got, limit) = (u64::from(block.values), MAX_LEAF_LINKS as u64);
            return Err(FormatError::TooLong { what: "the links of a leaf", got, limit });
        }
        if self.blocks.iter().any(|block| block.postings_length == 0) {
            return Err(FormatError::invalid("the rows of links", "absent", "there for each leaf"));
        }
        validate_predicates(&self.predicates, &self.key_type, !self.blocks.is_empty())
    }

    fn validate_zones(&self) -> Result<()> {
        if self.zones.is_some() != self.encoding.has_zones() {
            let got = if self.zones.is_some() { "present" } else { "absent" };
            let expected = format!("what the encoding {} has", self.encoding.name());
            return Err(FormatError::invalid("the zones", got, expected));
        }
        let Some(zones) = &self.zones else { return Ok(()) };
        let (sliced, fenced) = (matches!(zones.filters, Filters::Sliced(_)), zones.fences.is_some());
        if sliced != (self.encoding == Encoding::Sliced) || fenced == sliced {
            let got = format!("sliced: {sliced}, with fences: {fenced}");
            return Err(FormatError::invalid("the filters", got, "slices without fences or filters with them"));
        }
        zones.validate(&self.key_type, self.files.iter().flat_map(|file| file.row_groups.iter().copied()))
    }

    fn validate_bitmap_rows(&self, level: CoarseLevel) -> Result<()> {
        let valued: u64 = self.blocks.iter().map(|block| block.rows).sum();
        let mut ends = vec![0u64];
        for values in &self.bins {
            ends.push(ends.last().copied().unwrap_or(0) + u64::from(*values));
        }
        let listed = self.encoding.has_bins();
        let below = |bin: u64| match usize::try_from(bin) {
            Ok(place) if listed => ends.get(place).copied().unwrap_or(self.value_count),
            _ => bin.min(self.value_count),
        };
        let (mut rows_before, mut values_before) = (0, 0);
        for (number, bitmap) in (0..).zip(&self.bitmaps) {
            let rows = u64::from(bitmap.rows);
            let values = level.values(self.bin_count(), number, below);
            let mut least = values;
            if level == CoarseLevel::Range {
                // The rows of the bitmap before, and one or more for each value that came in.
                least = rows_before + (values - values_before);
                (rows_before, values_before) = (rows, values);
            }
            let most = valued.saturating_sub(self.value_count - values);
            if rows < least || rows > most {
                let expected = format!("{least} to {most}");
                return Err(FormatError::invalid("the rows of a bitmap", rows, expected));
            }
        }
        Ok(())
    }

    /// Every section lies between the header and the end of the stream, and no byte belongs to two.
    fn validate_sections(&self, stream_length: u64) -> Result<()> {
        let mut sections = Vec::with_capacity(2 + self.bitmaps.len() + 3 * self.blocks.len());
        for posting in [&self.nulls, &self.opaque].into_iter().chain(&self.bitmaps) {
            if posting.rows > 0 && posting.length == 0 {
                return Err(FormatError::invalid("a posting list with rows", "empty", "at least one byte"));
            }
            sections.push((posting.offset, u64::from(posting.length)));
        }
        if let Some(zones) = &self.zones {
            sections.push((zones.offset, zones.filter_bytes()));
        }
        for (number, block) in self.blocks.iter().enumerate() {
            let orders = self.orders_of(number);
            sections.push((orders.start, orders.end - orders.start));
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

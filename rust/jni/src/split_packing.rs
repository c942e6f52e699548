//! Rows to read, packed into splits: what one task reads.
//!
//! Of many files a filter may leave a little each, and a file may be larger than a task should read. A task for each file, or for each
//! place with rows, would cost more than it reads. A join or an aggregate behind it would combine less before it shuffles. So rows go into
//! splits in the order of the table, files cut between row groups, by the sizes that Spark's own scans of files go by
//! (`FilePartition.maxSplitBytes`):
//!
//! ```text
//! files     │ a ·············│b│c│ d ····│e│ f ·······················│
//! splits    │ a      │ a     b c │ d     e │ f        │ f        │ f    │
//! ```

use lakemark_table::RowSet;
use object_store::ObjectMeta;
use serde::{Deserialize, Serialize, Serializer};

use crate::error::Result;
use crate::rows::EncodedRows;
use crate::split::{FileRange, SplitInput, SplitRange, StoreHome};

/// A split takes at most so many bytes of rows in memory: they are sent to an executor with its task, and Spark warns of tasks of more
/// than 1,000 KiB.
pub(crate) const ATTACHED_BYTES: usize = 960 << 10;
/// Files whose row groups are not known are not cut smaller.
const SMALLEST_BYTES: u64 = 1 << 20;

/// How large splits are, by the settings that Spark has for its own files.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SplitSizes {
    /// Bytes that a split has about at most.
    pub(crate) max_bytes: u64,
    /// Bytes that could be read while a file is opened.
    pub(crate) open_bytes: u64,
    /// As many splits should there be, so that no core is idle.
    pub(crate) min_splits: u64,
}

impl SplitSizes {
    /// Bytes of each split if equal ones hold `total` bytes, with the openings of files.
    fn target(&self, total: u64) -> u64 {
        let even = total.div_ceil(self.min_splits.max(1));
        let wanted = even.max(self.open_bytes).min(self.max_bytes).max(SMALLEST_BYTES);
        total.div_ceil(total.div_ceil(wanted).max(1))
    }
}

/// What one task reads.
#[derive(Debug, Default, Serialize)]
pub(crate) struct PlannedSplit {
    pub(crate) inputs: Vec<PlannedInput>,
    /// Rows that it gives, if the indexes know; they stay so when Spark has no filter of its own left.
    pub(crate) rows: Option<u64>,
    pub(crate) bytes: u64,
}

/// A part of a split.
#[derive(Debug, Serialize)]
pub(crate) struct PlannedInput {
    /// A [`SplitInput`], opaque to Java.
    pub(crate) body: String,
    /// What goes with the input: which rows of a file, or buffered rows in memory, the scan's columns as an IPC stream. Java gets its length.
    #[serde(rename = "attached", serialize_with = "length")]
    pub(crate) attachment: Vec<u8>,
}

fn length<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.len() as u64)
}

/// Splits that are being filled.
#[derive(Debug)]
pub(crate) struct SplitPacker {
    target: u64,
    open_bytes: u64,
    full: Vec<PlannedSplit>,
    split: PlannedSplit,
    /// Bytes of the split, with the openings of its files.
    filled: u64,
}

impl SplitPacker {
    /// Splits for all rows of these files, which are still to be added.
    pub(crate) fn new(sizes: SplitSizes, files: &[FileInput<'_>]) -> Self {
        // A file without a selected row is not opened.
        let read = files.iter().map(FileInput::bytes).filter(|bytes| *bytes > 0);
        let bytes = read.map(|bytes| bytes.saturating_add(sizes.open_bytes));
        let target = sizes.target(bytes.fold(0, u64::saturating_add));
        Self { target, open_bytes: sizes.open_bytes, full: Vec::new(), split: empty(), filled: 0 }
    }

    /// The splits, of which none is empty.
    pub(crate) fn finish(mut self) -> Vec<PlannedSplit> {
        self.end_split();
        self.full
    }

    /// Adds the rows of a file.
    pub(crate) fn add_file(&mut self, file: &FileInput<'_>) -> Result<()> {
        match &file.rows {
            FileInputRows::Known { row_groups, chosen } => self.add_row_groups(file, row_groups, chosen),
            FileInputRows::Unknown { deleted } => self.add_bytes(file, *deleted),
        }
    }

    /// Adds rows in memory, which are attached as an IPC stream.
    pub(crate) fn add_memory(&mut self, rows: u64, attachment: Vec<u8>) -> Result<()> {
        let bytes = attachment.len() as u64;
        let attached: usize = self.split.inputs.iter().map(|input| input.attachment.len()).sum();
        if attached + attachment.len() > ATTACHED_BYTES {
            self.end_split();
        }
        self.add(&SplitInput::Memory, attachment, Some(rows), bytes)
    }

    /// A file whose rows are known is cut between row groups; row groups without a selected row are left out.
    fn add_row_groups(&mut self, file: &FileInput<'_>, row_groups: &[u32], chosen: &RowSet) -> Result<()> {
        let mut range: Option<(u32, u32, u64)> = None;
        let mut end = 0;
        for length in row_groups {
            let start = end;
            end += length;
            let count = chosen.count_in(start, end);
            if count == 0 {
                continue;
            }
            let bytes = file.bytes_of(u64::from(count));
            range = match range {
                Some((from, _, before)) if self.fits(before, bytes) => Some((from, end, before + bytes)),
                Some((from, to, before)) => {
                    self.add_known(file, chosen, from, to, before)?;
                    self.end_split();
                    Some((start, end, bytes))
                }
                None => {
                    if !self.fits(0, bytes) {
                        self.end_split();
                    }
                    Some((start, end, bytes))
                }
            };
        }
        range.map_or(Ok(()), |(from, to, bytes)| self.add_known(file, chosen, from, to, bytes))
    }

    fn add_known(&mut self, file: &FileInput<'_>, chosen: &RowSet, start: u32, end: u32, bytes: u64) -> Result<()> {
        let count = u64::from(chosen.count_in(start, end));
        let rows = EncodedRows::encode(&chosen.slice(start, end));
        let part = SplitRange::Known {
            file_rows: file.row_count(),
            start: u64::from(start),
            length: u64::from(end - start),
            rows: rows.form,
            count,
        };
        self.add_part(file, part, rows.bytes, Some(count), bytes)
    }

    /// A file whose row groups are not known yet is cut by bytes; a row group belongs to the split in which it begins.
    fn add_bytes(&mut self, file: &FileInput<'_>, deleted: Option<&RowSet>) -> Result<()> {
        let deleted = deleted.map(|set| (EncodedRows::encode(set), u64::from(set.universe())));
        let size = file.meta.size;
        let mut from_byte = 0;
        loop {
            let smallest = self.open_bytes.max(SMALLEST_BYTES);
            if self.target.saturating_sub(self.filled) < smallest.min(size - from_byte) {
                self.end_split();
            }
            let end = from_byte + self.target.saturating_sub(self.filled).max(SMALLEST_BYTES);
            let (to_byte, bytes) = match end + SMALLEST_BYTES >= size {
                true => (u64::MAX, size - from_byte),
                false => (end, end - from_byte),
            };
            let (form, attachment, deleted_of) = match &deleted {
                Some((rows, of)) => (Some(rows.form), rows.bytes.clone(), *of),
                None => (None, Vec::new(), 0),
            };
            let part = SplitRange::Unknown { from_byte, to_byte, deleted: form, deleted_of };
            self.add_part(file, part, attachment, None, bytes)?;
            if to_byte == u64::MAX {
                return Ok(());
            }
            self.end_split();
            from_byte = to_byte;
        }
    }

    fn add_part(
        &mut self,
        file: &FileInput<'_>,
        part: SplitRange,
        attachment: Vec<u8>,
        rows: Option<u64>,
        bytes: u64,
    ) -> Result<()> {
        let (location, constants) = (file.meta.location.to_string(), file.constants.clone());
        let range = FileRange {
            home: file.home,
            location,
            size: file.meta.size,
            tag: file.meta.e_tag.clone(),
            part,
            constants,
        };
        self.add(&SplitInput::File(range), attachment, rows, bytes)?;
        // What is added next waits for this file to be opened.
        self.filled = self.filled.saturating_add(self.open_bytes);
        Ok(())
    }

    fn add(&mut self, input: &SplitInput, attachment: Vec<u8>, rows: Option<u64>, bytes: u64) -> Result<()> {
        self.split.inputs.push(PlannedInput { body: serde_json::to_string(input)?, attachment });
        self.split.rows = self.split.rows.zip(rows).map(|(before, rows)| before + rows);
        self.split.bytes = self.split.bytes.saturating_add(bytes);
        self.filled = self.filled.saturating_add(bytes);
        Ok(())
    }

    /// Whether `bytes` more belong to this split and not to the next one, if `before` are about to be added: what is nearer to the target.
    fn fits(&self, before: u64, bytes: u64) -> bool {
        self.filled.saturating_add(before).saturating_add(bytes / 2) <= self.target
    }

    fn end_split(&mut self) {
        if !self.split.inputs.is_empty() {
            self.full.push(std::mem::replace(&mut self.split, empty()));
            self.filled = 0;
        }
    }
}

fn empty() -> PlannedSplit {
    PlannedSplit { rows: Some(0), ..PlannedSplit::default() }
}

/// A file to read.
#[derive(Debug)]
pub(crate) struct FileInput<'a> {
    pub(crate) home: StoreHome,
    pub(crate) meta: &'a ObjectMeta,
    /// Its partition columns among the scan's, encoded.
    pub(crate) constants: Option<String>,
    pub(crate) rows: FileInputRows<'a>,
}

/// Which rows of a file are read.
#[derive(Debug)]
pub(crate) enum FileInputRows<'a> {
    /// The selected ones.
    Known {
        /// Rows of each row group of the file.
        row_groups: &'a [u32],
        chosen: RowSet,
    },
    /// All rows, without deleted ones.
    Unknown { deleted: Option<&'a RowSet> },
}

impl FileInput<'_> {
    fn bytes(&self) -> u64 {
        match &self.rows {
            FileInputRows::Known { chosen, .. } => self.bytes_of(u64::from(chosen.len())),
            FileInputRows::Unknown { .. } => self.meta.size,
        }
    }

    /// Bytes of so many of its rows, if all are alike.
    fn bytes_of(&self, rows: u64) -> u64 {
        let of_file = u128::from(self.row_count().max(1));
        u64::try_from(u128::from(self.meta.size) * u128::from(rows) / of_file).unwrap_or(u64::MAX)
    }

    /// Its rows, if they are known.
    fn row_count(&self) -> u64 {
        match &self.rows {
            FileInputRows::Known { row_groups, .. } => row_groups.iter().map(|rows| u64::from(*rows)).sum(),
            FileInputRows::Unknown { .. } => 0,
        }
    }
}

#[cfg(test)]
#[path = "split_packing_tests.rs"]
mod tests;

//! What callers may choose: where the store is, which index, how a build runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use crate::index_kind::IndexKind;
use crate::storage::access::StorageAccess;

/// How a table is opened.
#[derive(Clone, Debug, Default)]
pub struct TableOptions {
    /// Path or URL of the store; `_lakemark` beside the data if none is given.
    pub store: Option<String>,
    /// How the data files are reached.
    pub storage: StorageAccess,
    /// How the store is reached; as the data files are if nothing is given.
    pub store_storage: Option<StorageAccess>,
    /// The version that is read, and nothing but read; the newest state if none is given. Of a Delta table it is Delta's, of other tables
    /// the number of a manifest: see [`Table::history`](crate::Table::history).
    pub version: Option<u64>,
    /// How long a snapshot may go by the data files that an earlier one found, without a look at the folder or the Delta log. Files that
    /// others added or removed meanwhile are seen that late at most. Changes and migrations by this table are seen at once, and buffered
    /// changes of anybody. The earlier snapshot may be one of another handle of this process, before this one was opened. Zero, the default,
    /// looks each time.
    pub max_staleness: Duration,
}

impl TableOptions {
    /// How the store is reached.
    pub(crate) fn access_of_store(&self) -> &StorageAccess {
        self.store_storage.as_ref().unwrap_or(&self.storage)
    }

    /// A [`max_staleness`](Self::max_staleness) as users write it: a number with `ms`, `s`, `m` or `h`, such as `500ms` or `30s`.
    ///
    /// # Errors
    /// Anything else (`InvalidInput`).
    pub fn parse_staleness(text: &str) -> Result<Duration> {
        let unit = text.trim().trim_start_matches(|character: char| character.is_ascii_digit());
        let number = text.trim().strip_suffix(unit).and_then(|digits| digits.parse::<u64>().ok());
        let unit_ms = match unit {
            "ms" => Some(1),
            "s" => Some(1000),
            "m" => Some(60 * 1000),
            "h" => Some(60 * 60 * 1000),
            _ => None,
        };
        number.zip(unit_ms).and_then(|(number, unit)| number.checked_mul(unit)).map(Duration::from_millis).ok_or_else(
            || {
                Error::invalid(format!(
                    "max_staleness is {text:?}; give a number with ms, s, m or h, such as 500ms or 30s"
                ))
            },
        )
    }
}

/// An index to declare.
#[derive(Clone, Debug, Default)]
pub struct IndexSpec {
    /// Its name, unique in the table; made from kind and column if none is given.
    pub name: Option<String>,
    /// Its columns; an index over several of them is of the kind `key`. A field inside of structs is named by the way to it, as in
    /// `place.city`: see [`Snapshot::resolve`](crate::Snapshot::resolve).
    pub columns: Vec<String>,
    /// None means `auto`, which chooses kind and encoding unless an option other than `files_per_segment` is given.
    pub kind: Option<IndexKind>,
    /// Values by the names of [`IndexOption`](crate::IndexOption).
    /// Of the kind `bitmap`: `encoding` (the names of [`lakemark_format::Encoding::BITMAP`], `equality` if none is given), `precision`
    /// (digits or a unit of the calendar, for the encoding `binned`). Of the kinds `bloom_tree` and `summary`: `fpp` (how often a filter
    /// may have a key that is not there, 1e-15 to below 1; 0.05 zones read in vain by a search if none is given), `zone_rows` (rows that
    /// share a filter, of one row group; 20,000 and 65,536). Of the kind `key`: `include` (columns whose values are kept beside the key, as
    /// [`column_list`](crate::column_list) writes them), `hashed` (true for hashes of long values in the place of these) and `hash_bits` (8 to
    /// 64); each of these options stands for the kind. Of any kind: `files_per_segment` (1 to 4096).
    pub options: BTreeMap<String, String>,
}

/// How a build runs.
#[derive(Clone, Default)]
pub struct BuildOptions {
    /// Bytes that unfinished parts may take before they go to disk; a quarter of the memory if none is given.
    pub memory_bytes: Option<u64>,
    /// Threads that read and index; one per core if none is given.
    pub threads: Option<usize>,
    /// Gets reports of how far the build is.
    pub progress: Option<Arc<dyn Progress>>,
    /// Stops the build when set.
    pub cancel: Option<CancelFlag>,
    /// The only index to build; all of them if none is given.
    pub index: Option<String>,
    /// How large a share of the segments is compared with the data first, 0 to 1, so that damaged ones are built again, and not only missing
    /// ones. Less than all of them is another sample every day.
    pub verify: f64,
    /// How long segments that are finished wait for a commit at most; 30 seconds if none is given.
    pub commit_every: Option<Duration>,
    /// More data files than this that cannot be indexed stop the build, once what is finished is committed; no number does if none is given.
    pub max_failures: Option<u64>,
    /// Which segments are merged: after a build, or by a compaction.
    pub merging: Merging,
}

/// Which segments of an index are merged into one, each time up to as many files as its `files_per_segment` allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    /// After a build those that are too many for their sizes. Of segments that are at most half full an index keeps at most 3 + log4(bytes of
    /// all / bytes of the smallest). A compaction merges all of these but those that are more than four times as large as all smaller ones
    /// together.
    #[default]
    Due,
    /// None.
    Never,
    /// All that fit together, whatever that writes.
    All,
}

/// Gets reports from a build or a migration of how far it is.
pub trait Progress: Send + Sync {
    /// The work begins and has this many rows to read.
    fn start(&self, total_rows: u64);
    /// So many more rows were read.
    fn advance(&self, rows: u64);
    /// The work ended, well or not.
    fn finish(&self);
}

/// Stops a running build; clones share the request.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether somebody requested a stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// What is migrated, and when.
#[derive(Clone)]
pub struct MigrateOptions {
    /// How much of what is buffered, above 0 up to 1: the rows with the lowest keys that were not migrated yet.
    pub fraction: f64,
    /// About how many bytes of data files each commit writes: what is buffered is migrated in slices of the key range. None for one commit, so
    /// that other readers see all changes of a call at once. A slice writes more where the files are not in the order of the key. All slices
    /// together write at most twice what one commit would.
    pub max_bytes: Option<u64>,
    /// Nothing is migrated while less of the cache than this is full, 0 to 1.
    pub threshold: Option<f64>,
    /// Gets reports of how far the migration is: first rows that are rewritten, then rows that are indexed.
    pub progress: Option<Arc<dyn Progress>>,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self { fraction: 1.0, max_bytes: None, threshold: None, progress: None }
    }
}

/// What a vacuum removes.
#[derive(Clone, Copy, Debug)]
pub struct VacuumOptions {
    /// What has been out of use for longer is removed; at least one hour, 7 days by default.
    pub older_than: Duration,
    /// Whether the vacuum only says what would be removed.
    pub dry_run: bool,
    /// Whether files of the user's that a publication took out of the folder go, too, once no version needs them.
    pub originals: bool,
}

impl Default for VacuumOptions {
    fn default() -> Self {
        Self { older_than: Duration::from_secs(7 * 24 * 60 * 60), dry_run: false, originals: false }
    }
}

/// How a snapshot is probed.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// Whether indexes may be used at all.
    pub use_index: bool,
    /// Whether only the number of rows is requested, and not which rows.
    pub count_only: bool,
    /// Whether rows that were found before may be taken from memory, and rows found now kept there.
    pub selection_cache: bool,
    /// What the caller is going to do with the rows. If it is given, conditions whose search costs more than it saves are left out, with
    /// the reason `scan_is_cheaper`.
    pub reading: Option<ReadCost>,
    /// Whether rows that are deleted at the pinned version are found as well. What a key hits in a file must not depend on the version.
    pub physical_rows: bool,
}

/// What reading a row costs the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// The columns of the result.
    pub output: ColumnReadCost,
    /// The columns that only the filter needs, of rows that it must test.
    pub filter: ColumnReadCost,
    /// Reading ends after so many rows.
    pub limit: Option<f64>,
    /// What indexes give in place of reading, if they decide for every row whether it is selected.
    pub index_only: Option<IndexOnlyCost>,
    /// Nanoseconds of one core that the next operator takes for each row that is handed on.
    pub parent_cost: f64,
}

/// Columns that are read together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColumnReadCost {
    /// How many there are in the files: a struct has one for each of its fields.
    pub count: f64,
    /// Nanoseconds of one core to decode a value of each.
    pub decode: f64,
}

impl ReadCost {
    /// A reader that ends at a limit hands on batches of at least so many rows that were found. Smaller ones cost more to hand on than to
    /// decode.
    pub const LEAST_BATCH_ROWS: usize = 64;
}

impl ColumnReadCost {
    /// What a column of this type is in a file.
    #[must_use]
    pub fn of(data_type: &DataType) -> Self {
        Self { count: leaves(data_type), decode: value_cost(data_type) }
    }

    /// Both sets of columns together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, decode: self.decode + other.decode }
    }
}

/// Columns of a file that have the parts of such a value.
fn leaves(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaves(field.data_type())).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaves(item.data_type()),
        _ => 1.0,
    }
}

/// Nanoseconds to decode a value, rounded from what sums over such columns of Parquet files take.
fn value_cost(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Dictionary(_, value) => value_cost(value),
        DataType::Null | DataType::Boolean => 2.0,
        fixed if fixed.is_primitive() => 4.0,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 12.0,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 12.0,
        // Lists, structs and maps: each level of nesting is decoded by itself.
        _ => 40.0,
    }
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self { use_index: true, count_only: false, selection_cache: true, reading: None, physical_rows: false }
    }
}

/// Values that are index-only: indexes give them in place of reading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IndexOnlyCost {
    /// Nanoseconds that the values take from the index, all cores at work.
    pub nanoseconds: f64,
    /// The least share of all rows that has to be selected. With fewer, rows are as quickly read as values taken from the index.
    pub least_share: f64,
    /// Reads of directories for this estimate.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes_read: u64,
}

impl IndexOnlyCost {
    /// The costs of both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            nanoseconds: self.nanoseconds + other.nanoseconds,
            least_share: self.least_share.max(other.least_share),
            index_reads: self.index_reads + other.index_reads,
            index_bytes_read: self.index_bytes_read + other.index_bytes_read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_is_a_number_with_a_unit() {
        for (text, ms) in [("0s", 0), ("500ms", 500), (" 30s ", 30_000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(TableOptions::parse_staleness(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for wrong in ["", "30", "s", "-1s", "1.5s", "1 s", "1d", "18446744073709551615h", "ä"] {
            let error = TableOptions::parse_staleness(wrong).unwrap_err().to_string();
            assert!(error.contains("such as 500ms or 30s"), "{wrong}: {error}");
        }
    }
}

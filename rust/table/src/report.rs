//! What operations report: plain structs that become JSON, and for people what `description` says of each.

use std::fmt;

use lakemark_index::Reason;
use serde::{Serialize, Serializer};

pub use self::description::{Description, Report};
pub use self::listing::{index_rows, version_rows};

mod description;
mod listing;

/// What a build did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BuildReport {
    /// Names of the indexes that got segments.
    pub indexes: Vec<String>,
    /// Data files that were read.
    pub files: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Segments that were written.
    pub segments: u64,
    /// Bytes of these segments.
    pub bytes_written: u64,
    /// Parts that went to disk because of the memory limit.
    pub spilled: u64,
    /// Files that were left out because they changed while they were read.
    pub skipped: Vec<String>,
    /// Touched files whose hashes proved that nothing changed, so that they keep their indexes.
    pub adopted: u64,
    /// Segments that were missing or damaged: their files count as not indexed, and are indexed again.
    pub repaired: u64,
    /// Files whose column an index leaves out for good, each with the reason.
    pub declined: Vec<Finding>,
    /// Files of which the build has seen that the footer's statistics exclude values that are there: nothing goes by these any more.
    pub false_statistics: Vec<Finding>,
    /// Wall time.
    pub seconds: f64,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VerifyReport {
    /// One entry per index.
    pub indexes: Vec<IndexVerdict>,
    /// Data files of which a build has seen that the footer's statistics exclude values that are there. The indexes are none the worse.
    pub false_statistics: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing is damaged; stale parts are no damage.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.indexes.iter().all(|index| index.damaged.is_empty())
    }
}

/// What a verification found in one index.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IndexVerdict {
    /// The index.
    pub name: String,
    /// Data files whose postings are just what the data says.
    pub files_ok: u64,
    /// Segments that are missing, unreadable or wrong, each with what is wrong.
    pub damaged: Vec<Finding>,
    /// Data files that changed or vanished since they were indexed.
    pub stale: Vec<Finding>,
}

/// What merging segments did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompactReport {
    /// Indexes of which segments were merged.
    pub indexes: Vec<String>,
    /// Segments that were merged; they stay until a vacuum.
    pub segments_merged: u64,
    /// Segments that took their place.
    pub segments_written: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// Wall time.
    pub seconds: f64,
}

/// What a migration did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MigrateReport {
    /// Pending rows that are in the data files now.
    pub rows: u64,
    /// Rows of data files that they replaced, and rows that were deleted.
    pub rows_hidden: u64,
    /// Data files that were replaced.
    pub files_replaced: u64,
    /// Data files that were written.
    pub files_written: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// The version of the Delta table that has them.
    pub delta_version: Option<u64>,
    /// Wall time.
    pub seconds: f64,
}

impl MigrateReport {
    /// Adds what was folded next.
    pub(crate) fn add(&mut self, next: &Self) {
        self.rows += next.rows;
        self.rows_hidden += next.rows_hidden;
        self.files_replaced += next.files_replaced;
        self.files_written += next.files_written;
        self.bytes_written += next.bytes_written;
        self.delta_version = next.delta_version.or(self.delta_version);
    }
}

/// What those miss who read a table's own files and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangesBesideFiles {
    /// There are changes that no data file has yet.
    pub pending: bool,
    /// Migrations wrote data files that are in the store and not yet in the folder: see [`Table::publish`](crate::Table::publish).
    pub unpublished: bool,
}

/// How a table's pending updates stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UpdatesInfo {
    /// The columns of the key.
    pub key: Vec<String>,
    /// The sequence number of the last change.
    pub sequence: u64,
    /// Bytes of the buffer (the log), and at how many it becomes a run: as many as give a run of S pages or more.
    pub buffer_bytes: u64,
    /// See `buffer_bytes`.
    pub buffer_limit: u64,
    /// Keys that changes in the buffer are about.
    pub buffer_keys: u64,
    /// Rows that scans add to those of the data files.
    pub rows_pending: u64,
    /// Rows of the data files that scans leave out, those of deletion vectors included.
    pub rows_hidden: u64,
    /// Rows of the data files, as far as row groups are known.
    pub base_rows: u64,
    /// Bytes of runs, and how many there may be before updates must be migrated.
    pub cache_bytes: u64,
    /// See `cache_bytes`.
    pub cache_limit: u64,
    /// How full the cache may be before a writer begins a migration, 0 to 1; none if no writer does.
    pub migration_threshold: Option<f64>,
    /// What part of the cache is full, 0 to 1.
    pub cache_share: f64,
    /// The runs, oldest first.
    pub runs: Vec<RunInfo>,
    /// How many runs there may be before the oldest are merged.
    pub runs_limit: u64,
    /// How often a byte of an update was written to runs on average.
    pub writes_per_update: f64,
    /// The bound of that, 2 - 0.25 alpha^2.
    pub writes_bound: f64,
    /// Changed rows that reached a run.
    pub rows_written: u64,
    /// Bytes written to logs so far.
    pub log_bytes: u64,
    /// Bytes written as the buffer was flushed.
    pub flushed_bytes: u64,
    /// Bytes written as runs were merged.
    pub merged_bytes: u64,
}

/// A run of pending updates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunInfo {
    /// How often its rows were written, 1 or 2.
    pub passes: u8,
    /// Its rows.
    pub rows: u64,
    /// Those of them that are in the data files already.
    pub rows_migrated: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A file and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The segment or data file, relative to the store or the table.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

/// What a vacuum removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VacuumReport {
    /// Nothing was removed: `removed` tells what would be.
    pub dry_run: bool,
    /// Manifests, then segments and unfinished files, in the order of removal.
    pub removed: Vec<Waste>,
    /// Bytes of these files.
    pub bytes: u64,
    /// Manifests that stay.
    pub manifests_kept: u64,
    /// Segments that stay.
    pub segments_kept: u64,
    /// Wall time.
    pub seconds: f64,
}

/// What a publication did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PublishReport {
    /// Data files of the store that are files of the folder now.
    pub files_published: u64,
    /// Files of the folder that they replace, which are in the store now.
    pub originals_moved: u64,
    /// Bytes of the published files.
    pub bytes_published: u64,
    /// Wall time.
    pub seconds: f64,
}

/// A table at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableInfo {
    /// Where the data is.
    pub location: String,
    /// `parquet` or `delta`.
    pub format: String,
    /// Where the indexes are; none for a glob or a single file opened without a store.
    pub store: Option<String>,
    /// Version of the Delta table, if it is one.
    pub delta_version: Option<u64>,
    /// Number of the manifest, if there is one.
    pub manifest: Option<u64>,
    /// Number of data files.
    pub files: u64,
    /// Bytes of the data files.
    pub bytes: u64,
    /// Rows that the table shows.
    pub rows: u64,
    /// The columns in their order.
    pub columns: Vec<ColumnInfo>,
    /// Names of those whose values are constant in a file.
    pub partition_columns: Vec<String>,
    /// Bytes of all index files.
    pub index_bytes: u64,
    /// The indexes.
    pub indexes: Vec<IndexInfo>,
    /// How pending updates stand; none if the table takes none.
    pub updates: Option<UpdatesInfo>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: String,
    /// Whether a value may be missing.
    pub nullable: bool,
}

/// A version of a table: a commit of a Delta table, or a manifest of its store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VersionInfo {
    /// Its number.
    pub version: u64,
    /// When it was made, in milliseconds since 1970-01-01 UTC; of a commit that does not say it, when its file was written.
    pub time_ms: Option<i64>,
    /// What made it.
    pub operation: String,
    /// Data files that it added; of a run of changes, one.
    pub files_added: u64,
    /// Data files that it took away.
    pub files_removed: u64,
    /// Rows in what it added, where that is known: of Delta's files, or changes of a run.
    pub rows: Option<u64>,
}

/// A file that nobody needs any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Waste {
    /// The file, relative to the store.
    pub path: String,
    /// Its length.
    pub bytes: u64,
}

/// An index as users see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IndexInfo {
    /// Its name.
    pub name: String,
    /// Its kind, e.g. `bitmap`.
    pub kind: String,
    /// Its encoding, e.g. `equality`.
    pub encoding: String,
    /// Its column, or the way to its field, with dots between the names; several columns with commas.
    pub column: String,
    /// Its columns one by one.
    pub columns: Vec<String>,
    /// The column's Arrow type; a struct of several columns.
    pub data_type: String,
    /// Who chose the encoding: `auto` or `user`.
    pub chosen_by: String,
    /// Why `auto` chose it.
    pub reason: Option<String>,
    /// Bytes that were predicted when it was declared, for the rows that it covers now (for all rows until it covers some).
    pub predicted_bytes: Option<u64>,
    /// Its options.
    pub options: Vec<(String, String)>,
    /// Data files of the snapshot that it covers for sure. A file that was touched since is read only to compare hashes, and
    /// counts again when a build has taken it over; nothing counts while the column is gone or has another type.
    pub files_covered: u64,
    /// Data files of the snapshot.
    pub files_total: u64,
    /// `files_covered / files_total`, 1 for no files.
    pub coverage: f64,
    /// Its segments.
    pub segments: u64,
    /// Bytes of its segments.
    pub bytes: u64,
    /// Rows that it covers.
    pub rows: u64,
}

/// How one condition of a predicate was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeafReport {
    /// The condition as the engine prints it.
    pub text: String,
    /// The column, or the way to the field, if the condition is about one.
    pub column: Option<String>,
    /// The index that answered, at least for some files; `partition` for partition columns.
    pub index: Option<String>,
    /// The encoding of that index.
    pub encoding: Option<String>,
    /// Why `auto` chose the encoding, if it did.
    pub choice: Option<String>,
    /// Why no index answered, at least for some files.
    #[serde(serialize_with = "reason_code")]
    pub reason: Option<Reason>,
    /// Rows for which the condition may be true, in the files where an index was asked: not in those that another condition ruled out.
    pub rows: Option<u64>,
}

fn reason_code<S: Serializer>(reason: &Option<Reason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(Reason::code).serialize(serializer)
}

/// What a probe found and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// The conditions in the order of the text.
    pub leaves: Vec<LeafReport>,
    /// Share of the data files for which the index narrowed anything or told everything.
    pub coverage: f64,
    /// Data files of the snapshot.
    pub files_total: u64,
    /// Data files that need not be read.
    pub files_pruned: u64,
    /// Data files that must be scanned as without an index.
    pub files_unknown: u64,
    /// Row groups of the files that are not unknown.
    pub row_groups_total: u64,
    /// Row groups among them that need not be read.
    pub row_groups_pruned: u64,
    /// Rows of the files that are not unknown.
    pub rows_total: u64,
    /// Rows that are in the answer for sure.
    pub rows_certain: u64,
    /// Rows that must be read and tested.
    pub rows_uncertain: u64,
    /// Reads of the store.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes: u64,
    /// Wall time of the probe.
    pub seconds: f64,
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for leaf in &self.leaves {
            write!(f, "  {}: ", leaf.text)?;
            match &leaf.index {
                Some(index) => write!(f, "index {index}")?,
                None => f.write_str("no index")?,
            }
            if let Some(encoding) = &leaf.encoding {
                write!(f, " ({encoding})")?;
            }
            if let (Some(_), Some(rows)) = (&leaf.index, leaf.rows) {
                write!(f, ", {rows} rows")?;
            }
            if let Some(reason) = leaf.reason {
                write!(f, " ({reason})")?;
            }
            writeln!(f)?;
            if let (Some(encoding), Some(choice)) = (&leaf.encoding, &leaf.choice) {
                writeln!(f, "    auto chose {encoding}: {choice}")?;
            }
        }
        writeln!(f, "coverage:   {:.1}% of {} files", self.coverage * 100.0, self.files_total)?;
        writeln!(
            f,
            "files:      {} total, {} pruned, {} scanned",
            self.files_total, self.files_pruned, self.files_unknown
        )?;
        writeln!(f, "row groups: {} known, {} pruned", self.row_groups_total, self.row_groups_pruned)?;
        writeln!(
            f,
            "rows:       {} known, {} certain, {} to re-check",
            self.rows_total, self.rows_certain, self.rows_uncertain
        )?;
        write!(f, "index:      {} reads, {} bytes, {:.1} ms", self.index_reads, self.index_bytes, self.seconds * 1000.0)
    }
}

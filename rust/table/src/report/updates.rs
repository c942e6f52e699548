//! How many updates are buffered and where, and what migrations and publications did.

use serde::Serialize;

use crate::report::description::{Description, Report, bytes, count, time};

/// The state of a table's buffered updates.
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
    pub rows_buffered: u64,
    /// Rows of the data files that scans leave out, those of deletion vectors included.
    pub rows_deleted: u64,
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

impl Report for UpdatesInfo {
    fn describe(&self) -> Description {
        let merged = self.runs.iter().filter(|run| run.passes > 1).count();
        let threshold = self.migration_threshold;
        let threshold = threshold.map_or(String::new(), |share| format!(", migrated from {:.0}% on", share * 100.0));
        let (buffered, deleted) = (count(self.rows_buffered), count(self.rows_deleted));
        Description::default()
            .fact("key", self.key.join(", "))
            .fact("last change", format!("number {}", count(self.sequence)))
            .fact("buffered rows", format!("{buffered}, {deleted} rows of data files deleted"))
            .fact(
                "buffer",
                format!(
                    "{} of {}, {} keys",
                    bytes(self.buffer_bytes),
                    bytes(self.buffer_limit),
                    count(self.buffer_keys)
                ),
            )
            .fact("runs", format!("{} of {}, {merged} of them merged", self.runs.len(), count(self.runs_limit)))
            .fact(
                "cache",
                format!(
                    "{} of {}, {:.1}% full{threshold}",
                    bytes(self.cache_bytes),
                    bytes(self.cache_limit),
                    self.cache_share * 100.0
                ),
            )
            .fact("writes per update", format!("{:.2} of at most {:.2}", self.writes_per_update, self.writes_bound))
            .fact(
                "written",
                format!(
                    "{} to logs, {} to runs, {} merged",
                    bytes(self.log_bytes),
                    bytes(self.flushed_bytes),
                    bytes(self.merged_bytes)
                ),
            )
    }
}

/// A run of buffered updates.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunInfo {
    /// How often its rows were written, 1 or 2.
    pub passes: u8,
    /// Its rows.
    pub rows: u64,
    /// Rows of the run that are in the data files already.
    pub rows_migrated: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// What a migration did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MigrateReport {
    /// Buffered rows that are in the data files now.
    pub rows: u64,
    /// Rows of data files that these replaced, and rows that were deleted.
    pub rows_replaced: u64,
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
    /// Adds what was compacted next.
    pub(crate) fn add(&mut self, next: &Self) {
        self.rows += next.rows;
        self.rows_replaced += next.rows_replaced;
        self.files_replaced += next.files_replaced;
        self.files_written += next.files_written;
        self.bytes_written += next.bytes_written;
        self.delta_version = next.delta_version.or(self.delta_version);
    }
}

impl Report for MigrateReport {
    fn describe(&self) -> Description {
        if self.files_replaced + self.files_written == 0 {
            return Description::titled("nothing to migrate");
        }
        let said = Description::titled("migrated")
            .fact("rows", count(self.rows))
            .fact("rows replaced or removed", count(self.rows_replaced))
            .fact("files replaced", count(self.files_replaced))
            .fact("files written", count(self.files_written))
            .fact("written", bytes(self.bytes_written))
            .fact("time", time(self.seconds));
        match self.delta_version {
            Some(version) => said.fact("Delta version", version.to_string()),
            None => said,
        }
    }
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

impl Report for PublishReport {
    fn describe(&self) -> Description {
        if self.files_published + self.originals_moved == 0 {
            return Description::titled("nothing to publish");
        }
        Description::titled("published")
            .fact("files", count(self.files_published))
            .fact("originals moved to the store", count(self.originals_moved))
            .fact("bytes", bytes(self.bytes_published))
            .fact("time", time(self.seconds))
    }
}

/// What programs miss that read a table's own files and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangesBesideFiles {
    /// There are changes that no data file has yet.
    pub buffered: bool,
    /// Migrations wrote data files that are in the store and not yet in the folder: see [`Table::publish`](crate::Table::publish).
    pub unpublished: bool,
}

//! The name, the unit and the meaning of every number that is told. `docs/operations.md` has the same list, which a test compares.

/// What is told under one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without `_total`.
    pub name: &'static str,
    /// How its numbers move.
    pub kind: FamilyKind,
    /// The unit, with which the name ends.
    pub unit: Option<&'static str>,
    /// What tells its numbers apart, besides the table.
    pub label: Option<&'static str>,
    /// What it counts.
    pub help: &'static str,
}

/// How numbers move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// They only grow while the process lives. What they are called when they are told ends in `_total`.
    Counter,
    /// They go up and down.
    Gauge,
}

impl FamilyKind {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

impl Family {
    const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: FamilyKind::Counter, unit: None, label: None, help }
    }

    const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: FamilyKind::Gauge, unit: None, label: None, help }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit: Some(unit), ..self }
    }

    const fn by(self, label: &'static str) -> Self {
        Self { label: Some(label), ..self }
    }

    /// The name that its numbers are told under.
    #[must_use]
    pub fn sample_name(&self) -> String {
        match self.kind {
            FamilyKind::Counter => format!("{}_total", self.name),
            FamilyKind::Gauge => self.name.to_owned(),
        }
    }
}

/// Data files that builds indexed.
pub static INDEXED_FILES: Family =
    Family::counter("lakemark_indexed_files", "Data files that builds read and wrote segments of.");
/// Rows of these.
pub static INDEXED_ROWS: Family = Family::counter("lakemark_indexed_rows", "Rows of these data files.");
/// Segments that were written.
pub static SEGMENTS_WRITTEN: Family =
    Family::counter("lakemark_segments_written", "Index files that builds and compactions wrote.");
/// Bytes of these.
pub static SEGMENT_WRITTEN_BYTES: Family =
    Family::counter("lakemark_segment_written_bytes", "Bytes of these index files.").unit("bytes");
/// Data files that migrations wrote.
pub static MIGRATED_FILES: Family = Family::counter("lakemark_migrated_files", "Data files that migrations wrote.");
/// Bytes of these.
pub static MIGRATED_BYTES: Family =
    Family::counter("lakemark_migrated_bytes", "Bytes of these data files.").unit("bytes");
/// Manifests that were committed.
pub static COMMITS: Family = Family::counter("lakemark_commits", "Manifests that were committed.");
/// Commits that were tried again.
pub static COMMIT_RETRIES: Family =
    Family::counter("lakemark_commit_retries", "Commits that were tried again, as another writer was first.");
/// How often the data files were found out.
pub static LISTINGS: Family =
    Family::counter("lakemark_listings", "Listings of the data files, or looks at the Delta log.");
/// Runs that ended.
pub static RUNS: Family =
    Family::counter("lakemark_runs", "Builds, compactions and migrations that ended, well or not.").by("verb");
/// Runs that failed.
pub static FAILURES: Family =
    Family::counter("lakemark_failures", "Builds, compactions and migrations that failed.").by("verb");
/// What runs took.
pub static RUN_SECONDS: Family =
    Family::counter("lakemark_run_seconds", "Seconds that these runs took.").unit("seconds").by("verb");
/// When the last run ended that did not fail.
pub static LAST_SUCCESS: Family =
    Family::gauge("lakemark_last_success_timestamp_seconds", "When the last run ended that did not fail.")
        .unit("seconds")
        .by("verb");
/// Requests to storage.
pub static REQUESTS: Family =
    Family::counter("lakemark_requests", "Requests to the storage of data and indexes.").by("kind");
/// Bytes that requests moved.
pub static REQUEST_BYTES: Family =
    Family::counter("lakemark_request_bytes", "Bytes that these requests moved.").unit("bytes").by("kind");
/// Requests that failed.
pub static REQUEST_FAILURES: Family =
    Family::counter("lakemark_request_failures", "Requests that failed; an object that is not there is no failure.")
        .by("kind");
/// Data files of the table.
pub static DATA_FILES: Family = Family::gauge("lakemark_data_files", "Data files of the table.");
/// Data files that some index does not cover.
pub static UNCOVERED_FILES: Family =
    Family::gauge("lakemark_uncovered_files", "Data files that some index does not cover.");
/// The age of the oldest of these.
pub static LAG: Family =
    Family::gauge("lakemark_lag_seconds", "Age of the oldest of these files; 0 without any.").unit("seconds");
/// When somebody last looked.
pub static LAST_LOOK: Family =
    Family::gauge("lakemark_last_look_timestamp_seconds", "When files and coverage were last looked at.")
        .unit("seconds");
/// How much an index covers.
pub static COVERAGE: Family =
    Family::gauge("lakemark_coverage_ratio", "Share of the data files that an index covers, 0 to 1.")
        .unit("ratio")
        .by("index");
/// Segments of an index.
pub static SEGMENTS: Family = Family::gauge("lakemark_segments", "Segments of an index.").by("index");
/// Bytes of an index.
pub static INDEX_BYTES: Family = Family::gauge("lakemark_index_bytes", "Bytes of an index.").unit("bytes").by("index");

/// Every family, in the order in which they are told.
pub static ALL: [&Family; 23] = [
    &INDEXED_FILES,
    &INDEXED_ROWS,
    &SEGMENTS_WRITTEN,
    &SEGMENT_WRITTEN_BYTES,
    &MIGRATED_FILES,
    &MIGRATED_BYTES,
    &COMMITS,
    &COMMIT_RETRIES,
    &LISTINGS,
    &RUNS,
    &FAILURES,
    &RUN_SECONDS,
    &LAST_SUCCESS,
    &REQUESTS,
    &REQUEST_BYTES,
    &REQUEST_FAILURES,
    &DATA_FILES,
    &UNCOVERED_FILES,
    &LAG,
    &LAST_LOOK,
    &COVERAGE,
    &SEGMENTS,
    &INDEX_BYTES,
];

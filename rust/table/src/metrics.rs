//! What a table did and what state its indexes are in, as numbers that an operator watches.
//!
//! ```text
//! storage, store, builds ─▶ Metrics of one table handle: counters ─┐
//! Snapshot::index_coverage ─▶ Metrics::set_coverage: gauges ───────┴─▶ samples ─▶ OpenMetrics text, JSON
//! ```
//!
//! [`Metrics`] belongs to one table handle, and is shared by whatever works for it. Counters are atomic numbers that only grow.
//! [`families`] has the name, the unit and the meaning of each, and nothing is told that is not there.
//! A process that works for several tables tells the numbers of each under its own name; their sum is that of the process.
//!
//! Uses no other module, so that any module may count.
//!
//! Invariant: counters only grow, and what is told of a table is told by one handle alone.

pub mod families;
mod open_metrics;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use families::Family;
pub use open_metrics::{NamedMetrics, open_metrics};
use serde_json::{Map, Value, json};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// What it is now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests of one kind to the storage of data and indexes.
#[derive(Debug, Default)]
pub struct RequestCounters {
    /// Requests that were made.
    pub requests: Counter,
    /// Bytes that they moved.
    pub bytes: Counter,
    /// Requests that failed. That something is not there is an answer, and no failure.
    pub failures: Counter,
}

/// Runs of one verb: a build, a compaction, a migration.
#[derive(Debug, Default)]
pub struct RunCounters {
    /// Runs that ended, well or not.
    pub runs: Counter,
    /// Runs that failed. A run that somebody stopped did not fail.
    pub failures: Counter,
    /// Microseconds that the runs took.
    micros: Counter,
    /// When the last run ended that did not fail, in milliseconds since 1970-01-01 UTC; 0 until there is one.
    succeeded_ms: AtomicU64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It did what it was for.
    Done,
    /// It failed.
    Failed,
    /// Somebody stopped it.
    Stopped,
}

impl RunCounters {
    /// Counts a run that took so many seconds and ended at `now`.
    pub fn record(&self, end: RunEnd, seconds: f64, now: SystemTime) {
        self.runs.add(1);
        self.micros.add((seconds * 1e6) as u64);
        match end {
            RunEnd::Failed => self.failures.add(1),
            RunEnd::Done => self.succeeded_ms.store(millis(now), Ordering::Relaxed),
            RunEnd::Stopped => {}
        }
    }
}

/// How much of a table its indexes cover.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexCoverage {
    /// Data files of the table.
    pub files: u64,
    /// Data files that some index does not cover.
    pub uncovered_files: u64,
    /// When the oldest of these was written.
    pub oldest_uncovered: Option<SystemTime>,
    /// The indexes one by one.
    pub indexes: Vec<CoverageOfIndex>,
}

/// How much of a table one index covers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoverageOfIndex {
    /// Its name.
    pub name: String,
    /// The share of the table's files that it covers, 0 to 1; 1 for no files.
    pub coverage: f64,
    /// Its segments.
    pub segments: u64,
    /// Bytes of these.
    pub bytes: u64,
}

impl IndexCoverage {
    /// The age of the oldest file that some index does not cover; 0 if there is none.
    #[must_use]
    pub fn lag(&self, now: SystemTime) -> Duration {
        self.oldest_uncovered.map_or(Duration::ZERO, |then| now.duration_since(then).unwrap_or_default())
    }

    /// The share of the files that every index covers, 0 to 1; 1 for no files and where nothing is declared.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.files == 0 {
            1.0
        } else {
            (self.files - self.uncovered_files.min(self.files)) as f64 / self.files as f64
        }
    }
}

/// The counters and the state of one table handle.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Data files that builds indexed.
    pub indexed_files: Counter,
    /// Rows of these.
    pub indexed_rows: Counter,
    /// Segments that were written.
    pub segments_written: Counter,
    /// Bytes of these.
    pub segment_bytes_written: Counter,
    /// Data files that migrations wrote.
    pub migrated_files: Counter,
    /// Bytes of these.
    pub migrated_bytes: Counter,
    /// Manifests that were committed.
    pub commits: Counter,
    /// Commits that were tried again, as others were first.
    pub commit_retries: Counter,
    /// How often the data files were found out: a listing, or a look at the Delta log.
    pub listings: Counter,
    /// Builds.
    pub build: RunCounters,
    /// Compactions of indexes.
    pub compact: RunCounters,
    /// Migrations of buffered updates.
    pub migrate: RunCounters,
    /// Reads.
    pub get: RequestCounters,
    /// Looks at size and time of one object.
    pub head: RequestCounters,
    /// Listings of folders.
    pub list: RequestCounters,
    /// Writes of whole objects, and of parts.
    pub put: RequestCounters,
    /// Removals.
    pub delete: RequestCounters,
    /// Copies and renames.
    pub copy: RequestCounters,
    coverage: Mutex<Option<SeenCoverage>>,
}

#[derive(Clone, Debug)]
struct SeenCoverage {
    coverage: IndexCoverage,
    at: SystemTime,
}

/// One number, as it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// What it is.
    pub family: &'static Family,
    /// The value of the family's label, where it has one.
    pub label: Option<String>,
    /// The number.
    pub value: f64,
}

impl Metrics {
    /// Counts a segment that was written.
    pub fn count_segment(&self, bytes: u64) {
        self.segments_written.add(1);
        self.segment_bytes_written.add(bytes);
    }

    /// Remembers how much the indexes cover, as somebody saw it at `now`.
    pub fn set_coverage(&self, coverage: IndexCoverage, now: SystemTime) {
        *self.coverage.lock().unwrap_or_else(PoisonError::into_inner) = Some(SeenCoverage { coverage, at: now });
    }

    /// All numbers, in the order of [`families::ALL`]. What was never seen is left out; `now` is what ages are counted from.
    #[must_use]
    pub fn samples(&self, now: SystemTime) -> Vec<Sample> {
        let mut samples = self.counted();
        self.add_runs(&mut samples);
        self.add_requests(&mut samples);
        let seen = self.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(SeenCoverage { coverage, at }) = seen {
            add_coverage(&mut samples, &coverage, at, now);
        }
        samples
    }

    /// The same as an object: by the names that they are told under, and where a name has a label, by its values.
    #[must_use]
    pub fn values(&self, now: SystemTime) -> Map<String, Value> {
        let mut values = Map::new();
        for Sample { family, label, value } in self.samples(now) {
            let name = family.sample_name();
            match label {
                None => {
                    values.insert(name, value.into());
                }
                Some(label) => {
                    let by_label = values.entry(name).or_insert_with(|| Value::Object(Map::new()));
                    if let Value::Object(by_label) = by_label {
                        by_label.insert(label, value.into());
                    }
                }
            }
        }
        values
    }

    /// The same with what [`families`] says of each name: for programs that show numbers to people, a list in the order of
    /// [`families::ALL`].
    #[must_use]
    pub fn described(&self, now: SystemTime) -> Vec<Value> {
        let values = self.values(now);
        let described = families::ALL.iter().filter_map(|family| {
            let name = family.sample_name();
            let value = values.get(&name)?;
            Some(json!({
                "name": name,
                "kind": family.kind.name(),
                "unit": family.unit,
                "by": family.label,
                "meaning": family.help,
                "value": value,
            }))
        });
        described.collect()
    }

    fn counted(&self) -> Vec<Sample> {
        let counters = [
            (&families::INDEXED_FILES, &self.indexed_files),
            (&families::INDEXED_ROWS, &self.indexed_rows),
            (&families::SEGMENTS_WRITTEN, &self.segments_written),
            (&families::SEGMENT_WRITTEN_BYTES, &self.segment_bytes_written),
            (&families::MIGRATED_FILES, &self.migrated_files),
            (&families::MIGRATED_BYTES, &self.migrated_bytes),
            (&families::COMMITS, &self.commits),
            (&families::COMMIT_RETRIES, &self.commit_retries),
            (&families::LISTINGS, &self.listings),
        ];
        counters.map(|(family, counter)| Sample { family, label: None, value: counter.get() as f64 }).into()
    }

    fn add_runs(&self, samples: &mut Vec<Sample>) {
        let verbs = [("build", &self.build), ("compact", &self.compact), ("migrate", &self.migrate)];
        let mut add = |family: &'static Family, value_of: &dyn Fn(&RunCounters) -> Option<f64>| {
            let of_verbs = verbs.iter().filter_map(|(verb, run)| Some((verb, value_of(run)?)));
            samples.extend(of_verbs.map(|(verb, value)| Sample { family, label: Some((*verb).to_owned()), value }));
        };
        add(&families::RUNS, &|run| Some(run.runs.get() as f64));
        add(&families::FAILURES, &|run| Some(run.failures.get() as f64));
        add(&families::RUN_SECONDS, &|run| Some(run.micros.get() as f64 / 1e6));
        add(&families::LAST_SUCCESS, &|run| match run.succeeded_ms.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(millis as f64 / 1e3),
        });
    }

    fn add_requests(&self, samples: &mut Vec<Sample>) {
        let kinds = [
            ("get", &self.get),
            ("head", &self.head),
            ("list", &self.list),
            ("put", &self.put),
            ("delete", &self.delete),
            ("copy", &self.copy),
        ];
        let mut add = |family: &'static Family, value_of: &dyn Fn(&RequestCounters) -> u64| {
            let of_kinds = kinds.iter().map(|(kind, counters)| (kind, value_of(counters) as f64));
            samples.extend(of_kinds.map(|(kind, value)| Sample { family, label: Some((*kind).to_owned()), value }));
        };
        add(&families::REQUESTS, &|counters| counters.requests.get());
        add(&families::REQUEST_BYTES, &|counters| counters.bytes.get());
        add(&families::REQUEST_FAILURES, &|counters| counters.failures.get());
    }
}

fn add_coverage(samples: &mut Vec<Sample>, coverage: &IndexCoverage, at: SystemTime, now: SystemTime) {
    let mut add = |family: &'static Family, value: f64| samples.push(Sample { family, label: None, value });
    add(&families::DATA_FILES, coverage.files as f64);
    add(&families::UNCOVERED_FILES, coverage.uncovered_files as f64);
    add(&families::LAG, coverage.lag(now).as_secs_f64());
    add(&families::LAST_LOOK, millis(at) as f64 / 1e3);
    let mut add = |family: &'static Family, value_of: &dyn Fn(&CoverageOfIndex) -> f64| {
        let of_indexes = coverage.indexes.iter().map(|index| (index.name.clone(), value_of(index)));
        samples.extend(of_indexes.map(|(name, value)| Sample { family, label: Some(name), value }));
    };
    add(&families::COVERAGE, &|index| index.coverage);
    add(&families::SEGMENTS, &|index| index.segments as f64);
    add(&families::INDEX_BYTES, &|index| index.bytes as f64);
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

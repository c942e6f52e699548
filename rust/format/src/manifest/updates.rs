//! The part of a manifest that says what a table has buffered: its key, the live log, the runs, and which rows migrations
//! put where.

use std::collections::HashSet;
use std::ops::Range;

use super::extras::{self, ManifestDelta, ManifestExtras, ManifestPublication, ManifestTransaction};
use super::{check_paths, unique};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::MAX_KEY_COLUMNS;
use crate::limits::{MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::path::check_path;

/// What a table that takes updates has buffered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestUpdates {
    /// The key's columns by their physical names, in order; one or more.
    pub key: Vec<String>,
    /// Options as they were given, in order.
    pub options: Vec<(String, String)>,
    /// The live log.
    pub log: ManifestLog,
    /// The runs, oldest first: their sequence numbers ascend and do not overlap.
    pub runs: Vec<ManifestRun>,
    /// The migration that is under way, or whose traces are not tidied up yet.
    pub migration: Option<ManifestMigration>,
    /// Number of the last migration that was begun; 0 if none was.
    pub migrations: u64,
    /// Data files of a Parquet folder that count no more, since migrations put others in their place.
    pub replaced: Vec<ReplacedFile>,
    /// Data files that migrations of a Parquet folder wrote into the store.
    pub data: Vec<StoreFile>,
    /// What was written so far.
    pub written: WriteCounters,
    /// The last call of each application that numbers its calls; names are unique.
    pub transactions: Vec<ManifestTransaction>,
    /// What was published of a Parquet folder, oldest first; the last may be under way.
    pub publications: Vec<ManifestPublication>,
    /// Which Delta table they are of; none of other tables.
    pub delta: Option<ManifestDelta>,
}

/// A log file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestLog {
    /// Its id, the seed of its checksums.
    pub id: [u8; 16],
    /// Path relative to the store.
    pub path: String,
    /// Sequence number of the first commit that goes there.
    pub first_sequence: u64,
}

/// A sorted run of updates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRun {
    /// Its id.
    pub id: [u8; 16],
    /// Path relative to the store.
    pub path: String,
    /// Length in bytes.
    pub length: u64,
    /// How often its rows were written: 1 as the buffer was flushed, 2 as runs were merged.
    pub passes: u8,
    /// Rows, each of another key.
    pub rows: u32,
    /// Sequence number of its oldest commit.
    pub first_sequence: u64,
    /// Sequence number of its newest commit.
    pub last_sequence: u64,
    /// Ranges of its rows that are in the data files already: ascending, apart from each other, not empty.
    pub migrated: Vec<Range<u32>>,
    /// The position map of its keys. An index: lost, it is derived again.
    pub position_map: Option<ManifestPositionMap>,
    /// The migration during which it was written, if some of its updates have two sets. One set counts as long as the migration is
    /// under way, the other one afterwards. 0 if no update has two sets. 0, too, if the migration was abandoned, so that the first
    /// set counts.
    pub during: u64,
}

/// The file of a run's position map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestPositionMap {
    /// Its id, the seed of its checksums.
    pub id: [u8; 16],
    /// Path relative to the store.
    pub path: String,
    /// Length in bytes.
    pub length: u64,
}

/// A migration: it counts as done if the table's own log says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestMigration {
    /// Its number, from 1 on, which is the version of the application transaction in a Delta log.
    pub number: u64,
    /// Rows that it migrates into the table: ascending, apart from each other, not empty.
    pub ranges: Vec<RunRange>,
}

/// A range of rows of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRange {
    /// Ordinal of the run in [`ManifestUpdates::runs`].
    pub run: u32,
    /// The rows.
    pub rows: Range<u32>,
}

/// A data file that does not count any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedFile {
    /// Path relative to the table's root.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
}

/// A data file in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFile {
    /// Path relative to the store.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
}

/// What updating wrote so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteCounters {
    /// Changed rows that reached a run.
    pub rows: u64,
    /// Bytes of logs.
    pub log_bytes: u64,
    /// Bytes of runs that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of runs that merges wrote.
    pub merged_bytes: u64,
    /// Rows of runs that merges wrote.
    pub merged_rows: u64,
}

impl ManifestUpdates {
    /// Bytes of the runs.
    pub fn run_bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.length).sum()
    }

    pub(super) fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.length(self.key.len());
        for column in &self.key {
            out.string("a column of the key", column, MAX_NAME_LENGTH)?;
        }
        out.length(self.options.len());
        for (name, value) in &self.options {
            out.string("an option's name", name, MAX_NAME_LENGTH)?;
            out.string("an option's value", value, MAX_NAME_LENGTH)?;
        }
        out.bytes(&self.log.id);
        out.string("the path of a log", &self.log.path, MAX_PATH_LENGTH)?;
        out.varint(self.log.first_sequence);
        out.length(self.runs.len());
        for run in &self.runs {
            run.encode(out)?;
        }
        out.flag(self.migration.is_some());
        if let Some(migration) = &self.migration {
            out.varint(migration.number);
            out.length(migration.ranges.len());
            for RunRange { run, rows } in &migration.ranges {
                out.varint(u64::from(*run));
                put_range(out, rows);
            }
        }
        out.varint(self.migrations);
        out.length(self.replaced.len());
        for file in &self.replaced {
            out.string("the path of a replaced file", &file.path, MAX_PATH_LENGTH)?;
            out.varint(file.size);
            out.i64(file.modified_ns);
        }
        out.length(self.data.len());
        for file in &self.data {
            out.string("the path of a file of the store", &file.path, MAX_PATH_LENGTH)?;
            out.varint(file.size);
        }
        let WriteCounters { rows, log_bytes, flushed_bytes, merged_bytes, merged_rows } = self.written;
        for count in [rows, log_bytes, flushed_bytes, merged_bytes, merged_rows] {
            out.varint(count);
        }
        if !self.transactions.is_empty() || !self.publications.is_empty() || self.delta.is_some() {
            extras::encode(&self.transactions, &self.publications, self.delta.as_ref(), out)?;
        }
        Ok(())
    }

    /// Reads them from the bytes that are left, and checks them.
    pub(super) fn decode_rest(input: &mut ByteReader<'_>) -> Result<Self> {
        let rest = input.bytes(input.remaining())?;
        let decode = || {
            let mut input = ByteReader::new("the updates", rest);
            let updates = Self::decode(&mut input)?;
            input.finish()?;
            updates.validate()?;
            Ok(updates)
        };
        decode().map_err(|error: FormatError| error.of_updates("the updates of the manifest"))
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let count = input.count("the number of key columns", 1)?;
        let key = (0..count).map(|_| input.string("a column of the key", MAX_NAME_LENGTH)).collect::<Result<_>>()?;
        let count = input.count("the number of options", 2)?;
        let mut options = Vec::with_capacity(count);
        for _ in 0..count {
            let name = input.string("an option's name", MAX_NAME_LENGTH)?;
            options.push((name, input.string("an option's value", MAX_NAME_LENGTH)?));
        }
        let log = ManifestLog {
            id: input.array()?,
            path: input.string("the path of a log", MAX_PATH_LENGTH)?,
            first_sequence: input.varint()?,
        };
        let count = input.count("the number of runs", ManifestRun::MIN_BYTES)?;
        let runs = (0..count).map(|_| ManifestRun::decode(input)).collect::<Result<_>>()?;
        let migration = match input.flag("the presence of a migration")? {
            true => Some(ManifestMigration::decode(input)?),
            false => None,
        };
        let migrations = input.varint()?;
        let count = input.count("the number of replaced files", 10)?;
        let mut replaced = Vec::with_capacity(count);
        for _ in 0..count {
            let path = input.string("the path of a replaced file", MAX_PATH_LENGTH)?;
            replaced.push(ReplacedFile { path, size: input.varint()?, modified_ns: input.i64()? });
        }
        let count = input.count("the number of files of the store", 2)?;
        let mut data = Vec::with_capacity(count);
        for _ in 0..count {
            let path = input.string("the path of a file of the store", MAX_PATH_LENGTH)?;
            data.push(StoreFile { path, size: input.varint()? });
        }
        let written = WriteCounters {
            rows: input.varint()?,
            log_bytes: input.varint()?,
            flushed_bytes: input.varint()?,
            merged_bytes: input.varint()?,
            merged_rows: input.varint()?,
        };
        let ManifestExtras { transactions, publications, delta } = match input.remaining() {
            0 => ManifestExtras::default(),
            _ => extras::decode(input)?,
        };
        Ok(Self {
            key,
            options,
            log,
            runs,
            migration,
            migrations,
            replaced,
            data,
            written,
            transactions,
            publications,
            delta,
        })
    }

    pub(super) fn validate(&self) -> Result<()> {
        if self.key.is_empty() || self.key.len() > MAX_KEY_COLUMNS {
            let expected = format_args!("1 to {MAX_KEY_COLUMNS}").to_string();
            return Err(FormatError::invalid("the number of key columns", self.key.len(), expected));
        }
        let mut columns = HashSet::with_capacity(self.key.len());
        for column in &self.key {
            unique(&mut columns, "a column of the key", column.as_str())?;
        }
        check_path("the path of a log", &self.log.path)?;
        let (mut ids, mut next) = (HashSet::with_capacity(self.runs.len()), 0);
        for run in &self.runs {
            unique(&mut ids, "the id of a run", &run.id)?;
            run.validate(next, self.migrations)?;
            next = run.last_sequence + 1;
        }
        if self.log.first_sequence < next {
            let expected = format_args!("at least {next}").to_string();
            return Err(FormatError::invalid("the first sequence of the log", self.log.first_sequence, expected));
        }
        if let Some(migration) = &self.migration {
            migration.validate(self)?;
        }
        check_paths("the path of a replaced file", self.replaced.iter().map(|file| file.path.as_str()))?;
        check_paths("the path of a file of the store", self.data.iter().map(|file| file.path.as_str()))?;
        if let Some(delta) = self.delta.as_ref().filter(|delta| delta.last_migration > self.migrations) {
            let expected = format_args!("at most {}", self.migrations).to_string();
            return Err(FormatError::invalid(
                "the number of the last migration in the log",
                delta.last_migration,
                expected,
            ));
        }
        extras::validate(&self.transactions, &self.publications, self.log.first_sequence)
    }
}

impl ManifestRun {
    /// An id, an empty path's length, length, passes, rows, two sequence numbers, no ranges, no position map and no migration.
    const MIN_BYTES: usize = 16 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1;

    fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.bytes(&self.id);
        out.string("the path of a run", &self.path, MAX_PATH_LENGTH)?;
        out.varint(self.length);
        out.u8(self.passes);
        out.varint(u64::from(self.rows));
        out.varint(self.first_sequence);
        out.varint(self.last_sequence);
        out.length(self.migrated.len());
        for range in &self.migrated {
            put_range(out, range);
        }
        out.flag(self.position_map.is_some());
        if let Some(position_map) = &self.position_map {
            out.bytes(&position_map.id);
            out.string("the path of a position map", &position_map.path, MAX_PATH_LENGTH)?;
            out.varint(position_map.length);
        }
        out.varint(self.during);
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let id = input.array()?;
        let path = input.string("the path of a run", MAX_PATH_LENGTH)?;
        let length = input.varint()?;
        let passes = input.u8()?;
        let rows = input.varint_u32("the rows of a run")?;
        let (first_sequence, last_sequence) = (input.varint()?, input.varint()?);
        let count = input.count("the number of migrated ranges", 2)?;
        let migrated = (0..count).map(|_| range_of(input)).collect::<Result<_>>()?;
        let position_map = match input.flag("the presence of a position map")? {
            true => Some(ManifestPositionMap {
                id: input.array()?,
                path: input.string("the path of a position map", MAX_PATH_LENGTH)?,
                length: input.varint()?,
            }),
            false => None,
        };
        let during = input.varint()?;
        Ok(Self { id, path, length, passes, rows, first_sequence, last_sequence, migrated, position_map, during })
    }

    fn validate(&self, next_sequence: u64, migrations: u64) -> Result<()> {
        check_path("the path of a run", &self.path)?;
        if self.during > migrations {
            let expected = format_args!("at most {migrations}").to_string();
            return Err(FormatError::invalid("the migration during which a run was written", self.during, expected));
        }
        if let Some(position_map) = &self.position_map {
            check_path("the path of a position map", &position_map.path)?;
        }
        if !(1..=2).contains(&self.passes) {
            return Err(FormatError::invalid("the passes of a run", self.passes, "1 or 2"));
        }
        let (first, last) = (self.first_sequence, self.last_sequence);
        if first < next_sequence || last < first || last == u64::MAX {
            let got = format_args!("{first} to {last}").to_string();
            let expected = format_args!("ascending, from {next_sequence} on, below 2^64 - 1").to_string();
            return Err(FormatError::invalid("the sequence numbers of a run", got, expected));
        }
        let mut from = 0;
        for range in &self.migrated {
            from = check_range("a migrated range", range, from, self.rows)?;
        }
        Ok(())
    }
}

impl ManifestMigration {
    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let number = input.varint()?;
        let count = input.count("the number of slices", 3)?;
        let mut slices = Vec::with_capacity(count);
        for _ in 0..count {
            let run = input.varint_u32("the run of a slice")?;
            slices.push(RunRange { run, rows: range_of(input)? });
        }
        Ok(Self { number, ranges: slices })
    }

    fn validate(&self, updates: &ManifestUpdates) -> Result<()> {
        if self.number == 0 || self.number != updates.migrations {
            let expected = format_args!("{}, which is 1 or more", updates.migrations).to_string();
            return Err(FormatError::invalid("the number of the migration", self.number, expected));
        }
        let (mut before, mut from) = (0, 0);
        for RunRange { run, rows } in &self.ranges {
            let Some(of) = updates.runs.get(*run as usize).filter(|_| before <= *run) else {
                let expected = format_args!("ascending, from {before} to below {}", updates.runs.len()).to_string();
                return Err(FormatError::invalid("the run of a slice", run, expected));
            };
            if before < *run {
                (before, from) = (*run, 0);
            }
            from = check_range("a slice of a migration", rows, from, of.rows)?;
        }
        Ok(())
    }
}

/// A range as its start and its length.
fn put_range(out: &mut ByteWriter, range: &Range<u32>) {
    out.varint(u64::from(range.start));
    out.varint(u64::from(range.end.saturating_sub(range.start)));
}

fn range_of(input: &mut ByteReader<'_>) -> Result<Range<u32>> {
    let start = input.varint_u32("the start of a range")?;
    let length = input.varint_u32("the length of a range")?;
    match start.checked_add(length) {
        Some(end) => Ok(start..end),
        None => Err(FormatError::TooLong {
            what: "the end of a range",
            got: u64::from(start) + u64::from(length),
            limit: u64::from(u32::MAX),
        }),
    }
}

/// Checks a range of rows that may not begin before `from`; gives where the next one may begin, so that it does not touch.
fn check_range(what: &'static str, range: &Range<u32>, from: u32, rows: u32) -> Result<u32> {
    let Range { start, end } = *range;
    if from <= start && start < end && end <= rows {
        return Ok(end.saturating_add(1));
    }
    let expected = format_args!("not empty, apart from the one before, within {from}..{rows}").to_string();
    Err(FormatError::invalid(what, format_args!("{start}..{end}").to_string(), expected))
}

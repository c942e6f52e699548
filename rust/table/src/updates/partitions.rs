//! The types of the partition columns of a folder while changes are pending.
//!
//! The names of the folders decide: integers where all of them are, else dates, else text. Other programs add and remove folders, so that
//! the type may change under a change that is pending. The change keeps the value that it was written with: where it has another
//! type than the folders, the column is text, which has integers and dates as their folders are called.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use arrow::datatypes::{DataType, Schema};
use lakemark_format::log::{LOG_START, check_log_header, read_log};
use lakemark_format::{ManifestLog, ManifestRun, ManifestUpdates};

use super::level::LevelRows;
use super::overlay::OverlayCache;
use super::phase::Phase;
use super::tail::{damaged, open, schema_of, unreadable};
use crate::disk;
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::Store;

/// Types by column.
type Types = BTreeMap<String, BTreeSet<DataType>>;

/// The types that the columns of a log have, as far as it was read.
#[derive(Clone, Debug, Default)]
struct Seen {
    log: [u8; 16],
    end: u64,
    next: u64,
    types: Types,
}

/// What a table remembers of its log.
#[derive(Debug, Default)]
pub(crate) struct LogTypes(Mutex<Option<Seen>>);

/// The partition columns that runs, or the log if it is given, have in other types than the folders, where those are no text.
pub(crate) async fn typed_otherwise(
    base: &Snapshot,
    store: &Store,
    (updates, log): (&ManifestUpdates, Option<&ManifestLog>),
    cache: &OverlayCache,
) -> Result<BTreeSet<String>> {
    let is_narrow = |of: &DataType| !of.is_string();
    let narrow: Vec<_> = base.partition_columns().iter().filter(|column| is_narrow(column.data_type())).collect();
    if narrow.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut types = match log {
        Some(log) => of_log(store, log, cache).await?,
        None => Types::new(),
    };
    for run in &updates.runs {
        of_run(base, store, updates, run, cache, &mut types).await?;
    }
    let is_other =
        |of: &DataType, column: &str| types.get(column).is_some_and(|types| types.iter().any(|had| had != of));
    let others = narrow.into_iter().filter(|column| is_other(column.data_type(), column.name()));
    Ok(others.map(|column| column.name().clone()).collect())
}

async fn of_run(
    base: &Snapshot,
    store: &Store,
    updates: &ManifestUpdates,
    run: &ManifestRun,
    cache: &OverlayCache,
    types: &mut Types,
) -> Result<()> {
    let phase = Phase::of(run, updates, base.folded());
    let level = cache.runs.level(store, run, base.column_names(), phase).await?;
    if let LevelRows::File(file) = &level.rows {
        add(types, file.schema());
    }
    Ok(())
}

/// Those of a log, read on from where it was read before.
async fn of_log(store: &Store, log: &ManifestLog, cache: &OverlayCache) -> Result<Types> {
    let path = store
        .local_path(&log.path)
        .ok_or_else(|| Error::unsupported("a table with pending changes needs its store on a local file system"))?;
    let known = cache.types.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let first = || Seen { log: log.id, end: LOG_START, next: log.first_sequence, types: Types::new() };
    let mut seen = known.filter(|seen| seen.log == log.id).unwrap_or_else(first);
    let seen =
        disk::on_a_thread(move || seen.read_on(&path).map(|()| seen)).await.map_err(|error| Error::task(&error))??;
    let types = seen.types.clone();
    *cache.types.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    Ok(types)
}

impl Seen {
    fn read_on(&mut self, path: &Path) -> Result<()> {
        let io = |error| unreadable(path, error);
        let corrupt = |error| damaged(path).with_source(error);
        let mut file = open(path)?;
        let mut bytes = Vec::new();
        if self.end == LOG_START {
            let mut header = vec![0; usize::try_from(LOG_START).unwrap_or(0)];
            file.read_exact(&mut header).map_err(io)?;
            check_log_header(&self.log, &header).map_err(corrupt)?;
        }
        file.seek(SeekFrom::Start(self.end)).and_then(|_| file.read_to_end(&mut bytes)).map_err(io)?;
        let read = read_log(&self.log, self.end, self.next, &bytes).map_err(corrupt)?;
        for (sequence, commit) in &read.commits {
            for change in &commit.changes {
                add(&mut self.types, &*schema_of(&change.rows)?);
            }
            self.next = sequence + 1;
        }
        self.end = read.end;
        Ok(())
    }
}

fn add(types: &mut Types, schema: &Schema) {
    for field in schema.fields() {
        types.entry(field.name().clone()).or_default().insert(field.data_type().clone());
    }
}

//! Resolving changes: what they do to older runs and to the data files, and whole rows for updates of some columns.
//!
//! ```text
//! changes of the buffer ─ merge updates with what older runs say of their keys
//!                       ─ rows of older runs that they replace
//!                       ─ rows of data files that they delete or replace
//!                       ─ complete updates: columns that they do not name are taken from the data files
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use lakemark_format::Operation;
use lakemark_index::RowSet;

use super::active_run::ActiveRun;
use super::known_hits::FilePositions;
use super::sorted_run::{SortedRun, SortedRunRows, select_rows};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::updates::changes::merge_changes::ChangeMerger;
use crate::updates::changes::rows::{ChangeColumns, batch, has, table_columns};
use crate::updates::key::{KeyColumns, KeySet};
use crate::updates::lookup::fetch::RowFile;
use crate::updates::lookup::key_positions::{FilesToSearch, KeyPositions, by_file, positions_of_keys};

/// What changes are resolved against.
pub(crate) struct KeyResolver<'a> {
    /// The data files, without any buffered change.
    pub base: &'a Snapshot,
    pub key: &'a Arc<KeyColumns>,
    /// The schema of changes.
    pub schema: &'a SchemaRef,
}

/// Changes whose updates were completed from data files.
pub(crate) struct CompletedChanges {
    /// The changes, with the columns that were found.
    pub rows: RecordBatch,
    /// Which of them were found in which file, by the place of the file.
    pub sources: HashMap<usize, Vec<u32>>,
}

/// Rows of a data file.
struct RowsOfFile {
    /// The place of the file in the snapshot.
    file: usize,
    /// The rows, with the table's columns.
    rows: RecordBatch,
}

/// A buffer that was resolved against the same data files and runs before more changes came.
#[derive(Clone)]
pub(crate) struct ResolvedBuffer {
    pub run: Arc<SortedRun>,
    /// The keys of its changes, as bytes.
    pub keys: Arc<HashSet<Box<[u8]>>>,
}

impl ResolvedBuffer {
    pub(crate) fn new(run: Arc<SortedRun>, key: &KeyColumns) -> Result<Self> {
        let mut keys = HashSet::new();
        if let Some(rows) = memory_rows(&run) {
            keys.extend(key.encode(rows)?.iter().map(|row| Box::from(row.as_ref())));
        }
        Ok(Self { run, keys: Arc::new(keys) })
    }
}

impl KeyResolver<'_> {
    /// [`Self::resolve_keys`], where the same buffer was resolved before. What a key hits does not change, so that only new keys are
    /// searched. Updates of some columns are completed anew, so that a buffer with such updates is resolved from the start.
    pub(crate) async fn resolve_incrementally(
        &self,
        before: &ResolvedBuffer,
        id: [u8; 16],
        changes: RecordBatch,
        older: &[ActiveRun],
    ) -> Result<SortedRun> {
        if !ChangeColumns::of(&changes)?.rows_of(&[Operation::Update]).is_empty() {
            return self.resolve_keys(id, changes, older).await;
        }
        let rows = self.key.encode(&changes)?;
        let fresh = rows.iter().zip(0u32..).filter(|(row, _)| !before.keys.contains(row.as_ref())).map(|(_, row)| row);
        let universe = u32::try_from(changes.num_rows()).unwrap_or(u32::MAX);
        let fresh = select_rows(&changes, &RowSet::from_rows(fresh.collect(), universe))?;
        let keys = KeySet::of(self.key, self.key.columns(&fresh)?)?;
        let run = SortedRun::in_memory(id, changes)?;
        for below in older {
            let mut rows = below.run.rows_with(self.key, &keys).await?;
            if let Some(known) = before.run.replaced(&below.run.id) {
                rows = rows.or(&known);
            }
            run.set_replaced(below.run.id, rows);
        }
        let found = positions_of_keys(self.base, self.key, &keys, FilesToSearch::All).await?;
        let known = before.run.hits_among(self.base.files()).into_iter().map(|(file, known)| KeyPositions {
            file,
            row_groups: known.row_groups.clone(),
            rows: RowSet::clone(&known.deleted),
        });
        for found in by_file(found.into_iter().chain(known)).into_values() {
            self.record(&run, found, RowSet::empty(run.row_count()));
        }
        run.set_resolved(self.base.files());
        Ok(run)
    }

    /// The changes of a buffer as a run above `older` ones (oldest first).
    pub(crate) async fn resolve_keys(
        &self,
        id: [u8; 16],
        changes: RecordBatch,
        older: &[ActiveRun],
    ) -> Result<SortedRun> {
        let changes = self.merge_onto(changes, older).await?;
        let keys = KeySet::of(self.key, self.key.columns(&changes)?)?;
        let CompletedChanges { rows: completed, sources } = self.complete(&changes).await?;
        let run = SortedRun::in_memory(id, completed)?;
        for below in older {
            let rows = below.run.rows_with(self.key, &keys).await?;
            run.set_replaced(below.run.id, rows);
        }
        for found in positions_of_keys(self.base, self.key, &keys, FilesToSearch::All).await? {
            let rows = sources.get(&found.file).cloned().unwrap_or_default();
            self.record(&run, found, RowSet::from_rows(rows, run.row_count()));
        }
        run.set_resolved(self.base.files());
        Ok(run)
    }

    /// Remembers where the keys of a run are in a file.
    pub(crate) fn record(&self, run: &SortedRun, found: KeyPositions, completed: RowSet) -> Option<Arc<FilePositions>> {
        let file = self.base.files().get(found.file)?;
        let hits = FilePositions { row_groups: found.row_groups, deleted: Arc::new(found.rows), completed };
        Some(run.set_hits(file.version(), hits))
    }

    /// Merges updates of some columns with the newest that older runs say of their keys.
    pub(crate) async fn merge_onto(&self, changes: RecordBatch, older: &[ActiveRun]) -> Result<RecordBatch> {
        let partial = ChangeColumns::of(&changes)?.rows_of(&[Operation::Update]);
        if partial.is_empty() || older.is_empty() {
            return Ok(changes);
        }
        let mut wanted = select_rows(&changes, &partial)?;
        let mut merger = ChangeMerger::new(Arc::clone(self.schema), Arc::clone(self.key));
        for below in older.iter().rev() {
            if wanted.num_rows() == 0 {
                break;
            }
            let keys = KeySet::of(self.key, self.key.columns(&wanted)?)?;
            let found = below.run.rows_with(self.key, &keys).await?.and(&below.active());
            if found.is_empty() {
                continue;
            }
            let rows = below.run.read(self.schema, &found).await?;
            let known = KeySet::of(self.key, self.key.columns(&rows)?)?;
            let left = self.key.encode(&wanted)?;
            let left = left.iter().zip(0u32..).filter(|(row, _)| !known.contains(row.as_ref())).map(|(_, row)| row);
            let universe = u32::try_from(wanted.num_rows()).unwrap_or(u32::MAX);
            wanted = select_rows(&wanted, &RowSet::from_rows(left.collect(), universe))?;
            merger.add(rows)?;
        }
        if merger.len() == 0 {
            return Ok(changes);
        }
        merger.add(changes)?;
        merger.finish()
    }

    /// Takes the columns that updates do not name from the data files.
    pub(crate) async fn complete(&self, changes: &RecordBatch) -> Result<CompletedChanges> {
        let partial = ChangeColumns::of(changes)?.rows_of(&[Operation::Update]);
        if partial.is_empty() {
            return Ok(CompletedChanges { rows: changes.clone(), sources: HashMap::new() });
        }
        let updates = select_rows(changes, &partial)?;
        let places: Vec<u32> = partial.iter().collect();
        let keys = KeySet::of(self.key, self.key.columns(&updates)?)?;
        let found = self.rows_of(&keys).await?;
        // The first file that has a key gives its row.
        let mut sources: HashMap<u32, (usize, usize)> = HashMap::new();
        let mut from: HashMap<usize, Vec<u32>> = HashMap::new();
        for (number, RowsOfFile { file, rows }) in found.iter().enumerate() {
            for (row, key) in self.key.encode(rows)?.iter().enumerate() {
                let place = keys.position(key.as_ref()).and_then(|place| places.get(place as usize).copied());
                if let Some(place) = place
                    && !sources.contains_key(&place)
                {
                    sources.insert(place, (number, row));
                    from.entry(*file).or_default().push(place);
                }
            }
        }
        let said = ChangeColumns::of(changes)?;
        let width = table_columns(self.schema);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(changes.num_columns());
        for (place, column) in changes.columns().iter().enumerate() {
            if place >= width {
                columns.push(Arc::clone(column));
                continue;
            }
            let mut arrays: Vec<&dyn Array> = vec![column.as_ref()];
            arrays.extend(found.iter().filter_map(|found| found.rows.columns().get(place).map(AsRef::as_ref)));
            let index = |row: usize| {
                let source = u32::try_from(row).ok().and_then(|row| sources.get(&row));
                match source {
                    Some((number, found)) if !has(said.set(row), place) => (number + 1, *found),
                    _ => (0, row),
                }
            };
            let indices: Vec<(usize, usize)> = (0..changes.num_rows()).map(index).collect();
            let taken = interleave(&arrays, &indices)
                .map_err(|error| Error::internal("updates cannot be completed").with_source(error))?;
            columns.push(taken);
        }
        Ok(CompletedChanges { rows: batch(self.schema, columns, changes.num_rows())?, sources: from })
    }

    /// The rows of data files that have one of the keys, with the table's columns, by file.
    async fn rows_of(&self, keys: &KeySet) -> Result<Vec<RowsOfFile>> {
        let width = table_columns(self.schema);
        let columns: Vec<usize> = (0..width).collect();
        let schema = self
            .schema
            .project(&columns)
            .map_err(|error| Error::internal("the schema of changes lacks columns").with_source(error))?;
        let schema = Arc::new(schema);
        let mut found = Vec::new();
        for KeyPositions { file, rows, .. } in positions_of_keys(self.base, self.key, keys, FilesToSearch::All).await? {
            let Some(data_file) = self.base.files().get(file) else { continue };
            let live = data_file.deleted.as_ref().map_or_else(|| rows.clone(), |deleted| rows.minus(deleted));
            if !live.is_empty() {
                let opened = RowFile::of(self.base, data_file).open().await?;
                found.push(RowsOfFile { file, rows: opened.collect(&schema, Some(&live)).await? });
            }
        }
        Ok(found)
    }
}

/// The rows of a run in memory.
pub(crate) fn memory_rows(run: &SortedRun) -> Option<&RecordBatch> {
    match &run.rows {
        SortedRunRows::Memory(rows) => Some(rows),
        SortedRunRows::File(_) | SortedRunRows::None => None,
    }
}

//! Runs that were opened: Parquet files of changes in the order of keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Int8Type, Schema};
use chrono::DateTime;
use lakemark_format::{KeyFilter, ManifestRun, Operation};
use lakemark_index::RowSet;
use object_store::ObjectMeta;

use super::position_map_file::{read_position_map, take_position_map};
use super::sorted_run::{SortedRun, SortedRunRows};
use crate::error::{Error, ErrorKind, Result};
use crate::files::column_mapping::ColumnMapping;
use crate::files::trust::FalseStatistics;
use crate::store::Store;
use crate::updates::changes::phase::{MigrationPhase, with_two_sets};
use crate::updates::changes::rows::{OPERATION, SET, operation_rows};
use crate::updates::lookup::fetch::{OpenFile, RowFile};

/// Runs that were opened, and runs that this process wrote.
#[derive(Default)]
pub(crate) struct RunCache {
    opened: Mutex<HashMap<RunKey, Arc<SortedRun>>>,
    /// What runs were resolved to when they were written, by their ids: nobody reads their position maps, which list all files.
    written: Mutex<HashMap<[u8; 16], Arc<SortedRun>>>,
}

/// What distinguishes one reading of a run from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RunKey {
    /// The id of the run.
    id: [u8; 16],
    /// The fingerprint of the names of columns that it is read with.
    mapping: u64,
    /// The phase in which it is read.
    phase: MigrationPhase,
}

impl RunCache {
    /// The opened run of a manifest.
    pub(crate) async fn get(
        &self,
        store: &Store,
        run: &ManifestRun,
        names: Option<&Arc<ColumnMapping>>,
        phase: MigrationPhase,
    ) -> Result<Arc<SortedRun>> {
        let key = RunKey { id: run.id, mapping: names.map_or(0, |names| names.fingerprint()), phase };
        if let Some(known) = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).get(&run.id).cloned();
        let sorted = Arc::new(open(store, run, names, phase, written.as_deref()).await.map_err(|error| {
            let text = format!(
                "the run {} of buffered changes cannot be read; it holds changes that are nowhere else: restore it",
                run.path
            );
            // A run that is not there is damage: its rows are nowhere else.
            let kind = if error.kind() == ErrorKind::NotFound { ErrorKind::Corrupt } else { error.kind() };
            Error::new(kind, text).with_source(error)
        })?);
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&sorted));
        Ok(sorted)
    }

    /// Keeps what a run was resolved to when it was written, and the filter of its keys.
    pub(crate) fn put_written(&self, id: [u8; 16], resolved: SortedRun, keys: Option<KeyFilter>) {
        if let Some(keys) = keys {
            // Nobody has set it: the run was made of positions alone.
            drop(resolved.filter.set(keys));
        }
        self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::new(resolved));
    }

    /// Forgets runs that are no more.
    pub(crate) fn retain(&self, kept: &[ManifestRun]) {
        let is_kept = |id: &[u8; 16]| kept.iter().any(|run| run.id == *id);
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).retain(|key, _| is_kept(&key.id));
        self.written.lock().unwrap_or_else(PoisonError::into_inner).retain(|id, _| is_kept(id));
    }
}

async fn open(
    store: &Store,
    run: &ManifestRun,
    names: Option<&Arc<ColumnMapping>>,
    phase: MigrationPhase,
    written: Option<&SortedRun>,
) -> Result<SortedRun> {
    let meta = ObjectMeta {
        location: store.object_path(&run.path),
        // Runs never change, so that any time does.
        last_modified: DateTime::UNIX_EPOCH,
        size: run.length,
        e_tag: None,
        version: None,
    };
    let file = RowFile {
        store: Arc::clone(store.object_store()),
        meta,
        name: run.path.clone(),
        constants: Vec::new(),
        names: names.cloned(),
        caught: FalseStatistics::default(),
    };
    let opened = file.open_run().await?;
    if opened.rows() != run.rows {
        return Err(Error::corrupt(format!("it has {} rows instead of {}", opened.rows(), run.rows)));
    }
    let RowsInPhase { whole, partial, changed } = rows_in_phase(&opened, phase).await?;
    let sorted = SortedRun::new(run.id, SortedRunRows::File(Box::new(opened.in_phase(phase))), whole, partial);
    if let Some(written) = written {
        sorted.take_resolved(written, &changed);
    } else if let Some(of) = &run.position_map {
        match read_position_map(store, of, run).await {
            Ok(position_map) => take_position_map(&sorted, position_map, &changed),
            // The position map is an index: without it, the positions are found again.
            Err(error) => tracing::warn!(run = run.path, %error, "the position map of a run is derived again"),
        }
    }
    Ok(sorted)
}

/// The rows of a run in a phase, by what they are in it.
struct RowsInPhase {
    /// Rows that are whole rows of the table.
    whole: RowSet,
    /// Updates of some columns.
    partial: RowSet,
    /// Updates in this phase that were written as another operation.
    changed: RowSet,
}

/// Which rows of a run are what in a phase.
async fn rows_in_phase(opened: &OpenFile, phase: MigrationPhase) -> Result<RowsInPhase> {
    let operation = Field::new(OPERATION, DataType::Int8, false);
    let fields = match phase {
        MigrationPhase::UnderWay => vec![operation],
        MigrationPhase::Done => vec![operation, Field::new(SET, DataType::Binary, true)],
    };
    let read = opened.collect(&Arc::new(Schema::new(fields)), None).await?;
    let operations = read.column_by_name(OPERATION).and_then(|column| column.as_primitive_opt::<Int8Type>());
    let Some(operations) = operations else { return Err(Error::corrupt("it lacks the operations")) };
    let sets = read.column_by_name(SET).and_then(|column| column.as_binary_opt::<i32>());
    let changed = sets.map_or_else(|| RowSet::empty(opened.rows()), |sets| with_two_sets(sets, opened.table_columns()));
    let whole = operation_rows(operations, &[Operation::Insert, Operation::Upsert]).minus(&changed);
    let partial = operation_rows(operations, &[Operation::Update]).or(&changed);
    Ok(RowsInPhase { whole, partial, changed })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;

    use super::*;
    use crate::updates::{Change, WriteOptions};
    use crate::{BuildOptions, Table, TableOptions};

    fn rows(from: i64) -> RecordBatch {
        let column = || Arc::new((from..from + 50).map(Some).collect::<Int64Array>()) as ArrayRef;
        RecordBatch::try_from_iter([("k", column()), ("v", column())]).unwrap()
    }

    async fn open_table(folder: &Path) -> Arc<Table> {
        Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
    }

    /// Opened runs keep footers, filters and position maps in memory. Whoever reads for weeks would keep those of all runs that ever were.
    #[tokio::test]
    async fn whoever_only_reads_forgets_runs_that_are_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("f.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows(0).schema(), None).unwrap();
        writer.write(&rows(0)).unwrap();
        writer.close().unwrap();
        let (writes, reads) = (open_table(folder.path()).await, open_table(folder.path()).await);
        writes.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        for round in 0..40 {
            let change = Change { operation: Operation::Upsert, rows: rows(round) };
            writes.write(vec![change], WriteOptions::default()).await.unwrap();
            writes.flush().await.unwrap();
            if round % 10 == 9 {
                writes.migrate(crate::MigrateOptions::default()).await.unwrap();
            }
            let snapshot = reads.snapshot().await.unwrap();
            let there = snapshot.manifest.as_ref().unwrap().updates().unwrap().runs.len();
            let known = reads.updates.merged_views.files.runs.opened.lock().unwrap().len();
            assert!(known <= there, "{known} of {there} runs in round {round}");
        }
    }

    /// A position map has an entry for each file of a table.
    #[tokio::test]
    async fn whoever_wrote_a_run_reads_no_position_map() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("f.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows(0).schema(), None).unwrap();
        writer.write(&rows(0)).unwrap();
        writer.close().unwrap();
        let (writes, reads) = (open_table(folder.path()).await, open_table(folder.path()).await);
        writes.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        let change = Change { operation: Operation::Upsert, rows: rows(30) };
        writes.write(vec![change], WriteOptions::default()).await.unwrap();
        writes.flush().await.unwrap();
        let snapshot = writes.snapshot().await.unwrap();
        let updates = snapshot.manifest.as_ref().unwrap().updates().unwrap();
        let run = &updates.runs[0];
        let store = writes.base().writable_store().unwrap();
        let position_map = store.local_path(&run.position_map.as_ref().unwrap().path).unwrap();
        std::fs::remove_file(position_map).unwrap();
        for (table, unresolved) in [(&writes, 0), (&reads, 1)] {
            let runs = &table.updates.merged_views.files.runs;
            runs.opened.lock().unwrap().clear();
            let phase = MigrationPhase::of(run, updates, false);
            let opened = runs.get(table.base().writable_store().unwrap(), run, None, phase).await.unwrap();
            assert_eq!(opened.unresolved_among(snapshot.files()).len(), unresolved);
            assert_eq!(opened.filter.get().is_some(), unresolved == 0);
        }
        for table in [writes, reads] {
            assert_eq!(table.snapshot().await.unwrap().rows(), Some(80));
        }
    }
}

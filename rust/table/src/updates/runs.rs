//! Runs: Parquet files of changes in the order of keys, each with a position map beside it.

use std::collections::HashMap;
use std::io::BufWriter;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{partition, sort};
use arrow::datatypes::{DataType, Field, Int8Type, Schema, SchemaRef};
use chrono::DateTime;
use lakemark_format::filter::Density;
use lakemark_format::{
    KeyFilter, ManifestPositionMap, ManifestRun, Operation, PositionMap, PositionsInFile, PositionsInRun,
};
use lakemark_index::{RowSet, hash_rows};
use object_store::{ObjectMeta, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use uuid::Uuid;

use super::fetch::{OpenFile, RowFile};
use super::key::KeyColumns;
use super::merged_view::UpdateContext;
use super::parameters::Parameters;
use super::phase::{MigrationPhase, with_two_sets};
use super::rows::{OPERATION, SET, batch, operation_rows};
use super::sorted_run::{FilePositions, HitsOfFile, ReplacedInRun, SortedRun, SortedRunRows};
use super::write::{not_local, unwritable};
use crate::error::{Error, ErrorKind, Result};
use crate::files::column_mapping::{ColumnMapping, OURS};
use crate::files::file_version::FileVersion;
use crate::files::trust::FalseStatistics;
use crate::storage::temp_file::TempFile;
use crate::store::Store;

/// Rows of a page of a run: small, so that few are read for few keys.
const PAGE_ROWS: usize = 2048;
/// The most rows of a row group of a run.
const GROUP_ROWS: usize = 128 * 1024;
/// Parts in which a row group is written: its size is looked at between them.
const PARTS_OF_GROUP: usize = 8;
/// Rows that show whether the values of a column repeat.
const SAMPLE_ROWS: usize = 1024;
/// How often the filter of a run has a key that the run has not.
const FILTER_FPP: f64 = 0.01;
/// What the footer of a run calls the bytes that its changes had in a log.
const BUFFERED: &str = "lakemark.buffered";
/// Bytes that are written to a run at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// Runs that were opened.
#[derive(Default)]
pub(crate) struct RunCache(Mutex<HashMap<RunKey, Arc<SortedRun>>>);

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
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let level = Arc::new(open(store, run, names, phase).await.map_err(|error| {
            let text = format!(
                "the run {} of buffered changes cannot be read; it holds changes that are nowhere else: restore it",
                run.path
            );
            // A run that is not there is damage: its rows are nowhere else.
            let kind = if error.kind() == ErrorKind::NotFound { ErrorKind::Corrupt } else { error.kind() };
            Error::new(kind, text).with_source(error)
        })?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&level));
        Ok(level)
    }

    /// Forgets runs that are no more.
    pub(crate) fn retain(&self, kept: &[ManifestRun]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|key, _| kept.iter().any(|run| run.id == key.id));
    }
}

async fn open(
    store: &Store,
    run: &ManifestRun,
    names: Option<&Arc<ColumnMapping>>,
    phase: MigrationPhase,
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
    let level = SortedRun::new(run.id, SortedRunRows::File(Box::new(opened.in_phase(phase))), whole, partial);
    if let Some(of) = &run.position_map {
        match read_resolution(store, of, run).await {
            Ok(resolution) => take_resolution(&level, resolution, &changed),
            // The position map is an index: without it, the positions are found again.
            Err(error) => tracing::warn!(run = run.path, %error, "the position map of a run is derived again"),
        }
    }
    Ok(level)
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

/// The bytes that the changes of a run had in a log, if it says so.
pub(crate) fn buffered(level: &SortedRun) -> Option<u64> {
    match &level.rows {
        SortedRunRows::File(file) => file.metadata_value(BUFFERED)?.parse().ok(),
        SortedRunRows::Memory(_) | SortedRunRows::None => None,
    }
}

async fn read_resolution(store: &Store, of: &ManifestPositionMap, run: &ManifestRun) -> Result<PositionMap> {
    let bytes = store.object_store().get(&store.object_path(&of.path)).await?.bytes().await?;
    let resolution = PositionMap::decode(&bytes)?;
    if resolution.id != of.id || resolution.run != run.id || resolution.rows != run.rows {
        return Err(Error::corrupt("the file belongs to another run"));
    }
    Ok(resolution)
}

/// Takes a run's position map. Rows that are `changed` since have other columns to be completed.
fn take_resolution(level: &SortedRun, resolution: PositionMap, changed: &RowSet) {
    for file in resolution.files {
        let rows = file.row_groups.iter().copied().fold(0, u32::saturating_add);
        let hits = FilePositions {
            row_groups: file.row_groups,
            deleted: Arc::new(RowSet::from_rows(file.deleted, rows)),
            completed: RowSet::from_rows(file.completed, level.row_count()).minus(changed),
        };
        let version = FileVersion { path: file.path, size: file.size, modified_ns: file.modified_ns, tag: file.etag };
        level.set_hits(version, hits);
    }
    for run in resolution.runs {
        level.set_replaced(run.id, RowSet::from_rows(run.replaced, run.rows));
    }
    if let Some(keys) = resolution.keys {
        // The filter is set once, as the run is opened.
        drop(level.filter.set(keys));
    }
}

/// The sequence numbers of the first and the last change of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequenceRange {
    pub first: u64,
    pub last: u64,
}

/// A run that was written and that no manifest names yet.
pub(crate) struct FinishedRun {
    /// What the manifest says of the run, but for its position map and the migration during which it was written.
    pub run: ManifestRun,
    /// A filter of its keys, if all of them have hashes.
    pub filter: Option<KeyFilter>,
}

/// Writes the rows of a run, in the order of keys.
pub(crate) struct RunWriter {
    store: Arc<Store>,
    /// Begun with the first rows, which decide how columns are encoded.
    writer: Option<ArrowWriter<BufWriter<TempFile>>>,
    schema: SchemaRef,
    rows: u64,
    key: Arc<KeyColumns>,
    page_bytes: usize,
    /// Bytes of a row group.
    group_bytes: usize,
    /// The hashes of the keys; none if a row has none.
    hashes: Option<Vec<u64>>,
}

impl RunWriter {
    /// A run of changes of a table.
    pub(crate) fn new(
        store: &Arc<Store>,
        UpdateContext { schema, key, .. }: &UpdateContext<'_>,
        names: Option<&ColumnMapping>,
        parameters: &Parameters,
    ) -> Self {
        let stored = |field: &Arc<Field>| {
            let name = match names {
                Some(names) if !field.name().starts_with(OURS) => names.physical(field.name()),
                _ => None,
            };
            name.map_or_else(|| Arc::clone(field), |name| Arc::new(field.as_ref().clone().with_name(name)))
        };
        Self {
            store: Arc::clone(store),
            writer: None,
            schema: Arc::new(Schema::new(schema.fields().iter().map(stored).collect::<Vec<_>>())),
            rows: 0,
            key: Arc::clone(key),
            page_bytes: usize::try_from(parameters.page_bytes).unwrap_or(usize::MAX),
            group_bytes: usize::try_from(parameters.row_group_bytes()).unwrap_or(usize::MAX),
            hashes: Some(Vec::new()),
        }
    }

    pub(crate) fn write(&mut self, changes: &RecordBatch) -> Result<()> {
        let stored = batch(&self.schema, changes.columns().to_vec(), changes.num_rows())?;
        self.rows += changes.num_rows() as u64;
        match (&mut self.hashes, hash_rows(&self.key.columns(changes)?)) {
            (Some(hashes), Some(fresh)) => hashes.extend(fresh),
            (hashes, _) => *hashes = None,
        }
        let rows = stored.num_rows();
        let row_bytes = stored.get_array_memory_size().checked_div(rows).unwrap_or(0).max(1);
        let part = (self.group_bytes / PARTS_OF_GROUP / row_bytes).clamp(1, PAGE_ROWS);
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(&stored)?,
        };
        for first in (0..rows).step_by(part) {
            let part = stored.slice(first, part.min(rows - first));
            writer.write(&part).map_err(|error| unwritten(&self.store, error))?;
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// Begins the file. Each scan decodes all of a run, so that its codec is a fast one. Dictionaries are made only where they are small:
    /// in row groups of a few thousand rows one of different values costs more than the values.
    fn begin(&self, first: &RecordBatch) -> Result<ArrowWriter<BufWriter<TempFile>>> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .set_data_page_row_count_limit(PAGE_ROWS)
            .set_write_batch_size(PAGE_ROWS)
            .set_dictionary_page_size_limit(self.page_bytes)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(self.group_bytes))
            .set_statistics_enabled(EnabledStatistics::Page);
        for (field, column) in self.schema.fields().iter().zip(first.columns()) {
            if !column.data_type().is_nested() {
                let path = ColumnPath::new(vec![field.name().clone()]);
                properties = properties.set_column_dictionary_enabled(path, repeats(column));
            }
        }
        let Some(folder) = self.store.updates_folder() else { return Err(not_local(&self.store)) };
        let file = TempFile::create(&folder).map_err(|error| unwritable(&self.store, error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let writer = ArrowWriter::try_new(file, Arc::clone(&self.schema), Some(properties.build()));
        writer.map_err(|error| unwritten(&self.store, error))
    }

    /// Bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.bytes_written() as u64)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// A filter of the keys that were written.
    fn filter(&self) -> Option<KeyFilter> {
        Some(KeyFilter::of(self.key.key_types()?, Density::of_fpp(FILTER_FPP), self.hashes.as_ref()?))
    }

    /// Writes the file. Its changes took `buffered` bytes as frames of a log.
    pub(crate) async fn finish(self, passes: u8, sequences: SequenceRange, buffered: u64) -> Result<FinishedRun> {
        let rows = u32::try_from(self.rows).map_err(|_| {
            Error::unsupported("there are more changes at once than a run can hold; commit smaller batches")
        })?;
        let filter = self.filter();
        let store = self.store;
        let mut writer = self.writer.ok_or_else(|| Error::internal("a run has no rows"))?;
        writer.append_key_value_metadata(KeyValue::new(BUFFERED.to_owned(), buffered.to_string()));
        let file = writer.into_inner().map_err(|error| unwritten(&store, error))?;
        let file = file.into_inner().map_err(|error| unwritable(&store, error.into_error()))?;
        let (id, length) = (Uuid::new_v4().into_bytes(), file.length);
        let path = Store::run_path(id);
        store.publish(file, &path).await?;
        let (migrated, resolution, during) = (Vec::new(), None, 0);
        let run = ManifestRun {
            id,
            path,
            length,
            passes,
            rows,
            first_sequence: sequences.first,
            last_sequence: sequences.last,
            migrated,
            position_map: resolution,
            during,
        };
        Ok(FinishedRun { run, filter })
    }
}

/// Whether the first values of a column are mostly ones that occur several times.
fn repeats(column: &ArrayRef) -> bool {
    let sample = column.slice(0, column.len().min(SAMPLE_ROWS));
    let different = sort(&sample, None).and_then(|sorted| partition(&[sorted]));
    different.map_or(true, |values| values.len() * 2 <= sample.len())
}

fn unwritten(store: &Store, error: ParquetError) -> Error {
    match error {
        ParquetError::External(cause) if cause.is::<std::io::Error>() => match cause.downcast() {
            Ok(error) => unwritable(store, *error),
            Err(cause) => Error::internal("a run of changes cannot be written").with_source(cause),
        },
        error => Error::internal("a run of changes cannot be written").with_source(error),
    }
}

/// Writes the position map of a run, with a filter of its keys.
pub(crate) async fn write_position_map(
    store: &Store,
    level: &SortedRun,
    run: &ManifestRun,
    keys: Option<KeyFilter>,
) -> Result<ManifestPositionMap> {
    let id = Uuid::new_v4().into_bytes();
    let mut files: Vec<PositionsInFile> = level
        .all_hits()
        .into_iter()
        .map(|HitsOfFile { file, hits }| PositionsInFile {
            path: file.path,
            size: file.size,
            modified_ns: file.modified_ns,
            etag: file.tag,
            row_groups: hits.row_groups.clone(),
            deleted: hits.deleted.iter().collect(),
            completed: hits.completed.iter().collect(),
        })
        .collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let runs = level.all_replaced().into_iter().map(|ReplacedInRun { run, rows }| PositionsInRun {
        id: run,
        rows: rows.universe(),
        replaced: rows.iter().collect(),
    });
    let resolution = PositionMap { id, run: run.id, rows: run.rows, files, runs: runs.collect(), keys };
    let bytes = resolution.encode().map_err(|error| {
        Error::unsupported("the table is beyond the limits of a position map's format").with_source(error)
    })?;
    let path = Store::segment_path(id);
    let length = bytes.len() as u64;
    store.write_file(&path, bytes).await?;
    Ok(ManifestPositionMap { id, path, length })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use arrow::array::Int64Array;

    use super::*;
    use crate::updates::{Change, WriteOptions};
    use crate::{BuildOptions, Table, TableOptions};

    fn rows(from: i64) -> RecordBatch {
        let column = || Arc::new((from..from + 50).map(Some).collect::<Int64Array>()) as ArrayRef;
        RecordBatch::try_from_iter([("k", column()), ("v", column())]).unwrap()
    }

    async fn open_table(folder: &Path) -> Arc<Table> {
        Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
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
            let there = snapshot.manifest.as_ref().unwrap().updates.as_ref().unwrap().runs.len();
            let known = reads.updates.overlays.runs.0.lock().unwrap().len();
            assert!(known <= there, "{known} of {there} runs in round {round}");
        }
    }
}

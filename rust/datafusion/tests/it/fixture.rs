//! Small tables with tricky values, and ways to ask them.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{IndexAggregateExec, LakemarkScanExec, LakemarkSession};
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table, TableOptions};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::TrackedWrite;
use tempfile::TempDir;

/// Rows per file, in row groups of [`GROUP_ROWS`].
pub const FILE_ROWS: usize = 1000;
pub const GROUP_ROWS: usize = 250;

/// Rows `first..first + FILE_ROWS` of the test table: `id` is the row's number, `k` runs through 0 to 9 with a NULL in
/// every seventh row, `f` holds NaN and both zeros, `s` holds the empty text, `b` is NULL in every third row, and the
/// name of `Mixed Case` needs quotes.
pub fn batch(first: usize) -> RecordBatch {
    let rows = first..first + FILE_ROWS;
    let id = Int64Array::from_iter_values(rows.clone().map(|row| row as i64));
    let k: Int32Array = rows.clone().map(|row| (row % 7 != 3).then_some((row % 10) as i32)).collect();
    let f: Float64Array = rows
        .clone()
        .map(|row| match row % 6 {
            0 => Some(f64::NAN),
            1 => Some(-0.0),
            2 => Some(0.0),
            3 => Some(f64::INFINITY),
            4 => None,
            _ => Some(row as f64 / 100.0),
        })
        .collect();
    let s: StringArray = rows
        .clone()
        .map(|row| match row % 5 {
            0 => Some(String::new()),
            1 => None,
            2 => Some(format!("größe {}", row % 20)),
            3 => Some("ab".to_owned()),
            _ => Some(format!("ab{}", row % 3)),
        })
        .collect();
    let b: BooleanArray = rows.clone().map(|row| (row % 3 != 0).then_some(row % 2 == 0)).collect();
    let mixed = Int32Array::from_iter_values(rows.map(|row| (row / 100) as i32));
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(id) as ArrayRef, true),
        ("k", Arc::new(k) as ArrayRef, true),
        ("f", Arc::new(f) as ArrayRef, true),
        ("s", Arc::new(s) as ArrayRef, true),
        ("b", Arc::new(b) as ArrayRef, true),
        ("Mixed Case", Arc::new(mixed) as ArrayRef, true),
    ])
    .unwrap()
}

/// Writes a data file and gives its size.
pub fn write(path: &Path, batch: &RecordBatch) -> u64 {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_data_page_row_count_limit(50)
        .set_write_batch_size(50)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    std::fs::metadata(path).unwrap().len()
}

/// Writes the footer of a data file anew, as another writer may have written it.
pub fn with_footer(path: &Path, change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) {
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let policy = PageIndexPolicy::Required;
    let metadata = ParquetMetaDataReader::new().with_page_index_policy(policy).parse_and_finish(&bytes).unwrap();
    let mut file = TrackedWrite::new(File::create(path).unwrap());
    file.write_all(&bytes).unwrap();
    ParquetMetaDataWriter::new_with_tracked(file, &change(metadata)).finish().unwrap();
}

/// A folder of `files` data files.
pub fn folder(files: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in 0..files {
        write(&folder.path().join(format!("part-{file}.parquet")), &batch(file * FILE_ROWS));
    }
    folder
}

pub async fn open(folder: &Path) -> Arc<Table> {
    Table::open_alone(folder.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

/// Indexes the named columns.
pub async fn create_indexes(folder: &Path, columns: &[&str]) {
    let table = open(folder).await;
    for column in columns {
        let spec =
            IndexSpec { columns: vec![(*column).to_owned()], kind: Some(IndexKind::Bitmap), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

/// A folder of data files, which lasts as long as this.
pub struct Opened {
    pub folder: TempDir,
    /// It knows the folder as `t`.
    pub session: LakemarkSession,
}

/// A session that knows the folder as `t`. It has two partitions, however many cores the machine has.
pub async fn session(folder: &Path) -> LakemarkSession {
    let config = SessionConfig::new().with_information_schema(true).with_target_partitions(2);
    let session = LakemarkSession::with_config(config);
    let sql = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.display());
    session.sql(&sql).await.unwrap();
    session
}

/// The rows of a statement as text. Those of a query without an order come with their second half first, as they may on another machine:
/// no test goes by an order that nobody asked for.
pub async fn rows(session: &LakemarkSession, sql: &str) -> Vec<String> {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    let mut found: Vec<String> = batches.iter().flat_map(text).collect();
    if ["SELECT ", "WITH "].iter().any(|word| sql.starts_with(word)) && !sql.contains("ORDER BY") {
        let half = found.len() / 2;
        found.rotate_left(half);
    }
    found
}

/// The rows of a batch as text; NaN is NaN and -0.0 is not 0.0.
pub fn text(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<_> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join("|"))
        .collect()
}

/// The rows with and without indexes; sorted, since only ORDER BY orders them.
pub async fn both(session: &LakemarkSession, sql: &str) -> (Vec<String>, Vec<String>) {
    let mut answers = Vec::new();
    for use_index in [true, false] {
        session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap().collect().await.unwrap();
        let mut found = rows(session, sql).await;
        found.sort();
        answers.push(found);
    }
    session.sql("SET lakemark.use_index = true").await.unwrap().collect().await.unwrap();
    let without = answers.pop().unwrap();
    (answers.pop().unwrap(), without)
}

/// A statement that was run.
pub struct Ran {
    /// Its plan with metrics.
    pub plan: Arc<dyn ExecutionPlan>,
    /// How many rows it gave.
    pub rows: usize,
}

/// Runs a statement.
pub async fn ran(session: &LakemarkSession, sql: &str) -> Ran {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), session.context().task_ctx()).await.unwrap();
    Ran { plan, rows: batches.iter().map(RecordBatch::num_rows).sum() }
}

/// The scan operators of a plan.
pub fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let own = plan.downcast_ref::<LakemarkScanExec>().map(|_| Arc::clone(plan));
    own.into_iter().chain(plan.children().into_iter().flat_map(scans)).collect()
}

/// A metric of the plan's only scan.
pub fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let found = scans(plan);
    assert_eq!(found.len(), 1, "the plan has {} scans", found.len());
    found[0].metrics().unwrap().sum_by_name(name).map_or(0, |value| value.as_usize())
}

/// The operators of a plan that ask the index.
pub fn answering(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let own = plan.downcast_ref::<IndexAggregateExec>().map(|_| Arc::clone(plan));
    own.into_iter().chain(plan.children().into_iter().flat_map(answering)).collect()
}

/// A metric of the only one of them.
pub fn answering_metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let found = answering(plan);
    assert_eq!(found.len(), 1, "{}", displayable(plan.as_ref()).indent(false));
    found[0].metrics().unwrap().sum_by_name(name).map_or(0, |value| value.as_usize())
}

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Int32Type, Int64Type};
use lakemark_table::{
    BuildOptions, Change, IndexKind, IndexSpec, MigrateOptions, Operation, Table, TableOptions, WriteOptions,
};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use super::*;
use crate::aggregate;
use crate::handle::Pinned;
use crate::plan;
use crate::read::InputReader;
use crate::runtime::block_on;
use crate::split::{ScanSpec, of_ipc};
use crate::split_packing::SplitSizes;
use crate::storage::TableStorage;
use crate::table_cache::TableRef;

pub(crate) const ALL_ROWS: &str = r#"{"op":"true"}"#;
/// Three runs are merged into one as soon as they are there.
const SMALL_CACHE: [(&str, &str); 2] = [("cache_bytes", "1048576"), ("page_bytes", "65536")];

/// A row of the test table.
#[derive(Debug, PartialEq)]
struct Row {
    /// The partition.
    p: Option<i64>,
    /// The key.
    k: i64,
    a: Option<i32>,
    s: Option<String>,
}

fn batch(rows: &[(i64, i32, &str)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let a: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2)));
    RecordBatch::try_from_iter([("k", k), ("a", a), ("s", s)]).expect("columns of one length")
}

fn in_partition(p: i64, rows: &[(i64, i32, &str)]) -> RecordBatch {
    let batch = batch(rows);
    let p: ArrayRef = Arc::new(Int64Array::from(vec![p; rows.len()]));
    let columns = ["k", "a", "s"].into_iter().zip(batch.columns().iter().cloned());
    RecordBatch::try_from_iter(columns.chain([("p", p)])).expect("columns of one length")
}

fn write_file(path: &Path, rows: &[(i64, i32, &str)]) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let batch = batch(rows);
    let mut writer =
        ArrowWriter::try_new(File::create(path).expect("a file"), batch.schema(), None).expect("a Parquet file");
    writer.write(&batch).expect("rows");
    writer.close().expect("a footer");
}

/// Two partitions of 100 rows each, the store in a folder of its own, `a` indexed, `k` the key.
pub(crate) struct Fixture {
    folder: tempfile::TempDir,
    pub(crate) table: Arc<Table>,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for p in 1..=2_i64 {
            let rows: Vec<_> = (0..100).map(|row| (p * 1000 + row, (row % 10) as i32, "base")).collect();
            write_file(&folder.path().join(format!("table/p={p}/f.parquet")), &rows);
        }
        let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let options = TableOptions { store: Some(path("store")), ..TableOptions::default() };
        let table = Table::open(&path("table"), options).await.expect("a table");
        let spec = IndexSpec { columns: vec!["a".into()], kind: Some(IndexKind::Bitmap), ..IndexSpec::default() };
        table.create_index(spec, false).await.expect("an index");
        table.build(BuildOptions::default()).await.expect("a build");
        let options = SMALL_CACHE.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let key = ["k".to_owned()];
        table.declare_key(&key, &BTreeMap::from(options), BuildOptions::default()).await.expect("a key");
        Self { folder, table }
    }

    async fn make(&self, operation: Operation, rows: RecordBatch) {
        self.table.write(vec![Change { operation, rows }], WriteOptions::default()).await.expect("a change");
    }

    /// A new row of the first partition, one of a partition without a file, one that moves, one that changes, one that goes.
    pub(crate) async fn change(&self) {
        self.make(Operation::Insert, in_partition(1, &[(1, 5, "new")])).await;
        self.make(Operation::Upsert, in_partition(3, &[(2, 6, "other"), (1000, 5, "moved")])).await;
        let k: ArrayRef = Arc::new(Int64Array::from(vec![2005]));
        let s: ArrayRef = Arc::new(StringArray::from(vec!["changed"]));
        self.make(Operation::Update, RecordBatch::try_from_iter([("k", k), ("s", s)]).expect("one row")).await;
        let k: ArrayRef = Arc::new(Int64Array::from(vec![2015]));
        self.make(Operation::Delete, RecordBatch::try_from_iter([("k", k)]).expect("one row")).await;
    }

    fn named(&self, version: Option<u64>) -> TableRef {
        let text = |name: &str| self.folder.path().join(name).to_str().expect("UTF-8").to_owned();
        let max_staleness = std::time::Duration::ZERO;
        let storage = TableStorage::with_store(&text("store"));
        TableRef { location: text("table"), storage, version, max_staleness }
    }

    pub(crate) async fn pin(&self) -> Pinned {
        let TableRef { location, storage, .. } = self.named(None);
        let snapshot = self.table.snapshot().await.expect("a snapshot");
        Pinned { location, storage, snapshot, use_index: true, probed: Arc::default() }
    }

    async fn runs(&self) -> usize {
        self.table.updates_info().await.expect("readable").expect("updates").runs.len()
    }
}

/// What the table holds after [`Fixture::change`].
fn expected() -> Vec<Row> {
    let row = |p: i64, k: i64, a: i32, s: &str| Row { p: Some(p), k, a: Some(a), s: Some(s.to_owned()) };
    let mut rows: Vec<Row> =
        (1..=2).flat_map(|p| (0..100).map(move |n| row(p, p * 1000 + n, (n % 10) as i32, "base"))).collect();
    rows.retain(|row| ![1000, 2005, 2015].contains(&row.k));
    rows.extend([row(1, 1, 5, "new"), row(3, 2, 6, "other"), row(3, 1000, 5, "moved"), row(2, 2005, 5, "changed")]);
    rows.sort_by_key(|row| row.k);
    rows
}

/// A plan as Java gets it, taken apart as Java does.
pub(crate) struct Planned {
    pub(crate) json: Value,
    attachments: Vec<Vec<u8>>,
}

/// Columns as Spark's schemas have them.
pub(crate) fn whole(columns: &[&str]) -> Value {
    columns.iter().map(|name| json!({"name": name, "type": "of the table"})).collect()
}

pub(crate) async fn plan(pinned: &Pinned, filter: &str, columns: &[&str]) -> Planned {
    planned(pinned, filter, json!({"columns": whole(columns)})).await
}

pub(crate) async fn planned(pinned: &Pinned, filter: &str, mut request: Value) -> Planned {
    request["sizes"] = json!({"maxBytes": 1 << 27, "openBytes": 1 << 22, "minSplits": 4});
    let request = serde_json::from_value(request).expect("a request");
    let plan = plan::plan(pinned, filter, request).await.expect("a plan").encode().expect("bytes");
    let (length, rest) = plan.split_first_chunk::<4>().expect("a length");
    let (json, mut rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let json: Value = serde_json::from_slice(json).expect("JSON");
    let mut attachments = Vec::new();
    for input in json["splits"].as_array().expect("splits").iter().flat_map(inputs) {
        let (attachment, after) = rest.split_at(input["attached"].as_u64().expect("a length") as usize);
        attachments.push(attachment.to_vec());
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes belong to no input", rest.len());
    Planned { json, attachments }
}

fn inputs(split: &Value) -> &[Value] {
    split["inputs"].as_array().expect("inputs")
}

pub(crate) fn bodies(plan: &Planned) -> Vec<&str> {
    let splits = plan.json["splits"].as_array().expect("splits");
    splits.iter().flat_map(inputs).map(|input| input["body"].as_str().expect("a body")).collect()
}

/// The batches of all splits, as tasks read them; each split gives as many rows as it was planned to.
pub(crate) async fn run(plan: &Planned) -> Vec<RecordBatch> {
    let scan: ScanSpec = serde_json::from_str(plan.json["scan"].as_str().expect("a scan")).expect("a scan");
    let mut batches = Vec::new();
    let mut attachments = plan.attachments.iter();
    for split in plan.json["splits"].as_array().expect("splits") {
        let before: usize = batches.iter().map(RecordBatch::num_rows).sum();
        for (input, attachment) in inputs(split).iter().zip(attachments.by_ref()) {
            let body: SplitInput = serde_json::from_str(input["body"].as_str().expect("a body")).expect("an input");
            let mut reader = InputReader::open(&scan, &body, attachment).await.expect("a reader");
            while let Some(batch) = reader.next().await.expect("rows") {
                batches.push(batch);
            }
        }
        let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>() - before;
        assert!(split["rows"].is_null() || split["rows"].as_u64() == Some(rows as u64), "{rows} rows of {split}");
    }
    batches
}

async fn rows_of(plan: &Planned) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in run(plan).await {
        let column = |name: &str| batch.column_by_name(name).expect("a column");
        let (p, k) = (column("p").as_primitive::<Int64Type>(), column("k").as_primitive::<Int64Type>());
        let (a, s) = (column("a").as_primitive::<Int32Type>(), column("s").as_string::<i32>());
        for (((p, k), a), s) in p.iter().zip(k.values()).zip(a.iter()).zip(s.iter()) {
            rows.push(Row { p, k: *k, a, s: s.map(str::to_owned) });
        }
    }
    rows.sort_by_key(|row| row.k);
    rows
}

const COLUMNS: [&str; 4] = ["p", "k", "a", "s"];

pub(crate) fn test<F: Future<Output = ()>>(future: F) {
    block_on(future).expect("threads");
}

#[test]
fn rows_in_memory_and_in_runs_are_read_with_those_of_the_files() {
    test(async {
        let fixture = Fixture::new().await;
        fixture.change().await;
        let in_memory = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        assert_eq!(in_memory.json["bufferedRows"], 4);
        assert!(bodies(&in_memory).iter().any(|body| body.contains("memory")));
        assert_eq!(rows_of(&in_memory).await, expected());
        fixture.table.flush().await.expect("a run");
        let in_run = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        assert_eq!(in_run.json["bufferedRows"], 4);
        assert!(bodies(&in_run).iter().any(|body| body.contains(".lmr")));
        assert!(!bodies(&in_run).iter().any(|body| body.contains("memory")));
        assert_eq!(rows_of(&in_run).await, expected());
    });
}

/// Partition columns are constants of data files, and columns of buffered rows.
#[test]
fn partition_columns_alone_and_no_column_at_all() {
    test(async {
        let fixture = Fixture::new().await;
        fixture.change().await;
        for _ in 0..2 {
            let mut partitions = BTreeMap::new();
            for batch in run(&plan(&fixture.pin().await, ALL_ROWS, &["p"]).await).await {
                for p in batch.column(0).as_primitive::<Int64Type>() {
                    *partitions.entry(p.expect("a partition")).or_insert(0) += 1;
                }
            }
            assert_eq!(partitions, BTreeMap::from([(1, 100), (2, 99), (3, 2)]));
            let counted = run(&plan(&fixture.pin().await, ALL_ROWS, &[]).await).await;
            assert_eq!(counted.iter().map(RecordBatch::num_rows).sum::<usize>(), 201);
            fixture.table.flush().await.expect("a run");
        }
    });
}

/// Buffered rows are tested by the rules of the indexes, in memory and in runs.
#[test]
fn filters_stay_exact_while_something_is_buffered() {
    test(async {
        let fixture = Fixture::new().await;
        let five = r#"{"op":"eq","column":"a","value":{"long":5}}"#;
        let not_new = r#"{"op":"not","child":{"op":"eq","column":"s","value":{"string":"new"}}}"#;
        let pinned = fixture.pin().await;
        assert!(plan::is_exact(&pinned, five).await.expect("an answer"));
        assert_eq!(plan::count(&pinned, five).await.expect("an answer"), Some(20));
        fixture.change().await;
        for _ in 0..2 {
            let pinned = fixture.pin().await;
            assert!(plan::is_exact(&pinned, five).await.expect("an answer"));
            let wanted: Vec<Row> = expected().into_iter().filter(|row| row.a == Some(5)).collect();
            assert_eq!(plan::count(&pinned, five).await.expect("an answer"), Some(21));
            let planned = plan(&pinned, five, &COLUMNS).await;
            assert_eq!((planned.json["bufferedRows"].as_u64(), wanted.len()), (Some(3), 21));
            assert_eq!(rows_of(&planned).await, wanted);
            assert_eq!(plan::count(&pinned, ALL_ROWS).await.expect("an answer"), Some(201));
            // No index on the column: Spark looks at the rows of the files, and gets the selected ones of the buffered rows.
            assert!(!plan::is_exact(&pinned, not_new).await.expect("an answer"));
            assert_eq!(plan::count(&pinned, not_new).await.expect("an answer"), None);
            let planned = plan(&pinned, not_new, &COLUMNS).await;
            assert_eq!(planned.json["bufferedRows"], 3);
            let not_new: Vec<Row> = expected().into_iter().filter(|row| row.s.as_deref() != Some("new")).collect();
            assert_eq!(rows_of(&planned).await, not_new);
            fixture.table.flush().await.expect("a run");
        }
    });
}

/// Keys that a join has read leave just the rows that have them, of files and of what is buffered.
#[test]
fn keys_that_are_learned_later_leave_fewer_rows() {
    test(async {
        let fixture = Fixture::new().await;
        fixture.change().await;
        let five = r#"{"op":"eq","column":"a","value":{"long":5}}"#;
        let new: Vec<i64> = expected().iter().filter(|row| row.s.as_deref() == Some("new")).map(|row| row.k).collect();
        let keys: Vec<i64> = [1003, 1005, 2025, 7].into_iter().chain(new).collect();
        let values: Vec<Value> = keys.iter().map(|key| json!({"long": key})).collect();
        let of_keys = json!({"op": "in", "column": "k", "values": values});
        let in_partition = json!({"op": "in", "column": "p", "values": [{"long": 2}, {"null": true}]});
        for _ in 0..2 {
            let pinned = fixture.pin().await;
            for filter in [ALL_ROWS, five] {
                let chosen = |row: &Row| filter == ALL_ROWS || row.a == Some(5);
                let wanted: Vec<Row> =
                    expected().into_iter().filter(|row| chosen(row) && keys.contains(&row.k)).collect();
                let found = planned(&pinned, filter, json!({"columns": whole(&COLUMNS), "runtime": of_keys})).await;
                assert_eq!(rows_of(&found).await, wanted);
                assert!(found.json["report"]["leaves"].as_array().expect("leaves").len() > usize::from(filter == five));
                let wanted: Vec<Row> = expected().into_iter().filter(|row| chosen(row) && row.p == Some(2)).collect();
                let found =
                    planned(&pinned, filter, json!({"columns": whole(&COLUMNS), "runtime": in_partition})).await;
                assert_eq!(rows_of(&found).await, wanted);
                assert_eq!(found.json["report"]["files_pruned"], 1);
            }
            // The first plan is what it was.
            assert_eq!(rows_of(&plan(&pinned, ALL_ROWS, &COLUMNS).await).await, expected());
            let indexed = plan(&pinned, ALL_ROWS, &COLUMNS).await.json["indexedColumns"].clone();
            assert_eq!(indexed, json!(["p", "k", "a"]));
            fixture.table.flush().await.expect("a run");
        }
    });
}

/// What the index would leave open stays open: Spark evaluates the filter, and gets these rows.
#[test]
fn what_is_unknown_of_a_buffered_row_leaves_the_filter_to_spark() {
    test(async {
        let fixture = Fixture::new().await;
        let unknown =
            r#"{"op":"and","children":[{"op":"eq","column":"a","value":{"long":5}},{"op":"unknown","text":"f(s)"}]}"#;
        fixture.change().await;
        let pinned = fixture.pin().await;
        assert!(!plan::is_exact(&pinned, unknown).await.expect("an answer"));
        assert_eq!(plan::count(&pinned, unknown).await.expect("an answer"), None);
        assert_eq!(plan(&pinned, unknown, &COLUMNS).await.json["bufferedRows"], 3);
        let off = Pinned { use_index: false, probed: Arc::default(), ..pinned };
        assert_eq!(plan(&off, unknown, &COLUMNS).await.json["bufferedRows"], 4);
        let five = r#"{"op":"eq","column":"a","value":{"long":5}}"#;
        assert!(!plan::is_exact(&off, five).await.expect("an answer"));
        assert_eq!(plan::count(&off, five).await.expect("an answer"), None);
    });
}

/// Groups and measures of the files come from the indexes, those of buffered rows from the rows.
#[test]
fn aggregates_have_the_buffered_rows() {
    test(async {
        let fixture = Fixture::new().await;
        fixture.change().await;
        let by_a = r#"{"groups":["a"],"measures":[{"function":"count_all","column":null}]}"#;
        let of_a = r#"{"groups":[],"measures":[{"function":"sum","column":"a"},{"function":"max","column":"a"},
            {"function":"count","column":"a"},{"function":"count_all","column":null}]}"#;
        for _ in 0..2 {
            let pinned = fixture.pin().await;
            let request = serde_json::from_str(by_a).expect("an aggregate");
            let groups = aggregate::answer(&pinned, ALL_ROWS, &request).await.expect("an answer").expect("groups");
            let (a, n) = (groups.column(0).as_primitive::<Int32Type>(), groups.column(1).as_primitive::<Int64Type>());
            let found: BTreeMap<i32, i64> = a.values().iter().copied().zip(n.values().iter().copied()).collect();
            let mut wanted = BTreeMap::new();
            for row in expected() {
                *wanted.entry(row.a.expect("a number")).or_insert(0) += 1;
            }
            assert_eq!(found, wanted);
            let request = serde_json::from_str(of_a).expect("an aggregate");
            let row = aggregate::answer(&pinned, ALL_ROWS, &request).await.expect("an answer").expect("one row");
            let number = |place: usize| row.column(place).as_primitive::<Int64Type>().value(0);
            let sum: i64 = expected().iter().filter_map(|row| row.a).map(i64::from).sum();
            assert_eq!((number(0), number(2), number(3)), (sum, 201, 201));
            assert_eq!(row.column(1).as_primitive::<Int32Type>().value(0), 9);
            fixture.table.flush().await.expect("a run");
        }
    });
}

/// Deletes leave no buffered rows, so that the indexes answer alone.
#[test]
fn deleted_rows_alone_leave_filters_exact() {
    test(async {
        let fixture = Fixture::new().await;
        let k: ArrayRef = Arc::new(Int64Array::from(vec![2015, 1005]));
        fixture.make(Operation::Delete, RecordBatch::try_from_iter([("k", k)]).expect("rows")).await;
        let five = r#"{"op":"eq","column":"a","value":{"long":5}}"#;
        let pinned = fixture.pin().await;
        assert!(plan::is_exact(&pinned, five).await.expect("an answer"));
        assert_eq!(plan::count(&pinned, five).await.expect("an answer"), Some(18));
        assert_eq!(plan::count(&pinned, ALL_ROWS).await.expect("an answer"), Some(198));
        assert_eq!(rows_of(&plan(&pinned, ALL_ROWS, &COLUMNS).await).await.len(), 198);
    });
}

#[test]
fn a_plan_stays_right_while_runs_are_written_merged_and_migrated() {
    test(async {
        let fixture = Fixture::new().await;
        fixture.change().await;
        let of_memory = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        fixture.table.flush().await.expect("a run");
        let of_run = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        let mut most = 0;
        for round in 0..4 {
            fixture.make(Operation::Upsert, in_partition(1, &[(1, round, "later"), (1001, round, "later")])).await;
            fixture.table.flush().await.expect("a run");
            most = most.max(fixture.runs().await);
        }
        assert!(most > 1 && fixture.runs().await < 5, "runs were not merged: {most}, {}", fixture.runs().await);
        let of_merged = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        let all = MigrateOptions::default();
        fixture.table.migrate(all).await.expect("a migration");
        assert_eq!(rows_of(&of_memory).await, expected());
        assert_eq!(rows_of(&of_run).await, expected());
        let migrated = plan(&fixture.pin().await, ALL_ROWS, &COLUMNS).await;
        assert_eq!(migrated.json["bufferedRows"], 0);
        let now = rows_of(&migrated).await;
        assert_eq!(now, rows_of(&of_merged).await);
        assert_eq!((now.len(), now.iter().filter(|row| row.s.as_deref() == Some("later")).count()), (201, 2));
    });
}

/// Rows of a snapshot, by its files and what is buffered.
async fn rows_in(table: &Table) -> u64 {
    let snapshot = table.snapshot().await.expect("a snapshot");
    200 - snapshot.deleted_rows() + snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count())
}

#[test]
fn a_table_stays_open_and_its_snapshots_are_new() {
    test(async {
        let fixture = Fixture::new().await;
        let opened = fixture.named(None).open().await.expect("a table");
        assert_eq!(rows_in(&opened).await, 200);
        fixture.change().await;
        let again = fixture.named(None).open().await.expect("a table");
        assert!(Arc::ptr_eq(&opened, &again));
        assert_eq!(rows_in(&again).await, 201);
        fixture.table.flush().await.expect("a run");
        let flushed = fixture.table.history(Some(1)).await.expect("a history")[0].version;
        let k: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 1001]));
        fixture.make(Operation::Delete, RecordBatch::try_from_iter([("k", k)]).expect("rows")).await;
        let old = fixture.named(Some(flushed)).open().await.expect("a version");
        assert!(Arc::ptr_eq(&old, &fixture.named(Some(flushed)).open().await.expect("a version")));
        assert_eq!((rows_in(&old).await, rows_in(&again).await), (201, 198));
        assert!(fixture.named(Some(flushed + 50)).open().await.is_err());
        // What was a folder when it was opened is another table now.
        std::fs::create_dir(fixture.folder.path().join("table/_delta_log")).expect("a folder");
        let delta = fixture.named(None).open().await.expect("a table");
        assert!(!Arc::ptr_eq(&opened, &delta));
        assert_eq!(delta.format(), lakemark_table::TableFormat::Delta);
    });
}

fn nothing_else() -> SplitPacker {
    SplitPacker::new(SplitSizes { max_bytes: 1 << 27, open_bytes: 1 << 22, min_splits: 2 }, &[])
}

#[test]
fn few_rows_here_and_there_are_one_split() {
    let batches = vec![batch(&[(1, 5, "a"), (3, 6, "b")]), batch(&[(7, 8, "c")])];
    let (all, none) = (batches[0].schema(), Arc::new(Schema::empty()));
    let selected = SelectedBuffer { batches, ..SelectedBuffer::default() };
    for schema in [all, none] {
        let mut packer = nothing_else();
        selected.add_memory(&schema, &[], &mut packer).expect("room");
        let out = packer.finish();
        assert_eq!(out.iter().map(|split| split.rows).collect::<Vec<_>>(), [Some(3)]);
        let rows = of_ipc(&out[0].inputs[0].attachment).expect("rows").batch.expect("rows");
        assert_eq!((rows.num_rows(), rows.schema()), (3, schema));
    }
}

#[test]
fn many_rows_in_memory_are_cut_into_splits_of_moderate_size() {
    let rows: Vec<(i64, i32, String)> = (0..3000)
        .map(|row| (row, row as i32 % 7, format!("{row}").repeat(if row % 500 == 3 { 100_000 } else { 50 })))
        .collect();
    let borrowed: Vec<(i64, i32, &str)> = rows.iter().map(|(k, a, s)| (*k, *a, s.as_str())).collect();
    let whole = batch(&borrowed);
    let mut packer = nothing_else();
    add_rows(&whole, &mut packer).expect("room");
    let out = packer.finish();
    assert!(out.len() > 3, "{} splits", out.len());
    assert_eq!(out.iter().map(|split| split.rows.expect("known")).sum::<u64>(), 3000);
    let mut keys = Vec::new();
    for split in &out {
        let bytes: usize = split.inputs.iter().map(|input| input.attachment.len()).sum();
        assert!(bytes <= ATTACHED_BYTES || split.rows == Some(1), "{bytes} bytes");
        for input in &split.inputs {
            assert!(matches!(serde_json::from_str(&input.body).expect("an input"), SplitInput::Memory));
            let rows = of_ipc(&input.attachment).expect("rows").batch.expect("rows");
            keys.extend(rows.column(0).as_primitive::<Int64Type>().values().iter().copied());
        }
    }
    assert_eq!(keys, (0..3000).collect::<Vec<i64>>());
}

//! How scans read around what is buffered: hidden rows of data files, and runs in bounded memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::Int64Type;
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{LakemarkSession, QueryOptions};
use lakemark_table::{BuildOptions, Change, Operation, Table, WriteOptions};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use tempfile::TempDir;

use crate::fixture::{Ran, both, metric, open, ran, rows, session, with_footer};

/// Rows of the one row group of a file.
const ROWS: i64 = 100_000;

/// Rows with these keys; `text` tells what they are for.
fn batch(ids: impl Iterator<Item = i64> + Clone, text: &str) -> RecordBatch {
    let name = StringArray::from_iter_values(ids.clone().map(|id| format!("{text} {}", id % 1000)));
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id % 10)));
    let id: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_from_iter([("id", id), ("k", k), ("name", Arc::new(name) as ArrayRef)]).unwrap()
}

fn write(path: &Path, rows: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

async fn keyed(folder: &Path, options: &[(&str, &str)]) -> Arc<Table> {
    let table = open(folder).await;
    let options: BTreeMap<String, String> =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    table.declare_key(&["id".to_owned()], &options, BuildOptions::default()).await.unwrap();
    table
}

async fn make(table: &Arc<Table>, operation: Operation, rows: RecordBatch) {
    table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
}

/// Whether a scan reads rows that it leaves out by their numbers.
async fn closes_gaps(session: &LakemarkSession, sql: &str) -> bool {
    metric(&ran(session, sql).await.plan, "unselected_stretches_read") > 0
}

#[tokio::test]
async fn ranges_with_many_hidden_rows_are_read_as_a_whole_and_give_the_same_rows() {
    let folder = TempDir::new().unwrap();
    for (part, first) in [("a", 0), ("b", ROWS)] {
        write(&folder.path().join(format!("p={part}/0.parquet")), &batch(first..first + ROWS, "old"));
    }
    let table = keyed(folder.path(), &[]).await;
    let session = session(folder.path()).await;
    let range = "SELECT * FROM t WHERE id >= 70000 AND id < 80000";
    assert!(!closes_gaps(&session, range).await, "nothing is hidden yet");
    // Hidden are rows with even distances and without, alone and in pairs, in both files.
    let hidden = |id: &i64| id % 17 == 3 || id % 23 == 5 || id % 23 == 6;
    let changed = (60_000..130_000).filter(hidden).filter(|id| id % 2 == 0);
    let with_p = |rows: RecordBatch| {
        let p = rows["id"].as_primitive::<Int64Type>().values().iter().map(|id| if *id < ROWS { "a" } else { "b" });
        let p: ArrayRef = Arc::new(StringArray::from_iter_values(p));
        let columns = [("id", &rows["id"]), ("k", &rows["k"]), ("name", &rows["name"]), ("p", &p)];
        RecordBatch::try_from_iter(columns.map(|(name, column)| (name, Arc::clone(column)))).unwrap()
    };
    make(&table, Operation::Upsert, with_p(batch(changed, "new"))).await;
    let gone = (60_000..130_000).filter(hidden).filter(|id| id % 2 == 1);
    make(&table, Operation::Delete, batch(gone, "").project(&[0]).unwrap()).await;
    for (flushed, pushed) in [(false, false), (true, false), (true, true)] {
        if flushed {
            table.flush().await.unwrap();
        }
        rows(&session, &format!("SET datafusion.execution.parquet.pushdown_filters = {pushed}")).await;
        // A reader that filters would ask the filter of rows that are hidden.
        assert_eq!(closes_gaps(&session, range).await, !pushed);
        assert_eq!(closes_gaps(&session, "SELECT name FROM t WHERE id >= 95000 AND id < 105000").await, !pushed);
        assert_eq!(closes_gaps(&session, "SELECT k, name FROM t").await, !pushed, "also where every row group is read");
        // A limit without a filter counts the rows that are read.
        assert!(!closes_gaps(&session, "SELECT * FROM t LIMIT 199000").await);
        for sql in [
            range,
            "SELECT count(*), sum(k), min(name), max(name) FROM t",
            "SELECT name, p FROM t WHERE id >= 95000 AND id < 105000",
            "SELECT id FROM t WHERE id BETWEEN 69990 AND 70500 OR id BETWEEN 120000 AND 125000",
            "SELECT p, count(*), sum(k), min(name) FROM t WHERE id >= 95000 AND id < 105000 GROUP BY p",
            "SELECT id, name FROM t WHERE id >= 70000 AND id < 80000 ORDER BY name DESC, id LIMIT 40",
            "SELECT t.id, t.name FROM t JOIN (VALUES (70003), (70004), (74000)) AS v(id) ON t.id = v.id WHERE t.id > 65000",
            "SELECT count(*) FROM (SELECT * FROM t WHERE id >= 70000 AND id < 80000 LIMIT 5000)",
        ] {
            let (with, without) = both(&session, sql).await;
            assert!(!with.is_empty(), "{sql}");
            assert_eq!(with, without, "{sql}");
        }
    }
    let live = (70_000..80_000).filter(|id| !hidden(id) || id % 2 == 0).count();
    assert_eq!(rows(&session, range).await.len(), live);
}

/// Deletes stand between the other rows of a run, and so do rows that a newer run has.
#[tokio::test]
async fn runs_with_many_gaps_are_read_as_a_whole_and_give_the_same_rows() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("0.parquet"), &batch(0..10, "old"));
    let table = keyed(folder.path(), &[]).await;
    let session = session(folder.path()).await;
    make(&table, Operation::Upsert, batch(1000..9000, "new")).await;
    make(&table, Operation::Delete, batch((1000..12_000).filter(|id| id % 3 == 0), "").project(&[0]).unwrap()).await;
    table.flush().await.unwrap();
    make(&table, Operation::Upsert, batch((2000..3000).filter(|id| id % 7 == 0), "newer")).await;
    table.flush().await.unwrap();
    assert_eq!(table.snapshot().await.unwrap().buffered_rows().unwrap().files.len(), 2);
    let deleted = |id: &i64| id % 3 == 0 && !(id % 7 == 0 && (2000..3000).contains(id));
    let live = (1000..9000).filter(|id| !deleted(id)).count();
    for sql in ["SELECT * FROM t WHERE id >= 1000", "SELECT name, id FROM t WHERE id BETWEEN 1990 AND 8000"] {
        assert!(closes_gaps(&session, sql).await, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    assert!(!closes_gaps(&session, "SELECT * FROM t LIMIT 5000").await);
    assert_eq!(rows(&session, "SELECT id FROM t WHERE id >= 1000").await.len(), live);
    let newer = rows(&session, "SELECT id FROM t WHERE name LIKE 'newer%' OR id % 21 = 0 AND id >= 1000").await.len();
    assert_eq!(newer, (2000..3000).filter(|id| id % 7 == 0).count());
}

/// The most rows of a page of a run: it ends with the 2,048 rows or fewer that bring it to 2,048 or more.
const PAGE: u64 = 2 * 2048 - 1;

/// Keys are searched for in the pages of runs that may have them, and a scan without any knows how many rows it has.
#[tokio::test]
async fn ranges_of_keys_read_few_pages_of_runs_and_give_the_same_rows() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("0.parquet"), &batch(0..50_000, "old"));
    let table = keyed(folder.path(), &[]).await;
    let session = session(folder.path()).await;
    make(&table, Operation::Upsert, batch((0..80_000).filter(|id| id % 2 == 0), "new")).await;
    table.flush().await.unwrap();
    let buffered = table.snapshot().await.unwrap().buffered_rows().unwrap().row_count();
    assert_eq!(buffered, 40_000);
    for (sql, most) in [
        ("SELECT * FROM t WHERE id >= 20000 AND id < 20100", 2 * PAGE),
        ("SELECT name, k FROM t WHERE id IN (3, 40000, 40001, 79998)", 3 * PAGE),
        ("SELECT id FROM t WHERE id BETWEEN 100 AND 200 AND k = 4", 2 * PAGE),
        ("SELECT count(*) FROM t WHERE id > 49000 AND id <= 49900 AND name LIKE 'new%'", 2 * PAGE),
        ("SELECT * FROM t WHERE id >= 80000", 0),
        ("SELECT id FROM t WHERE name = 'new 4'", buffered),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let plan = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
        let reported = plan.split("rows_buffered=").nth(1).expect(&plan);
        let reported: u64 = reported.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        assert!(reported <= most && (reported > 0) == (most > 0), "{sql}: {reported}\n{plan}");
    }
    let options = QueryOptions::default();
    let counted = |filter: &'static str| lakemark_datafusion::count(&table, Some(filter), &options);
    assert_eq!(counted("id >= 20000 AND id < 20100").await.unwrap(), 100);
    assert_eq!(counted("id >= 60000 AND id < 60100").await.unwrap(), 50);
    assert_eq!(counted("id >= 80000").await.unwrap(), 0);
}

/// An index over several columns is searched for rows of files, and the pages of runs by the first of the columns.
#[tokio::test]
async fn keys_of_several_columns_are_looked_up_in_runs_too() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("0.parquet"), &batch(0..1000, "old"));
    let table = open(folder.path()).await;
    let key = ["k".to_owned(), "id".to_owned()];
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    make(&table, Operation::Upsert, batch((0..60_000).filter(|id| id % 3 == 0), "new")).await;
    table.flush().await.unwrap();
    let keys = [(3, 33), (3, 41_013), (4, 4), (9, 59_999), (9, 59_979), (11, 33), (4, 33)];
    let keys: StructArray = StructArray::try_from(vec![
        ("k", Arc::new(keys.iter().map(|key| Some(key.0)).collect::<Int64Array>()) as ArrayRef),
        ("id", Arc::new(keys.iter().map(|key| Some(key.1)).collect::<Int64Array>()) as ArrayRef),
    ])
    .unwrap();
    let keys: ArrayRef = Arc::new(keys);
    let columns = ["name".to_owned()];
    for options in [QueryOptions::default(), QueryOptions { use_index: false, ..QueryOptions::default() }] {
        let found = lakemark_datafusion::lookup(&table, &keys, &[], Some(&columns), &options).await.unwrap().batches;
        let mut names: Vec<&str> =
            found.iter().flat_map(|rows| rows["name"].as_string::<i32>().iter().flatten()).collect();
        names.sort_unstable();
        assert_eq!(names, ["new 13", "new 33", "new 979", "old 4"]);
    }
}

/// Law 3: what is hidden is hidden before it is filtered. No predicate fails by the values of rows that are gone.
#[tokio::test]
async fn law_3_no_error_comes_of_rows_that_are_hidden() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("0.parquet"), &batch(0..10_000, "old"));
    let table = keyed(folder.path(), &[]).await;
    let session = session(folder.path()).await;
    let asks = "SELECT count(*), sum(id) FROM t WHERE 10 / k >= 5 AND name <> 'none'";
    // In the file, then in the run that the first change became.
    for (first, last) in [(0, 10_000), (20_000, 30_000)] {
        if first > 0 {
            make(&table, Operation::Upsert, batch(first..last, "new")).await;
            table.flush().await.unwrap();
        }
        let error = session.sql(asks).await.unwrap().collect().await.unwrap_err().to_string();
        assert!(error.contains("Divide by zero"), "some k are 0: {error}");
        rows(&session, "UPDATE t SET k = 7 WHERE k = 0 AND id % 20 = 0").await;
        rows(&session, "DELETE FROM t WHERE k = 0").await;
        for (flushed, pushed) in [(false, false), (true, false), (true, true)] {
            if flushed {
                table.flush().await.unwrap();
            }
            rows(&session, &format!("SET datafusion.execution.parquet.pushdown_filters = {pushed}")).await;
            // 500 rows of the file are deleted and 500 changed; of the run as many.
            let gaps = metric(&ran(&session, asks).await.plan, "unselected_stretches_read");
            let least = if first > 0 { 1500 } else { 900 };
            assert!(if pushed { gaps == 0 } else { gaps >= least }, "{gaps} gaps are closed");
            let (with, without) = both(&session, asks).await;
            assert_eq!(with, without);
            let ids = (0..10_000i64).chain(first..last).filter(|id| [1, 2].contains(&(id % 10)));
            let ids: BTreeSet<i64> = ids.collect();
            assert_eq!(with, [format!("{}|{}", ids.len(), ids.iter().sum::<i64>())]);
        }
        rows(&session, "SET datafusion.execution.parquet.pushdown_filters = false").await;
    }
}

/// DESIGN section 6: the memory of a scan for runs is αM pages without those of the buffer.
#[tokio::test]
async fn a_scan_holds_no_more_of_runs_than_its_memory() {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("0.parquet"), &batch(0..1000, "old"));
    // αM are 32 pages, 2 MiB.
    let table = keyed(folder.path(), &[("cache_bytes", "67108864"), ("page_bytes", "65536")]).await;
    // Some 12 MB that no codec makes smaller, in a few runs.
    let mut state = 1u64;
    let mut text = || {
        let mut text = String::with_capacity(1000);
        while text.len() < 1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push(char::from(b'!' + (state >> 57) as u8 % 90));
        }
        text
    };
    for part in 0..6 {
        let ids = part * 2000..(part + 1) * 2000;
        let name: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|_| text())));
        let rows = batch(ids, "");
        let columns = [("id", Arc::clone(&rows["id"])), ("k", Arc::clone(&rows["k"])), ("name", name)];
        make(&table, Operation::Upsert, RecordBatch::try_from_iter(columns).unwrap()).await;
    }
    table.flush().await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let buffered = snapshot.buffered_rows().unwrap();
    let run_bytes: u64 = buffered.files.iter().map(|file| file.meta.size).sum();
    let memory = buffered.memory_bytes;
    assert!(memory <= 1 << 20 && run_bytes > 8 * memory, "{run_bytes} bytes of runs, {memory} of memory");
    let config = SessionConfig::new().with_target_partitions(64);
    let session = LakemarkSession::with_config(config);
    session.register("t", Arc::clone(&table)).await.unwrap();
    let Ran { plan, rows: given } = ran(&session, "SELECT * FROM t").await;
    assert_eq!(given, 12_000);
    let held = metric(&plan, "run_bytes_peak") as u64;
    assert!(held > buffered.row_group_bytes / 2 && held <= memory, "{held} of {memory} bytes were held");
}

/// Rows that are left out by their numbers are numbered by the row group's own, which a footer may repeat.
#[tokio::test]
async fn law_3_row_groups_are_numbered_by_their_place() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("f.parquet");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(5_000)).build();
    let rows_of_file = batch(0..10_000, "first");
    let mut writer =
        ArrowWriter::try_new(File::create(&path).unwrap(), rows_of_file.schema(), Some(properties)).unwrap();
    writer.write(&rows_of_file).unwrap();
    writer.close().unwrap();
    with_footer(&path, |metadata| {
        let again = |group: &RowGroupMetaData| group.clone().into_builder().set_ordinal(0).build().unwrap();
        let groups = metadata.row_groups().iter().map(again).collect();
        metadata.into_builder().set_row_groups(groups).build()
    });
    keyed(folder.path(), &[]).await;
    let session = session(folder.path()).await;
    rows(&session, "DELETE FROM t WHERE id % 10 = 3 AND id < 2000").await;
    assert!(closes_gaps(&session, "SELECT id, name FROM t").await);
    let expected: Vec<String> = (0..10_000).filter(|id| id % 10 != 3 || *id >= 2000).map(|id| id.to_string()).collect();
    let mut found = rows(&session, "SELECT id FROM t ORDER BY id").await;
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
    found = rows(&session, "SELECT id FROM (SELECT id, name FROM t) WHERE name LIKE 'first%' ORDER BY id").await;
    assert!(found == expected);
}

//! Buffered updates: what they mean, that they last, and that every error leaves everything as it was.

mod availability;
mod blind;
mod during;
mod filters;
pub mod lake;
mod late;
mod listings;
mod many_files;
mod merging;
mod migration;
mod model;
mod narrowing;
mod others;
pub mod overtaken;
mod publishing;
mod reading;
mod repeated;
mod restores;
mod schemas;
mod slices;
mod small_files;
mod snapshots;
mod speed;
mod staged;
mod stops;
mod versions;
mod writes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use lakemark_table::{
    BuildOptions, Change, ErrorKind, FileProbe, IndexKind, IndexSpec, MigrateOptions, Operation, ProbeOptions, Table,
    TableOptions, VacuumOptions, WriteOptions, Written,
};
use parquet::file::reader::{FileReader, SerializedFileReader};

use self::reading::{Row, rows_of};
use crate::delta;
use crate::fixture::{age_logs, equals, exact_rows, leaf, open, probe, write};

/// Rows of the test table: k is its key.
fn batch(rows: &[(i64, Option<i32>, Option<&str>)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int32Array>());
    let s: ArrayRef = Arc::new(rows.iter().map(|row| row.2).collect::<StringArray>());
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("a", a, true), ("s", s, true)]).unwrap()
}

fn keys(keys: &[i64]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
    RecordBatch::try_from_iter([("k", k)]).unwrap()
}

fn numbers(rows: &[(i64, Option<i32>)]) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let a: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int32Array>());
    RecordBatch::try_from_iter([("k", k), ("a", a)]).unwrap()
}

/// Breaks the first page of a column of a file, whose length and time stay.
fn damage(path: &Path, column: usize) {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let columns = reader.metadata().row_groups().iter().map(|row_group| row_group.column(column));
    let begins = columns.map(|of| of.dictionary_page_offset().unwrap_or(of.data_page_offset()) as usize);
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    // Row groups without changed rows are copied as they are.
    begins.for_each(|at| bytes[at..at + 16].fill(0xff));
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

/// Keys 0, 2, 4, … 598 in two files.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..2 {
        let rows: Vec<_> = (0..150).map(|row| (file * 300 + row * 2, Some(row as i32), Some("base"))).collect();
        write(&folder.path().join(format!("f{file}.parquet")), &batch(&rows));
    }
    folder
}

async fn keyed(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    assert!(table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap());
    table
}

#[tokio::test]
async fn a_key_of_several_columns_is_found_by_one_index_over_them() {
    let folder = folder();
    let table = open(folder.path()).await;
    let key = ["s".to_owned(), "k".to_owned()];
    assert!(table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap());
    let snapshot = table.snapshot().await.unwrap();
    let indexes = snapshot.indexes();
    let [index] = indexes.as_slice() else { panic!("{indexes:?}") };
    assert_eq!((index.name.as_str(), &index.columns[..], index.files_covered), ("s_k_key", &key[..], 2));
    // All keys share `s`, so that an index on it alone would find every row.
    let found = batch(&[(4, Some(-4), Some("base")), (304, Some(-304), Some("base")), (5, Some(-5), Some("new"))]);
    make(&table, Operation::Upsert, found).await.unwrap();
    make(&table, Operation::Delete, batch(&[(6, None, Some("base")), (8, None, Some("other"))])).await.unwrap();
    let now = rows(&table).await;
    assert_eq!((now.len(), now.get(&6), now.get(&8)), (300, None, Some(&row(4, "base"))));
    assert_eq!((&now[&4], &now[&304], &now[&5]), (&row(-4, "base"), &row(-304, "base"), &row(-5, "new")));
    let hidden: Vec<u32> = {
        let snapshot = table.snapshot().await.unwrap();
        snapshot.files().iter().map(|file| file.deleted.as_ref().map_or(0, |rows| rows.len())).collect()
    };
    assert_eq!(hidden, [2, 1]);
    table.migrate(MigrateOptions::default()).await.unwrap();
    let table = open(folder.path()).await;
    assert_eq!(rows(&table).await, now);
    let error = make(&table, Operation::Delete, keys(&[4])).await.unwrap_err();
    assert!(error.to_string().contains("(s, k)"), "{error}");
}

#[tokio::test]
async fn a_key_that_begins_with_a_partition_column_is_found_by_the_others() {
    let folder = tempfile::tempdir().unwrap();
    for part in 0..3 {
        let rows: Vec<_> = (0..50).map(|row| (row, Some(part), Some("base"))).collect();
        write(&folder.path().join(format!("part={part}/f.parquet")), &batch(&rows));
    }
    let table = open(folder.path()).await;
    let key = ["part".to_owned(), "k".to_owned()];
    table.declare_key(&key, &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let indexes = table.snapshot().await.unwrap().indexes();
    assert_eq!(indexes.iter().map(|index| index.name.as_str()).collect::<Vec<_>>(), ["k_key"]);
    let part: ArrayRef = Arc::new(Int64Array::from(vec![1, 7]));
    let gone = keys(&[4, 5]);
    let gone = RecordBatch::try_from_iter([("part", part), ("k", Arc::clone(gone.column(0)))]).unwrap();
    make(&table, Operation::Delete, gone).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let hidden = snapshot
        .files()
        .iter()
        .map(|file| file.deleted.as_ref().map_or_else(Vec::new, |rows| rows.iter().collect::<Vec<u32>>()));
    assert_eq!(hidden.collect::<Vec<_>>(), [vec![], vec![4], vec![]]);
}

async fn make(table: &Arc<Table>, operation: Operation, rows: RecordBatch) -> lakemark_table::Result<Written> {
    table.write(vec![Change { operation, rows }], WriteOptions::default()).await
}

async fn rows(table: &Table) -> BTreeMap<i64, Row> {
    rows_of(&table.snapshot().await.unwrap())
}

fn row(a: i32, s: &str) -> Row {
    (Some(a), Some(s.to_owned()))
}

#[tokio::test]
async fn changes_are_seen_at_once_and_by_whoever_opens_the_table() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let before = rows(&table).await;
    assert_eq!(before.len(), 300);
    let written = make(&table, Operation::Insert, batch(&[(1, Some(10), Some("new"))])).await.unwrap();
    assert_eq!((written.sequence, written.rows), (1, 1));
    make(&table, Operation::Upsert, batch(&[(2, None, None), (3, Some(30), Some("up"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[4, 5])).await.unwrap();
    let written =
        make(&table, Operation::Update, numbers(&[(6, Some(60)), (7, Some(70)), (3, Some(31))])).await.unwrap();
    assert_eq!((written.sequence, written.rows), (4, 3));
    let mut expected = before;
    expected.insert(1, row(10, "new"));
    expected.insert(2, (None, None));
    expected.insert(3, row(31, "up"));
    expected.remove(&4);
    expected.insert(6, row(60, "base"));
    assert_eq!(rows(&table).await, expected);
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    table.flush().await.unwrap();
    assert_eq!(rows(&table).await, expected);
    let other = open(folder.path()).await;
    let snapshot = other.snapshot().await.unwrap();
    assert_eq!((rows_of(&snapshot), snapshot.sequence()), (expected, Some(4)));
    let buffered = snapshot.buffered_rows().unwrap();
    assert_eq!((buffered.files.len(), buffered.batches.len(), buffered.row_count()), (1, 0, 4));
}

/// An update of some columns of a row that is buffered itself, in the buffer and in a run, and of one that is deleted.
#[tokio::test]
async fn updates_of_some_columns_build_on_what_is_buffered() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, batch(&[(1, Some(1), Some("one"))])).await.unwrap();
    make(&table, Operation::Update, numbers(&[(8, Some(80))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[10])).await.unwrap();
    table.flush().await.unwrap();
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x", "y", "z"]));
    let k: ArrayRef = Arc::new(Int64Array::from(vec![1, 8, 10]));
    let texts = RecordBatch::try_from_iter([("k", k), ("s", text)]).unwrap();
    make(&table, Operation::Update, texts).await.unwrap();
    for _ in 0..2 {
        let now = rows(&*open(folder.path()).await).await;
        assert_eq!((now.get(&1), now.get(&8), now.get(&10)), (Some(&row(1, "x")), Some(&row(80, "y")), None));
        table.flush().await.unwrap();
    }
}

#[tokio::test]
async fn law_3_rows_that_are_replaced_are_hidden_before_any_predicate() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    table
        .create_index(
            IndexSpec { columns: vec!["a".into()], kind: Some(IndexKind::Bitmap), ..IndexSpec::default() },
            false,
        )
        .await
        .unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let predicate = equals("a", 3);
    let before = probe(&table.snapshot().await.unwrap(), &predicate).await;
    assert_eq!((exact_rows(&before.files[0]), before.exact_row_count()), (vec![3], Some(2)));
    make(&table, Operation::Upsert, batch(&[(6, Some(4), None)])).await.unwrap();
    let after = probe(&table.snapshot().await.unwrap(), &predicate).await;
    assert_eq!((exact_rows(&after.files[0]), exact_rows(&after.files[1])), (vec![], vec![3]));
    assert_eq!((after.exact_row_count(), after.exact_rows_of_files(), after.buffered_row_count()), (None, Some(1), 1));
    // Where only the number is asked for, too: hidden rows leave it before it is known.
    let options = ProbeOptions { count_only: true, ..ProbeOptions::default() };
    let counted = table.snapshot().await.unwrap().probe(&predicate, &options).await.unwrap();
    let counts = [FileProbe::Counted { rows: 0 }, FileProbe::Counted { rows: 1 }];
    assert_eq!((&counted.files[..], counted.exact_rows_of_files()), (counts.as_slice(), Some(1)));
    let gone = probe(&table.snapshot().await.unwrap(), &leaf("a", lakemark_index::KeyRanges::all())).await;
    assert_eq!(exact_rows(&gone.files[0]).len(), 149);
}

#[tokio::test]
async fn a_snapshot_stays_as_it_was_while_changes_flushes_and_merges_go_on() {
    let folder = folder();
    let table = open(folder.path()).await;
    let options = BTreeMap::from([("cache_bytes".into(), "32768".into()), ("page_bytes".into(), "512".into())]);
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    let mut held = Vec::new();
    for round in 0..12 {
        let changed: Vec<_> =
            (0..20).map(|at| (at * 7 % 41 + i64::from(round) * 5, Some(round), Some("held"))).collect();
        make(&table, Operation::Upsert, batch(&changed)).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        held.push((rows_of(&snapshot), snapshot));
    }
    let newest = table.snapshot().await.unwrap();
    let runs = newest.buffered_rows().unwrap().files.len();
    assert!(runs >= 2, "{runs} runs were made");
    for (rows, snapshot) in &held {
        assert_eq!(rows_of(snapshot), *rows);
    }
    assert_eq!(held.last().unwrap().0, rows_of(&newest));
}

#[tokio::test]
async fn wrong_changes_are_errors_that_change_nothing() {
    let folder = folder();
    let table = open(folder.path()).await;
    let error = make(&table, Operation::Delete, keys(&[1])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("has no key"), "{error}");
    let table = keyed(folder.path()).await;
    let null: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let wrong: ArrayRef = Arc::new(StringArray::from(vec!["no number"]));
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let text = |columns: Vec<(&str, ArrayRef)>| RecordBatch::try_from_iter(columns).unwrap();
    for (operation, rows, kind, says) in [
        (Operation::Upsert, text(vec![("k", null)]), ErrorKind::InvalidInput, "row 1 has no value for k"),
        (Operation::Upsert, keys(&[3, 5, 3]), ErrorKind::InvalidInput, "k = 3 stands in rows 0 and 2"),
        (Operation::Insert, keys(&[3, 4]), ErrorKind::AlreadyExists, "the key k = 4 is there already"),
        (
            Operation::Upsert,
            text(vec![("k", one.clone()), ("b", one.clone())]),
            ErrorKind::SchemaMismatch,
            "no column b",
        ),
        (
            Operation::Upsert,
            text(vec![("k", one.clone()), ("a", wrong)]),
            ErrorKind::SchemaMismatch,
            "row 0 has no number for a, which is Int32",
        ),
        (Operation::Update, keys(&[2]), ErrorKind::InvalidInput, "names no column beside the key"),
        (Operation::Delete, text(vec![("a", one)]), ErrorKind::InvalidInput, "lack a column of the key"),
    ] {
        let error = make(&table, operation, rows).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.sequence(), rows_of(&snapshot).len()), (Some(0), 300));
}

/// Several operations of one call take effect together, one after the other; an error in one takes all of them back.
#[tokio::test]
async fn a_call_is_made_as_a_whole_or_not_at_all() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let change = |operation, rows| Change { operation, rows };
    let moved = vec![
        change(Operation::Delete, keys(&[2])),
        change(Operation::Insert, batch(&[(2, None, None), (3, None, None)])),
    ];
    table.write(moved.clone(), WriteOptions::default()).await.unwrap();
    assert_eq!(rows(&table).await.get(&3), Some(&(None, None)));
    let again = table.write(moved, WriteOptions::default()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    assert_eq!(rows(&table).await.get(&2), Some(&(None, None)));
}

#[tokio::test]
async fn a_key_that_was_changed_after_it_was_read_is_a_conflict() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let read_at = table.snapshot().await.unwrap().sequence();
    make(&table, Operation::Upsert, batch(&[(2, Some(1), None)])).await.unwrap();
    let options = WriteOptions { read_at, ..WriteOptions::default() };
    let change = |key| vec![Change { operation: Operation::Delete, rows: keys(&[key]) }];
    for _ in 0..2 {
        let error = table.write(change(2), options.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("k = 2"), "{error}");
        table.flush().await.unwrap();
    }
    table.write(change(4), options.clone()).await.unwrap();
    assert_eq!(rows(&table).await.len(), 299);
    // Data files do not tell when a row was changed: what was migrated since is a conflict, too.
    table.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(table.write(change(2), options).await.unwrap_err().kind(), ErrorKind::Conflict);
    let read_at = table.snapshot().await.unwrap().sequence();
    table.write(change(2), WriteOptions { read_at, ..WriteOptions::default() }).await.unwrap();
    assert_eq!(rows(&table).await.len(), 298);
}

#[tokio::test]
async fn keys_that_tell_no_rows_apart_are_refused() {
    let folder = folder();
    write(&folder.path().join("f2.parquet"), &batch(&[(1001, None, None), (298, None, None)]));
    let table = open(folder.path()).await;
    let declare = |columns: &[&str]| {
        let (table, columns) = (Arc::clone(&table), columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        async move { table.declare_key(&columns, &BTreeMap::new(), BuildOptions::default()).await.unwrap_err() }
    };
    let error = declare(&["k"]).await;
    assert!(error.to_string().contains("the key k = 298 is there twice, in f0.parquet and f2.parquet"), "{error}");
    assert!(declare(&["a"]).await.to_string().contains("without a value in f2.parquet"));
    assert!(declare(&["k", "k"]).await.to_string().contains("stands in the key twice"));
    assert_eq!(declare(&["z"]).await.kind(), ErrorKind::NotFound);
    std::fs::remove_file(folder.path().join("f2.parquet")).unwrap();
    let table = keyed(folder.path()).await;
    assert!(!table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap());
    let names: Vec<String> = table.snapshot().await.unwrap().indexes().into_iter().map(|index| index.name).collect();
    assert_eq!(names, ["k_key"]);
    let options = TableOptions { store: Some("memory:///s".into()), ..TableOptions::default() };
    let remote = Table::open_alone(folder.path().to_str().unwrap(), options).await.unwrap();
    let error = remote.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("local file system"), "{error}");
}

/// Law 5: indexes may be lost, updates may not.
#[tokio::test]
async fn law_5_damaged_updates_are_errors_and_damaged_indexes_are_not() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Upsert, batch(&[(2, Some(7), None)])).await.unwrap();
    table.flush().await.unwrap();
    age_logs(folder.path());
    make(&table, Operation::Upsert, batch(&[(4, Some(7), None)])).await.unwrap();
    make(&table, Operation::Upsert, batch(&[(6, Some(7), None)])).await.unwrap();
    let expected = rows(&table).await;
    let store = folder.path().join("_lakemark");
    std::fs::remove_dir_all(store.join("indexes")).unwrap();
    assert_eq!(rows(&*open(folder.path()).await).await, expected);
    let named = |suffix: &str| {
        let found = std::fs::read_dir(store.join("updates")).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = found.filter(|path| path.to_string_lossy().ends_with(suffix)).collect();
        found.sort_by_key(|path| std::fs::metadata(path).unwrap().modified().unwrap());
        found.pop().unwrap()
    };
    let error = |path: &Path, change: &dyn Fn(&mut Vec<u8>)| {
        let (path, good) = (path.to_owned(), std::fs::read(path).unwrap());
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let folder = folder.path().to_owned();
        async move {
            let error = open(&folder).await.snapshot().await.unwrap_err();
            std::fs::write(&path, good).unwrap();
            error
        }
    };
    let damaged = error(&named(".lml"), &|bytes| bytes[100] ^= 1).await;
    assert_eq!(damaged.kind(), ErrorKind::Corrupt);
    assert!(damaged.to_string().contains("is damaged"), "{damaged}");
    let damaged = error(&named(".lmr"), &|bytes| bytes.truncate(100)).await;
    assert!(damaged.to_string().contains("holds changes that are nowhere else"), "{damaged}");
    for manifest in std::fs::read_dir(store.join("manifest")).unwrap() {
        std::fs::write(manifest.unwrap().path(), "no manifest").unwrap();
    }
    let lost = open(folder.path()).await.snapshot().await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Corrupt);
    assert!(lost.to_string().contains("restore its folders `manifest` and `checkpoint`"), "{lost}");
    std::fs::remove_dir_all(store.join("manifest")).unwrap();
    let refused = open(folder.path()).await.vacuum(VacuumOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert_eq!(open(folder.path()).await.snapshot().await.unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::remove_dir_all(store.join("updates")).unwrap();
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 300);
}

/// What a writer that died left behind its last frame is no change; the next writer cuts it off.
#[tokio::test]
async fn a_torn_tail_of_the_log_is_cut() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    make(&table, Operation::Delete, keys(&[2])).await.unwrap();
    let log = std::fs::read_dir(folder.path().join("_lakemark/updates")).unwrap();
    let log =
        log.map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|end| end == "lml")).unwrap();
    let good = std::fs::read(&log).unwrap();
    let mut torn = good.clone();
    torn.extend_from_slice(&good[68..good.len() - 3]);
    std::fs::write(&log, torn).unwrap();
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 299);
    let other = open(folder.path()).await;
    make(&other, Operation::Delete, keys(&[4])).await.unwrap();
    assert_eq!(rows(&*open(folder.path()).await).await.len(), 298);
    assert_eq!(rows(&table).await.len(), 298);
}

/// Another writer deletes a row of which some columns are updated: the update is one of a row that is not there.
#[tokio::test]
async fn an_update_of_a_row_that_others_delete_changes_nothing() {
    for is_indexed in [true, false] {
        others_delete_rows_that_are_updated(is_indexed).await;
    }
}

async fn others_delete_rows_that_are_updated(is_indexed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let k: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    write(&root.join("a.parquet"), &RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap());
    let mut actions = delta::opening(true, serde_json::json!({"delta.enableDeletionVectors": "true"}));
    actions.push(delta::add(root, "a.parquet", Some("2024-01-31")));
    delta::commit(root, 0, &actions);
    let table = keyed(root).await;
    if !is_indexed {
        table.drop_index("k_key", false).await.unwrap();
    }
    let k: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let update = RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap();
    make(&table, Operation::Update, update).await.unwrap();
    let count =
        |snapshot: &lakemark_table::Snapshot| snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count());
    let mut remove = serde_json::json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}});
    for (version, is_flushed, deleted, left) in [(1, false, vec![0], 1), (2, true, vec![0, 1], 0)] {
        let mut with_vector = delta::add(root, "a.parquet", Some("2024-01-31"));
        with_vector["add"]["deletionVector"] = delta::inline_vector(&deleted);
        if is_flushed {
            table.flush().await.unwrap();
        }
        assert_eq!(count(&table.snapshot().await.unwrap()), left + 1);
        delta::commit(root, version, &[remove.clone(), with_vector]);
        remove["remove"]["deletionVector"] = delta::inline_vector(&deleted);
        for table in [&table, &open(root).await] {
            let snapshot = table.snapshot().await.unwrap();
            assert_eq!((count(&snapshot), snapshot.deleted_rows()), (left, 2), "indexed {is_indexed}, {version}");
        }
    }
}

#[tokio::test]
async fn a_row_that_a_call_deleted_may_be_inserted_though_an_update_came_between() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let change = |operation, rows| Change { operation, rows };
    let changes = vec![
        change(Operation::Delete, keys(&[2])),
        change(Operation::Update, numbers(&[(2, Some(1))])),
        change(Operation::Insert, batch(&[(2, None, Some("again"))])),
    ];
    table.write(changes, WriteOptions::default()).await.unwrap();
    assert_eq!(rows(&table).await[&2], (None, Some("again".to_owned())));
    // An update alone leaves the row where it is.
    let changes = vec![
        change(Operation::Update, numbers(&[(4, Some(1))])),
        change(Operation::Insert, batch(&[(4, None, Some("again"))])),
    ];
    let error = table.write(changes, WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

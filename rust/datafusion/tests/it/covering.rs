//! Lookups answered by an index that includes the columns: the same rows as from the data files, which are not read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use lakemark_datafusion::{LakemarkSession, QueryOptions, lookup};
use lakemark_table::{BuildOptions, Change, MigrateOptions, Operation, WriteOptions};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, Opened, Ran, batch, both, folder, metric, open, ran, rows, session, text, write};

const CREATE: &str = "CREATE INDEX of_id ON t USING key (id) INCLUDE (s, f, \"Mixed Case\")";

/// Two files with an index on `id` that includes `s`, `f` and `Mixed Case`.
async fn opened() -> Opened {
    let folder = folder(2);
    let session = session(folder.path()).await;
    session.sql(CREATE).await.unwrap().collect().await.unwrap();
    Opened { folder, session }
}

/// Rows that the index gave, and bytes of data files that were read.
async fn from_index(session: &LakemarkSession, sql: &str) -> (usize, usize) {
    let Ran { plan, .. } = ran(session, sql).await;
    (metric(&plan, "rows_index_only"), metric(&plan, "bytes_scanned"))
}

#[tokio::test]
async fn law_1_rows_of_the_index_are_those_of_the_data() {
    let Opened { folder: _folder, session } = opened().await;
    // A float is NaN, -0.0, 0.0 or infinite in most rows, and texts are empty or NULL in some.
    for (sql, covered) in [
        ("SELECT s, f FROM t WHERE id = 7", 1),
        ("SELECT id, f, s, \"Mixed Case\" FROM t WHERE id IN (0, 1, 2, 3, 4, 5, 1006, 1999, 5000)", 8),
        ("SELECT f FROM t WHERE id BETWEEN 990 AND 1020", 31),
        ("SELECT f, id FROM t WHERE id IN (4, 5, 6) AND s = 'ab4'", 0),
        ("SELECT s || 'x', f * 2 FROM t AS x WHERE x.id = 1234 OR x.id = 12", 2),
        ("SELECT f FROM t WHERE id = 17 ORDER BY s LIMIT 1", 1),
        ("SELECT id FROM t WHERE id = 17", 1),
        // This column is in the data alone, and so are all rows of a long range.
        ("SELECT s, k FROM t WHERE id = 7", 0),
        ("SELECT s FROM t WHERE id >= 0", 0),
        ("SELECT * FROM t WHERE id = 7", 0),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let (given, bytes) = from_index(&session, sql).await;
        // Of a range reading the data may be thought to be cheaper.
        let is_chosen = given > 0 || !sql.contains("BETWEEN");
        assert!(given == covered || !is_chosen, "{sql}: {given} rows");
        assert!(given == 0 || bytes == 0, "{sql} reads {bytes} bytes");
    }
    let explained = rows(&session, "EXPLAIN SELECT s FROM t WHERE id = 7").await.join("\n");
    assert!(explained.contains("rows_index_only=1, covering_index=of_id"), "{explained}");
}

#[tokio::test]
async fn conditions_on_other_columns_are_honoured() {
    let Opened { folder, session } = opened().await;
    session.sql("CREATE INDEX ON t USING bitmap (k)").await.unwrap().collect().await.unwrap();
    // Of the ids 10 to 39 three have the value 4 in k, if it is not NULL.
    let sql = "SELECT id, s FROM t WHERE id BETWEEN 10 AND 39 AND k = 4";
    let (with, without) = both(&session, sql).await;
    assert_eq!((with.len(), &with), (2, &without));
    // A condition that no index answers is tested in the data.
    let (with, without) = both(&session, "SELECT id, s FROM t WHERE id IN (10, 11) AND abs(k) = 1").await;
    assert_eq!(with, without);
    // Aggregates over covered rows and over others add up.
    write(&folder.path().join("part-9.parquet"), &batch(2 * FILE_ROWS));
    for sql in [
        "SELECT count(*), min(s), max(f) FROM t WHERE id IN (1, 2, 3, 2500)",
        "SELECT s, count(*) FROM t WHERE id IN (1, 2, 3, 2500, 11, 12) GROUP BY s",
        "SELECT min(id), max(id), count(id) FROM t WHERE id IN (1, 2, 3, 2500)",
        "SELECT id, count(*) FROM t WHERE id IN (1, 2, 3, 2500) GROUP BY id",
        "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id WHERE a.id IN (5, 2005) AND b.id IN (5, 6, 2005)",
        "SELECT b.id FROM (VALUES (5), (2005)) a(id) JOIN t b ON a.id = b.id WHERE b.id IN (5, 6, 2005)",
        "SELECT id FROM t WHERE id IN (5, 6, 2005) ORDER BY id DESC LIMIT 2",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        assert!(!with.is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn rows_of_the_keys_of_a_join_come_from_the_index() {
    let Opened { folder, session } = opened().await;
    let keys = "(VALUES (5), (1005), (7), (90000)) a(id)";
    for (sql, covered) in [
        (format!("SELECT b.id, b.s, b.f FROM {keys} JOIN t b ON a.id = b.id"), 3),
        (format!("SELECT b.s FROM {keys} JOIN t b ON a.id = b.id WHERE b.f IS NOT NULL AND b.s <> ''"), 1),
        // This column is in the data alone.
        (format!("SELECT b.k FROM {keys} JOIN t b ON a.id = b.id"), 0),
    ] {
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{sql}");
        assert_eq!(from_index(&session, &sql).await.0, covered, "{sql}");
    }
    write(&folder.path().join("part-9.parquet"), &batch(2 * FILE_ROWS));
    let sql = "SELECT b.id, b.s FROM (VALUES (5), (2005)) a(id) JOIN t b ON a.id = b.id";
    let (with, without) = both(&session, sql).await;
    assert_eq!((with.len(), &with), (2, &without));
    assert_eq!(from_index(&session, sql).await.0, 1);
}

#[tokio::test]
async fn a_limit_takes_as_many_rows_as_it_says() {
    let Opened { folder: _folder, session } = opened().await;
    for (limit, expected) in [(1, 1), (3, 3), (100, 31)] {
        let sql = format!("SELECT s, f FROM t WHERE id BETWEEN 990 AND 1020 LIMIT {limit}");
        assert_eq!(ran(&session, &sql).await.rows, expected, "{sql}");
    }
}

#[tokio::test]
async fn a_new_file_a_changed_one_and_a_damaged_index_are_read() {
    let Opened { folder, session } = opened().await;
    let sql = "SELECT s, f FROM t WHERE id IN (7, 1007, 2007)";
    write(&folder.path().join("part-9.parquet"), &batch(2 * FILE_ROWS));
    assert_eq!(from_index(&session, sql).await.0, 2);
    // Other texts with the same ids.
    let changed = batch(0);
    let mut columns = changed.columns().to_vec();
    columns[3] = Arc::new(StringArray::from_iter_values((0..FILE_ROWS).map(|row| format!("new {row}"))));
    let changed = RecordBatch::try_new(changed.schema(), columns).unwrap();
    write(&folder.path().join("part-0.parquet"), &changed);
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
    assert!(with.iter().any(|row| row.starts_with("new 7|")), "{with:?}");
    assert_eq!(from_index(&session, sql).await.0, 1);
    damage(&folder);
    // In leaves that nobody has read yet: those that the process has read stay true.
    let other = "SELECT s, f FROM t WHERE id IN (500, 1500, 2008)";
    let (with, without) = both(&session, other).await;
    assert_eq!((with.len(), &with), (3, &without));
    assert_eq!(from_index(&session, other).await.0, 0);
}

/// Flips a bit of the first page of every segment.
fn damage(folder: &TempDir) {
    for entry in fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        let pages = bytes.len() / 4096;
        (0..pages).for_each(|page| bytes[page * 4096 + 70] ^= 1);
        fs::write(&path, bytes).unwrap();
    }
}

/// The rows of a lookup, and whether its second half, without an index, gives the same.
async fn looked_up(folder: &Path, keys: &[i64], columns: &[&str]) -> Vec<String> {
    let table = open(folder).await;
    let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let mut given = Vec::new();
    for options in [QueryOptions::default(), QueryOptions { use_index: false, ..QueryOptions::default() }] {
        let found = lookup(&table, &keys, &[], Some(&columns), &options).await.unwrap();
        let mut rows: Vec<String> = found.batches.iter().flat_map(text).collect();
        rows.sort();
        given.push(rows);
    }
    assert_eq!(given[0], given[1], "with and without the index");
    given.remove(0)
}

#[tokio::test]
async fn law_3_pending_changes_come_before_what_the_index_has() {
    let Opened { folder, session: _session } = opened().await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let before = looked_up(folder.path(), &[3, 13, 23, 3000], &["id", "s", "f"]).await;
    assert_eq!(before.len(), 3);
    let id: ArrayRef = Arc::new(Int64Array::from(vec![3, 3000]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["new", "newer"]));
    let k: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let upserted = RecordBatch::try_from_iter([("id", id), ("k", k), ("s", s)]).unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![13]));
    let deleted = RecordBatch::try_from_iter([("id", id)]).unwrap();
    for (operation, rows) in [(Operation::Upsert, upserted), (Operation::Delete, deleted)] {
        table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
    }
    for step in ["buffered", "in a run", "migrated"] {
        let rows = looked_up(folder.path(), &[3, 13, 23, 3000], &["id", "s"]).await;
        assert_eq!(rows, ["23|ab", "3000|newer", "3|new"], "{step}");
        match step {
            "buffered" => table.flush().await.unwrap(),
            "in a run" => drop(table.migrate(MigrateOptions::default()).await.unwrap()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn statements_say_what_they_cannot_include() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    for (sql, said) in [
        ("CREATE INDEX ON t USING key (id) INCLUDE (absent)", "there is no column absent"),
        ("CREATE INDEX ON t USING key (id) INCLUDE (id)", "a column of the key"),
        ("CREATE INDEX ON t USING bitmap (k) INCLUDE (s)", "there is no option include"),
        ("CREATE INDEX ON t USING key (id) INCLUDE (s, s)", "included twice"),
    ] {
        let error = session.sql(sql).await.unwrap_err().to_string();
        assert!(error.contains(said), "{sql}: {error}");
    }
    // Without a kind the option stands for it.
    session.sql("CREATE INDEX ON t (id) INCLUDE (s)").await.unwrap().collect().await.unwrap();
    let indexes = rows(&session, "SHOW INDEXES FROM t").await;
    assert!(indexes[0].starts_with("id_key|key|packed"), "{indexes:?}");
}

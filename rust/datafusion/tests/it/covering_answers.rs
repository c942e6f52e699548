//! Conditions, counts and extremes that an index answers by the columns that it includes: no data file is read for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::physical_plan::displayable;
use lakemark_datafusion::{LakemarkSession, QueryOptions, count, lookup, min_max};
use lakemark_table::{BuildOptions, Change, MigrateOptions, Operation, Table, WriteOptions};

use crate::fixture::{
    FILE_ROWS, Opened, Ran, answering_metric, batch, both, folder, metric, open, ran, rows, session, text, write,
};

const WITHOUT: QueryOptions = QueryOptions { use_index: false, selection_cache: true };

/// Two files with an index on `id` that includes some columns.
async fn opened(include: &str) -> Opened {
    let folder = folder(2);
    let session = session(folder.path()).await;
    run(&session, &format!("CREATE INDEX of_id ON t USING key (id) INCLUDE ({include})")).await;
    Opened { folder, session }
}

const SOME: &str = "s, f, \"Mixed Case\"";

async fn run(session: &LakemarkSession, sql: &str) {
    session.sql(sql).await.unwrap().collect().await.unwrap();
}

#[tokio::test]
async fn law_1_conditions_on_included_columns_are_tested_by_their_values() {
    let Opened { folder: _folder, session } = opened(SOME).await;
    for (sql, given) in [
        ("SELECT f, id FROM t WHERE id IN (4, 9, 14) AND s = 'ab1'", 1),
        ("SELECT id FROM t WHERE id IN (1, 2, 3, 4, 5, 1005) AND f >= 0.0 AND s IS NOT NULL", 4),
        ("SELECT s FROM t WHERE id BETWEEN 100 AND 130 AND abs(\"Mixed Case\") = 1 AND s LIKE 'gr%'", 6),
        ("SELECT s || 'x', f * 2 FROM t AS x WHERE x.id IN (2, 3) AND x.\"Mixed Case\" + 1 > 0", 2),
        ("SELECT id FROM t WHERE id IN (4, 5, 6) AND s = 'nobody'", 0),
        ("SELECT f FROM t WHERE id IN (2, 3, 7) AND s <> 'ab' ORDER BY id DESC LIMIT 1", 2),
        // What is computed of the rows that pass reads nothing either.
        ("SELECT count(*), min(s), max(f), sum(\"Mixed Case\") FROM t WHERE id IN (2, 3, 5, 7, 12) AND s <> 'ab'", 4),
        ("SELECT s, count(*) FROM t WHERE id IN (2, 3, 4, 8) AND f IS NOT NULL GROUP BY s", 3),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let Ran { plan, .. } = ran(&session, sql).await;
        let counted = ["rows_index_only", "rows_rechecked", "bytes_scanned"].map(|name| metric(&plan, name));
        assert_eq!(counted, [given, 0, 0], "{sql}");
    }
    let explained = rows(&session, "EXPLAIN SELECT s FROM t WHERE id IN (2, 3) AND s = 'ab'").await.join("\n");
    let said = "rows_exact=1, rows_rechecked=0, rows_index_only=1, covering_index=of_id";
    assert!(explained.contains(said), "{explained}");
    // A column that the data alone has is read for all rows of the keys.
    let sql = "SELECT id FROM t WHERE id IN (4, 14) AND s = 'ab1' AND k = 4";
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
    let Ran { plan, .. } = ran(&session, sql).await;
    assert_eq!((metric(&plan, "rows_index_only"), metric(&plan, "rows_rechecked")), (0, 2));
    assert!(metric(&plan, "bytes_scanned") > 0);
}

#[tokio::test]
async fn a_condition_that_fails_says_so_with_the_index_too() {
    let Opened { folder: _folder, session } = opened(SOME).await;
    for use_index in [true, false] {
        run(&session, &format!("SET lakemark.use_index = {use_index}")).await;
        for wanted in ["id", "count(*)"] {
            let sql = format!("SELECT {wanted} FROM t WHERE id IN (4, 5) AND 1 / \"Mixed Case\" = 1");
            let error = session.sql(&sql).await.unwrap().collect().await.unwrap_err();
            assert!(error.to_string().contains("ivide by zero"), "{error}");
        }
    }
}

#[tokio::test]
async fn counts_by_included_columns_are_hardly_planned() {
    let Opened { folder, session } = opened(SOME).await;
    for (condition, expected) in [
        ("id IN (4, 9, 14) AND s = 'ab1'", "1"),
        ("id BETWEEN 100 AND 130 AND s LIKE 'gr%' AND abs(\"Mixed Case\") = 1", "6"),
        ("id IN (4, 5) AND s = 'nobody'", "0"),
    ] {
        let sql = format!("SELECT count(*) AS n FROM t WHERE {condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!((with, without), (vec![expected.to_owned()], vec![expected.to_owned()]), "{sql}");
        let plan = displayable(ran(&session, &sql).await.plan.as_ref()).indent(false).to_string();
        assert!(plan.starts_with("DataSourceExec") && plan.lines().count() == 1, "{sql}\n{plan}");
        // Counts of values are planned, and read as little.
        let sql = format!("SELECT count(f), count(*) FROM t WHERE {condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{sql}");
        assert_eq!(metric(&ran(&session, &sql).await.plan, "bytes_scanned"), 0, "{sql}");
    }
    // A new file is read, and so are files whose rows are many.
    write(&folder.path().join("part-9.parquet"), &batch(2 * FILE_ROWS));
    for condition in ["id IN (4, 2004) AND s = 'ab1' OR id = 9", "id IN (4, 2009) AND s LIKE 'ab%'", "s = 'ab1'"] {
        let (with, without) = both(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
    }
}

/// Requests to storage of a call that was made once before.
async fn requests(table: &Table, call: impl AsyncFn()) -> u64 {
    call().await;
    let before = table.metrics().get.requests.get();
    call().await;
    table.metrics().get.requests.get() - before
}

async fn counted(table: &Arc<Table>, condition: &str, options: &QueryOptions) -> u64 {
    count(table, Some(condition), options).await.unwrap()
}

async fn bounds(table: &Arc<Table>, column: &str, condition: &str, options: &QueryOptions) -> Vec<String> {
    let found = min_max(table, column, Some(condition), options).await.unwrap().collect().await.unwrap();
    found.iter().flat_map(text).collect()
}

#[tokio::test]
async fn calls_read_no_data_file_for_included_columns() {
    // A count that is remembered would read nothing at all.
    const WITH: QueryOptions = QueryOptions { use_index: true, selection_cache: false };
    let Opened { folder, session: _session } = opened(SOME).await;
    let table = open(folder.path()).await;
    // A key alone is counted by the index: whatever takes no more requests reads no data.
    let known = requests(&table, async || {
        counted(&table, "id = 7", &WITH).await;
    })
    .await;
    for (condition, expected) in [("id IN (4, 9, 14) AND s = 'ab1'", 1), ("id BETWEEN 100 AND 130 AND f IS NULL", 6)] {
        for options in [WITH, WITHOUT] {
            assert_eq!(counted(&table, condition, &options).await, expected, "{condition} with {options:?}");
        }
        let taken = requests(&table, async || {
            counted(&table, condition, &WITH).await;
        })
        .await;
        assert!(taken <= known, "{condition}");
    }
    for (column, condition, expected) in [
        ("s", "id IN (2, 3, 8)", "ab|größe 2"),
        ("id", "id BETWEEN 2 AND 8", "2|8"),
        ("id", "id BETWEEN 100 AND 130 AND s LIKE 'gr%'", "102|127"),
        ("Mixed Case", "id IN (150, 250, 1950) AND s = ''", "1|19"),
        ("s", "id IN (4, 5) AND s = 'nobody'", "NULL|NULL"),
    ] {
        for options in [WITH, WITHOUT] {
            assert_eq!(bounds(&table, column, condition, &options).await, [expected], "{column} of {condition}");
        }
        let taken = requests(&table, async || {
            bounds(&table, column, condition, &WITH).await;
        })
        .await;
        assert!(taken <= known, "{column} of {condition}");
    }
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![2, 3, 1999, 90_000]));
    let columns = ["s".to_owned(), "id".to_owned()];
    let found = lookup(&table, &keys, &[], Some(&columns), &WITH).await.unwrap();
    assert_eq!(found.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let taken = requests(&table, async || {
        lookup(&table, &keys, &[], Some(&columns), &WITH).await.unwrap();
    })
    .await;
    assert!(taken <= known, "{taken} requests of a lookup");
    // What the index does not include takes more.
    let read = requests(&table, async || {
        counted(&table, "id IN (4, 9) AND k = 4", &WITH).await;
    })
    .await;
    assert!(read > known, "{read} requests");
    let read = requests(&table, async || {
        bounds(&table, "k", "id IN (4, 9)", &WITH).await;
    })
    .await;
    assert!(read > known, "{read} requests");
}

#[tokio::test]
async fn law_3_pending_changes_are_tested_as_they_are_now() {
    let Opened { folder, session: _session } = opened(SOME).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let condition = "id IN (3, 13, 23, 3000) AND s IN ('new', 'newer', 'ab')";
    let counts = async || {
        (counted(&table, condition, &QueryOptions::default()).await, counted(&table, condition, &WITHOUT).await)
    };
    assert_eq!(counts().await, (3, 3));
    let id: ArrayRef = Arc::new(Int64Array::from(vec![3, 3000]));
    let s: ArrayRef = Arc::new(StringArray::from(vec!["new", "other"]));
    let k: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let upserted = RecordBatch::try_from_iter([("id", id), ("k", k), ("s", s)]).unwrap();
    let id: ArrayRef = Arc::new(Int64Array::from(vec![13]));
    let deleted = RecordBatch::try_from_iter([("id", id)]).unwrap();
    for (operation, rows) in [(Operation::Upsert, upserted), (Operation::Delete, deleted)] {
        table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
    }
    for step in ["buffered", "in a run", "migrated"] {
        assert_eq!(counts().await, (2, 2), "{step}");
        match step {
            "buffered" => table.flush().await.unwrap(),
            "in a run" => drop(table.migrate(MigrateOptions::default()).await.unwrap()),
            _ => {}
        }
    }
}

/// Of one file the index on `f` knows which numbers pass, and not whether NaN does: these rows are tested by their values, and an aggregate
/// takes the others from the index on `k`.
#[tokio::test]
async fn rows_that_were_tested_are_aggregated_once() {
    let Opened { folder: _folder, session } = opened("f, k").await;
    for column in ["f", "k"] {
        run(&session, &format!("CREATE INDEX ON t USING bitmap ({column})")).await;
    }
    for sql in [
        "SELECT k, count(*) FROM t WHERE id IN (0, 5, 6, 11, 12, 1005) AND f > 0.0 GROUP BY k",
        "SELECT min(k), max(k), count(k) FROM t WHERE id IN (0, 5, 6, 11, 12) AND f > 0.0",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let Ran { plan, .. } = ran(&session, sql).await;
        assert!(answering_metric(&plan, "files_index_only") > 0, "{sql}");
    }
}

#[tokio::test]
async fn a_limit_is_met_by_rows_that_were_tested() {
    let Opened { folder: _folder, session } = opened(SOME).await;
    for (limit, expected) in [(1, 1), (4, 4), (100, 6)] {
        let sql = format!("SELECT s FROM t WHERE id BETWEEN 100 AND 130 AND s LIKE 'gr%' LIMIT {limit}");
        let Ran { plan, rows } = ran(&session, &sql).await;
        assert_eq!((rows, metric(&plan, "bytes_scanned")), (expected, 0), "{sql}");
    }
    let sql = "SELECT count(*) FROM (SELECT 1 FROM t WHERE id BETWEEN 100 AND 130 AND s LIKE 'gr%' LIMIT 4)";
    assert_eq!(rows(&session, sql).await, ["4"]);
}

#[tokio::test]
async fn law_1_extremes_of_a_range_are_at_its_ends() {
    let folder = folder(2);
    let session = session(folder.path()).await;
    for column in ["id", "s", "f"] {
        run(&session, &format!("CREATE INDEX ON t USING key ({column})")).await;
    }
    for (condition, expected) in [
        ("id > 100 AND id < 1900", "101|1899"),
        ("id BETWEEN -5 AND 1998", "0|1998"),
        ("id >= 3", "3|1999"),
        ("NOT id >= 1500", "0|1499"),
    ] {
        let sql = format!("SELECT min(id), max(id) FROM t WHERE {condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!((with, without), (vec![expected.to_owned()], vec![expected.to_owned()]), "{sql}");
        let Ran { plan, .. } = ran(&session, &sql).await;
        assert_eq!(metric(&plan, "bytes_scanned"), 0, "{sql}");
        assert!(answering_metric(&plan, "index_reads") <= 2, "{sql}");
    }
    // Texts too. Whether NaN is greater the index does not know, and several ranges are read.
    for sql in [
        "SELECT max(s), min(s) FROM t WHERE s > 'ab1'",
        "SELECT min(s) FROM t WHERE s < 'größe 2' AND s > 'ab'",
        "SELECT min(f) FROM t WHERE f > 1.0",
        "SELECT min(id), max(id) FROM t WHERE id < 900 OR id > 1800",
        "SELECT min(id), max(id), count(*) FROM t WHERE id > 100 AND id < 1900",
        "SELECT min(id), max(id + 1) FROM t WHERE id > 100 AND id < 1900",
        "SELECT min(id) FROM t WHERE id > 100 AND id < 1900 AND k = 3",
        "SELECT k, min(id) FROM t WHERE id > 100 AND id < 1900 GROUP BY k",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    // A file that no index knows is read.
    write(&folder.path().join("part-9.parquet"), &batch(2 * FILE_ROWS));
    let (with, without) = both(&session, "SELECT min(id), max(id) FROM t WHERE id > 100 AND id < 2500").await;
    assert_eq!((with, without), (vec!["101|2499".to_owned()], vec!["101|2499".to_owned()]));
}

#[tokio::test]
async fn law_3_extremes_of_a_range_are_those_of_pending_changes() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let extremes = async || {
        let condition = "id > 100 AND id < 3000";
        let with = bounds(&table, "id", condition, &QueryOptions::default()).await;
        assert_eq!(with, bounds(&table, "id", condition, &WITHOUT).await);
        with
    };
    assert_eq!(extremes().await, ["101|1999"]);
    let change = async |operation, id: i64| {
        let id: ArrayRef = Arc::new(Int64Array::from(vec![id]));
        let rows = RecordBatch::try_from_iter([("id", id)]).unwrap();
        table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap();
    };
    change(Operation::Upsert, 2500).await;
    assert_eq!(extremes().await, ["101|2500"]);
    change(Operation::Delete, 101).await;
    assert_eq!(extremes().await, ["102|2500"]);
    table.migrate(MigrateOptions::default()).await.unwrap();
    assert_eq!(extremes().await, ["102|2500"]);
}

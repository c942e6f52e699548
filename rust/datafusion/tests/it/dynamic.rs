//! Filters that joins learn while a query runs, searched in the index.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, IndexKind, IndexSpec};

use crate::fixture::{FILE_ROWS, Ran, both, create_indexes, folder, ran, rows, scans, session, write};

/// A session with the folder as `t` and a dimension of few rows: keys of `t`'s columns `k` and `id`, and a name.
async fn with_dimension(folder: &std::path::Path, k: &[Option<i32>], id: &[i64]) -> LakemarkSession {
    let session = session(folder).await;
    let names: Vec<String> = (0..k.len()).map(|row| format!("name {row}")).collect();
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("dk", Arc::new(Int32Array::from(k.to_vec())) as ArrayRef, true),
        ("did", Arc::new(Int64Array::from(id.to_vec())) as ArrayRef, true),
        ("name", Arc::new(StringArray::from(names)) as ArrayRef, true),
    ])
    .unwrap();
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("d", Arc::new(table)).unwrap();
    session
}

/// The sum of a metric over the scans of a plan.
fn sum(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    scans(plan).iter().filter_map(|scan| scan.metrics()?.sum_by_name(name)).map(|value| value.as_usize()).sum()
}

#[tokio::test]
async fn a_join_with_few_keys_reads_the_rows_of_these_keys() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id", "k"]).await;
    let session = with_dimension(folder.path(), &[Some(1), Some(2)], &[17, 3003]).await;
    let sql = "SELECT t.id, t.s, d.name FROM d JOIN t ON t.id = d.did";
    let Ran { plan, rows: count } = ran(&session, sql).await;
    assert_eq!(count, 2);
    let scan = scans(&plan).remove(0);
    assert_eq!(sum(&plan, "rows_pruned_dynamic_filter"), 4 * FILE_ROWS - 2);
    assert_eq!(sum(&plan, "row_groups_pruned_dynamic_filter"), 14);
    assert_eq!(scan.metrics().unwrap().output_rows(), Some(2));
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
    let mut sorted = with.clone();
    sorted.sort();
    assert_eq!(sorted, ["17|größe 17|name 0", "3003|ab|name 1"]);
}

#[tokio::test]
async fn files_that_the_index_rules_out_for_a_join_are_not_read() {
    let folder = folder(40);
    create_indexes(folder.path(), &["id"]).await;
    let session = with_dimension(folder.path(), &[Some(1), Some(2)], &[17, 30_003]).await;
    let sql = "SELECT t.id, t.s, d.name FROM d JOIN t ON t.id = d.did";
    let Ran { plan, rows: count } = ran(&session, sql).await;
    assert_eq!((count, sum(&plan, "rows_pruned_dynamic_filter")), (2, 40 * FILE_ROWS - 2));
    assert_eq!(scans(&plan).remove(0).metrics().unwrap().output_rows(), Some(2));
    let (with, without) = both(&session, sql).await;
    assert_eq!((with.len(), &with), (2, &without));
}

#[tokio::test]
async fn rows_that_the_query_planned_and_rows_that_the_join_wants_meet() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id", "k"]).await;
    let session = with_dimension(folder.path(), &[None, None, None], &[15, 16, 2025]).await;
    // Exact rows of `k`, and rows that have to be tested.
    for (condition, expected) in [("t.k = 5", 2), ("t.k = 5 AND abs(t.id) < 1000", 1), ("abs(t.id) < 2000", 2)] {
        let sql = format!("SELECT t.id, t.f FROM d JOIN t ON t.id = d.did WHERE {condition}");
        let Ran { plan, rows: count } = ran(&session, &sql).await;
        assert_eq!(count, expected, "{condition}");
        assert!(sum(&plan, "rows_pruned_dynamic_filter") > 80, "{condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{condition}");
    }
}

#[tokio::test]
async fn joins_of_every_kind_answer_as_without_indexes() {
    let folder = folder(3);
    create_indexes(folder.path(), &["id", "k", "f", "s", "Mixed Case"]).await;
    let session = with_dimension(folder.path(), &[Some(3), None, Some(99)], &[11, 1500, -4]).await;
    let mut pruned = 0;
    for partitions in [1, 3] {
        for threshold in [0, 1 << 20] {
            for statement in [
                format!("SET datafusion.execution.target_partitions = {partitions}"),
                format!("SET datafusion.optimizer.hash_join_single_partition_threshold = {threshold}"),
                format!("SET datafusion.optimizer.hash_join_single_partition_threshold_rows = {threshold}"),
            ] {
                session.sql(&statement).await.unwrap().collect().await.unwrap();
            }
            for sql in [
                "SELECT t.id, d.name FROM d JOIN t ON t.id = d.did",
                "SELECT t.id, d.name FROM d JOIN t ON t.k = d.dk AND t.id < 100",
                "SELECT t.id FROM t WHERE t.id IN (SELECT did FROM d)",
                "SELECT t.id FROM t WHERE t.id NOT IN (SELECT did FROM d WHERE did > 0)",
                "SELECT d.name, t.id FROM d LEFT JOIN t ON t.id = d.did",
                "SELECT d.name, t.id FROM d RIGHT JOIN t ON t.id = d.did WHERE t.\"Mixed Case\" = 1",
                "SELECT d.name, t.id FROM d FULL JOIN t ON t.id = d.did WHERE t.id IS NULL OR t.id < 20",
                "SELECT t.id, d.name FROM d JOIN t ON t.id = d.did AND t.k = d.dk",
                "SELECT t.id, d.name FROM d JOIN t ON t.k IS NOT DISTINCT FROM d.dk WHERE t.id < 200",
                "SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.id WHERE a.s = 'ab1' AND a.k = 4",
                "SELECT a.id, b.s, d.name FROM d JOIN t a ON a.id = d.did JOIN t b ON b.\"Mixed Case\" = a.\"Mixed Case\"",
                "SELECT count(*), min(t.f) FROM t JOIN d ON t.id = d.did",
                "SELECT t.id, t.s FROM t WHERE t.k = 4 ORDER BY t.id DESC LIMIT 5",
                "SELECT t.id, t.f FROM t ORDER BY t.f, t.id LIMIT 4",
                "SELECT a.id FROM (SELECT * FROM t ORDER BY id LIMIT 50) a JOIN t b ON a.id = b.id WHERE b.k = 1",
                "SELECT t.id FROM d JOIN t ON t.id = d.did UNION ALL SELECT t.id FROM d JOIN t ON t.id = d.did + 1",
            ] {
                let (with, without) = both(&session, sql).await;
                assert_eq!(with, without, "{sql} with {partitions} partitions, threshold {threshold}");
                let plan = ran(&session, sql).await.plan;
                pruned += usize::from(sum(&plan, "rows_pruned_dynamic_filter") > 0);
            }
        }
    }
    assert!(pruned >= 20, "{pruned} of 64 scans were pruned");
}

#[tokio::test]
async fn a_recursive_query_forgets_what_a_round_learned() {
    let folder = folder(3);
    create_indexes(folder.path(), &["id"]).await;
    let session = session(folder.path()).await;
    let sql = "WITH RECURSIVE r AS (SELECT CAST(1 AS BIGINT) AS n UNION ALL \
               SELECT t.id * 2 FROM r JOIN t ON t.id = r.n WHERE n < 1000) SELECT n FROM r ORDER BY n";
    assert_eq!(rows(&session, sql).await, ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024"]);
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
}

#[tokio::test]
async fn without_indexes_nothing_is_searched() {
    let folder = folder(3);
    let session = with_dimension(folder.path(), &[None], &[17]).await;
    let Ran { plan, rows: count } = ran(&session, "SELECT t.id FROM d JOIN t ON t.id = d.did").await;
    assert_eq!((count, sum(&plan, "rows_pruned_dynamic_filter"), sum(&plan, "index_reads")), (1, 0, 0));
}

/// Waits on its thread until as many others wait; false if they do not come.
fn meets(waiting: &(Mutex<usize>, Condvar), all: usize) -> bool {
    let (count, came) = waiting;
    let mut count = count.lock().unwrap();
    *count += 1;
    came.notify_all();
    !came.wait_timeout_while(count, Duration::from_secs(30), |count| *count < all).unwrap().1.timed_out()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_wait_for_the_same_search_run_side_by_side() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id"]).await;
    let keys: Vec<i64> = (0..4000).step_by(9).collect();
    let session = with_dimension(folder.path(), &vec![None; keys.len()], &keys).await;
    session.sql("SET datafusion.execution.target_partitions = 2").await.unwrap().collect().await.unwrap();
    for round in 0..40 {
        let query = session.sql("SELECT t.id, d.name FROM d JOIN t ON t.id = d.did").await.unwrap();
        let (context, plan) = (Arc::new(query.task_ctx()), query.create_physical_plan().await.unwrap());
        let mut join = plan;
        while join.name() != "HashJoinExec" {
            let below = Arc::clone(join.children()[0]);
            join = below;
        }
        assert_eq!(join.properties().output_partitioning().partition_count(), 2);
        // A partition that has its first rows keeps its thread until the other one has some.
        let waiting = Arc::new((Mutex::new(0), Condvar::new()));
        let partitions: Vec<_> = (0..2)
            .map(|partition| {
                let (mut rows, waiting) =
                    (join.execute(partition, Arc::clone(&context)).unwrap(), Arc::clone(&waiting));
                tokio::spawn(async move {
                    assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
                    meets(&waiting, 2)
                })
            })
            .collect();
        for partition in partitions {
            assert!(partition.await.unwrap(), "round {round}: a partition waits for the other one to end");
        }
    }
}

/// Keys of a dimension that are more than the engine names in its own filter.
async fn with_many_keys(folder: &std::path::Path) -> LakemarkSession {
    let keys: Vec<i64> = (0..4000).filter(|key| key % 9 == 4).collect();
    let session = with_dimension(folder, &vec![Some(1); keys.len()], &keys).await;
    let texts = "CREATE TABLE e AS SELECT did AS key, CAST(did % 7 AS INT) AS small, CAST(did AS VARCHAR) AS text, \
                 CASE WHEN did % 2 = 0 THEN did END AS holey, did * 1000000000000 AS far FROM d";
    session.sql(texts).await.unwrap().collect().await.unwrap();
    session
}

#[tokio::test]
async fn all_keys_of_a_build_side_are_searched_in_the_index() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id", "k"]).await;
    let session = with_many_keys(folder.path()).await;
    for (sql, rows) in [
        ("SELECT count(t.f + 1), count(*) FROM e JOIN t ON t.id = e.key", 444),
        ("SELECT t.s, count(*) FROM e JOIN t ON t.id = e.holey GROUP BY t.s", 222),
        ("SELECT t.s, count(*) FROM t WHERE t.id IN (SELECT key FROM e) GROUP BY t.s", 444),
        ("SELECT count(t.f) FROM e JOIN t ON t.id = e.key AND t.k = e.small", 444),
    ] {
        let plan = ran(&session, sql).await.plan;
        let read = 4 * FILE_ROWS - sum(&plan, "rows_pruned_dynamic_filter");
        assert!(read <= rows, "{read} rows are read: {sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    // No value of the column is as large as these keys, and keys of another kind say nothing.
    for sql in [
        "SELECT t.s FROM e JOIN t ON t.id = e.far",
        "SELECT t.s FROM e JOIN t ON CAST(t.id AS VARCHAR) = e.text",
        "SELECT t.s FROM e JOIN t ON t.k = e.far",
        "SELECT t.s FROM e JOIN t ON t.s = e.text",
        "SELECT t.id, e.key FROM e LEFT JOIN t ON t.id = e.key",
        "SELECT t.id, e.key FROM t LEFT JOIN e ON t.id = e.key",
        "SELECT t.id FROM t WHERE t.id NOT IN (SELECT key FROM e)",
        "SELECT n FROM (SELECT count(*) + key AS n FROM e GROUP BY key) d WHERE n NOT IN (SELECT k FROM t)",
        "SELECT n FROM (SELECT count(*) + key AS n FROM e GROUP BY key) d WHERE n NOT IN (SELECT k FROM t WHERE k IS NOT NULL)",
        "SELECT t.id FROM t JOIN e ON t.id IS NOT DISTINCT FROM e.holey",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
}

#[tokio::test]
async fn keys_that_do_not_fit_into_memory_are_not_kept() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id"]).await;
    let session = with_many_keys(folder.path()).await;
    let sql = "SELECT t.s, count(*) FROM e JOIN t ON t.id = e.key GROUP BY t.s";
    let right = rows(&session, sql).await.len();
    session.sql("SET datafusion.runtime.memory_limit = '2M'").await.unwrap().collect().await.unwrap();
    assert_eq!(rows(&session, sql).await.len(), right);
}

#[tokio::test]
async fn thousands_of_keys_are_searched_in_a_row_and_with_gaps() {
    let folder = folder(4);
    create_indexes(folder.path(), &["id", "k"]).await;
    let dense: Vec<i64> = (700..3_100).collect();
    let sparse: Vec<i64> = (-100..4_500).filter(|key| key % 3 != 1).collect();
    for keys in [dense, sparse] {
        let inside = keys.iter().filter(|key| (0..4 * FILE_ROWS as i64).contains(*key)).count();
        let session = with_dimension(folder.path(), &vec![Some(1); keys.len()], &keys).await;
        let sql = "SELECT t.s, count(*), count(t.f) FROM d JOIN t ON t.id = d.did GROUP BY t.s";
        let plan = ran(&session, sql).await.plan;
        assert_eq!(4 * FILE_ROWS - sum(&plan, "rows_pruned_dynamic_filter"), inside);
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without);
    }
}

#[tokio::test]
async fn the_first_rows_in_an_order_are_read() {
    let folder = folder(8);
    create_indexes(folder.path(), &["id", "k", "s", "f"]).await;
    let session = session(folder.path()).await;
    for (sql, most) in [
        ("SELECT id, s FROM t ORDER BY id LIMIT 7", 2_000),
        ("SELECT id, s FROM t ORDER BY id DESC LIMIT 7", 2_000),
        ("SELECT s FROM (SELECT s, id AS n FROM t) ORDER BY n DESC, s LIMIT 3 OFFSET 4", 2_000),
        ("SELECT id, s FROM t WHERE k = 5 ORDER BY id LIMIT 5", 8 * FILE_ROWS),
        ("SELECT id, k FROM t ORDER BY k NULLS FIRST, id LIMIT 20", 8 * FILE_ROWS),
        ("SELECT id, k FROM t ORDER BY k DESC NULLS LAST, id LIMIT 20", 8 * FILE_ROWS),
        ("SELECT id, f FROM t ORDER BY f DESC, id LIMIT 9", 8 * FILE_ROWS),
        ("SELECT id, f FROM t ORDER BY f NULLS FIRST, id LIMIT 9", 8 * FILE_ROWS),
        ("SELECT id, s FROM t WHERE abs(id) % 2 = 1 ORDER BY s, id LIMIT 9", 8 * FILE_ROWS),
        ("SELECT id, s FROM t ORDER BY s || 'x', id LIMIT 9", 8 * FILE_ROWS),
        ("SELECT id FROM t ORDER BY id LIMIT 100000", 8 * FILE_ROWS),
        ("SELECT t.id FROM t JOIN (SELECT id + 3000 AS n FROM t) u ON t.id = n ORDER BY t.id LIMIT 5", 8 * FILE_ROWS),
        ("SELECT k, count(*) FROM t GROUP BY k ORDER BY k LIMIT 2", 8 * FILE_ROWS),
        ("SELECT id FROM (SELECT id FROM t LIMIT 100000) ORDER BY id LIMIT 2", 8 * FILE_ROWS),
    ] {
        let plan = ran(&session, sql).await.plan;
        let read = 8 * FILE_ROWS - sum(&plan, "rows_pruned_dynamic_filter");
        assert!(read <= most, "{read} rows are read: {sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
    }
    let explained = rows(&session, "EXPLAIN SELECT id, s FROM t ORDER BY id DESC LIMIT 7").await.concat();
    assert!(explained.contains("first_rows=7 by id DESC"), "{explained}");
}

/// Builds an index of a kind on each column.
async fn indexed(folder: &std::path::Path, kind: &str, columns: &[&str]) {
    let table = crate::fixture::open(folder).await;
    for column in columns {
        let spec =
            IndexSpec { columns: vec![(*column).to_owned()], kind: IndexKind::from_name(kind), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

#[tokio::test]
async fn keys_alone_are_index_only() {
    for kind in ["bitmap", "key", "summary", "bloom_tree"] {
        let folder = folder(4);
        indexed(folder.path(), kind, &["id", "k"]).await;
        let is_exact = ["bitmap", "key"].contains(&kind);
        let keys: Vec<i64> = (-100..3_000).filter(|key| key % 3 == 1).collect();
        let session = with_dimension(folder.path(), &vec![Some(1); keys.len()], &keys).await;
        for (sql, index_only) in [
            ("SELECT count(*) FROM d JOIN t ON t.id = d.did", 1_000),
            ("SELECT t.id, count(*) FROM d JOIN t ON t.id = d.did GROUP BY t.id", 1_000),
            ("SELECT count(*) FROM t WHERE id IN (SELECT did FROM d)", 1_000),
            ("SELECT count(*) FROM (SELECT DISTINCT did % 4 AS n FROM d WHERE did > 0) e JOIN t ON t.k = n", 1_371),
            // Other columns are read, and so are rows of which a condition is left.
            ("SELECT count(t.s) FROM d JOIN t ON t.id = d.did", 0),
            ("SELECT count(*) FROM d JOIN t ON t.id = d.did WHERE abs(t.id) > 5", 0),
        ] {
            let plan = ran(&session, sql).await.plan;
            // What is to be rechecked is read: a filter of keys does not know which rows have them.
            assert_eq!(sum(&plan, "rows_index_only"), if is_exact { index_only } else { 0 }, "{kind}: {sql}");
            let (with, without) = both(&session, sql).await;
            assert_eq!(with, without, "{kind}: {sql}");
        }
        // Index-only values take no search for the rows.
        let index_only = ran(&session, "SELECT count(*) FROM d JOIN t ON t.id = d.did").await.plan;
        let searched = ran(&session, "SELECT count(t.s) FROM d JOIN t ON t.id = d.did").await.plan;
        assert!(sum(&index_only, "index_bytes_read") <= sum(&searched, "index_bytes_read"), "{kind}");
    }
}

#[tokio::test]
async fn what_an_index_does_not_know_of_a_file_is_read_beside_index_only_values() {
    // No value of the first file, which has them, is index-only, and all of the second one are.
    let long = |row: usize| {
        if row < 1_000 && row % 400 == 7 { "long ".repeat(1_000) + &row.to_string() } else { format!("s{row}") }
    };
    let folder = tempfile::tempdir().unwrap();
    for file in 0..2 {
        let texts = StringArray::from_iter_values((file * 1_000..(file + 1) * 1_000).map(long));
        let batch = RecordBatch::try_from_iter([("s", Arc::new(texts) as ArrayRef)]).unwrap();
        write(&folder.path().join(format!("part-{file}.parquet")), &batch);
        // A segment for each file.
        match file {
            0 => indexed(folder.path(), "key", &["s"]).await,
            _ => drop(crate::fixture::open(folder.path()).await.build(BuildOptions::default()).await.unwrap()),
        }
    }
    let session = session(folder.path()).await;
    // The engine names few keys in a filter, of which all rows are read; keys that are too long for an index have no place in it.
    for (keys, first, is_index_only) in [(3, 2, false), (300, 2, false), (300, 3, true)] {
        let texts = StringArray::from_iter_values((0..keys).map(|key| long(key * 5 + first)));
        let batch = RecordBatch::try_from_iter([("ds", Arc::new(texts) as ArrayRef)]).unwrap();
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
        session.context().deregister_table("d").unwrap();
        session.context().register_table("d", Arc::new(table)).unwrap();
        for sql in ["SELECT count(*) FROM d JOIN t ON t.s = ds", "SELECT s FROM t WHERE s IN (SELECT ds FROM d)"] {
            let (with, without) = both(&session, sql).await;
            assert_eq!(with, without, "{keys} keys: {sql}");
            let plan = ran(&session, sql).await.plan;
            assert_eq!(sum(&plan, "rows_index_only") > 0, is_index_only, "{keys} keys: {sql}");
        }
    }
    // A second index of another kind changes no answer.
    indexed(folder.path(), "bitmap", &["s"]).await;
    for sql in ["SELECT count(*) FROM d JOIN t ON t.s = ds", "SELECT s FROM t WHERE s IN (SELECT ds FROM d)"] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "both kinds: {sql}");
    }
}

#[tokio::test]
async fn keys_that_nearly_every_row_has_are_not_searched_for() {
    let folder = folder(4);
    indexed(folder.path(), "bitmap", &["id", "k"]).await;
    let all: Vec<i64> = (0..3_900).collect();
    let sparse: Vec<i64> = (0..3_900).filter(|key| key % 39 != 5).collect();
    // Of many rows of a dimension few keys are different, and of others all: their bounds leave out a hundred rows.
    for (keys, pruned) in
        [(sparse, 100), (all.iter().map(|key| key / 40 * 40).collect(), 4_000 - 98), ((0..2_000).collect(), 2_000)]
    {
        let session = with_dimension(folder.path(), &vec![None; keys.len()], &keys).await;
        let sql = "SELECT t.id, t.s, t.f FROM d JOIN t ON t.id = d.did";
        let plan = ran(&session, sql).await.plan;
        assert_eq!(sum(&plan, "rows_pruned_dynamic_filter"), pruned);
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without);
        // Index-only values are no rows that are read.
        let plan = ran(&session, "SELECT count(*) FROM d JOIN t ON t.id = d.did").await.plan;
        assert!(sum(&plan, "rows_index_only") > 0);
    }
}

#[tokio::test]
async fn keys_are_not_searched_for_where_few_rows_are_enough() {
    let folder = folder(4);
    indexed(folder.path(), "key", &["id"]).await;
    let some: Vec<i64> = (0..4_000).filter(|key| key % 4 == 1).collect();
    let session = with_dimension(folder.path(), &vec![None; some.len()], &some).await;
    for (sql, is_searched) in [
        ("SELECT t.id, t.s FROM d JOIN t ON t.id = d.did LIMIT 10", false),
        ("SELECT t.id, t.s FROM d JOIN t ON t.id = d.did WHERE t.f IS NOT NULL LIMIT 5 OFFSET 5", false),
        ("SELECT t.id, t.s FROM d JOIN t ON t.id = d.did LIMIT 100000", true),
        // All rows are read before the first is given.
        ("SELECT t.id, t.s FROM d JOIN t ON t.id = d.did ORDER BY t.s, t.id LIMIT 10", true),
        ("SELECT t.s, count(*) FROM d JOIN t ON t.id = d.did GROUP BY t.s LIMIT 10", true),
    ] {
        let Ran { plan, rows: count } = ran(&session, sql).await;
        let shown = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
        let pruned = sum(&plan, "rows_pruned_dynamic_filter");
        assert_eq!(pruned > 1_000, is_searched, "{sql}\n{shown}");
        // Nor are the bounds of the keys, which three rows are outside of.
        assert!(is_searched || pruned == 0, "{sql}: {pruned}\n{shown}");
        assert!(count > 0, "{sql}");
    }
    // A filter of keys that are in no row leaves none to read.
    let session = with_dimension(folder.path(), &[None; 140], &Vec::from_iter(4_000..4_140)).await;
    let Ran { plan, rows: count } = ran(&session, "SELECT t.id, t.s FROM d JOIN t ON t.id = d.did LIMIT 2").await;
    assert_eq!((sum(&plan, "rows_pruned_dynamic_filter"), count), (4 * FILE_ROWS, 0));
    // Of few keys among many a whole table would be read.
    let session = with_dimension(folder.path(), &[None; 2], &[17, 3_003]).await;
    let Ran { plan, rows: count } = ran(&session, "SELECT t.id, t.s FROM d JOIN t ON t.id = d.did LIMIT 2").await;
    assert_eq!((sum(&plan, "rows_pruned_dynamic_filter"), count), (4 * FILE_ROWS - 2, 2));
}

#[tokio::test]
async fn row_groups_of_which_hardly_a_row_is_left_out_are_read_whole() {
    let folder = folder(4);
    indexed(folder.path(), "key", &["id"]).await;
    // The bounds of nearly all keys leave out two rows and one.
    let keys: Vec<i64> = (2..3_999).collect();
    let session = with_dimension(folder.path(), &vec![None; keys.len()], &keys).await;
    let Ran { plan, rows: count } = ran(&session, "SELECT t.id, t.s FROM d JOIN t ON t.id = d.did").await;
    assert_eq!((sum(&plan, "rows_pruned_dynamic_filter"), count), (0, 3_997));
    // Rows whose values the index gives are not read besides, however few they are.
    let counted = rows(&session, "SELECT count(*) FROM d JOIN t ON t.id = d.did").await;
    assert_eq!(counted, ["3997"]);
}

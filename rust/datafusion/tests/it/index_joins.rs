//! Joins that an index runs, in recursive queries above all: the same rows as without indexes, whatever the index knows of the table.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::BuildOptions;
use parquet::arrow::ArrowWriter;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::fixture::{Ran, both, metric, open, ran, rows, session, text, write};

/// Nodes of a random graph.
const NODES: i64 = 60;
/// Links of a file of it.
const LINKS: usize = 90;

/// A key index that gives all that a walk wants.
const COVERING: &str = "CREATE INDEX ON t USING key (s) INCLUDE (p, o, n)";
/// An index of links, which are the rows as far as a walk wants them.
const LINKED: &str = "CREATE INDEX ON t USING links (s, p, o)";
/// An index on the same nodes in a narrower type.
const NARROW: &str = "CREATE INDEX ON t USING key (n)";

/// Links with numbers from `first` on, between nodes: some have no end, some come twice, and some lead to where they begin.
fn links(seed: u64, first: i64) -> RecordBatch {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut node = || rng.random_bool(0.95).then(|| rng.random_range(0..NODES));
    let s: Vec<Option<i64>> = (0..LINKS).map(|_| node()).collect();
    let o: Vec<Option<i64>> = (0..LINKS).map(|_| node()).collect();
    let p = (0..LINKS).map(|_| rng.random_bool(0.9).then(|| ["a", "b", "c"][rng.random_range(0..3)]));
    let p: StringArray = p.collect();
    let n: Int32Array = s.iter().map(|s| s.map(|s| s as i32)).collect();
    let id = Int64Array::from_iter_values(first..first + LINKS as i64);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(id) as ArrayRef, true),
        ("s", Arc::new(Int64Array::from(s)) as ArrayRef, true),
        ("p", Arc::new(p) as ArrayRef, true),
        ("o", Arc::new(Int64Array::from(o)) as ArrayRef, true),
        ("n", Arc::new(n) as ArrayRef, true),
    ])
    .unwrap()
}

fn file(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("part-{number}.parquet"))
}

/// A random graph in three files.
fn graph(seed: u64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..3 {
        write(&file(folder.path(), number), &links(seed * 100 + number as u64, (number * LINKS) as i64));
    }
    folder
}

async fn run(session: &LakemarkSession, sql: &str) {
    session.sql(sql).await.unwrap().collect().await.unwrap();
}

fn index_joins(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let own = (plan.name() == "IndexJoinExec").then(|| Arc::clone(plan));
    own.into_iter().chain(plan.children().into_iter().flat_map(index_joins)).collect()
}

/// A number that the index joins of a plan count.
fn counted(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let counts = index_joins(plan);
    counts.iter().filter_map(|join| join.metrics()?.sum_by_name(name)).map(|count| count.as_usize()).sum()
}

/// Walks of all kinds from where the links of some nodes lead.
fn walks(start: i64) -> Vec<String> {
    let begin = format!("FROM t WHERE s BETWEEN {start} AND {}", start + 4);
    let walk = |step: &str| format!("WITH RECURSIVE r(node) AS (SELECT o {begin} UNION {step}) SELECT node FROM r");
    let deep = |step: &str| {
        format!(
            "WITH RECURSIVE r(node, d) AS (SELECT o, CAST(0 AS BIGINT) {begin} UNION ALL {step}) \
             SELECT node, d, count(*) FROM r GROUP BY node, d"
        )
    };
    vec![
        walk("SELECT o FROM t JOIN r ON s = node"),
        walk("SELECT o FROM r JOIN t ON s = node WHERE p = 'a'"),
        walk("SELECT o FROM r JOIN t ON s = node AND p <> 'b' AND o > node"),
        // Against the links, and by a column of another type.
        walk("SELECT s FROM r JOIN t ON o = node"),
        walk("SELECT o FROM r JOIN t ON n = node WHERE abs(o) % 3 > 0"),
        walk("SELECT a.o FROM r JOIN (SELECT s + 0 AS t, s, o FROM t WHERE o IS NOT NULL) a ON a.s = r.node"),
        deep("SELECT o, d + 1 FROM r JOIN t ON s = node WHERE d < 4"),
        deep("SELECT o, d + 1 FROM r LEFT JOIN t ON s = node WHERE d < 3"),
        deep("SELECT o, d + 1 FROM t RIGHT JOIN r ON s = node WHERE d < 3"),
        deep("SELECT coalesce(o, node), d + 1 FROM r FULL JOIN t ON s = node WHERE d < 2"),
        walk("SELECT node + 7 FROM r WHERE EXISTS (SELECT 1 FROM t WHERE s = node AND o <> node) AND node < 50"),
        walk("SELECT node + 7 FROM r WHERE NOT EXISTS (SELECT 1 FROM t WHERE s = node) AND node < 50"),
        walk("SELECT o FROM r JOIN t ON s IS NOT DISTINCT FROM node"),
        walk("SELECT x.o FROM r JOIN t ON t.s = node JOIN t x ON x.s = t.o"),
    ]
}

/// Runs all walks with and without indexes, and gives the rows that indexes gave.
async fn compare(session: &LakemarkSession, start: i64, state: &str) -> usize {
    let (mut joins, mut given) = (0, 0);
    for sql in walks(start) {
        let (with, without) = both(session, &sql).await;
        assert_eq!(with, without, "{state}: {sql}");
        let Ran { plan, rows } = ran(session, &sql).await;
        assert_eq!(rows, with.len(), "{state}: {sql}");
        joins += usize::from(counted(&plan, "rounds") > 0);
        given += counted(&plan, "rows_index_only");
    }
    // By `o`, with every row of the table, and with NULL as a key there is no index to go by.
    assert!(joins >= 8, "{state}: indexes ran joins of {joins} statements");
    given
}

#[tokio::test]
async fn law_1_walks_in_random_graphs_are_those_without_indexes() {
    for seed in 0..6 {
        let folder = graph(seed);
        let session = session(folder.path()).await;
        let kinds = [COVERING, "CREATE INDEX ON t USING key (s)", "CREATE INDEX ON t USING bitmap (s)"];
        run(&session, kinds[seed as usize % 3]).await;
        run(&session, NARROW).await;
        run(&session, &format!("SET datafusion.execution.target_partitions = {}", 1 + seed % 2)).await;
        if seed >= 3 {
            // Joins whose inputs are both repartitioned.
            run(&session, "SET datafusion.optimizer.hash_join_single_partition_threshold = 0").await;
            run(&session, "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0").await;
        }
        let given = compare(&session, seed as i64 * 5, &format!("seed {seed}")).await;
        assert!(given > 0 || seed % 3 > 0, "seed {seed}: no rows came from the index");
    }
}

#[tokio::test]
async fn law_1_walks_by_an_index_of_links_are_those_without_it() {
    for seed in 30..32 {
        let folder = graph(seed);
        let session = session(folder.path()).await;
        run(&session, LINKED).await;
        run(&session, &format!("SET datafusion.execution.target_partitions = {}", 1 + seed % 2)).await;
        assert!(compare(&session, seed as i64, &format!("seed {seed}")).await > 0);
    }
    // Links have no predicates here, and the rows have other columns.
    let folder = graph(33);
    let session = session(folder.path()).await;
    run(&session, "CREATE INDEX ON t USING links (s, o)").await;
    assert!(compare(&session, 8, "without predicates").await > 0);
}

#[tokio::test]
async fn law_1_files_that_are_new_or_changed_are_read_in_each_round() {
    for index in [COVERING, LINKED] {
        let folder = graph(11);
        let session = session(folder.path()).await;
        run(&session, index).await;
        write(&file(folder.path(), 8), &links(800, 800));
        assert!(compare(&session, 3, "a new file").await > 0, "{index}");
        write(&file(folder.path(), 1), &links(900, 900));
        assert!(compare(&session, 3, "a changed file").await > 0, "{index}");
        std::fs::remove_file(file(folder.path(), 0)).unwrap();
        assert!(compare(&session, 3, "a file that is gone").await > 0, "{index}");
    }
}

#[tokio::test]
async fn law_3_pending_changes_are_links_in_each_round() {
    pending_changes_are_links(COVERING).await;
}

#[tokio::test]
async fn law_3_pending_changes_are_links_beside_those_of_an_index() {
    pending_changes_are_links(LINKED).await;
}

async fn pending_changes_are_links(index: &str) {
    let folder = graph(12);
    let session = session(folder.path()).await;
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    run(&session, index).await;
    run(&session, "DELETE FROM t WHERE id IN (1, 5, 9, 100, 101, 102, 200)").await;
    run(&session, "UPDATE t SET o = 7 WHERE id IN (2, 3, 4, 110, 111, 210, 211)").await;
    run(&session, "INSERT INTO t VALUES (5000, 7, 'a', 8, 7), (5001, 8, 'b', 7, 8), (5002, 8, 'a', NULL, 8)").await;
    for state in ["buffered", "in a run", "changed once more"] {
        assert!(compare(&session, 7, state).await > 0);
        match state {
            "buffered" => table.flush().await.unwrap(),
            _ => run(&session, "UPDATE t SET s = 7 WHERE id IN (5001, 20, 21)").await,
        }
    }
}

/// Links from 0 to 70,000 nodes and from each of these to one more, in a file with large row groups.
fn hub(folder: &Path) {
    let near: Vec<i64> = std::iter::repeat_n(0, 70_000).chain(1..=70_000).collect();
    let far = Int64Array::from_iter_values((1..=70_000).chain(100_001..=170_000));
    let (s, o): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from(near)), Arc::new(far));
    let batch = RecordBatch::try_from_iter([("s", s), ("o", o)]).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(file(folder, 0)).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn more_rows_than_are_held_are_joined_as_it_was_planned() {
    let folder = tempfile::tempdir().unwrap();
    hub(folder.path());
    let session = session(folder.path()).await;
    run(&session, "CREATE INDEX ON t USING key (s) INCLUDE (o)").await;
    let sql = "WITH RECURSIVE r(node, d) AS (SELECT CAST(0 AS BIGINT), CAST(0 AS BIGINT) UNION ALL \
               SELECT o, d + 1 FROM r JOIN t ON s = node WHERE d < 2) SELECT d, count(*), sum(node) FROM r GROUP BY d ORDER BY d";
    let expected = ["0|1|0", "1|70000|2450035000", "2|70000|9450035000"];
    assert_eq!(rows(&session, sql).await, expected);
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
    let Ran { plan, .. } = ran(&session, sql).await;
    // A round with one key, one with 70,000, and one with none.
    assert_eq!(counted(&plan, "rounds"), 3, "{}", displayable(plan.as_ref()).indent(false));
    assert!((1..=2).contains(&counted(&plan, "rounds_scanned")), "half of the rows may be read or searched");
    // Few rows are found without a scan.
    let few = "WITH RECURSIVE r(node) AS (SELECT CAST(40017 AS BIGINT) UNION SELECT o FROM r JOIN t ON s = node) \
               SELECT node FROM r ORDER BY node";
    let Ran { plan, rows: found } = ran(&session, few).await;
    let counts = ["rounds", "rounds_scanned", "keys", "rows_index_only"].map(|name| counted(&plan, name));
    assert_eq!((counts, found), ([2, 0, 2, 1], 2));
    // A leaf for each key, the directory, and the edges of keys before they are searched.
    let first = counted(&plan, "index_reads");
    assert!((1..=6).contains(&first), "{first} reads");
    // Leaves that were read, and rows that were found, are remembered.
    let again = counted(&ran(&session, few).await.plan, "index_reads");
    assert!(again < first, "{again} reads, and {first} before");
    assert_eq!(rows(&session, few).await, ["40017", "140017"]);
}

#[tokio::test]
async fn a_table_that_a_join_would_build_of_is_searched_for_the_rows_of_the_other_side() {
    let folder = tempfile::tempdir().unwrap();
    hub(folder.path());
    let session = session(folder.path()).await;
    run(&session, "CREATE INDEX ON t USING key (s) INCLUDE (o)").await;
    // Nobody knows how many rows a list has that is taken apart.
    let lists = "SELECT unnest(make_array(5, 7, 5, 900000, NULL)) AS node";
    for (join, expected) in [
        ("SELECT node, o FROM t JOIN ({}) x ON s = node ORDER BY node, o", vec!["5|100005", "5|100005", "7|100007"]),
        (
            "SELECT node, o FROM t RIGHT JOIN ({}) x ON s = node ORDER BY node, o",
            vec!["5|100005", "5|100005", "7|100007", "900000|NULL", "NULL|NULL"],
        ),
    ] {
        let sql = join.replace("{}", lists);
        assert_eq!(rows(&session, &sql).await, expected, "{sql}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{sql}");
        let Ran { plan, .. } = ran(&session, &sql).await;
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert_eq!((counted(&plan, "keys"), counted(&plan, "rows_index_only")), (3, 2), "{text}");
        assert!(text.contains("IndexJoinExec: table=left, keys=[s@0]"), "{text}");
    }
    // Many rows: the join as it was planned.
    let sql = "SELECT count(*), sum(o) FROM t JOIN (SELECT unnest(range(1, 70001)) AS node) x ON s = node";
    assert_eq!(rows(&session, sql).await, ["70000|9450035000"]);
    let Ran { plan, .. } = ran(&session, sql).await;
    assert_eq!(counted(&plan, "rounds_scanned"), counted(&plan, "rounds"));
}

#[tokio::test]
async fn a_join_that_is_executed_again_gives_its_rows_again() {
    let folder = tempfile::tempdir().unwrap();
    hub(folder.path());
    let session = session(folder.path()).await;
    run(&session, "CREATE INDEX ON t USING key (s) INCLUDE (o)").await;
    // A repartition could be executed once.
    run(&session, "SET datafusion.execution.target_partitions = 1").await;
    let sql = "SELECT node, o FROM t JOIN (SELECT unnest(make_array(5, 7, 5, 900000, NULL)) AS node) x ON s = node ORDER BY o";
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    assert_eq!(index_joins(&plan).len(), 1, "{}", displayable(plan.as_ref()).indent(false));
    for _ in 0..3 {
        let batches = collect(Arc::clone(&plan), session.context().task_ctx()).await.unwrap();
        let found: Vec<String> = batches.iter().flat_map(text).collect();
        assert_eq!(found, ["5|100005", "5|100005", "7|100007"]);
    }
}

#[tokio::test]
async fn a_limit_ends_a_walk_and_settings_leave_joins_alone() {
    let folder = graph(21);
    let session = session(folder.path()).await;
    run(&session, COVERING).await;
    let walk = |start: i64| walks(start).remove(0);
    let all = rows(&session, &walk(3)).await.len();
    let limited = format!("SELECT * FROM ({}) LIMIT 2", walk(3));
    assert_eq!(ran(&session, &limited).await.rows, all.min(2));
    for setting in ["lakemark.use_join_keys", "lakemark.use_index"] {
        run(&session, &format!("SET {setting} = false")).await;
        let Ran { plan, rows } = ran(&session, &walk(3)).await;
        assert_eq!((index_joins(&plan).len(), rows), (0, all), "{setting}");
        run(&session, &format!("SET {setting} = true")).await;
    }
    let explained = rows(&session, &format!("EXPLAIN ANALYZE {}", walk(3))).await.join("\n");
    assert!(
        explained.contains("IndexJoinExec: table=right, keys=[s@0]") || explained.contains("table=left"),
        "{explained}"
    );
    assert!(explained.contains("rounds=") && explained.contains("rows_index_only="), "{explained}");
}

#[tokio::test]
async fn an_index_of_links_gives_rows_of_few_nodes_and_leaves_many_to_the_data() {
    let folder = tempfile::tempdir().unwrap();
    hub(folder.path());
    let session = session(folder.path()).await;
    run(&session, "CREATE INDEX ON t USING links (s, o)").await;
    let few = "WITH RECURSIVE r(node) AS (SELECT CAST(40017 AS BIGINT) UNION SELECT o FROM r JOIN t ON s = node) \
               SELECT node FROM r ORDER BY node";
    let Ran { plan, rows: found } = ran(&session, few).await;
    let counts = ["rounds", "rounds_scanned", "keys", "rows_index_only"].map(|name| counted(&plan, name));
    assert_eq!((counts, found), ([2, 0, 2, 1], 2), "{}", displayable(plan.as_ref()).indent(false));
    let first = counted(&plan, "index_reads");
    assert!((1..=2).contains(&first), "{first} reads");
    assert_eq!(counted(&ran(&session, few).await.plan, "index_reads"), 0, "leaves are remembered");
    assert_eq!(rows(&session, few).await, ["40017", "140017"]);
    // Against the links, and from a node that half of the rows begin in.
    for (sql, scanned) in [
        (
            "WITH RECURSIVE r(node) AS (SELECT CAST(140017 AS BIGINT) UNION SELECT s FROM r JOIN t ON o = node) SELECT node FROM r",
            0,
        ),
        (
            "WITH RECURSIVE r(node, d) AS (SELECT CAST(0 AS BIGINT), CAST(0 AS BIGINT) UNION ALL \
             SELECT o, d + 1 FROM r JOIN t ON s = node WHERE d < 1) SELECT d, count(*), sum(node) FROM r GROUP BY d",
            1,
        ),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!((with.len(), &with), (if scanned == 0 { 3 } else { 2 }, &without), "{sql}");
        let Ran { plan, .. } = ran(&session, sql).await;
        assert_eq!(counted(&plan, "rounds_scanned"), scanned, "{sql}");
    }
    // A join that hands its keys on while it runs.
    let sql = "SELECT node, o FROM (VALUES (5), (7), (5), (900000)) x(node) JOIN t ON s = node";
    let (with, without) = both(&session, sql).await;
    assert_eq!((with.len(), &with), (3, &without));
    let Ran { plan, .. } = ran(&session, sql).await;
    assert_eq!((metric(&plan, "rows_index_only"), metric(&plan, "bytes_scanned")), (2, 0));
}

#[tokio::test]
async fn law_1_a_damaged_index_of_links_leaves_joins_to_the_data() {
    let folder = graph(34);
    let session = session(folder.path()).await;
    run(&session, LINKED).await;
    for entry in std::fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // A leaf, which nobody has read yet.
        bytes[70] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert_eq!(compare(&session, 3, "a damaged leaf").await, 0);
}

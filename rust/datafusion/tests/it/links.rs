//! Table functions that walk links, against recursive queries over the same rows.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use lakemark_datafusion::{ErrorKind, LakemarkSession};
use tempfile::TempDir;

use crate::fixture::{Opened, rows, session, write};

/// Two files of links: a circle of ten nodes, and ways that leave it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let circle = (0..10).map(|node| (Some(node), Some("next"), Some((node + 1) % 10)));
    let out = (0..10).map(|node| (Some(node), Some("out"), Some(100 + node / 2)));
    let odd = [(None, Some("next"), Some(1)), (Some(3), None, Some(200)), (Some(3), Some("next"), None)];
    let all: Vec<_> = circle.chain(out).chain(odd).collect();
    for (file, links) in all.chunks(12).enumerate() {
        write(&folder.path().join(format!("part-{file}.parquet")), &batch(links));
    }
    folder
}

fn batch(links: &[(Option<i64>, Option<&str>, Option<i64>)]) -> RecordBatch {
    let s: ArrayRef = Arc::new(links.iter().map(|link| link.0).collect::<Int64Array>());
    let p: ArrayRef = Arc::new(links.iter().map(|link| link.1).collect::<StringArray>());
    let o: ArrayRef = Arc::new(links.iter().map(|link| link.2).collect::<Int64Array>());
    RecordBatch::try_from_iter_with_nullable([("s", s, true), ("p", p, true), ("o", o, true)]).unwrap()
}

async fn indexed(path: &Path) -> LakemarkSession {
    let session = session(path).await;
    session.sql("CREATE INDEX ON t USING links (s, p, o)").await.unwrap().collect().await.unwrap();
    session
}

async fn opened() -> Opened {
    let folder = folder();
    let session = indexed(folder.path()).await;
    Opened { folder, session }
}

/// What is reached from a node by the engine's own recursion.
fn recursive(start: i64, condition: &str) -> String {
    format!(
        "WITH RECURSIVE reached(node) AS (SELECT o FROM t WHERE s = {start} AND o IS NOT NULL AND {condition} UNION \
         SELECT o FROM t JOIN reached ON s = node WHERE o IS NOT NULL AND {condition}) SELECT DISTINCT node FROM reached ORDER BY node"
    )
}

#[tokio::test]
async fn what_is_reached_is_what_recursion_finds() {
    let Opened { folder: _folder, session } = opened().await;
    for (start, via, condition) in [(0, "NULL", "true"), (4, "'next'", "p = 'next'"), (7, "'out'", "p = 'out'")] {
        let reached = format!("SELECT node FROM reach('t', {start}, {via}) ORDER BY node");
        assert_eq!(rows(&session, &reached).await, rows(&session, &recursive(start, condition)).await, "{reached}");
    }
    assert_eq!(rows(&session, "SELECT count(*), max(depth) FROM reach('t', 0, 'next')").await, ["10|10"]);
    assert_eq!(rows(&session, "SELECT * FROM reach('t', 0, 'next', 'out', 2, 3) ORDER BY depth").await, ["2|2", "3|3"]);
    assert_eq!(rows(&session, "SELECT node FROM reach('t', 0, 'next', 'in', 0, 1) ORDER BY depth").await, ["0", "9"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM reach('t', 0, 'nothing')").await, ["0"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM (SELECT * FROM reach('t', 0) LIMIT 3)").await, ["3"]);
    assert_eq!(rows(&session, "SELECT depth FROM reach('t', 0) WHERE node = 104").await, ["9"]);
}

#[tokio::test]
async fn links_and_paths_are_tables_among_others() {
    let Opened { folder: _folder, session } = opened().await;
    let of_three = rows(&session, "SELECT predicate, node FROM links('t', 3) ORDER BY node").await;
    assert_eq!(of_three, ["next|4", "out|101", "NULL|200"]);
    assert_eq!(rows(&session, "SELECT node FROM links('t', 101, 'out', 'in') ORDER BY node").await, ["2", "3"]);
    let path = rows(&session, "SELECT node, predicate FROM path('t', 8, 101) ORDER BY step").await;
    assert_eq!(path, ["8|NULL", "9|next", "0|next", "1|next", "2|next", "101|out"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM path('t', 8, 101, NULL, 'out', 4)").await, ["0"]);
    // Joined with the table, and twice in a statement.
    let sql = "SELECT count(*) FROM reach('t', 0, 'next') r JOIN links('t', 1, 'next') l ON r.node = l.node JOIN t ON t.s = r.node";
    assert_eq!(rows(&session, sql).await, ["2"]);
    let explained = rows(&session, "EXPLAIN SELECT * FROM reach('t', 0)").await.join("\n");
    assert!(explained.contains("StreamingTableExec"), "{explained}");
}

#[tokio::test]
async fn statements_see_links_that_came_meanwhile() {
    let Opened { folder, session } = opened().await;
    assert_eq!(rows(&session, "SELECT count(*) FROM links('t', 104)").await, ["0"]);
    write(&folder.path().join("part-9.parquet"), &batch(&[(Some(104), Some("out"), Some(300))]));
    assert_eq!(rows(&session, "SELECT node FROM links('t', 104)").await, ["300"]);
}

#[tokio::test]
async fn calls_that_make_no_sense_are_errors() {
    let Opened { folder, session } = opened().await;
    for (sql, kind, text) in [
        ("SELECT * FROM reach('nowhere', 1)", ErrorKind::InvalidInput, "nowhere"),
        ("SELECT * FROM reach('t')", ErrorKind::InvalidInput, "too few"),
        ("SELECT * FROM reach('t', 'one')", ErrorKind::InvalidInput, "a node of the links"),
        ("SELECT * FROM reach('t', 1, NULL, 'up')", ErrorKind::InvalidInput, "direction"),
        ("SELECT * FROM reach('t', 1, NULL, 'out', 3, 2)", ErrorKind::InvalidInput, "at least 3"),
        ("SELECT * FROM reach('t', 1, NULL, 'out', -1)", ErrorKind::InvalidInput, "depth"),
        ("SELECT * FROM links('t', 1, NULL, 'out', 1)", ErrorKind::InvalidInput, "too many"),
        ("CREATE VIEW v AS SELECT * FROM reach('t', 1)", ErrorKind::InvalidInput, "view"),
    ] {
        let ran = async { session.sql(sql).await?.collect().await.map_err(lakemark_datafusion::from_engine) };
        let error = ran.await.unwrap_err();
        assert!(error.kind() == kind && error.message().contains(text), "{sql}: {error}");
    }
    session.sql("DROP INDEX s_p_o_links ON t").await.unwrap().collect().await.unwrap();
    let error = session.sql("SELECT * FROM reach('t', 1)").await.unwrap_err();
    assert!(error.message().contains("USING links"), "{error}");
    drop(folder);
}

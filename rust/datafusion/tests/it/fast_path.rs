//! Counts that the index knows are neither planned nor run, and lookups are hardly planned; everything else that looks like one is.

use std::collections::BTreeMap;

use datafusion::physical_plan::displayable;
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, IndexKind, IndexSpec};

use crate::fixture::{
    FILE_ROWS, Opened, Ran, batch, both, create_indexes, folder, metric, open, ran, rows, session, text, write,
};
use crate::lookup::create_key_indexes;

#[tokio::test]
async fn only_a_count_that_the_index_knows_is_left_out_of_plans() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k", "s", "Mixed Case"]).await;
    let session = session(folder.path()).await;
    session.sql("CREATE TABLE plain AS SELECT 5 AS k").await.unwrap().collect().await.unwrap();
    for (sql, known) in [
        ("SELECT count(*) AS n FROM t WHERE k = 5", true),
        ("SELECT count(*) FROM t WHERE k = '5' AND \"Mixed Case\" IN (1, 2)", true),
        ("SELECT count(1) FROM t AS x WHERE x.k BETWEEN 2 AND 4 OR NOT x.s = 'ab'", true),
        ("SELECT count(*) FROM t WHERE k IS NULL", true),
        ("SELECT count(*) FROM t WHERE k = NULL", true),
        ("SELECT count(*) FROM t WHERE 1 = 2", true),
        ("SELECT count(*) FROM t", true),
        ("SELECT count(*) FROM t WHERE id = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 AND abs(k) = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 AND random() >= 0", false),
        ("SELECT count(*) FROM t WHERE k = (SELECT max(k) FROM plain)", false),
        ("SELECT count(*) FROM t WHERE k IN (SELECT k FROM plain)", false),
        ("SELECT count(*) FROM (SELECT k AS s, s AS k FROM t) WHERE k = 'ab'", false),
        ("SELECT count(*) FROM (SELECT * FROM t LIMIT 3) WHERE k = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 HAVING count(*) > 1000", false),
        ("SELECT count(*) + 1 FROM t WHERE k = 5", false),
        ("SELECT count(*) FILTER (WHERE k = 5) FROM t", false),
        ("SELECT count(s) FROM t WHERE k = 5", false),
        ("SELECT count(NULL) FROM t WHERE k = 5", false),
        ("SELECT count(DISTINCT 1) FROM t WHERE k = 5", false),
        ("SELECT count(*) FROM t WHERE k = 5 GROUP BY s", false),
        ("SELECT count(*) FROM t, plain WHERE t.k = 5", false),
        ("SELECT count(*) FROM plain WHERE k = 5", false),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        let plan = displayable(ran(&session, sql).await.plan.as_ref()).indent(false).to_string();
        // The number is a row in memory; a planned count is computed, if only by a projection of a literal.
        assert_eq!(plan.starts_with("DataSourceExec") && plan.lines().count() == 1, known, "{sql}\n{plan}");
    }
}

#[tokio::test]
async fn a_count_is_part_of_a_longer_query() {
    let folder = folder(2);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    for sql in ["SELECT count(*) AS n FROM t WHERE k = 5", "SELECT count(*) AS n FROM t WHERE k = 5 AND id < 100"] {
        let expected: i64 = rows(&session, sql).await[0].parse().unwrap();
        let frame = session.sql(sql).await.unwrap();
        assert_eq!(frame.schema().field(0).name(), "n");
        assert_eq!(frame.clone().count().await.unwrap(), 1);
        let doubled = frame.clone().select_exprs(&["n * 2 AS m"]).unwrap().collect().await.unwrap();
        assert_eq!(text(&doubled[0]), [(expected * 2).to_string()]);
        assert_eq!(frame.limit(0, Some(0)).unwrap().count().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn rows_that_no_mark_covers_are_counted_by_a_plan() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let sql = "SELECT count(*) FROM t WHERE k = 5";
    assert_eq!(rows(&session, sql).await, ["86"]);
    write(&folder.path().join("part-1.parquet"), &batch(FILE_ROWS));
    let (with, without) = both(&session, sql).await;
    assert_eq!((with, without), (vec!["172".to_owned()], vec!["172".to_owned()]));
    let shown = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(shown.contains("LakemarkScanExec"), "{shown}");
}

/// A table of 2,000 rows with indexes of the kind `key` on `id` and `s` and a bitmap on `k`.
async fn keyed() -> Opened {
    let folder = folder(2);
    create_key_indexes(folder.path(), &["id", "s"]).await;
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    Opened { folder, session }
}

/// Whether the optimizer sees no condition of a statement.
async fn is_short(session: &LakemarkSession, sql: &str) -> bool {
    let plan = session.sql(sql).await.unwrap().logical_plan().display_indent().to_string();
    assert!(plan.contains("TableScan"), "{plan}");
    !plan.contains("Filter")
}

async fn set_use_index(session: &LakemarkSession, used: bool) {
    session.sql(&format!("SET lakemark.use_index = {used}")).await.unwrap().collect().await.unwrap();
}

#[tokio::test]
async fn only_a_lookup_is_left_out_of_the_optimizer() {
    let Opened { folder: _folder, session } = keyed().await;
    session.sql("CREATE TABLE plain AS SELECT 5 AS id").await.unwrap().collect().await.unwrap();
    for (sql, found, short) in [
        ("SELECT * FROM t WHERE id = 7", 1, true),
        ("SELECT k, id FROM t WHERE 1999 = id", 1, true),
        ("SELECT id FROM t WHERE id IN (1, 5, 3000, NULL)", 2, true),
        ("SELECT id FROM t WHERE id = '7'", 1, true),
        ("SELECT id FROM t WHERE id = 3 + 4", 1, true),
        ("SELECT id FROM t WHERE id = 7.5", 0, true),
        ("SELECT id FROM t WHERE id = NULL", 0, true),
        ("SELECT id FROM t WHERE id = -7", 0, true),
        ("SELECT id FROM t WHERE id = 7 AND id = 8", 0, true),
        ("SELECT x.id FROM t AS x WHERE x.id = 7", 1, true),
        ("SELECT \"Mixed Case\" FROM t WHERE id = 1234", 1, true),
        ("SELECT id AS number, s FROM t WHERE id = 7", 1, true),
        ("SELECT id, id + 1, 'x' AS letter FROM t WHERE id = 7", 1, true),
        ("SELECT 1 FROM t WHERE id = 7", 1, true),
        ("SELECT id FROM t WHERE s = 'ab' AND k = 3 AND abs(id) < 500", 42, true),
        ("SELECT 1 FROM t WHERE s = 'ab' LIMIT 3 OFFSET 1", 3, true),
        ("SELECT id FROM t WHERE s = 'ab' ORDER BY k DESC NULLS LAST, id LIMIT 5", 5, true),
        ("SELECT n + 1 FROM (SELECT id AS n, k FROM t WHERE id = 7) AS x", 1, true),
        ("SELECT id FROM t WHERE k = 3", 171, false),
        ("SELECT id FROM t WHERE id = k", 9, false),
        ("SELECT id FROM t WHERE id > 1990", 9, false),
        ("SELECT id FROM t WHERE id NOT IN (7)", 1999, false),
        ("SELECT id FROM t WHERE id = 7 OR k = 3", 172, false),
        ("SELECT id FROM t WHERE id = 7 AND random() >= 0", 1, false),
        ("SELECT id, random() >= 0 FROM t WHERE id = 7", 1, false),
        ("SELECT id FROM t WHERE id = (SELECT max(id) FROM plain)", 1, false),
        ("SELECT id FROM t WHERE id IN (SELECT id FROM plain)", 1, false),
        ("SELECT id, (SELECT max(id) FROM plain) FROM t WHERE id = 7", 1, false),
        ("SELECT id FROM (SELECT id, k AS s FROM t) WHERE id = 7", 1, false),
        ("SELECT id FROM (SELECT * FROM t LIMIT 2000) WHERE id = 7", 1, false),
        ("SELECT DISTINCT id FROM t WHERE id = 7", 1, false),
        ("SELECT max(k) FROM t WHERE id = 7", 1, false),
        ("SELECT t.id FROM t JOIN plain ON t.id = plain.id WHERE t.id = 5", 1, false),
        ("SELECT id FROM plain WHERE id = 5", 1, false),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!((with.len(), &with), (found, &without), "{sql}");
        assert_eq!(is_short(&session, sql).await, short, "{sql}");
    }
}

#[tokio::test]
async fn keys_of_several_columns_are_looked_up_by_the_first() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    let columns = ["Mixed Case", "id"].map(str::to_owned).to_vec();
    let spec = IndexSpec { columns, kind: Some(IndexKind::Key), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let session = session(folder.path()).await;
    for (sql, found, short) in [
        ("SELECT id FROM t WHERE \"Mixed Case\" = 3 AND id IN (307, 407)", 1, true),
        ("SELECT id FROM t WHERE \"Mixed Case\" = 3", 100, true),
        ("SELECT id FROM t WHERE id = 307", 1, false),
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!((with.len(), &with), (found, &without), "{sql}");
        assert_eq!(is_short(&session, sql).await, short, "{sql}");
    }
}

#[tokio::test]
async fn a_lookup_has_the_columns_that_the_ordinary_plan_has() {
    let Opened { folder: _folder, session } = keyed().await;
    for sql in [
        "SELECT * FROM t WHERE id = 7",
        "SELECT s, \"Mixed Case\", f FROM t AS x WHERE id = 7",
        "SELECT id AS n, k * 2, s FROM t WHERE id = 7",
        "SELECT id FROM t WHERE id IN (7, 8) ORDER BY k LIMIT 1",
    ] {
        let short = session.sql(sql).await.unwrap();
        set_use_index(&session, false).await;
        let ordinary = session.sql(sql).await.unwrap();
        set_use_index(&session, true).await;
        assert_eq!(short.schema(), ordinary.schema(), "{sql}");
        let schemas = [short, ordinary].map(|frame| async move {
            let plan = frame.clone().create_physical_plan().await.unwrap();
            (plan.schema(), frame.collect().await.unwrap()[0].schema())
        });
        let [short, ordinary] = schemas;
        assert_eq!(short.await, ordinary.await, "{sql}");
    }
}

#[tokio::test]
async fn a_lookup_is_read_and_counted_as_in_the_ordinary_plan() {
    let Opened { folder, session } = keyed().await;
    let sql = "SELECT id, s FROM t WHERE id = 1234";
    let Ran { plan, rows: found } = ran(&session, sql).await;
    assert_eq!(found, 1);
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    assert!(shown.contains("predicate=id = 1234") && !shown.contains("FilterExec"), "{shown}");
    assert_eq!(["rows_exact", "files_pruned_index"].map(|name| metric(&plan, name)), [1, 1]);
    let shown = rows(&session, &format!("EXPLAIN {sql}")).await.join("\n");
    assert!(shown.contains("full_filters=[t.id = Int64(1234)]") && shown.contains("LakemarkScanExec"), "{shown}");
    let shown = rows(&session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    assert!(shown.contains("rows_exact=1") && shown.contains("files_pruned_index=1"), "{shown}");
    // A file that no index knows is scanned.
    write(&folder.path().join("part-9.parquet"), &batch(1_000));
    let (with, without) = both(&session, sql).await;
    assert_eq!((with.len(), &with), (2, &without));
    let plan = ran(&session, sql).await.plan;
    assert_eq!(["rows_exact", "files_scanned"].map(|name| metric(&plan, name)), [1, 1]);
}

#[tokio::test]
async fn what_is_wrong_with_a_lookup_is_said_as_of_the_ordinary_plan() {
    let Opened { folder: _folder, session } = keyed().await;
    for (sql, text) in [
        ("SELECT id FROM t WHERE id = 'seven'", "seven"),
        ("SELECT id FROM t WHERE id = 1 / 0", "Divide by zero"),
        ("SELECT id FROM t WHERE id = 7 AND 1 / (id - 7) = 1", "Divide by zero"),
        ("SELECT id / 0 FROM t WHERE id = 7", "Divide by zero"),
        ("SELECT id FROM t WHERE id = true", "Boolean"),
    ] {
        let mut errors = Vec::new();
        for use_index in [true, false] {
            set_use_index(&session, use_index).await;
            errors.push(match session.sql(sql).await {
                Ok(frame) => frame.collect().await.unwrap_err().to_string(),
                Err(error) => error.to_string(),
            });
        }
        set_use_index(&session, true).await;
        assert_eq!(errors[0], errors[1], "{sql}");
        assert!(errors[0].contains(text), "{sql}: {}", errors[0]);
    }
}

#[tokio::test]
async fn a_lookup_is_part_of_a_longer_query() {
    let Opened { folder: _folder, session } = keyed().await;
    let frame = session.sql("SELECT id, k FROM t WHERE id IN (4, 5, 6)").await.unwrap();
    assert_eq!(frame.clone().count().await.unwrap(), 3);
    assert_eq!(frame.clone().limit(1, Some(1)).unwrap().count().await.unwrap(), 1);
    let summed = frame
        .clone()
        .select_exprs(&["id + k AS n"])
        .unwrap()
        .filter(datafusion::prelude::col("n").gt(datafusion::prelude::lit(9)));
    let mut found: Vec<String> = summed.unwrap().collect().await.unwrap().iter().flat_map(text).collect();
    found.sort();
    assert_eq!(found, ["10", "12"]);
    let joined = frame.clone().join(
        session.sql("SELECT id AS other FROM t WHERE id = 5").await.unwrap(),
        datafusion::common::JoinType::Inner,
        &["id"],
        &["other"],
        None,
    );
    assert_eq!(joined.unwrap().collect().await.unwrap().iter().flat_map(text).collect::<Vec<_>>(), ["5|5|5"]);
}

#[tokio::test]
async fn a_prepared_lookup_sees_what_came_after_it() {
    let Opened { folder, session } = keyed().await;
    let ask = async |sql: &str| {
        let mut found = rows(&session, sql).await;
        found.sort();
        found
    };
    session.sql("PREPARE p AS SELECT id, k FROM t WHERE id = $1").await.unwrap().collect().await.unwrap();
    assert_eq!(ask("EXECUTE p(7)").await, ["7|7"]);
    assert_eq!(ask("EXECUTE p('8')").await, ["8|8"]);
    assert!(is_short(&session, "EXECUTE p(7)").await);
    session.sql("PREPARE q AS SELECT s AS word FROM t AS x WHERE k = 7 AND id = $1 LIMIT 2").await.unwrap();
    assert_eq!(ask("EXECUTE q(7)").await, ["größe 7"]);
    assert!(ask("EXECUTE q(8)").await.is_empty());
    assert!(is_short(&session, "EXECUTE q(7)").await);
    session.sql("PREPARE l AS SELECT count(*) FROM t WHERE k = $1 AND id IN ($2, 17)").await.unwrap();
    assert_eq!(ask("EXECUTE l(7, 7)").await, ["1"]);
    write(&folder.path().join("part-9.parquet"), &batch(0));
    assert_eq!(ask("EXECUTE p(7)").await, ["7|7", "7|7"]);
    assert_eq!(ask("EXECUTE l(7, 7)").await, ["2"]);
    set_use_index(&session, false).await;
    assert_eq!(ask("EXECUTE p(7)").await, ["7|7", "7|7"]);
    assert!(!is_short(&session, "EXECUTE p(7)").await);
    // Other columns are another question.
    let other = batch(0).project(&[0, 1]).unwrap();
    for part in [0, 1, 9] {
        write(&folder.path().join(format!("part-{part}.parquet")), &other);
    }
    let error = session.sql("EXECUTE p(7)").await.unwrap_err().to_string();
    assert!(error.contains("prepare the statement again"), "{error}");
    session.sql("DEALLOCATE p").await.unwrap();
    session.sql("DROP TABLE t").await.unwrap();
    let sql = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
    session.sql(&sql).await.unwrap();
    session.sql("PREPARE p AS SELECT * FROM t WHERE id = $1").await.unwrap();
    assert_eq!(ask("EXECUTE p(7)").await, ["7|7", "7|7", "7|7"]);
}

#[tokio::test]
async fn what_is_known_when_a_lookup_is_prepared_is_made_plain_when_it_is_executed() {
    let Opened { folder: _folder, session } = keyed().await;
    session.sql("PREPARE p AS SELECT id FROM t WHERE id = $1 AND to_timestamp(k) < now()").await.unwrap();
    assert_eq!(rows(&session, "EXECUTE p(7)").await, ["7"]);
    session.sql("PREPARE q AS SELECT id FROM t WHERE id = '7' AND k = $1").await.unwrap();
    assert!(is_short(&session, "EXECUTE q(7)").await);
    assert_eq!(rows(&session, "EXECUTE q(7)").await, ["7"]);
    assert!(rows(&session, "EXECUTE q(8)").await.is_empty());
    set_use_index(&session, false).await;
    assert_eq!(rows(&session, "EXECUTE p(7)").await, ["7"]);
}

#[tokio::test]
async fn changes_are_not_prepared() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(folder.path()).await;
    for change in [
        "UPDATE t SET s = $2 WHERE id = $1",
        "DELETE FROM t WHERE id = $1",
        "INSERT INTO t (id) VALUES ($1)",
        "MERGE INTO t USING (SELECT 7 AS id) AS n ON t.id = n.id WHEN MATCHED THEN UPDATE SET s = 'x'",
    ] {
        let error = session.sql(&format!("PREPARE change AS {change}")).await.unwrap_err().to_string();
        assert!(error.contains("cannot be prepared"), "{change}: {error}");
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE s = 'x'").await, ["0"]);
}

#[tokio::test]
async fn a_view_sees_what_came_after_it() {
    let Opened { folder, session } = keyed().await;
    session.sql("CREATE VIEW v AS SELECT id, k FROM t WHERE id = 7").await.unwrap();
    session.sql("CREATE VIEW w AS SELECT v.id FROM v JOIN t ON v.id = t.id").await.unwrap();
    assert_eq!(rows(&session, "SELECT * FROM v").await, ["7|7"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM w").await, ["1"]);
    write(&folder.path().join("part-9.parquet"), &batch(0));
    assert_eq!(rows(&session, "SELECT * FROM v").await, ["7|7", "7|7"]);
    assert_eq!(rows(&session, "SELECT count(*) FROM w").await, ["4"]);
    let other = batch(0).project(&[0, 1]).unwrap();
    for part in [0, 1, 9] {
        write(&folder.path().join(format!("part-{part}.parquet")), &other);
    }
    let error = session.sql("SELECT * FROM v").await.unwrap_err().to_string();
    assert!(error.contains("create the view again"), "{error}");
}

#[tokio::test]
async fn a_lookup_sees_buffered_changes() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let session = session(folder.path()).await;
    assert_eq!(rows(&session, "UPDATE t SET s = 'new' WHERE id = 7").await, ["1"]);
    assert_eq!(rows(&session, "DELETE FROM t WHERE id = 8").await, ["1"]);
    for (sql, expected) in [
        ("SELECT id, s FROM t WHERE id IN (7, 8)", vec!["7|new"]),
        ("SELECT s FROM t WHERE id = 7 AND s = 'ab'", vec![]),
        ("SELECT id FROM t WHERE id = 8", vec![]),
        ("SELECT id FROM t WHERE id IN (6, 7, 8) LIMIT 5", vec!["6", "7"]),
    ] {
        assert!(is_short(&session, sql).await, "{sql}");
        let (with, without) = both(&session, sql).await;
        assert_eq!((&with, &without), (&expected.iter().map(ToString::to_string).collect(), &with), "{sql}");
    }
}

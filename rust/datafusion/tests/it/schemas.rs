//! Tables in all schemas and catalogs of a session: each statement sees their newest state.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider};
use lakemark_datafusion::{LakemarkSession, LakemarkTable};
use lakemark_table::{BuildOptions, Table};
use tempfile::TempDir;

use crate::fixture::{folder, open, rows};

/// A folder with the key `id`, and the version of the store that nothing is changed in.
async fn keyed() -> (TempDir, Arc<Table>, u64) {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let version = table.history(Some(1)).await.unwrap()[0].version;
    (folder, table, version)
}

async fn run(session: &LakemarkSession, sql: &str) -> Vec<String> {
    rows(session, sql).await
}

/// Changes the table under a name again and again, in one session.
async fn change(session: &LakemarkSession, name: &str, version: u64) {
    for (sql, count, check, expected) in [
        ("UPDATE t SET k = 90 WHERE id = 1", "1", "SELECT k FROM t WHERE id = 1", "90"),
        ("UPDATE t SET k = k + 1 WHERE id = 1", "1", "SELECT k FROM t WHERE id = 1", "91"),
        ("UPDATE t AS z SET k = z.k + 1 WHERE z.id = 1", "1", "SELECT k FROM t WHERE id = 1", "92"),
        ("INSERT INTO t (id, k) VALUES (9000, 1)", "1", "SELECT count(*) FROM t", "1001"),
        (
            "MERGE INTO t USING (VALUES (1, 5), (9000, 6)) AS n(id, k) ON t.id = n.id WHEN MATCHED THEN UPDATE SET k = n.k",
            "2",
            "SELECT sum(k) FROM t WHERE id IN (1, 9000)",
            "11",
        ),
        ("DELETE FROM t WHERE id = 1", "1", "SELECT count(*) FROM t", "1000"),
        ("DELETE FROM t AS z WHERE z.id = 9000", "1", "SELECT count(*) FROM t a JOIN t b ON a.id = b.id", "999"),
    ] {
        let of = |sql: &str| {
            let sql = sql.replace("UPDATE t ", &format!("UPDATE {name} ")).replace("INTO t ", &format!("INTO {name} "));
            sql.replace("FROM t", &format!("FROM {name}")).replace("JOIN t", &format!("JOIN {name}"))
        };
        assert_eq!(run(session, &of(sql)).await, [count], "{}", of(sql));
        assert_eq!(run(session, &of(check)).await, [expected], "{}, after {}", of(check), of(sql));
    }
    // What it was, beside what it is.
    session.table(&name.into()).await.unwrap().flush().await.unwrap();
    let was = format!("SELECT count(*) FROM {name} VERSION AS OF {version}");
    assert_eq!(run(session, &was).await, ["1000"], "{was}");
    let both =
        format!("SELECT was.id FROM {name} VERSION AS OF {version} AS was LEFT ANTI JOIN {name} ON was.id = t.id");
    assert_eq!(run(session, &both).await, ["1"], "{both}");
    let error = session.sql(&format!("DELETE FROM {name} VERSION AS OF {version}")).await.unwrap_err();
    assert!(error.to_string().contains("can only be read"), "{error}");
}

#[tokio::test]
async fn a_table_of_any_schema_takes_one_change_after_the_other() {
    for name in ["t", "public.t", "s.t", "datafusion.s.t", "other.s.t"] {
        let (folder, _, version) = keyed().await;
        let session = LakemarkSession::new();
        run(&session, "CREATE SCHEMA s").await;
        run(&session, "CREATE DATABASE other").await;
        run(&session, "CREATE SCHEMA other.s").await;
        let create = format!("CREATE EXTERNAL TABLE {name} STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
        run(&session, &create).await;
        change(&session, name, version).await;
    }
}

#[tokio::test]
async fn a_table_of_a_catalog_that_was_registered_takes_one_change_after_the_other() {
    let (_folder, table, version) = keyed().await;
    let session = LakemarkSession::new();
    let schema = Arc::new(MemorySchemaProvider::new());
    let provider = LakemarkTable::new(table).await.unwrap();
    schema.register_table("t".to_owned(), Arc::new(provider)).unwrap();
    let catalog = MemoryCatalogProvider::new();
    catalog.register_schema("s", schema).unwrap();
    session.context().register_catalog("mine", Arc::new(catalog));
    change(&session, "mine.s.t", version).await;
    run(&session, "CREATE VIEW mine.s.few AS SELECT id FROM mine.s.t WHERE id < 10").await;
    assert_eq!(run(&session, "DELETE FROM mine.s.t WHERE id = 5").await, ["1"]);
    // Ten rows without those of the ids 1 and 5.
    assert_eq!(run(&session, "SELECT count(*) FROM mine.s.few").await, ["8"]);
    let names = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'mine' AND table_schema = 's' ORDER BY 2";
    assert_eq!(run(&session, names).await, ["s|few", "s|t"]);
    run(&session, "DROP VIEW mine.s.few").await;
    run(&session, "DROP TABLE mine.s.t").await;
    assert!(session.sql("SELECT * FROM mine.s.t").await.is_err());
}

#[tokio::test]
async fn the_default_schema_may_be_another_one() {
    let (folder, _, version) = keyed().await;
    let session = LakemarkSession::new();
    run(&session, "CREATE SCHEMA s").await;
    run(&session, "SET datafusion.catalog.default_schema = 's'").await;
    let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
    run(&session, &create).await;
    change(&session, "t", version).await;
}

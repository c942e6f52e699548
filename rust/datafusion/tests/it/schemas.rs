//! Tables in all schemas and catalogs of a session: each statement sees their newest state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use async_trait::async_trait;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::common::Result;
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{ErrorKind, LakemarkSession, LakemarkTable};
use lakemark_table::{BuildOptions, Change, Operation, Table, WriteOptions};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, batch, folder, open, rows, session, write};

/// A table with the key `id`.
struct Keyed {
    folder: TempDir,
    table: Arc<Table>,
    /// The version of the store that nothing is changed in.
    version: u64,
}

async fn keyed() -> Keyed {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let version = table.history(Some(1)).await.unwrap()[0].version;
    Keyed { folder, table, version }
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
        let Keyed { folder, version, .. } = keyed().await;
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
    let Keyed { folder: _folder, table, version } = keyed().await;
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
    let Keyed { folder, version, .. } = keyed().await;
    let session = LakemarkSession::new();
    run(&session, "CREATE SCHEMA s").await;
    run(&session, "SET datafusion.catalog.default_schema = 's'").await;
    let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.path().display());
    run(&session, &create).await;
    change(&session, "t", version).await;
}

/// The columns of a table or view, as the session lists them.
async fn columns(session: &LakemarkSession, table: &str) -> Vec<String> {
    let sql = format!("SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' ORDER BY 1");
    let shown = run(session, &format!("SHOW COLUMNS FROM {table}")).await;
    let listed = run(session, &sql).await;
    assert_eq!(shown.len(), listed.len(), "{table}");
    listed
}

/// The first columns of a file's rows.
fn narrow(columns: usize) -> RecordBatch {
    batch(0).project(&(0..columns).collect::<Vec<_>>()).unwrap()
}

#[tokio::test]
async fn a_view_of_columns_that_changed_is_listed_dropped_and_made_again() {
    let folder = folder(1);
    let session = session(folder.path()).await;
    let view = "VIEW v AS SELECT id, s FROM t";
    run(&session, &format!("CREATE {view}")).await;
    let file = folder.path().join("part-0.parquet");
    write(&file, &narrow(3));
    let copy = format!("COPY (SELECT * FROM v) TO '{}'", folder.path().join("copy.csv").display());
    for sql in [
        "SELECT * FROM v",
        "SELECT k FROM v",
        "SELECT s + 1 FROM v",
        "SELECT * FROM t WHERE id IN (SELECT id FROM v)",
        "WITH w AS (SELECT nothing FROM v) SELECT * FROM w",
        "EXPLAIN SELECT * FROM v",
        "EXPLAIN ANALYZE SELECT k FROM v",
        "PREPARE p AS SELECT * FROM v WHERE id = $1",
        "CREATE VIEW w AS SELECT k FROM v",
        "CREATE TABLE w AS SELECT * FROM v",
        copy.as_str(),
    ] {
        let error = session.sql(sql).await.expect_err(sql);
        assert!(error.to_string().contains("create the view again"), "{sql}: {error}");
        assert_eq!(error.kind(), ErrorKind::SchemaMismatch, "{sql}: {error}");
    }
    let error = session.context().sql("SELECT id FROM v").await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("create the view again"), "{error}");
    assert_eq!(columns(&session, "t").await, ["f", "id", "k"]);
    assert_eq!(columns(&session, "v").await, ["id", "s"]);
    let error = session.sql(&format!("CREATE {view}")).await.unwrap_err().to_string();
    assert!(error.contains("No field named s"), "{error}");
    let error = session.sql("CREATE VIEW v AS SELECT id FROM t").await.unwrap_err().to_string();
    assert!(error.contains("'v' already exists"), "{error}");
    run(&session, "CREATE OR REPLACE VIEW v AS SELECT id, k FROM t WHERE id < 3").await;
    assert_eq!(run(&session, "SELECT count(*) FROM v").await, ["3"]);
    write(&file, &narrow(2));
    assert!(session.sql("SELECT * FROM v").await.is_err());
    run(&session, "DROP VIEW v").await;
    let error = session.sql("SELECT * FROM v").await.unwrap_err().to_string();
    assert!(error.contains("not found"), "{error}");
    assert_eq!(run(&session, "SELECT count(*) FROM t").await, ["1000"]);
}

#[tokio::test]
async fn a_table_whose_folder_is_gone_is_listed_dropped_and_made_again() {
    let (folder, gone) = (folder(1), TempDir::new().unwrap());
    let session = session(folder.path()).await;
    let create =
        |place: &std::path::Path| format!("EXTERNAL TABLE gone STORED AS LAKEMARK LOCATION '{}'", place.display());
    for (statement, name) in [("CREATE OR REPLACE", "one"), ("DROP", "two")] {
        let place = gone.path().join(name);
        write(&place.join("part-0.parquet"), &narrow(2));
        run(&session, &format!("CREATE {}", create(&place))).await;
        assert_eq!(run(&session, "SELECT count(*) FROM gone").await, ["1000"]);
        std::fs::remove_dir_all(&place).unwrap();
        let error = session.table(&"gone".into()).await.unwrap_err();
        assert!(error.to_string().contains(&place.display().to_string()), "{error}");
        for sql in ["SELECT * FROM gone", "SELECT nothing FROM gone", "UPDATE gone SET k = 1", "DELETE FROM gone"] {
            let same = session.sql(sql).await.expect_err(sql);
            assert_eq!((same.kind(), same.to_string()), (error.kind(), error.to_string()), "{sql}");
        }
        assert_eq!(columns(&session, "t").await.len(), 6);
        assert_eq!(columns(&session, "gone").await, ["id", "k"]);
        if statement != "DROP" {
            run(&session, &format!("{statement} {}", create(folder.path()))).await;
            assert_eq!(columns(&session, "gone").await.len(), 6);
        }
        run(&session, "DROP TABLE gone").await;
        let error = session.sql("SELECT * FROM gone").await.unwrap_err().to_string();
        assert!(error.contains("not found"), "{error}");
    }
}

#[tokio::test]
async fn folders_of_a_location_are_tables_that_pin_their_states() {
    let place = TempDir::new().unwrap();
    write(&place.path().join("one/part-0.parquet"), &batch(0));
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().catalog.location = Some(format!("file://{}", place.path().display()));
    config.options_mut().catalog.format = Some("LAKEMARK".to_owned());
    let session = LakemarkSession::with_config(config);
    session.refresh_catalogs().await.unwrap();
    assert_eq!(run(&session, "SELECT count(*) FROM \"default\".one").await, ["1000"]);
    write(&place.path().join("one/part-1.parquet"), &batch(FILE_ROWS));
    write(&place.path().join("two/part-0.parquet"), &narrow(2));
    session.refresh_catalogs().await.unwrap();
    assert_eq!(run(&session, "SELECT count(*) FROM \"default\".one").await, ["2000"]);
    assert_eq!(run(&session, "SELECT count(k) FROM \"default\".two WHERE id < 3").await, ["3"]);
    let two = open(&place.path().join("two")).await;
    two.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    for value in ["7", "8"] {
        let sql = format!("UPDATE \"default\".two SET k = {value} WHERE id = 1");
        assert_eq!(run(&session, &sql).await, ["1"], "{sql}");
        assert_eq!(run(&session, "SELECT k FROM \"default\".two WHERE id = 1").await, [value], "{sql}");
    }
}

/// A schema that another writer inserts a row into whenever a name is looked up.
#[derive(Debug)]
struct Busy {
    inner: MemorySchemaProvider,
    table: Arc<Table>,
    next: AtomicI64,
}

#[async_trait]
impl SchemaProvider for Busy {
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let id = Int64Array::from(vec![self.next.fetch_add(1, Ordering::Relaxed)]);
        let rows = RecordBatch::try_from_iter([("id", Arc::new(id) as ArrayRef)]).unwrap();
        self.table.write(vec![Change { operation: Operation::Insert, rows }], WriteOptions::default()).await.unwrap();
        self.inner.table(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

#[tokio::test]
async fn a_statement_sees_one_state_by_whatever_way_it_comes_to_a_table() {
    let Keyed { folder: _folder, table, .. } = keyed().await;
    let session = LakemarkSession::new();
    let ours = Arc::new(LakemarkTable::new(Arc::clone(&table)).await.unwrap());
    session.context().register_table("t", Arc::clone(&ours) as Arc<dyn TableProvider>).unwrap();
    session.sql("CREATE VIEW v AS SELECT * FROM t WHERE id >= 0").await.unwrap();
    session.sql("CREATE VIEW w AS SELECT id AS other FROM v").await.unwrap();
    let inner = MemorySchemaProvider::new();
    for name in ["t", "v", "w"] {
        let view = session.context().table_provider(name).await.unwrap();
        let provider = if name == "t" { Arc::clone(&ours) as Arc<dyn TableProvider> } else { view };
        inner.register_table(name.to_owned(), provider).unwrap();
    }
    let catalog = MemoryCatalogProvider::new();
    let busy = Busy { inner, table, next: AtomicI64::new(100_000) };
    catalog.register_schema("busy", Arc::new(busy)).unwrap();
    session.context().register_catalog("other", Arc::new(catalog));
    let sql = "SELECT (SELECT count(*) FROM other.busy.t) AS t, (SELECT count(*) FROM other.busy.v) AS v, \
               (SELECT count(*) FROM other.busy.w) AS w, (SELECT count(*) FROM other.busy.v WHERE id NOT IN \
               (SELECT id FROM other.busy.t)) AS lacking";
    let found = run(&session, sql).await;
    assert_eq!(found, ["1001|1001|1001|0"]);
    assert_ne!(run(&session, sql).await, found);
}

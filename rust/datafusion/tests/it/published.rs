//! Queries that began before a folder was published, and read it afterwards.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_plan::{ExecutionPlan, collect};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{
    BuildOptions, Change, MigrateOptions, Operation, Table, TableOptions, VacuumOptions, WriteOptions,
};
use tempfile::TempDir;

use crate::fixture::{FILE_ROWS, batch, folder, rows, text, write};

const FILES: usize = 3;
const STATEMENTS: [&str; 3] = [
    "SELECT * FROM t ORDER BY id",
    "SELECT count(*), sum(id) FROM t WHERE f IS NOT NULL",
    "SELECT s FROM t WHERE id = 1207",
];

/// A plan with its session.
struct Planned {
    session: LakemarkSession,
    plan: Arc<dyn ExecutionPlan>,
    /// The rows that it has to give.
    expected: Vec<String>,
}

/// A table with a key and its store in `store`.
async fn table(folder: &Path, store: &Path) -> Arc<Table> {
    let options = TableOptions { store: Some(store.display().to_string()), ..TableOptions::default() };
    let table = Table::open(folder.to_str().unwrap(), options).await.unwrap();
    table.declare_key(&["id".to_owned()], &Default::default(), BuildOptions::default()).await.unwrap();
    table
}

/// Rows of each file are replaced, and files with them take their place in the folder.
async fn change(table: &Arc<Table>) {
    for file in 0..FILES {
        let rows = batch(file * FILE_ROWS).slice(7, 20);
        table.write(vec![Change { operation: Operation::Upsert, rows }], WriteOptions::default()).await.unwrap();
    }
    table.migrate(MigrateOptions::default()).await.unwrap();
    table.publish().await.unwrap();
}

async fn session(table: &Arc<Table>, use_index: bool) -> LakemarkSession {
    let session = LakemarkSession::new();
    session.register("t", Arc::clone(table)).await.unwrap();
    session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap().collect().await.unwrap();
    session
}

/// Plans that were made of the newest state, without anything of a data file in memory.
async fn planned(table: &Arc<Table>) -> Vec<Planned> {
    let mut planned = Vec::new();
    for sql in STATEMENTS {
        for use_index in [true, false] {
            let expected = rows(&session(table, use_index).await, sql).await;
            let session = session(table, use_index).await;
            let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            planned.push(Planned { session, plan, expected });
        }
    }
    planned
}

async fn check(folder: &Path, store: &Path) {
    let table = table(folder, store).await;
    change(&table).await;
    let before = planned(&table).await;
    // The files leave the folder, and so do those in their place.
    for _ in 0..2 {
        change(&table).await;
        table.vacuum(VacuumOptions::default()).await.unwrap();
    }
    assert_rows(before).await;
}

async fn assert_rows(planned: Vec<Planned>) {
    for Planned { session, plan, expected } in planned {
        let rows: Vec<RecordBatch> = collect(plan, session.context().task_ctx()).await.unwrap();
        assert_eq!(rows.iter().flat_map(text).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn a_query_reads_the_files_that_it_was_planned_with() {
    let folder = folder(FILES);
    check(folder.path(), &folder.path().join("_lakemark")).await;
}

/// Originals are copied there, with another inode.
#[tokio::test]
async fn a_query_reads_them_in_a_store_on_another_file_system() {
    let (folder, Ok(store)) = (folder(FILES), TempDir::new_in("/dev/shm")) else { return };
    check(folder.path(), store.path()).await;
}

#[tokio::test]
async fn a_file_that_somebody_else_removed_is_an_error_that_says_so() {
    let folder = folder(FILES);
    let table = table(folder.path(), &folder.path().join("_lakemark")).await;
    let before = planned(&table).await;
    std::fs::remove_file(folder.path().join("part-1.parquet")).unwrap();
    let Planned { session, plan, .. } = before.into_iter().next().unwrap();
    let error = collect(plan, session.context().task_ctx()).await.unwrap_err();
    assert!(error.to_string().contains("part-1.parquet"), "{error}");
}

/// What somebody puts in its place is another file, of which the query knows nothing.
#[tokio::test]
async fn a_file_with_the_name_of_an_original_is_not_taken_for_it() {
    let folder = folder(FILES);
    let table = table(folder.path(), &folder.path().join("_lakemark")).await;
    let before = planned(&table).await;
    change(&table).await;
    for file in 0..FILES {
        write(&folder.path().join(format!("part-{file}.parquet")), &batch(50 * FILE_ROWS));
    }
    assert_rows(before).await;
}

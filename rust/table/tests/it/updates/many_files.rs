//! Changes in a table of many files: only files that have their keys are looked at, and the others are known to have none.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lakemark_table::{Operation, Table};

use super::{batch, keyed, keys, make, numbers, row, rows};
use crate::fixture::{open, write};

const FILES: i64 = 40;
const ROWS: i64 = 10;

/// Keys 0 to 399 in 40 files.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        let rows: Vec<_> = (file * ROWS..(file + 1) * ROWS).map(|key| (key, Some(key as i32), Some("base"))).collect();
        write(&folder.path().join(format!("f{file:02}.parquet")), &batch(&rows));
    }
    folder
}

/// The deleted rows of each file that has some.
async fn deleted(table: &Table) -> BTreeMap<String, Vec<u32>> {
    let snapshot = table.snapshot().await.unwrap();
    let files = snapshot.files().iter();
    files.filter_map(|file| Some((file.path.clone(), file.deleted.as_ref()?.iter().collect()))).collect()
}

fn expected(files: &[(&str, &[u32])]) -> BTreeMap<String, Vec<u32>> {
    files.iter().map(|(file, rows)| ((*file).to_owned(), rows.to_vec())).collect()
}

async fn changed(path: &Path) -> Arc<Table> {
    let table = keyed(path).await;
    let upserts = batch(&[(33, Some(-1), Some("new")), (355, Some(-2), Some("new")), (1000, Some(-3), Some("new"))]);
    make(&table, Operation::Upsert, upserts).await.unwrap();
    make(&table, Operation::Delete, keys(&[120])).await.unwrap();
    make(&table, Operation::Update, numbers(&[(77, Some(9))])).await.unwrap();
    table
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_hit_the_files_that_have_their_keys() {
    let folder = folder();
    let table = changed(folder.path()).await;
    let hits = expected(&[("f03.parquet", &[3]), ("f07.parquet", &[7]), ("f12.parquet", &[0]), ("f35.parquet", &[5])]);
    assert_eq!(deleted(&table).await, hits);
    // A change more is merged with what was found before.
    make(&table, Operation::Upsert, batch(&[(34, Some(-4), Some("new"))])).await.unwrap();
    let hits =
        expected(&[("f03.parquet", &[3, 4]), ("f07.parquet", &[7]), ("f12.parquet", &[0]), ("f35.parquet", &[5])]);
    assert_eq!(deleted(&table).await, hits);
    let now = rows(&table).await;
    assert_eq!((now.len(), now.get(&120), &now[&77], &now[&34]), (400, None, &row(9, "base"), &row(-4, "new")));
    // Whoever opens the table finds the same, in the log and then in a run.
    assert_eq!(deleted(&*open(folder.path()).await).await, hits);
    table.flush().await.unwrap();
    for table in [Arc::clone(&table), open(folder.path()).await] {
        assert_eq!((deleted(&table).await, rows(&table).await), (hits.clone(), now.clone()));
    }
    // Runs above each other.
    make(&table, Operation::Upsert, batch(&[(33, Some(-5), Some("newer")), (0, Some(-6), Some("newer"))]))
        .await
        .unwrap();
    table.flush().await.unwrap();
    let reopened = open(folder.path()).await;
    let now = rows(&table).await;
    assert_eq!((now.len(), &now[&33], &now[&0]), (400, &row(-5, "newer"), &row(-6, "newer")));
    assert_eq!((rows(&reopened).await, deleted(&reopened).await), (now, deleted(&table).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_others_add_or_replace_are_searched_and_no_others() {
    let folder = folder();
    let table = changed(folder.path()).await;
    assert_eq!(deleted(&table).await.len(), 4);
    write(&folder.path().join("f20-more.parquet"), &batch(&[(5000, Some(1), None), (1000, Some(2), None)]));
    write(&folder.path().join("f30.parquet"), &batch(&[(6000, Some(1), None), (33, Some(2), None)]));
    let hits = expected(&[
        ("f03.parquet", &[3]),
        ("f07.parquet", &[7]),
        ("f12.parquet", &[0]),
        ("f20-more.parquet", &[1]),
        ("f30.parquet", &[1]),
        ("f35.parquet", &[5]),
    ]);
    for table in [Arc::clone(&table), open(folder.path()).await] {
        assert_eq!(deleted(&table).await, hits);
    }
    table.flush().await.unwrap();
    std::fs::remove_file(folder.path().join("f35.parquet")).unwrap();
    for table in [table, open(folder.path()).await] {
        let now = deleted(&table).await;
        assert_eq!((now.len(), now.contains_key("f35.parquet")), (5, false));
    }
}

//! Small files that new rows fill up.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use uuid::Uuid;

use super::{RewriteFixture, expected, old_rows, open, pairs, positions, rows, with_column, write};
use crate::error::{Error, Result};
use crate::rewrite::folder::write as write_files;
use crate::rewrite::refill::SmallFile;
use crate::rewrite::{RewriteOutput, RowBlock};
use crate::{ErrorKind, Table};

fn small(number: usize, rows: RecordBatch) -> SmallFile {
    SmallFile { number, rows: Arc::new(rows) }
}

/// What was written, with the replaced files in the order of their places.
async fn migrate(table: &Table, buffered: &RewriteFixture) -> RewriteOutput {
    let snapshot = table.snapshot().await.unwrap();
    let store = table.base().store.as_ref().unwrap();
    let mut rewritten = write_files(store, &snapshot, &buffered.input(), Uuid::from_u128(9)).await.unwrap();
    rewritten.replaced.sort_unstable();
    rewritten
}

fn place(table: &Table, path: &str) -> PathBuf {
    PathBuf::from(table.store_location().unwrap()).join(path)
}

#[tokio::test]
async fn new_rows_and_those_of_small_files_become_one_file_by_key() {
    let folder = tempfile::tempdir().unwrap();
    for (name, first, count) in [("a", 0, 3), ("b", 10, 8), ("c", 100, 50)] {
        write(&folder.path().join(format!("{name}.parquet")), &old_rows(first, count));
    }
    let table = open(folder.path()).await;
    let mut buffered = RewriteFixture::new(vec![None; 3], vec![rows(&[(20, "new"), (5, "new"), (21, "new")])]);
    buffered.small = vec![small(2, old_rows(100, 50)), small(1, old_rows(10, 8)), small(0, old_rows(0, 3))];
    let rewritten = migrate(&table, &buffered).await;
    // 3 rows take 3, 6 take 8, and 14 do not take 50.
    assert_eq!(rewritten.replaced, [0, 1]);
    let [file] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert_eq!(file.replaces, None);
    let mut want = vec![(0, "old"), (1, "old"), (2, "old"), (5, "new")];
    want.extend((10..18).map(|k| (k, "old")));
    want.extend([(20, "new"), (21, "new")]);
    assert_eq!(pairs(&place(&table, &file.path)), expected(&want));
}

#[tokio::test]
async fn a_small_file_stays_where_no_new_row_needs_a_file() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(0, 3));
    write(&folder.path().join("b.parquet"), &old_rows(10, 3));
    let table = open(folder.path()).await;
    let mut buffered = RewriteFixture::new(vec![positions(&[1], 3), None], vec![rows(&[(1, "new")])]);
    buffered.small = vec![small(1, old_rows(10, 3))];
    assert_eq!(migrate(&table, &buffered).await.replaced, [0]);
}

#[tokio::test]
async fn small_files_are_filled_up_with_rows_of_their_own_partition() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("p=x/a.parquet"), &old_rows(0, 2));
    write(&folder.path().join("p=y/b.parquet"), &old_rows(10, 2));
    let table = open(folder.path()).await;
    let of = |rows: &RecordBatch, p: &str| with_column(rows, "p", &vec![Some(p); rows.num_rows()]);
    let mut buffered = RewriteFixture::new(vec![None; 2], vec![of(&rows(&[(4, "new"), (3, "new")]), "y")]);
    buffered.small = vec![small(0, of(&old_rows(0, 2), "x")), small(1, of(&old_rows(10, 2), "y"))];
    let rewritten = migrate(&table, &buffered).await;
    assert_eq!(rewritten.replaced, [1]);
    let [file] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    assert!(file.path.contains("/p=y/added-"), "{}", file.path);
    let want = [(3, "new"), (4, "new"), (10, "old"), (11, "old")];
    assert_eq!(pairs(&place(&table, &file.path)), expected(&want));
}

/// Others may have put a key there twice, and a file of such a key is none of ours to decide about.
#[tokio::test]
async fn a_small_file_with_a_key_that_comes_twice_stays() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(4, 2));
    let twice = rows(&[(7, "old"), (7, "old")]);
    write(&folder.path().join("b.parquet"), &twice);
    let table = open(folder.path()).await;
    let mut buffered = RewriteFixture::new(vec![None; 2], vec![rows(&[(5, "new"), (9, "new")])]);
    buffered.small = vec![small(0, old_rows(4, 2)), small(1, twice)];
    let rewritten = migrate(&table, &buffered).await;
    assert_eq!((rewritten.replaced.as_slice(), rewritten.files.len()), ([].as_slice(), 1));
    assert_eq!(pairs(&place(&table, &rewritten.files[0].path)), expected(&[(5, "new"), (9, "new")]));
}

/// Two rows that cannot be read.
struct Unreadable(ErrorKind);

impl RowBlock for Unreadable {
    fn row_count(&self) -> usize {
        2
    }

    fn read<'a>(&'a self, _: &'a SchemaRef, _: Option<&'a [u32]>) -> BoxFuture<'a, Result<RecordBatch>> {
        async move { Err(Error::new(self.0, "unreadable")) }.boxed()
    }
}

#[tokio::test]
async fn a_small_file_that_cannot_be_filled_up_stays() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), &old_rows(4, 2));
    write(&folder.path().join("b.parquet"), &old_rows(10, 2));
    let table = open(folder.path()).await;
    for kind in [ErrorKind::Corrupt, ErrorKind::SchemaMismatch, ErrorKind::Unsupported] {
        let mut buffered = RewriteFixture::new(vec![None; 2], vec![rows(&[(1, "new"), (2, "new")])]);
        buffered.small = vec![SmallFile { number: 0, rows: Arc::new(Unreadable(kind)) }, small(1, old_rows(10, 2))];
        let rewritten = migrate(&table, &buffered).await;
        assert_eq!(rewritten.replaced, [1], "{kind}");
        let want = [(1, "new"), (2, "new"), (10, "old"), (11, "old")];
        assert_eq!(pairs(&place(&table, &rewritten.files[0].path)), expected(&want), "{kind}");
    }
}

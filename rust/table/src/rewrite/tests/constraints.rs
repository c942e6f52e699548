//! Rows that a Delta table does not take.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use serde_json::{Value, json};

use super::logs::{add, column, commit, contents, data_files, migrate, migrated, opening, plain, versions};
use super::{RewriteFixture, expected, old_rows, open, positions, rows, write};
use crate::{ErrorKind, Table};

/// A file of `k` from 0 to 2 with `old`.
async fn table(columns: &[Value], configuration: Value) -> (tempfile::TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &old_rows(0, 3));
    let mut actions = opening(plain(), columns, &[], configuration);
    actions.push(add(root, "a.parquet", json!({})));
    commit(root, 0, &actions);
    let table = open(root).await;
    (folder, table)
}

fn columns() -> [Value; 2] {
    [column("k", "integer"), column("s", "string")]
}

fn with_null(k: i32) -> RecordBatch {
    let null: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>]));
    RecordBatch::try_from_iter([("k", rows(&[(k, "")]).column(0).clone()), ("s", null)]).unwrap()
}

/// The message of a migration that leaves the table as it was.
async fn refused(folder: &tempfile::TempDir, table: &Table, new: Vec<RecordBatch>) -> String {
    let snapshot = table.snapshot().await.unwrap();
    let buffered = RewriteFixture::new(vec![positions(&[1], 3)], new);
    let error = migrate(table, &snapshot, &buffered, 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConstraintViolation, "{error}");
    assert_eq!((versions(folder.path()), data_files(folder.path())), (1, 1));
    error.to_string()
}

#[tokio::test]
async fn a_row_that_breaks_a_check_constraint_is_named_with_it_and_nothing_is_written() {
    // The rows that the table has break it as well: only new ones are looked at.
    let check = json!({"delta.constraints.longer": "length(s) > 3 AND k < 100"});
    let (folder, table) = table(&columns(), check).await;
    let fits = rows(&[(1, "long")]);
    for (breaks, key) in [(rows(&[(20, "zwanzig"), (21, "no")]), "k = 21"), (with_null(22), "k = 22")] {
        let message = refused(&folder, &table, vec![fits.clone(), breaks]).await;
        for named in [key, "the CHECK constraint longer", "length(s) > 3 AND k < 100"] {
            assert!(message.contains(named), "{message} should name {named}");
        }
    }
    let overflow = json!({"delta.constraints.sum": "k + 2147483647 > 0"});
    let (other, summed) = self::table(&columns(), overflow).await;
    assert!(refused(&other, &summed, vec![fits.clone()]).await.contains("cannot be calculated"));

    let buffered = RewriteFixture::new(vec![positions(&[1], 3)], vec![fits, rows(&[(20, "zwanzig")])]);
    assert_eq!(migrated(&table, &buffered, 1).await.0, 1);
    let want = [(0, "old"), (1, "long"), (2, "old"), (20, "zwanzig")];
    assert_eq!(contents(folder.path()).await, expected(&want));
}

#[tokio::test]
async fn a_row_that_breaks_the_invariant_of_a_column_is_named_with_it() {
    let [mut k, s] = columns();
    k["metadata"] = json!({"delta.invariants": r#"{"expression": {"expression": "k < 20"}}"#});
    let (folder, table) = table(&[k, s], json!({})).await;
    let message = refused(&folder, &table, vec![rows(&[(19, "new"), (20, "new")])]).await;
    for named in ["k = 20", "the invariant of the column k", "k < 20"] {
        assert!(message.contains(named), "{message} should name {named}");
    }
}

#[tokio::test]
async fn columns_that_take_no_null_get_none() {
    let [k, mut s] = columns();
    s["nullable"] = json!(false);
    let (folder, table) = table(&[k, s], json!({})).await;
    let message = refused(&folder, &table, vec![with_null(7)]).await;
    assert!(message.contains("k = 7") && message.contains("the rule of the column s (NOT NULL)"), "{message}");
}

//! Migrations of shallow clones: tables that have files of the table which they were made from.

use serde_json::{Value, json};
use url::Url;

use super::logs::{
    add, buffered, column, commit, committed, data_files, inline_vector, migrated, opening, table, with_vectors,
};
use super::{expected, open, pairs};

#[tokio::test]
async fn files_of_the_other_table_are_replaced_in_the_clone_alone() {
    let source = table();
    let clone = tempfile::tempdir().unwrap();
    let root = clone.path();
    let url = |name: &str| Url::from_file_path(source.path().join(name)).unwrap().to_string();
    let outside = |name: &str| {
        let mut file = add(source.path(), name, json!({}));
        file["add"]["path"] = json!(url(name));
        file
    };
    let mut actions = opening(with_vectors(), &[column("k", "integer"), column("s", "string")], &[], json!({}));
    let mut first = outside("a.parquet");
    first["add"]["deletionVector"] = inline_vector(&[3]);
    actions.extend([first, outside("b.parquet")]);
    commit(root, 0, &actions);

    let table = open(root).await;
    let (_, rewritten) = migrated(&table, &buffered(), 5).await;
    let [again, added] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    // The new files are the clone's own, and the other table has its files still.
    assert_eq!(pairs(&root.join(&again.path)), expected(&[(0, "old"), (1, "one"), (2, "old"), (5, "old")]));
    assert_eq!(pairs(&root.join(&added.path)), expected(&[(20, "zwanzig")]));
    assert_eq!((data_files(root), data_files(source.path())), (2, 2));
    assert_eq!(open(source.path()).await.snapshot().await.unwrap().files().len(), 2);
    // The log knows a file by its text.
    let actions = committed(root, 1);
    let removed: Vec<&Value> = actions.iter().filter_map(|action| action["remove"].get("path")).collect();
    assert_eq!(removed, [&json!(url("a.parquet"))]);
    for table in [table, open(root).await] {
        let snapshot = table.snapshot().await.unwrap();
        let paths: Vec<&str> = snapshot.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths.len(), 3, "{paths:?}");
        assert!(paths.contains(&again.path.as_str()) && paths.contains(&added.path.as_str()), "{paths:?}");
        assert!(paths.iter().any(|path| path.starts_with("file:/") && path.ends_with("/b.parquet")), "{paths:?}");
    }
}

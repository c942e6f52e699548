//! What a migration commits to a Delta table, and which commits of others it goes together with.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use super::logs::{
    add, buffered, column, commit, committed, contents, data_files, inline_vector, migrate, migrated, opening, plain,
    table, transaction, versions, with_vectors,
};
use super::repeating::{Instead, Repeating};
use super::{RewriteFixture, expected, old_rows, open, pairs, pairs_of, positions, rows, with_column, write};
use crate::rewrite::delta;
use crate::rewrite::delta::{MigrationOutcome, check_writable};
use crate::{ErrorKind, Table, TableOptions};

#[tokio::test]
async fn one_commit_replaces_files_and_adds_new_ones() {
    let folder = table();
    let root = folder.path();
    let table = open(root).await;
    let (version, rewritten) = migrated(&table, &buffered(), 5).await;
    assert_eq!((version, rewritten.replaced.as_slice()), (1, [0].as_slice()));
    let [again, added] = rewritten.files.as_slice() else { panic!("{:?}", rewritten.files) };
    // The deletion vector's row is gone for good.
    assert_eq!(pairs(&root.join(&again.path)), expected(&[(0, "old"), (1, "one"), (2, "old"), (5, "old")]));
    assert_eq!(pairs(&root.join(&added.path)), expected(&[(20, "zwanzig")]));

    let actions = committed(root, 1);
    let [info, remove, add_again, add_new, txn] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(info["commitInfo"]["operation"], "MIGRATE");
    assert_eq!(info["commitInfo"]["isolationLevel"], "Serializable");
    assert_eq!(info["commitInfo"]["isBlindAppend"], false);
    assert_eq!(info["commitInfo"]["readVersion"], 0);
    let remove = &remove["remove"];
    assert_eq!(remove["path"], "a.parquet");
    assert_eq!((&remove["dataChange"], &remove["extendedFileMetadata"]), (&json!(true), &json!(true)));
    assert_eq!((&remove["partitionValues"], remove["size"].as_u64().is_some()), (&json!({}), true));
    assert_eq!(remove["deletionVector"], inline_vector(&[3]));
    let add_again = &add_again["add"];
    assert_eq!(add_again["path"], again.path.as_str());
    assert_eq!((&add_again["size"], &add_again["dataChange"]), (&json!(again.size), &json!(true)));
    assert_eq!((&add_again["partitionValues"], add_again.get("deletionVector")), (&json!({}), None));
    let stats = |add: &Value| -> Value { serde_json::from_str(add["stats"].as_str().unwrap()).unwrap() };
    assert_eq!(
        stats(add_again),
        json!({"numRecords": 4, "minValues": {"k": 0, "s": "old"}, "maxValues": {"k": 5, "s": "one"},
            "nullCount": {"k": 0, "s": 0}})
    );
    assert_eq!(
        stats(&add_new["add"]),
        json!({"numRecords": 1, "minValues": {"k": 20, "s": "zwanzig"}, "maxValues": {"k": 20, "s": "zwanzig"},
            "nullCount": {"k": 0, "s": 0}})
    );
    let time = &info["commitInfo"]["timestamp"];
    assert!(time.is_i64(), "{time}");
    assert_eq!(*txn, json!({"txn": {"appId": "lakemark-test", "version": 5, "lastUpdated": time}}));

    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.delta_version(), Some(1));
    assert!(snapshot.files().iter().all(|file| file.deleted.is_none()));
    let want = [(0, "old"), (1, "one"), (2, "old"), (5, "old"), (10, "old"), (11, "old"), (12, "old"), (20, "zwanzig")];
    assert_eq!(contents(root).await, expected(&want));
    assert_eq!((versions(root), data_files(root)), (2, 4));
}

#[tokio::test]
async fn a_transaction_is_committed_once() {
    let folder = table();
    let root = folder.path();
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let state = crate::files::delta::DeltaState::read(&table.base().location).await.unwrap();
    assert_eq!(state.application_version("lakemark-test").await.unwrap(), None);
    migrated(&table, &buffered(), 5).await;
    let state = crate::files::delta::DeltaState::read(&table.base().location).await.unwrap();
    assert_eq!(state.application_version("lakemark-test").await.unwrap(), Some(5));
    assert_eq!(state.application_version("other").await.unwrap(), None);
    for version in [5, 4] {
        let again = migrate(&table, &snapshot, &buffered(), version).await.unwrap();
        assert!(matches!(again, MigrationOutcome::Already), "{again:?}");
    }
    assert_eq!((versions(root), data_files(root)), (2, 4));
    // A later one finds that the snapshot is not the newest.
    let later = migrate(&table, &snapshot, &buffered(), 6).await.unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Conflict);
    // A migration with nothing to merge is recorded all the same.
    let (version, rewritten) = migrated(&table, &RewriteFixture::new(vec![None, None, None], vec![]), 6).await;
    assert_eq!((version, rewritten.files.len(), committed(root, 2).len()), (2, 0, 2));
}

#[tokio::test]
async fn commits_of_others_are_conflicts_unless_they_leave_everything_alone() {
    let harmful = |root: &Path| {
        let added = add(root, "c.parquet", json!({}));
        let mut blind = vec![json!({"commitInfo": {"operation": "WRITE", "isBlindAppend": true}})];
        blind.push(added.clone());
        let removed = json!({"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": false}});
        let mut compacted = added;
        compacted["add"]["dataChange"] = json!(false);
        let metadata = opening(plain(), &[column("k", "integer")], &[], json!({})).remove(1);
        let protocol = json!({"protocol": with_vectors()});
        let older = json!({"txn": {"appId": "lakemark-test", "version": 1}});
        vec![
            blind,
            vec![removed, compacted],
            vec![metadata],
            vec![protocol],
            vec![json!({"domainMetadata": {"domain": "d", "configuration": "", "removed": false}})],
            vec![older.clone(), add(root, "c.parquet", json!({}))],
        ]
    };
    for case in 0..6 {
        let folder = table();
        let root = folder.path();
        write(&root.join("c.parquet"), &old_rows(30, 3));
        let table = open(root).await;
        let snapshot = table.snapshot().await.unwrap();
        commit(root, 1, &harmful(root)[case]);
        let error = migrate(&table, &snapshot, &buffered(), 5).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{case}: {error}");
        assert_eq!((versions(root), data_files(root)), (2, 3), "{case}");
    }

    let folder = table();
    let root = folder.path();
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let harmless = [json!({"commitInfo": {"operation": "STREAM"}}), json!({"txn": {"appId": "other", "version": 9}})];
    commit(root, 1, &harmless);
    let done = migrate(&table, &snapshot, &buffered(), 5).await.unwrap();
    assert!(matches!(done, MigrationOutcome::Committed { version: 2, .. }), "{done:?}");
    assert_eq!(contents(root).await.len(), 8);
}

/// Others commit after the new files were written and before they are named.
#[tokio::test]
async fn a_lost_race_for_a_version_is_judged_as_well() {
    let race = async |theirs: Vec<Value>| {
        let folder = table();
        let root = folder.path().to_owned();
        let table = open(&root).await;
        let snapshot = table.snapshot().await.unwrap();
        let (buffered, ours) = (buffered(), transaction(5));
        let input = buffered.input();
        let mut theirs = Some(theirs);
        let outcome = delta::migrate_then(&table.base().location, &snapshot, &input, &ours, || {
            if let Some(theirs) = theirs.take() {
                assert_eq!(data_files(&root), 4);
                commit(&root, 1, &theirs);
            }
        });
        let outcome = outcome.await;
        (outcome, data_files(&root), versions(&root))
    };
    let (outcome, files, count) = race(vec![json!({"txn": {"appId": "other", "version": 9}})]).await;
    assert!(matches!(outcome, Ok(MigrationOutcome::Committed { version: 2, .. })), "{outcome:?}");
    assert_eq!((files, count), (4, 3));
    // The new files go where they lost.
    let removed = json!({"remove": {"path": "b.parquet", "deletionTimestamp": 1, "dataChange": true}});
    let (outcome, files, count) = race(vec![removed.clone()]).await;
    assert_eq!((outcome.unwrap_err().kind(), files, count), (ErrorKind::Conflict, 2, 2));
    let (outcome, files, count) = race(vec![removed, json!({"txn": {"appId": "lakemark-test", "version": 5}})]).await;
    assert!(matches!(outcome, Ok(MigrationOutcome::Already)), "{outcome:?}");
    assert_eq!((files, count), (2, 2));
}

#[tokio::test]
async fn rows_move_to_the_partition_that_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    // As Spark writes it: the folder is escaped, then the log's path once more, but not what is not ASCII.
    let odd = "p=é a%3Ab/x.parquet";
    write(&root.join(odd), &old_rows(0, 3));
    write(&root.join("elsewhere/y.parquet"), &old_rows(10, 3));
    let columns = [column("k", "integer"), column("p", "string"), column("s", "string"), column("t", "timestamp")];
    let mut actions = opening(plain(), &columns, &["p", "t"], json!({}));
    let mut first = add(root, odd, json!({"p": "é a:b", "t": "2024-01-31 12:00:00"}));
    first["add"]["path"] = json!("p=é%20a%253Ab/x.parquet");
    actions.extend([first, add(root, "elsewhere/y.parquet", json!({"p": null, "t": ""}))]);
    commit(root, 0, &actions);
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let place = |path: &str| snapshot.files().iter().position(|file| file.path == path).unwrap();
    let mut deleted = vec![None, None];
    deleted[place(odd)] = positions(&[0, 1, 2], 3);
    deleted[place("elsewhere/y.parquet")] = positions(&[2], 3);

    let new = rows(&[(2, "new"), (1, "moved"), (12, "null"), (20, "far"), (21, "far")]);
    let new = with_column(&new, "p", &[Some("é a:b"), None, None, Some("x/y=é"), Some("x/y=é")]);
    let noon = 1_706_702_400_000_000;
    let times = [Some(noon), None, None, Some(noon + 1), Some(noon + 1)];
    let times: ArrayRef = Arc::new(arrow::array::TimestampMicrosecondArray::from(times.to_vec()).with_timezone("UTC"));
    let mut named: Vec<_> = ["k", "s", "p"].into_iter().zip(new.columns().iter().cloned()).collect();
    named.push(("t", times));
    let new = RecordBatch::try_from_iter(named).unwrap();
    let (_, rewritten) = migrated(&table, &RewriteFixture::new(deleted, vec![new]), 1).await;
    assert_eq!(rewritten.files.len(), 4);

    let actions = committed(root, 1);
    let removed: Vec<&Value> = actions.iter().filter_map(|action| action["remove"].get("path")).collect();
    assert_eq!(removed.len(), 2);
    assert!(removed.contains(&&json!("p=é%20a%253Ab/x.parquet")), "the text of the log: {removed:?}");
    let added: Vec<&Value> = actions.iter().filter_map(|action| action.get("add")).collect();
    let values: Vec<&Value> = added.iter().map(|add| &add["partitionValues"]).collect();
    let far = json!({"p": "x/y=é", "t": "2024-01-31T12:00:00.000001Z"});
    let logged = [
        json!({"p": null, "t": ""}),
        json!({"p": "é a:b", "t": "2024-01-31 12:00:00"}),
        json!({"p": null, "t": null}),
        far,
    ];
    for (value, want) in values.iter().zip(&logged) {
        assert_eq!(*value, want);
    }
    // Readers find the new files, and their partitions mean what the rows meant.
    let again = table.snapshot().await.unwrap();
    assert_eq!(again.files().len(), 4);
    for file in &rewritten.files {
        let have = again.files().iter().find(|have| have.path == file.path).unwrap();
        assert_eq!(have.partition_values, file.partition_values, "{}", file.path);
        assert!(root.join(&file.path).is_file());
        assert_eq!(again.object_store().head(&have.meta.location).await.unwrap().size, file.size);
    }
    let beside: Vec<&str> = rewritten.files.iter().map(|file| file.path.rsplit_once('/').unwrap().0).collect();
    let null = "p=__HIVE_DEFAULT_PARTITION__/t=__HIVE_DEFAULT_PARTITION__";
    let far = "p=x%2Fy%3Dé/t=2024-01-31T12%3A00%3A00.000001Z";
    assert_eq!(beside, ["elsewhere", "p=é a%3Ab", null, far]);
    let rows: Vec<_> = rewritten.files.iter().map(|file| pairs(&root.join(&file.path))).collect();
    assert_eq!(rows[0], expected(&[(10, "old"), (11, "old"), (12, "null")]));
    assert_eq!(rows[1], expected(&[(2, "new")]));
    assert_eq!(rows[2], expected(&[(1, "moved")]));
    assert_eq!(rows[3], expected(&[(20, "far"), (21, "far")]));
}

#[tokio::test]
async fn mapped_columns_are_stored_under_their_stored_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let stored = |first: i32| {
        let batch = old_rows(first, 3);
        let inner: ArrayRef = batch.column(0).clone();
        let point = arrow::array::StructArray::try_from(vec![("col-x", inner)]).unwrap();
        let gone = batch.column(1).clone();
        let columns: [(&str, ArrayRef); 4] = [
            ("col-gone", gone),
            ("col-s", batch.column(1).clone()),
            ("col-point", Arc::new(point)),
            ("col-k", batch.column(0).clone()),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    write(&root.join("a.parquet"), &stored(0));
    let mapped = |id: usize, shown: &str, stored: &str, kind: Value| {
        json!({"name": shown, "type": kind, "nullable": true,
            "metadata": {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": stored}})
    };
    let inner = json!({"type": "struct", "fields": [mapped(5, "x", "col-x", json!("integer"))]});
    let columns = [
        mapped(1, "day", "col-day", json!("date")),
        mapped(2, "k", "col-k", json!("integer")),
        mapped(3, "s", "col-s", json!("string")),
        mapped(4, "point", "col-point", inner),
    ];
    let configuration = json!({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"});
    let protocol = json!({"minReaderVersion": 2, "minWriterVersion": 5});
    let mut actions = opening(protocol, &columns, &["day"], configuration);
    actions.push(add(root, "a.parquet", json!({"col-day": "2024-01-31"})));
    commit(root, 0, &actions);
    let table = open(root).await;

    let values = rows(&[(1, "new"), (7, "new")]);
    let point = arrow::array::StructArray::try_from(vec![("x", values.column(0).clone())]).unwrap();
    let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![19753, 19754]));
    let new: [(&str, ArrayRef); 4] =
        [("s", values.column(1).clone()), ("k", values.column(0).clone()), ("day", days), ("point", Arc::new(point))];
    let new = RecordBatch::try_from_iter(new).unwrap();
    let (_, rewritten) = migrated(&table, &RewriteFixture::new(vec![positions(&[1], 3)], vec![new]), 1).await;

    let file = root.join(&rewritten.files[0].path);
    let texts: Vec<_> = [(0, "old"), (1, "new"), (2, "old")].map(|(k, s)| (k, Some(s.to_owned()))).into();
    assert_eq!(pairs_of(&file, ["col-k", "col-s"]), texts);
    let written = super::read(&file);
    let names: Vec<_> = written.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["col-k", "col-s", "col-point"]);
    let id = |field: &arrow::datatypes::Field| field.metadata()["PARQUET:field_id"].clone();
    assert_eq!(written.schema().fields().iter().map(|field| id(field)).collect::<Vec<_>>(), ["2", "3", "4"]);
    let point = written.column(2).as_struct();
    assert_eq!((point.fields()[0].name().as_str(), id(&point.fields()[0]).as_str()), ("col-x", "5"));
    let x = point.column(0).as_primitive::<arrow::datatypes::Int32Type>();
    assert_eq!(x.values(), &[0, 1, 2]);

    let actions = committed(root, 1);
    let added: Vec<&Value> = actions.iter().filter_map(|action| action.get("add")).collect();
    let stats = |add: &Value| -> Value { serde_json::from_str(add["stats"].as_str().unwrap()).unwrap() };
    assert_eq!(added[0]["partitionValues"], json!({"col-day": "2024-01-31"}));
    assert_eq!(
        stats(added[0]),
        json!({"numRecords": 3,
            "minValues": {"col-k": 0, "col-s": "new", "col-point": {"col-x": 0}},
            "maxValues": {"col-k": 2, "col-s": "old", "col-point": {"col-x": 2}},
            "nullCount": {"col-k": 0, "col-s": 0, "col-point": {"col-x": 0}}})
    );
    assert_eq!(added[1]["partitionValues"], json!({"col-day": "2024-02-01"}));
    assert!(added[1]["path"].as_str().unwrap().starts_with("col-day=2024-02-01/added-"), "{}", added[1]["path"]);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.files().len(), 2);
}

#[tokio::test]
async fn features_that_a_commit_could_not_honour_are_named() {
    let check = async |protocol: Value, columns: &[Value], configuration: Value| {
        let folder = tempfile::tempdir().unwrap();
        commit(folder.path(), 0, &opening(protocol, columns, &[], configuration));
        let table = open(folder.path()).await;
        let state = crate::files::delta::DeltaState::read(&table.base().location).await.unwrap();
        check_writable(&state).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            error.message().to_owned()
        })
    };
    let features = |names: &[&str]| {
        // Readers have to know of it, too.
        let read: Vec<&str> = names.iter().copied().filter(|name| *name == "typeWidening").collect();
        match read.is_empty() {
            true => json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}),
            false => {
                json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": read, "writerFeatures": names})
            }
        }
    };
    let with_metadata = |key: &str, value: Value| {
        let mut column = column("k", "integer");
        column["metadata"] = json!({key: value});
        [column]
    };
    let k = [column("k", "integer")];
    let mut point = column("point", "");
    point["type"] = json!({"type": "struct", "fields": [column("x", "integer")]});
    assert_eq!(check(plain(), &k, json!({})).await, Ok(()));
    let all = [
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "domainMetadata",
        "clustering",
        "rowTracking",
        "inCommitTimestamp",
        "typeWidening",
    ];
    let plain_properties = json!({"delta.appendOnly": "false", "delta.constraints.positive": "k > 0"});
    assert_eq!(check(features(&all), &k, plain_properties).await, Ok(()));
    assert_eq!(check(features(&["clustering", "domainMetadata"]), &[point], json!({})).await, Ok(()));
    let refused = [
        (check(plain(), &k, json!({"delta.appendOnly": "true"})).await, "delta.appendOnly"),
        (
            check(plain(), &k, json!({"delta.constraints.odd": "hash(k) = 1"})).await,
            "the CHECK constraint odd (hash(k) = 1) has the function `hash(k)`",
        ),
        (check(features(&["icebergCompatV2"]), &k, json!({})).await, "icebergCompatV2"),
        (
            check(plain(), &with_metadata("delta.generationExpression", json!("1 + 1")), json!({})).await,
            "its column k is generated",
        ),
        (
            check(plain(), &with_metadata("delta.identity.start", json!(1)), json!({})).await,
            "its column k is an identity",
        ),
        (
            check(plain(), &with_metadata("delta.invariants", json!("{}")), json!({})).await,
            "its column k has an invariant",
        ),
    ];
    for (outcome, named) in refused {
        let message = outcome.unwrap_err();
        assert!(message.contains(named), "{message} should name {named}");
    }
}

/// An object store instead of a file system: files are put as they are, and the version if there is none.
#[tokio::test]
async fn tables_on_object_stores_are_committed_to_as_well() {
    commit_to(Arc::new(InMemory::new())).await;
    // The version is there, whatever is answered.
    for instead in [Instead::Exists, Instead::Error] {
        commit_to(Arc::new(Repeating::new(instead))).await;
    }
}

/// Where the log cannot be read, nothing that the version may name is deleted.
#[tokio::test]
async fn a_version_that_nobody_heard_of_keeps_its_files() {
    let store = Arc::new(Repeating::new(Instead::Silence));
    let (folder, objects) = (table(), Arc::clone(&store) as Arc<dyn ObjectStore>);
    let table = copied(&folder, &objects).await;
    let error = migrate(&table, &table.snapshot().await.unwrap(), &buffered(), 5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    store.is_silent.store(false, std::sync::atomic::Ordering::SeqCst);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.delta_version(), Some(1));
    for file in snapshot.files() {
        assert_eq!(store.head(&file.meta.location).await.unwrap().size, file.meta.size, "{}", file.path);
    }
    assert!(matches!(migrate(&table, &snapshot, &buffered(), 5).await.unwrap(), MigrationOutcome::Already));
}

/// A table in a store.
async fn copied(folder: &tempfile::TempDir, store: &Arc<dyn ObjectStore>) -> Arc<Table> {
    for name in ["a.parquet", "b.parquet", "_delta_log/00000000000000000000.json"] {
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        store.put(&format!("t/{name}").into(), bytes.into()).await.unwrap();
    }
    let layer = |_: Arc<dyn ObjectStore>| Arc::clone(store);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}

async fn commit_to(store: Arc<dyn ObjectStore>) {
    let table = copied(&table(), &store).await;
    let snapshot = table.snapshot().await.unwrap();
    let (version, rewritten) = migrated(&table, &buffered(), 5).await;
    assert_eq!((version, rewritten.files.len()), (1, 2));
    let size = async |name: &str| store.head(&format!("t/{name}").into()).await.unwrap().size;
    for file in &rewritten.files {
        assert_eq!(size(&file.path).await, file.size);
    }
    let files: BTreeSet<String> =
        table.snapshot().await.unwrap().files().iter().map(|file| file.path.clone()).collect();
    let expected = ["b.parquet", &rewritten.files[0].path, &rewritten.files[1].path].map(str::to_owned);
    assert_eq!(files, BTreeSet::from(expected));
    let again = migrate(&table, &snapshot, &buffered(), 6).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert!(matches!(migrate(&table, &snapshot, &buffered(), 5).await.unwrap(), MigrationOutcome::Already));
}

#[tokio::test]
async fn what_cannot_be_written_leaves_the_table_as_it_was() {
    let folder = table();
    let root = folder.path();
    let table = open(root).await;
    let snapshot = table.snapshot().await.unwrap();
    let with_data = data_files(root);
    // A file that is gone, after another was written.
    std::fs::remove_file(root.join("b.parquet")).unwrap();
    let mut both = buffered();
    both.deleted[1] = positions(&[0], 3);
    let error = migrate(&table, &snapshot, &both, 5).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!((versions(root), data_files(root)), (1, with_data - 1));
    // A log that takes no file has no version of ours.
    std::fs::write(root.join("b.parquet"), b"").unwrap();
    let (buffered, ours) = (buffered(), transaction(5));
    let input = buffered.input();
    let outcome = delta::migrate_then(&table.base().location, &snapshot, &input, &ours, || {
        std::fs::rename(root.join("_delta_log"), root.join("moved")).unwrap();
        std::fs::write(root.join("_delta_log"), b"").unwrap();
    });
    assert_eq!(outcome.await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(data_files(root), with_data);
}

//! Delta tables whose logs are written here by hand.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Date32Type};
use lakemark_index::Predicate;
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, ProbeOptions, Snapshot, Table, TableFormat, TableOptions};
use roaring::RoaringTreemap;
use serde_json::json;

use crate::fixture::{batch, create_indexes, equals, exact_rows, is_null, k_values, open, probe, rows_of, write};
use crate::layer::{Layer, Log};

pub fn commit(root: &Path, version: u64, actions: &[serde_json::Value]) {
    let log = root.join("_delta_log");
    std::fs::create_dir_all(&log).unwrap();
    let lines: Vec<String> = actions.iter().map(ToString::to_string).collect();
    std::fs::write(log.join(format!("{version:020}.json")), lines.join("\n")).unwrap();
}

pub fn opening(features: bool, configuration: serde_json::Value) -> Vec<serde_json::Value> {
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let schema =
        json!({"type": "struct", "fields": [field("day", "date"), field("k", "integer"), field("s", "string")]});
    let protocol = if features {
        json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]})
    } else {
        json!({"minReaderVersion": 1, "minWriterVersion": 2})
    };
    vec![
        json!({"protocol": protocol}),
        json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_string(), "partitionColumns": ["day"], "configuration": configuration, "createdTime": 0}}),
    ]
}

pub fn add(root: &Path, path: &str, day: Option<&str>) -> serde_json::Value {
    let size = std::fs::metadata(root.join(path)).unwrap().len();
    json!({"add": {"path": path, "partitionValues": {"day": day}, "size": size, "modificationTime": 1_700_000_000_000u64, "dataChange": true}})
}

/// A table of two files in two days.
fn table(features: bool, configuration: serde_json::Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(&root.join("a.parquet"), &batch(0, 250));
    write(&root.join("b.parquet"), &batch(250, 250));
    write(&root.join("not-in-the-log.parquet"), &batch(0, 10));
    let mut actions = opening(features, configuration);
    actions.push(add(root, "a.parquet", Some("2024-01-31")));
    actions.push(add(root, "b.parquet", None));
    commit(root, 0, &actions);
    folder
}

#[tokio::test]
async fn files_in_another_store_than_the_table_are_refused_however_they_are_written() {
    for path in ["s3a://bucket/c.parquet", "hdfs:/elsewhere/c.parquet", "file%3A/elsewhere/c.parquet"] {
        let folder = table(false, json!({}));
        let mut outside = add(folder.path(), "a.parquet", None);
        outside["add"]["path"] = path.into();
        commit(folder.path(), 1, &[outside]);
        let error = open(folder.path()).await.snapshot().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{path}: {error}");
        assert!(error.to_string().contains(path), "{error}");
    }
}

#[tokio::test]
async fn a_shallow_clone_has_files_of_the_table_that_it_was_made_from() {
    let source = table(false, json!({}));
    let clone = tempfile::tempdir().unwrap();
    let root = clone.path();
    let outside = |name: &str, path: String, day: Option<&str>| {
        let mut file = add(source.path(), name, day);
        file["add"]["path"] = path.into();
        file
    };
    let url = url::Url::from_file_path(source.path().join("a.parquet")).unwrap().to_string();
    let mut actions = opening(false, json!({}));
    actions.push(outside("a.parquet", url.clone(), Some("2024-01-31")));
    // With one slash, as Hadoop writes it.
    actions.push(outside("b.parquet", format!("file:{}", source.path().join("b.parquet").display()), None));
    commit(root, 0, &actions);
    let table = open(root).await;
    create_indexes(&table).await;
    write(&root.join("c.parquet"), &batch(500, 250));
    commit(root, 1, &[add(root, "c.parquet", None)]);
    table.build(BuildOptions::default()).await.unwrap();

    let answers = async |table: &Table| {
        let snapshot = table.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("k", 3)).await;
        let names = snapshot.files().iter().map(|file| file.path.rsplit('/').next().unwrap().to_owned());
        names.zip(found.files.iter().map(exact_rows)).collect::<Vec<_>>()
    };
    let rows = |first: usize| rows_of(&k_values(first, 250), 3);
    let all = [("c.parquet", rows(500)), ("a.parquet", rows(0)), ("b.parquet", rows(250))];
    let all = all.map(|(name, rows)| (name.to_owned(), rows));
    assert_eq!(answers(&table).await, all);
    let table = open(root).await;
    assert_eq!(answers(&table).await, all);
    assert!(table.verify().await.unwrap().is_ok());
    // A later commit removes the file by the same text.
    commit(root, 2, &[json!({"remove": {"path": url, "deletionTimestamp": 1, "dataChange": true}})]);
    let left = [all[0].clone(), all[2].clone()];
    assert_eq!(answers(&table).await, left);
    let table = open(root).await;
    assert_eq!(answers(&table).await, left);
}

#[tokio::test]
async fn files_from_before_a_column_was_widened_have_values_of_its_new_type() {
    let folder = table(false, json!({}));
    let root = folder.path();
    let table = open(root).await;
    create_indexes(&table).await;
    let narrow = rows_of(&k_values(0, 250), 3);
    assert_eq!(exact_rows(&probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await.files[0]), narrow);
    let mut widened = opening(false, json!({"delta.enableTypeWidening": "true"}));
    let features = ["typeWidening"];
    widened[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
        "writerFeatures": features}});
    let field = |name: &str, kind: &str, metadata: serde_json::Value| {
        let mut field = json!({"name": name, "type": kind, "nullable": true});
        field["metadata"] = metadata;
        field
    };
    let changed = json!({"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]});
    let fields = [field("day", "date", json!({})), field("k", "long", changed), field("s", "string", json!({}))];
    widened[1]["metaData"]["schemaString"] = json!({"type": "struct", "fields": fields}).to_string().into();
    commit(root, 1, &widened);
    let large = i64::from(i32::MAX) + 3;
    let k: ArrayRef = Arc::new(Int64Array::from(vec![3, large, 5]));
    write(&root.join("c.parquet"), &RecordBatch::try_from_iter([("k", k)]).unwrap());
    commit(root, 2, &[add(root, "c.parquet", None)]);
    // The keys of the index are those of the narrower type.
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field_with_name("k").unwrap().data_type(), &DataType::Int64);
    assert_eq!(probe(&snapshot, &equals("k", 3)).await.files[0], FileProbe::Unknown);
    table.drop_index("k_bitmap", false).await.unwrap();
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[2])), (narrow, vec![0]));
    let found = probe(&snapshot, &equals("k", large)).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[2])), (vec![], vec![1]));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_table_that_a_catalog_manages_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut actions = opening(false, json!({"delta.enableInCommitTimestamps": "true"}));
    actions[0] = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"],
        "writerFeatures": ["catalogManaged", "inCommitTimestamp"]}});
    actions.insert(0, json!({"commitInfo": {"operation": "CREATE TABLE", "inCommitTimestamp": 1_700_000_000_000u64}}));
    commit(folder.path(), 0, &actions);
    let error = open(folder.path()).await.snapshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("catalogManaged") && error.to_string().contains("copy it"), "{error}");
}

/// The bytes of an inline deletion vector.
pub fn inline_vector(rows: &[u64]) -> serde_json::Value {
    let mut bytes = 1_681_511_377u32.to_le_bytes().to_vec();
    RoaringTreemap::from_iter(rows.iter().copied()).serialize_into(&mut bytes).unwrap();
    let size = bytes.len();
    bytes.resize(size.next_multiple_of(4), 0);
    json!({"storageType": "i", "pathOrInlineDv": z85::encode(&bytes), "sizeInBytes": size, "cardinality": rows.len()})
}

#[tokio::test]
async fn the_log_says_which_files_and_partition_values_there_are() {
    let folder = table(false, json!({}));
    let table = open(folder.path()).await;
    assert_eq!(table.format(), TableFormat::Delta);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.delta_version(), Some(0));
    assert_eq!(snapshot.files().iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["a.parquet", "b.parquet"]);
    let names: Vec<_> = snapshot.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["day", "k", "s"]);
    assert_eq!(snapshot.partition_columns()[0].data_type(), &DataType::Date32);
    assert_eq!(snapshot.files().get(0).unwrap().partition_values[0].as_primitive::<Date32Type>().value(0), 19753);
    let found = probe(&snapshot, &is_null("day")).await;
    assert_eq!(exact_rows(&found.files[0]), Vec::<u32>::new());

    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let both = Predicate::And(vec![is_null("day"), equals("k", 3)]);
    let found = probe(&snapshot, &both).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[1])), (vec![], rows_of(&k_values(250, 250), 3)));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn law_3_rows_of_a_deletion_vector_are_taken_out_before_any_predicate() {
    let folder = table(true, json!({"delta.enableDeletionVectors": "true"}));
    let root = folder.path();
    let table = open(root).await;
    create_indexes(&table).await;
    let all = rows_of(&k_values(0, 250), 3);
    let deleted = [u64::from(all[0]), u64::from(all[2]), 249];
    let mut with_vector = add(root, "a.parquet", Some("2024-01-31"));
    with_vector["add"]["deletionVector"] = inline_vector(&deleted);
    let remove = json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}});
    commit(root, 1, &[remove, with_vector]);

    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.delta_version(), Some(1));
    let file = snapshot.files().get(0).unwrap().deleted.as_ref().unwrap();
    assert_eq!(file.iter().map(u64::from).collect::<Vec<_>>(), deleted);
    // The indexes cover physical rows, so that they still hold.
    let found = probe(&snapshot, &equals("k", 3)).await;
    let left: Vec<u32> = all.iter().copied().filter(|row| !deleted.contains(&u64::from(*row))).collect();
    assert_eq!(exact_rows(&found.files[0]), left);
    assert_eq!(found.report.coverage, 1.0);
    let count =
        snapshot.probe(&equals("k", 3), &ProbeOptions { count_only: true, ..ProbeOptions::default() }).await.unwrap();
    let counted: u64 = count
        .files
        .iter()
        .map(|file| if let FileProbe::Counted { rows } = file { *rows } else { panic!("{file:?}") })
        .sum();
    assert_eq!(counted as usize, left.len() + rows_of(&k_values(250, 250), 3).len());

    let remove = json!({"remove": {"path": "a.parquet", "deletionTimestamp": 2, "dataChange": true, "deletionVector": inline_vector(&deleted)}});
    commit(root, 2, &[remove, add(root, "a.parquet", Some("2024-01-31"))]);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), all);
}

#[tokio::test]
async fn files_that_a_later_version_adds_are_scanned_until_they_are_built() {
    let folder = table(false, json!({}));
    let root = folder.path();
    let table = open(root).await;
    create_indexes(&table).await;
    write(&root.join("c.parquet"), &batch(500, 50));
    commit(root, 1, &[add(root, "c.parquet", Some("2024-02-01"))]);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(found.files[2], FileProbe::Unknown);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 1);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[2]), rows_of(&k_values(500, 50), 3));
}

#[tokio::test]
async fn a_log_is_read_again_only_if_it_has_changed() {
    let folder = table(false, json!({}));
    let root = folder.path();
    let operations = Log::new();
    let layer = |store| Layer::over(store, &operations);
    let table = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let first = table.snapshot().await.unwrap();
    operations.clear();
    let second = table.snapshot().await.unwrap();
    assert!(first.files().is_same_list(second.files()));
    let mut requests: Vec<String> = operations.matching("_delta_log");
    requests.sort();
    let names: Vec<&str> = requests.iter().map(|operation| operation.rsplit_once('/').unwrap().1).collect();
    assert_eq!(names, ["00000000000000000000.json", "00000000000000000001.json"]);
    assert!(requests.iter().all(|operation| operation.starts_with("head ")), "{requests:?}");
    // The indexes are new, the log is not: it is not read, and the indexes are seen.
    create_indexes(&table).await;
    operations.clear();
    let indexed = table.snapshot().await.unwrap();
    assert_eq!(
        (indexed.has_indexes(), operations.matching("get").iter().any(|read| read.contains("_delta_log"))),
        (true, false)
    );
    assert!(indexed.files().is_same_list(table.snapshot().await.unwrap().files()));
    // A commit.
    write(&root.join("c.parquet"), &batch(500, 50));
    commit(root, 1, &[add(root, "c.parquet", None)]);
    let paths = |snapshot: &Snapshot| snapshot.files().iter().map(|file| file.path.clone()).collect::<Vec<_>>();
    let third = table.snapshot().await.unwrap();
    assert_eq!((third.delta_version(), paths(&third).len()), (Some(1), 3));
    assert_eq!(paths(&second), ["a.parquet", "b.parquet"], "an old snapshot keeps what it had");
    // A table that was made anew with as many commits, the last of them of the same length.
    let last = std::fs::read_to_string(root.join("_delta_log/00000000000000000001.json")).unwrap();
    std::fs::remove_dir_all(root.join("_delta_log")).unwrap();
    commit(root, 0, &[opening(false, json!({})), vec![add(root, "a.parquet", None)]].concat());
    std::fs::write(root.join("_delta_log/00000000000000000001.json"), last.replace("c.parquet", "b.parquet")).unwrap();
    assert_eq!(paths(&table.snapshot().await.unwrap()), ["a.parquet", "b.parquet"]);
    // A log that cannot be read is an error, and not what was there before.
    operations.fail_from.store(operations.count() + 1, std::sync::atomic::Ordering::SeqCst);
    assert!(table.snapshot().await.is_err());
    operations.fail_from.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    std::fs::remove_dir_all(root.join("_delta_log")).unwrap();
    assert!(table.snapshot().await.is_err());
}

#[tokio::test]
async fn of_a_log_that_grew_the_new_commits_alone_are_read() {
    let folder = table(true, json!({"delta.enableDeletionVectors": "true"}));
    let root = folder.path();
    let operations = Log::new();
    let layer = |store| Layer::over(store, &operations);
    let table = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    create_indexes(&table).await;
    table.snapshot().await.unwrap();
    let name = |version: u64| format!("{version:020}.json");
    let requests = |operations: &Log| {
        let requests = operations.matching("_delta_log").into_iter();
        let named = requests.map(|request| {
            let (verb, path) = request.split_once(' ').unwrap();
            format!("{verb} {}", path.rsplit_once('/').map_or(path, |(_, name)| name))
        });
        let mut named: Vec<String> = named.collect();
        named.sort();
        named
    };
    write(&root.join("c.parquet"), &batch(500, 50));
    commit(root, 1, &[add(root, "c.parquet", None)]);
    let mut with_vector = add(root, "a.parquet", Some("2024-01-31"));
    with_vector["add"]["deletionVector"] = inline_vector(&[3]);
    let remove = json!({"remove": {"path": "a.parquet", "deletionTimestamp": 1, "dataChange": true}});
    commit(root, 2, &[remove, with_vector]);
    operations.clear();
    let grown = table.snapshot().await.unwrap();
    let deleted: Vec<Option<u32>> = grown.files().iter().map(|file| Some(file.deleted.as_ref()?.len())).collect();
    assert_eq!((grown.delta_version(), deleted), (Some(2), vec![Some(1), None, None]));
    let [first, second, third, none] = [0, 1, 2, 3].map(name);
    let read =
        [("get", &second), ("get", &third), ("get", &none), ("head", &first), ("head", &first), ("head", &second)];
    assert_eq!(requests(&operations), read.map(|(verb, name)| format!("{verb} {name}")));
    // Which rows the vector deletes is known by the rows of the file, and these by the manifest.
    assert_eq!(operations.matching(".parquet"), Vec::<String>::new());
    operations.clear();
    table.snapshot().await.unwrap();
    assert_eq!(requests(&operations), [format!("head {third}"), format!("head {none}")]);
    // Other columns mean something for all files.
    commit(root, 3, &opening(true, json!({"delta.enableDeletionVectors": "true", "a": "b"}))[1..]);
    operations.clear();
    assert_eq!(table.snapshot().await.unwrap().delta_version(), Some(3));
    assert!(requests(&operations).iter().any(|request| request.starts_with("list")), "{:?}", requests(&operations));
}

/// A listing that is made while others commit may have their second commit and lack the first.
#[tokio::test]
async fn a_log_whose_listing_has_a_gap_is_read_again() {
    let folder = table(false, json!({}));
    let root = folder.path();
    for (version, name) in [(1, "c.parquet"), (2, "d.parquet")] {
        write(&root.join(name), &batch(500, 50));
        commit(root, version, &[add(root, name, None)]);
    }
    let operations = Log::new();
    let layer = |store| Layer::over(store, &operations);
    let table = Table::open_layered(root.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    // A snapshot that is laid over them is pinned again where it cannot be read; that of writers and migrations is not.
    // One listing looks for the last commit, the next one is the log's.
    *operations.gaps.lock().unwrap() = ("00000000000000000001.json", 2);
    let snapshot = table.snapshot_of_files().await.unwrap();
    assert_eq!((snapshot.delta_version(), snapshot.files().len()), (Some(2), 4));
    assert_eq!(operations.gaps.lock().unwrap().1, 0);
}

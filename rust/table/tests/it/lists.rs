//! Indexes on the elements of lists: NULL and empty lists, lists in structs, files that differ, merged segments, damage.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Date32Builder, Int32Array, Int32Builder, ListArray, ListBuilder, RecordBatch, StringArray,
    StringBuilder, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use lakemark_format::Key;
use lakemark_index::{KeyRanges, Leaf, Predicate, Reason, Test};
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, ProbeOptions, Table};
use parquet::arrow::ArrowWriter;
use parquet::data_type::Int32Type;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;
use tempfile::TempDir;

use crate::delta::commit;
use crate::fixture::{exact_rows, int_key, is_null, open, probe, segments, spec, spec_with, write};

const ROWS: usize = 250;

/// The tags of a row: NULL in every eleventh row, else up to three, some of them twice; none in every fifth row.
fn tags_of(row: usize) -> Option<Vec<String>> {
    let tags = (0..row % 5).map(|tag| format!("tag{}", (row * (tag % 3 + 1)) % 17));
    (!row.is_multiple_of(11)).then(|| tags.collect())
}

/// Whether a row has one of the tags.
fn has_tag(row: usize, wanted: &[&str]) -> bool {
    tags_of(row).is_some_and(|tags| tags.iter().any(|tag| wanted.contains(&tag.as_str())))
}

/// The numbers of a row: NULL where `row` is 4 of 9, with a NULL among them in every thirtieth row.
fn numbers_of(row: usize) -> Option<Vec<Option<i32>>> {
    let numbers = (0..row % 4).map(|place| (row % 30 != 7 || place > 0).then_some(((row + place * 3) % 10) as i32));
    (row % 9 != 4).then(|| numbers.collect())
}

fn tags(rows: impl Iterator<Item = usize>) -> ArrayRef {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in rows {
        for tag in tags_of(row).iter().flatten() {
            lists.values().append_value(tag);
        }
        lists.append(tags_of(row).is_some());
    }
    Arc::new(lists.finish())
}

fn numbers(rows: impl Iterator<Item = usize>) -> ArrayRef {
    let mut lists = ListBuilder::new(Int32Builder::new());
    for row in rows {
        numbers_of(row).iter().flatten().for_each(|number| lists.values().append_option(*number));
        lists.append(numbers_of(row).is_some());
    }
    Arc::new(lists.finish())
}

/// `tags`, and `s.numbers` in a struct that is NULL in every seventh row.
fn batch(first: usize) -> RecordBatch {
    let rows = || first..first + ROWS;
    let inner = numbers(rows());
    let fields = Fields::from(vec![Field::new("numbers", inner.data_type().clone(), true)]);
    let valid: Vec<bool> = rows().map(|row| !row.is_multiple_of(7)).collect();
    let s: ArrayRef = Arc::new(StructArray::new(fields, vec![inner], Some(valid.into())));
    RecordBatch::try_from_iter_with_nullable([("tags", tags(rows()), true), ("s", s, true)]).unwrap()
}

fn folder(files: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..files {
        write(&folder.path().join(format!("f{file}.parquet")), &batch(file * ROWS));
    }
    folder
}

async fn build(table: &Table, column: &str) {
    table.create_index(spec(column), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
}

fn has(column: &str, keys: Vec<Key>) -> Predicate {
    let test = Test::Elements(KeyRanges::points(keys));
    Predicate::Leaf(Leaf { column: column.to_owned(), test, text: format!("{column} has") })
}

fn text(value: &str) -> Key {
    Key::Bytes(value.as_bytes().to_vec())
}

/// Rows of a file for which a function of the table's row is true.
fn rows(file: usize, is_chosen: impl Fn(usize) -> bool) -> Vec<u32> {
    (0..ROWS as u32).filter(|row| is_chosen(file * ROWS + *row as usize)).collect()
}

#[tokio::test]
async fn rows_are_found_by_their_elements() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    let snapshot = table.snapshot().await.unwrap();
    let infos: Vec<_> =
        snapshot.indexes().into_iter().map(|info| (info.name, info.encoding.to_string(), info.files_covered)).collect();
    assert_eq!(infos, [("tags_bitmap".to_owned(), "equality".to_owned(), 3)]);
    for wanted in [&["tag3"][..], &["tag3", "tag5", "tag16"], &["nothing"], &[]] {
        let predicate = has("tags", wanted.iter().map(|tag| text(tag)).collect());
        let opposite = Predicate::Not(Box::new(predicate.clone()));
        let (found, others) = (probe(&snapshot, &predicate).await, probe(&snapshot, &opposite).await);
        for file in 0..3 {
            assert_eq!(exact_rows(&found.files[file]), rows(file, |row| has_tag(row, wanted)), "{wanted:?}");
            let without = rows(file, |row| tags_of(row).is_some() && !has_tag(row, wanted));
            assert_eq!(exact_rows(&others.files[file]), without, "{wanted:?}");
        }
    }
    let both = Predicate::And(vec![has("tags", vec![text("tag3")]), has("tags", vec![text("tag6")])]).simplify();
    let found = probe(&snapshot, &both).await;
    assert_eq!(exact_rows(&found.files[0]), rows(0, |row| has_tag(row, &["tag3"]) && has_tag(row, &["tag6"])));
    assert!(!exact_rows(&found.files[0]).is_empty());
    let found = probe(&snapshot, &is_null("tags")).await;
    assert_eq!(exact_rows(&found.files[1]), rows(1, |row| tags_of(row).is_none()));
    let report = table.verify().await.unwrap();
    assert!(report.is_ok() && report.indexes[0].files_ok == 3, "{report:?}");
}

#[tokio::test]
async fn one_element_is_counted_without_its_rows() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    let snapshot = table.snapshot().await.unwrap();
    let read = std::cell::Cell::new(0);
    let options = ProbeOptions { count_only: true, selection_cache: false, ..ProbeOptions::default() };
    let counted = async |predicate: &Predicate| {
        let found = snapshot.probe(predicate, &options).await.unwrap();
        // The rows of a file need postings.
        read.set(found.report.index_bytes_read);
        let of_file = |file: &FileProbe| match file {
            FileProbe::Counted { rows } => *rows,
            other => panic!("not counted: {other:?}"),
        };
        found.files.iter().map(of_file).sum::<u64>()
    };
    let expected = |wanted: &[&str]| {
        let is_in = |row: &usize| has_tag(*row, wanted);
        (0..2 * ROWS).filter(is_in).count() as u64
    };
    // The directory is read once.
    assert_eq!(counted(&has("tags", vec![text("nothing")])).await, 0);
    assert_eq!(counted(&has("tags", vec![text("tag3")])).await, expected(&["tag3"]));
    let of_one = read.get();
    // A row that has both counts once.
    assert_eq!(counted(&has("tags", vec![text("tag3"), text("tag6")])).await, expected(&["tag3", "tag6"]));
    assert!(of_one < read.get(), "{of_one} of {}", read.get());
    assert!(expected(&["tag3", "tag6"]) < expected(&["tag3"]) + expected(&["tag6"]));
}

#[tokio::test]
async fn a_list_in_a_struct_is_null_where_the_struct_is() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    build(&table, "s.numbers").await;
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &has("s\0numbers", vec![int_key(3)])).await;
    let numbers = |row: usize| numbers_of(row).filter(|_| !row.is_multiple_of(7));
    for (file, found) in found.files.iter().enumerate() {
        let FileProbe::Known { exact, recheck, .. } = found else { panic!("{found:?}") };
        let is_open = |row: usize| numbers(row).is_some_and(|numbers| numbers.contains(&None));
        let has_it = |row: usize| numbers(row).is_some_and(|numbers| numbers.contains(&Some(3)));
        assert_eq!(exact.iter().collect::<Vec<_>>(), rows(file, |row| has_it(row) && !is_open(row)));
        assert_eq!(recheck.iter().collect::<Vec<_>>(), rows(file, is_open));
        assert!(!recheck.is_empty());
    }
    let found = probe(&snapshot, &is_null("s\0numbers")).await;
    assert_eq!(exact_rows(&found.files[1]), rows(1, |row| numbers(row).is_none()));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn segments_of_lists_are_merged() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    for file in 1..4 {
        write(&folder.path().join(format!("f{file}.parquet")), &batch(file * ROWS));
        table.build(BuildOptions::default()).await.unwrap();
    }
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].segments, 4);
    table.compact(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.indexes()[0].segments, snapshot.indexes()[0].files_covered), (1, 4));
    let found = probe(&snapshot, &has("tags", vec![text("tag3")])).await;
    for file in 0..4 {
        let has_it = |row: usize| has_tag(row, &["tag3"]);
        assert_eq!(exact_rows(&found.files[file]), rows(file, has_it));
    }
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_file_without_the_lists_is_one_of_nulls() {
    let folder = folder(1);
    let other: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    write(&folder.path().join("other.parquet"), &RecordBatch::try_from_iter([("x", other)]).unwrap());
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    let snapshot = table.snapshot().await.unwrap();
    let place = snapshot.files().iter().position(|file| file.path == "other.parquet").unwrap();
    let found = probe(&snapshot, &has("tags", vec![text("tag3")])).await;
    assert_eq!(exact_rows(&found.files[place]), [0; 0]);
    assert_eq!(exact_rows(&probe(&snapshot, &is_null("tags")).await.files[place]), [0, 1, 2]);
}

#[tokio::test]
async fn what_lists_cannot_have_is_refused() {
    let folder = folder(1);
    let nested = ListBuilder::new(ListBuilder::new(Int32Builder::new())).finish();
    let nested: ArrayRef = Arc::new(ListArray::from(arrow::array::new_null_array(nested.data_type(), 3).to_data()));
    let flat: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let columns = RecordBatch::try_from_iter_with_nullable([("nested", nested, true), ("flat", flat, true)]).unwrap();
    write(&folder.path().join("other.parquet"), &columns);
    let table = open(folder.path()).await;
    let refused = async |spec: IndexSpec| {
        let error = table.create_index(spec, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        error.message().to_owned()
    };
    for (option, value, given) in [("encoding", "binary", "binary"), ("encoding", "range-equality", "range-equality")] {
        let message = refused(spec_with("tags", option, value)).await;
        assert!(message.ends_with(&format!("encoding equality, and {given} was asked for; leave it out")), "{message}");
    }
    for kind in ["key", "bloom_tree", "summary"] {
        let message = refused(IndexSpec { kind: IndexKind::from_name(kind), ..spec("tags") }).await;
        assert!(message.ends_with(&format!("encoding equality, and {kind} was asked for; leave it out")), "{message}");
    }
    let several = IndexSpec { columns: vec!["flat".to_owned(), "tags".to_owned()], ..IndexSpec::default() };
    assert!(refused(several).await.starts_with("tags has lists, of which each row has several keys"));
    let message = refused(spec("nested")).await;
    assert!(message.ends_with("index flat columns, lists of flat values and fields of structs"), "{message}");
    let precise = table.create_index(spec_with("tags", "precision", "2"), false).await.unwrap_err();
    assert_eq!(
        precise.message(),
        "tags: there is no precision on lists; integers, floats, decimals of up to 18 digits, dates and timestamps have one"
    );
}

/// Values of other calendars are read differently by engines, inside of lists as well.
#[tokio::test]
async fn lists_of_dates_of_another_calendar_are_left_to_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let mut days = ListBuilder::new(Date32Builder::new());
    days.values().append_value(-200_000);
    days.append(true);
    let days: ArrayRef = Arc::new(days.finish());
    let batch = RecordBatch::try_from_iter([("days", days), ("tags", tags(1..2))]).unwrap();
    let old = KeyValue::new("org.apache.spark.version".to_owned(), "2.4.8".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![old])).build();
    let file = File::create(folder.path().join("old.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let table = open(folder.path()).await;
    build(&table, "days").await;
    build(&table, "tags").await;
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &has("days", vec![int_key(-200_000)])).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::CalendarRebased)));
    let found = probe(&snapshot, &has("tags", vec![text("tag1")])).await;
    assert_eq!(exact_rows(&found.files[0]), [0]);
}

/// A test of values is not answered by an index on elements, and the other way round.
#[tokio::test]
async fn tests_of_values_and_of_elements_are_not_mixed_up() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    let snapshot = table.snapshot().await.unwrap();
    let ranges = KeyRanges::point(text("tag3"));
    let leaf = Leaf { column: "tags".to_owned(), test: Test::Ranges(ranges), text: String::new() };
    let found = probe(&snapshot, &Predicate::Leaf(leaf)).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::NoIndex)));
    assert!(snapshot.is_prunable("tags") && !snapshot.supports_index_only("tags"));
}

#[tokio::test]
async fn a_damaged_segment_of_lists_is_scanned() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    build(&table, "tags").await;
    let segment = segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let found = probe(&snapshot, &has("tags", vec![text("tag3")])).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::SegmentCorrupt)));
}

/// Files of a Delta table may have something else than its schema says: engines bring it together, or refuse to.
#[tokio::test]
async fn other_values_in_place_of_lists_are_left_to_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let file = |name: &str, values: ArrayRef| {
        write(&root.join(name), &RecordBatch::try_from_iter_with_nullable([("tags", values, true)]).unwrap());
        json!({"add": {"path": name, "partitionValues": {}, "size": std::fs::metadata(root.join(name)).unwrap().len(),
            "modificationTime": 0, "dataChange": true}})
    };
    let flat: ArrayRef = Arc::new(StringArray::from(vec!["tag3"]));
    let element: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let fields = Fields::from(vec![Field::new("x", DataType::Int32, true)]);
    let structs: ArrayRef = Arc::new(StructArray::new(fields, vec![element], None));
    let item = Arc::new(Field::new("item", structs.data_type().clone(), true));
    let of_structs: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2]), structs, None));
    let adds = [file("a.parquet", tags(0..ROWS)), file("b.parquet", flat), file("c.parquet", of_structs)];
    let kind = json!({"type": "array", "elementType": "string", "containsNull": true});
    let fields = json!([{"name": "tags", "type": kind, "nullable": true, "metadata": {}}]);
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
    let metadata = json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": [], "configuration": {}}});
    commit(root, 0, &[vec![protocol, metadata], adds.to_vec()].concat());
    let table = open(root).await;
    table.create_index(spec("tags"), false).await.unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    let declined: Vec<_> = report.declined.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(declined, ["b.parquet", "c.parquet"]);
    assert!(report.declined[0].problem.starts_with("tags has other values there than the lists of the table"));
    let found = probe(&table.snapshot().await.unwrap(), &has("tags", vec![text("tag3")])).await;
    let has_it = |row: usize| has_tag(row, &["tag3"]);
    assert_eq!(exact_rows(&found.files[0]), rows(0, has_it));
    assert_eq!([&found.files[1], &found.files[2]], [&FileProbe::Unknown; 2]);
}

/// A column that repeats by itself, as protocol buffers are written, and a list of two levels.
#[tokio::test]
async fn lists_of_old_writers_are_read_as_lists() {
    let folder = tempfile::tempdir().unwrap();
    let schema = "message m { repeated int32 plain; optional group two (LIST) { repeated int32 array; } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = File::create(folder.path().join("old.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::new())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    // Rows [7, 8], [], [8]; and [5], NULL, [].
    for (values, definition, repetition) in
        [(vec![7, 8, 8], vec![1, 1, 0, 1], vec![0, 1, 0, 0]), (vec![5], vec![2, 0, 1], vec![0, 0, 0])]
    {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&values, Some(&definition), Some(&repetition)).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
    let table = open(folder.path()).await;
    build(&table, "plain").await;
    build(&table, "two").await;
    let snapshot = table.snapshot().await.unwrap();
    for (column, key, expected, nulls) in [
        ("plain", 8, vec![0, 2], vec![]),
        ("plain", 7, vec![0], vec![]),
        ("two", 5, vec![0], vec![1]),
        ("two", 7, vec![], vec![1]),
    ] {
        let found = probe(&snapshot, &has(column, vec![int_key(key)])).await;
        assert_eq!(exact_rows(&found.files[0]), expected, "{column} {key}");
        assert_eq!(exact_rows(&probe(&snapshot, &is_null(column)).await.files[0]), nulls, "{column}");
    }
}

/// Rows do not bound how many elements there are.
#[tokio::test]
async fn a_file_whose_lists_do_not_fit_into_memory_is_left_out_and_the_report_says_so() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    table.create_index(spec("tags"), false).await.unwrap();
    let build = |bytes| table.build(BuildOptions { memory_bytes: Some(bytes), ..BuildOptions::default() });
    let report = build(1000).await.unwrap();
    assert_eq!((report.files, report.failed.len()), (0, 1));
    let problem = &report.failed[0].problem;
    assert!(problem.contains("sorting them takes") && problem.contains("--memory"), "{problem}");
    // Enough for one row group, and not for all of them at once.
    build(9000).await.unwrap();
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].coverage, 1.0);
}

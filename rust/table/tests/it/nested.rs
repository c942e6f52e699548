//! Indexes on fields of structs: NULL structs, names with dots, files without the field, renamed fields, damage.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Date32Array, Int32Array, Int32Builder, MapBuilder, RecordBatch, StringArray, StringBuilder,
    StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use lakemark_format::Key;
use lakemark_index::{KeyRanges, Reason};
use lakemark_table::{BuildOptions, ErrorKind, FileProbe, Table};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::delta::commit;
use crate::fixture::{
    create_indexes, equals, exact_rows, is_null, k_values, leaf, open, probe, rows_of, spec, spec_with, write,
};

const ROWS: usize = 250;

/// A struct of these fields, NULL where a row is not valid.
fn structure(fields: Vec<(&str, ArrayRef)>, valid: impl Fn(usize) -> bool) -> ArrayRef {
    let rows = fields[0].1.len();
    let named = |(name, values): &(&str, ArrayRef)| Field::new(*name, values.data_type().clone(), true);
    let names: Fields = fields.iter().map(named).collect();
    let valid: NullBuffer = (0..rows).map(valid).collect::<Vec<_>>().into();
    Arc::new(StructArray::new(names, fields.into_iter().map(|(_, values)| values).collect(), Some(valid)))
}

/// Rows of `s`: NULL in every eleventh row, `f` as [`k_values`] has it, `t` NULL in every fifth row, and in it `g` and `day`.
fn s(first: usize) -> ArrayRef {
    let rows = || first..first + ROWS;
    let g: StringArray = rows().map(|row| (row % 3 != 0).then(|| format!("g{}", row % 4))).collect();
    let day: Date32Array = rows().map(|row| Some((row % 6) as i32)).collect();
    let inner =
        structure(vec![("g", Arc::new(g) as ArrayRef), ("day", Arc::new(day))], |row| !(first + row).is_multiple_of(5));
    let f: ArrayRef = Arc::new(Int32Array::from(k_values(first, ROWS)));
    structure(vec![("f", f), ("t", inner)], |row| !(first + row).is_multiple_of(11))
}

fn f_values(first: usize) -> Vec<Option<i32>> {
    let rows = (first..).zip(k_values(first, ROWS));
    rows.map(|(row, value)| value.filter(|_| row % 11 != 0)).collect()
}

/// `s`, and a column whose name is the way to its field.
fn rows(first: usize) -> RecordBatch {
    let dotted: ArrayRef = Arc::new(Int32Array::from_iter_values((0..ROWS).map(|row| row as i32 % 3)));
    RecordBatch::try_from_iter_with_nullable([("s", s(first), true), ("s.f", dotted, true)]).unwrap()
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..2 {
        write(&folder.path().join(format!("f{file}.parquet")), &rows(file * ROWS));
    }
    folder
}

async fn build(table: &Table, column: &str) {
    table.create_index(spec(column), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
}

fn text_is(column: &str, value: &str) -> lakemark_index::Predicate {
    leaf(column, KeyRanges::point(Key::Bytes(value.as_bytes().to_vec())))
}

#[tokio::test]
async fn a_field_is_null_where_a_struct_around_it_is() {
    for encoding in ["equality", "binary", "range", "interval", "interval-equality", "range-equality"] {
        let folder = folder();
        let table = open(folder.path()).await;
        table.create_index(spec_with("\"s\".\"f\"", "encoding", encoding), false).await.unwrap();
        table.create_index(spec_with("s.t.g", "encoding", encoding), false).await.unwrap();
        table.build(BuildOptions::default()).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        for (file, first) in [(0, 0), (1, ROWS)] {
            let values = f_values(first);
            let found = probe(&snapshot, &equals("s\0f", 3)).await;
            assert_eq!(exact_rows(&found.files[file]), rows_of(&values, 3), "{encoding}");
            let found = probe(&snapshot, &is_null("s\0f")).await;
            let nulls: Vec<u32> = (0..).zip(&values).filter(|(_, value)| value.is_none()).map(|(row, _)| row).collect();
            assert_eq!(exact_rows(&found.files[file]), nulls, "{encoding}");
            let found = probe(&snapshot, &text_is("s\0t\0g", "g2")).await;
            let expected = (0..ROWS as u32).filter(|row| {
                let row = first as u32 + row;
                row % 4 == 2 && ![3, 5, 11].iter().any(|step| row.is_multiple_of(*step))
            });
            assert_eq!(exact_rows(&found.files[file]), expected.collect::<Vec<_>>(), "{encoding}");
        }
        let verified = table.verify().await.unwrap();
        assert!(verified.is_ok() && verified.indexes.iter().all(|index| index.files_ok == 2), "{verified:?}");
    }
}

#[tokio::test]
async fn a_column_with_a_dot_in_its_name_is_not_the_field() {
    let folder = folder();
    let table = open(folder.path()).await;
    build(&table, "s.f").await;
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("s.f", 1)).await;
    assert_eq!(exact_rows(&found.files[0]), (0..ROWS as u32).filter(|row| row % 3 == 1).collect::<Vec<_>>());
    let found = probe(&snapshot, &equals("s\0f", 1)).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::NoIndex)));
    build(&table, "\"s\".f").await;
    build(&table, "s.t.g").await;
    let snapshot = table.snapshot().await.unwrap();
    let infos: Vec<_> = snapshot.indexes().into_iter().map(|info| (info.name, info.column, info.data_type)).collect();
    let expected = [("\"s\".\"f\"", "Int32"), ("s.f", "Int32"), ("s.t.g", "Utf8")];
    let expected = expected.map(|(column, kind)| (format!("{column}_bitmap"), column.to_owned(), kind.to_owned()));
    assert_eq!(infos, expected);
    for (text, name) in [("s.f", "s.f"), ("\"s\".\"f\"", "s\0f"), ("s.t.g", "s\0t\0g")] {
        assert_eq!(snapshot.resolve(text).as_deref(), Some(name));
        assert_eq!(snapshot.display_name(name), text);
    }
    let found = probe(&snapshot, &equals("s\0f", 1)).await;
    assert_eq!(found.report.leaves[0].column.as_deref(), Some("\"s\".\"f\""));
    assert_eq!(exact_rows(&found.files[0]), rows_of(&f_values(0), 1));
}

#[tokio::test]
async fn what_is_no_field_is_refused_with_what_there_is() {
    let folder = folder();
    let table = open(folder.path()).await;
    let refused = async |column: &str| table.create_index(spec(column), false).await.unwrap_err();
    let error = refused("s.x").await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let inside = "inside of them are \"s\".\"f\", s.t.g, s.t.day";
    assert_eq!(error.message(), format!("there is no column s.x; the table has s, s.f; {inside}"));
    let error = refused("s").await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().ends_with("index a field of it: \"s\".\"f\", s.t.g, s.t.day"), "{error}");
    assert!(refused("s.t").await.message().ends_with("index a field of it: s.t.g, s.t.day"));
    assert_eq!(refused("s.f.g").await.kind(), ErrorKind::NotFound);
}

/// Arrow's readers give such a field a value where its struct is NULL, and engines take that for the field's value.
#[tokio::test]
async fn a_required_field_of_an_optional_struct_is_left_to_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let fields = Fields::from(vec![Field::new("f", DataType::Int32, false)]);
    let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let of = |nulls: Option<NullBuffer>| -> ArrayRef {
        Arc::new(StructArray::new(fields.clone(), vec![Arc::clone(&values)], nulls))
    };
    let batch = |values: ArrayRef, nullable: bool| RecordBatch::try_from_iter_with_nullable([("s", values, nullable)]);
    write(&folder.path().join("optional.parquet"), &batch(of(Some(vec![true, false, true].into())), true).unwrap());
    write(&folder.path().join("required.parquet"), &batch(of(None), false).unwrap());
    let table = open(folder.path()).await;
    table.create_index(spec("s.f"), false).await.unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.declined.len()), (1, 1));
    assert_eq!(report.declined[0].path, "optional.parquet");
    assert!(report.declined[0].problem.starts_with("it says that s.f is never NULL and its struct may be"));
    let found = probe(&table.snapshot().await.unwrap(), &equals("s\0f", 2)).await;
    assert_eq!((&found.files[0], exact_rows(&found.files[1])), (&FileProbe::Unknown, vec![1]));
    assert_eq!(found.report.leaves[0].reason, Some(Reason::FileNotCovered));
}

/// Spark before 3.0 wrote days of the hybrid calendar, also into structs.
#[tokio::test]
async fn days_of_another_calendar_are_left_to_the_engine_and_their_neighbours_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable([("s", s(0), true)]).unwrap();
    let writer = |name: &str, version: &str| {
        let version = KeyValue::new("org.apache.spark.version".to_owned(), version.to_owned());
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![version])).build();
        let file = File::create(folder.path().join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    writer("new.parquet", "3.5.1");
    writer("old.parquet", "2.4.8");
    let table = open(folder.path()).await;
    table.create_index(spec("s.t.day"), false).await.unwrap();
    table.create_index(spec("s.f"), false).await.unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    let declined: Vec<_> = report.declined.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(declined, ["old.parquet"]);
    assert!(report.declined[0].problem.starts_with("its writer says that s.t.day is of the hybrid Julian calendar"));
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("s\0t\0day", 2)).await;
    assert_eq!(found.files[1], FileProbe::Unknown);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::CalendarRebased));
    let expected = (0..ROWS as u32).filter(|row| row % 6 == 2 && row % 5 != 0 && row % 11 != 0);
    assert_eq!(exact_rows(&found.files[0]), expected.collect::<Vec<_>>());
    let found = probe(&snapshot, &equals("s\0f", 2)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&f_values(0), 2));
}

#[tokio::test]
async fn damage_is_found_and_touched_files_keep_their_indexes() {
    let folder = folder();
    let table = open(folder.path()).await;
    build(&table, "s.t.g").await;
    let touched = File::options().append(true).open(folder.path().join("f0.parquet")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1)).unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &text_is("s\0t\0g", "g2")).await;
    assert!(matches!(&found.files[0], FileProbe::Known { exact, .. } if !exact.is_empty()), "by its hashes");
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().adopted, 1);

    let index_files = folder.path().join("_lakemark/indexes");
    let segment = std::fs::read_dir(index_files).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[80] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let verified = table.verify().await.unwrap();
    assert_eq!(verified.indexes[0].damaged.len(), 1, "{verified:?}");
}

/// A field of the log: shown name, stored name, type.
fn field(shown: &str, stored: &str, kind: Value) -> Value {
    let id = stored.bytes().last();
    json!({"name": shown, "type": kind, "nullable": true,
        "metadata": {"delta.columnMapping.id": id, "delta.columnMapping.physicalName": stored}})
}

fn metadata(mode: &str, fields: &[Value]) -> Value {
    json!({"metaData": {"id": "4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11", "format": {"provider": "parquet", "options": {}},
        "schemaString": json!({"type": "struct", "fields": fields}).to_string(), "partitionColumns": [],
        "configuration": {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "255"}, "createdTime": 0}})
}

fn add(root: &Path, path: &str) -> Value {
    let size = std::fs::metadata(root.join(path)).unwrap().len();
    json!({"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1_700_000_000_000u64, "dataChange": true}})
}

fn of_struct(fields: &[Value]) -> Value {
    json!({"type": "struct", "fields": fields})
}

#[tokio::test]
async fn an_index_follows_its_field_when_that_or_its_struct_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let values = |first| -> ArrayRef { Arc::new(Int32Array::from(k_values(first, ROWS))) };
    let stored = structure(vec![("col-a", values(0)), ("col-b", values(7))], |row| row % 11 != 0);
    write(&root.join("a.parquet"), &RecordBatch::try_from_iter_with_nullable([("col-s", stored, true)]).unwrap());
    let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
    let inside =
        |a: &str, b: &str| of_struct(&[field(a, "col-a", json!("integer")), field(b, "col-b", json!("integer"))]);
    commit(root, 0, &[protocol, metadata("name", &[field("s", "col-s", inside("a", "b"))]), add(root, "a.parquet")]);
    let table = open(root).await;
    build(&table, "s.a").await;
    let expected: Vec<u32> = rows_of(&f_values(0), 3);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(exact_rows(&probe(&snapshot, &equals("s\0a", 3)).await.files[0]), expected);
    assert_eq!(table.create_index(spec("col-s.col-a"), false).await.unwrap_err().kind(), ErrorKind::NotFound);
    // The fields change their names among themselves, and their struct has another.
    commit(root, 1, &[metadata("name", &[field("p", "col-s", inside("b", "a"))])]);
    let snapshot = table.snapshot().await.unwrap();
    let info = &snapshot.indexes()[0];
    assert_eq!((info.column.as_str(), info.data_type.as_str(), info.coverage), ("p.b", "Int32", 1.0));
    assert_eq!(exact_rows(&probe(&snapshot, &equals("p\0b", 3)).await.files[0]), expected);
    let found = probe(&snapshot, &equals("p\0a", 3)).await;
    assert_eq!((&found.files[0], found.report.leaves[0].reason), (&FileProbe::Unknown, Some(Reason::NoIndex)));
    assert!(table.verify().await.unwrap().is_ok());
    // The field is dropped, and another one takes its name.
    let left = of_struct(&[field("a", "col-b", json!("integer")), field("b", "col-9", json!("integer"))]);
    commit(root, 2, &[metadata("name", &[field("p", "col-s", left)])]);
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.indexes()[0].data_type.as_str(), snapshot.indexes()[0].coverage), ("gone", 0.0));
    let found = probe(&snapshot, &is_null("p\0b")).await;
    assert_eq!(exact_rows(&found.files[0]).len(), ROWS, "the file has no such field");
}

#[tokio::test]
async fn files_from_before_a_field_was_added_are_files_of_nulls() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let f = || -> ArrayRef { Arc::new(Int32Array::from(k_values(0, ROWS))) };
    let g = || -> ArrayRef { Arc::new(Int32Array::from(k_values(3, ROWS))) };
    let file = |name: &str, columns: Vec<(&str, ArrayRef)>| {
        let columns = columns.into_iter().map(|(name, values)| (name, values, true));
        write(&root.join(name), &RecordBatch::try_from_iter_with_nullable(columns).unwrap());
        add(root, name)
    };
    let adds = [
        file("a.parquet", vec![("k", f())]),
        file("b.parquet", vec![("k", f()), ("s", structure(vec![("f", f())], |_| true))]),
        file("c.parquet", vec![("k", f()), ("s", structure(vec![("f", f()), ("g", g())], |row| row % 2 == 0))]),
        file("d.parquet", vec![("k", f()), ("s", structure(vec![("other", f())], |_| true))]),
    ];
    let plain = |name: &str, kind: Value| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let inner = of_struct(&[plain("f", json!("integer")), plain("g", json!("integer"))]);
    let fields = [plain("k", json!("integer")), plain("s", inner)];
    let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
    commit(root, 0, &[vec![protocol, metadata("none", &fields)], adds.to_vec()].concat());
    let table = open(root).await;
    create_indexes(&table).await;
    table.create_index(spec("s.g"), false).await.unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    let declined: Vec<_> = report.declined.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(declined, ["d.parquet"], "a struct with nothing in common is an error to engines");
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &is_null("s\0g")).await;
    assert_eq!((exact_rows(&found.files[0]).len(), exact_rows(&found.files[1]).len()), (ROWS, ROWS));
    let found = probe(&snapshot, &equals("s\0g", 4)).await;
    let even = rows_of(&k_values(3, ROWS), 4).into_iter().filter(|row| row % 2 == 0);
    assert_eq!((exact_rows(&found.files[1]), exact_rows(&found.files[2])), (vec![], even.collect::<Vec<_>>()));
    assert_eq!(found.files[3], FileProbe::Unknown);
    assert!(table.verify().await.unwrap().is_ok());
    // What files lack is known from the manifest, without an index on the field.
    table.drop_index("s.g_bitmap", false).await.unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &is_null("s\0g")).await;
    assert_eq!((exact_rows(&found.files[1]).len(), &found.files[2]), (ROWS, &FileProbe::Unknown));
}

#[tokio::test]
async fn advice_looks_into_structs() {
    let folder = tempfile::tempdir().unwrap();
    let rows = 0..200_000;
    let n: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.clone().map(|row| row * 7919 % 1000)));
    let g: StringArray = rows.map(|row| Some(format!("a rather long text {}", row * 31 % 5000))).collect();
    let s = structure(vec![("n", n), ("g", Arc::new(g))], |_| true);
    let batch = RecordBatch::try_from_iter_with_nullable([("s", s, true)]).unwrap();
    let file = File::create(folder.path().join("a.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let table = open(folder.path()).await;
    let mut columns: Vec<String> =
        table.advise(None).await.unwrap().indexes.into_iter().map(|proposal| proposal.column).collect();
    columns.sort();
    assert_eq!(columns, ["s.g", "s.n"]);
    for column in &columns {
        table.create_index(spec(column), false).await.unwrap();
    }
    assert_eq!(table.advise(None).await.unwrap().indexes.len(), 0, "fields that have an index get no other");
}

/// Rows of maps: `k` as [`k_values`] has it, missing in every third row, and other entries.
fn maps(first: usize) -> ArrayRef {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for (row, value) in (first..).zip(k_values(first, ROWS)) {
        for (key, value) in [("a", Some(1)), ("k", value), ("z.z", Some(2))] {
            if key != "k" || !row.is_multiple_of(3) {
                maps.keys().append_value(key);
                maps.values().append_option(value);
            }
        }
        maps.append(true).unwrap();
    }
    Arc::new(maps.finish())
}

#[tokio::test]
async fn the_values_of_a_key_are_indexed_verified_and_follow_their_map() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let file = |name: &str, column: &str, values: ArrayRef| {
        write(&root.join(name), &RecordBatch::try_from_iter_with_nullable([(column, values, true)]).unwrap());
        add(root, name)
    };
    let adds = [file("a.parquet", "col-m", maps(0)), file("b.parquet", "col-x", s(0))];
    let map = json!({"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": true});
    let protocol = json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}});
    let named = |shown: &str| metadata("name", &[field(shown, "col-m", map.clone())]);
    commit(root, 0, &[vec![protocol, named("m")], adds.to_vec()].concat());
    let table = open(root).await;
    build(&table, "m.k").await;
    build(&table, "m.\"z.z\"").await;
    assert!(table.create_index(spec("m"), false).await.unwrap_err().message().contains("as in map.key"));
    let values: Vec<Option<i32>> =
        (0..).zip(k_values(0, ROWS)).map(|(row, value): (usize, _)| value.filter(|_| !row.is_multiple_of(3))).collect();
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("m\0k", 3)).await;
    assert_eq!((exact_rows(&found.files[0]), exact_rows(&found.files[1])), (rows_of(&values, 3), vec![]));
    let found = probe(&snapshot, &is_null("m\0k")).await;
    assert_eq!(exact_rows(&found.files[0]).len(), values.iter().filter(|value| value.is_none()).count());
    assert_eq!(exact_rows(&found.files[1]).len(), ROWS, "a file without the map");
    assert_eq!(exact_rows(&probe(&snapshot, &equals("m\0z.z", 2)).await.files[0]).len(), ROWS);
    assert!(table.verify().await.unwrap().is_ok());
    commit(root, 1, &[named("renamed")]);
    let snapshot = table.snapshot().await.unwrap();
    let columns: Vec<String> = snapshot.indexes().into_iter().map(|index| index.column).collect();
    assert_eq!(columns, ["renamed.\"z.z\"", "renamed.k"]);
    assert_eq!(exact_rows(&probe(&snapshot, &equals("renamed\0k", 3)).await.files[0]), rows_of(&values, 3));
}

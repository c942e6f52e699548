//! The statistics of a log, as exact JSON.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use object_store::memory::InMemory;
use object_store::path::Path;
use serde_json::{Value, json};

use crate::rewrite::RowBlock;
use crate::rewrite::encode::encode_new;
use crate::rewrite::indexed_columns::IndexedColumns;
use crate::rewrite::row_block::NumberedRows;
use crate::rewrite::stats::stats_of;
use crate::rewrite::target::{FileTarget, WrittenFile};
use crate::rewrite::writer::{FileWriter, StartedFile, new_properties};

/// Writes a file with a row group for each batch.
async fn written(batches: &[RecordBatch]) -> (WrittenFile, FileTarget<'static>) {
    let target = FileTarget {
        object_store: Arc::new(InMemory::new()),
        prefix: Path::default(),
        local: None,
        schema: batches[0].schema(),
        file_bytes: 0,
        columns_are_in_files: false,
        tracks_nan: true,
        row_ids: None,
        changes: None,
        spark_schema: None,
        path: &|_, _, _| Ok("a.parquet".to_owned()),
    };
    let StartedFile { mut writer, factory } = FileWriter::start(&target, 0, None, &[], &new_properties()).unwrap();
    for batch in batches {
        let part: Arc<dyn RowBlock> = Arc::new(batch.clone());
        let source = NumberedRows::new(&[part], batch.schema().fields(), &batch.schema()).unwrap();
        let rows: Vec<u32> = (0..batch.num_rows() as u32).collect();
        writer.append(encode_new(&rows, &source, &factory, None).await.unwrap()).await.unwrap();
    }
    (writer.finish(None).await.unwrap(), target)
}

async fn stats(batches: &[RecordBatch]) -> Value {
    let (file, target) = written(batches).await;
    serde_json::from_str(&stats_of(&file, &target.schema, &IndexedColumns::All)).unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

#[tokio::test]
async fn bounds_are_written_as_delta_writes_them() {
    let decimals = |values: Vec<Option<i128>>, precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
    };
    let moments = |values: [i64; 3]| TimestampMicrosecondArray::from(values.to_vec());
    let rows = batch(vec![
        ("byte", Arc::new(Int8Array::from(vec![Some(-3), None, Some(5)]))),
        ("short", Arc::new(Int16Array::from(vec![7, -300, 20]))),
        ("long", Arc::new(Int64Array::from(vec![i64::MAX, 0, i64::MIN]))),
        ("float", Arc::new(Float32Array::from(vec![0.5, -1.25, 3.0]))),
        ("double", Arc::new(Float64Array::from(vec![Some(0.1), None, None]))),
        ("text", Arc::new(StringArray::from(vec!["b", "ä", "a"]))),
        ("truth", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]))),
        ("bytes", Arc::new(BinaryArray::from(vec![b"a".as_slice(), b"b", b"c"]))),
        ("day", Arc::new(Date32Array::from(vec![-1, 0, 19753]))),
        ("at", Arc::new(moments([-1, 1_706_702_400_123_001, 0]).with_timezone("UTC"))),
        ("local", Arc::new(moments([1_500, 2_000, 2_000]))),
        ("price", decimals(vec![Some(-1205), Some(1230), None], 7, 2)),
        ("whole", decimals(vec![Some(12), Some(-7), None], 5, 0)),
        ("huge", decimals(vec![Some(10i128.pow(20)), Some(1), None], 38, 2)),
        ("none", Arc::new(Int64Array::from(vec![None, None, None]))),
        (
            "point",
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("x", DataType::Int64, true)),
                Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef,
            )])),
        ),
    ]);
    let want = json!({
        "numRecords": 3,
        "minValues": {"byte": -3, "short": -300, "long": i64::MIN, "float": -1.25, "double": 0.1, "text": "a",
            "day": "1969-12-31", "at": "1969-12-31T23:59:59.999Z", "local": "1970-01-01T00:00:00.001",
            "price": -12.05, "whole": -7, "point": {"x": 1}},
        "maxValues": {"byte": 5, "short": 20, "long": i64::MAX, "float": 3.0, "double": 0.1, "text": "ä",
            "day": "2024-01-31", "at": "2024-01-31T12:00:00.124Z", "local": "1970-01-01T00:00:00.002",
            "price": 12.3, "whole": 12, "point": {"x": 3}},
        "nullCount": {"byte": 1, "short": 0, "long": 0, "float": 0, "double": 2, "text": 0, "truth": 1, "bytes": 0,
            "day": 0, "at": 0, "local": 0, "price": 1, "whole": 1, "huge": 1, "none": 3, "point": {"x": 0}}
    });
    assert_eq!(stats(&[rows]).await, want);
}

#[tokio::test]
async fn row_groups_are_taken_together() {
    let group = |values: [Option<i64>; 2], text: [&str; 2]| {
        let text: ArrayRef = Arc::new(StringArray::from(text.to_vec()));
        batch(vec![("n", Arc::new(Int64Array::from(values.to_vec()))), ("t", text)])
    };
    let long = "x".repeat(200);
    let groups =
        [group([Some(4), None], ["m", "n"]), group([None, None], ["b", "c"]), group([Some(-9), Some(2)], ["a", &long])];
    let stats = stats(&groups).await;
    assert_eq!((&stats["numRecords"], &stats["nullCount"]), (&json!(6), &json!({"n": 3, "t": 0})));
    assert_eq!((&stats["minValues"], &stats["maxValues"]["n"]), (&json!({"n": -9, "t": "a"}), &json!(4)));
    // Long text is cut, and what is left is a bound.
    let most = stats["maxValues"]["t"].as_str().unwrap();
    assert_eq!(most, format!("{}\u{10ffff}", "x".repeat(32)));
}

#[tokio::test]
async fn columns_with_nan_and_infinity_have_no_bounds() {
    let rows = batch(vec![
        ("nan", Arc::new(Float64Array::from(vec![1.0, f64::NAN]))),
        ("infinite", Arc::new(Float32Array::from(vec![1.0, f32::INFINITY]))),
        ("zero", Arc::new(Float64Array::from(vec![0.0, -0.0]))),
    ]);
    let want = json!({"numRecords": 2, "minValues": {"zero": -0.0}, "maxValues": {"zero": 0.0},
        "nullCount": {"nan": 0, "infinite": 0, "zero": 0}});
    assert_eq!(stats(&[rows]).await, want);
}

#[tokio::test]
async fn fields_of_structs_have_statistics_within_those_of_their_structs() {
    let field = |name: &str, values: ArrayRef| (Arc::new(Field::new(name, values.data_type().clone(), true)), values);
    let inner = StructArray::from(vec![
        field("x", Arc::new(Float64Array::from(vec![Some(1.5), Some(2.0), None]))),
        field("nan", Arc::new(Float64Array::from(vec![1.0, f64::NAN, 2.0]))),
    ]);
    let numbers = Int64Array::from(vec![1, 2, 3, 4]);
    let lists = ListArray::new(
        Arc::new(Field::new("element", DataType::Int64, true)),
        OffsetBuffer::from_lengths([1, 0, 3]),
        Arc::new(numbers),
        None,
    );
    let fields = vec![
        field("city", Arc::new(StringArray::from(vec![Some("Oslo"), None, Some("Rom")]))),
        field("visits", Arc::new(lists)),
        field("at", Arc::new(inner)),
    ];
    let (fields, columns): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let valid = NullBuffer::from(vec![true, true, false]);
    let place: ArrayRef = Arc::new(StructArray::new(fields.into(), columns, Some(valid)));
    let rows = batch(vec![("place", place), ("k", Arc::new(Int64Array::from(vec![7, 8, 9])))]);
    // What is in a struct that is NULL is NULL.
    let want = json!({
        "numRecords": 3,
        "minValues": {"place": {"city": "Oslo", "at": {"x": 1.5}}, "k": 7},
        "maxValues": {"place": {"city": "Oslo", "at": {"x": 2.0}}, "k": 9},
        "nullCount": {"place": {"city": 2, "at": {"x": 1, "nan": 1}}, "k": 0}
    });
    assert_eq!(stats(std::slice::from_ref(&rows)).await, want);
    // The list is one of the first columns, as its struct is not.
    let (file, target) = written(&[rows]).await;
    let of = |wanted: &IndexedColumns| serde_json::from_str::<Value>(&stats_of(&file, &target.schema, wanted)).unwrap();
    assert_eq!(of(&IndexedColumns::First(3))["nullCount"], json!({"place": {"city": 2, "at": {"x": 1}}}));
    let named = IndexedColumns::Named(vec!["place\0at".to_owned(), "k".to_owned()]);
    assert_eq!(of(&named)["nullCount"], json!({"place": {"at": {"x": 1, "nan": 1}}, "k": 0}));
    assert_eq!(of(&named)["maxValues"], json!({"place": {"at": {"x": 2.0}}, "k": 9}));
}

#[tokio::test]
async fn a_text_without_a_smaller_character_behind_the_cut_stays_whole() {
    let texts = |letters: &str| -> ArrayRef { Arc::new(StringArray::from(vec!["a".repeat(32) + letters])) };
    let rows = batch(vec![("kept", texts("\u{10ffff}")), ("cut", texts("\u{10ffff}b")), ("whole", texts(""))]);
    let stats = stats(&[rows]).await;
    let bound = |letters: &str| "a".repeat(32) + letters;
    let most = json!({"kept": bound("\u{10ffff}"), "cut": bound("\u{10ffff}\u{10ffff}"), "whole": bound("")});
    assert_eq!(stats["maxValues"], most);
    assert_eq!(stats["minValues"], json!({"kept": bound(""), "cut": bound(""), "whole": bound("")}));
}

#[tokio::test]
async fn only_wanted_columns_have_statistics() {
    let ones = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
    let (file, target) = written(&[batch(vec![("a", ones()), ("b", ones())])]).await;
    let stats = stats_of(&file, &target.schema, &IndexedColumns::Named(vec!["b".to_owned()]));
    assert_eq!(stats, r#"{"maxValues":{"b":1},"minValues":{"b":1},"nullCount":{"b":0},"numRecords":1}"#);
}

//! The statistics of a log, as exact JSON.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
};
use object_store::memory::InMemory;
use object_store::path::Path;
use serde_json::{Value, json};

use crate::rewrite::RowBlock;
use crate::rewrite::encode::encode_new;
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
    serde_json::from_str(&stats_of(&file, &target.schema, |_, _| true)).unwrap()
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
                Arc::new(arrow::datatypes::Field::new("x", arrow::datatypes::DataType::Int64, true)),
                Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef,
            )])),
        ),
    ]);
    let want = json!({
        "numRecords": 3,
        "minValues": {"byte": -3, "short": -300, "long": i64::MIN, "float": -1.25, "double": 0.1, "text": "a",
            "day": "1969-12-31", "at": "1969-12-31T23:59:59.999Z", "local": "1970-01-01T00:00:00.001",
            "price": -12.05, "whole": -7},
        "maxValues": {"byte": 5, "short": 20, "long": i64::MAX, "float": 3.0, "double": 0.1, "text": "ä",
            "day": "2024-01-31", "at": "2024-01-31T12:00:00.124Z", "local": "1970-01-01T00:00:00.002",
            "price": 12.3, "whole": 12},
        "nullCount": {"byte": 1, "short": 0, "long": 0, "float": 0, "double": 2, "text": 0, "truth": 1, "bytes": 0,
            "day": 0, "at": 0, "local": 0, "price": 1, "whole": 1, "huge": 1, "none": 3}
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
    assert!(most > long.as_str() && most.len() <= 64, "{most}");
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
async fn only_wanted_columns_have_statistics() {
    let ones = || -> ArrayRef { Arc::new(Int64Array::from(vec![1])) };
    let (file, target) = written(&[batch(vec![("a", ones()), ("b", ones())])]).await;
    let stats = stats_of(&file, &target.schema, |place, _| place == 1);
    assert_eq!(stats, r#"{"maxValues":{"b":1},"minValues":{"b":1},"nullCount":{"b":0},"numRecords":1}"#);
}

//! 96-bit timestamps are microseconds of UTC; dates of another calendar are not indexed.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use lakemark_index::{KeyRanges, LiteralKey, Predicate, Reason, encode_literal};
use lakemark_table::{BuildOptions, FileProbe};
use parquet::basic::Type as PhysicalType;
use parquet::data_type::{Int32Type, Int96, Int96Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::fixture::{equals, exact_rows, leaf, open, probe, spec};

const DAY_MICROS: i64 = 86_400_000_000;
const EPOCH_JULIAN: i64 = 2_440_588;

/// Days since 1970 and nanoseconds of the day.
type Moment = (i64, i64);

/// The year 9999 is beyond the range of nanoseconds, as is the year 1; row 3 is before 1970 and between two microseconds.
const MOMENTS: [Option<Moment>; 7] = [
    Some((0, 0)),
    Some((2_932_896, 86_399_999_999_000)),
    None,
    Some((-1, 999)),
    Some((-719_162, 1_000)),
    Some((19_000, 43_200_000_000_000)),
    Some((19_000, 43_200_000_000_000)),
];

fn micros(moment: Moment) -> i64 {
    moment.0 * DAY_MICROS + moment.1 / 1_000
}

/// A file with the columns `t` (96 bits), `d` (a date) and `n`.
fn write_wide(path: &Path, entries: &[(&str, &str)]) {
    let schema = "message m { optional int96 t; required int32 d (DATE); required int32 n; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let entries = entries.iter().map(|(key, value)| KeyValue::new((*key).to_owned(), (*value).to_owned())).collect();
    let properties = Arc::new(WriterProperties::builder().set_key_value_metadata(Some(entries)).build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let wide: Vec<Int96> = MOMENTS.iter().flatten().map(|moment| wide(*moment)).collect();
    let levels: Vec<i16> = MOMENTS.iter().map(|moment| i16::from(moment.is_some())).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&wide, Some(&levels), None).unwrap();
    column.close().unwrap();
    for values in [(0..7).map(|row| row - 300_000).collect::<Vec<i32>>(), (0..7).collect()] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

fn wide((days, nanos): Moment) -> Int96 {
    let mut value = Int96::new();
    let nanos = nanos as u64;
    value.set_data(nanos as u32, (nanos >> 32) as u32, (days + EPOCH_JULIAN) as u32);
    value
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn at(micros: i64) -> Predicate {
    let literal = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
    let Some(LiteralKey::Key(key)) = encode_literal(&literal) else { panic!("no key for {micros}") };
    leaf("t", KeyRanges::point(key))
}

#[tokio::test]
async fn wide_timestamps_are_microseconds_of_utc_also_beyond_nanoseconds() {
    let folder = tempfile::tempdir().unwrap();
    write_wide(&folder.path().join("a.parquet"), &[("org.apache.spark.version", "4.1.0")]);
    let table = open(folder.path()).await;
    table.create_index(spec("t"), false).await.unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.rows, report.declined.len()), (7, 0));
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field_with_name("t").unwrap().data_type(), &utc());
    assert_eq!(snapshot.indexes()[0].data_type, utc().to_string());
    for (row, moment) in MOMENTS.iter().enumerate() {
        let Some(moment) = moment else { continue };
        let same: Vec<u32> = (0..).zip(MOMENTS).filter(|(_, other)| *other == Some(*moment)).map(|(n, _)| n).collect();
        assert_eq!(exact_rows(&probe(&snapshot, &at(micros(*moment))).await.files[0]), same, "row {row}");
    }
    // One nanosecond less than a microsecond before 1970 is in the microsecond that began before it.
    assert_eq!(micros((-1, 999)), -DAY_MICROS);
    assert_eq!(exact_rows(&probe(&snapshot, &at(-DAY_MICROS)).await.files[0]), [3]);
    assert_eq!(exact_rows(&probe(&snapshot, &at(1)).await.files[0]), [] as [u32; 0]);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn files_of_a_rebased_calendar_are_scanned_and_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let version = ("org.apache.spark.version", "3.5.0");
    write_wide(&folder.path().join("a.parquet"), &[version]);
    write_wide(&folder.path().join("b.parquet"), &[version, ("org.apache.spark.legacyINT96", "")]);
    write_wide(&folder.path().join("c.parquet"), &[("org.apache.spark.version", "2.4.8")]);
    let table = open(folder.path()).await;
    for column in ["t", "d", "n"] {
        table.create_index(spec(column), false).await.unwrap();
    }
    let report = table.build(BuildOptions::default()).await.unwrap();
    let declined: Vec<(&str, bool)> = report
        .declined
        .iter()
        .map(|finding| (finding.path.as_str(), finding.problem.contains("says that t ")))
        .collect();
    assert_eq!(declined, [("b.parquet", true), ("c.parquet", false), ("c.parquet", true)]);
    // A second process knows from the manifest, which has files b and c because of `n`.
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field_with_name("t").unwrap().metadata().len(), 0);
    let covered: Vec<u64> = snapshot.indexes().iter().map(|index| index.files_covered).collect();
    // Of d, n and t: indexes are in the order of their names.
    assert_eq!(covered, [2, 3, 1]);
    let found = probe(&snapshot, &at(0)).await;
    assert_eq!(exact_rows(&found.files[0]), [0]);
    assert_eq!(found.files[1..], [FileProbe::Unknown, FileProbe::Unknown]);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::CalendarRebased));
    let found = probe(&snapshot, &equals("d", -300_000)).await;
    assert_eq!((exact_rows(&found.files[1]), &found.files[2]), (vec![0], &FileProbe::Unknown));
    assert_eq!(exact_rows(&probe(&snapshot, &equals("n", 5)).await.files[2]), [5]);
    let again = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((again.segments, again.declined.len()), (0, 3));
}

#[tokio::test]
async fn the_writer_s_own_type_does_not_count_for_wide_timestamps() {
    use arrow::array::RecordBatch;
    use arrow::datatypes::{Field, Schema};
    // As pyarrow does with `use_deprecated_int96_timestamps`: local times of whole milliseconds in memory, 96 bits in the file.
    let hint = Schema::new(vec![
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("d", DataType::Date32, false),
        Field::new("n", DataType::Int32, false),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    let encoded = parquet::arrow::encode_arrow_schema(&hint);
    write_wide(&path, &[("ARROW:schema", &encoded)]);
    let table = open(folder.path()).await;
    table.create_index(spec("t"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.schema().field_with_name("t").unwrap().data_type(), &utc());
    // A millisecond type would have lost the last microseconds of the year 9999.
    let last = micros((2_932_896, 86_399_999_999_000));
    assert_eq!(exact_rows(&probe(&snapshot, &at(last)).await.files[0]), [1]);

    let footer = parquet::file::metadata::ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap());
    let footer = lakemark_table::amended_footer(footer.unwrap(), &[], None).unwrap();
    assert_eq!(footer.file_metadata().schema_descr().column(0).physical_type(), PhysicalType::INT96);
    let metadata = parquet::arrow::arrow_reader::ArrowReaderMetadata::try_new(Arc::new(footer), Default::default());
    let file = File::open(&path).unwrap();
    let reader =
        parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.unwrap());
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let column = batches[0].column(0).as_any().downcast_ref::<TimestampMicrosecondArray>().unwrap();
    assert_eq!(column.data_type(), &utc());
    assert_eq!(column.iter().collect::<Vec<_>>(), MOMENTS.map(|moment| moment.map(micros)));
}

//! Footers that say what is not so: no reader of ours goes by it.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Decimal128Array, Float64Array, Int32Array, RecordBatch, StringArray, UInt32Array,
};
use bytes::Bytes;
use lakemark_table::amended_footer;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::{
    FileMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

/// Columns of all orders, in one row group with page indexes.
fn footer() -> ParquetMetaData {
    let decimals = Decimal128Array::from(vec![100, 200, 300]).with_precision_and_scale(25, 2).unwrap();
    let columns: [(&str, ArrayRef); 6] = [
        ("signed", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ("unsigned", Arc::new(UInt32Array::from(vec![1, 2, 3]))),
        ("text", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        ("bytes", Arc::new(BinaryArray::from(vec![b"a".as_slice(), b"b", b"c"]))),
        ("decimal", Arc::new(decimals)),
        ("float", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = Bytes::from(writer.into_inner().unwrap());
    let reader = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
    reader.parse_and_finish(&bytes).unwrap()
}

/// What a footer says of its file.
struct Said<'a> {
    created_by: Option<&'a str>,
    has_orders: bool,
    is_old: bool,
}

fn saying(said: &Said<'_>) -> ParquetMetaData {
    let metadata = footer();
    let file = metadata.file_metadata();
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        said.created_by.map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().filter(|_| said.has_orders).cloned(),
    );
    let mut rest = metadata.into_builder();
    let groups = rest.take_row_groups().into_iter().map(|group| {
        let columns = group.columns().iter().map(|chunk| {
            let statistics = old_or_new(chunk.statistics().unwrap(), said.is_old);
            chunk.clone().into_builder().set_statistics(statistics).build().unwrap()
        });
        let columns = columns.collect();
        group.into_builder().set_column_metadata(columns).build().unwrap()
    });
    let groups = groups.collect();
    let pages = rest.take_column_index().filter(|_| !said.is_old);
    ParquetMetaDataBuilder::new(file)
        .set_row_groups(groups)
        .set_column_index(pages)
        .set_offset_index(rest.take_offset_index())
        .build()
}

fn old_or_new(statistics: &Statistics, is_old: bool) -> Statistics {
    macro_rules! same {
        ($values:expr) => {
            ValueStatistics::new($values.min_opt().cloned(), $values.max_opt().cloned(), None, Some(0), is_old)
        };
    }
    match statistics {
        Statistics::Int32(values) => Statistics::Int32(same!(values)),
        Statistics::Double(values) => Statistics::Double(same!(values)),
        Statistics::ByteArray(values) => Statistics::ByteArray(same!(values)),
        Statistics::FixedLenByteArray(values) => Statistics::FixedLenByteArray(same!(values)),
        other => panic!("{other:?}"),
    }
}

/// Names of the columns with bounds that readers of ours see: in row groups, and in pages.
fn bounded(metadata: ParquetMetaData) -> (Vec<String>, Vec<String>) {
    let metadata = amended_footer(metadata, &[], None).unwrap();
    let group = metadata.row_group(0);
    assert!(group.columns().iter().all(|chunk| chunk.statistics().unwrap().null_count_opt() == Some(0)));
    let names: Vec<&str> = group.columns().iter().map(|chunk| chunk.column_descr().name()).collect();
    let schema = parquet_to_arrow_schema(metadata.file_metadata().schema_descr(), None).unwrap();
    let of_groups = names.iter().filter(|name| {
        let parquet = metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(name, &schema, parquet).unwrap();
        converter.row_group_mins([group]).unwrap().null_count() == 0
    });
    let index = metadata.column_index().map(|groups| &groups[0]);
    let of_pages = names
        .iter()
        .enumerate()
        .filter(|(place, _)| index.is_some_and(|pages| !matches!(pages[*place], ColumnIndexMetaData::NONE)));
    let owned = |name: &&str| (*name).to_owned();
    (of_groups.map(owned).collect(), of_pages.map(|(_, name)| owned(name)).collect())
}

#[test]
fn law_1_bounds_are_believed_by_writer_version_and_order() {
    let all = ["signed", "unsigned", "text", "bytes", "decimal", "float"];
    let signed = ["signed", "float"];
    let (old, new) = (Some("parquet-mr version 1.7.0 (build abc)"), Some("parquet-rs version 59.3.2"));
    let middle = Some("parquet-mr version 1.8.2 (build abc)");
    for (created_by, has_orders, is_old, groups, pages) in [
        (new, true, false, &all[..], &all[..]),
        // The order is not stated: numbers with a sign have only one.
        (new, false, false, &signed, &signed),
        (None, true, false, &all, &all),
        // The old fields, whose writers compared bytes as signed ones.
        (new, true, true, &signed, &[]),
        (middle, false, true, &signed, &[]),
        (old, false, true, &signed, &[]),
        (old, true, false, &["signed", "unsigned", "float"], &["signed", "unsigned", "float"]),
        (None, false, true, &signed, &[]),
    ] {
        let found = bounded(saying(&Said { created_by, has_orders, is_old }));
        let case = format!("{created_by:?} {has_orders} {is_old}");
        assert_eq!(found, (groups.iter().map(ToString::to_string).collect(), owned(pages)), "{case}");
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn with_statistics(place: usize, statistics: Statistics) -> ParquetMetaData {
    let mut builder = footer().into_builder();
    let groups = builder.take_row_groups().into_iter().map(|group| {
        let mut columns = group.columns().to_vec();
        columns[place] = columns[place].clone().into_builder().set_statistics(statistics.clone()).build().unwrap();
        group.into_builder().set_column_metadata(columns).build().unwrap()
    });
    let groups = groups.collect();
    builder.set_row_groups(groups).build()
}

fn one(text: &str, is_old: bool) -> Statistics {
    let value = Some(text.as_bytes().to_vec().into());
    Statistics::byte_array(value.clone(), value, None, Some(0), is_old)
}

#[test]
fn old_bounds_that_are_the_same_are_right_in_every_order() {
    let (of_groups, _) = bounded(with_statistics(2, one("a", true)));
    assert!(of_groups.contains(&"text".to_owned()), "{of_groups:?}");
}

#[test]
fn law_1_nan_bounds_nothing_and_a_zero_stands_for_both() {
    let float = |min: f64, max: f64| {
        let statistics = Statistics::double(Some(min), Some(max), None, Some(0), false);
        let metadata = amended_footer(with_statistics(5, statistics), &[], None).unwrap();
        let Some(Statistics::Double(values)) = metadata.row_group(0).column(5).statistics().cloned() else { panic!() };
        (values.min_opt().map(|min| min.to_bits()), values.max_opt().map(|max| max.to_bits()))
    };
    assert_eq!(float(f64::NAN, 1.0), (None, None));
    assert_eq!(float(1.0, f64::NAN), (None, None));
    let bits = |value: f64| Some(value.to_bits());
    assert_eq!(float(0.0, 1.0), (bits(-0.0), bits(1.0)));
    assert_eq!(float(-1.0, -0.0), (bits(-1.0), bits(0.0)));
    assert_eq!(float(-1.0, 1.0), (bits(-1.0), bits(1.0)));
}

#[test]
fn columns_that_were_caught_have_no_statistics_at_all() {
    let metadata = amended_footer(footer(), &[0, 3], None).unwrap();
    let group = metadata.row_group(0);
    let without: Vec<usize> = (0..6).filter(|place| group.column(*place).statistics().is_none()).collect();
    assert_eq!(without, [0, 3]);
    let pages = &metadata.column_index().unwrap()[0];
    assert!((0..6).all(|place| matches!(pages[place], ColumnIndexMetaData::NONE) == without.contains(&place)));
    assert!(metadata.offset_index().is_some());
}

/// A footer of one column, whose statistics do not say how many NULLs there are.
fn without_null_count(is_nullable: bool, created_by: &str) -> ParquetMetaData {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", column, is_nullable)]).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    let bytes = Bytes::from(writer.into_inner().unwrap());
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&bytes).unwrap();
    let file = metadata.file_metadata();
    let (rows, orders) = (file.num_rows(), file.column_orders().cloned());
    let file = FileMetaData::new(1, rows, Some(created_by.to_owned()), None, file.schema_descr_ptr(), orders);
    let group = metadata.row_group(0).clone();
    let said = Statistics::int32(Some(1), Some(3), None, None, false);
    let chunk = group.column(0).clone().into_builder().set_statistics(said).build().unwrap();
    let group = group.into_builder().set_column_metadata(vec![chunk]).build().unwrap();
    ParquetMetaDataBuilder::new(file).set_row_groups(vec![group]).build()
}

#[test]
fn law_1_statistics_that_count_no_nulls_are_removed() {
    for (is_nullable, created_by, is_kept) in [
        (true, "parquet-mr version 1.13.1 (build abc)", false),
        (true, "parquet-rs version 53.1.0", false),
        (true, "parquet-rs version 59.3.2", false),
        (true, "parquet-rs version x", false),
        // It left out zeros.
        (true, "parquet-rs version 53.0.0", true),
        (true, "parquet-rs version 5.0.0-SNAPSHOT", true),
        // There can be none.
        (false, "parquet-mr version 1.13.1 (build abc)", true),
    ] {
        let metadata = amended_footer(without_null_count(is_nullable, created_by), &[], None).unwrap();
        let has_statistics = metadata.row_group(0).column(0).statistics().is_some();
        assert_eq!(has_statistics, is_kept, "{is_nullable} {created_by}");
    }
}

#[test]
fn a_file_has_the_rows_of_its_row_groups() {
    let metadata = footer();
    let file = metadata.file_metadata();
    let file = FileMetaData::new(
        file.version(),
        0,
        None,
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    let mut rest = metadata.into_builder();
    let lying = ParquetMetaDataBuilder::new(file).set_row_groups(rest.take_row_groups()).build();
    let amended = amended_footer(lying, &[], None).unwrap();
    assert_eq!((amended.file_metadata().num_rows(), amended.row_group(0).num_rows()), (3, 3));
}

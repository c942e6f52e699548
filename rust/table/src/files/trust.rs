//! What a footer says of its values, as far as it can be believed: [`amended_footer`] is the one way from a footer to a reader.
//!
//! - Bounds that writer, version or order of the column make untrustworthy are removed, by the rules of Parquet's own Java library
//!   ([`is_believed`]); so are NaN as a bound, and the sign of a zero that is one.
//! - Statistics that do not count the NULLs of a column that may have some are removed ([`counts_nulls`]): the engine takes a missing
//!   number for none.
//! - A file has the rows that its row groups have, whatever else the footer says.
//! - Columns whose statistics a build has found to be false ([`FalseStatistics`]) have no statistics at all.
//!
//! Nobody prunes by what is not there, so that every reader of ours is right, with an index and without.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use parquet::basic::{ColumnOrder, ConvertedType, LogicalType, SortOrder, Type as PhysicalType};
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetColumnIndex, ParquetMetaData, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescriptor;

use crate::files::column_mapping::ColumnMapping;
use crate::report::Finding;
use crate::storage::damage::guarded;
use crate::values::footer_edit::with_file_metadata;
use crate::values::int96::with_int96_timestamps;

/// Columns of one version of a file whose statistics exclude values that are there, by their places among the leaves of its schema,
/// in order.
pub type FalseStatistics = Arc<[u32]>;

/// The footer as every reader of ours takes it: without the statistics of columns that are false (`caught`), and with the shown names of
/// the `mapping`, if there is one.
///
/// # Errors
/// A schema that Arrow does not have.
pub fn amended_footer(
    metadata: ParquetMetaData,
    caught: &[u32],
    mapping: Option<&ColumnMapping>,
) -> Result<ParquetMetaData> {
    // Damaged types are panics of the code that converts them to Arrow's.
    guarded(|| -> Result<ParquetMetaData> {
        let metadata = with_places(with_row_count(believed(with_int96_timestamps(metadata)?, caught)?))?;
        match mapping {
            Some(mapping) => mapping.logical_footer(metadata),
            None => Ok(metadata),
        }
    })?
}

/// Numbers each row group by its place. Readers number rows by that, and a footer may say anything.
fn with_places(metadata: ParquetMetaData) -> Result<ParquetMetaData> {
    let groups = || metadata.row_groups().iter().enumerate();
    let is_right = |(place, group): (usize, &RowGroupMetaData)| group.ordinal().map(usize::try_from) == Some(Ok(place));
    if groups().all(|(_, group)| group.ordinal().is_none()) || groups().all(is_right) {
        return Ok(metadata);
    }
    let named = |(place, group): (usize, &RowGroupMetaData)| match i16::try_from(place) {
        Ok(place) => group.clone().into_builder().set_ordinal(place).build(),
        Err(_) => Ok(group.clone()),
    };
    let groups = groups().map(named).collect::<Result<Vec<_>, _>>()?;
    Ok(metadata.into_builder().set_row_groups(groups).build())
}

/// Gives a file the rows of its row groups.
fn with_row_count(metadata: ParquetMetaData) -> ParquetMetaData {
    let rows = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).fold(0_i64, i64::saturating_add);
    let file = metadata.file_metadata();
    if file.num_rows() == rows {
        return metadata;
    }
    let file = FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        file.schema_descr_ptr(),
        file.column_orders().cloned(),
    );
    with_file_metadata(metadata, file)
}

/// What becomes of the statistics of a column chunk.
enum StatisticsVerdict {
    Kept,
    /// Other bounds, or none.
    Replaced(Box<Statistics>),
    /// Nothing is left, not even the number of NULLs.
    Removed,
}

fn believed(metadata: ParquetMetaData, caught: &[u32]) -> Result<ParquetMetaData> {
    let file = metadata.file_metadata();
    let writer = ParquetWriter::of(file.created_by());
    let orders = file.column_orders();
    let has_order = |leaf: usize| orders.and_then(|orders| orders.get(leaf)).is_some_and(is_defined);
    let schema = file.schema_descr_ptr();
    let is_caught = |leaf: usize| caught.iter().any(|caught| *caught as usize == leaf);
    let verdict = |leaf: usize, chunk: &ColumnChunkMetaData| match chunk.statistics() {
        None => StatisticsVerdict::Kept,
        Some(_) if is_caught(leaf) => StatisticsVerdict::Removed,
        Some(said) if !counts_nulls(said, &schema.column(leaf), file.created_by()) => StatisticsVerdict::Removed,
        Some(said) if is_believed(said, &schema.column(leaf), writer, has_order(leaf)) => narrowed(said),
        Some(said) if has_bounds(said) => StatisticsVerdict::Replaced(Box::new(without_bounds(said))),
        Some(_) => StatisticsVerdict::Kept,
    };
    let chunks = || metadata.row_groups().iter().flat_map(|group| group.columns().iter().enumerate());
    let all_kept = chunks().all(|(leaf, chunk)| matches!(verdict(leaf, chunk), StatisticsVerdict::Kept));
    let is_page_kept = |leaf: usize, index: &ColumnIndexMetaData| {
        let column = schema.column(leaf);
        let is_ordered = is_ordered_without_order(&column) || (has_order(leaf) && !is_undefined(&column));
        is_ordered && !is_caught(leaf) && !writer.is_wrong_about(&column) && !has_odd_floats(index, &column)
    };
    let pages = metadata.column_index().into_iter().flatten();
    let all_pages_kept = pages
        .flat_map(|group| group.iter().enumerate())
        .all(|(leaf, index)| matches!(index, ColumnIndexMetaData::NONE) || is_page_kept(leaf, index));
    if all_kept && all_pages_kept {
        return Ok(metadata);
    }
    let groups =
        metadata.row_groups().iter().map(|group| with_verdicts(group, &verdict)).collect::<Result<Vec<_>>>()?;
    let pages: Option<ParquetColumnIndex> = metadata.column_index().map(|groups| {
        let of_chunk = |(leaf, index): (usize, &ColumnIndexMetaData)| match is_page_kept(leaf, index) {
            true => index.clone(),
            false => ColumnIndexMetaData::NONE,
        };
        groups.iter().map(|group| group.iter().enumerate().map(of_chunk).collect()).collect()
    });
    Ok(metadata.into_builder().set_row_groups(groups).set_column_index(pages).build())
}

fn with_verdicts(
    group: &RowGroupMetaData,
    verdict: &impl Fn(usize, &ColumnChunkMetaData) -> StatisticsVerdict,
) -> Result<RowGroupMetaData> {
    let judged = |(leaf, chunk): (usize, &ColumnChunkMetaData)| match verdict(leaf, chunk) {
        StatisticsVerdict::Kept => Ok(chunk.clone()),
        StatisticsVerdict::Replaced(statistics) => chunk.clone().into_builder().set_statistics(*statistics).build(),
        StatisticsVerdict::Removed => chunk.clone().into_builder().clear_statistics().build(),
    };
    let columns = group.columns().iter().enumerate().map(judged).collect::<Result<Vec<_>>>()?;
    group.clone().into_builder().set_column_metadata(columns).build()
}

/// Whether bounds mean what a reader takes them for.
///
/// `min` and `max` are the old fields. Their writers compared bytes as signed ones, whatever the type. So they say something of types with
/// that order only, or where both are the same. Some of these writers got the bounds of texts and bytes altogether wrong. `min_value` and
/// `max_value` follow the order that the footer states for the column, and mean nothing for types that have none. Where the footer states
/// no order (writers forgot it), they are believed of types that nobody would order otherwise.
fn is_believed(said: &Statistics, column: &ColumnDescriptor, writer: ParquetWriter, has_order: bool) -> bool {
    if writer.is_wrong_about(column) {
        return false;
    }
    let is_one = || said.min_bytes_opt().is_some() && said.min_bytes_opt() == said.max_bytes_opt();
    if is_undefined(column) || has_odd_halves(said, column) {
        return false;
    }
    if said.is_min_max_deprecated() {
        return !(is_of_bytes(column) && writer == ParquetWriter::Unnamed) && (is_signed_by_bytes(column) || is_one());
    }
    has_order || is_ordered_without_order(column) || is_one()
}

fn is_of_bytes(column: &ColumnDescriptor) -> bool {
    matches!(column.physical_type(), PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY)
}

/// Whether it is known how many NULLs a chunk has. One library left out a number of zero, and nothing else, up to its version 53.0.
fn counts_nulls(said: &Statistics, column: &ColumnDescriptor, created_by: Option<&str>) -> bool {
    let leaves_out_zeros = || {
        let version = created_by.and_then(|writer| writer.trim().strip_prefix("parquet-rs version "));
        let mut numbers = version.unwrap_or_default().split('.').map_while(|number| number.parse::<u32>().ok());
        matches!((numbers.next(), numbers.next()), (Some(major), Some(minor)) if (major, minor) < (53, 1))
    };
    said.null_count_opt().is_some() || column.max_def_level() == 0 || leaves_out_zeros()
}

fn has_bounds(said: &Statistics) -> bool {
    said.min_bytes_opt().is_some() || said.max_bytes_opt().is_some()
}

fn is_defined(order: &ColumnOrder) -> bool {
    matches!(order, ColumnOrder::TYPE_DEFINED_ORDER(order) if *order != SortOrder::UNDEFINED)
}

fn order_of(column: &ColumnDescriptor) -> SortOrder {
    ColumnOrder::sort_order_for_type(column.logical_type_ref(), column.converted_type(), column.physical_type())
}

fn is_undefined(column: &ColumnDescriptor) -> bool {
    order_of(column) == SortOrder::UNDEFINED
}

fn is_decimal(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)))
        || column.converted_type() == ConvertedType::DECIMAL
}

/// Whether the old fields are right for the type: numbers and booleans. Decimals are not, as nobody had agreed on their order.
fn is_signed_by_bytes(column: &ColumnDescriptor) -> bool {
    is_ordered_without_order(column) && !is_decimal(column)
}

/// Whether there is only one way to order the type: numbers with a sign, and booleans.
fn is_ordered_without_order(column: &ColumnDescriptor) -> bool {
    match column.physical_type() {
        PhysicalType::BOOLEAN | PhysicalType::FLOAT | PhysicalType::DOUBLE => true,
        PhysicalType::INT32 | PhysicalType::INT64 => order_of(column) == SortOrder::SIGNED,
        PhysicalType::INT96 | PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY => false,
    }
}

/// What a footer says of the writer of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParquetWriter {
    /// The writer does not name itself, or in no way that can be understood.
    Unnamed,
    /// A writer whose bounds of texts and bytes are wrong: parquet-mr before 1.8.0.
    WrongBytes,
    Other,
}

impl ParquetWriter {
    fn is_wrong_about(self, column: &ColumnDescriptor) -> bool {
        self == Self::WrongBytes && is_of_bytes(column)
    }

    fn of(created_by: Option<&str>) -> Self {
        let Some(text) = created_by.map(str::trim).filter(|text| !text.is_empty()) else { return Self::Unnamed };
        let Some((application, rest)) = text.split_once(" version") else { return Self::Unnamed };
        if application.trim() != "parquet-mr" {
            return Self::Other;
        }
        let version = rest.split('(').next().unwrap_or_default().trim();
        match is_fixed(version) {
            None => Self::Unnamed,
            Some(true) => Self::Other,
            Some(false) => Self::WrongBytes,
        }
    }
}

/// Whether this version of parquet-mr writes right bounds of texts and bytes; none if the text is no version.
fn is_fixed(version: &str) -> Option<bool> {
    let is_number = |character: char| character.is_ascii_digit() || character == '.';
    let end = version.find(|character| !is_number(character)).unwrap_or(version.len());
    let (numbers, suffix) = version.split_at(end);
    let numbers: Vec<u32> = numbers.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let &[major, minor, patch] = numbers.as_slice() else { return None };
    if let Some((1, 5, 0)) = Some((major, minor, patch))
        && let Some(cloudera) = suffix.strip_prefix("-cdh")
    {
        // Cloudera's versions took the fix over.
        let numbers = cloudera.split('.').map_while(|number| number.parse::<u32>().ok()).collect::<Vec<_>>();
        return Some(numbers >= vec![5, 5, 0]);
    }
    Some((major, minor, patch) > (1, 8, 0) || ((major, minor, patch) == (1, 8, 0) && suffix.is_empty()))
}

/// Bounds that are right as they are, or what is right of them: NaN bounds nothing, and either zero may stand for both.
fn narrowed(said: &Statistics) -> StatisticsVerdict {
    macro_rules! floats {
        ($values:expr, $variant:path) => {{
            let (min, max) = ($values.min_opt().copied(), $values.max_opt().copied());
            if [min, max].into_iter().flatten().any(|bound| bound.is_nan()) {
                return StatisticsVerdict::Replaced(Box::new(without_bounds(said)));
            }
            let signed =
                (min.map(|min| if min == 0.0 { -0.0 } else { min }), max.map(|max| if max == 0.0 { 0.0 } else { max }));
            let are_same = min.map(|bound| bound.to_bits()) == signed.0.map(|bound| bound.to_bits())
                && max.map(|bound| bound.to_bits()) == signed.1.map(|bound| bound.to_bits());
            if are_same {
                return StatisticsVerdict::Kept;
            }
            let nulls = $values.null_count_opt();
            let (distinct, is_old) = ($values.distinct_count(), said.is_min_max_deprecated());
            StatisticsVerdict::Replaced(Box::new($variant(ValueStatistics::new(
                signed.0, signed.1, distinct, nulls, is_old,
            ))))
        }};
    }
    match said {
        Statistics::Float(values) => floats!(values, Statistics::Float),
        Statistics::Double(values) => floats!(values, Statistics::Double),
        _ => StatisticsVerdict::Kept,
    }
}

/// What is left of statistics whose bounds are not believed.
fn without_bounds(said: &Statistics) -> Statistics {
    let (distinct, nulls) = (said.distinct_count_opt(), said.null_count_opt());
    match said {
        Statistics::Boolean(_) => Statistics::boolean(None, None, distinct, nulls, false),
        Statistics::Int32(_) => Statistics::int32(None, None, distinct, nulls, false),
        Statistics::Int64(_) => Statistics::int64(None, None, distinct, nulls, false),
        Statistics::Int96(_) => Statistics::int96(None, None, distinct, nulls, false),
        Statistics::Float(_) => Statistics::float(None, None, distinct, nulls, false),
        Statistics::Double(_) => Statistics::double(None, None, distinct, nulls, false),
        Statistics::ByteArray(_) => Statistics::byte_array(None, None, distinct, nulls, false),
        Statistics::FixedLenByteArray(_) => Statistics::fixed_len_byte_array(None, None, distinct, nulls, false),
    }
}

/// Whether floats of 16 bits have NaN as a bound, or a zero that may stand for the other one.
fn has_odd_halves(said: &Statistics, column: &ColumnDescriptor) -> bool {
    is_half(column)
        && (said.min_bytes_opt().is_some_and(|min| is_odd_half(min, 0))
            || said.max_bytes_opt().is_some_and(|max| is_odd_half(max, 0x8000)))
}

fn is_half(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Float16))
}

/// Whether a bound of 16 bits is NaN, or the zero that may stand for the other one.
fn is_odd_half(bound: &[u8], zero: u16) -> bool {
    let half = bound.try_into().map(u16::from_le_bytes);
    half.is_ok_and(|half| half & 0x7fff > 0x7c00 || half == zero)
}

/// Whether a page of floats has NaN as a bound, or a zero that may stand for the other one.
fn has_odd_floats(index: &ColumnIndexMetaData, column: &ColumnDescriptor) -> bool {
    macro_rules! any_odd {
        ($index:expr) => {{
            let mut mins = $index.min_values_iter().flatten();
            let mut maxes = $index.max_values_iter().flatten();
            mins.any(|min| min.is_nan() || (*min == 0.0 && min.is_sign_positive()))
                || maxes.any(|max| max.is_nan() || (*max == 0.0 && max.is_sign_negative()))
        }};
    }
    match index {
        ColumnIndexMetaData::FLOAT(index) => any_odd!(index),
        ColumnIndexMetaData::DOUBLE(index) => any_odd!(index),
        ColumnIndexMetaData::FIXED_LEN_BYTE_ARRAY(index) if is_half(column) => {
            index.min_values_iter().flatten().any(|min| is_odd_half(min, 0))
                || index.max_values_iter().flatten().any(|max| is_odd_half(max, 0x8000))
        }
        _ => false,
    }
}

/// The finding of a file with false statistics, by its schema; none if the schema has no such column.
pub(crate) fn false_statistics(path: &str, schema: &Schema, caught: &[u32]) -> Option<Finding> {
    let mut names = Vec::new();
    let mut leaf = 0;
    for field in schema.fields() {
        let next = leaf + leaves(field.data_type());
        names.extend(caught.iter().any(|caught| (leaf..next).contains(caught)).then(|| field.name().as_str()));
        leaf = next;
    }
    let problem = format!(
        "the statistics of {} in its footer exclude values that are there: they are not used, other readers may miss rows; write the file again",
        names.join(", ")
    );
    (!names.is_empty()).then(|| Finding { path: path.to_owned(), problem })
}

/// How many columns of Parquet a type takes.
fn leaves(data_type: &DataType) -> u32 {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| leaves(field.data_type())).sum(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => leaves(item.data_type()),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_with_wrong_bounds_of_bytes_are_known_by_their_versions() {
        for (created_by, writer) in [
            (None, ParquetWriter::Unnamed),
            (Some(""), ParquetWriter::Unnamed),
            (Some("parquet-mr"), ParquetWriter::Unnamed),
            (Some("parquet-mr version"), ParquetWriter::Unnamed),
            (Some("parquet-mr version x.y.z"), ParquetWriter::Unnamed),
            (
                Some("parquet-mr version 1.6.0rc3 (build d4d5a07ec9bd262ca1e93c309f1d7d4a74ebda4c)"),
                ParquetWriter::WrongBytes,
            ),
            (Some("parquet-mr version 1.7.0"), ParquetWriter::WrongBytes),
            (Some("parquet-mr version 1.8.0rc1"), ParquetWriter::WrongBytes),
            (Some("parquet-mr version 1.8.0 (build 0fda28af84b9746396014ad6a415b90592a98b3b)"), ParquetWriter::Other),
            (Some("parquet-mr version 1.10.1"), ParquetWriter::Other),
            (Some("parquet-mr version 1.5.0-cdh5.4.9"), ParquetWriter::WrongBytes),
            (Some("parquet-mr version 1.5.0-cdh5.5.0 (build ${buildNumber})"), ParquetWriter::Other),
            (Some("impala version 1.0 (build abc)"), ParquetWriter::Other),
            (Some("parquet-rs version 59.3.2"), ParquetWriter::Other),
        ] {
            assert_eq!(ParquetWriter::of(created_by), writer, "{created_by:?}");
        }
    }
}

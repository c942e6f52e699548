//! The statistics that a Delta log has of a data file, taken from the file's Parquet metadata.

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::{SortOptions, sort_to_indices};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DecimalType, Field, Fields, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use chrono::DateTime;
use lakemark_format::column;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use serde_json::{Map, Number, Value, json};

use crate::rewrite::indexed_columns::IndexedColumns;
use crate::rewrite::leaves::leaf_count;
use crate::rewrite::target::WrittenFile;

/// Decimals below this are the same after a reader has taken them for 64-bit floats.
const EXACT_DECIMAL: u128 = 1_000_000_000_000_000;

/// Characters that are left of a long text.
const TEXT_LETTERS: usize = 32;

/// The statistics of a file as JSON text: of the columns and fields of structs that `wanted` names, by their places and whole names. Nobody
/// needs those of lists and maps to skip files.
pub(super) fn stats_of(file: &WrittenFile, schema: &Schema, wanted: &IndexedColumns) -> String {
    let mut fields = FieldWalk { file, wanted, leaf: 0, place: 0 };
    let FileStats { lowest, highest, nulls } = fields.stats(schema.fields(), &[]);
    json!({"numRecords": file.rows(), "minValues": lowest, "maxValues": highest, "nullCount": nulls}).to_string()
}

/// The statistics of columns, or of the fields of a struct.
#[derive(Default)]
struct FileStats {
    lowest: Map<String, Value>,
    highest: Map<String, Value>,
    nulls: Map<String, Value>,
}

/// A walk over the columns of a file and the fields inside of them.
struct FieldWalk<'a> {
    file: &'a WrittenFile,
    wanted: &'a IndexedColumns,
    /// The number of the next leaf.
    leaf: usize,
    /// The place of the next column or field, as tables count them: a list or a map is one.
    place: usize,
}

impl FieldWalk<'_> {
    fn stats(&mut self, fields: &Fields, outer: &[&str]) -> FileStats {
        let mut stats = FileStats::default();
        for field in fields {
            let way = [outer, &[field.name().as_str()]].concat();
            match field.data_type() {
                DataType::Struct(inner) => {
                    let FileStats { lowest, highest, nulls } = self.stats(inner, &way);
                    let (all, inside) = (&mut stats, [lowest, highest, nulls]);
                    for (all, inside) in [&mut all.lowest, &mut all.highest, &mut all.nulls].into_iter().zip(inside) {
                        if !inside.is_empty() {
                            all.insert(field.name().clone(), Value::Object(inside));
                        }
                    }
                }
                flat if !flat.is_nested() => self.add_flat(field, &column::join(way), &mut stats),
                nested => {
                    self.leaf += leaf_count(nested);
                    self.place += 1;
                }
            }
        }
        stats
    }

    fn add_flat(&mut self, field: &Field, name: &str, stats: &mut FileStats) {
        let (leaf, place) = (self.leaf, self.place);
        (self.leaf, self.place) = (leaf + 1, place + 1);
        if !self.wanted.has(place, name) {
            return;
        }
        let Some(column) = ColumnStats::read(self.file, leaf, field) else { return };
        if let Some(count) = column.null_count() {
            stats.nulls.insert(field.name().clone(), json!(count));
        }
        // A reader for which NaN is the largest number would skip a file whose bounds leave it out.
        if !self.file.with_nan.contains(&leaf)
            && let Some((low, high)) = column.bounds()
        {
            stats.lowest.insert(field.name().clone(), low);
            stats.highest.insert(field.name().clone(), high);
        }
    }
}

/// The statistics that the row groups of a file have of a column.
struct ColumnStats {
    lowest: ArrayRef,
    highest: ArrayRef,
    nulls: UInt64Array,
    rows: Vec<u32>,
}

impl ColumnStats {
    fn read(file: &WrittenFile, leaf: usize, field: &Field) -> Option<Self> {
        let columns = file.metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::from_column_index(leaf, field, columns).ok()?;
        // Row groups that were copied may not say how many NULLs they have.
        let converter = converter.with_missing_null_counts_as_zero(false);
        let groups = file.metadata.row_groups();
        Some(Self {
            lowest: converter.row_group_mins(groups).ok()?,
            highest: converter.row_group_maxes(groups).ok()?,
            nulls: converter.row_group_null_counts(groups).ok()?,
            rows: file.row_groups.clone(),
        })
    }

    fn null_count(&self) -> Option<u64> {
        self.nulls.iter().sum()
    }

    /// The smallest and the largest value, or bounds of them; none if a row group has no bounds.
    fn bounds(&self) -> Option<(Value, Value)> {
        for (group, rows) in self.rows.iter().enumerate() {
            let has_bounds = self.lowest.is_valid(group) && self.highest.is_valid(group);
            let is_all_null = self.nulls.is_valid(group) && self.nulls.value(group) == u64::from(*rows);
            if !has_bounds && !is_all_null {
                return None;
            }
        }
        let low = extreme(&self.lowest, false)?;
        let high = extreme(&self.highest, true)?;
        Some((value_of(&self.lowest, low, false)?, value_of(&self.highest, high, true)?))
    }
}

/// The place of the smallest or largest value; none if there is only NULL.
fn extreme(values: &ArrayRef, largest: bool) -> Option<usize> {
    let options = SortOptions { descending: largest, nulls_first: false };
    let sorted = sort_to_indices(values, Some(options), Some(1)).ok()?;
    let place = sorted.values().first().copied()? as usize;
    values.is_valid(place).then_some(place)
}

/// A bound as Delta writes it. None for a value that JSON or another reader does not have exactly.
fn value_of(values: &ArrayRef, at: usize, is_upper: bool) -> Option<Value> {
    match values.data_type() {
        DataType::Int8 => Some(values.as_primitive::<Int8Type>().value(at).into()),
        DataType::Int16 => Some(values.as_primitive::<Int16Type>().value(at).into()),
        DataType::Int32 => Some(values.as_primitive::<Int32Type>().value(at).into()),
        DataType::Int64 => Some(values.as_primitive::<Int64Type>().value(at).into()),
        DataType::Float32 => Number::from_f64(values.as_primitive::<Float32Type>().value(at).into()).map(Value::Number),
        DataType::Float64 => Number::from_f64(values.as_primitive::<Float64Type>().value(at)).map(Value::Number),
        DataType::Utf8 => Some(text_bound(values.as_string::<i32>().value(at), is_upper).into()),
        DataType::LargeUtf8 => Some(text_bound(values.as_string::<i64>().value(at), is_upper).into()),
        DataType::Date32 => {
            let seconds = i64::from(values.as_primitive::<Date32Type>().value(at)) * 86_400;
            Some(DateTime::from_timestamp(seconds, 0)?.format("%Y-%m-%d").to_string().into())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let micros = values.as_primitive::<TimestampMicrosecondType>().value(at);
            moment(micros, zone.is_some(), is_upper).map(Value::String)
        }
        DataType::Decimal128(precision, scale) => {
            let unscaled = values.as_primitive::<Decimal128Type>().value(at);
            decimal(unscaled, *precision, *scale)
        }
        _ => None,
    }
}

/// The beginning of a long text, cut so that it still is a bound: an upper one ends with the greatest character, in the place of a smaller
/// one.
fn text_bound(text: &str, is_upper: bool) -> String {
    if text.chars().nth(TEXT_LETTERS).is_none() {
        return text.to_owned();
    }
    if !is_upper {
        return text.chars().take(TEXT_LETTERS).collect();
    }
    let smaller = text.chars().enumerate().skip(TEXT_LETTERS).find(|(_, letter)| *letter < char::MAX);
    match smaller {
        Some((place, _)) => text.chars().take(place).chain([char::MAX]).collect(),
        None => text.to_owned(),
    }
}

/// A timestamp in milliseconds, as Delta has it: rounded so that it still is a bound.
fn moment(micros: i64, has_zone: bool, is_upper: bool) -> Option<String> {
    let millis = if is_upper { micros.checked_add(999)?.div_euclid(1000) } else { micros.div_euclid(1000) };
    let format = if has_zone { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.3f" };
    Some(DateTime::from_timestamp_millis(millis)?.format(format).to_string())
}

fn decimal(unscaled: i128, precision: u8, scale: i8) -> Option<Value> {
    if unscaled.unsigned_abs() >= EXACT_DECIMAL {
        return None;
    }
    let text = Decimal128Type::format_decimal(unscaled, precision, scale);
    if scale <= 0 {
        return text.parse::<i64>().ok().map(Value::from);
    }
    text.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number)
}

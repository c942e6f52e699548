//! The statistics that a Delta log has of a data file, taken from the file's Parquet metadata.

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::{SortOptions, sort_to_indices};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DecimalType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use chrono::DateTime;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use serde_json::{Map, Number, Value, json};

use crate::rewrite::target::WrittenFile;

/// Decimals below this are the same after a reader has taken them for 64-bit floats.
const EXACT_DECIMAL: u128 = 1_000_000_000_000_000;

/// The statistics of a file as JSON text: of flat columns only, since nobody needs more to skip files, and of those that `wanted` names.
pub(super) fn stats_of(file: &WrittenFile, schema: &SchemaRef, wanted: impl Fn(usize, &Field) -> bool) -> String {
    let (mut lowest, mut highest, mut nulls) = (Map::new(), Map::new(), Map::new());
    for (place, field) in schema.fields().iter().enumerate() {
        if field.data_type().is_nested() || !wanted(place, field) {
            continue;
        }
        let Some(column) = ColumnStats::read(file, schema, field) else { continue };
        if let Some(count) = column.null_count() {
            nulls.insert(field.name().clone(), json!(count));
        }
        // A reader for which NaN is the largest number would skip a file whose bounds leave it out.
        if !file.with_nan.contains(&place)
            && let Some((low, high)) = column.bounds()
        {
            lowest.insert(field.name().clone(), low);
            highest.insert(field.name().clone(), high);
        }
    }
    json!({"numRecords": file.rows(), "minValues": lowest, "maxValues": highest, "nullCount": nulls}).to_string()
}

/// The statistics that the row groups of a file have of a column.
struct ColumnStats {
    lowest: ArrayRef,
    highest: ArrayRef,
    nulls: UInt64Array,
    rows: Vec<u32>,
}

impl ColumnStats {
    fn read(file: &WrittenFile, schema: &SchemaRef, field: &Field) -> Option<Self> {
        let columns = file.metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(field.name(), schema, columns).ok()?;
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
        DataType::Utf8 => Some(values.as_string::<i32>().value(at).into()),
        DataType::LargeUtf8 => Some(values.as_string::<i64>().value(at).into()),
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

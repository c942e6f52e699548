//! Whether the statistics of a column chunk in a footer are right. A reader of all values finds out.

use arrow::array::{Array, ArrayRef, AsArray, Scalar};
use arrow::compute::kernels::cmp::{gt, lt};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Float64Type};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;

use crate::files::footer::Footer;

/// The statistics of a column chunk, and whether they are right as far as values were read.
pub(crate) struct StatisticsCheck {
    min: Option<ArrayRef>,
    max: Option<ArrayRef>,
    /// How many NULLs there are by the statistics.
    nulls: Option<u64>,
    seen_nulls: u64,
    is_false: bool,
}

impl StatisticsCheck {
    /// The statistics that readers would go by; of nested columns they go by none.
    pub(crate) fn of(footer: &Footer, row_group: usize, column: &str, leaf: usize) -> Option<Self> {
        let group = footer.metadata.row_groups().get(row_group)?;
        let said = group.columns().get(leaf)?.statistics()?;
        let (_, field) = footer.schema.column_with_name(column)?;
        if field.data_type().is_nested() {
            return None;
        }
        let schema = footer.metadata.file_metadata().schema_descr();
        let converter = StatisticsConverter::from_column_index(leaf, field, schema).ok()?;
        let bound = |bounds: Option<ArrayRef>| bounds.filter(|bounds| bounds.len() == 1 && bounds.null_count() == 0);
        let min = bound(converter.row_group_mins([group]).ok());
        let max = bound(converter.row_group_maxes([group]).ok());
        Some(Self { min, max, nulls: said.null_count_opt(), seen_nulls: 0, is_false: false })
    }

    /// Compares values of the chunk with the statistics.
    pub(crate) fn see(&mut self, values: &ArrayRef) {
        self.seen_nulls += values.logical_null_count() as u64;
        self.is_false = self.is_false || self.excludes(values).unwrap_or(false);
    }

    /// Whether the statistics are false, after all values were seen.
    pub(crate) fn are_false(&self) -> bool {
        self.is_false || self.nulls.is_some_and(|nulls| nulls != self.seen_nulls)
    }

    /// Whether a bound has a value on its other side; none if that cannot be compared.
    fn excludes(&self, values: &ArrayRef) -> Option<bool> {
        let data_type = match values.data_type() {
            DataType::Dictionary(_, values) => values.as_ref().clone(),
            other => other.clone(),
        };
        if data_type.is_floating() {
            return self.excludes_floats(values);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let typed = |bound: &ArrayRef| cast_with_options(bound, &data_type, &options).ok().map(Scalar::new);
        let below = match self.min.as_ref().and_then(typed) {
            Some(min) => lt(values, &min).ok()?.true_count() > 0,
            None => false,
        };
        Some(match self.max.as_ref().and_then(typed) {
            Some(max) => below || gt(values, &max).ok()?.true_count() > 0,
            None => below,
        })
    }

    /// NaN lies outside of all bounds, and zeros are the same.
    fn excludes_floats(&self, values: &ArrayRef) -> Option<bool> {
        let wide = |values: &ArrayRef| cast(values, &DataType::Float64).ok();
        let bound = |bound: &Option<ArrayRef>| Some(wide(bound.as_ref()?)?.as_primitive::<Float64Type>().value(0));
        let (min, max) = (bound(&self.min), bound(&self.max));
        let values = wide(values)?;
        let is_outside = |value: f64| min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max);
        Some(values.as_primitive::<Float64Type>().iter().flatten().any(is_outside))
    }
}

//! Sums from values and how many rows hold each.
//!
//! Integers and decimals wrap around in DataFusion's sums, so that a product is what as many additions give. A sum of floats depends on the
//! order of its rows, unless no addition rounds. No addition rounds for whole numbers that sum up to less than 2^53, as the mean of
//! integers is computed. Other sums of floats are left to the scan.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, Float64Array, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Int64Type, Schema, UInt64Type,
};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

/// Whole numbers below this are floats, and so are their sums. Sums that reach it stay there or above, however they are rounded.
const EXACT_BELOW: f64 = (1u64 << f64::MANTISSA_DIGITS) as f64;

/// Whether sums of the argument follow from its values: they are integers or decimals, or floats made of integers.
pub(super) fn can_be_exact(argument: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    match argument.data_type(schema) {
        Ok(DataType::Int64 | DataType::UInt64) => true,
        Ok(data_type) if data_type.is_decimal() => true,
        Ok(DataType::Float64) => collect_columns(argument)
            .iter()
            .all(|column| schema.field_with_name(column.name()).is_ok_and(|field| field.data_type().is_integer())),
        _ => false,
    }
}

/// Each value as often as it occurs, in the type of the sum; none if additions would round. `magnitude` is the sum of the absolute values
/// that were added before, and grows by these.
///
/// # Errors
/// A type that [`can_be_exact`] refuses.
pub(super) fn multiplied(
    values: &ArrayRef,
    rows: &[i64],
    data_type: &DataType,
    magnitude: &mut f64,
) -> Result<Option<ArrayRef>> {
    let values = cast(values, data_type)?;
    Ok(Some(match data_type {
        DataType::Int64 => wrapped::<Int64Type>(&values, rows),
        DataType::UInt64 => wrapped::<UInt64Type>(&values, rows),
        DataType::Decimal32(..) => wrapped::<Decimal32Type>(&values, rows),
        DataType::Decimal64(..) => wrapped::<Decimal64Type>(&values, rows),
        DataType::Decimal128(..) => wrapped::<Decimal128Type>(&values, rows),
        DataType::Decimal256(..) => wrapped::<Decimal256Type>(&values, rows),
        DataType::Float64 => {
            let sums = whole(values.as_primitive(), rows, magnitude);
            return Ok(sums.map(|sums| Arc::new(sums) as ArrayRef));
        }
        other => return Err(internal_datafusion_err!("sums of {other} cannot be computed from the index")),
    }))
}

fn wrapped<T: ArrowPrimitiveType>(values: &ArrayRef, rows: &[i64]) -> ArrayRef {
    let values = values.as_primitive::<T>();
    let times = |(value, rows): (Option<T::Native>, &i64)| {
        value.map(|value| value.mul_wrapping(T::Native::usize_as(*rows as usize)))
    };
    let sums: PrimitiveArray<T> = values.iter().zip(rows).map(times).collect();
    Arc::new(sums.with_data_type(values.data_type().clone()))
}

fn whole(values: &Float64Array, rows: &[i64], magnitude: &mut f64) -> Option<Float64Array> {
    let held = || values.iter().zip(rows).filter_map(|(value, rows)| value.map(|value| (value, *rows as f64)));
    // What is no number is not below the limit.
    *magnitude += held().map(|(value, rows)| value.abs() * rows).sum::<f64>();
    let exact = *magnitude < EXACT_BELOW && held().all(|(value, _)| value.fract() == 0.0);
    exact.then(|| values.iter().zip(rows).map(|(value, rows)| value.map(|value| value * *rows as f64)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Int64Array, UInt64Array};
    use arrow::datatypes::Float64Type;

    #[test]
    fn products_wrap_as_additions_do() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(-3), Some(i64::MIN)]));
        let sums = multiplied(&values, &[3, 5, 4, 3], &DataType::Int64, &mut 0.0).unwrap().unwrap();
        let added = i64::MAX.wrapping_add(i64::MAX).wrapping_add(i64::MAX);
        assert_eq!(
            sums.as_primitive::<Int64Type>(),
            &Int64Array::from(vec![Some(added), None, Some(-12), Some(i64::MIN)])
        );
        let values: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
        let sums = multiplied(&values, &[2], &DataType::UInt64, &mut 0.0).unwrap().unwrap();
        assert_eq!(sums.as_primitive::<UInt64Type>().value(0), u64::MAX - 1);
    }

    #[test]
    fn decimals_take_the_type_of_the_sum() {
        let values: ArrayRef =
            Arc::new(Decimal128Array::from(vec![Some(1_25), None]).with_precision_and_scale(5, 2).unwrap());
        let sums = multiplied(&values, &[4, 9], &DataType::Decimal128(15, 2), &mut 0.0).unwrap().unwrap();
        assert_eq!(sums.data_type(), &DataType::Decimal128(15, 2));
        let sums: Vec<Option<i128>> = sums.as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(sums, [Some(5_00), None]);
    }

    #[test]
    fn floats_are_summed_where_no_addition_rounds() {
        let sums = |values: Vec<Option<f64>>, rows: &[i64]| {
            let values: ArrayRef = Arc::new(Float64Array::from(values));
            let sums = multiplied(&values, rows, &DataType::Float64, &mut 0.0).unwrap();
            sums.map(|sums| sums.as_primitive::<Float64Type>().iter().collect::<Vec<_>>())
        };
        assert_eq!(sums(vec![Some(3.0), None, Some(-2.0)], &[2, 7, 5]), Some(vec![Some(6.0), None, Some(-10.0)]));
        assert_eq!(sums(vec![Some(0.5)], &[2]), None);
        assert_eq!(sums(vec![Some(f64::NAN)], &[1]), None);
        assert_eq!(sums(vec![Some(f64::INFINITY)], &[1]), None);
        let half = EXACT_BELOW / 2.0 - 1.0;
        assert_eq!(sums(vec![Some(half), Some(-half)], &[1, 1]), Some(vec![Some(half), Some(-half)]));
        assert_eq!(sums(vec![Some(half), Some(-half)], &[1, 2]), None, "an order of additions rounds");
    }

    /// Parts that are exact, each for itself, may round when they are added.
    #[test]
    fn all_parts_of_a_sum_of_floats_have_to_be_exact_together() {
        let mut magnitude = 0.0;
        let mut is_exact = |value: f64| {
            let values: ArrayRef = Arc::new(Float64Array::from(vec![value]));
            multiplied(&values, &[1], &DataType::Float64, &mut magnitude).unwrap().is_some()
        };
        assert_eq!([is_exact(EXACT_BELOW - 2.0), is_exact(1.0), is_exact(1.0)], [true, true, false]);
    }
}

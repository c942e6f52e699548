//! Which values say the same after a cast, to whoever reads them in any type.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;

use super::leaf::lost_on_the_way;

/// Whether values that are cast exactly to `wanted` are, in any type that they are read in later, what they would be without that cast.
/// False where that is not known.
///
/// The text `007` is an integer, and no text any more that is written `007`. Doubles become narrower floats, and do not become doubles again.
pub(crate) fn is_kept(given: &ArrayRef, wanted: &DataType) -> bool {
    match (given.data_type(), wanted) {
        (have, wanted) if have == wanted => true,
        (DataType::Null, _) => true,
        (DataType::Dictionary(_, values), wanted) if values.as_ref() == wanted => true,
        (have, wanted) if have.is_string() => wanted.is_string(),
        // An instant is written with as many digits as it needs, whatever the unit.
        (DataType::Timestamp(_, zone), DataType::Timestamp(_, wanted_zone)) if zone == wanted_zone => {
            loses_nothing(given, wanted)
        }
        (have, wanted) if have.is_integer() && wanted.is_integer() => true,
        // Columns of integers may become text, in which 1.00 is not 1; those of decimals and floats do not.
        (have, wanted) if have.is_numeric() && (wanted.is_decimal() || wanted.is_floating()) => {
            loses_nothing(given, wanted)
        }
        _ => false,
    }
}

fn loses_nothing(given: &ArrayRef, wanted: &DataType) -> bool {
    lost_on_the_way(given, wanted).is_ok_and(|lost| lost.true_count() == 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, NullArray,
        StringArray, TimestampNanosecondArray,
    };
    use arrow::datatypes::{Int8Type, TimeUnit};

    use super::*;

    fn texts(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[test]
    fn values_are_kept_that_need_no_cast_or_lose_nothing_by_one() {
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        let cents: ArrayRef = Arc::new(Decimal128Array::from(vec![125]).with_precision_and_scale(5, 2).unwrap());
        let instants: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![Some(1_500_000), None]));
        let dictionary: DictionaryArray<Int8Type> = vec!["a", "b"].into_iter().collect();
        let (decimal, double) = (DataType::Decimal128(10, 4), DataType::Float64);
        for (given, wanted) in [
            (&integers, DataType::Int64),
            (&instants, DataType::Timestamp(TimeUnit::Microsecond, None)),
            (&integers, DataType::Int8),
            (&integers, decimal.clone()),
            (&integers, double.clone()),
            (&cents, decimal),
            (&(Arc::new(Float32Array::from(vec![0.1])) as ArrayRef), double),
            (&(Arc::new(Float64Array::from(vec![0.5])) as ArrayRef), DataType::Float32),
            (&texts(&["007"]), DataType::Utf8),
            (&texts(&["007"]), DataType::LargeUtf8),
            (&(Arc::new(dictionary) as ArrayRef), DataType::Utf8),
            (&(Arc::new(NullArray::new(2)) as ArrayRef), DataType::Date32),
        ] {
            assert!(is_kept(given, &wanted), "{} as {wanted}", given.data_type());
        }
    }

    #[test]
    fn values_are_not_kept_that_a_text_or_a_wider_type_would_show_otherwise() {
        let cents: ArrayRef = Arc::new(Decimal128Array::from(vec![100]).with_precision_and_scale(5, 2).unwrap());
        let large: ArrayRef = Arc::new(Int64Array::from(vec![9_007_199_254_740_993]));
        let instants: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_500]));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![1]));
        for (given, wanted) in [
            (&texts(&["7"]), DataType::Int64),
            (&instants, DataType::Timestamp(TimeUnit::Millisecond, None)),
            (&instants, DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()))),
            (&texts(&["2024-05-06"]), DataType::Date32),
            (&(Arc::new(Int32Array::from(vec![7])) as ArrayRef), DataType::Utf8),
            (&(Arc::new(Float64Array::from(vec![0.1])) as ArrayRef), DataType::Float32),
            (&(Arc::new(Float64Array::from(vec![1.0])) as ArrayRef), DataType::Int64),
            (&cents, DataType::Int64),
            (&large, DataType::Float64),
            (&days, DataType::Date64),
        ] {
            assert!(!is_kept(given, &wanted), "{} as {wanted}", given.data_type());
        }
    }
}

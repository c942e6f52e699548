//! Keys of a join as numbers that are equal exactly where the keys are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

/// Keys that a query accepts in a column.
#[derive(Clone, Debug)]
pub(crate) struct StarKeys {
    /// The place of the column in files.
    pub(crate) column: usize,
    pub(crate) keys: JoinKeys,
}

/// Keys of a join. They count to the memory of a session.
#[derive(Clone, Debug)]
pub(crate) struct JoinKeys {
    kind: KeyKind,
    numbers: Int64Array,
    _memory: Arc<MemoryReservation>,
}

impl JoinKeys {
    /// The keys, without NULL, which matches nothing. None if they are no such numbers, or if there is no memory for them.
    pub(crate) fn of(keys: &ArrayRef, memory: &Arc<dyn MemoryPool>) -> Option<Self> {
        let kind = KeyKind::of(keys.data_type())?;
        let numbers = numbers(keys)?;
        let reserved = MemoryConsumer::new("shared joins").register(memory);
        reserved.try_grow(numbers.get_buffer_memory_size()).ok()?;
        Some(Self { kind, numbers, _memory: Arc::new(reserved) })
    }

    pub(crate) fn kind(&self) -> KeyKind {
        self.kind
    }

    pub(crate) fn values(&self) -> &[i64] {
        self.numbers.values()
    }
}

/// Types whose values are such numbers: a kind for each set of types that may be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Integer,
    Day,
}

impl KeyKind {
    /// None for other types. Of `UInt64` not all values are among those of `Int64`.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::UInt64 => None,
            DataType::Date32 => Some(Self::Day),
            integer if integer.is_integer() => Some(Self::Integer),
            _ => None,
        }
    }
}

/// The values as numbers; none of a type that has no such.
pub(crate) fn numbers(values: &ArrayRef) -> Option<Int64Array> {
    KeyKind::of(values.data_type())?;
    let numbers = cast(values, &DataType::Int64).ok()?;
    Some(numbers.as_primitive::<Int64Type>().clone())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int8Array, StringArray, UInt32Array, UInt64Array};
    use arrow::datatypes::TimeUnit;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    fn of(values: impl Array + 'static) -> Option<Vec<Option<i64>>> {
        let values: ArrayRef = Arc::new(values);
        numbers(&values).map(|numbers| numbers.iter().collect())
    }

    #[test]
    fn keys_count_to_the_memory_of_their_session_as_long_as_somebody_has_them() {
        let memory: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1_000));
        let of = |count: i32| JoinKeys::of(&(Arc::new(Date32Array::from_iter_values(0..count)) as ArrayRef), &memory);
        let kept = of(64).unwrap();
        let other = kept.clone();
        assert_eq!((kept.kind(), kept.values().len()), (KeyKind::Day, 64));
        let bytes = memory.reserved();
        assert!(bytes >= 64 * size_of::<i64>() && of(64).is_none());
        drop(kept);
        assert_eq!(memory.reserved(), bytes);
        drop(other);
        assert_eq!(memory.reserved(), 0);
        assert!(JoinKeys::of(&(Arc::new(StringArray::from(vec!["7"])) as ArrayRef), &memory).is_none());
    }

    #[test]
    fn integers_and_days_are_numbers() {
        assert_eq!(of(Int8Array::from(vec![Some(-1), None])), Some(vec![Some(-1), None]));
        assert_eq!(of(UInt32Array::from(vec![u32::MAX])), Some(vec![Some(4_294_967_295)]));
        assert_eq!(of(Date32Array::from(vec![-3])), Some(vec![Some(-3)]));
        assert_eq!((of(UInt64Array::from(vec![1])), of(StringArray::from(vec!["1"]))), (None, None));
        assert_ne!(KeyKind::of(&DataType::Date32), KeyKind::of(&DataType::Int32));
    }

    /// Values may be equal that have other bits, such as zeros, or have the same ones and not be equal.
    #[test]
    fn what_is_equal_in_some_other_way_is_no_number() {
        let coded = |values: DataType| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
        let others = [
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(10, 0),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Date64,
            DataType::Boolean,
            DataType::Utf8,
            DataType::Utf8View,
            DataType::BinaryView,
            coded(DataType::Int64),
            coded(DataType::Utf8),
        ];
        assert!(others.iter().all(|other| KeyKind::of(other).is_none()));
    }
}

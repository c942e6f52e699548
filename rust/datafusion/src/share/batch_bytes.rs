//! How much of the memory the rows of a batch are.
//!
//! Batches are often slices of the same arrays. Each counts what its rows have, so that many of them are as much as the arrays are.

use arrow::array::{Array, AsArray, GenericByteViewArray, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::{ByteViewType, DataType};

/// Bytes of the rows of a batch, without those of other batches of the same arrays. Dictionaries are counted whole.
pub(crate) fn bytes_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| bytes_of_array(column.as_ref())).sum()
}

fn bytes_of_array(array: &dyn Array) -> usize {
    let whole = || array.get_array_memory_size();
    let values = match array.data_type() {
        DataType::Utf8View => bytes_of_views(array.as_string_view()).min(whole()),
        DataType::BinaryView => bytes_of_views(array.as_binary_view()).min(whole()),
        DataType::List(_) => bytes_of_lists(array.as_list::<i32>().offsets(), array.as_list::<i32>().values().as_ref()),
        DataType::LargeList(_) => {
            bytes_of_lists(array.as_list::<i64>().offsets(), array.as_list::<i64>().values().as_ref())
        }
        DataType::Map(..) => bytes_of_lists(array.as_map().offsets(), array.as_map().entries()),
        DataType::FixedSizeList(..) => bytes_of_array(array.as_fixed_size_list().values().as_ref()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(|column| bytes_of_array(column.as_ref())).sum(),
        _ => return array.to_data().get_slice_memory_size().unwrap_or_else(|_| whole()),
    };
    values + array.nulls().map_or(0, |nulls| nulls.len().div_ceil(8))
}

/// Views, and the bytes that they are of. Several may be of the same bytes.
fn bytes_of_views<T: ByteViewType>(array: &GenericByteViewArray<T>) -> usize {
    size_of_val::<[u128]>(array.views()) + array.total_buffer_bytes_used()
}

/// Offsets, and the values between the first one and the last one.
fn bytes_of_lists<O: OffsetSizeTrait>(offsets: &[O], values: &dyn Array) -> usize {
    let [first, last] = [offsets.first(), offsets.last()].map(|offset| offset.map_or(0, |offset| offset.as_usize()));
    size_of_val(offsets) + bytes_of_array(values.slice(first, last.saturating_sub(first)).as_ref())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, ListArray, StringViewArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;

    use super::*;

    const ROWS: usize = 100;

    /// Views of what is too long for them, lists of ten of these, and structs of both.
    fn columns() -> [ArrayRef; 3] {
        let views =
            |rows: usize| StringViewArray::from_iter_values((0..rows).map(|row| format!("a long text {row:010}")));
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(10, ROWS));
        let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(views(10 * ROWS)), None));
        let views: ArrayRef = Arc::new(views(ROWS));
        let structs = StructArray::try_from(vec![("v", Arc::clone(&views)), ("l", Arc::clone(&lists))]).unwrap();
        [views, lists, Arc::new(structs)]
    }

    #[test]
    fn slices_are_as_much_together_as_the_whole() {
        for column in columns() {
            let batch = RecordBatch::try_from_iter([("c", column)]).unwrap();
            let parts: usize = (0..ROWS / 10).map(|part| bytes_of(&batch.slice(part * 10, 10))).sum();
            let whole = bytes_of(&batch);
            assert!(parts >= whole && parts - whole <= 10 * size_of::<i32>(), "{parts} and {whole}: {batch:?}");
        }
    }

    #[test]
    fn views_count_with_their_texts_and_numbers_by_their_width() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["short", "long enough for a buffer", "short"]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("texts", texts), ("numbers", numbers)]).unwrap();
        assert_eq!(bytes_of(&batch), 3 * 16 + 24 + 3 * 8);
        assert_eq!(bytes_of(&batch.slice(0, 1)), 16 + 8);
    }
}

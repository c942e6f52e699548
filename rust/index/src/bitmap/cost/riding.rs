//! What columns take that ride along with the keys of a packed tree, measured on the rows of a sample.
//!
//! Packed values depend on those of neighbouring keys, so that no formula is as good as leaves: those of some stretches of keys are made
//! twice, with the columns and without.

use std::borrow::Cow;

use lakemark_format::container::PAGE_PAYLOAD;
use lakemark_format::error::Result;
use lakemark_format::key::KeyType;
use lakemark_format::leaf::{KeyRows, LeafBuilder, LeafEntry, MAX_INLINE_POSTING, MAX_LISTED_ROWS};
use lakemark_format::posting;
use lakemark_format::riding::RidingRows;

use crate::chunk::{Chunk, ValueList};

/// Of more keys than these
const MEASURED_KEYS: usize = 1 << 16;
/// so many stretches are measured, at even distances.
const STRETCHES: usize = 16;

/// Bytes of leaves for each row with a key that these columns take. They ride along with the keys of the chunk.
///
/// # Errors
/// Columns of other types than those that ride along with the chunk.
pub fn riding_row_bytes(chunk: &Chunk, key_type: &KeyType, columns: &[KeyType]) -> Result<f64> {
    let values: Vec<ValueList<'_>> = chunk.values().collect();
    let (mut with, mut without, mut rows) = (0usize, 0usize, 0usize);
    for stretch in stretches(&values) {
        let entry = |list: &ValueList<'_>| {
            let riding = chunk.riding_of(list.rows);
            KeyWithColumns { entry: entry_of(*list, riding.rides(), chunk.row_count()), riding }
        };
        let bare = |list: &ValueList<'_>| KeyWithColumns { riding: RidingRows::default(), ..entry(list) };
        let universe = chunk.row_count();
        let leaves = LeafBuilder::with_riding(key_type.clone(), universe, columns.to_vec());
        with += leaf_bytes(leaves, stretch.iter().map(entry))?;
        without += leaf_bytes(LeafBuilder::new(key_type.clone(), universe), stretch.iter().map(bare))?;
        rows += stretch.iter().map(|list| list.rows.len()).sum::<usize>();
    }
    Ok(with.saturating_sub(without) as f64 / rows.max(1) as f64)
}

/// A key with what rides along with its rows.
struct KeyWithColumns {
    entry: LeafEntry<'static>,
    riding: RidingRows,
}

/// All values if they are few, else some of them.
pub(super) fn stretches<T>(values: &[T]) -> Vec<&[T]> {
    let length = MEASURED_KEYS / STRETCHES;
    let Some(last) = values.len().checked_sub(length).filter(|_| values.len() > MEASURED_KEYS) else {
        return vec![values];
    };
    let starts = (0..STRETCHES).map(|stretch| stretch * last / (STRETCHES - 1));
    starts.filter_map(|start| values.get(start..start + length)).collect()
}

/// A key with its rows, as a build writes them.
fn entry_of(ValueList { key, rows }: ValueList<'_>, rides: bool, universe: u32) -> LeafEntry<'static> {
    let count = rows.len() as u32;
    let rows_in = match (rows.first(), rows.last()) {
        (Some(first), Some(last)) if last - first + 1 == count => KeyRows::Run(*first),
        _ if rows.len() <= MAX_LISTED_ROWS => KeyRows::Listed(rows.to_vec()),
        _ => {
            let mut bytes = Vec::new();
            posting::encode(rows, universe, &mut bytes);
            match rides || bytes.len() <= MAX_INLINE_POSTING {
                true => KeyRows::Inline(Cow::Owned(bytes)),
                false => KeyRows::Long { offset: 0, length: bytes.len() as u32 },
            }
        }
    };
    LeafEntry { key: key.clone(), rows: count, rows_in }
}

fn leaf_bytes(mut leaves: LeafBuilder, keys: impl Iterator<Item = KeyWithColumns>) -> Result<usize> {
    let (room, mut bytes) = (PAGE_PAYLOAD as usize, 0);
    for KeyWithColumns { entry, riding } in keys {
        let full = leaves.push_riding(entry, riding, room)?;
        bytes += full.iter().map(|leaf| leaf.bytes.len()).sum::<usize>();
    }
    while let Some(leaf) = leaves.finish(room)? {
        bytes += leaf.bytes.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use arrow::datatypes::DataType;

    use super::*;
    use crate::chunk::ChunkBuilder;
    use crate::riding::riding_type_of;

    /// What columns take that ride along with so many keys, each in one row.
    fn measured(rows: i64, columns: &[ArrayRef]) -> f64 {
        let mut builder = ChunkBuilder::new(&KeyType::Int64);
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row * 7919 % rows)));
        builder.push(&keys).unwrap();
        builder.push_riding(columns).unwrap();
        let types: Vec<KeyType> = columns.iter().filter_map(|column| riding_type_of(column.data_type())).collect();
        riding_row_bytes(&builder.finish(), &KeyType::Int64, &types).unwrap()
    }

    fn numbers(rows: i64, below: i64) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row * 48_271 % 1_000_003 % below)))
    }

    #[test]
    fn numbers_take_their_bits_and_equal_texts_next_to_nothing() {
        for rows in [5_000, 200_003] {
            let wide = measured(rows, &[numbers(rows, 1 << 16)]);
            assert!((1.9..2.5).contains(&wide), "{wide} bytes for numbers of 16 bits in {rows} rows");
            let both = measured(rows, &[numbers(rows, 1 << 16), numbers(rows, 1 << 8)]);
            assert!((2.8..3.8).contains(&both), "{both} bytes for numbers of 16 and of 8 bits");
            let texts: ArrayRef = Arc::new(StringArray::from(vec!["the same"; rows as usize]));
            let same = measured(rows, &[texts]);
            assert!(same < 0.5, "{same} bytes for a text that all rows have");
            let none: ArrayRef = Arc::new(Int64Array::from(vec![None; rows as usize]));
            assert!(measured(rows, &[none]) < 0.2);
        }
    }

    #[test]
    fn of_many_keys_some_stretches_are_measured() {
        let keys: Vec<usize> = (0..100_000).collect();
        let parts = stretches(&keys);
        assert_eq!((parts.len(), parts.iter().map(|part| part.len()).sum::<usize>()), (STRETCHES, MEASURED_KEYS));
        assert_eq!((parts[0].first(), parts[STRETCHES - 1].last()), (Some(&0), Some(&99_999)));
        assert_eq!(stretches(&keys[..10]), [&keys[..10]]);
        assert_eq!(measured(0, &[Arc::new(Int64Array::from(Vec::<i64>::new()))]), 0.0);
        assert!(riding_type_of(&DataType::Int64).is_some());
    }
}

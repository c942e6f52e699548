//! Rows of a page on their way along the columns of a fact table, and to the queries that they are left to.
//!
//! ```text
//! row    starts with    column 1    column 2    goes to
//! 0      A B C          A · C       A · ·       A
//! 1      A · C          · · ·                   nobody, and is not looked up in column 2
//! 2      · B ·          · B ·       · B ·       B
//! ```

use std::collections::BTreeMap;

use arrow::array::{Array, Int64Array, UInt32Array};
use datafusion::execution::memory_pool::MemoryReservation;
use lakemark_table::RowSet;

use super::dimension::{Dimension, QueryBit};

/// Tells those apart who take a page.
pub(crate) type TakerId = u64;

/// The rows of a page that a query wants.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) taker: TakerId,
    pub(crate) bit: QueryBit,
    /// None for all of them.
    pub(crate) rows: Option<&'a RowSet>,
}

/// Rows that are left to some query.
#[derive(Debug)]
pub(crate) struct LiveRows(Vec<LiveRow>);

#[derive(Debug)]
struct LiveRow {
    row: u32,
    /// The bits of the queries that it is left to.
    queries: u64,
}

/// Bytes that a chain takes for each row of a page: its bits, the row with room for another one, and a key.
const ROW_BYTES: usize = size_of::<u64>() + 2 * size_of::<LiveRow>() + size_of::<i64>();

impl LiveRows {
    /// Bytes that the chain of a page of so many rows takes while it is computed.
    pub(crate) fn bytes_of(rows: u32) -> usize {
        rows as usize * ROW_BYTES
    }

    /// The rows of a page of so many that some query wants.
    pub(crate) fn starting(rows: u32, starts: &[Start<'_>]) -> Self {
        let of_all = starts.iter().filter(|start| start.rows.is_none()).fold(0, |bits, start| bits | start.bit.mask());
        let mut queries = vec![of_all; rows as usize];
        for Start { bit, rows, .. } in starts {
            for range in rows.iter().flat_map(|rows| rows.iter_ranges()) {
                let wanted = queries.get_mut(range.start as usize..range.end as usize);
                wanted.into_iter().flatten().for_each(|queries| *queries |= bit.mask());
            }
        }
        let wanted = (0..rows).zip(queries).filter(|(_, queries)| *queries != 0);
        Self(wanted.map(|(row, queries)| LiveRow { row, queries }).collect())
    }

    /// Leaves out what nobody accepts, by the keys of all rows of the page in a column.
    pub(crate) fn pass(&mut self, keys: &Int64Array, dimension: &Dimension) {
        let before = self.0.len();
        let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
        self.0.retain_mut(|LiveRow { row, queries }| {
            let place = *row as usize;
            let is_null = nulls.is_some_and(|nulls| place < nulls.len() && nulls.is_null(place));
            let key = if is_null { None } else { keys.values().get(place).copied() };
            *queries &= dimension.accept(key);
            *queries != 0
        });
        dimension.count(before, self.0.len());
    }

    /// Bytes that what is left to each query takes while it is gathered.
    pub(crate) fn routed_bytes(&self) -> usize {
        // A list that grows has room for as much again.
        self.0.iter().map(|live| live.queries.count_ones() as usize * 2 * size_of::<u32>()).sum()
    }

    /// What is left to each query. It counts to this memory, which has room for it.
    pub(crate) fn routed(&self, starts: &[Start<'_>], memory: MemoryReservation) -> RoutedRows {
        let mut rows: [Vec<u32>; QueryBit::MOST as usize] = std::array::from_fn(|_| Vec::new());
        for LiveRow { row, queries } in &self.0 {
            for bit in QueryBit::all_of(*queries) {
                if let Some(rows) = rows.get_mut(bit.place()) {
                    rows.push(*row);
                }
            }
        }
        let of = |start: &Start<'_>| {
            let rows = rows.get_mut(start.bit.place()).map(std::mem::take).unwrap_or_default();
            (start.taker, UInt32Array::from(rows))
        };
        let rows: BTreeMap<TakerId, UInt32Array> = starts.iter().map(of).collect();
        let bytes: usize = rows.values().map(|rows| rows.get_buffer_memory_size()).sum();
        memory.shrink(memory.size().saturating_sub(bytes));
        RoutedRows { rows, _memory: Some(memory) }
    }
}

/// The rows of a page that are left to each of those whom its chain was for.
#[derive(Debug, Default)]
pub(crate) struct RoutedRows {
    rows: BTreeMap<TakerId, UInt32Array>,
    /// What they take, as long as the page is kept.
    _memory: Option<MemoryReservation>,
}

impl RoutedRows {
    /// Those of a taker, ascending; none if the chain was not for it, so that it takes all rows that it wants.
    pub(crate) fn of(&self, taker: TakerId) -> Option<&UInt32Array> {
        self.rows.get(&taker)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use proptest::prelude::*;

    use super::*;

    const ROWS: u32 = 40;

    /// A query: the rows that it wants, and the keys that it accepts in each of two columns.
    type Query = (Option<Vec<u32>>, [Option<Vec<i64>>; 2]);

    fn some_query() -> impl Strategy<Value = Query> {
        let rows = proptest::option::of(proptest::collection::vec(0..ROWS, 0..40));
        let keys = || proptest::option::of(proptest::collection::vec(0_i64..10, 0..8));
        (rows, [keys(), keys()])
    }

    fn memory() -> MemoryReservation {
        let unlimited: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        MemoryConsumer::new("test").register(&unlimited)
    }

    /// The rows of each query, one query and one row after the other.
    fn expected(query: &Query, columns: &[Int64Array; 2]) -> Vec<u32> {
        let (rows, accepted) = query;
        let wants = |row: &u32| rows.as_ref().is_none_or(|rows| rows.contains(row));
        let accepts = |row: &u32| {
            accepted.iter().zip(columns).all(|(keys, column)| {
                let place = *row as usize;
                keys.as_ref().is_none_or(|keys| column.is_valid(place) && keys.contains(&column.value(place)))
            })
        };
        (0..ROWS).filter(wants).filter(accepts).collect()
    }

    fn routed(queries: &[Query], columns: &[Int64Array; 2]) -> Vec<Vec<u32>> {
        let mut dimensions: [Dimension; 2] = Default::default();
        let sets: Vec<Option<RowSet>> =
            queries.iter().map(|(rows, _)| Some(RowSet::from_rows(rows.clone()?, ROWS))).collect();
        let mut starts = Vec::new();
        for (place, (set, bit)) in sets.iter().zip(QueryBit::all_of(u64::MAX)).enumerate() {
            for (dimension, keys) in dimensions.iter_mut().zip(&queries[place].1) {
                if let Some(keys) = keys {
                    dimension.add(keys, bit);
                }
            }
            starts.push(Start { taker: 100 + place as u64, bit, rows: set.as_ref() });
        }
        let mut live = LiveRows::starting(ROWS, &starts);
        for (column, dimension) in columns.iter().zip(&dimensions) {
            live.pass(column, dimension);
        }
        let found = live.routed(&starts, memory());
        starts.iter().map(|start| found.of(start.taker).unwrap().values().to_vec()).collect()
    }

    #[test]
    fn rows_that_nobody_wants_are_looked_up_nowhere() {
        let set = RowSet::from_range(3..5, ROWS);
        let bit = QueryBit::first_free(0).unwrap();
        let mut dimension = Dimension::default();
        dimension.add(&[4], bit);
        let starts = [Start { taker: 9, bit, rows: Some(&set) }];
        let mut live = LiveRows::starting(ROWS, &starts);
        assert_eq!(live.0.len(), 2);
        let keys = Int64Array::from_iter_values((0..i64::from(ROWS)).rev().map(|row| 43 - row));
        live.pass(&keys, &dimension);
        assert_eq!(dimension.share_left(), 0.0);
        live.pass(&Int64Array::from_iter_values(0..i64::from(ROWS)), &dimension);
        let found = live.routed(&starts, memory());
        assert_eq!(found.of(9).map(|rows| rows.values().to_vec()), Some(Vec::new()));
        assert_eq!(found.of(8), None);
    }

    proptest! {
        #[test]
        fn each_query_gets_its_rows_whose_keys_it_accepts(
            queries in proptest::collection::vec(some_query(), 1..64),
            first in proptest::collection::vec(proptest::option::of(0_i64..10), ROWS as usize),
            second in proptest::collection::vec(proptest::option::of(-3_i64..12), ROWS as usize),
        ) {
            let columns = [Int64Array::from(first), Int64Array::from(second)];
            let expected: Vec<Vec<u32>> = queries.iter().map(|query| expected(query, &columns)).collect();
            prop_assert_eq!(routed(&queries, &columns), expected);
        }
    }
}

//! Rows by rank: where the rows of a consumer are in a batch of a union's rows.
//!
//! ```text
//! union in a stretch     · █ · █ █ · █ █ █ ·        batch    0 1 2 3 4 5
//! rows of a consumer     · █ · · █ · █ █ · ·        takes    0   2 3 4
//! ```

use lakemark_table::RowSet;

/// What a consumer takes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TakenRows {
    /// The batch as it is.
    All,
    /// These of its rows.
    Some(RowSet),
}

/// Rows of a long set that are looked at together.
const CHUNK_ROWS: u32 = 1 << 16;

/// Where the rows of a consumer, which are among those of the union, are in the batch of the union's rows. Both are of one stretch.
pub(crate) fn rows_in_batch(union: &RowSet, rows: &RowSet) -> TakenRows {
    if rows.len() == union.len() {
        return TakenRows::All;
    }
    if union.is_full() {
        return TakenRows::Some(rows.clone());
    }
    let mut ranks = Vec::with_capacity(rows.len() as usize);
    let (mut at, mut rank) = (0, 0);
    for range in rows.iter_ranges() {
        rank += union.count_in(at, range.start);
        let after = rank + (range.end - range.start);
        ranks.extend(rank..after);
        (at, rank) = (range.end, after);
    }
    TakenRows::Some(RowSet::from_rows(ranks, union.len()))
}

/// The row behind the next `count` rows of a set, from a row on; none if the set has fewer.
pub(crate) fn behind(rows: &RowSet, from: u32, count: u32) -> Option<u32> {
    let (mut at, mut left) = (from, count);
    while left > 0 && at < rows.universe() {
        let end = at.saturating_add(CHUNK_ROWS).min(rows.universe());
        let here = rows.count_in(at, end);
        if here >= left {
            return behind_within(&rows.slice(at, end), left).map(|behind| at + behind);
        }
        (at, left) = (end, left - here);
    }
    (left == 0).then_some(at)
}

fn behind_within(rows: &RowSet, count: u32) -> Option<u32> {
    let mut left = count;
    for range in rows.iter_ranges() {
        let length = range.end - range.start;
        if length >= left {
            return Some(range.start + left);
        }
        left -= length;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whole_batches_are_taken_as_they_are() {
        let some = RowSet::from_rows(vec![2, 5], 10);
        assert_eq!(rows_in_batch(&some, &some), TakenRows::All);
        assert_eq!(rows_in_batch(&RowSet::full(10), &some), TakenRows::Some(some));
    }

    #[test]
    fn a_set_ends_behind_its_last_row() {
        let rows = RowSet::from_rows(vec![3, 70_000, 70_001, 140_000], 200_000);
        let ends = (0..=5).map(|count| behind(&rows, 0, count)).collect::<Vec<_>>();
        assert_eq!(ends, [Some(0), Some(4), Some(70_001), Some(70_002), Some(140_001), None]);
        assert_eq!(behind(&rows, 70_001, 2), Some(140_001));
    }

    proptest! {
        #[test]
        fn rows_by_rank_are_the_rows_of_the_consumer(
            has in proptest::collection::vec(any::<bool>(), 300),
            keeps in proptest::collection::vec(any::<bool>(), 300),
        ) {
            let union: Vec<u32> = (0..300).zip(&has).filter(|(_, has)| **has).map(|(row, _)| row).collect();
            let wanted: Vec<u32> = union.iter().zip(&keeps).filter(|(_, keep)| **keep).map(|(row, _)| *row).collect();
            let set = |rows: &[u32]| RowSet::from_rows(rows.to_vec(), 300);
            let taken: Vec<u32> = match rows_in_batch(&set(&union), &set(&wanted)) {
                TakenRows::All => union.clone(),
                TakenRows::Some(ranks) => ranks.iter().map(|rank| union[rank as usize]).collect(),
            };
            prop_assert_eq!(taken, wanted);
        }
    }
}

//! The values that a segment has, how many of them are worth taking, and their postings in batches that fit into memory.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use lakemark_format::segment::PostingRef;
use lakemark_index::bitmap::{GroupValue, LeavesFor, ValueGroups};

use super::allowed_values::AllowedValues;
use super::selected_rows::{ChosenRows, total_of};
use crate::store::parts::in_parts;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// More bytes of bitmaps than this are not read to count rows by value: they have to be in memory together.
pub(super) const BITMAP_BYTES: u64 = 256 << 20;
/// Batches of postings of a segment that are counted at a time.
pub(super) const CONCURRENT_BATCHES: usize = 4;
/// Bytes of postings of a batch.
pub(super) const POSTING_BYTES: u64 = 4 << 20;
/// Rows of an index that are always worth decoding.
pub(super) const CHEAP_ROWS: u64 = 1 << 16;
/// Values that are always worth taking from the index, at some 400 ns each.
pub(super) const CHEAP_VALUES: u64 = 1 << 12;
/// With fewer rows than this for each value, rows are as quickly read and grouped as values are taken from the index.
pub(super) const ROWS_PER_VALUE: u64 = 4;
/// The same where rows are only read and added up, at some 20 ns each.
const ROWS_PER_SUMMED_VALUE: u64 = 20;

/// How many rows there have to be for each value from the index. A scan quickly reads rows that it only adds up.
pub(super) fn rows_per_value(is_summed: bool) -> u64 {
    if is_summed { ROWS_PER_SUMMED_VALUE } else { ROWS_PER_VALUE }
}

/// The values that selected rows may have; none if they are so many that reading the rows is no worse.
pub(super) async fn values_of(
    segment: &Segment,
    allowed: &AllowedValues,
    chosen: &[ChosenRows],
    rows_per_value: u64,
    counter: &Arc<ReadCounter>,
) -> Result<Option<Vec<GroupValue>>, Damage> {
    let groups = ValueGroups::new(&segment.directory, allowed.ranges.clone());
    if groups.value_limit() > CHEAP_VALUES.max(total_of(chosen) / rows_per_value) {
        return Ok(None);
    }
    let opened = segment.with_leaves(&allowed.ranges, LeavesFor::Keys, counter).await?;
    let groups = match &opened {
        Cow::Borrowed(_) => groups,
        Cow::Owned(opened) => ValueGroups::new(&opened.directory, allowed.ranges.clone()),
    };
    read_values(&opened, groups, counter).await.map(Some)
}

/// All values that the groups are about, ascending.
pub(crate) async fn read_values(
    segment: &Segment,
    groups: ValueGroups,
    counter: &Arc<ReadCounter>,
) -> Result<Vec<GroupValue>, Damage> {
    let groups = Arc::new(groups);
    let run = |part: Range<usize>| {
        let (segment, groups, counter) = (segment.clone(), Arc::clone(&groups), Arc::clone(counter));
        async move {
            let bytes = segment.read(&groups.block_ranges(part.clone()), &counter).await?;
            groups.values(part, &bytes).map_err(Damage::corrupt)
        }
    };
    let parts = in_parts(segment, groups.block_count(), run).await?;
    Ok(parts.into_iter().flatten().collect())
}

/// Where a list of rows is.
pub(super) fn list_range(list: PostingRef) -> Range<u64> {
    list.offset..list.offset + u64::from(list.length)
}

/// Stretches of values whose postings fit into memory.
pub(super) fn batches(values: &[GroupValue]) -> impl Iterator<Item = &[GroupValue]> {
    let mut taken = 0;
    values.chunk_by(move |value, next| {
        taken += value.posting.end - value.posting.start;
        let fits = taken + (next.posting.end - next.posting.start) <= POSTING_BYTES;
        if !fits {
            taken = 0;
        }
        fits
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lakemark_format::key::Key;

    #[test]
    fn batches_hold_every_value_once_and_few_bytes() {
        let lengths = [1, POSTING_BYTES, 5, POSTING_BYTES / 2, POSTING_BYTES / 2, POSTING_BYTES * 3, 7, 7];
        let mut offset = 0;
        let values = lengths.map(|length| {
            offset += length;
            GroupValue { key: Key::Fixed(offset), rank: 0, rows: 1, posting: offset - length..offset }
        });
        let cut: Vec<usize> = batches(&values).map(<[GroupValue]>::len).collect();
        assert_eq!(cut, [1, 1, 2, 1, 1, 2]);
        assert_eq!(batches(&[]).count(), 0);
    }
}

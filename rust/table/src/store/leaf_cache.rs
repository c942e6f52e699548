//! Leaves that the process read last of indexes with columns that ride along: whoever found rows in one gets their values without reading it
//! again.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;

use super::segments::{Damage, ReadCounter, Segment, SegmentKey};
use crate::storage::cache::Cache;

/// Bytes of leaves that the process remembers.
const CACHE_BYTES: u64 = 64 << 20;
/// Of a read of more bytes nothing is remembered: it is none of a lookup, whose values are read of as many.
const MOST_BYTES: u64 = 8 << 20;

/// A logical range of a segment. Segments never change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeafKey {
    segment: SegmentKey,
    start: u64,
    end: u64,
}

static LEAVES: LazyLock<Cache<LeafKey, Bytes>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

fn key_of(segment: &SegmentKey, range: &Range<u64>) -> LeafKey {
    LeafKey { segment: segment.clone(), start: range.start, end: range.end }
}

/// Remembers what was read of a segment, unless it is much.
fn remember(segment: &SegmentKey, ranges: &[Range<u64>], read: &[Bytes]) {
    if read.iter().map(|bytes| bytes.len() as u64).sum::<u64>() > MOST_BYTES {
        return;
    }
    for (range, bytes) in ranges.iter().zip(read) {
        let key = key_of(segment, range);
        let taken = (bytes.len() + size_of::<LeafKey>() + key.segment.text_bytes()) as u64;
        // A copy, as the bytes may be a part of a longer read.
        LEAVES.insert(key, Bytes::copy_from_slice(bytes), taken);
    }
}

/// Reads logical ranges: those that are remembered from memory, and all others at once. A search that goes from one round to the next meets
/// some of its leaves again.
pub(crate) async fn read_remembered(
    segment: &Segment,
    key: &SegmentKey,
    ranges: &[Range<u64>],
    counter: &ReadCounter,
) -> Result<Vec<Bytes>, Damage> {
    let known: Vec<Option<Bytes>> = ranges.iter().map(|range| LEAVES.get(&key_of(key, range))).collect();
    let missing = ranges.iter().zip(&known).filter(|(_, known)| known.is_none());
    let missing: Vec<Range<u64>> = missing.map(|(range, _)| range.clone()).collect();
    if missing.is_empty() {
        return Ok(known.into_iter().flatten().collect());
    }
    let read = segment.read(&missing, counter).await?;
    remember(key, &missing, &read);
    let mut read = read.into_iter();
    // As many were read as were missing.
    Ok(known.into_iter().filter_map(|known| known.or_else(|| read.next())).collect())
}

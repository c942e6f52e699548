//! Leaves of links: remembered as they were decoded, or read, a round at once.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::Key;
use lakemark_format::links::{LinkLeaf, decode_link_rows};
use lakemark_format::posting;
use lakemark_format::segment::ValueBlockRef;
use lakemark_index::RowSet;
use lakemark_index::bitmap::EntryRows;
use lakemark_index::links::{WantedPredicates, read_leaf, rows_of_links};

use super::WalkError;
use crate::storage::cache::Cache;
use crate::store::leaf_cache::read_remembered;
use crate::store::segments::{Damage, ReadCounter, Segment, SegmentKey};

/// A read among those that are in flight at once.
pub(super) type Reading<'a, T, E> = BoxFuture<'a, Result<T, E>>;

/// Bytes of decoded leaves that the process remembers.
const CACHE_BYTES: u64 = 64 << 20;
/// Reads that are under way at a time. So many keep a disk busy.
pub(super) const READS_AT_ONCE: usize = 32;
/// Leaves that follow each other and are read by one request, at most.
const LEAVES_OF_READ: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CachedLeaf {
    segment: SegmentKey,
    number: usize,
}

static LEAVES: LazyLock<Cache<CachedLeaf, Arc<LinkLeaf>>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

/// How many rows that count each link of a leaf is in; none if each is in one.
type LinkCounts = Option<Arc<[u32]>>;

/// Such numbers, of a leaf whose links are in several rows or in some that do not count.
#[derive(Clone, Debug)]
struct CachedCounts {
    /// The rows that counted then. They are kept, so that no other ones can be taken for them.
    live: Option<Arc<[LiveFile]>>,
    counts: Arc<[u32]>,
}

static COUNTS: LazyLock<Cache<CachedLeaf, CachedCounts>> = LazyLock::new(|| Cache::new(CACHE_BYTES));

/// The rows of a data file in a segment.
#[derive(Debug)]
pub(super) struct LiveFile {
    /// Its first row in the row space, and the one behind its last.
    pub rows: Range<u32>,
    /// Those that are deleted or replaced.
    pub deleted: Option<Arc<RowSet>>,
}

impl LiveFile {
    pub(super) fn is_whole(&self) -> bool {
        self.deleted.as_ref().is_none_or(|deleted| deleted.is_empty())
    }

    /// Whether these are surely the same rows.
    fn is_same(&self, other: &Self) -> bool {
        let is_same = match (&self.deleted, &other.deleted) {
            (Some(deleted), Some(other)) => Arc::ptr_eq(deleted, other),
            (None, None) => true,
            _ => false,
        };
        is_same && self.rows == other.rows
    }
}

/// An open segment of links.
#[derive(Debug)]
pub(super) struct LinkSegment {
    pub id: [u8; 16],
    pub path: String,
    pub key: SegmentKey,
    pub segment: Segment,
    /// The files whose rows count, by ascending first rows; none if all rows of the segment do.
    pub live: Option<Arc<[LiveFile]>>,
    /// The places of the predicates in the dictionary.
    pub dictionary: HashMap<Option<Key>, u32>,
    pub has_predicate: bool,
}

/// A leaf in memory.
pub(super) struct LoadedLeaf {
    pub leaf: Arc<LinkLeaf>,
    counts: LinkCounts,
}

impl LoadedLeaf {
    /// How many rows that count a link is in.
    pub(super) fn rows_of(&self, link: usize) -> u32 {
        self.counts.as_ref().map_or(1, |counts| counts.get(link).copied().unwrap_or(0))
    }

    /// Whether a link has a row that counts.
    pub(super) fn is_alive(&self, link: usize) -> bool {
        self.rows_of(link) > 0
    }
}

/// A leaf that was read, by its number.
pub(super) type NumberedLeaf = (usize, Arc<LinkLeaf>);

/// Leaves that are there already, by their numbers.
pub(super) type KnownLeaves = HashMap<usize, Arc<LinkLeaf>>;

impl LinkSegment {
    /// The places of predicates in the dictionary; none where any will do.
    pub(super) fn places_of(&self, via: Option<&HashSet<Option<Key>>>) -> WantedPredicates {
        let via = via.filter(|_| self.has_predicate)?;
        Some(via.iter().filter_map(|predicate| self.dictionary.get(predicate).copied()).collect())
    }

    pub(super) fn damaged(&self, damage: Damage) -> WalkError {
        WalkError::Damaged { segment: self.id, path: self.path.clone(), damage }
    }

    /// What is to be read of leaves, whose numbers ascend: those that nobody remembers. The others are added to those that are there.
    pub(super) fn missing(&self, leaves: &[usize], known: &mut KnownLeaves) -> Vec<Range<usize>> {
        let mut missing = Vec::new();
        for number in leaves.iter().filter(|number| !known.contains_key(*number)).copied().collect::<Vec<_>>() {
            match LEAVES.get(&self.cached(number)) {
                Some(leaf) => drop(known.insert(number, leaf)),
                None => missing.push(number),
            }
        }
        runs(&missing)
    }

    /// The leaves of these numbers, which ascend, in this order. Their links have rows that count or have none, and how many is left open.
    pub(super) async fn load(&self, leaves: &[usize], mut known: KnownLeaves) -> Result<Vec<LoadedLeaf>, Damage> {
        let counter = ReadCounter::default();
        self.read_missing(leaves, &mut known, &counter).await?;
        let counts = match self.live {
            Some(_) => self.counts(leaves, &counter).await?,
            None => vec![None; leaves.len()],
        };
        loaded(leaves, &known, counts)
    }

    /// The leaves of these numbers, which ascend, with how many rows their links are in.
    pub(super) async fn load_counted(
        &self,
        leaves: &[usize],
        counter: &ReadCounter,
    ) -> Result<Vec<LoadedLeaf>, Damage> {
        let mut known = KnownLeaves::new();
        self.read_missing(leaves, &mut known, counter).await?;
        loaded(leaves, &known, self.counts(leaves, counter).await?)
    }

    /// Reads the leaves that nobody remembers, and adds them to those that are there.
    async fn read_missing(
        &self,
        leaves: &[usize],
        known: &mut KnownLeaves,
        counter: &ReadCounter,
    ) -> Result<(), Damage> {
        let mut reads: Vec<Reading<'_, Vec<NumberedLeaf>, Damage>> = Vec::new();
        for run in self.missing(leaves, known) {
            reads.push(Box::pin(self.read_counted(run, counter)));
        }
        let read: Vec<Vec<NumberedLeaf>> = stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        known.extend(read.into_iter().flatten());
        Ok(())
    }

    fn cached(&self, number: usize) -> CachedLeaf {
        CachedLeaf { segment: self.key.clone(), number }
    }

    /// Reads leaves that follow each other.
    pub(super) async fn read(&self, numbers: Range<usize>) -> Result<Vec<NumberedLeaf>, Damage> {
        self.read_counted(numbers, &ReadCounter::default()).await
    }

    async fn read_counted(&self, numbers: Range<usize>, counter: &ReadCounter) -> Result<Vec<NumberedLeaf>, Damage> {
        let directory = &self.segment.directory;
        let blocks = directory.blocks.get(numbers.clone()).unwrap_or_default();
        let ranges: Vec<Range<u64>> =
            blocks.iter().map(|block| block.offset..block.offset + u64::from(block.length)).collect();
        let bytes = self.segment.read(&ranges, counter).await?;
        let mut leaves = Vec::with_capacity(blocks.len());
        for ((number, block), bytes) in numbers.zip(blocks).zip(&bytes) {
            let leaf = Arc::new(read_leaf(bytes, block, directory).map_err(Damage::corrupt)?);
            LEAVES.insert(self.cached(number), Arc::clone(&leaf), leaf.memory_bytes() as u64);
            leaves.push((number, leaf));
        }
        Ok(leaves)
    }

    /// How many rows that count the links of leaves are in.
    async fn counts(&self, leaves: &[usize], counter: &ReadCounter) -> Result<Vec<LinkCounts>, Damage> {
        let mut reads: Vec<Reading<'_, LinkCounts, Damage>> = Vec::with_capacity(leaves.len());
        for number in leaves {
            reads.push(Box::pin(self.counts_of(*number, counter)));
        }
        stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
    }

    async fn counts_of(&self, number: usize, counter: &ReadCounter) -> Result<LinkCounts, Damage> {
        let directory = &self.segment.directory;
        let block = directory.blocks.get(number).ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
        // A link is in one row at least.
        if self.live.is_none() && block.rows == u64::from(block.values) {
            return Ok(None);
        }
        let key = self.cached(number);
        if let Some(known) = COUNTS.get(&key).filter(|known| is_same(known.live.as_ref(), self.live.as_ref())) {
            return Ok(Some(known.counts));
        }
        let bytes = self.bytes(rows_range(block), counter).await?;
        let counts: Arc<[u32]> = match &self.live {
            Some(live) => self.live_rows(&bytes, block, live, counter).await?.into(),
            None => {
                let counted = decode_link_rows(&bytes, block.values, directory.universe).map_err(Damage::corrupt)?;
                counted.into_iter().map(|of_link| of_link.rows).collect()
            }
        };
        let cached = CachedCounts { live: self.live.clone(), counts: Arc::clone(&counts) };
        COUNTS.insert(key, cached, size_of_val(&*counts) as u64);
        Ok(Some(counts))
    }

    /// How many rows of files that count each link of a leaf is in.
    async fn live_rows(
        &self,
        bytes: &[u8],
        block: &ValueBlockRef,
        live: &[LiveFile],
        counter: &ReadCounter,
    ) -> Result<Vec<u32>, Damage> {
        let directory = &self.segment.directory;
        let mut counts = Vec::with_capacity(block.values as usize);
        for rows in rows_of_links(bytes, block, directory).map_err(Damage::corrupt)? {
            let rows = match rows {
                EntryRows::Known(rows) => rows,
                EntryRows::Posting(long) => {
                    let bytes = self.bytes(long.range, counter).await?;
                    let mut rows: Vec<u32> = Vec::new();
                    posting::decode(&bytes, long.rows, directory.universe, &mut rows).map_err(Damage::corrupt)?;
                    rows
                }
            };
            counts.push(rows.into_iter().filter(|row| is_live(live, *row)).count() as u32);
        }
        Ok(counts)
    }

    async fn bytes(&self, range: Range<u64>, counter: &ReadCounter) -> Result<bytes::Bytes, Damage> {
        let read = read_remembered(&self.segment, &self.key, &[range], counter).await?;
        Ok(read.into_iter().next().unwrap_or_default())
    }
}

/// Leaves with the counts of their links.
fn loaded(leaves: &[usize], known: &KnownLeaves, counts: Vec<LinkCounts>) -> Result<Vec<LoadedLeaf>, Damage> {
    let loaded = leaves.iter().zip(counts).map(|(number, counts)| {
        let leaf = known.get(number).cloned().ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
        Ok(LoadedLeaf { leaf, counts })
    });
    loaded.collect()
}

/// Whether the same rows of a segment surely count.
fn is_same(live: Option<&Arc<[LiveFile]>>, other: Option<&Arc<[LiveFile]>>) -> bool {
    match (live, other) {
        (Some(live), Some(other)) => {
            let are_same = || live.iter().zip(other.iter()).all(|(one, other)| one.is_same(other));
            Arc::ptr_eq(live, other) || (live.len() == other.len() && are_same())
        }
        (None, None) => true,
        _ => false,
    }
}

/// Where the rows of the links of a leaf are.
fn rows_range(block: &ValueBlockRef) -> Range<u64> {
    block.postings_offset..block.postings_offset + block.postings_length
}

/// Whether a row is one of a file that counts, and is not deleted.
fn is_live(live: &[LiveFile], row: u32) -> bool {
    let place = live.partition_point(|file| file.rows.end <= row);
    let Some(file) = live.get(place).filter(|file| file.rows.contains(&row)) else { return false };
    !file.deleted.as_ref().is_some_and(|deleted| deleted.contains(row - file.rows.start))
}

/// Numbers that follow each other, as ranges of so many at most that one request reads them.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == *number && run.len() < LEAVES_OF_READ => run.end += 1,
            _ => runs.push(*number..*number + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_at_once() {
        assert_eq!(runs(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        let all: Vec<usize> = (0..40).collect();
        assert_eq!(runs(&all), [0..16, 16..32, 32..40]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn rows_count_unless_they_are_deleted_or_of_another_file() {
        let live = [
            LiveFile { rows: 0..5, deleted: None },
            LiveFile { rows: 64..70, deleted: Some(Arc::new(RowSet::from_rows(vec![1], 6))) },
        ];
        let counted: Vec<u32> = (0..128).filter(|row| is_live(&live, *row)).collect();
        assert_eq!(counted, [0, 1, 2, 3, 4, 64, 66, 67, 68, 69]);
        assert!(live[0].is_whole() && !live[1].is_whole());
    }

    #[test]
    fn the_same_rows_count_if_the_same_ones_are_deleted() {
        let deleted = Arc::new(RowSet::from_rows(vec![1], 6));
        let live = |rows: Range<u32>, deleted: Option<&Arc<RowSet>>| -> Arc<[LiveFile]> {
            [LiveFile { rows: 0..5, deleted: None }, LiveFile { rows, deleted: deleted.cloned() }].into()
        };
        let one = live(64..70, Some(&deleted));
        assert!(is_same(None, None) && is_same(Some(&one), Some(&one)));
        assert!(is_same(Some(&one), Some(&live(64..70, Some(&deleted)))));
        // Rows that are deleted since then have another set.
        let more = Arc::new(RowSet::from_rows(vec![1, 2], 6));
        for other in [live(64..70, Some(&more)), live(64..70, None), live(65..70, Some(&deleted))] {
            assert!(!is_same(Some(&one), Some(&other)));
        }
        let fewer: Arc<[LiveFile]> = [LiveFile { rows: 0..5, deleted: None }].into();
        assert!(!is_same(Some(&one), Some(&fewer)) && !is_same(Some(&one), None) && !is_same(None, Some(&one)));
    }
}

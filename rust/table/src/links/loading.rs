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
}

/// An open segment of links.
#[derive(Debug)]
pub(super) struct LinkSegment {
    pub id: [u8; 16],
    pub path: String,
    pub key: SegmentKey,
    pub segment: Segment,
    /// The files whose rows count, by ascending first rows; none if all rows of the segment do.
    pub live: Option<Vec<LiveFile>>,
    /// The places of the predicates in the dictionary.
    pub dictionary: HashMap<Option<Key>, u32>,
    pub has_predicate: bool,
}

/// A leaf in memory.
pub(super) struct LoadedLeaf {
    pub leaf: Arc<LinkLeaf>,
    /// Whether each link has a row that counts; none if all have.
    alive: Option<Vec<bool>>,
}

impl LoadedLeaf {
    pub(super) fn is_alive(&self, link: usize) -> bool {
        self.alive.as_ref().is_none_or(|alive| alive.get(link).copied().unwrap_or(false))
    }
}

/// A leaf in memory, with the rows of its links.
pub(super) struct CountedLeaf {
    pub leaf: Arc<LinkLeaf>,
    /// How many rows that count each link is in; none if each is in one.
    counts: Option<Vec<u32>>,
}

impl CountedLeaf {
    pub(super) fn rows_of(&self, link: usize) -> u32 {
        self.counts.as_ref().map_or(1, |counts| counts.get(link).copied().unwrap_or(0))
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

    /// The leaves of these numbers, which ascend, in this order.
    pub(super) async fn load(&self, leaves: &[usize], mut known: KnownLeaves) -> Result<Vec<LoadedLeaf>, Damage> {
        let mut reads: Vec<Reading<'_, Vec<NumberedLeaf>, Damage>> = Vec::new();
        for run in self.missing(leaves, &mut known) {
            reads.push(Box::pin(self.read(run)));
        }
        let read: Vec<Vec<NumberedLeaf>> = stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        known.extend(read.into_iter().flatten());
        let mut alive = self.alive(leaves).await?;
        let mut loaded = Vec::with_capacity(leaves.len());
        for number in leaves {
            let leaf = known.get(number).cloned().ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
            loaded.push(LoadedLeaf { leaf, alive: alive.remove(number) });
        }
        Ok(loaded)
    }

    /// The leaves of these numbers, which ascend, with how many rows their links are in.
    pub(super) async fn load_counted(
        &self,
        leaves: &[usize],
        counter: &ReadCounter,
    ) -> Result<Vec<CountedLeaf>, Damage> {
        let mut known = KnownLeaves::new();
        let mut reads: Vec<BoxFuture<'_, Result<Vec<NumberedLeaf>, Damage>>> = Vec::new();
        for run in self.missing(leaves, &mut known) {
            reads.push(Box::pin(self.read_counted(run, counter)));
        }
        let read: Vec<Vec<NumberedLeaf>> = stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
        known.extend(read.into_iter().flatten());
        let mut reads: Vec<BoxFuture<'_, Result<Option<Vec<u32>>, Damage>>> = Vec::with_capacity(leaves.len());
        for number in leaves {
            reads.push(Box::pin(self.counts_of(*number, counter)));
        }
        let counts: Vec<Option<Vec<u32>>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        let counted = leaves.iter().zip(counts).map(|(number, counts)| {
            let leaf = known.get(number).cloned().ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
            Ok(CountedLeaf { leaf, counts })
        });
        counted.collect()
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

    /// Which links of each leaf have a row that counts, where some rows of the segment do not.
    async fn alive(&self, leaves: &[usize]) -> Result<HashMap<usize, Vec<bool>>, Damage> {
        let Some(live) = &self.live else { return Ok(HashMap::new()) };
        let mut reads: Vec<Reading<'_, (usize, Vec<bool>), Damage>> = Vec::with_capacity(leaves.len());
        for number in leaves {
            reads.push(Box::pin(self.alive_of(*number, live)));
        }
        stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await
    }

    async fn alive_of(&self, number: usize, live: &[LiveFile]) -> Result<(usize, Vec<bool>), Damage> {
        let directory = &self.segment.directory;
        let block = directory.blocks.get(number).ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
        let bytes = self.bytes(rows_range(block), &ReadCounter::default()).await?;
        let rows = rows_of_links(&bytes, block, directory).map_err(Damage::corrupt)?;
        let mut alive = Vec::with_capacity(rows.len());
        for rows in rows {
            alive.push(match rows {
                EntryRows::Known(rows) => rows.into_iter().any(|row| is_live(live, row)),
                EntryRows::Posting(long) => {
                    let bytes = self.bytes(long.range, &ReadCounter::default()).await?;
                    let mut rows: Vec<u32> = Vec::new();
                    posting::decode(&bytes, long.rows, directory.universe, &mut rows).map_err(Damage::corrupt)?;
                    rows.into_iter().any(|row| is_live(live, row))
                }
            });
        }
        Ok((number, alive))
    }

    /// How many rows that count each link of a leaf is in; none if each is in one.
    async fn counts_of(&self, number: usize, counter: &ReadCounter) -> Result<Option<Vec<u32>>, Damage> {
        let directory = &self.segment.directory;
        let block = directory.blocks.get(number).ok_or_else(|| Damage::corrupt("a leaf is not there"))?;
        // A link is in one row at least.
        if self.live.is_none() && block.rows == u64::from(block.values) {
            return Ok(None);
        }
        let bytes = self.bytes(rows_range(block), counter).await?;
        let Some(live) = &self.live else {
            let counted = decode_link_rows(&bytes, block.values, directory.universe).map_err(Damage::corrupt)?;
            return Ok(Some(counted.into_iter().map(|of_link| of_link.rows).collect()));
        };
        let mut counts = Vec::with_capacity(block.values as usize);
        for rows in rows_of_links(&bytes, block, directory).map_err(Damage::corrupt)? {
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
        Ok(Some(counts))
    }

    async fn bytes(&self, range: Range<u64>, counter: &ReadCounter) -> Result<bytes::Bytes, Damage> {
        let read = read_remembered(&self.segment, &self.key, &[range], counter).await?;
        Ok(read.into_iter().next().unwrap_or_default())
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
}

//! Searching the leaves of a packed tree: the kind `key`.
//!
//! ```text
//! directory (in memory)    first key of leaf 0 │ of leaf 1 │ of leaf 2 │ …
//!                                              ▼ one page
//! leaf                     heads │ embedded segment │ embedded segment │ …
//!                                  ▼ one is decoded
//! keys with their rows     key → run of rows, posting, or the place of a long posting (a second read)
//! ```
//!
//! A search reads the leaves that the ranges touch, or all others if those are fewer bytes. A directory of many leaves has inner pages in their
//! place, and the leaves that are needed take theirs before a search ([`super::inner`]).

mod hashed;

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::{Key, KeyType};
use lakemark_format::leaf::{CountedRows, KeyCount, KeyRows, PackedLeaf, RidingEntries};
use lakemark_format::links::{LinkLeaf, LinkShape, decode_link_rows};
use lakemark_format::posting::{Decoder, RowRun, RowSink};
use lakemark_format::riding::RidingRows;
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use self::hashed::HashCheck;
pub(super) use self::hashed::{SearchedKeys, keys_around};
use super::bins::DisjointRows;
use super::overlap::BlockOverlap;
use crate::ranges::{KeyRanges, RangeCursor};
use crate::rows::{RowSet, prefers_list};

/// Which leaves are read. They are searched a part at a time, and parts by as many threads as there are.
#[derive(Debug)]
pub struct LeafSearch {
    /// The rows of these keys are found: the requested keys, or all others.
    found: KeyRanges,
    opposite: bool,
    /// Tells rows apart where the keys are hashes.
    check: Option<HashCheck>,
    /// Ascending.
    leaves: Vec<usize>,
}

/// A posting outside of its leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPosting {
    /// How many rows it has.
    pub rows: u32,
    /// Its logical range.
    pub range: Range<u64>,
}

/// What was found in a part of the leaves.
#[derive(Debug, Default)]
pub struct LeafMatches {
    runs: Vec<RowRun>,
    rows: Vec<u32>,
    /// Rows whose values share a hash with a requested one.
    open: Vec<u32>,
    /// In the order in which they are read.
    long: Vec<LongPosting>,
    /// Their rows, once they were read.
    rows_of_long: Option<RowSet>,
}

/// The rows that all leaves gave.
pub(super) struct RowsOfLeaves {
    /// Rows with a requested key.
    pub t: RowSet,
    /// Rows that may have one.
    pub open: RowSet,
}

/// Whether all other leaves are read in place of those that have requested keys. These are fewer bytes, or all of them are known while inner
/// pages stand for some of the wanted ones.
pub(super) fn are_others_read(directory: &SegmentDirectory, places: &[BlockOverlap]) -> bool {
    let cost = |unwanted: BlockOverlap| {
        let read = directory.blocks.iter().zip(places).filter(|(_, place)| **place != unwanted);
        read.fold((false, 0u64), |(is_inner, bytes), (block, _)| {
            let of_block = block.postings_length.saturating_add(block.length.into());
            (is_inner || block.is_inner, bytes.saturating_add(of_block))
        })
    };
    cost(BlockOverlap::Inside) < cost(BlockOverlap::Outside)
}

impl LeafSearch {
    /// Plans which leaves to read for keys, which are hashes if there is a check.
    pub(super) fn new(
        directory: &SegmentDirectory,
        keys: &KeyRanges,
        places: &[BlockOverlap],
        check: Option<HashCheck>,
    ) -> Self {
        let opposite = check.is_none() && are_others_read(directory, places);
        let (found, unwanted) =
            if opposite { (keys.complement(), BlockOverlap::Inside) } else { (keys.clone(), BlockOverlap::Outside) };
        let leaves = (0..).zip(places).filter(|(_, place)| **place != unwanted).map(|(leaf, _)| leaf).collect();
        Self { found, opposite, check, leaves }
    }

    /// How many leaves are read.
    #[must_use]
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Logical ranges of some of the leaves, by their numbers among those that are read.
    #[must_use]
    pub fn ranges(&self, directory: &SegmentDirectory, part: Range<usize>) -> Vec<Range<u64>> {
        self.part(directory, part).map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    /// Takes the bytes of these ranges and finds the requested rows.
    ///
    /// # Errors
    /// Bytes that are not what the directory says.
    pub fn find(&self, directory: &SegmentDirectory, part: Range<usize>, bytes: &[Bytes]) -> Result<LeafMatches> {
        let mut found = LeafMatches::default();
        let (mut keys, mut decoder, mut taken) = (None, Decoder::default(), 0);
        for (block, bytes) in self.part(directory, part.clone()).zip(bytes) {
            taken += 1;
            let keys = keys.get_or_insert_with(|| self.found.cursor_from(&block.first_key));
            let leaf = decode_leaf(bytes, block, directory)?;
            if let Some(check) = &self.check {
                check.find(&leaf, block, directory.universe, keys, &mut found)?;
                continue;
            }
            each_wanted(&leaf, keys, |CountedRows { rows, rows_in }| {
                match rows_in {
                    KeyRows::Run(first) => match found.runs.last_mut() {
                        // Keys in the order of rows.
                        Some(run) if run.first.checked_add(run.length) == Some(first) => run.length += rows,
                        _ => found.runs.push(RowRun { first, length: rows }),
                    },
                    KeyRows::Listed(rows) => found.rows.extend(rows),
                    KeyRows::Inline(posting) => decoder.decode(&posting, rows, directory.universe, &mut found.rows)?,
                    KeyRows::Long { offset, length } => {
                        found.long.push(LongPosting { rows, range: long_range(offset, length, block.offset)? });
                    }
                }
                Ok(())
            })?;
        }
        if taken != part.len() || taken != bytes.len() {
            return Err(FormatError::invalid("the ranges read", bytes.len(), part.len()));
        }
        // Postings of different keys interleave. A list needs them in order, and parts are sorted side by side; of a bitmap a bit is set
        // sooner than a row finds its place.
        if prefers_list(found.rows.len() as u64, directory.universe) {
            found.rows.sort_unstable();
        }
        Ok(found)
    }

    fn part<'d>(
        &self,
        directory: &'d SegmentDirectory,
        part: Range<usize>,
    ) -> impl Iterator<Item = &'d ValueBlockRef> + use<'_, 'd> {
        self.leaves.get(part).unwrap_or_default().iter().filter_map(|&leaf| directory.blocks.get(leaf))
    }

    /// The requested rows, from what was found in all parts; `valued` are all rows with a value.
    ///
    /// # Errors
    /// A row that has two keys; long postings that were not read.
    pub(super) fn rows(
        &self,
        parts: &[LeafMatches],
        valued: impl FnOnce() -> RowSet,
        universe: u32,
    ) -> Result<RowsOfLeaves> {
        let mut found = DisjointRows::new(universe, parts.iter().map(LeafMatches::short_rows).sum());
        for part in parts {
            part.runs.iter().for_each(|run| found.run(run.first, run.length));
            found.rows(&part.rows);
        }
        let mut found = found.finish()?;
        let mut open: Vec<u32> = parts.iter().flat_map(|part| part.open.iter().copied()).collect();
        open.sort_unstable();
        open.dedup();
        let mut open = RowSet::from_rows(open, universe);
        for part in parts.iter().filter(|part| !part.long.is_empty()) {
            let Some(long) = &part.rows_of_long else {
                return Err(FormatError::invalid("the long postings read", 0, part.long.len()));
            };
            match self.check {
                // Rows of a posting outside of the leaf do not ride, so that nothing tells them apart.
                Some(_) => open = open.or(long),
                None => found = disjoint(&found, long)?,
            }
        }
        if !open.is_empty() && !found.and(&open).is_empty() {
            return Err(FormatError::invalid("the rows of different keys", "shared", "one key for each row"));
        }
        let t = if self.opposite { valued().minus(&found) } else { found };
        Ok(RowsOfLeaves { t, open })
    }
}

/// The rows of both sets.
fn disjoint(one: &RowSet, other: &RowSet) -> Result<RowSet> {
    let both = one.or(other);
    match u64::from(both.len()) == u64::from(one.len()) + u64::from(other.len()) {
        true => Ok(both),
        false => Err(FormatError::invalid("the rows of different keys", "shared", "one key for each row")),
    }
}

impl LeafMatches {
    /// Logical ranges of the long postings that are needed besides.
    #[must_use]
    pub fn long_ranges(&self) -> Vec<Range<u64>> {
        self.long.iter().map(|long| long.range.clone()).collect()
    }

    /// Takes the bytes of these ranges.
    ///
    /// # Errors
    /// Bytes that are not the postings; also a row that has two keys.
    pub fn take_long(&mut self, bytes: &[Bytes], universe: u32) -> Result<()> {
        if bytes.len() != self.long.len() {
            return Err(FormatError::invalid("the ranges read", bytes.len(), self.long.len()));
        }
        let mut found = DisjointRows::new(universe, self.long.iter().map(|long| u64::from(long.rows)).sum());
        let mut decoder = Decoder::default();
        for (bytes, long) in bytes.iter().zip(&self.long) {
            decoder.decode(bytes, long.rows, universe, &mut found)?;
        }
        self.rows_of_long = Some(found.finish()?);
        Ok(())
    }

    /// Rows that are not in long postings.
    fn short_rows(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.length)).sum::<u64>() + self.rows.len() as u64
    }
}

/// Reads the heads of a leaf of the directory.
pub(super) fn decode_leaf<'a>(
    bytes: &'a [u8],
    block: &ValueBlockRef,
    directory: &SegmentDirectory,
) -> Result<PackedLeaf<'a>> {
    if block.is_inner {
        return Err(FormatError::invalid("a leaf to search", "an inner page", "a leaf of it"));
    }
    let leaf = PackedLeaf::decode(bytes, &block.first_key, block.values, &directory.key_type, directory.universe)?;
    Ok(leaf.with_riding(!directory.riding.is_empty()))
}

/// Visits the rows of the keys of a leaf that are in the ranges, those of several keys at once where they follow each other.
/// Decodes only the embedded segments that the ranges touch. Decodes none of their keys where a range holds the next segment's
/// first one as well.
fn each_wanted<'a>(
    leaf: &PackedLeaf<'a>,
    keys: &mut RangeCursor<'_>,
    mut visit: impl FnMut(CountedRows<'a>) -> Result<()>,
) -> Result<()> {
    let heads = leaf.heads();
    for (number, head) in heads.iter().enumerate() {
        let Some(first) = keys.seek(head).first() else { return Ok(()) };
        let next = heads.get(number + 1);
        if next.is_some_and(|next| first.contains(head) && first.contains(next)) {
            leaf.rows_of_segment(number)?.into_iter().try_for_each(&mut visit)?;
        } else if !next.is_some_and(|next| first.begins_behind(next)) {
            leaf.visit_wanted(number, |key| keys.contains(key), &mut visit)?;
        }
    }
    Ok(())
}

/// How many rows of a leaf have requested keys.
pub(super) fn count_rows(
    bytes: &[u8],
    block: &ValueBlockRef,
    directory: &SegmentDirectory,
    keys: &mut RangeCursor<'_>,
) -> Result<u64> {
    let mut count = 0;
    each_wanted(&decode_leaf(bytes, block, directory)?, keys, |CountedRows { rows, .. }| {
        count += u64::from(rows);
        Ok(())
    })?;
    Ok(count)
}

/// The requested keys of a leaf, with the number of their rows.
pub(super) fn counts(
    bytes: &[u8],
    block: &ValueBlockRef,
    directory: &SegmentDirectory,
    keys: &mut RangeCursor<'_>,
) -> Result<Vec<KeyCount>> {
    let leaf = decode_leaf(bytes, block, directory)?;
    let (mut found, mut rows_seen) = (Vec::new(), 0);
    for (number, head) in leaf.heads().iter().enumerate() {
        let Some(first) = keys.seek(head).first() else { break };
        if leaf.heads().get(number + 1).is_some_and(|next| first.begins_behind(next)) {
            continue;
        }
        for count in leaf.counts_of_segment(number)? {
            rows_seen += u64::from(count.rows);
            if keys.contains(&count.key) {
                found.push(count);
            }
        }
    }
    // Where the rows are is not looked at, so that nothing else would notice.
    if rows_seen > block.rows {
        return Err(FormatError::invalid("the rows of a leaf", rows_seen, format_args!("at most {}", block.rows)));
    }
    Ok(found)
}

/// Long postings lie before the leaf that names them.
fn long_range(offset: u64, length: u32, before: u64) -> Result<Range<u64>> {
    match offset.checked_add(u64::from(length)) {
        Some(end) if end <= before => Ok(offset..end),
        _ => {
            let got = format!("{length} bytes at {offset}");
            Err(FormatError::invalid("a long posting", got, format_args!("before the leaf at {before}")))
        }
    }
}

/// The rows of a key of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryRows {
    /// These.
    Known(Vec<u32>),
    /// Those of a posting elsewhere.
    Posting(LongPosting),
}

/// A key of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafKey {
    /// The key.
    pub key: Key,
    /// Its rows.
    pub rows: EntryRows,
    /// What rides along with them; nothing if they do not ride.
    pub riding: RidingRows,
}

/// The links of a leaf with their rows, of which `row_bytes` tells.
///
/// # Errors
/// Bytes that are not such a leaf; also one of other rows than the directory says.
pub fn entries_of_links(
    bytes: &[u8],
    row_bytes: &[u8],
    block: &ValueBlockRef,
    directory: &SegmentDirectory,
) -> Result<Vec<LeafKey>> {
    let shape = LinkShape::of(&directory.key_type)?;
    let leaf = LinkLeaf::decode(bytes, block.values, &shape, directory.predicates.len())?;
    let keys = leaf.keys(&shape, &directory.predicates)?;
    if keys.first() != Some(&block.first_key) {
        return Err(FormatError::invalid("the first link of a leaf", "another", "the one of the directory"));
    }
    let (mut entries, mut total, mut decoder) = (Vec::with_capacity(keys.len()), 0u64, Decoder::default());
    for (key, rows) in keys.into_iter().zip(decode_link_rows(row_bytes, block.values, directory.universe)?) {
        total += u64::from(rows.rows);
        let rows = rows_of_entry(rows, block.postings_offset, directory.universe, &mut decoder)?;
        entries.push(LeafKey { key, rows, riding: RidingRows::default() });
    }
    if total != block.rows {
        return Err(FormatError::invalid("the rows of a leaf", total, block.rows));
    }
    Ok(entries)
}

/// The rows of a key of a leaf; long postings end before a place of the stream.
pub(crate) fn rows_of_entry(
    CountedRows { rows, rows_in }: CountedRows<'_>,
    before: u64,
    universe: u32,
    decoder: &mut Decoder,
) -> Result<EntryRows> {
    Ok(match rows_in {
        KeyRows::Run(first) => EntryRows::Known((first..first.saturating_add(rows)).collect()),
        KeyRows::Listed(rows) => EntryRows::Known(rows),
        KeyRows::Inline(posting) => {
            let mut known = Vec::new();
            decoder.decode(&posting, rows, universe, &mut known)?;
            EntryRows::Known(known)
        }
        KeyRows::Long { offset, length } => {
            EntryRows::Posting(LongPosting { rows, range: long_range(offset, length, before)? })
        }
    })
}

/// The keys of a leaf with their rows: what a verification compares.
///
/// # Errors
/// Bytes that are not such a leaf; also one of other rows than the directory says.
pub fn entries_of_leaf(bytes: &[u8], block: &ValueBlockRef, directory: &SegmentDirectory) -> Result<Vec<LeafKey>> {
    let leaf = decode_leaf(bytes, block, directory)?;
    let (mut entries, mut total) = (Vec::new(), 0u64);
    let mut decoder = Decoder::default();
    let types: Vec<KeyType> = directory.riding.iter().map(|column| column.key_type.clone()).collect();
    for number in 0..leaf.heads().len() {
        let (held, riding) = match types.as_slice() {
            [] => (leaf.segment(number)?, None),
            types => {
                let RidingEntries { entries, riding } = leaf.riding_segment(number, types, |_| true)?;
                (entries, Some(riding))
            }
        };
        for (place, entry) in held.into_iter().enumerate() {
            let riding = riding.as_ref().map(|riding| riding.rows_of_key(place, entry.rows as usize));
            total += u64::from(entry.rows);
            let rows = CountedRows { rows: entry.rows, rows_in: entry.rows_in };
            let rows = rows_of_entry(rows, block.offset, directory.universe, &mut decoder)?;
            entries.push(LeafKey { key: entry.key, rows, riding: riding.unwrap_or_default() });
        }
    }
    if total != block.rows {
        return Err(FormatError::invalid("the rows of a leaf", total, block.rows));
    }
    Ok(entries)
}

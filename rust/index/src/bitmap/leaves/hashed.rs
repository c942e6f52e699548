//! Trees whose keys are hashes of values: a search is for the hashes of the requested values.
//!
//! ```text
//! url = 'https://…/7'  ─▶  hash 5a1b…  ─▶  its rows: among them all that have the value, and others that share the hash
//!                                            │
//!              url rides along: told apart in the leaf, so that rows are exact. Else: left open, and read in the data
//! ```

use std::ops::Bound;

use lakemark_format::error::{FormatError, Result};
use lakemark_format::filter::short_hash;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::leaf::{CountedRows, LeafEntry, PackedLeaf, RidingEntries};
use lakemark_format::posting::Decoder;
use lakemark_format::riding::{RidingSegment, RidingValue};
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use super::{EntryRows, LeafMatches, rows_of_entry};
use crate::ranges::{KeyRange, KeyRanges, RangeCursor};

/// What a search of a segment looks for.
pub(in crate::bitmap) enum SearchedKeys {
    /// These keys, which are the requested values.
    Values(KeyRanges),
    /// These hashes of the requested values.
    Hashes(KeyRanges, HashCheck),
    /// Nothing, as hashes say nothing of what is requested.
    Open,
}

impl SearchedKeys {
    /// What to look for in the segment of a directory.
    pub(in crate::bitmap) fn of(directory: &SegmentDirectory, requested: &KeyRanges) -> Self {
        let Some(bits) = directory.key_type.hash_bits() else { return Self::Values(requested.clone()) };
        match hashes_of(requested, bits) {
            Some(hashes) => Self::Hashes(hashes, HashCheck::of(directory, requested)),
            None => Self::Open,
        }
    }
}

/// The keys of a segment among which those of the requested values are.
pub(in crate::bitmap) fn keys_around(directory: &SegmentDirectory, requested: &KeyRanges) -> KeyRanges {
    match SearchedKeys::of(directory, requested) {
        SearchedKeys::Values(keys) | SearchedKeys::Hashes(keys, _) => keys,
        SearchedKeys::Open => KeyRanges::all(),
    }
}

/// The hashes of some values; none if they are not single ones.
fn hashes_of(requested: &KeyRanges, bits: u8) -> Option<KeyRanges> {
    let hash = |range: &KeyRange| match &range.low {
        Bound::Included(Key::Bytes(value)) if range.is_point() => Some(Key::Fixed(short_hash(value, bits))),
        _ => None,
    };
    requested.ranges().iter().map(hash).collect::<Option<_>>().map(KeyRanges::points)
}

/// Tells rows apart whose values share a hash.
#[derive(Debug)]
pub(in crate::bitmap) struct HashCheck {
    requested: KeyRanges,
    /// The place of the values themselves among the columns that ride along, if they are there.
    column: Option<usize>,
    /// The types of all of these columns.
    types: Vec<KeyType>,
}

impl HashCheck {
    fn of(directory: &SegmentDirectory, requested: &KeyRanges) -> Self {
        let riding = &directory.riding;
        Self {
            requested: requested.clone(),
            column: riding.iter().position(|column| column.column == directory.column),
            types: riding.iter().map(|column| column.key_type.clone()).collect(),
        }
    }

    /// Finds the rows of the requested values in a leaf, and those that are left open.
    pub(super) fn find(
        &self,
        leaf: &PackedLeaf<'_>,
        block: &ValueBlockRef,
        universe: u32,
        hashes: &mut RangeCursor<'_>,
        found: &mut LeafMatches,
    ) -> Result<()> {
        let mut decoder = Decoder::default();
        for (number, head) in leaf.heads().iter().enumerate() {
            let Some(first) = hashes.seek(head).first() else { break };
            if leaf.heads().get(number + 1).is_some_and(|next| first.begins_behind(next)) {
                continue;
            }
            let Some(column) = self.column else {
                for entry in leaf.segment(number)? {
                    if hashes.contains(&entry.key) {
                        found.leave_open(entry, block, universe, &mut decoder)?;
                    }
                }
                continue;
            };
            let RidingEntries { entries, riding } =
                leaf.riding_segment(number, &self.types, |place| place == column)?;
            for (place, entry) in entries.into_iter().enumerate() {
                match (hashes.contains(&entry.key), riding.rides(place)) {
                    (false, _) => {}
                    (true, false) => found.leave_open(entry, block, universe, &mut decoder)?,
                    (true, true) => {
                        let held = HeldHash { place, column, riding: &riding };
                        self.tell_apart(entry, &held, block, universe, found)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the rows of a hash that have a requested value.
    fn tell_apart(
        &self,
        entry: LeafEntry<'_>,
        held: &HeldHash<'_>,
        block: &ValueBlockRef,
        universe: u32,
        found: &mut LeafMatches,
    ) -> Result<()> {
        let rows = CountedRows { rows: entry.rows, rows_in: entry.rows_in };
        let EntryRows::Known(rows) = rows_of_entry(rows, block.offset, universe, &mut Decoder::default())? else {
            return Err(FormatError::invalid("the posting of a key that rides", "outside of the leaf", "inside of it"));
        };
        for (number, row) in rows.into_iter().enumerate() {
            match held.riding.value(held.column, held.place, number) {
                Some(RidingValue::Bytes(value)) => {
                    if self.requested.contains(&Key::Bytes(value.to_vec())) {
                        found.rows.push(row);
                    }
                }
                _ => return Err(FormatError::invalid("a value that rides along with its hash", "none", "bytes")),
            }
        }
        Ok(())
    }
}

/// A hash whose values ride along.
struct HeldHash<'a> {
    /// Its place in its embedded segment.
    place: usize,
    column: usize,
    riding: &'a RidingSegment<'a>,
}

impl LeafMatches {
    /// Takes the rows of a hash that may have a requested value.
    fn leave_open(
        &mut self,
        entry: LeafEntry<'_>,
        block: &ValueBlockRef,
        universe: u32,
        decoder: &mut Decoder,
    ) -> Result<()> {
        let rows = CountedRows { rows: entry.rows, rows_in: entry.rows_in };
        match rows_of_entry(rows, block.offset, universe, decoder)? {
            EntryRows::Known(rows) => self.open.extend(rows),
            EntryRows::Posting(long) => self.long.push(long),
        }
        Ok(())
    }
}

//! Rows with values of several columns from the leaves of a packed tree alone: those of the key, and those that ride along.
//!
//! ```text
//! keys ─▶ leaves that may hold them (one page each) ─▶ embedded segments ─▶ rows that are chosen, each with its values
//! ```
//!
//! Which rows are chosen was found out before, as deleted rows and further conditions are to be honoured. A row whose key does not ride is
//! left out, and read in its data file.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use lakemark_format::error::{FormatError, Result};
use lakemark_format::key::composite;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::leaf::{KeyRows, LeafEntry, RidingEntries};
use lakemark_format::posting::Decoder;
use lakemark_format::riding::{RidingSegment, RidingValue};
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use super::leaves::{decode_leaf, keys_around};
use super::overlap::{BlockOverlap, overlaps};
use crate::ranges::KeyRanges;

/// Where the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoveredColumn {
    /// In the key: its column of this number.
    Key(usize),
    /// Beside it: the column of this number that rides along.
    Riding(usize),
}

/// The rows of some keys.
#[derive(Debug)]
pub struct CoveredSearch {
    keys: KeyRanges,
    /// Ascending.
    leaves: Vec<usize>,
}

/// Rows and their values.
#[derive(Debug, Default)]
pub struct CoveredRows {
    /// The rows, in the order of their keys.
    pub rows: Vec<u32>,
    /// The values of these rows in each column that was asked for.
    pub columns: Vec<Vec<RidingValue<'static>>>,
}

impl CoveredSearch {
    /// Plans which leaves to read for these keys.
    #[must_use]
    pub fn new(directory: &SegmentDirectory, keys: &KeyRanges) -> Self {
        let keys = keys_around(directory, keys);
        let places = overlaps(directory, &keys).into_iter().enumerate();
        let leaves = places.filter(|(_, place)| *place != BlockOverlap::Outside).map(|(leaf, _)| leaf).collect();
        Self { keys, leaves }
    }

    /// Bytes of the leaves, those in inner pages among them.
    #[must_use]
    pub fn byte_count(&self, directory: &SegmentDirectory) -> u64 {
        let bytes = |block: &ValueBlockRef| if block.is_inner { block.postings_length } else { block.length.into() };
        self.blocks(directory).map(bytes).sum()
    }

    /// Logical ranges of the leaves.
    #[must_use]
    pub fn ranges(&self, directory: &SegmentDirectory) -> Vec<Range<u64>> {
        self.blocks(directory).map(|block| block.offset..block.offset + u64::from(block.length)).collect()
    }

    /// Takes the bytes of these ranges and finds the chosen rows of the keys, with their values in these columns.
    ///
    /// # Errors
    /// Bytes that are not what the directory says, and columns that it does not have.
    pub fn find(
        &self,
        directory: &SegmentDirectory,
        wanted: &[CoveredColumn],
        bytes: &[Bytes],
        is_chosen: impl Fn(u32) -> bool,
    ) -> Result<CoveredRows> {
        let mut found = CoveredRows { rows: Vec::new(), columns: wanted.iter().map(|_| Vec::new()).collect() };
        if bytes.len() != self.leaves.len() {
            return Err(FormatError::invalid("the ranges read", bytes.len(), self.leaves.len()));
        }
        let types: Vec<KeyType> = directory.riding.iter().map(|column| column.key_type.clone()).collect();
        let mut decoder = Decoder::default();
        for (block, bytes) in self.blocks(directory).zip(bytes) {
            let mut keys = self.keys.cursor_from(&block.first_key);
            let leaf = decode_leaf(bytes, block, directory)?;
            for (number, head) in leaf.heads().iter().enumerate() {
                let Some(first) = keys.seek(head).first() else { break };
                if leaf.heads().get(number + 1).is_some_and(|next| first.begins_behind(next)) {
                    continue;
                }
                let is_wanted = |column: usize| wanted.contains(&CoveredColumn::Riding(column));
                let RidingEntries { entries, riding } = leaf.riding_segment(number, &types, is_wanted)?;
                for (place, entry) in entries.iter().enumerate() {
                    if riding.rides(place) && keys.contains(&entry.key) {
                        let rows = rows_of(entry, directory, &mut decoder)?;
                        let held = HeldKey { key: &entry.key, place, riding: &riding };
                        found.take(&held, &rows, wanted, &directory.key_type, &is_chosen)?;
                    }
                }
            }
        }
        Ok(found)
    }

    fn blocks<'d>(&self, directory: &'d SegmentDirectory) -> impl Iterator<Item = &'d ValueBlockRef> + use<'_, 'd> {
        self.leaves.iter().filter_map(|leaf| directory.blocks.get(*leaf))
    }
}

/// A key that rides.
struct HeldKey<'a> {
    key: &'a Key,
    /// Its place in its embedded segment.
    place: usize,
    riding: &'a RidingSegment<'a>,
}

impl CoveredRows {
    /// Takes the chosen rows of a key.
    fn take(
        &mut self,
        HeldKey { key, place, riding }: &HeldKey<'_>,
        rows: &[u32],
        wanted: &[CoveredColumn],
        key_type: &KeyType,
        is_chosen: &impl Fn(u32) -> bool,
    ) -> Result<()> {
        let mut of_key = None;
        for (number, row) in rows.iter().enumerate().filter(|(_, row)| is_chosen(**row)) {
            self.rows.push(*row);
            for (column, values) in wanted.iter().zip(&mut self.columns) {
                let value = match column {
                    CoveredColumn::Riding(column) => riding.value(*column, *place, number).map(owned),
                    CoveredColumn::Key(column) => {
                        let parts = match of_key.take() {
                            Some(parts) => parts,
                            None => parts_of(key, key_type)?,
                        };
                        let value = parts.get(*column).cloned();
                        of_key = Some(parts);
                        value
                    }
                };
                let Some(value) = value else {
                    return Err(FormatError::invalid("a column that is asked for", "absent", "one of the index"));
                };
                values.push(value);
            }
        }
        Ok(())
    }
}

/// The values of a key, a column each.
fn parts_of(key: &Key, key_type: &KeyType) -> Result<Vec<RidingValue<'static>>> {
    let value = |key: Key| match key {
        Key::Fixed(number) => RidingValue::Number(number),
        Key::Bytes(bytes) => RidingValue::Bytes(Cow::Owned(bytes)),
    };
    match (key, key_type) {
        (Key::Bytes(bytes), KeyType::Composite(columns)) => {
            let parts = composite::split(bytes, columns)?;
            Ok(parts.into_iter().map(|part| part.map_or(RidingValue::Null, value)).collect())
        }
        (key, _) => Ok(vec![value(key.clone())]),
    }
}

fn owned(value: &RidingValue<'_>) -> RidingValue<'static> {
    match value {
        RidingValue::Null => RidingValue::Null,
        RidingValue::Number(number) => RidingValue::Number(*number),
        RidingValue::Bytes(bytes) => RidingValue::Bytes(Cow::Owned(bytes.clone().into_owned())),
    }
}

/// The rows of a key that rides, which are in the leaf.
fn rows_of(entry: &LeafEntry<'_>, directory: &SegmentDirectory, decoder: &mut Decoder) -> Result<Vec<u32>> {
    let mut rows = Vec::new();
    match &entry.rows_in {
        KeyRows::Run(first) => rows.extend(*first..first.saturating_add(entry.rows)),
        KeyRows::Listed(listed) => rows.extend(listed),
        KeyRows::Inline(posting) => decoder.decode(posting, entry.rows, directory.universe, &mut rows)?,
        KeyRows::Long { .. } => {
            return Err(FormatError::invalid("the posting of a key that rides", "outside of the leaf", "inside of it"));
        }
    }
    Ok(rows)
}

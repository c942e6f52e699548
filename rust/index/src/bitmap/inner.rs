//! Packed trees of three levels: which inner pages a search needs, and the directory that has their leaves in place of them.
//!
//! ```text
//! directory               page 0 │ page 1 │ page 2 │ page 3 │ …          a key is in page 2
//!                                              ▼ read, or remembered
//! directory to search     pages 0 and 1 │ leaf │ leaf │ … │ page 3 and those behind it
//! ```
//!
//! A page that stays stands for its leaves: none of them has a requested key, or all of their keys are requested and their number is enough.

use std::sync::Arc;

use lakemark_format::error::{FormatError, Result};
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use super::leaves::{SearchedKeys, are_others_read, keys_around};
use super::overlap::{BlockOverlap, overlaps};
use crate::ranges::KeyRanges;

/// What leaves are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeavesFor {
    /// The rows of keys: from the leaves that have some of them, or from all others if these are fewer bytes.
    Rows,
    /// The keys: from all leaves that have some of them.
    Keys,
    /// How many there are: from the leaves that the ends of ranges are in.
    Counts,
    /// The first and the last key of one range: from the first and the last leaf that has some.
    Ends,
}

/// Of the pages that a range touches, the first and the last may have no key of it, but those next to them have.
const PAGES_OF_AN_END: usize = 2;

/// The inner pages of a directory that are needed to search it for some keys.
#[derive(Debug, Default)]
pub struct InnerPages {
    /// How each block of the directory lies to the keys.
    places: Vec<BlockOverlap>,
    /// The numbers of the pages that are needed, ascending.
    needed: Vec<usize>,
}

impl InnerPages {
    /// Plans which pages to read: none of a directory that has the leaves itself.
    #[must_use]
    pub fn new(directory: &SegmentDirectory, keys: &KeyRanges, leaves_for: LeavesFor) -> Self {
        if !directory.has_inner_pages() {
            return Self::default();
        }
        // Hashes say nothing of ranges, so that no leaf is searched for their rows.
        if leaves_for == LeavesFor::Rows && matches!(SearchedKeys::of(directory, keys), SearchedKeys::Open) {
            return Self::default();
        }
        let places = overlaps(directory, &keys_around(directory, keys));
        // Of hashes all rows are told apart, so that others say nothing of them.
        let are_others = leaves_for == LeavesFor::Rows
            && directory.key_type.hash_bits().is_none()
            && are_others_read(directory, &places);
        let is_needed = |place: BlockOverlap| match leaves_for {
            LeavesFor::Counts => place == BlockOverlap::Edge,
            LeavesFor::Rows if are_others => place != BlockOverlap::Inside,
            LeavesFor::Rows | LeavesFor::Keys | LeavesFor::Ends => place != BlockOverlap::Outside,
        };
        let needed = directory.blocks.iter().zip(&places).enumerate();
        let needed = needed.filter(|(_, (block, place))| block.is_inner && is_needed(**place));
        let mut needed: Vec<usize> = needed.map(|(number, _)| number).collect();
        if leaves_for == LeavesFor::Ends && needed.len() > 2 * PAGES_OF_AN_END {
            needed.drain(PAGES_OF_AN_END..needed.len() - PAGES_OF_AN_END);
        }
        Self { places, needed }
    }

    /// Whether no page is needed, so that the directory can be searched as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.needed.is_empty()
    }

    /// The pages that are needed, in their order.
    pub fn pages<'d>(&self, directory: &'d SegmentDirectory) -> impl Iterator<Item = &'d ValueBlockRef> + use<'_, 'd> {
        self.needed.iter().filter_map(|number| directory.blocks.get(*number))
    }

    /// The directory with the leaves of these pages, given in the order of [`Self::pages`], in place of them.
    ///
    /// # Errors
    /// Leaves of other pages, or out of order.
    pub fn replaced(&self, directory: &SegmentDirectory, leaves: &[Arc<[ValueBlockRef]>]) -> Result<SegmentDirectory> {
        if leaves.len() != self.needed.len() {
            return Err(FormatError::invalid("the inner pages read", leaves.len(), self.needed.len()));
        }
        let count: usize = leaves.iter().map(|leaves| leaves.len()).sum();
        let mut blocks: Vec<ValueBlockRef> = Vec::with_capacity(count + 2 * self.needed.len() + 2);
        let mut given = self.needed.iter().zip(leaves).peekable();
        // How the last block lies to the keys, if it is a page that stays.
        let mut stays = None;
        for (number, (block, place)) in directory.blocks.iter().zip(&self.places).enumerate() {
            if let Some((_, leaves)) = given.next_if(|(needed, _)| **needed == number) {
                blocks.extend(leaves.iter().cloned());
                stays = None;
                continue;
            }
            match blocks.last_mut().filter(|_| stays == Some(*place)) {
                Some(before) => join(before, block),
                None => blocks.push(block.clone()),
            }
            stays = Some(*place);
        }
        if !blocks.is_sorted_by(|one, other| one.first_key < other.first_key) {
            let (got, expected) = ("out of order", "ascending from page to page");
            return Err(FormatError::invalid("the first keys of the leaves of inner pages", got, expected));
        }
        Ok(directory.with_blocks(blocks))
    }
}

/// Lets a page stand for the next one as well. It has no bytes then: nobody could read it.
fn join(page: &mut ValueBlockRef, next: &ValueBlockRef) {
    let end = next.postings_offset.saturating_add(next.postings_length);
    page.length = 0;
    page.values = page.values.saturating_add(next.values);
    page.rows = page.rows.saturating_add(next.rows);
    page.postings_length = end.saturating_sub(page.postings_offset);
}

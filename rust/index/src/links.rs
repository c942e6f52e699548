//! Walking links: which leaves have those of a node, and what these say of it ([`lakemark_format::links`]).
//!
//! ```text
//! directory (in memory)    first link of leaf 0 │ of leaf 1 │ of leaf 2 │ …
//!                                               ▼ one read of a page, none if the leaf is remembered
//! leaf                     node → predicates → far ends
//! ```

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use arrow::array::Array;
use arrow::error::ArrowError;
use lakemark_format::error::Result;
use lakemark_format::key::Key;
use lakemark_format::leaf::CountedRows;
use lakemark_format::links::{LinkEnd, LinkLeaf, LinkShape, decode_link_rows};
use lakemark_format::posting::Decoder;
use lakemark_format::segment::{SegmentDirectory, ValueBlockRef};

use crate::bitmap::{EntryRows, rows_of_entry};
use crate::key::{CellVisitor, KeyCell, visit};

/// The predicates of links that are wanted, by their places in the dictionary of a segment; all of them if there is no set.
pub type WantedPredicates = Option<HashSet<u32>>;

/// A link of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLink<'a> {
    /// Its place in the leaf.
    pub place: usize,
    /// The place of its predicate in the dictionary of the segment.
    pub predicate: u32,
    /// Its other end.
    pub far: LinkEnd<'a>,
}

/// The leaves that may have links whose keys begin with these bytes, by their numbers.
#[must_use]
pub fn leaves_with(directory: &SegmentDirectory, prefix: &[u8]) -> Range<usize> {
    let is_before = |key: &Key| match key {
        Key::Bytes(bytes) => bytes.as_slice() < prefix && !bytes.starts_with(prefix),
        Key::Fixed(_) => true,
    };
    if directory.max_key.as_ref().is_none_or(is_before) {
        return 0..0;
    }
    let first_of = |block: &ValueBlockRef| match &block.first_key {
        Key::Bytes(first) => first.as_slice().cmp(prefix),
        Key::Fixed(_) => std::cmp::Ordering::Less,
    };
    let begins = |block: &ValueBlockRef| matches!(&block.first_key, Key::Bytes(first) if first.starts_with(prefix));
    let from = directory.blocks.partition_point(|block| first_of(block).is_le()).saturating_sub(1);
    let to = directory.blocks.partition_point(|block| first_of(block).is_lt() || begins(block));
    from..to.max(from)
}

/// Reads a leaf of the directory.
///
/// # Errors
/// Bytes that are none.
pub fn read_leaf(bytes: &[u8], block: &ValueBlockRef, directory: &SegmentDirectory) -> Result<LinkLeaf> {
    let shape = LinkShape::of(&directory.key_type)?;
    LinkLeaf::decode(bytes, block.values, &shape, directory.predicates.len())
}

/// Visits the links of a node, until the visitor has enough. Links to NULL lead nowhere.
pub fn visit_links<'a>(
    leaf: &'a LinkLeaf,
    node: LinkEnd<'_>,
    wanted: &WantedPredicates,
    mut visit: impl FnMut(FoundLink<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit_rows(leaf, node, wanted, |link| match link.far {
        LinkEnd::Null => ControlFlow::Continue(()),
        _ => visit(link),
    })
}

/// The same with links to NULL, which are rows as all others are.
pub fn visit_rows<'a>(
    leaf: &'a LinkLeaf,
    node: LinkEnd<'_>,
    wanted: &WantedPredicates,
    mut visit: impl FnMut(FoundLink<'a>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(place) = leaf.find(node) else { return ControlFlow::Continue(()) };
    for group in leaf.groups(place) {
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&group.predicate)) {
            continue;
        }
        for link in group.links.clone() {
            if let Some(far) = leaf.far(link) {
                visit(FoundLink { place: link, predicate: group.predicate, far })?;
            }
        }
    }
    ControlFlow::Continue(())
}

/// The rows of each link of a leaf; `bytes` are those of its postings place.
///
/// # Errors
/// Bytes that are none of them.
pub fn rows_of_links(bytes: &[u8], block: &ValueBlockRef, directory: &SegmentDirectory) -> Result<Vec<EntryRows>> {
    let mut decoder = Decoder::default();
    let counted: Vec<CountedRows<'_>> = decode_link_rows(bytes, block.values, directory.universe)?;
    let rows = counted.into_iter();
    rows.map(|rows| rows_of_entry(rows, block.postings_offset, directory.universe, &mut decoder)).collect()
}

/// The keys of the values of a column, none for NULL.
///
/// # Errors
/// A type that no index serves, and values that have no key, as a text that is too long.
pub fn keys_of_column(array: &dyn Array) -> std::result::Result<Vec<Option<Key>>, ArrowError> {
    let mut keys = ColumnKeys { keys: Vec::with_capacity(array.len()), lacks: false };
    visit(array, &mut keys)?;
    match keys.lacks || keys.keys.len() != array.len() {
        true => Err(ArrowError::InvalidArgumentError("a value is too long for a node or a predicate".to_owned())),
        false => Ok(keys.keys),
    }
}

struct ColumnKeys {
    keys: Vec<Option<Key>>,
    /// Whether a value has no key.
    lacks: bool,
}

impl ColumnKeys {
    fn add(&mut self, cell: KeyCell<Key>) {
        match cell {
            KeyCell::Null => self.keys.push(None),
            KeyCell::Key(key) => self.keys.push(Some(key)),
            KeyCell::Opaque => self.lacks = true,
        }
    }
}

impl CellVisitor for ColumnKeys {
    fn fixed(&mut self, _row: usize, cell: KeyCell<u64>) {
        self.add(cell.map(Key::Fixed));
    }

    fn bytes(&mut self, _row: usize, cell: KeyCell<&[u8]>) {
        self.add(cell.map(|bytes| Key::Bytes(bytes.to_vec())));
    }
}

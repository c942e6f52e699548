//! Links: rows of an edge table by one of their ends, as RDF-tuples (Athanassoulis 2013, chapter 6): the encoding `linked`.
//!
//! ```text
//! subject ─┬─ predicate ─┬─ object      a tuple: what a node is linked with, said once for the node and once for each predicate
//!          │             └─ object
//!          └─ predicate ─── object
//!
//! leaf     near ends │ predicates of each │ far ends of each of these     column by column, packed
//! rows     which rows of the table each link is in, in the same order     apart, as most walks need none of them
//! ```
//!
//! A link is a key of two or three columns: the near end, the predicate, the far end. A segment has its links in the order of these
//! keys. An index has two of its kind: one by subjects, and one by objects, where near and far are exchanged. Predicates are
//! places in a dictionary, which the directory holds. A node with more links than a page takes is a *hub*: its links with one
//! predicate have leaves of their own, of up to [`HUB_BYTES`], whose first keys say which far ends each of them has.

use std::collections::HashMap;

use crate::codec::ByteWriter;
use crate::container::PAGE_PAYLOAD;
use crate::error::{FormatError, Result};
use crate::key::{Key, KeyType, composite};
use crate::leaf::{CountedRows, LeafEntry, encode_rows};
use crate::packed::encode_column;

mod dictionary;
mod ends;
mod leaf;
mod rows;

pub use dictionary::MAX_PREDICATES;
pub(crate) use dictionary::{decode_predicates, encode_predicates, validate_predicates};
pub use ends::LinkEnd;
pub use leaf::{LinkGroup, LinkLeaf};
pub use rows::decode_link_rows;

use ends::{PlacedEnd, encode_ends};

/// The most links of a leaf. Part of the format.
pub const MAX_LEAF_LINKS: usize = 1 << 16;
/// The most bytes of the texts of all near ends of a leaf, and of all far ends, each counted whole. Part of the format.
pub const MAX_LINK_BYTES: usize = 1 << 22;
/// A writer gives the links of a node with one predicate leaves of up to so many bytes, if they take more than a page.
pub const HUB_BYTES: usize = 8 * LEAF_BYTES;
/// A writer gives all other leaves so many bytes at most, unless a single link takes more.
const LEAF_BYTES: usize = PAGE_PAYLOAD as usize;
/// Links that are gathered before the first leaf is tried.
const FIRST_LINKS: usize = 512;

/// The columns of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkShape {
    /// The type of both ends.
    pub end: KeyType,
    /// The type of predicates; none if links have none.
    pub predicate: Option<KeyType>,
}

impl LinkShape {
    /// The shape of links whose keys are of a type.
    ///
    /// # Errors
    /// A type that is none of two or three columns of which the first and the last one are alike.
    pub fn of(key_type: &KeyType) -> Result<Self> {
        let KeyType::Composite(types) = key_type else { return Err(no_link(1)) };
        match &**types {
            [near, far] if near == far => Ok(Self { end: near.clone(), predicate: None }),
            [near, predicate, far] if near == far => Ok(Self { end: near.clone(), predicate: Some(predicate.clone()) }),
            others => Err(no_link(others.len())),
        }
    }

    /// What the keys of all links of a node begin with, or of those with one predicate.
    #[must_use]
    pub fn prefix(&self, node: &Key, predicate: Option<&Option<Key>>) -> Vec<u8> {
        let mut key = Vec::new();
        composite::push_key(&mut key, &self.end, node);
        if let (Some(of), Some(predicate)) = (&self.predicate, predicate) {
            push(&mut key, of, predicate);
        }
        key
    }

    /// The key of a link; the predicate counts where links have one.
    #[must_use]
    pub fn key_of(&self, near: &Option<Key>, predicate: Option<&Option<Key>>, far: &Option<Key>) -> Vec<u8> {
        let mut key = Vec::new();
        push(&mut key, &self.end, near);
        if let Some(of) = &self.predicate {
            push(&mut key, of, predicate.unwrap_or(&None));
        }
        push(&mut key, &self.end, far);
        key
    }
}

fn push(out: &mut Vec<u8>, key_type: &KeyType, key: &Option<Key>) {
    match key {
        Some(key) => composite::push_key(out, key_type, key),
        None => composite::push_null(out),
    }
}

fn no_link(columns: usize) -> FormatError {
    let expected = "two or three columns, the first and the last of one type";
    FormatError::invalid("the columns of links", format_args!("{columns} columns or other types"), expected)
}

/// A link that waits for its leaf.
#[derive(Debug)]
struct OpenLink {
    key: Vec<u8>,
    near: Option<Key>,
    predicate: u32,
    far: Option<Key>,
    rows: CountedRows<'static>,
}

impl OpenLink {
    fn is_of_node(&self, other: &Self) -> bool {
        self.near == other.near
    }

    fn is_of_group(&self, other: &Self) -> bool {
        self.is_of_node(other) && self.predicate == other.predicate
    }
}

/// A finished leaf.
#[derive(Debug, PartialEq, Eq)]
pub struct LinkLeafBytes {
    /// Its first link, which goes to the directory.
    pub first_key: Key,
    /// Its links.
    pub links: u32,
    /// Rows of all of them.
    pub rows: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The bytes of its rows, which lie elsewhere.
    pub row_bytes: Vec<u8>,
}

/// Gathers links in their order into leaves.
#[derive(Debug)]
pub struct LinkLeafBuilder {
    key_type: KeyType,
    shape: LinkShape,
    places: HashMap<Option<Key>, u32>,
    predicates: Vec<Option<Key>>,
    open: Vec<OpenLink>,
    /// So many links are gathered before they are tried as a leaf.
    wanted: usize,
}

impl LinkLeafBuilder {
    /// Starts the leaves of a segment whose keys are of a type.
    ///
    /// # Errors
    /// A type that is none of links.
    pub fn new(key_type: KeyType) -> Result<Self> {
        let shape = LinkShape::of(&key_type)?;
        Ok(Self {
            key_type,
            shape,
            places: HashMap::new(),
            predicates: Vec::new(),
            open: Vec::new(),
            wanted: FIRST_LINKS,
        })
    }

    /// The predicates by their places, once all leaves are there.
    pub fn take_predicates(&mut self) -> Vec<Option<Key>> {
        self.places.clear();
        std::mem::take(&mut self.predicates)
    }

    /// Adds a link above all before it; gives leaves when there are links for them.
    ///
    /// # Errors
    /// Keys out of order or of another type; more predicates than [`MAX_PREDICATES`].
    pub fn push(&mut self, key: Key, rows: CountedRows<'static>) -> Result<Vec<LinkLeafBytes>> {
        let link = self.link(key, rows)?;
        if self.open.last().is_some_and(|last| last.key >= link.key) {
            return Err(FormatError::invalid("a link", "not above the one before", "ascending links"));
        }
        self.open.push(link);
        let mut leaves = Vec::new();
        while self.open.len() >= self.wanted {
            match self.next_leaf(false)? {
                Some(leaf) => leaves.push(leaf),
                None => break,
            }
        }
        Ok(leaves)
    }

    /// The last leaves, one at a time. To be called until it gives none.
    ///
    /// # Errors
    /// Those of [`Self::push`].
    pub fn finish(&mut self) -> Result<Option<LinkLeafBytes>> {
        if self.open.is_empty() { Ok(None) } else { self.next_leaf(true) }
    }

    fn link(&mut self, key: Key, rows: CountedRows<'static>) -> Result<OpenLink> {
        let (Key::Bytes(key), KeyType::Composite(types)) = (key, &self.key_type) else { return Err(no_link(1)) };
        let mut parts = composite::split(&key, types)?.into_iter();
        let near = parts.next().flatten();
        let predicate =
            if self.shape.predicate.is_some() { parts.next().map(|part| self.place_of(part)) } else { None };
        let predicate = predicate.transpose()?.unwrap_or_default();
        Ok(OpenLink { key, near, predicate, far: parts.next().flatten(), rows })
    }

    fn place_of(&mut self, predicate: Option<Key>) -> Result<u32> {
        if let Some(place) = self.places.get(&predicate) {
            return Ok(*place);
        }
        if self.predicates.len() >= MAX_PREDICATES {
            return Err(dictionary::too_many(self.predicates.len() + 1));
        }
        let place = self.predicates.len() as u32;
        self.predicates.push(predicate.clone());
        self.places.insert(predicate, place);
        Ok(place)
    }

    /// A leaf of the first links; none if more of them would fit, and more may come.
    fn next_leaf(&mut self, is_end: bool) -> Result<Option<LinkLeafBytes>> {
        let most = self.countable();
        let group = match self.open.first() {
            Some(first) => self.open.iter().take(most).take_while(|link| link.is_of_group(first)).count(),
            None => return Ok(None),
        };
        // Of a few links nobody has to ask whether they take a page.
        let is_hub = (group >= FIRST_LINKS / 8 || group == most) && self.encode(group)?.len() > LEAF_BYTES;
        let (candidates, room) = if is_hub { (group, HUB_BYTES) } else { (most, LEAF_BYTES) };
        let Fitting { links, bytes } = self.fitting(candidates, room)?;
        let takes_all = links == candidates;
        if takes_all && candidates == self.open.len() && !is_end && candidates < MAX_LEAF_LINKS {
            let by_size = links.saturating_mul(room) / bytes.len().max(1);
            self.wanted = by_size.clamp(links + 1 + links / 64, links.saturating_mul(4).max(FIRST_LINKS));
            return Ok(None);
        }
        self.wanted = links.max(FIRST_LINKS / 8);
        self.leaf(links, bytes).map(Some)
    }

    /// How many of the first links may be in one leaf, whatever it takes.
    fn countable(&self) -> usize {
        let mut bytes = 0usize;
        let fits = self.open.iter().take(MAX_LEAF_LINKS).take_while(|link| {
            bytes += link.key.len();
            bytes <= MAX_LINK_BYTES
        });
        fits.count().max(1)
    }

    /// About as many of the first links as fit in so many bytes, one at least.
    fn fitting(&self, candidates: usize, room: usize) -> Result<Fitting> {
        let (mut best, mut beyond, mut links) = (None, candidates + 1, candidates);
        loop {
            let bytes = self.encode(links)?;
            let length = bytes.len();
            if length <= room || links <= 1 {
                best = Some(Fitting { links, bytes });
            } else {
                beyond = links;
            }
            let low = best.as_ref().map_or(0, |fitting: &Fitting| fitting.links);
            match best {
                Some(fitting) if beyond - low <= 1 + low / 64 => return Ok(fitting),
                Some(_) => links = usize::midpoint(low, beyond),
                // By its size it is a little too many at most.
                None => links = (beyond.saturating_mul(room) / length * 63 / 64).clamp(1, beyond - 1),
            }
        }
    }

    fn leaf(&mut self, links: usize, bytes: Vec<u8>) -> Result<LinkLeafBytes> {
        let mut entries = Vec::with_capacity(links);
        for link in self.open.drain(..links) {
            let OpenLink { key, rows: CountedRows { rows, rows_in }, .. } = link;
            entries.push(LeafEntry { key: Key::Bytes(key), rows, rows_in });
        }
        let mut row_bytes = ByteWriter::new();
        encode_rows(&entries.iter().collect::<Vec<_>>(), &mut row_bytes)?;
        let rows = entries.iter().map(|entry| u64::from(entry.rows)).sum();
        let first_key = entries.into_iter().next().map(|entry| entry.key);
        let first_key = first_key.ok_or_else(|| FormatError::invalid("the links of a leaf", 0, "at least 1"))?;
        Ok(LinkLeafBytes { first_key, links: links as u32, rows, bytes, row_bytes: row_bytes.into_vec() })
    }

    /// The first links as a leaf.
    fn encode(&self, links: usize) -> Result<Vec<u8>> {
        let open = self.open.get(..links).unwrap_or_default();
        let (mut near, mut far, mut places) = (Vec::new(), Vec::with_capacity(links), Vec::new());
        // Of each node how many predicates it has, of each of these how many far ends.
        let (mut groups, mut counts): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut before: Option<&OpenLink> = None;
        for link in open {
            let is_same_node = before.is_some_and(|before| before.is_of_node(link));
            let is_same_group = before.is_some_and(|before| before.is_of_group(link));
            if !is_same_node {
                near.push(PlacedEnd { begins: near.is_empty(), end: &link.near });
                groups.push(0);
            }
            if !is_same_group {
                places.push(u64::from(link.predicate));
                groups.last_mut().into_iter().for_each(|groups| *groups += 1);
                counts.push(0);
            }
            counts.last_mut().into_iter().for_each(|count| *count += 1);
            far.push(PlacedEnd { begins: !is_same_group, end: &link.far });
            before = Some(link);
        }
        let beyond_one = |count: &u64| count.saturating_sub(1);
        let mut out = ByteWriter::new();
        out.length(near.len());
        if self.shape.predicate.is_some() {
            encode_column(groups.iter().map(beyond_one), &mut out);
            encode_column(places.iter().copied(), &mut out);
        }
        encode_column(counts.iter().map(beyond_one), &mut out);
        encode_ends(&near, &self.shape.end, &mut out)?;
        encode_ends(&far, &self.shape.end, &mut out)?;
        Ok(out.into_vec())
    }
}

/// Links that fit in a leaf, and its bytes.
struct Fitting {
    links: usize,
    bytes: Vec<u8>,
}

#[cfg(test)]
mod tests;

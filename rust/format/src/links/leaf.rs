//! Reading a leaf of links.

use std::ops::Range;

use super::ends::Ends;
use super::{LinkEnd, LinkShape, MAX_LEAF_LINKS};
use crate::codec::ByteReader;
use crate::error::{FormatError, Result};
use crate::key::Key;
use crate::packed::decode_column;

/// The links of a node with one predicate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkGroup {
    /// The place of the predicate in the dictionary; 0 where links have none.
    pub predicate: u32,
    /// The places of its links in the leaf, which are those of their far ends.
    pub links: Range<usize>,
}

/// A leaf that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkLeaf {
    near: Ends,
    far: Ends,
    groups: Vec<LinkGroup>,
    /// Where the groups of each node end.
    ends: Vec<u32>,
}

impl LinkLeaf {
    /// Reads a leaf of so many links, of a segment with so many predicates.
    ///
    /// # Errors
    /// Bytes that are no such leaf.
    pub fn decode(bytes: &[u8], links: u32, shape: &LinkShape, predicates: usize) -> Result<Self> {
        if links as usize > MAX_LEAF_LINKS {
            let (got, limit) = (u64::from(links), MAX_LEAF_LINKS as u64);
            return Err(FormatError::TooLong { what: "the links of a leaf", got, limit });
        }
        let mut input = ByteReader::new("a leaf of links", bytes);
        let nodes = input.varint_u32("the near ends of a leaf")?;
        if nodes == 0 || nodes > links {
            return Err(FormatError::invalid("the near ends of a leaf", nodes, format_args!("1 to {links}")));
        }
        let mut of_nodes = vec![1; nodes as usize];
        let mut group_count = nodes as usize;
        if shape.predicate.is_some() {
            of_nodes = counts(&mut input, nodes as usize, links, "the predicates of a near end")?;
            group_count = total(&of_nodes) as usize;
        }
        let places = match shape.predicate {
            Some(_) => decode_column(&mut input, group_count, "the place of a predicate")?,
            None => vec![0; group_count],
        };
        if shape.predicate.is_some()
            && let Some(place) = places.iter().find(|place| **place as usize >= predicates)
        {
            return Err(FormatError::invalid("the place of a predicate", place, format_args!("below {predicates}")));
        }
        let of_groups = counts(&mut input, group_count, links, "the links of a predicate")?;
        if total(&of_groups) != u64::from(links) {
            return Err(FormatError::invalid("the links of a leaf", total(&of_groups), links));
        }
        let near = Ends::decode(&mut input, &shape.end, &[nodes])?;
        let far = Ends::decode(&mut input, &shape.end, &of_groups)?;
        input.finish()?;
        if near.len() != nodes as usize || far.len() != links as usize {
            return Err(FormatError::invalid("the ends of links", far.len(), links));
        }
        let mut start = 0;
        let groups = places.into_iter().zip(of_groups).map(|(predicate, count)| {
            let links = start..start + count as usize;
            start = links.end;
            LinkGroup { predicate, links }
        });
        let groups = groups.collect();
        let ends = of_nodes.into_iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        Ok(Self { near, far, groups, ends: ends.collect() })
    }

    /// How many nodes the leaf has links of.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.ends.len()
    }

    /// How many links it has.
    #[must_use]
    pub fn link_count(&self) -> usize {
        self.far.len()
    }

    /// The node at a place, by ascending keys.
    #[must_use]
    pub fn node(&self, place: usize) -> Option<LinkEnd<'_>> {
        self.near.get(place)
    }

    /// The place of a node; none if the leaf has no link of it.
    #[must_use]
    pub fn find(&self, node: LinkEnd<'_>) -> Option<usize> {
        let (mut low, mut high) = (0, self.node_count());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.near.get(middle)?.cmp(&node) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// What the node at a place is linked with, a group for each predicate.
    #[must_use]
    pub fn groups(&self, place: usize) -> &[LinkGroup] {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(place).copied().unwrap_or(start);
        self.groups.get(start as usize..end as usize).unwrap_or_default()
    }

    /// The far end of a link, by its place in the leaf.
    #[must_use]
    pub fn far(&self, link: usize) -> Option<LinkEnd<'_>> {
        self.far.get(link)
    }

    /// The keys of all links, in the order of the leaf.
    ///
    /// # Errors
    /// Links that are out of order, which nothing but a look at all of them shows.
    pub fn keys(&self, shape: &LinkShape, predicates: &[Option<Key>]) -> Result<Vec<Key>> {
        let mut keys: Vec<Key> = Vec::with_capacity(self.link_count());
        for place in 0..self.node_count() {
            let near = self.node(place).and_then(LinkEnd::to_key);
            for group in self.groups(place) {
                let predicate = predicates.get(group.predicate as usize);
                for link in group.links.clone() {
                    let far = self.far(link).and_then(LinkEnd::to_key);
                    let key = Key::Bytes(shape.key_of(&near, predicate, &far));
                    if keys.last().is_some_and(|last| *last >= key) {
                        return Err(FormatError::invalid("a link", "not above the one before", "ascending links"));
                    }
                    keys.push(key);
                }
            }
        }
        Ok(keys)
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let own = size_of_val(self.groups.as_slice()) + size_of_val(self.ends.as_slice());
        size_of::<Self>() + self.near.memory_bytes() + self.far.memory_bytes() + own
    }
}

/// Counts of which each is one at least, and all together so many at most.
fn counts(input: &mut ByteReader<'_>, count: usize, most: u32, what: &'static str) -> Result<Vec<u32>> {
    let beyond_one = decode_column(input, count, what)?;
    let all = total(&beyond_one) + count as u64;
    if all > u64::from(most) {
        return Err(FormatError::invalid(what, all, format_args!("at most {most} in all")));
    }
    Ok(beyond_one.into_iter().map(|count| count + 1).collect())
}

fn total(counts: &[u32]) -> u64 {
    counts.iter().copied().map(u64::from).sum()
}

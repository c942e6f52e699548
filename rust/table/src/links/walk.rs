//! Walks: neighbours, breadth first, and from both ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use lakemark_format::Key;

use super::memory::{LinkMemory, Meter};
use super::nodes::Nodes;
use super::open::OpenLinks;
use super::side::Side;
use super::step::Step;
use super::{LinkDirection, WalkError};
use crate::error::Result;

type Walked<T> = std::result::Result<T, WalkError>;

/// Bytes that a set or a map takes beside its keys, about.
const ENTRY_BYTES: u64 = 32;

/// A link of a node: the place of the node among those that were asked for, the predicate and the other end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Neighbour {
    pub from: usize,
    pub predicate: Option<Key>,
    pub node: Key,
}

/// A node and how many links it has.
pub(super) struct Degree {
    pub node: Key,
    pub out: u64,
    pub back: u64,
}

/// A node that was reached over so many links.
pub(super) struct Reached {
    pub node: Key,
    pub depth: u32,
}

/// A node of a path, and the predicate of the link that leads to it; none at its start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathStep {
    pub node: Key,
    pub predicate: Option<Key>,
}

/// A walk over open links.
pub(super) struct Walk<'a> {
    links: Arc<OpenLinks>,
    meter: Meter<'a>,
}

/// What is seen of a node on the way from one end: how far it is, and the link that leads to it.
#[derive(Clone, Debug)]
struct Seen {
    depth: u32,
    /// The node before; none of the end itself.
    before: Option<(Key, Option<Key>)>,
}

/// A walk from one end of a path.
struct HalfWalk {
    direction: LinkDirection,
    seen: HashMap<Key, Seen>,
    frontier: Vec<Key>,
    depth: u32,
}

impl HalfWalk {
    fn new(start: Key, direction: LinkDirection) -> Self {
        let seen = HashMap::from([(start.clone(), Seen { depth: 0, before: None })]);
        Self { direction, seen, frontier: vec![start], depth: 0 }
    }
}

fn bytes_of(key: &Key) -> u64 {
    let own = match key {
        Key::Fixed(_) => 0,
        Key::Bytes(bytes) => bytes.len() + 2 * size_of::<usize>(),
    };
    (size_of::<Key>() + own) as u64
}

impl<'a> Walk<'a> {
    pub(super) fn new(links: Arc<OpenLinks>, memory: &'a dyn LinkMemory) -> Self {
        Self { links, meter: Meter::new(memory) }
    }

    /// The links of nodes, each once, in order; no more of them than the limit.
    pub(super) async fn neighbours(self, nodes: &Nodes) -> Walked<Vec<Neighbour>> {
        let Self { links, mut meter } = self;
        let limit = nodes.limit.unwrap_or(usize::MAX);
        let mut found: BTreeSet<Neighbour> = BTreeSet::new();
        for side in sides(&links, nodes.direction) {
            if found.len() >= limit {
                break;
            }
            let mut visit = |Step { from, predicate, to }: Step<'_>| -> Result<ControlFlow<()>> {
                let Some(node) = to.to_key() else { return Ok(ControlFlow::Continue(())) };
                let bytes = bytes_of(&node) + ENTRY_BYTES;
                if found.insert(Neighbour { from, predicate: predicate.clone(), node }) {
                    meter.take(bytes)?;
                }
                Ok(enough(found.len(), limit))
            };
            let _ended = side.expand(&nodes.keys, nodes.via.as_ref(), &mut visit).await?;
        }
        Ok(found.into_iter().collect())
    }

    /// How many links each of the nodes has, either way.
    pub(super) async fn degrees(self, nodes: &Nodes) -> Walked<Vec<Degree>> {
        let Self { links, mut meter } = self;
        let mut counts = [vec![0u64; nodes.keys.len()], vec![0u64; nodes.keys.len()]];
        for (side, counts) in [&links.out, &links.back].into_iter().zip(&mut counts) {
            let mut found: HashSet<Neighbour> = HashSet::new();
            let mut visit = |Step { from, predicate, to }: Step<'_>| -> Result<ControlFlow<()>> {
                let Some(node) = to.to_key() else { return Ok(ControlFlow::Continue(())) };
                let bytes = bytes_of(&node) + ENTRY_BYTES;
                if found.insert(Neighbour { from, predicate: predicate.clone(), node }) {
                    meter.take(bytes)?;
                    counts.get_mut(from).into_iter().for_each(|count| *count += 1);
                }
                Ok(ControlFlow::Continue(()))
            };
            let _ended = side.expand(&nodes.keys, nodes.via.as_ref(), &mut visit).await?;
        }
        let [out, back] = counts;
        let counted = nodes.keys.iter().zip(out).zip(back);
        Ok(counted.map(|((node, out), back)| Degree { node: node.clone(), out, back }).collect())
    }

    /// The nodes that all of these are linked with, in order.
    pub(super) async fn common(self, nodes: &Nodes) -> Walked<Vec<Key>> {
        let Self { links, mut meter } = self;
        // Of each far end the places of the nodes that have it.
        let mut found: BTreeMap<Key, BTreeSet<usize>> = BTreeMap::new();
        for side in sides(&links, nodes.direction) {
            let mut visit = |Step { from, to, .. }: Step<'_>| -> Result<ControlFlow<()>> {
                let Some(node) = to.to_key() else { return Ok(ControlFlow::Continue(())) };
                let bytes = bytes_of(&node) + 2 * ENTRY_BYTES;
                if found.entry(node).or_default().insert(from) {
                    meter.take(bytes)?;
                }
                Ok(ControlFlow::Continue(()))
            };
            let _ended = side.expand(&nodes.keys, nodes.via.as_ref(), &mut visit).await?;
        }
        let limit = nodes.limit.unwrap_or(usize::MAX);
        let of_all = found.into_iter().filter(|(_, from)| from.len() == nodes.keys.len());
        Ok(of_all.map(|(node, _)| node).take(limit).collect())
    }

    /// The nodes that links lead to, breadth first.
    pub(super) async fn reach(self, nodes: &Nodes) -> Walked<Vec<Reached>> {
        let Self { links, mut meter } = self;
        let limit = nodes.limit.unwrap_or(usize::MAX);
        // Whether a node was given: starts are seen, and given only when a link leads back to them.
        let mut seen: HashMap<Key, bool> = HashMap::new();
        let mut found: Vec<Reached> = Vec::new();
        for start in &nodes.keys {
            meter.take(bytes_of(start) + ENTRY_BYTES)?;
            seen.insert(start.clone(), nodes.min_depth == 0);
        }
        if nodes.min_depth == 0 {
            found.extend(nodes.keys.iter().take(limit).map(|node| Reached { node: node.clone(), depth: 0 }));
        }
        let (mut frontier, mut depth) = (nodes.keys.clone(), 0u32);
        while !frontier.is_empty() && found.len() < limit && nodes.max_depth.is_none_or(|most| depth < most) {
            depth = depth.saturating_add(1);
            let mut next: Vec<Key> = Vec::new();
            for side in sides(&links, nodes.direction) {
                let mut visit = |Step { to, .. }: Step<'_>| -> Result<ControlFlow<()>> {
                    let Some(node) = to.to_key() else { return Ok(ControlFlow::Continue(())) };
                    let is_new = match seen.get_mut(&node) {
                        Some(given) if *given => return Ok(ControlFlow::Continue(())),
                        Some(given) => {
                            *given = true;
                            false
                        }
                        None => true,
                    };
                    if is_new {
                        // In the set, in the next frontier and in the answer.
                        meter.take(3 * bytes_of(&node) + ENTRY_BYTES)?;
                        seen.insert(node.clone(), true);
                        next.push(node.clone());
                    }
                    if depth >= nodes.min_depth {
                        found.push(Reached { node, depth });
                    }
                    Ok(enough(found.len(), limit))
                };
                if side.expand(&frontier, nodes.via.as_ref(), &mut visit).await?.is_break() {
                    break;
                }
            }
            next.sort_unstable();
            frontier = next;
        }
        found.sort_unstable_by(|one, other| (one.depth, &one.node).cmp(&(other.depth, &other.node)));
        Ok(found)
    }

    /// A shortest path between two nodes, walked from both ends; none if there is none.
    pub(super) async fn path(self, from: &Nodes, to: &Nodes) -> Walked<Vec<PathStep>> {
        let Self { links, mut meter } = self;
        let (Some(start), Some(end)) = (from.keys.first(), to.keys.first()) else { return Ok(Vec::new()) };
        if start == end {
            return Ok(vec![PathStep { node: start.clone(), predicate: None }]);
        }
        let mut ahead = HalfWalk::new(start.clone(), from.direction);
        let mut behind = HalfWalk::new(end.clone(), from.direction.reversed());
        while !ahead.frontier.is_empty() && !behind.frontier.is_empty() {
            if from.max_depth.is_some_and(|most| ahead.depth.saturating_add(behind.depth) >= most) {
                break;
            }
            // The smaller frontier has fewer leaves to read.
            let is_ahead = ahead.frontier.len() <= behind.frontier.len();
            let (half, other) = if is_ahead { (&mut ahead, &behind) } else { (&mut behind, &ahead) };
            step(&links, half, from.via.as_ref(), &mut meter).await?;
            // No path was shorter, so that all of those that meet now are equally short.
            let middle = half.frontier.iter().filter(|node| other.seen.contains_key(*node)).min().cloned();
            if let Some(middle) = middle {
                return Ok(joined(&ahead, &behind, &middle));
            }
        }
        Ok(Vec::new())
    }
}

/// The sides that links are followed by.
fn sides(links: &OpenLinks, direction: LinkDirection) -> impl Iterator<Item = &Side> {
    let out = direction.goes_out().then_some(&links.out);
    out.into_iter().chain(direction.goes_in().then_some(&links.back))
}

fn enough(count: usize, limit: usize) -> ControlFlow<()> {
    if count >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Goes one link further from one end. Of several links to a node the least one is kept, whatever comes first.
async fn step(
    links: &OpenLinks,
    half: &mut HalfWalk,
    via: Option<&HashSet<Option<Key>>>,
    meter: &mut Meter<'_>,
) -> Walked<()> {
    let depth = half.depth.saturating_add(1);
    let frontier = std::mem::take(&mut half.frontier);
    let (mut next, seen) = (Vec::new(), &mut half.seen);
    for side in sides(links, half.direction) {
        let mut visit = |Step { from, predicate, to }: Step<'_>| -> Result<ControlFlow<()>> {
            let (Some(node), Some(before)) = (to.to_key(), frontier.get(from)) else {
                return Ok(ControlFlow::Continue(()));
            };
            match seen.get_mut(&node) {
                Some(known) if known.depth == depth => {
                    let is_less = known.before.as_ref().is_some_and(|(other, of)| (before, predicate) < (other, of));
                    if is_less {
                        known.before = Some((before.clone(), predicate.clone()));
                    }
                }
                Some(_) => {}
                None => {
                    meter.take(3 * bytes_of(&node) + 2 * ENTRY_BYTES)?;
                    let before = Some((before.clone(), predicate.clone()));
                    seen.insert(node.clone(), Seen { depth, before });
                    next.push(node);
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let _ended = side.expand(&frontier, via, &mut visit).await?;
    }
    next.sort_unstable();
    (half.frontier, half.depth) = (next, depth);
    Ok(())
}

/// The path over the node in which both walks met.
fn joined(ahead: &HalfWalk, behind: &HalfWalk, middle: &Key) -> Vec<PathStep> {
    let mut path = Vec::new();
    let mut node = middle.clone();
    while let Some((before, predicate)) = ahead.seen.get(&node).and_then(|seen| seen.before.clone()) {
        path.push(PathStep { node: std::mem::replace(&mut node, before), predicate });
    }
    path.push(PathStep { node, predicate: None });
    path.reverse();
    let mut node = middle.clone();
    while let Some((after, predicate)) = behind.seen.get(&node).and_then(|seen| seen.before.clone()) {
        node = after.clone();
        path.push(PathStep { node: after, predicate });
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::Fixed(number)
    }

    #[test]
    fn halves_of_a_path_are_joined_in_its_order() {
        let link = |node: u64, depth, before: u64, predicate: u64| {
            (key(node), Seen { depth, before: Some((key(before), Some(key(predicate)))) })
        };
        let mut ahead = HalfWalk::new(key(1), LinkDirection::Out);
        ahead.seen.extend([link(2, 1, 1, 10), link(3, 2, 2, 20)]);
        let mut behind = HalfWalk::new(key(5), LinkDirection::In);
        behind.seen.extend([link(4, 1, 5, 40), link(3, 2, 4, 30)]);
        let step = |node, predicate: Option<u64>| PathStep { node: key(node), predicate: predicate.map(key) };
        let expected = [step(1, None), step(2, Some(10)), step(3, Some(20)), step(4, Some(30)), step(5, Some(40))];
        assert_eq!(joined(&ahead, &behind, &key(3)), expected);
    }
}

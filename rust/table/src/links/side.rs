//! The links of a table by one of their ends.

use std::collections::HashSet;
use std::ops::ControlFlow;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::Key;
use lakemark_format::links::LinkShape;
use lakemark_index::links::{FoundLink, WantedPredicates, leaves_with, visit_links};

use super::WalkError;
use super::loading::{KnownLeaves, LinkSegment, LoadedLeaf, NumberedLeaf, READS_AT_ONCE, Reading};
use super::step::{Step, Visit};
use super::unindexed::UnindexedLinks;
use crate::error::Result;

/// Leaves that are held at a time, whatever a round needs.
const LEAVES_AT_ONCE: usize = 512;

/// The predicate of links that have none.
static NO_PREDICATE: Option<Key> = None;

/// The links of a table in the order of one end.
#[derive(Debug)]
pub(super) struct Side {
    pub shape: LinkShape,
    pub segments: Vec<LinkSegment>,
    pub unindexed: UnindexedLinks,
}

/// A leaf that has to be looked at for a node of the frontier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Look {
    pub leaf: usize,
    pub node: usize,
}

impl Side {
    /// Visits the links of nodes, which ascend, until the visitor has enough. The same link may come several times.
    pub(super) async fn expand(
        &self,
        frontier: &[Key],
        via: Option<&HashSet<Option<Key>>>,
        visit: &mut Visit<'_>,
    ) -> std::result::Result<ControlFlow<()>, WalkError> {
        let plans = self.plans(frontier, via);
        let known = read_together(&plans).await?;
        for (SegmentLooks { segment, wanted, looks }, mut known) in plans.iter().zip(known) {
            for looks in chunks(looks) {
                let leaves = leaves_of(looks);
                let loaded = segment.load(&leaves, std::mem::take(&mut known)).await;
                let loaded = loaded.map_err(|damage| segment.damaged(damage))?;
                for look in looks {
                    let at = leaves.binary_search(&look.leaf).ok().and_then(|place| loaded.get(place));
                    let (Some(leaf), Some(node)) = (at, frontier.get(look.node)) else { continue };
                    let found = Found { segment, leaf, wanted, from: look.node };
                    if found.visit(node, visit)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(self.unindexed.visit(frontier, via, visit)?)
    }

    /// What a round looks for in each segment that may have something.
    pub(super) fn plans(&self, frontier: &[Key], via: Option<&HashSet<Option<Key>>>) -> Vec<SegmentLooks<'_>> {
        let mut plans = Vec::with_capacity(self.segments.len());
        for segment in &self.segments {
            let wanted = segment.places_of(via);
            if wanted.as_ref().is_some_and(HashSet::is_empty) {
                continue;
            }
            let looks = self.looks(segment, frontier, via);
            if !looks.is_empty() {
                plans.push(SegmentLooks { segment, wanted, looks });
            }
        }
        plans
    }

    /// The leaves that may have links of the nodes, ascending.
    fn looks(&self, segment: &LinkSegment, frontier: &[Key], via: Option<&HashSet<Option<Key>>>) -> Vec<Look> {
        let mut looks = Vec::with_capacity(frontier.len());
        let directory = &segment.segment.directory;
        for (node, key) in frontier.iter().enumerate() {
            let mut add =
                |prefix: Vec<u8>| looks.extend(leaves_with(directory, &prefix).map(|leaf| Look { leaf, node }));
            match via.filter(|_| self.shape.predicate.is_some()) {
                Some(via) => via.iter().for_each(|predicate| add(self.shape.prefix(key, Some(predicate)))),
                None => add(self.shape.prefix(key, None)),
            }
        }
        looks.sort_unstable();
        looks.dedup();
        looks
    }
}

/// What a round looks for in a segment.
pub(super) struct SegmentLooks<'a> {
    pub segment: &'a LinkSegment,
    pub wanted: WantedPredicates,
    /// Ascending.
    pub looks: Vec<Look>,
}

/// The leaves of looks, each once.
pub(super) fn leaves_of(looks: &[Look]) -> Vec<usize> {
    let mut leaves: Vec<usize> = looks.iter().map(|look| look.leaf).collect();
    leaves.dedup();
    leaves
}

/// Reads what a round needs of several segments at once, unless it is more than is held at a time.
async fn read_together(plans: &[SegmentLooks<'_>]) -> std::result::Result<Vec<KnownLeaves>, WalkError> {
    let mut known: Vec<KnownLeaves> = plans.iter().map(|_| KnownLeaves::new()).collect();
    let leaves: Vec<Vec<usize>> = plans.iter().map(|plan| leaves_of(&plan.looks)).collect();
    if plans.len() < 2 || leaves.iter().map(Vec::len).sum::<usize>() > LEAVES_AT_ONCE {
        return Ok(known);
    }
    let mut reads: Vec<Reading<'_, (usize, Vec<NumberedLeaf>), WalkError>> = Vec::new();
    for (place, ((plan, leaves), known)) in plans.iter().zip(&leaves).zip(&mut known).enumerate() {
        let segment = plan.segment;
        for run in segment.missing(leaves, known) {
            reads.push(Box::pin(async move {
                let read = segment.read(run).await.map_err(|damage| segment.damaged(damage))?;
                Ok((place, read))
            }));
        }
    }
    let read: Vec<(usize, Vec<NumberedLeaf>)> =
        stream::iter(reads).buffer_unordered(READS_AT_ONCE).try_collect().await?;
    for (place, leaves) in read {
        known.get_mut(place).into_iter().for_each(|known| known.extend(leaves.iter().cloned()));
    }
    Ok(known)
}

/// Parts of the looks that need no more leaves than are held at a time.
pub(super) fn chunks(looks: &[Look]) -> Vec<&[Look]> {
    let (mut parts, mut start, mut leaves) = (Vec::new(), 0, 0);
    for (place, look) in looks.iter().enumerate() {
        let is_new =
            place.checked_sub(1).and_then(|before| looks.get(before)).is_none_or(|before| before.leaf < look.leaf);
        if is_new && leaves == LEAVES_AT_ONCE {
            parts.extend(looks.get(start..place));
            (start, leaves) = (place, 0);
        }
        leaves += usize::from(is_new);
    }
    parts.extend(looks.get(start..).filter(|rest| !rest.is_empty()));
    parts
}

/// A leaf that is looked at for a node.
struct Found<'a> {
    segment: &'a LinkSegment,
    leaf: &'a LoadedLeaf,
    wanted: &'a WantedPredicates,
    from: usize,
}

impl Found<'_> {
    fn visit(&self, node: &Key, visit: &mut Visit<'_>) -> Result<ControlFlow<()>> {
        let predicates = &self.segment.segment.directory.predicates;
        let mut failed = None;
        let ended = visit_links(&self.leaf.leaf, node.into(), self.wanted, |FoundLink { place, predicate, far }| {
            if !self.leaf.is_alive(place) {
                return ControlFlow::Continue(());
            }
            let predicate = predicates.get(predicate as usize).unwrap_or(&NO_PREDICATE);
            match visit(Step { from: self.from, predicate, to: far }) {
                Ok(flow) => flow,
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        failed.map_or(Ok(ended), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_cut_by_their_leaves() {
        let look = |leaf, node| Look { leaf, node };
        let looks: Vec<Look> = (0..1030).flat_map(|leaf| [look(leaf, 0), look(leaf, 1)]).collect();
        let parts = chunks(&looks);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [1024, 1024, 12]);
        assert!(chunks(&[]).is_empty());
        assert_eq!(chunks(&looks[..3]), [&looks[..3]]);
    }
}

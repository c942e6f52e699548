//! Links that no index has, in memory.

use std::collections::HashSet;
use std::ops::ControlFlow;

use lakemark_format::Key;

use super::read_rows::RowLink;
use super::step::{Step, Visit};
use crate::error::Result;

/// Links by ascending nodes, each of them once.
#[derive(Debug, Default)]
pub(super) struct UnindexedLinks(Vec<RowLink>);

impl UnindexedLinks {
    pub(super) fn new(mut links: Vec<RowLink>) -> Self {
        links.sort_unstable();
        links.dedup();
        Self(links)
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.0.iter().map(RowLink::memory_bytes).sum()
    }

    /// Visits the links of nodes, until the visitor has enough.
    pub(super) fn visit(
        &self,
        frontier: &[Key],
        via: Option<&HashSet<Option<Key>>>,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>> {
        for (from, node) in frontier.iter().enumerate() {
            let start = self.0.partition_point(|link| link.near < *node);
            for link in self.0.iter().skip(start).take_while(|link| link.near == *node) {
                if via.is_some_and(|via| !via.contains(&link.predicate)) {
                    continue;
                }
                if visit(Step { from, predicate: &link.predicate, to: (&link.far).into() })?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_by_node_and_predicate() {
        let link = |near, predicate, far| RowLink {
            near: Key::Fixed(near),
            predicate: Some(Key::Fixed(predicate)),
            far: Key::Fixed(far),
        };
        let links = UnindexedLinks::new(vec![link(2, 1, 5), link(1, 1, 2), link(1, 2, 3), link(1, 1, 2)]);
        let found = |nodes: &[u64], via: Option<u64>| {
            let via = via.map(|via| HashSet::from([Some(Key::Fixed(via))]));
            let nodes: Vec<Key> = nodes.iter().copied().map(Key::Fixed).collect();
            let mut found = Vec::new();
            let ended = links.visit(&nodes, via.as_ref(), &mut |step: Step<'_>| {
                found.push((step.from, step.to.to_key()));
                Ok(ControlFlow::Continue(()))
            });
            assert!(ended.unwrap().is_continue());
            found
        };
        let to = |far| Some(Key::Fixed(far));
        assert_eq!(found(&[1, 2], None), [(0, to(2)), (0, to(3)), (1, to(5))]);
        assert_eq!(found(&[1, 2], Some(1)), [(0, to(2)), (1, to(5))]);
        assert!(found(&[3], None).is_empty() && found(&[1], Some(9)).is_empty());
    }
}

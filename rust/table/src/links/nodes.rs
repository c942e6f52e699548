//! Nodes and predicates as callers name them.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use lakemark_format::Key;
use lakemark_index::links::keys_of_column;

use super::{LinkDirection, Links, WalkOptions};
use crate::error::{Error, Result};
use crate::values::exact::cast_exactly;

/// Where a walk begins, and which links it takes.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Ascending, each once. No link leads from NULL.
    pub keys: Vec<Key>,
    pub via: Option<HashSet<Option<Key>>>,
    pub direction: LinkDirection,
    pub min_depth: u32,
    pub max_depth: Option<u32>,
    pub limit: Option<usize>,
}

impl Nodes {
    pub(super) fn of(links: &Links, nodes: &ArrayRef, options: &WalkOptions) -> Result<Self> {
        let WalkOptions { via, direction, min_depth, max_depth, limit } = options;
        if let Some(most) = max_depth.filter(|most| most < min_depth) {
            return Err(Error::invalid(format!(
                "nodes at least {min_depth} and at most {most} links away are asked for, and there is no such number; give a max_depth of \
                 {min_depth} or more"
            )));
        }
        let mut keys: Vec<Key> = keys_in(nodes, links.columns.node_type(), "a node")?.into_iter().flatten().collect();
        keys.sort_unstable();
        keys.dedup();
        let via = match (via, &links.columns.predicate) {
            (None, _) => None,
            (Some(via), Some(predicate)) => {
                // NULL equals nothing.
                let wanted = keys_in(via, predicate.data_type(), "a predicate")?.into_iter().filter(Option::is_some);
                Some(wanted.collect())
            }
            (Some(_), None) => {
                return Err(Error::invalid("the links have no predicate, and one was given; leave it out"));
            }
        };
        let (direction, min_depth, max_depth, limit) = (*direction, *min_depth, *max_depth, *limit);
        Ok(Self { keys, via, direction, min_depth, max_depth, limit })
    }

    /// The same of a single node.
    pub(super) fn one(links: &Links, node: &ArrayRef, options: &WalkOptions) -> Result<Self> {
        if node.len() != 1 {
            return Err(Error::invalid(format!("a path is from one node to one, and {} were given", node.len())));
        }
        let options = WalkOptions { min_depth: 0, ..options.clone() };
        Self::of(links, node, &options)
    }
}

/// The keys of values in the type of a column.
fn keys_in(given: &ArrayRef, data_type: &DataType, what: &str) -> Result<Vec<Option<Key>>> {
    let values = cast_exactly(given, data_type).map_err(|lossy| {
        Error::invalid(format!("{what} of the links is of the type {data_type}: {lossy}")).with_source(lossy)
    })?;
    keys_of_column(values.as_ref())
        .map_err(|error| Error::invalid(format!("{what} cannot be looked for: {error}")).with_source(error))
}

//! Nodes as callers name them, and answers as rows.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema};
use lakemark_format::Key;
use lakemark_index::links::keys_of_column;
use lakemark_index::{LiteralKey, decode_keys};

use super::walk::{Degree, Neighbour, PathStep, Reached};
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

/// Values of keys.
fn values<'a>(keys: impl Iterator<Item = Option<&'a Key>>, data_type: &DataType) -> Result<ArrayRef> {
    let keys: Vec<LiteralKey> =
        keys.map(|key| key.map_or(LiteralKey::Null, |key| LiteralKey::Key(key.clone()))).collect();
    decode_keys(&keys, data_type).map_err(|error| Error::internal("a node has no value").with_source(error))
}

/// A column of an answer.
struct Answer {
    name: &'static str,
    values: ArrayRef,
    is_nullable: bool,
}

impl Answer {
    fn full(name: &'static str, values: ArrayRef) -> Self {
        Self { name, values, is_nullable: false }
    }
}

fn rows(answers: Vec<Answer>) -> Result<RecordBatch> {
    let fields: Vec<Field> = answers
        .iter()
        .map(|answer| Field::new(answer.name, answer.values.data_type().clone(), answer.is_nullable))
        .collect();
    let columns = answers.into_iter().map(|answer| answer.values).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|error| Error::internal("the rows of a walk cannot be put together").with_source(error))
}

impl Links {
    fn nodes<'a>(&self, name: &'static str, keys: impl Iterator<Item = &'a Key>) -> Result<Answer> {
        Ok(Answer::full(name, values(keys.map(Some), self.columns.node_type())?))
    }

    fn predicates<'a>(&self, keys: impl Iterator<Item = Option<&'a Key>>) -> Result<Option<Answer>> {
        let Some(field) = &self.columns.predicate else { return Ok(None) };
        let values = values(keys, field.data_type())?;
        Ok(Some(Answer { name: "predicate", values, is_nullable: true }))
    }

    /// What [`Self::neighbours`] gives: its columns, without a row.
    ///
    /// # Errors
    /// A defect.
    pub fn neighbour_columns(&self) -> Result<RecordBatch> {
        neighbours(self, (Vec::new(), Vec::new()))
    }

    /// The same of [`Self::reach`].
    ///
    /// # Errors
    /// A defect.
    pub fn reach_columns(&self) -> Result<RecordBatch> {
        reached(self, Vec::new())
    }

    /// The same of [`Self::path`].
    ///
    /// # Errors
    /// A defect.
    pub fn path_columns(&self) -> Result<RecordBatch> {
        path(self, Vec::new())
    }
}

/// The nodes that were asked for, and their links.
pub(super) type NeighboursOf = (Vec<Key>, Vec<Neighbour>);

pub(super) fn neighbours(links: &Links, (nodes, found): NeighboursOf) -> Result<RecordBatch> {
    let nodes = values(nodes.iter().map(Some), links.columns.node_type())?;
    let places: UInt64Array = found.iter().map(|neighbour| neighbour.from as u64).collect::<Vec<_>>().into();
    let from = take(nodes.as_ref(), &places, None);
    let from = from.map_err(|error| Error::internal("nodes cannot be repeated").with_source(error))?;
    let mut answers = vec![Answer::full("from", from)];
    answers.extend(links.predicates(found.iter().map(|neighbour| neighbour.predicate.as_ref()))?);
    answers.push(links.nodes("node", found.iter().map(|neighbour| &neighbour.node))?);
    rows(answers)
}

pub(super) fn degrees(links: &Links, found: Vec<Degree>) -> Result<RecordBatch> {
    let counts = |of: fn(&Degree) -> u64| Arc::new(UInt64Array::from_iter_values(found.iter().map(of))) as ArrayRef;
    rows(vec![
        links.nodes("node", found.iter().map(|degree| &degree.node))?,
        Answer::full("out", counts(|degree| degree.out)),
        Answer::full("in", counts(|degree| degree.back)),
    ])
}

pub(super) fn common(links: &Links, found: Vec<Key>) -> Result<RecordBatch> {
    rows(vec![links.nodes("node", found.iter())?])
}

pub(super) fn reached(links: &Links, found: Vec<Reached>) -> Result<RecordBatch> {
    let depths = UInt32Array::from_iter_values(found.iter().map(|reached| reached.depth));
    rows(vec![links.nodes("node", found.iter().map(|reached| &reached.node))?, Answer::full("depth", Arc::new(depths))])
}

pub(super) fn path(links: &Links, found: Vec<PathStep>) -> Result<RecordBatch> {
    let steps = UInt32Array::from_iter_values((0..).take(found.len()));
    let mut answers =
        vec![Answer::full("step", Arc::new(steps)), links.nodes("node", found.iter().map(|step| &step.node))?];
    answers.extend(links.predicates(found.iter().map(|step| step.predicate.as_ref()))?);
    rows(answers)
}

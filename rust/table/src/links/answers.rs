//! Answers as rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema};
use lakemark_format::Key;
use lakemark_index::{LiteralKey, decode_keys};

use super::Links;
use super::walk::{Degree, Neighbour, PathStep, Reached};
use crate::error::{Error, Result};

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

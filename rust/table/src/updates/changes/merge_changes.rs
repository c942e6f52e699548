//! What remains of several changes of the same rows: at most one change for each key.
//!
//! ```text
//! before ╲ then   upsert   delete   update
//! nothing         upsert   delete   update
//! upsert          upsert   delete   upsert, patched
//! delete          upsert   delete   delete
//! update          upsert   delete   update of both
//! ```
//!
//! An update of a row that is not there changes nothing, so that nothing is left of it behind a delete. This is the `Merge_updates` of MaSM
//! (Athanassoulis 2014, section 3.3.2), with `upsert` for `insert` and `replace`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Int8Array, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::interleave;
use arrow::datatypes::SchemaRef;
use lakemark_format::Operation;

use super::rows::{ChangeColumns, batch, has, table_columns, union};
use crate::error::{Error, Result};
use crate::updates::key::KeyColumns;

/// Where a row is.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    /// The place of its batch.
    batch: u32,
    /// Its place in the batch.
    row: u32,
}

/// What was done last with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastChange {
    /// The operation that it comes to, together with what was done before.
    pub operation: Operation,
    /// The sequence number of the commit.
    pub sequence: u64,
}

/// What remains of the changes of one key.
#[derive(Clone, Debug)]
struct KeyChanges {
    operation: Operation,
    /// The row that an upsert gave.
    whole: Option<RowPlace>,
    /// Updates after that row, oldest first.
    patches: Vec<RowPlace>,
    sequence: u64,
}

/// Changes that are being merged.
#[derive(Clone, Debug)]
pub(crate) struct ChangeMerger {
    /// A change schema.
    schema: SchemaRef,
    key: Arc<KeyColumns>,
    batches: Vec<RecordBatch>,
    entries: HashMap<Box<[u8]>, KeyChanges>,
}

impl ChangeMerger {
    pub(crate) fn new(schema: SchemaRef, key: Arc<KeyColumns>) -> Self {
        Self { schema, key, batches: Vec::new(), entries: HashMap::new() }
    }

    /// No changes, for the same table.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(Arc::clone(&self.schema), Arc::clone(&self.key))
    }

    /// Adds changes that come after all that were added.
    pub(crate) fn add(&mut self, changes: RecordBatch) -> Result<()> {
        let keys = self.key.encode(&changes)?;
        let said = ChangeColumns::of(&changes)?;
        let number = u32::try_from(self.batches.len())
            .map_err(|_| Error::unsupported("there are too many changes to merge; commit larger batches"))?;
        for (row, key) in keys.iter().enumerate() {
            let (operation, sequence) = (said.operation(row)?, said.sequence(row));
            let place = RowPlace { batch: number, row: u32::try_from(row).unwrap_or(u32::MAX) };
            self.change(key.as_ref(), operation, sequence, place, said.set(row));
        }
        self.batches.push(changes);
        Ok(())
    }

    fn change(&mut self, key: &[u8], operation: Operation, sequence: u64, place: RowPlace, set: &[u8]) {
        let before = self.entries.get_mut(key);
        let entry = match (operation, before) {
            (Operation::Insert | Operation::Upsert, _) => {
                KeyChanges { operation: Operation::Upsert, whole: Some(place), patches: Vec::new(), sequence }
            }
            (Operation::Delete, _) => {
                KeyChanges { operation: Operation::Delete, whole: Some(place), patches: Vec::new(), sequence }
            }
            (Operation::Update, None) => {
                KeyChanges { operation: Operation::Update, whole: None, patches: vec![place], sequence }
            }
            (Operation::Update, Some(before)) => {
                if before.operation != Operation::Delete {
                    // An update of the same columns makes the one before it void: a row that is updated all the time stays small.
                    let is_same = |patch: &RowPlace| set_at(&self.batches, *patch) == Some(set);
                    if before.patches.last().is_some_and(is_same) {
                        before.patches.pop();
                    }
                    before.patches.push(place);
                    before.sequence = sequence;
                }
                return;
            }
        };
        self.entries.insert(key.into(), entry);
    }

    /// The schema of the changes.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many keys have a change.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What was done last with a key, and when.
    pub(crate) fn last(&self, key: &[u8]) -> Option<LastChange> {
        self.entries.get(key).map(|entry| LastChange { operation: entry.operation, sequence: entry.sequence })
    }

    /// One row for each key, in the order of keys.
    pub(crate) fn finish(&self) -> Result<RecordBatch> {
        let mut sorted: Vec<(&[u8], &KeyChanges)> =
            self.entries.iter().map(|(key, entry)| (key.as_ref(), entry)).collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        let entries: Vec<&KeyChanges> = sorted.into_iter().map(|(_, entry)| entry).collect();
        let said = self.batches.iter().map(ChangeColumns::of).collect::<Result<Vec<_>>>()?;
        let set_of =
            |place: &RowPlace| said.get(place.batch as usize).map_or(&[][..], |said| said.set(place.row as usize));
        let width = table_columns(&self.schema);
        let mut columns = Vec::with_capacity(width + 3);
        for place in 0..width {
            let source = |entry: &&KeyChanges| {
                let patched = entry.patches.iter().rev().find(|patch| has(set_of(patch), place));
                // Where nothing gave the row yet, the value is the NULL behind the batches. An update gives its key itself.
                patched.copied().or(entry.whole)
            };
            columns.push(self.gather(place, entries.iter().map(source))?);
        }
        let operations: Int8Array = entries.iter().map(|entry| Some(entry.operation.code().cast_signed())).collect();
        let sequences = UInt64Array::from_iter_values(entries.iter().map(|entry| entry.sequence));
        let set = |entry: &&KeyChanges| {
            (entry.operation == Operation::Update).then(|| union(entry.patches.iter().map(set_of)))
        };
        let sets: BinaryArray = entries.iter().map(set).collect();
        columns.push(Arc::new(operations) as ArrayRef);
        columns.push(Arc::new(sequences));
        columns.push(Arc::new(sets));
        batch(&self.schema, columns, entries.len())
    }

    /// Values of a column from all over the batches.
    fn gather(&self, column: usize, places: impl Iterator<Item = Option<RowPlace>>) -> Result<ArrayRef> {
        let field = self.schema.fields().get(column);
        let data_type = field.map(|field| field.data_type().clone());
        let Some(data_type) = data_type else { return Err(Error::internal("a column out of range")) };
        let mut arrays: Vec<ArrayRef> =
            self.batches.iter().filter_map(|batch| batch.columns().get(column).cloned()).collect();
        let null = arrays.len();
        arrays.push(new_null_array(&data_type, 1));
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let index =
            |place: Option<RowPlace>| place.map_or((null, 0), |place| (place.batch as usize, place.row as usize));
        let indices: Vec<(usize, usize)> = places.map(index).collect();
        interleave(&arrays, &indices).map_err(|error| Error::internal("changes cannot be merged").with_source(error))
    }
}

fn set_at(batches: &[RecordBatch], place: RowPlace) -> Option<&[u8]> {
    let said = ChangeColumns::of(batches.get(place.batch as usize)?).ok()?;
    Some(said.set(place.row as usize))
}

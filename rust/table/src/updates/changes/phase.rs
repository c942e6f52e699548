//! Updates that are made while a migration compacts older changes of their rows.
//!
//! ```text
//! buffered  row 5: (a 1, b 1)     ─ migration 7 compacts it ─▶  in a data file
//! then      row 5: a = 2          ─ flushed meanwhile       ─▶  a run with two sets for it
//!                                      while migration 7 is under way: the whole row (a 2, b 1)
//!                                      once it is done:                a = 2, over whatever the data files have
//! ```
//!
//! A run has what older buffered changes and its own come to together, so that nobody needs the older ones to read it. Changes that a
//! migration compacts are not buffered any more once it is done. Others may then change or delete their rows, or restore the table to
//! before the migration. What the run took from these changes must not outlive them, and its own updates must not be lost. So a run that is
//! written meanwhile has two sets for such a row. Operation and first set count for as long as the migration is under way. The set behind
//! the first one counts afterwards, when the row is an update of just these columns. If the migration is abandoned, what it would have
//! compacted stays buffered, and the first set counts for good.

use arrow::array::{Array, ArrayRef, BinaryArray, Int8Array, RecordBatch};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use lakemark_format::{ManifestRun, ManifestUpdates, Operation};
use lakemark_index::RowSet;

use super::rows::{ChangeColumns, OPERATION, SET, batch, table_columns};
use crate::error::{Error, Result};

/// Whether the migration during which a run was written is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MigrationPhase {
    /// The migration is under way, or was abandoned; or there was none.
    UnderWay,
    /// What the migration compacted is in the data files.
    Done,
}

impl MigrationPhase {
    /// The phase of a run; `migration_done` says whether the migration that the manifest names is done.
    pub(crate) fn of(run: &ManifestRun, updates: &ManifestUpdates, migration_done: bool) -> Self {
        let is_under_way =
            !migration_done && updates.migration.as_ref().is_some_and(|migration| migration.number == run.during);
        if run.during == 0 || is_under_way { Self::UnderWay } else { Self::Done }
    }
}

/// What rows come to while a migration is under way, with what they come to once it is done behind their sets. None if that is the same for
/// all of them. Both have the same keys in the same order.
pub(crate) fn with_both(under_way: &RecordBatch, done: &RecordBatch) -> Result<Option<RecordBatch>> {
    if under_way.num_rows() != done.num_rows() {
        return Err(Error::internal("the rows of a run have two meanings of different keys"));
    }
    let (now, then) = (ChangeColumns::of(under_way)?, ChangeColumns::of(done)?);
    let width = table_columns(&under_way.schema()).div_ceil(8);
    let (mut rows, mut sets) = (Vec::with_capacity(done.num_rows()), Vec::with_capacity(done.num_rows()));
    let mut operations = Vec::with_capacity(done.num_rows());
    let mut is_same = true;
    for row in 0..done.num_rows() {
        let (operation, after) = (now.operation(row)?, then.operation(row)?);
        operations.push(operation.code().cast_signed());
        if operation == after && now.set(row) == then.set(row) {
            rows.push((0, row));
            sets.push((operation == Operation::Update).then(|| now.set(row).to_vec()));
            continue;
        }
        if after != Operation::Update {
            return Err(Error::internal("a migration changes what an operation is that is no update"));
        }
        is_same = false;
        // A delete that is compacted leaves nothing of the update behind it: the row is the one of afterwards.
        rows.push((usize::from(operation == Operation::Delete), row));
        let mut both = now.set(row).to_vec();
        both.resize(width, 0);
        both.extend_from_slice(then.set(row));
        both.resize(2 * width, 0);
        sets.push(Some(both));
    }
    if is_same {
        return Ok(None);
    }
    let chosen = interleave_record_batch(&[under_way, done], &rows)
        .map_err(|error| Error::internal("the two meanings of rows cannot be put together").with_source(error))?;
    with_columns(&under_way.schema(), &chosen, operations.into(), sets.iter().map(Option::as_deref).collect()).map(Some)
}

/// The rows of a run with so many columns that have two sets.
pub(crate) fn with_two_sets(sets: &BinaryArray, columns: usize) -> RowSet {
    let has_both = |(set, row): (Option<&[u8]>, u32)| set.filter(|set| is_two(set, columns)).map(|_| row);
    let universe = u32::try_from(sets.len()).unwrap_or(u32::MAX);
    RowSet::from_rows(sets.iter().zip(0..).filter_map(has_both).collect(), universe)
}

fn is_two(set: &[u8], columns: usize) -> bool {
    set.len() == 2 * columns.div_ceil(8)
}

/// Rows of a run with so many columns, as they are in a phase.
pub(crate) fn in_phase(rows: RecordBatch, columns: usize, phase: MigrationPhase) -> Result<RecordBatch> {
    let Ok(said) = ChangeColumns::of(&rows) else { return Ok(rows) };
    let has_both = |row: usize| is_two(said.set(row), columns);
    if !(0..rows.num_rows()).any(has_both) {
        return Ok(rows);
    }
    let width = columns.div_ceil(8);
    let (mut operations, mut sets) = (Vec::with_capacity(rows.num_rows()), Vec::with_capacity(rows.num_rows()));
    for row in 0..rows.num_rows() {
        let (operation, set) = (said.operation(row)?, said.set(row));
        let (operation, set) = match (has_both(row), phase) {
            (false, _) => (operation, set),
            (true, MigrationPhase::UnderWay) => (operation, set.get(..width).unwrap_or_default()),
            (true, MigrationPhase::Done) => (Operation::Update, set.get(width..).unwrap_or_default()),
        };
        operations.push(operation.code().cast_signed());
        sets.push((operation == Operation::Update).then_some(set));
    }
    with_columns(&rows.schema(), &rows, operations.into(), sets.into())
}

fn with_columns(
    schema: &SchemaRef,
    rows: &RecordBatch,
    operations: Int8Array,
    sets: BinaryArray,
) -> Result<RecordBatch> {
    let mut columns = rows.columns().to_vec();
    for (name, column) in [(OPERATION, std::sync::Arc::new(operations) as ArrayRef), (SET, std::sync::Arc::new(sets))] {
        if let Some((at, _)) = schema.fields().find(name)
            && let Some(slot) = columns.get_mut(at)
        {
            *slot = column;
        }
    }
    batch(schema, columns, rows.num_rows())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int32Array;
    use arrow::compute::concat_batches;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::super::rows::{change_schema, changes, has};
    use super::*;

    /// A change that gives these columns of a table of so many the value.
    fn change(columns: usize, operation: Operation, named: &[usize], value: i32) -> RecordBatch {
        let field = |place: usize| Field::new(format!("c{place}"), DataType::Int32, true);
        let schema = change_schema(&Schema::new((0..columns).map(field).collect::<Vec<_>>()));
        let given = Arc::new(Schema::new(named.iter().map(|place| field(*place)).collect::<Vec<_>>()));
        let values = named.iter().map(|_| Arc::new(Int32Array::from(vec![value])) as ArrayRef).collect();
        changes(&schema, operation, 7, &batch(&given, values, 1).unwrap()).unwrap()
    }

    fn together(rows: &[RecordBatch]) -> RecordBatch {
        concat_batches(&rows[0].schema(), rows).unwrap()
    }

    #[test]
    fn rows_have_both_meanings_wherever_the_columns_of_a_byte_end() {
        for columns in [1, 7, 8, 9, 16, 17] {
            let (all, last): (Vec<usize>, _) = ((0..columns).collect(), columns - 1);
            let under_way = together(&[
                change(columns, Operation::Upsert, &all, 1),
                change(columns, Operation::Delete, &[0], 2),
                change(columns, Operation::Update, &all, 3),
                change(columns, Operation::Update, &[last], 4),
                change(columns, Operation::Upsert, &all, 5),
            ]);
            let done = together(&[
                change(columns, Operation::Update, &[last], 1),
                change(columns, Operation::Update, &[0, last][usize::from(last == 0)..], 2),
                change(columns, Operation::Update, &[last], 3),
                change(columns, Operation::Update, &[last], 4),
                change(columns, Operation::Upsert, &all, 5),
            ]);
            let both = with_both(&under_way, &done).unwrap().unwrap();
            for (phase, meant) in [(MigrationPhase::UnderWay, &under_way), (MigrationPhase::Done, &done)] {
                let read = in_phase(both.clone(), columns, phase).unwrap();
                let (said, wanted) = (ChangeColumns::of(&read).unwrap(), ChangeColumns::of(meant).unwrap());
                for row in 0..5 {
                    let operation = wanted.operation(row).unwrap();
                    assert_eq!(said.operation(row).unwrap(), operation, "{phase:?}, row {row} of {columns} columns");
                    assert_eq!(said.set(row), wanted.set(row), "{phase:?}, row {row} of {columns} columns");
                    let counts = |place: &usize| match operation {
                        Operation::Update => has(wanted.set(row), *place),
                        Operation::Delete => *place == 0,
                        Operation::Insert | Operation::Upsert => true,
                    };
                    for place in (0..columns).filter(counts) {
                        let (have, want) = (read.column(place).slice(row, 1), meant.column(place).slice(row, 1));
                        assert_eq!(&have, &want, "{phase:?}, column {place} of row {row}");
                    }
                }
            }
            let sets = both.column_by_name(SET).unwrap();
            let sets = with_two_sets(arrow::array::AsArray::as_binary::<i32>(sets.as_ref()), columns);
            let twice: &[u32] = if columns == 1 { &[0, 1] } else { &[0, 1, 2] };
            assert_eq!(sets.iter().collect::<Vec<_>>(), twice, "of {columns} columns");
            assert!(with_both(&done, &done).unwrap().is_none());
        }
    }
}

//! The columns of a run, as its rows were written: where a reader has others, the rows are read for the reader's.

use std::sync::Arc;

use arrow::array::{AsArray, BinaryArray, RecordBatch};
use arrow::datatypes::Schema;

use super::phase::{MigrationPhase, in_phase};
use super::rows::{SET, batch, has, table_columns};
use crate::error::Result;
use crate::files::column_mapping::OURS;

/// The columns of a run, in the order in which the run's own sets number them.
///
/// A table's columns move when a column is added in front or dropped. A set means columns, so that it is numbered anew when it is read.
#[derive(Debug)]
pub(crate) struct OwnColumns {
    names: Vec<String>,
    /// The phase that its rows are read in; without one they are read as they were written.
    phase: Option<MigrationPhase>,
}

impl OwnColumns {
    /// The columns of a run with this schema, whose rows are read in a phase, or as they were written.
    pub(crate) fn of(run: &Schema, phase: Option<MigrationPhase>) -> Self {
        let names = run.fields().iter().map(|field| field.name()).filter(|name| !name.starts_with(OURS));
        Self { names: names.cloned().collect(), phase }
    }

    /// Rows of the run whose sets are numbered by the columns of their schema. Columns that it lacks are left out of the sets.
    pub(crate) fn renumbered(&self, rows: RecordBatch) -> Result<RecordBatch> {
        let schema = rows.schema();
        let Some((at, _)) = schema.fields().find(SET) else { return Ok(rows) };
        let rows = match self.phase {
            Some(phase) => in_phase(rows, self.names.len(), phase)?,
            None => return Ok(rows),
        };
        let places: Vec<Option<usize>> =
            self.names.iter().map(|name| schema.fields().find(name).map(|(place, _)| place)).collect();
        if places.iter().enumerate().all(|(own, place)| *place == Some(own)) {
            return Ok(rows);
        }
        let Some(sets) = rows.column(at).as_binary_opt::<i32>() else { return Ok(rows) };
        let width = table_columns(&schema).div_ceil(8);
        let renumbered = |set: &[u8]| {
            let mut now = vec![0u8; width];
            let named = places.iter().enumerate().filter(|(own, _)| has(set, *own)).filter_map(|(_, place)| *place);
            named.for_each(|place| now.get_mut(place / 8).into_iter().for_each(|byte| *byte |= 1 << (place % 8)));
            now
        };
        let sets: BinaryArray = sets.iter().map(|set| set.map(renumbered)).collect();
        let mut columns = rows.columns().to_vec();
        if let Some(slot) = columns.get_mut(at) {
            *slot = Arc::new(sets);
        }
        batch(&schema, columns, rows.num_rows())
    }
}

//! Rows that no data file is read for: an index has their values, as it includes the columns.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::ExecutionPlan;

/// What the rows of a scan have to pass, for rows that are given without being read.
#[derive(Debug, Clone)]
pub(crate) struct ScanFilter {
    /// Over the table's columns; none if all rows pass.
    pub(crate) predicate: Option<Arc<dyn PhysicalExpr>>,
    /// The table's columns.
    pub(crate) schema: SchemaRef,
}

impl ScanFilter {
    /// The columns that it looks at; none if one of them is not the table's.
    pub(crate) fn columns(&self) -> Option<Vec<FieldRef>> {
        let looked_at = self.predicate.iter().flat_map(collect_columns);
        looked_at.map(|column| self.schema.fields().find(column.name()).map(|(_, field)| Arc::clone(field))).collect()
    }

    /// Columns that are wanted, and behind them the others that it looks at; none if it looks at one that is not the table's.
    pub(crate) fn beside(&self, wanted: &SchemaRef) -> Option<Vec<FieldRef>> {
        let mut all: Vec<FieldRef> = wanted.fields().iter().cloned().collect();
        for field in self.columns()? {
            if !all.iter().any(|own| own.name() == field.name()) {
                all.push(field);
            }
        }
        Some(all)
    }

    /// Which of the rows pass, whose columns have the names of the table's; none if all do.
    pub(crate) fn passing(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>> {
        let Some(predicate) = &self.predicate else { return Ok(None) };
        let predicate = reassign_expr_columns(Arc::clone(predicate), &rows.schema())?;
        let passing = predicate.evaluate(rows)?.into_array(rows.num_rows())?;
        Ok(Some(as_boolean_array(&passing)?.clone()))
    }
}

/// Rows of data files with their values.
#[derive(Debug, Clone)]
pub(crate) struct CoveredRows {
    /// What gives the rows.
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    rows: RecordBatch,
    /// The place in the snapshot of the file of each row.
    files: Arc<[usize]>,
    /// So many of the first rows are exact for the probe of the scan. The others passed the filter by their values alone.
    exact: usize,
    /// Rows of a batch.
    batch_rows: usize,
}

impl CoveredRows {
    /// Exact rows of files at these places, given in batches of so many.
    pub(crate) fn try_new(rows: RecordBatch, files: Arc<[usize]>, batch_rows: usize) -> Result<Self> {
        let batch_rows = batch_rows.max(1);
        let starts = (0..rows.num_rows()).step_by(batch_rows);
        let batches = starts.map(|start| rows.slice(start, batch_rows.min(rows.num_rows() - start))).collect();
        let plan = MemorySourceConfig::try_new_exec(&[batches], rows.schema(), None)?;
        let exact = files.len();
        Ok(Self { plan, rows, files, exact, batch_rows })
    }

    /// The same rows, of which so many of the first are exact. What answers for the exact rows of a file does not know the others.
    pub(crate) fn with_exact(self, exact: usize) -> Self {
        Self { exact, ..self }
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> u64 {
        self.files.len() as u64
    }

    /// The rows that are answered by nothing else; none if there are none. Of each row it is asked by the place of its file, and by whether
    /// it is exact.
    pub(crate) fn without(&self, is_answered: impl Fn(usize, bool) -> bool) -> Result<Option<Self>> {
        let places = self.files.iter().enumerate();
        let left: Vec<bool> = places.map(|(row, file)| !is_answered(*file, row < self.exact)).collect();
        if !left.contains(&true) {
            return Ok(None);
        }
        let exact = left.iter().take(self.exact).filter(|is_left| **is_left).count();
        let files = self.files.iter().zip(&left).filter(|(_, is_left)| **is_left).map(|(file, _)| *file).collect();
        let rows = filter_record_batch(&self.rows, &BooleanArray::from(left))?;
        Ok(Some(Self::try_new(rows, files, self.batch_rows)?.with_exact(exact)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn exact_rows_of_answered_files_are_left_out_and_tested_ones_stay() {
        let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]));
        let rows = RecordBatch::try_from_iter([("n", values)]).unwrap();
        let rows = CoveredRows::try_new(rows, Arc::from([0, 1, 0, 1, 0]), 2).unwrap();
        let numbers = |rows: &CoveredRows| rows.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        let all = rows.without(|file, _| file == 0).unwrap().unwrap();
        assert_eq!((all.count(), all.exact), (2, 2));
        let tested = rows.with_exact(2);
        let left = tested.without(|file, is_exact| file == 0 && is_exact).unwrap().unwrap();
        assert_eq!((numbers(&left), left.exact, left.files.as_ref()), (vec![2, 3, 4, 5], 1, [1, 0, 1, 0].as_slice()));
        assert!(tested.without(|_, _| true).unwrap().is_none());
    }
}

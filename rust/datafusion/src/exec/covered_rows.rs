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
    /// Rows of a batch.
    batch_rows: usize,
}

impl CoveredRows {
    /// Rows of files at these places, given in batches of so many.
    pub(crate) fn try_new(rows: RecordBatch, files: Arc<[usize]>, batch_rows: usize) -> Result<Self> {
        let batch_rows = batch_rows.max(1);
        let starts = (0..rows.num_rows()).step_by(batch_rows);
        let batches = starts.map(|start| rows.slice(start, batch_rows.min(rows.num_rows() - start))).collect();
        let plan = MemorySourceConfig::try_new_exec(&[batches], rows.schema(), None)?;
        Ok(Self { plan, rows, files, batch_rows })
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> u64 {
        self.files.len() as u64
    }

    /// The rows of the other files; none if there are none.
    pub(crate) fn without(&self, is_answered: impl Fn(usize) -> bool) -> Result<Option<Self>> {
        let left: Vec<bool> = self.files.iter().map(|file| !is_answered(*file)).collect();
        if !left.contains(&true) {
            return Ok(None);
        }
        let files = self.files.iter().copied().filter(|file| !is_answered(*file)).collect();
        let rows = filter_record_batch(&self.rows, &BooleanArray::from(left))?;
        Self::try_new(rows, files, self.batch_rows).map(Some)
    }
}

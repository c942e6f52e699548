//! Results: rows that are still to be computed, and rows in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use lakemark_datafusion::{ReadyQuery, from_engine, rows_of};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::runtime::{forked_from, runtime, wait};
use crate::schema::Schema;
use crate::{error, stream};

/// Columns with their types, cells as text, and whether there are more rows.
type Preview = (Vec<(String, String)>, Vec<Vec<String>>, bool);

/// A query; every reader computes it anew.
#[pyclass(frozen, module = "lakemark._internal")]
pub(crate) struct Rows {
    query: ReadyQuery,
    process: u32,
}

impl Rows {
    pub(crate) fn new(query: impl Into<ReadyQuery>) -> Self {
        Self { query: query.into(), process: std::process::id() }
    }

    fn arrow_schema(&self) -> SchemaRef {
        Arc::new(self.query.schema().as_arrow().clone())
    }
}

impl Drop for Rows {
    /// A forked child keeps the query. With its last copy its statement leaves those in flight, and another thread of the parent may have
    /// had their lock when it was forked.
    fn drop(&mut self) {
        if forked_from(self.process).is_some() {
            std::mem::forget(self.query.clone());
        }
    }
}

#[pymethods]
impl Rows {
    fn schema(&self) -> Schema {
        Schema(self.arrow_schema())
    }

    fn collect(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let query = self.query.clone();
        let batches = wait(py, move || async move {
            let rows = query.rows().await.map_err(from_engine)?;
            rows.try_collect().await.map_err(from_engine)
        })?;
        Ok(ArrowTable { schema: self.arrow_schema(), batches })
    }

    fn preview(&self, py: Python<'_>, rows: usize) -> PyResult<Preview> {
        let query = self.query.clone();
        let batches: Vec<RecordBatch> = wait(py, move || async move {
            let first = query.into_frame().limit(0, Some(rows.saturating_add(1))).map_err(from_engine)?;
            let rows = rows_of(&first).await.map_err(from_engine)?;
            rows.try_collect().await.map_err(from_engine)
        })?;
        preview(py, &self.arrow_schema(), &batches, rows)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let running = stream::RunningQuery::start(runtime(py)?, self.query.clone());
        stream::capsule(py, &self.arrow_schema(), running, requested_schema)
    }
}

fn preview(py: Python<'_>, schema: &SchemaRef, batches: &[RecordBatch], rows: usize) -> PyResult<Preview> {
    let columns = schema.fields().iter().map(|f| (f.name().clone(), f.data_type().to_string())).collect();
    let mut cells = cells(batches).map_err(|cause| error::internal(py, cause.to_string()))?;
    let more = cells.len() > rows;
    cells.truncate(rows);
    Ok((columns, cells, more))
}

fn cells(batches: &[RecordBatch]) -> Result<Vec<Vec<String>>, arrow::error::ArrowError> {
    let options = FormatOptions::default().with_null("NULL").with_display_error(true);
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options)).collect::<Result<Vec<_>, _>>()?;
        rows.extend((0..batch.num_rows()).map(|row| columns.iter().map(|c| c.value(row).to_string()).collect()));
    }
    Ok(rows)
}

/// Rows in memory; readers share them.
#[pyclass(frozen, skip_from_py_object, module = "lakemark._internal")]
#[derive(Clone)]
pub(crate) struct ArrowTable {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl ArrowTable {
    pub(crate) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

#[pymethods]
impl ArrowTable {
    fn schema(&self) -> Schema {
        Schema(Arc::clone(&self.schema))
    }

    fn collect(&self) -> Self {
        self.clone()
    }

    fn preview(&self, py: Python<'_>, rows: usize) -> PyResult<Preview> {
        preview(py, &self.schema, &self.batches, rows)
    }

    fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        stream::capsule(py, &self.schema, self.batches.clone().into_iter().map(Ok), requested_schema)
    }
}

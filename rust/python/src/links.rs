//! `_internal.Links`: walks over the links of a table.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use lakemark_table::{Error, LinkDirection, LinkMemoryLimit, Links as TableLinks, WalkOptions, machine_memory};
use pyo3::prelude::*;
use pyo3_arrow::PyArray;

use crate::rows::ArrowTable;
use crate::runtime::wait;

/// Of this part of the machine's memory a walk may take, and links that no index has as much again.
const MEMORY_SHARE: u64 = 4;
/// The memory of a machine that does not say how much it has.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// Which links are followed, and how far.
#[derive(FromPyObject)]
pub(crate) struct WalkArguments {
    #[pyo3(item)]
    via: Option<PyArray>,
    #[pyo3(item)]
    direction: String,
    #[pyo3(item)]
    min_depth: u32,
    #[pyo3(item)]
    max_depth: Option<u32>,
    #[pyo3(item)]
    limit: Option<usize>,
}

impl WalkArguments {
    fn options(self) -> Result<WalkOptions, Error> {
        let Self { via, direction, min_depth, max_depth, limit } = self;
        let (via, direction) = (via.map(array_of), LinkDirection::from_name(&direction)?);
        Ok(WalkOptions { via, direction, min_depth, max_depth, limit })
    }
}

fn array_of(array: PyArray) -> ArrayRef {
    array.into_inner().0
}

/// The links of a table, in its newest state whenever they are asked for.
#[pyclass(frozen, module = "lakemark._internal")]
pub(crate) struct Links {
    table: Arc<lakemark_table::Table>,
    columns: Vec<String>,
    memory: Option<u64>,
}

impl Links {
    pub(crate) fn new(table: Arc<lakemark_table::Table>, columns: Vec<String>, memory: Option<u64>) -> Self {
        Self { table, columns, memory }
    }

    fn limit(&self) -> u64 {
        self.memory.unwrap_or_else(|| machine_memory().unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE)
    }

    fn walk<F, W>(&self, py: Python<'_>, given: WalkArguments, walk: F) -> PyResult<ArrowTable>
    where
        F: FnOnce(Arc<TableLinks>, WalkOptions, LinkMemoryLimit) -> W + Send + 'static,
        W: Future<Output = Result<RecordBatch, Error>> + Send + 'static,
    {
        let (table, columns, limit) = (Arc::clone(&self.table), self.columns.clone(), self.limit());
        let rows = wait(py, move || async move {
            let options = given.options()?;
            let links = TableLinks::of(table.snapshot().await?, &columns, limit).await?;
            walk(links, options, LinkMemoryLimit::new(limit)).await
        })?;
        Ok(ArrowTable::new(rows.schema(), vec![rows]))
    }
}

#[pymethods]
impl Links {
    fn neighbours(&self, py: Python<'_>, nodes: PyArray, given: WalkArguments) -> PyResult<ArrowTable> {
        let nodes = array_of(nodes);
        self.walk(py, given, |links, options, memory| async move { links.neighbours(&nodes, &options, &memory).await })
    }

    fn degrees(&self, py: Python<'_>, nodes: PyArray, given: WalkArguments) -> PyResult<ArrowTable> {
        let nodes = array_of(nodes);
        self.walk(py, given, |links, options, memory| async move { links.degrees(&nodes, &options, &memory).await })
    }

    fn common(&self, py: Python<'_>, nodes: PyArray, given: WalkArguments) -> PyResult<ArrowTable> {
        let nodes = array_of(nodes);
        self.walk(py, given, |links, options, memory| async move { links.common(&nodes, &options, &memory).await })
    }

    fn reach(&self, py: Python<'_>, starts: PyArray, given: WalkArguments) -> PyResult<ArrowTable> {
        let starts = array_of(starts);
        self.walk(py, given, |links, options, memory| async move { links.reach(&starts, &options, &memory).await })
    }

    fn path(&self, py: Python<'_>, start: PyArray, end: PyArray, given: WalkArguments) -> PyResult<ArrowTable> {
        let (start, end) = (array_of(start), array_of(end));
        self.walk(py, given, |links, options, memory| async move { links.path(&start, &end, &options, &memory).await })
    }
}

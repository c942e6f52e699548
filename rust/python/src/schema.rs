//! A schema as Python sees it.

use arrow::datatypes::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::ffi::to_schema_pycapsule;

/// Columns of a table or of rows.
#[pyclass(frozen, module = "lakemark._internal")]
pub(crate) struct Schema(pub(crate) SchemaRef);

#[pymethods]
impl Schema {
    fn fields(&self) -> Vec<(String, String, bool)> {
        let columns = self.0.fields().iter();
        columns.map(|field| (field.name().clone(), field.data_type().to_string(), field.is_nullable())).collect()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        Ok(to_schema_pycapsule(py, self.0.as_ref())?)
    }
}

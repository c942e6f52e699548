#![doc = include_str!("../README.md")]

mod changes;
mod error;
mod links;
mod progress;
mod provider;
mod rows;
mod runtime;
mod schema;
mod session;
mod stream;
mod table;
mod warning;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the shell command with its arguments and returns the exit code.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<OsString>) -> i32 {
    py.detach(|| lakemark_cli::run(argv))
}

/// The release.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The report of a build, whose values are JSON: what `Table.build` gives.
#[pyfunction]
fn describe_build(py: Python<'_>, report: &str) -> PyResult<table::Described> {
    let report: lakemark_table::BuildReport =
        serde_json::from_str(report).map_err(|cause| error::internal(py, cause.to_string()))?;
    table::described(py, &report)
}

#[pymodule]
fn _internal(module: &Bound<'_, PyModule>) -> PyResult<()> {
    lakemark_allocator::configure();
    module.add_class::<links::Links>()?;
    module.add_class::<rows::ArrowTable>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<schema::Schema>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<table::Table>()?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    module.add_function(wrap_pyfunction!(describe_build, module)?)?;
    module.add_function(wrap_pyfunction!(version, module)?)
}

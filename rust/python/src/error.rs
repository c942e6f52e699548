//! Errors on their way to Python: one exception class per [`ErrorKind`].

use lakemark_table::{Error, ErrorKind};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyType;
use tokio::task::JoinError;

const MODULE: &str = "lakemark.exceptions";

fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidInput => "InvalidInputError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::AlreadyExists => "AlreadyExistsError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::SchemaMismatch => "SchemaMismatchError",
        ErrorKind::ConstraintViolation => "ConstraintViolationError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::CacheFull => "CacheFullError",
        ErrorKind::SnapshotExpired => "SnapshotExpiredError",
        ErrorKind::StoreMismatch => "StoreMismatchError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Io => "LakemarkIOError",
        ErrorKind::Cancelled => "CancelledError",
        ErrorKind::Internal => "InternalError",
    }
}

/// One of the package's exception classes. They are written in Python because several of them have two bases.
pub(crate) fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    py.import(MODULE)?
        .getattr(name)?
        .cast_into::<PyType>()
        .map_err(|_| PyImportError::new_err(format!("{MODULE}.{name} is not a class")))
}

fn exception(py: Python<'_>, kind: ErrorKind, message: String) -> PyErr {
    match class(py, class_name(kind)) {
        Ok(class) => PyErr::from_type(class, message),
        Err(error) => error,
    }
}

/// The exception for an error.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error.kind(), error.to_string())
}

/// The exception for a task that did not come back: it panicked.
pub(crate) fn lost_task(py: Python<'_>, error: JoinError) -> PyErr {
    exception(py, ErrorKind::Internal, lost_task_message(error))
}

/// An exception of kind `Internal`.
pub(crate) fn internal(py: Python<'_>, message: impl Into<String>) -> PyErr {
    exception(py, ErrorKind::Internal, message.into())
}

/// What happened to a task that did not come back.
pub(crate) fn lost_task_message(error: JoinError) -> String {
    let panic = match error.try_into_panic() {
        Ok(panic) => panic,
        Err(error) => return format!("a background task did not finish: {error}"),
    };
    let text = panic
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    format!("lakemark panicked ({text}); this is a defect, please report it")
}

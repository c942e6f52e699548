//! Where something stands in a file.

use std::fmt;
use std::sync::Arc;

use lakemark_table::{Error, ErrorKind};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: Arc<str>,
    line: usize,
}

impl Place {
    pub(crate) fn new(file: &Arc<str>, line: usize) -> Self {
        Self { file: Arc::clone(file), line }
    }

    /// An error about what stands there.
    #[must_use]
    pub fn wrong(&self, message: impl fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("{self}: {message}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

//! The formats of tables, by the names that reports have for them.

use std::fmt;

use serde::{Serialize, Serializer};

/// How the list of data files is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TableFormat {
    /// A listing of Parquet files.
    #[default]
    Parquet,
    /// The log of a Delta table.
    Delta,
}

/// A format is written as its name.
impl Serialize for TableFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl fmt::Display for TableFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TableFormat {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Delta => "delta",
        }
    }
}

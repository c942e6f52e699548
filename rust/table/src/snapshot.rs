//! A pinned state of a table.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use lakemark_index::{Predicate, RowSet};
use object_store::{ObjectMeta, ObjectStore};
use url::Url;

use crate::error::{Error, Result};
use crate::options::ProbeOptions;
use crate::report::{IndexInfo, ProbeReport};

/// One data file of a snapshot.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Place within [`Snapshot::object_store`], size and time.
    pub meta: ObjectMeta,
    /// Path below the table's root, `/`-separated.
    pub path: String,
    /// One value (an array of length 1) per partition column.
    pub partition_values: Vec<ArrayRef>,
    /// Rows that a deletion vector hides.
    pub deleted: Option<Arc<RowSet>>,
    /// Rows per row group, where the manifest knows them.
    pub row_groups: Option<Vec<u32>>,
}

/// What a probe says of every file of the snapshot, in the order of [`Snapshot::files`].
#[derive(Clone, Debug)]
pub struct Probe {
    /// One entry per file.
    pub files: Vec<FileProbe>,
    /// How it came about and what it cost.
    pub report: ProbeReport,
}

/// What a probe says of one file.
#[derive(Clone, Debug, PartialEq)]
pub enum FileProbe {
    /// Nothing: scan the file with the predicate (and take out the rows of [`DataFile::deleted`]).
    Unknown,
    /// Which rows count; deleted rows are taken out already.
    Known {
        /// Rows per row group.
        row_groups: Vec<u32>,
        /// Rows for which the predicate is true.
        certain: RowSet,
        /// Rows for which it must be evaluated; none of them is certain.
        uncertain: RowSet,
    },
    /// Only how many rows count, for [`ProbeOptions::count_only`].
    Counted {
        /// Rows for which the predicate is true.
        rows: u64,
    },
}

/// A pinned state of a table: the list of data files, and the marks that were there.
#[derive(Debug)]
pub struct Snapshot {
    schema: SchemaRef,
    file_schema: SchemaRef,
    partition_columns: Vec<Field>,
    files: Vec<DataFile>,
    store: Arc<dyn ObjectStore>,
    root: Url,
}

impl Snapshot {
    /// Data columns, then partition columns; for Delta the table's own schema.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Columns that are stored in the files.
    #[must_use]
    pub fn file_schema(&self) -> SchemaRef {
        Arc::clone(&self.file_schema)
    }

    /// Columns whose values are constant per file.
    #[must_use]
    pub fn partition_columns(&self) -> &[Field] {
        &self.partition_columns
    }

    /// The data files.
    #[must_use]
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// The store that holds the data files.
    #[must_use]
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    /// The URL of the table's root folder.
    #[must_use]
    pub fn root_url(&self) -> &Url {
        &self.root
    }

    /// The version of the Delta table, if it is one.
    #[must_use]
    pub fn delta_version(&self) -> Option<u64> {
        None
    }

    /// The number of the manifest, if there is one.
    #[must_use]
    pub fn manifest_number(&self) -> Option<u64> {
        None
    }

    /// The indexes and how much of this snapshot they cover.
    #[must_use]
    pub fn indexes(&self) -> Vec<IndexInfo> {
        Vec::new()
    }

    /// Finds the rows for which `predicate` is or may be true.
    pub async fn probe(&self, _predicate: &Predicate, _options: &ProbeOptions) -> Result<Probe> {
        Err(Error::internal("probing is being written"))
    }
}

//! What two scans may share: a row group of a data file, as it is read.
//!
//! ```text
//! UnitReading   memory, rights, runtime, store, columns and settings     one for all files of a scan
//! UnitFile      the state of a data file under its name                  one for all row groups of a file
//! UnitKey       the number of a row group
//! ```
//!
//! Version, deletion vector, sequence number and predicate are no part of it: they say which rows a query takes, and never what a row is.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::config::TableParquetOptions;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use tokio::runtime::Handle;

use crate::share::key::Principal;

/// How the files of a scan are read.
pub(crate) struct UnitReading {
    /// The memory and the disk of the session.
    pub(crate) runtime: Arc<RuntimeEnv>,
    /// Who the session acts for.
    pub(crate) principal: Option<Arc<Principal>>,
    /// The runtime that the reads of a pass run on, whoever polls it and wherever. All consumers began on it.
    pub(crate) driver: Handle,
    /// The store of the table's handle, which has the credentials.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The columns of files, as the table has them.
    pub(crate) columns: SchemaRef,
    pub(crate) options: TableParquetOptions,
    /// Rows of a batch.
    pub(crate) batch_rows: usize,
}

/// The state of a data file that scans read.
pub(crate) struct UnitFile {
    pub(crate) reading: Arc<UnitReading>,
    /// Its name, with all that changes what its footer says: the table's root, its tag, and the names that columns have in files.
    name: Path,
    pub(crate) meta: ObjectMeta,
    /// Of the name, which is long and looked up for each of many row groups.
    hash: u64,
}

impl UnitFile {
    /// A file of these, under a name as above.
    pub(crate) fn new(reading: Arc<UnitReading>, name: Path, meta: ObjectMeta) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { reading, name, meta, hash: hasher.finish() }
    }
}

/// A row group of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnitKey {
    pub(crate) file: Arc<UnitFile>,
    pub(crate) row_group: usize,
}

impl PartialEq for UnitReading {
    fn eq(&self, other: &Self) -> bool {
        // One that is not even equal to itself, by its settings, would lose its rows.
        std::ptr::eq(self, other)
            || Arc::ptr_eq(&self.runtime, &other.runtime)
                && self.principal == other.principal
                && self.driver.id() == other.driver.id()
                && Arc::ptr_eq(&self.store, &other.store)
                && self.columns == other.columns
                && self.options == other.options
                && self.batch_rows == other.batch_rows
    }
}

impl Eq for UnitReading {}

impl PartialEq for UnitFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || self.hash == other.hash
                && self.name == other.name
                && self.meta == other.meta
                && self.reading == other.reading
    }
}

impl Eq for UnitFile {}

impl Hash for UnitFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl fmt::Debug for UnitFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

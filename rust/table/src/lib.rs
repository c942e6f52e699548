//! Tables, stores, snapshots and builds of Lakemark.
//!
//! A [`Table`] is a set of immutable Parquet files (a folder, a glob, one file or a Delta table) with a *store* of marks
//! beside it. A [`Snapshot`] pins the files and the marks; [`Snapshot::probe`] turns a predicate into the rows of each file
//! that are certainly or possibly chosen. Nothing here evaluates an expression or names an engine.

pub mod error;
pub mod options;
pub mod report;
pub mod snapshot;
pub mod table;

pub use error::{Error, ErrorKind, Result};
pub use lakemark_index::{Predicate, Reason, RowSet};
pub use options::{BuildOptions, CancelFlag, IndexSpec, ProbeOptions, Progress, TableOptions};
pub use report::{BuildReport, Finding, IndexInfo, IndexVerdict, LeafReport, ProbeReport, VerifyReport};
pub use snapshot::{DataFile, FileProbe, Probe, Snapshot};
pub use table::{Table, TableFormat};

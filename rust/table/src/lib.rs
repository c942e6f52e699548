//! Tables, stores, snapshots and builds of Lakemark.
//!
//! A [`Table`] is a set of immutable Parquet files (a folder, a glob, one file or a Delta table) with a *store* of marks
//! beside it. A [`Snapshot`] pins the files and the marks; [`Snapshot::probe`] turns a predicate into the rows of each file
//! that are certainly or possibly chosen. Nothing here evaluates an expression or names an engine.
//!
//! - `location` and `listing`: what a path means, which files it has; `delta`: the same from a Delta log
//! - `store` and `transaction`: numbered manifests, put-if-absent commits, edits that rebase; `disk`: steps of the local file system
//! - `snapshot`: files matched with marks; `probe` and `segments`: predicate to rows
//! - `pin`: from a table to a snapshot, the newest or an older one; which versions there are
//! - `conform`: values in the types of another schema, fields of structs by name; `exact`: the same without losing a digit
//! - `names`: columns that are stored under other names than they show; `moments`: one meaning of 96-bit timestamps, and dates of another calendar
//! - `trust`: footers as readers take them; `local`: files of this machine, and what is none
//! - `file_time`: when a file was written, and whether it may still be; `identity`: whether it is still the one that was indexed
//! - `recorded`: what was predicted of an index; `temp_file`: files until they are whole
//! - `damage`: bytes that the Parquet reader cannot read
//! - `again`: what was listed and is gone is listed again
//! - `advise`: samples of columns, the encoding that `auto` takes, which marks to build
//! - `updates`: changes that are not in the data files yet, laid over every snapshot
//! - `rewrite`: new rows folded into the data files of a table
//! - `build` and `verify`: data to marks, and marks against data; `vacuum`: what nobody needs any more
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod advise;
mod again;
mod bounds;
mod build;
mod cache;
mod columns;
mod compact;
mod conform;
mod damage;
mod declare;
mod delta;
mod disk;
pub mod error;
mod exact;
mod failpoint;
mod fields;
mod file_time;
mod footer;
mod identity;
mod kind;
mod listing;
mod local;
mod location;
mod locks;
mod moments;
mod names;
mod object;
pub mod options;
mod pin;
mod probe;
mod put;
mod recorded;
pub mod report;
mod rewrite;
mod schema;
mod segments;
pub mod snapshot;
mod store;
pub mod table;
mod temp_file;
mod transaction;
mod trust;
mod updates;
mod vacuum;
mod verify;
mod walk;

pub use build::{BuildPart, BuildPlan, BuildTask};
pub use conform::{conform, item_of, unknown_field};
pub use damage::{Guarded, damaged, guarded, guarded_wait};
#[cfg(feature = "failpoints")]
pub use disk::{faults, gate};
pub use error::{Error, ErrorKind, Result, kind_of_parquet, kind_of_storage};
pub use exact::{Misfit, cast_exactly, cast_rounded};
pub use fields::{field_of, null_within};
pub use file_time::is_young;
pub use kind::Kind;
pub use lakemark_format::Operation;
pub use lakemark_index::{Predicate, Reason, RowSet};
pub use local::of_listed;
pub use location::{StoreLayer, TableFormat};
pub use names::ColumnNames;
pub use options::{
    BuildOptions, CancelFlag, Columns, IndexSpec, MigrateOptions, ProbeOptions, Progress, Reading, TableOptions,
    Telling, VacuumOptions,
};
pub use probe::{Bounds, BoundsRequest, ColumnBounds, Tally, TallyPart, TallyRequest, TopRequest};
pub use report::{
    BuildReport, ChangesBesideFiles, CompactReport, Finding, IndexInfo, IndexVerdict, LeafReport, MigrateReport,
    ProbeReport, PublishReport, RunInfo, UpdatesInfo, VacuumReport, VerifyReport, VersionInfo, Waste,
};
pub use snapshot::{DataFile, FileProbe, PendingFile, PendingRows, Probe, Snapshot};
pub use table::Table;
pub use trust::{Caught, amended};
pub use updates::{Change, Parameters, Pending, StagedRows, Staging, Transaction, WriteOptions, Written};

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aggregate;
mod covering;
mod doctor;
pub mod error;
mod files;
mod index_kind;
mod indexing;
mod links;
pub mod metrics;
pub mod options;
mod pin;
mod probe;
pub mod report;
mod rewrite;
pub mod snapshot;
mod storage;
mod store;
pub mod table;
mod table_format;
mod updates;
mod vacuum;
mod values;
pub mod watch;

pub use aggregate::{AnsweredFiles, ColumnMinMax, GroupCountRequest, GroupCounts, MinMax, MinMaxRequest, ValueCounts};
pub use covering::{CoverRequest, CoveredFile, CoveredValues, MOST_COVERED_ROWS, RowsOfFile};
pub use error::{Error, ErrorKind, Result, TextPlace, kind_of_parquet, kind_of_storage};
pub use files::amended_reader::AmendedReader;
pub use files::column_mapping::ColumnMapping;
pub use files::parted_list::{PartedIter, PartedList};
pub use files::trust::{FalseStatistics, amended_footer};
pub use index_kind::{IndexKind, kind_or_auto};
pub use indexing::advise;
pub use indexing::build::{BuildPart, BuildPlan, BuildTask, RunningBuild};
pub use lakemark_format::Operation;
pub use lakemark_index::{Predicate, Reason, RowSet};
pub use links::{
    IndexedLinks, LinkDirection, LinkMemory, LinkMemoryLimit, LinkedRequest, LinkedRows, Links, WalkOptions,
};
pub use options::{
    BuildOptions, CancelFlag, ColumnReadCost, IndexOnlyCost, IndexSpec, Merging, MigrateOptions, ProbeOptions,
    Progress, ReadCost, TableOptions, VacuumOptions,
};
pub use probe::{RowsToRead, SearchedColumn, TopKRequest};
pub use report::{
    AnsweredBy, BuildReport, ChangesBesideFiles, ChosenBy, ColumnInfo, CompactReport, Description, Finding,
    HealthReport, IndexInfo, IndexVerdict, LeafReport, MigrateReport, ProbeReport, Problem, ProblemName, PublishReport,
    Report, RunInfo, Severity, TableInfo, UpdatesInfo, VacuumReport, VerifyReport, VersionInfo, VersionOperation,
    Waste, index_rows, version_rows,
};
pub use snapshot::{BufferedRows, BufferedRun, DataFile, FileProbe, FileProbes, FileProbesIter, Probe, Snapshot};
pub use storage::clock::{Stopwatch, now};
pub use storage::damage::{Guarded, damaged, guarded, guarded_wait};
#[cfg(feature = "failpoints")]
pub use storage::disk::{faults, gate};
pub use storage::file_time::is_young;
pub use storage::ids::new_id;
pub use storage::local::of_listed;
pub use storage::location::{StoreLayer, object_store_at};
pub use storage::machine::memory as machine_memory;
pub use store::included::{column_list, names_of};
pub use store::kind::IndexOption;
pub use table::Table;
pub use table_format::TableFormat;
pub use updates::{
    Change, Parameters, RepairAction, StagedRows, Staging, Transaction, UpdateOption, WriteOptions, Written,
};
pub use values::conform::{conform, item_of, unknown_field};
pub use values::exact::{LossyCast, cast_exactly, cast_rounded};
pub use values::fields::{field_of, null_within};

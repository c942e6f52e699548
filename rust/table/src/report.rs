//! What operations report: plain structs that become JSON, each with its description for people.
//!
//! Uses of ours the formats of tables alone; every room above gives reports.
//!
//! Invariant: text, notebooks and lists say what the fields say, from one place.

pub use self::description::{Description, Report, bytes, count};
pub use self::health::{HealthReport, Problem, ProblemName, Severity};
pub use self::listing::{index_rows, version_rows};
pub use self::probe::{AnsweredBy, LeafReport, ProbeReport};
pub use self::table::{ChosenBy, ColumnInfo, IndexInfo, TableInfo, VersionInfo};
pub use self::updates::{ChangesBesideFiles, MigrateReport, PublishReport, RunInfo, UpdatesInfo};
pub use self::upkeep::{BuildReport, CompactReport, Finding, IndexVerdict, VacuumReport, VerifyReport, Waste};
pub use self::version_operation::VersionOperation;

mod description;
mod health;
mod listing;
mod probe;
pub(crate) mod serialized;
mod table;
mod updates;
mod upkeep;
mod version_operation;

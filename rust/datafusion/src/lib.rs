//! Lakemark in DataFusion: tables whose scans read only the rows that the index leaves.
//!
//! [`LakemarkSession`] runs SQL, our statements included; [`query`] answers counts, reports and
//! scans without SQL around the predicate; [`LakemarkTable`] is the table provider for everyone
//! else's session. Between them stand [`statement`] (what the SQL parser of DataFusion does not
//! know), [`translate`](mod@translate) (expressions to predicates over keys) and the scan
//! operator, which is a leaf: nothing may come between the row positions that the index names
//! and the reader that fetches them.

mod access;
pub mod advise;
mod aggregate;
mod build_keys;
pub mod config;
mod damage;
mod dml;
mod dynamic;
pub mod error;
mod exec;
mod factory;
mod facts;
mod fields;
mod gaps;
mod held;
pub mod known;
mod lookup;
mod parameters;
mod pending;
mod pins;
mod projection;
mod provider;
pub mod query;
mod reader;
mod reading;
mod rules;
mod scan;
mod schema;
mod session;
mod shortcut;
mod simplify;
pub mod statement;
mod statistics;
pub mod summaries;
pub mod translate;
mod types;
mod unreadable;
mod versions;
mod zone_maps;

pub use advise::{advise, advise_session};
pub use aggregate::{IndexAggregateExec, IndexAggregates};
pub use config::LakemarkOptions;
pub use error::{from_engine, to_engine};
pub use exec::LakemarkScanExec;
pub use factory::LakemarkTableFactory;
pub use lakemark_table::{Error, ErrorKind, Result};
pub use lookup::lookup;
pub use provider::LakemarkTable;
pub use query::{QueryOptions, count, explain, explain_count, filter_of, scan};
pub use rules::PositionalPushdown;
pub use session::{LakemarkSession, session_context};
pub use statement::Statement;
pub use summaries::{count_distinct, group_count, min_max, sum_mean};
pub use translate::translate;
pub use versions::may_read_version;

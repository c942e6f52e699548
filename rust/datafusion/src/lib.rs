#![doc = include_str!("../README.md")]

mod api;
pub mod config;
mod erased;
pub mod error;
mod exec;
mod expr;
mod plan;
mod read;
mod share;
mod sql;

pub use api::advise::{advise, advise_session};
pub use api::aggregates::{count_distinct, group_count, min_max, sum_mean};
pub use api::info::table_info;
pub use api::lookup::{RowsWithSchema, lookup};
pub use api::query::{QueryOptions, count, explain, explain_count, filter_of, scan};
pub use config::{LakemarkOptions, Share, SlowQueryLimit};
pub use erased::Erased;
pub use error::{from_engine, to_engine};
pub use exec::index_aggregate::{IndexAggregateExec, IndexAggregates};
pub use exec::scan::LakemarkScanExec;
pub use expr::translate::translate;
pub use lakemark_table::{Error, ErrorKind, Result};
pub use plan::begun_once::rows_of;
pub use plan::provider::LakemarkTable;
pub use plan::ready_query::ReadyQuery;
pub use plan::rules::PositionalPushdown;
pub use plan::slow_queries::SLOW_QUERIES;
pub use share::key::Principal;
pub use share::prepared_query::PreparedQuery;
pub use share::registry::{PlanSharing, SharingCounts};
pub use share::statements::PlanningCounts;
pub use sql::factory::LakemarkTableFactory;
pub use sql::planned::{Parameter, PlannedStatement, StatementKind};
pub use sql::planning_place::{PlanInTheMaking, PlanningPlace};
pub use sql::session::{LakemarkSession, session_context};
pub use sql::statement::{NO_TRANSACTIONS, Statement};

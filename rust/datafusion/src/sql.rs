//! SQL: sessions, statements and catalogs.
//!
//! Uses `plan` and the rooms below it; `api` uses its sessions.
//!
//! Invariant: what DataFusion's parser and planner understand is theirs; only our statements are ours.

pub(crate) mod dml;
pub(crate) mod factory;
pub(crate) mod fast_path;
pub(crate) mod link_functions;
pub(crate) mod names;
pub(crate) mod parameters;
pub(crate) mod planned;
mod planned_again;
mod planned_once;
pub(crate) mod planning_place;
pub(crate) mod schema;
pub(crate) mod session;
pub(crate) mod statement;
pub(crate) mod unreadable;
pub(crate) mod versions;

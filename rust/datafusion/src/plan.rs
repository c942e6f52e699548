//! Planning: the table provider, from what a probe says of each file to operators, and the optimizer rules.
//!
//! Uses `share`, `exec`, `read` and `expr`; `sql` and `api` plan by it.
//!
//! Invariant: a statement sees one state of each table.

pub(crate) mod begun_once;
pub(crate) mod buffered_count;
mod late_plan;
mod pivots;
pub(crate) mod provider;
pub(crate) mod query_shape;
pub(crate) mod ready_query;
pub(crate) mod rules;
pub(crate) mod scan;
pub(crate) mod share_key;
pub(crate) mod sharing;
pub(crate) mod slow_queries;
pub(crate) mod statement_snapshots;
pub(crate) mod unpinned;

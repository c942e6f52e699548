//! Planning: the table provider, from what a probe says of each file to operators, and the optimizer rules.
//!
//! Uses `exec`, `read` and `expr`; `sql` and `api` plan by it.
//!
//! Invariant: a statement sees one state of each table.

pub(crate) mod buffered_count;
pub(crate) mod provider;
pub(crate) mod rules;
pub(crate) mod scan;
pub(crate) mod statement_snapshots;

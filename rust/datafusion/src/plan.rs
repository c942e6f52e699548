//! Planning: the table provider, from what a probe says of each file to operators, and the optimizer rules.
//!
//! Uses `exec`, `read` and `expr`; `sql` and `api` plan by it.
//!
//! Invariant: a statement sees one state of each table.

pub(crate) mod pending;
pub(crate) mod pins;
pub(crate) mod provider;
pub(crate) mod rules;
pub(crate) mod scan;

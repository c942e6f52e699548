//! Answers without a statement: counts, rows by key, reports, aggregates and advice.
//!
//! Uses all other rooms; the shell, Python and Rust programs call it.
//!
//! Invariant: an answer is that of the statement that it takes the place of.

pub(crate) mod advise;
pub(crate) mod aggregates;
pub(crate) mod info;
pub(crate) mod lookup;
pub(crate) mod query;

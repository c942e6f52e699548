//! Operators: the scan, which is a leaf, and aggregates that the index answers.
//!
//! Uses `read` and `expr`; `plan` makes the operators.
//!
//! Invariant: with and without an index an operator gives the same rows. What comes while a query runs takes rows away that no operator
//! above keeps, and no other.

pub(crate) mod aggregate;
pub(crate) mod build_keys;
pub(crate) mod dynamic;
pub(crate) mod facts;
pub(crate) mod index_only;
pub(crate) mod scan;

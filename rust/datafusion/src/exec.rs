//! Operators: the scan, which is a leaf, and aggregates and joins that the index answers.
//!
//! Uses `share`, `read` and `expr`; `plan` makes the operators.
//!
//! Invariant: an operator gives the same rows with an index and without. A filter that comes while a query runs removes only rows that no
//! operator above would keep.

pub(crate) mod build_keys;
pub(crate) mod covered_rows;
pub(crate) mod dynamic_filters;
pub(crate) mod index_aggregate;
pub(crate) mod index_join;
pub(crate) mod index_only;
pub(crate) mod scan;
pub(crate) mod scan_probe;
pub(crate) mod shared_scan;

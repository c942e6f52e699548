//! Rows of Parquet files, by position and by key.
//!
//! Uses `key` and `changes`; runs and merged views are looked up here.
//!
//! Invariant: what is found of a key are physical rows, also deleted ones, so that it holds for every version of the table.

pub(super) mod fetch;
pub(super) mod key_positions;

//! Reading: data files, and what is known of them before a row is read.
//!
//! Uses `expr`; the operators and their planning use this room.
//!
//! Invariant: a row is read from the place at which the index counted it, or its file is an error that names it.

pub(crate) mod access;
pub(crate) mod damage;
pub(crate) mod memory_gauge;
pub(crate) mod planning_cache;
pub(crate) mod read_cost;
pub(crate) mod reader;
pub(crate) mod row_filter;
pub(crate) mod statistics;

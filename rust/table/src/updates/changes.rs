//! Changes: as callers give them, as rows with what is done to each, and several of a key as one.
//!
//! Uses `key`; every room above uses this one.
//!
//! Invariant: rows of changes say of themselves what is done with them, wherever they are: in the buffer, or in a run.

pub(super) mod change;
pub(super) mod merge_changes;
pub(super) mod own_columns;
pub(super) mod phase;
pub(super) mod rows;

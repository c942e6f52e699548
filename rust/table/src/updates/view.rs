//! What buffered changes do to a snapshot: the merged view, and the context in which verbs look at changes.
//!
//! Uses `log`, `runs` and the rooms below them; every verb looks at a table through this room.
//!
//! Invariant: data files, runs and log are those of one manifest, read in the types that the snapshot has.

pub(super) mod context;
pub(super) mod merged_view;
mod partition_types;
pub(super) mod run_stack;
mod update_files;
pub(super) mod view_cache;

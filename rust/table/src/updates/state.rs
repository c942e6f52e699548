//! A table with what this process remembers of its changes, and its newest state.
//!
//! Uses `view`, `recovery` and the rooms below them; every verb takes a table of this room.
//!
//! Invariant: what is remembered is of the manifest and the files that it was made of, or is not used.

mod background_migration;
pub(super) mod keyed_snapshot;
pub(super) mod newest;
pub(super) mod updatable;
pub(super) mod write_queue;

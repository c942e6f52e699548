//! A turn of a writer, from the lock to the commit: read on, check, append or flush. Runs are merged behind it.
//!
//! ```text
//! write_turn ─▶ checks ─▶ log_commit: one frame of the log
//!                             └─ buffer full ─▶ flush: a run
//! merge_apart: fewer runs, written between two turns and named in a short one
//! ```
//!
//! Uses `state`, `publication`, `recovery` and the rooms below them; `migration` and `writing` take turns.
//!
//! Invariant: whoever has a turn holds the lock of writers, until the commit is made or not.

pub(super) mod checks;
mod conflict_check;
pub(super) mod flush;
pub(super) mod flush_policy;
pub(super) mod log_commit;
mod merge;
pub(super) mod merge_apart;
mod merge_policy;
pub(super) mod write_turn;

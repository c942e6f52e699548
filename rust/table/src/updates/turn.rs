//! A turn of a writer, from the lock to the commit: read on, check, append or flush, merge runs.
//!
//! ```text
//! write_turn ─▶ checks ─▶ log_commit: one frame of the log
//!                             └─ buffer full ─▶ flush: a run ─▶ merge: fewer runs
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
mod merge_policy;
pub(super) mod write_turn;

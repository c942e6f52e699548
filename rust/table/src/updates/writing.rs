//! Calls that make changes: through the queue, or staged before and too large for the buffer.
//!
//! Uses `turn`, `migration` and the rooms below them; nothing of `updates` uses this room.
//!
//! Invariant: a call returns when its changes are durable, or with an error when none of them was made.

mod bulk_write;
pub(super) mod flush_now;
mod staged_merge;
pub(super) mod staged_rows;
pub(super) mod staged_write;
pub(super) mod staging;
pub(super) mod write;

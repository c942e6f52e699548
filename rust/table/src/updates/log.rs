//! The log: where changes are durable first, and the buffer that is read of it.
//!
//! Uses `key` and `changes`; views read it, and turns of writers append to it.
//!
//! Invariant: nobody appends behind a frame unless that frame is on the disk.

pub(super) mod append;
pub(super) mod log_file;
pub(super) mod log_tail;
pub(super) mod log_types;

//! Indexes: declared, advised, built, compacted and verified.
//!
//! Uses `snapshot` and the rooms below it; `updates` and `table` use this one.
//!
//! Invariant: a segment says of a file only what the file had when its fingerprint was taken.

pub mod advise;
pub(crate) mod build;
pub(crate) mod compact;
pub(crate) mod create_index;
pub(crate) mod verify;

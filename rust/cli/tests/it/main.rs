//! The real binary on real Parquet files: what it prints, what it leaves on disk, how it fails.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod advise;
mod bad_input;
mod interrupt;
mod shell;
mod table;
mod updates;
mod verbs;

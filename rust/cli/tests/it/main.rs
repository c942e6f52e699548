//! The real binary on real Parquet files: what it prints, what it leaves on disk, how it fails.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "tests read the clock")]

mod advise;
mod bad_input;
mod config;
mod doctor;
mod interrupt;
mod shell;
#[cfg(feature = "otel")]
mod spans;
mod table;
mod updates;
mod verbs;

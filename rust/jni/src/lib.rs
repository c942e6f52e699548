//! The Spark connector's native half: table snapshots, plans and record batches for a JVM.
//!
//! Java asks on the driver ([`calls`]): open a table, its schema, how many rows a filter chooses, aggregates ([`aggregate`]), a plan. A plan has
//! one split per task ([`pack`]) as JSON, with its pending rows if it has some; it is made again from the same snapshot when Spark learns more ([`dynamic`]). And on an executor each piece of a [`split`] becomes an Arrow C stream ([`read`], [`stream`]), of nested columns with the fields that the query needs ([`nested`]).
//! Tables stay open between queries ([`tables`]). Filters come as JSON, too ([`filter`]), and only with conditions that mean the same to Spark and to the index.
//!
//! Scans of Spark's own Parquet reader ask which row groups of the files they may leave out ([`row_groups`]).
//!
//! A task that changes rows hands them over as Arrow C arrays to be staged ([`staging`]), and the driver makes what all tasks staged one call. What such rows are
//! read from keeps every digit ([`exact`]).
//!
//! Indexes are declared and looked after by requests in JSON ([`maintain`]), and built by tasks ([`build`]).
//!
//! With the Python binding this is the only crate that may use `unsafe`; each use is in [`calls`] or [`handle`]. Errors and
//! panics of every call become a `LakemarkException` in one place ([`error`]); a panic in a stream becomes that stream's
//! error, because nothing may unwind into the JVM.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::too_many_lines,
        clippy::disallowed_methods,
        reason = "tests"
    )
)]

mod aggregate;
mod ahead;
mod answer;
mod build;
mod calls;
mod collations;
mod dynamic;
mod error;
mod exact;
mod filter;
mod handle;
mod maintain;
mod nested;
mod pack;
mod pending;
mod plan;
mod read;
mod read_points;
mod row_groups;
mod rows;
mod runtime;
mod split;
mod staging;
mod stores;
mod stream;
mod tables;
mod types;

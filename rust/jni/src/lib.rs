#![doc = include_str!("../README.md")]
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

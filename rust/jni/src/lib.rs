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
mod buffered;
mod build;
mod calls;
mod collations;
mod error;
mod exact;
mod filter;
mod filter_result;
mod handle;
mod maintain;
mod nested;
mod plan;
mod read;
mod read_ahead;
mod read_points;
mod row_groups;
mod rows;
mod runtime;
mod runtime_filters;
mod split;
mod split_packing;
mod staging;
mod store_cache;
mod stream;
mod table_cache;
mod types;

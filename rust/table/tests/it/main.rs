//! Tables end to end, below any engine: data files in, rows of a probe out, judged by the rows themselves.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod adopting;
mod building;
mod choosing;
mod compacting;
mod composites;
mod delta;
mod encodings;
mod faults;
mod fixture;
mod footers;
mod futures;
mod group_counts;
mod layer;
mod listed;
mod lists;
mod locations;
mod lost_answers;
mod lost_segments;
mod mapping;
mod moments;
mod nested;
mod odd_files;
mod parts;
mod probing;
mod rewritten;
mod sharing;
mod stages;
mod sums;
mod top;
mod transactions;
mod updates;
mod vacuum;
mod zones;

//! Properties of the index structures, against naive models.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod algebra;
mod binned;
mod bitmap;
mod cost;
mod encodings;
mod groups;
mod key;
mod lists;
mod rows;
mod sums;
mod values;
mod zones;

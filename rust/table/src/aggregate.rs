//! Aggregates: how often values occur, their sums and their extremes, from indexes alone, and what it costs to answer them.
//!
//! Uses `snapshot` and the rooms below it; `probe` and the rooms above it may use this one. The rows are given, as what a probe found of
//! each file.
//!
//! Invariant: a file is answered for all of its exact rows, with what a scan of them would give, or is left to whoever reads it.

mod allowed_values;
mod alone;
mod answered_files;
mod cost;
mod distinct;
mod extremes;
mod group_counts;
mod pair_counts;
mod segment_values;
mod selected_rows;
mod sources;
mod sums;
mod value_counts;
mod wanted_files;

pub use answered_files::AnsweredFiles;
pub use extremes::{ColumnMinMax, MinMax, MinMaxRequest};
pub(crate) use segment_values::read_values;
pub use value_counts::{GroupCountRequest, GroupCounts, ValueCounts};

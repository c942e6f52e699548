//! The `bitmap` kind: for each value, or for bins of values, the rows that hold it.
//!
//! ```text
//!   row groups            chunks                      segment
//!   ┌────────┐  ChunkBuilder  ┌───────────────┐  merge  ┌──────────────────────────────┐
//!   │ values ├───────────────▶│ value → rows  ├────┐    │ postings of block 0 | block 0 │
//!   └────────┘                └───────────────┘    ├───▶│ postings of block 1 | block 1 │
//!   ┌────────┐                ┌───────────────┐    │    │ …        nulls, opaque        │
//!   │ values ├───────────────▶│ value → rows  ├────┘    │ directory | trailer           │
//!   └────────┘                └───────────────┘         └──────────────────────────────┘
//! ```
//!
//! [`chunk`](crate::chunk) sorts the rows of one row group by value. [`build`] merges chunks into a segment in value order
//! (*value-major*: all rows of a value lie together, so one value costs one read). [`search`] finds the rows of a segment that
//! pass a test. An encoding other than `equality` adds a coarse level of bitmaps over bins of values, or has nothing else
//! ([`lakemark_format::segment::encoding`]): `coarse_builder` makes it, `plan` chooses what of both levels to read.
//! `bin_writer` and `bins` write and read bins of values that share a posting. `coarse` and `slices` combine bitmaps, [`sums`]
//! counts their bits, `unpack` takes them apart for a verification. [`cost`] predicts the bytes of each encoding. With the
//! encoding `packed` a segment is the kind `key`: a packed tree, whose top level is the directory and whose leaves hold keys
//! and rows (`leaves`), and columns that ride along (`covered`). Between them are inner pages if the leaves are many ([`inner`]). With
//! the encoding `linked` it is the kind `links`, whose leaves [`links`](crate::links) walks.

mod bin_writer;
mod bins;
pub mod build;
mod coarse;
mod coarse_builder;
pub mod cost;
pub mod count;
mod covered;
pub mod estimate;
pub mod groups;
pub mod inner;
mod leaves;
mod overlap;
pub mod pairs;
mod plan;
pub mod ranks;
mod rounds;
pub mod search;
mod slices;
pub mod sums;
mod unpack;

pub use bins::entries_of_bin;
pub use build::{DIRECTORY_LEAVES, SegmentMeta, SegmentSummary, merge, merge_in_pages, merge_zones};
pub use coarse_builder::coarse_memory_bytes;
pub use count::CountSearch;
pub use covered::{CoveredColumn, CoveredRows, CoveredSearch};
pub use estimate::{Estimate, Weight, WeightBounds};
pub use groups::{GroupValue, Mask, ValueGroups, each_posting, posting_ranges};
pub use inner::{InnerPages, LeavesFor};
pub(crate) use leaves::rows_of_entry;
pub use leaves::{EntryRows, LeafKey, LeafMatches, LeafSearch, LongPosting, entries_of_leaf, entries_of_links};
pub use pairs::{Codes, MAX_CODES};
pub use ranks::bitmap_ranges;
pub use search::Search;
pub use sums::{DenseSlices, ValueCount};
pub use unpack::RowBins;

pub use crate::chunk::{Chunk, ChunkBuilder, ChunkSource, ValueRows};
pub use crate::error::BuildError;
pub use crate::segment_rows::SegmentRows;

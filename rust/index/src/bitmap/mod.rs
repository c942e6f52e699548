//! The `bitmap` kind with `equality` encoding: for each value, the rows that hold it.
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
//! [`chunk`] sorts the rows of one row group by value, [`build`] merges chunks into a segment in
//! value order (*value-major*: all rows of a value lie together, so one value costs one read), and
//! [`search`] asks a segment for the rows of a test.

pub mod build;
pub mod chunk;
pub mod search;

pub use build::{BuildError, ChunkSource, SegmentMeta, SegmentSummary, merge};
pub use chunk::{Chunk, ChunkBuilder};
pub use search::{Count, LeafRows, Search};

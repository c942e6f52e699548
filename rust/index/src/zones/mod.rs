//! The kinds `bloom_tree` and `summary`: Bloom filters of zones of rows, which say where a key is not.
//!
//! ```text
//! x = 42          bloom_tree (encoding filtered)            summary (encoding sliced)
//!                 fences   [ 0,31] [30,47] [45,99]          slice 17   1 0 1 1 0 1 …   a bit for each zone
//!                             no   probe      no            slice 203  0 0 1 1 0 0 …
//!                 filter           one block read           AND        0 0 1 1 0 0 …   zones 2 and 3 may hold it
//! ```
//!
//! A tree of Bloom filters (Athanassoulis and Ailamaki 2013, the read-optimized BF-tree) is for columns whose values lie together,
//! in order or not. Fences leave few zones, and each of these has a filter of its own. A partitioned summary (Yin, Pucheral and
//! Meng 2009, PBFilter) is for columns in no order: one read for each bit of a key probes all zones at once. [`build`] makes both
//! from the chunks of a merge, [`merge`] puts those of several segments together, [`search`] probes them. Rows of a zone that
//! may hold a key are to be rechecked: whoever reads the data tests them.

pub mod build;
mod loaded;
pub mod merge;
pub mod search;

pub use build::{FALSE_ZONES, SUMMARY_ZONES, ZoneOptions};
pub use loaded::LoadedZones;
pub use merge::{ReadRange, ZonePart, common_filters};
pub use search::ZoneSearch;

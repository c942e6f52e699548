//! Pending updates, after MaSM (Athanassoulis 2014, chapter 3): changes are taken by a log, kept in sorted runs on the SSD, laid
//! over every snapshot, and folded into the data files later.
//!
//! ```text
//! insert, upsert, update, delete ─▶ log (the buffer) ─▶ runs of one pass ─▶ runs of two passes ─▶ data files
//!                                       └──────────────────┴── overlay ──────────┘
//!                                   rows of data files that they hide, and rows that are in none yet
//! ```
//!
//! - `key` and `rows`: what tells rows apart, and rows of changes; `change`: changes as callers give them
//! - `fold`: several changes of a key are one; `settle`: what changes do to what is below them
//! - `log_file` and `tail`: the log as it is read; `level` and `runs`: the log's rows or a run's, with what they were resolved to
//! - `fetch` and `resolve`: rows of Parquet files by position and by key
//! - `updatable`: a table with what is remembered of its changes
//! - `hits`: what levels hide of data files; `stack`: levels over each other; `overlay`: what a snapshot sees; `newest`: the snapshot; `write`, `flush`, `merge`: how changes get there; `declare`: the key
//! - `buffer`: when the log becomes a run; `choice`: which runs are merged
//! - `phase`: what a run comes to while a migration folds what is below it, and afterwards
//! - `partitions`: what partition columns are while changes are pending
//! - `lineage`: whether a store and a Delta table belong together
//! - `border`: up to which key a slice reaches; `migrate`, `slice` and `folding`: from pending to the data files; `automatic`: when a writer begins that
//! - `staging`: rows are written aside, sorted; `staged` and `sorted`: they become one call; `straight`: a call that is too large for the buffer
//! - `resolved`: what parts of a run are resolved to, together
//! - `moved`: what others changed below a statement; `still`: nobody is about to name files
//! - `indexing`: indexes after a migration or a publication
//! - `publication`: from the store to the folder that other readers list
//! - `parameters`: how large everything is

mod append;
mod automatic;
mod border;
mod buffer;
mod change;
mod choice;
mod declare;
mod fetch;
mod flush;
mod fold;
mod folding;
mod hits;
mod indexing;
mod info;
mod key;
mod level;
mod lineage;
mod locks;
mod log_file;
mod merge;
mod migrate;
mod moved;
mod newest;
mod overlay;
mod parameters;
mod partitions;
mod phase;
mod publication;
mod resolve;
mod resolved;
mod rows;
mod runs;
mod settle;
mod slice;
mod sorted;
mod stack;
mod staged;
mod staging;
mod still;
mod straight;
mod tail;
mod updatable;
mod write;

pub use change::{Change, Transaction, WriteOptions, Written};
pub use lineage::Pending;
pub use parameters::Parameters;
pub use staged::StagedRows;
pub use staging::Staging;

pub(crate) use automatic::wait as wait_for_migration;
pub(crate) use declare::declare_key;
pub(crate) use flush::flush;
pub(crate) use indexing::{build_newest, create_newest, pin_to_build};
pub(crate) use info::{changes_beside_files, info};
pub(crate) use lineage::repair;
pub(crate) use migrate::migrate;
pub(crate) use newest::pin_newest;
pub(crate) use overlay::{Reach, Updated};
pub(crate) use publication::publish;
pub(crate) use staged::{discard_staged, write_staged};
pub(crate) use still::hold_still;
pub(crate) use updatable::UpdatableTable;
pub(crate) use write::{Writing, no_key, write};

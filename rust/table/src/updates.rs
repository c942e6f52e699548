//! Buffered updates, after MaSM (Athanassoulis 2014, chapter 3). A log takes changes, and sorted runs keep them on the SSD. A merged view
//! adds them to every snapshot, and a migration compacts them into the data files later.
//!
//! ```text
//! insert, upsert, update, delete ─▶ log (the buffer) ─▶ runs of one pass ─▶ runs of two passes ─▶ data files
//!                                       └──────────────────┴── merged view ──────┘
//!                                   rows of data files that they delete or replace, and rows that are in none yet
//! ```
//!
//! Rooms, from the ground up; each uses those before it:
//!
//! - `parameters`: how large everything is; `errors`: what several verbs refuse; `locks`: of writers and of migrations
//! - `key` and `changes`: what tells rows apart; changes as callers give them, as rows, and merged
//! - `lookup`: rows of Parquet files by position and by key
//! - `log` and `runs`: where changes are, with what they hit in data files
//! - `view`: what a snapshot sees of them
//! - `recovery`: what a process that is gone has left, and stores that may not belong to their table
//! - `state`: a table with what is remembered of its changes, and its newest state; `indexing`: the indexes of that state
//! - `publication`: from the store to the folder that other readers list
//! - `turn`: a writer's turn, with flushes and merges of runs
//! - `migration`: from the buffer to the data files
//! - `writing`: calls that make changes
//! - `declare_key`, `info`, `quiesce`: the key of a table, what is buffered, and that nobody is about to name files
//!
//! Uses `probe`, `indexing`, `rewrite` and the rooms below them; `pin`, `vacuum` and `table` use this one.
//!
//! Invariant: a change is durable before its call returns, and what is pinned afterwards sees it. The newest state is pinned here, within
//! the room's own verbs, as they change the state between two pins.

mod changes;
mod declare_key;
mod errors;
mod indexing;
mod info;
mod key;
mod locks;
mod log;
mod lookup;
mod migration;
mod parameters;
mod publication;
mod quiesce;
mod recovery;
mod runs;
mod state;
mod turn;
mod view;
mod writing;

pub use changes::change::{Change, Transaction, WriteOptions, Written};
pub use parameters::{Parameters, UpdateOption};
pub use recovery::repair::RepairAction;
pub use writing::staged_rows::StagedRows;
pub use writing::staging::Staging;

pub(crate) use declare_key::declare_key;
pub(crate) use errors::no_key;
pub(crate) use indexing::{build_newest, create_newest, merge_built, pin_to_build};
pub(crate) use info::{changes_beside_files, info};
pub(crate) use lookup::fetch::RowFile;
pub(crate) use migration::migrate::migrate;
pub(crate) use publication::publish::publish;
pub(crate) use quiesce::quiesce;
pub(crate) use recovery::repair::repair;
pub(crate) use state::newest::pin_recent;
pub(crate) use state::updatable::UpdatableTable;
pub(crate) use view::context::{ManifestState, UpdateContext, UpdateScope};
pub(crate) use view::merged_view::merged_view_of_runs;
pub(crate) use writing::flush_now::flush_now;
pub(crate) use writing::staged_write::{discard_staged, write_staged};
pub(crate) use writing::write::write;

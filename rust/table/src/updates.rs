//! Buffered updates, after MaSM (Athanassoulis 2014, chapter 3). A log takes changes, and sorted runs keep them on the SSD. A merged view
//! adds them to every snapshot, and a migration compacts them into the data files later.
//!
//! ```text
//! insert, upsert, update, delete ─▶ log (the buffer) ─▶ runs of one pass ─▶ runs of two passes ─▶ data files
//!                                       └──────────────────┴── merged view ──────┘
//!                                   rows of data files that they delete or replace, and rows that are in none yet
//! ```
//!
//! - `key` and `rows`: what distinguishes rows, and rows of changes; `change`: changes as callers give them
//! - `merge_changes`: several changes of a key become one; `resolve_keys`: what changes do to what is below them
//! - `log_file` and `log_tail`: the log as it is read; `sorted_run`: the log's rows or a run's, with what they were resolved to;
//!   `run_cache` and `run_writer`: runs as files, `own_columns` as they were written; `active_run`: a run of which some rows count no more
//! - `fetch` and `key_positions`: rows of Parquet files by position and by key
//! - `updatable`: a table with what is remembered of its changes
//! - `hits`: which rows of data files the runs delete or replace; `run_stack`: runs above each other; `merged_view` and
//!   `view_cache`: what a snapshot sees; `context`: what the verbs know of the changes; `newest`: the snapshot;
//!   `declare_key`: the key
//! - `write_queue` and `write`: changes that wait, and are made; `write_turn`, `checks`, `log_commit`, `flush`, `merge`: a writer's turn
//! - `flush_policy`: when the log becomes a run; `merge_policy`: which runs are merged
//! - `phase`: what a run comes to while a migration compacts what is below it, and afterwards
//! - `partition_types` and `log_types`: which types partition columns have while changes are buffered
//! - `repair`: whether a store and a Delta table belong together
//! - `key_range_end`: up to which key a slice reaches; `migrate`, `migration_begin`, `migration_input` and `migration_commit`: from the
//!   buffer to the data files; `stopped_migration`: one whose process is gone; `auto_migrate` and `background_migration`: when a writer begins that
//! - `staging`: rows are written aside, sorted; `staged_rows`, `staged_merge` and `staged_write`: they become one call; `bulk_write`: a call that is too
//!   large for the buffer
//! - `position_map` and `position_map_file`: what parts of a run are resolved to, together, and as a file
//! - `conflict_check`: what others changed below a statement; `quiesce`: nobody is about to name files
//! - `indexing`: indexes after a migration or a publication
//! - `publish`, `publication` and `places`: from the store to the folder that other readers list
//! - `parameters`: how large everything is; `errors`: what several verbs refuse
//!
//! Uses `probe`, `indexing`, `rewrite` and the rooms below them; `pin`, `vacuum` and `table` use this one.
//!
//! Invariant: a change is durable before its call returns, and what is pinned afterwards sees it. The newest state is pinned here, within
//! the room's own verbs, as they change the state between two pins.

mod active_run;
mod append;
mod auto_migrate;
mod background_migration;
mod bulk_write;
mod change;
mod checks;
mod conflict_check;
mod context;
mod declare_key;
mod errors;
mod fetch;
mod flush;
mod flush_policy;
mod hits;
mod indexing;
mod info;
mod key;
mod key_positions;
mod key_range_end;
mod keyed_snapshot;
mod locks;
mod log_commit;
mod log_file;
mod log_tail;
mod log_types;
mod merge;
mod merge_changes;
mod merge_policy;
mod merged_view;
mod migrate;
mod migration_begin;
mod migration_commit;
mod migration_input;
mod newest;
mod own_columns;
mod parameters;
mod partition_types;
mod phase;
mod places;
mod position_map;
mod position_map_file;
mod publication;
mod publish;
mod quiesce;
mod repair;
mod resolve_keys;
mod rows;
mod run_cache;
mod run_stack;
mod run_writer;
mod sorted_run;
mod staged_merge;
mod staged_rows;
mod staged_write;
mod staging;
mod stopped_migration;
mod updatable;
mod update_files;
mod view_cache;
mod write;
mod write_queue;
mod write_turn;

pub use change::{Change, Transaction, WriteOptions, Written};
pub use parameters::Parameters;
pub use repair::RepairAction;
pub use staged_rows::StagedRows;
pub use staging::Staging;

pub(crate) use context::{ManifestState, UpdateContext, UpdateScope};
pub(crate) use declare_key::declare_key;
pub(crate) use errors::no_key;
pub(crate) use flush::flush;
pub(crate) use indexing::{build_newest, create_newest, pin_to_build};
pub(crate) use info::{changes_beside_files, info};
pub(crate) use merged_view::merged_view_of_runs;
pub(crate) use migrate::migrate;
pub(crate) use newest::pin_newest;
pub(crate) use publish::publish;
pub(crate) use quiesce::quiesce;
pub(crate) use repair::repair;
pub(crate) use staged_write::{discard_staged, write_staged};
pub(crate) use updatable::UpdatableTable;
pub(crate) use write::write;
pub(crate) use write_turn::WriteTurn;

//! Runs: sorted files of changes, and what their keys hit in data files and in older runs.
//!
//! ```text
//! buffer ─▶ resolve_keys ─▶ run_writer: the file      position_map_file: what its keys hit
//!                                └────── run_cache opens both ──────┘
//! ```
//!
//! Uses `key`, `changes`, `lookup`, `parameters` and `errors`; views are made of runs, and turns of writers make them.
//!
//! Invariant: a run never changes. What its keys hit in a file or in an older run is found once.

pub(super) mod active_run;
pub(super) mod hits;
pub(super) mod known_hits;
pub(super) mod position_map;
pub(super) mod position_map_file;
pub(super) mod resolve_keys;
pub(super) mod run_cache;
pub(super) mod run_writer;
pub(super) mod sorted_run;

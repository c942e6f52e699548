//! Migrations: buffered rows become rows of data files.
//!
//! Uses `turn`, `state` and the rooms below them, and the room `rewrite`; `writing` begins migrations where the cache is full.
//!
//! Invariant: a migration takes effect at one point, a commit of the Delta table or of a manifest. What is changed meanwhile stays buffered.

pub(super) mod auto_migrate;
mod begin;
mod commit;
mod input;
mod key_range_end;
pub(super) mod migrate;
mod newest_runs;
mod plan;
mod slice_ends;
mod slice_extents;
mod small_files;

//! Data files: which a table has, what their footers say, and how their columns are read.
//!
//! Uses `store`, `storage` and `values`; snapshots are made of what this room finds.
//!
//! Invariant: a footer comes to a reader by `trust` alone, without the statistics that cannot be believed.

pub(crate) mod amended_reader;
pub(crate) mod column_mapping;
pub(crate) mod columns;
pub(crate) mod delta;
pub(crate) mod file_version;
pub(crate) mod footer;
pub(crate) mod list_folders;
pub(crate) mod listed_file;
pub(crate) mod listing;
pub(crate) mod migrated_files;
pub(crate) mod parted_list;
pub(crate) mod statistics_check;
pub(crate) mod trust;
pub(crate) mod unreadable;

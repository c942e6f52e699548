//! What a process that is gone, or a store that was put back from a backup, has left: migrations that were stopped, and changes of which
//! nobody knows whether the table has them.
//!
//! Uses `locks`, `log` and `errors`; whoever pins, writes or migrates looks here first.
//!
//! Invariant: a change that may be in the data files already is never made again, unless the caller says so.

pub(super) mod repair;
pub(super) mod stopped_migration;

//! From a table to a snapshot: the newest state or an older version, and which versions there are.
//!
//! Uses `updates` and the rooms below it; `table` alone uses this one.
//!
//! Invariant: only this room chooses between the newest state and a version. A version of which something is gone is an error, and never a
//! smaller answer.

pub(crate) mod history;
mod versions;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::updates::{self, UpdatableTable};

/// The version that the table was opened at, else the newest state.
pub(crate) async fn pin(table: &UpdatableTable) -> Result<Snapshot> {
    match table.base.version {
        Some(version) => versions::pin(table, version).await,
        None => updates::pin_newest(table).await,
    }
}

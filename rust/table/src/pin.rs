//! From a table to a snapshot: the newest state or an older version, and which versions there are.
//!
//! Uses `updates` and the rooms below it; `table` alone uses this one.
//!
//! Invariant: only this room chooses between the newest state and a version. A version of which something is gone is an error, and never a
//! smaller answer.

pub(crate) mod history;
mod versions;

use std::time::Duration;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::updates::{self, UpdatableTable};

/// The version that the table was opened at, else the newest state, or one that is as old as the table's option allows.
pub(crate) async fn pin(table: &UpdatableTable) -> Result<Snapshot> {
    pin_within(table, table.base.max_staleness).await
}

/// The version that the table was opened at, else the newest state.
pub(crate) async fn pin_anew(table: &UpdatableTable) -> Result<Snapshot> {
    pin_within(table, Duration::ZERO).await
}

async fn pin_within(table: &UpdatableTable, within: Duration) -> Result<Snapshot> {
    match table.base.version {
        Some(version) => versions::pin(table, version).await,
        None => updates::pin_recent(table, within).await,
    }
}

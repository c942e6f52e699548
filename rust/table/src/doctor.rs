//! What goes wrong with a table, looked at in one go: each thing that is found says what to do.
//!
//! ```text
//! newest state ─▶ data files, coverage, index files, updates
//! store        ─▶ locks, leftovers, permissions, disk, clock
//! ```
//!
//! Uses `updates`, `snapshot`, `store`, `storage` and `report`; `table` uses it.
//!
//! Invariant: a look that fails is a finding, and never the end of the others. Nobody is disturbed: locks are read from the system and not
//! taken, and all that is written is an empty file, by whose time the clock of the storage is told.

mod clock_skew;
mod coverage;
mod index_files;
mod lock_holders;
mod place;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::report::{HealthReport, Problem, ProblemName, bytes};
use crate::snapshot::ReadableSnapshot;
use crate::updates::{self, UpdatableTable};

/// The share of their space from which on buffered updates are called many.
const FULL_SHARE: f64 = 0.8;

/// Looks at everything.
pub(crate) async fn examine(table: &Arc<UpdatableTable>) -> Result<HealthReport> {
    let base = &table.base;
    base.check_open_for_changes()?;
    let location = base.location();
    let mut report = HealthReport {
        location: location.to_owned(),
        store: base.store.as_ref().map(|store| store.text().to_owned()),
        release: env!("CARGO_PKG_VERSION").to_owned(),
        ..HealthReport::default()
    };
    match pinned(table).await {
        Ok(readable) => {
            report.add("data files", coverage::of_data_files(&readable));
            report.add("coverage", coverage::of_indexes(location, &readable));
            report.add("index files", index_files::look_at(location, &readable.snapshot).await);
            // Who reads what is buffered reads all data files.
            let is_buffered = readable.unreadable.is_empty()
                && readable.snapshot.manifest.as_ref().is_some_and(|manifest| manifest.updates().is_some());
            report.add("updates", if is_buffered { buffered(table).await } else { Vec::new() });
        }
        Err(error) => report.add("data files", vec![unread(table, &error).await]),
    }
    let Some(store) = &base.store else {
        let problem = "a glob or a single file has no place for indexes of its own";
        report.add("store", vec![Problem::new(ProblemName::NoStore, problem, "name one with --store")]);
        return Ok(report);
    };
    report.add("locks", lock_holders::look_at(store).await);
    match store.files().await {
        Ok(files) => {
            report.add("leftovers", place::leftovers(location, &files));
            report.add("disk", place::disk(store, &files).await);
        }
        Err(error) => report.add("leftovers", vec![of_error(ProblemName::UnreadableStore, &error)]),
    }
    let unwritable = place::permissions(store).await;
    let is_writable = unwritable.is_empty();
    report.add("permissions", unwritable);
    if is_writable {
        report.add("clock", clock_skew::look_at(store).await);
    }
    Ok(report)
}

/// The newest state, as a build sees it.
async fn pinned(table: &Arc<UpdatableTable>) -> Result<ReadableSnapshot> {
    if table.base.store.is_some() {
        return updates::pin_to_build(table).await;
    }
    // Nobody builds where there is no place for it.
    let snapshot = updates::pin_recent(table, Duration::ZERO).await?;
    Ok(ReadableSnapshot { snapshot, unreadable: Vec::new() })
}

/// What it means that a build cannot read the newest state.
async fn unread(table: &Arc<UpdatableTable>, error: &Error) -> Problem {
    // Queries do without indexes that cannot be read.
    let name = match updates::pin_recent(table, Duration::ZERO).await {
        Ok(_) => ProblemName::UnreadableManifest,
        Err(_) => ProblemName::UnreadableTable,
    };
    of_error(name, error)
}

/// What is to be said of buffered updates.
async fn buffered(table: &Arc<UpdatableTable>) -> Vec<Problem> {
    let info = match updates::info(table).await {
        Ok(Some(info)) => info,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![of_error(ProblemName::UnreadableUpdates, &error)],
    };
    if info.cache_share < FULL_SHARE {
        return Vec::new();
    }
    let problem = format!(
        "buffered updates take {} of the {} that they may have; changes are refused once it is full",
        bytes(info.cache_bytes),
        bytes(info.cache_limit)
    );
    vec![Problem::new(
        ProblemName::FullCache,
        problem,
        format!("run `lakemark migrate {}`, which writes them into the data files", table.base.location()),
    )]
}

/// What an error says is wrong. Errors say what to do as well.
fn of_error(name: ProblemName, error: &Error) -> Problem {
    Problem::new(name, format!("{error} ({})", error.kind()), "do what the message says, and look again")
}

//! Publishing: the data files that migrations of a folder wrote into the store become files of the folder, for every reader.
//!
//! ```text
//! 1  each new file gets a second name in the folder that no reader lists, each original that it replaces one in the store
//! 2  a manifest says what is going to be published                                          (lock of writers, from here on)
//! 3  the originals leave the folder, then the new files get their names in it
//! 4  a manifest says that files of the folder count again
//! ```
//!
//! Our readers see the same rows at every point: up to step 4 they take the new files from the store and leave out whatever step 3 moves.
//! Other readers list the folder, where several files do not change at once. Between the first and the last name of step 3 they see some of
//! the rows, and never a row twice. Steps 1 and 3 are names only; bytes are copied in step 1 if at all. If a process dies in between, the
//! next writer goes on with step 3.

use std::sync::Arc;

use lakemark_format::ManifestPublication;

use super::finish::{end, finish_publication, run};
use super::places::Places;
use crate::error::{Error, ErrorKind, Result};
use crate::options::BuildOptions;
use crate::report::PublishReport;
use crate::snapshot::Snapshot;
use crate::storage::clock::Stopwatch;
use crate::storage::failpoint::reach;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, commit};
use crate::table_format::TableFormat;
use crate::updates::errors::no_key;
use crate::updates::indexing::build_newest;
use crate::updates::locks::{MigrationLock, WriterLock};
use crate::updates::state::updatable::UpdatableTable;

/// Publishes what migrations wrote; nothing if there is nothing.
pub(crate) async fn publish(table: &Arc<UpdatableTable>) -> Result<PublishReport> {
    let stopwatch = Stopwatch::start();
    let store = table.base.writable_store()?;
    if table.base.format == TableFormat::Delta {
        // A migration of a Delta table is a commit, which publishes it.
        return Ok(PublishReport::default());
    }
    let places = Places::of(&table.base, store)?;
    let lock = MigrationLock::take(store).await?;
    // A task of its own: what was begun is ended under the lock, also if the caller goes away.
    let begins = Arc::clone(table);
    let published = holding(lock.clone(), async move { publish_all(&begins, &places).await }).await??;
    if !published.files.is_empty() && !Snapshot::pin_base(&table.base).await?.indexes().is_empty() {
        // Indexes know files by their paths.
        build_newest(table, BuildOptions::default()).await?;
    }
    Ok(PublishReport {
        files_published: published.files.len() as u64,
        originals_moved: published.originals.len() as u64,
        bytes_published: published.files.iter().map(|file| file.size).sum(),
        seconds: stopwatch.seconds(),
    })
}

async fn publish_all(table: &Arc<UpdatableTable>, places: &Places) -> Result<ManifestPublication> {
    let store = table.base.writable_store()?;
    {
        let _lock = WriterLock::take(store).await?;
        finish_publication(&table.base, &Snapshot::pin_base(&table.base).await?).await?;
    }
    // Sees to it that no original was changed since.
    let base = Snapshot::pin_base(&table.base).await?;
    let updates =
        base.manifest.as_ref().and_then(|manifest| manifest.updates().cloned()).ok_or_else(|| no_key(&table.base))?;
    if updates.data.is_empty() && updates.replaced.is_empty() {
        return Ok(ManifestPublication::default());
    }
    let publication = places.plan(&updates)?;
    let (prepares, planned) = (places.clone(), publication.clone());
    run(store, move || prepares.prepare(&planned)).await?;
    reach("publish-prepared");
    let _lock = WriterLock::take(store).await?;
    if !commit(store, &Edit::BeginPublication { publication: publication.clone() }).await?.changed {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the table was migrated by somebody else meanwhile; publish again",
        ));
    }
    reach("publish-begun");
    end(store, places, &publication).await?;
    Ok(publication)
}

//! The end of a publication, by whoever began it, or by the next writer where one died.

use std::io;

use lakemark_format::ManifestPublication;

use super::places::Places;
use crate::error::{Error, Result};
use crate::files::listing::under_way;
use crate::snapshot::{BaseTable, Snapshot};
use crate::storage::disk::on_a_thread;
use crate::storage::failpoint::reach;
use crate::store::Store;
use crate::store::transaction::{Edit, commit};
use crate::updates::errors::unwritable;

/// Ends the publication that a writer began before it died; the caller holds the lock of writers. Says whether there was one.
pub(crate) async fn finish_publication(table: &BaseTable, base: &Snapshot) -> Result<bool> {
    let updates = base.manifest.as_ref().and_then(|manifest| manifest.updates());
    let Some(begun) = updates.and_then(|updates| under_way(updates)) else { return Ok(false) };
    let store = table.writable_store()?;
    end(store, &Places::of(table, store)?, begun).await.map(|()| true)
}

/// Moves the files that a publication names, and lets a manifest say that files of the folder count again.
pub(crate) async fn end(store: &Store, places: &Places, publication: &ManifestPublication) -> Result<()> {
    let (places, begun) = (places.clone(), publication.clone());
    run(store, move || places.switch(&begun)).await?;
    reach("publish-switched");
    commit(store, &Edit::EndPublication).await?;
    reach("publish-ended");
    Ok(())
}

/// Works with files of the folder and the store, which waits for the disk.
pub(crate) async fn run(store: &Store, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    on_a_thread(work).await.map_err(|error| Error::task(&error))?.map_err(|error| unwritable(store, error))
}

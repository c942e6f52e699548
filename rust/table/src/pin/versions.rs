//! Older states of a table, by version.
//!
//! ```text
//! Delta table      Delta's own version: its files and deletion vectors, without buffered changes
//! other tables     the number of a manifest: the files that it counts, and the changes in its runs; what was still in the log
//!                  belongs to the version that a flush made of it
//! ```
//!
//! Indexes are those of today. What is needed and gone makes the version expired, and never a smaller answer. A folder has no
//! log of its own: files that others add to it, or take from it, count as they are now.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::{Manifest, ManifestPublication, ManifestUpdates};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::{DeltaLog, DeltaState};
use crate::files::list_folders::locations;
use crate::files::listed_file::FileList;
use crate::files::migrated_files::moved_of;
use crate::snapshot::{BaseTable, LaidFiles, ManifestAndListing, Snapshot, listing_of, newest_listing, with_files};
use crate::storage::retry_listing::retry_if_gone;
use crate::store::Store;
use crate::store::chain::Chain;
use crate::store::pieces::ManifestNeeds;
use crate::table_format::TableFormat;
use crate::updates::{ManifestState, UpdatableTable, UpdateContext, UpdateScope, merged_view_of_runs};

/// Requests that are on their way at a time.
const CONCURRENT_REQUESTS: usize = 32;

/// The state of a version.
pub(crate) async fn pin(table: &UpdatableTable, version: u64) -> Result<Snapshot> {
    match table.base.format {
        TableFormat::Parquet => pin_folder(table, version).await,
        TableFormat::Delta => pin_delta(&table.base, version).await,
    }
}

async fn pin_folder(table: &UpdatableTable, version: u64) -> Result<Snapshot> {
    let Some(store) = table.base.store.as_ref() else {
        return Err(Error::not_found(format!(
            "{} has no store and so no versions; give its store",
            table.base.location()
        )));
    };
    // A vacuum may take the checkpoint that was listed, and leave another one before the version.
    let (listed, manifest) = retry_if_gone(store.text(), || async {
        let listed = store.chain().await?;
        if !listed.versions().contains(&version) {
            return Ok(Some((listed, None)));
        }
        Ok(store.manifest_of(&listed, version).await?.map(|manifest| (listed, Some(manifest))))
    })
    .await?;
    let Some(manifest) = manifest.map(Arc::new) else { return Err(no_manifest(&table.base, version, &listed)) };
    // Segments that the old manifest names may be gone, those of the newest are there. Publications move files, so that the listing goes
    // with what the newest manifest says of them.
    let ManifestAndListing { manifest: newest, found: files } = newest_listing(&table.base).await?;
    let newest = with_files(&table.base, newest).await?;
    let publications = publications(newest.as_deref());
    let updates = manifest.updates().cloned().unwrap_or_default();
    let later = after(publications, version);
    let indexed = match &newest {
        Some(newest) => Some(Arc::new(newest.at_version(&manifest))),
        None => or_unindexed(store, store.loaded(&manifest, &ManifestNeeds::Files(Vec::new())).await)?,
    };
    let pinned = pin_listed(table, store, &manifest, indexed, &later, &files).await;
    // What a vacuum took, before or meanwhile, is searched at the end.
    if let Some(gone) = first_gone(store, &updates, &later).await? {
        let rest = readable(store, &listed, version, publications).await?;
        return Err(expired(&table.base, version, &format!("{gone} of it is gone"), &rest));
    }
    pinned
}

/// What a manifest says of files is for indexes alone. Where it is damaged the version is read without them, as the newest state is.
fn or_unindexed(store: &Store, loaded: Result<Arc<Manifest>>) -> Result<Option<Arc<Manifest>>> {
    match loaded {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(reason = "segment_corrupt", store = store.text(), %error, "the indexes are not used");
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// The files that a version has of a listing, merged with its runs. Files are matched with the indexes of `indexed`.
async fn pin_listed(
    table: &UpdatableTable,
    store: &Store,
    version: &Manifest,
    indexed: Option<Arc<Manifest>>,
    later: &[&ManifestPublication],
    files: &FileList,
) -> Result<Snapshot> {
    let listing = listing_of(&table.base, version.updates().map(Arc::as_ref), later, files).await?;
    let mut snapshot = Snapshot::pin_listing(&table.base, indexed, listing).await?;
    if let Some(updates) = version.updates() {
        let state = ManifestState { number: version.number(), migration_done: false };
        let files = &table.merged_views.files;
        let updated = UpdateContext::of(&mut snapshot, store, files, updates, state, UpdateScope::Runs).await?;
        let view = merged_view_of_runs(&updated, &snapshot, files).await?;
        let laid = LaidFiles::of(&snapshot, &view.deleted, None);
        snapshot.apply_updates(laid, &view.buffered, view.next);
    }
    Ok(snapshot)
}

fn publications(newest: Option<&Manifest>) -> &[ManifestPublication] {
    newest.and_then(Manifest::updates).map_or(&[], |updates| &updates.publications)
}

/// Publications that a version does not have.
fn after(publications: &[ManifestPublication], version: u64) -> Vec<&ManifestPublication> {
    publications.iter().filter(|of| of.manifest == 0 || of.manifest > version).collect()
}

/// The first file of the store that a version needs and that is not there.
async fn first_gone(
    store: &Store,
    updates: &ManifestUpdates,
    later: &[&ManifestPublication],
) -> Result<Option<String>> {
    let runs = updates.runs.iter().map(|run| ("the run", &run.path));
    let data = updates.data.iter().map(|file| ("the data file", &file.path));
    let moved = moved_of(updates, later).into_iter().map(|file| ("the data file", &file.stored));
    for (what, path) in runs.chain(data).chain(moved) {
        if !store.has(path).await? {
            return Ok(Some(format!("{what} {path}")));
        }
    }
    Ok(None)
}

/// The versions other than `but` of which nothing is gone.
async fn readable(
    store: &Store,
    listed: &Chain,
    but: u64,
    publications: &[ManifestPublication],
) -> Result<BTreeSet<u64>> {
    let mut found = BTreeSet::new();
    let mut before: Option<Manifest> = None;
    for number in listed.versions() {
        let Ok(Some(manifest)) = store.manifest_after(listed, before.as_ref(), number).await else { continue };
        let updates = manifest.updates().cloned().unwrap_or_default();
        if number != but && first_gone(store, &updates, &after(publications, number)).await?.is_none() {
            found.insert(number);
        }
        before = Some(manifest);
    }
    Ok(found)
}

fn no_manifest(table: &BaseTable, version: u64, listed: &Chain) -> Error {
    match listed.newest() {
        Some(newest) if version != 0 && version < newest => {
            expired(table, version, "its manifest is gone", &listed.versions().into_iter().collect())
        }
        newest => never_was(table, version, newest),
    }
}

async fn pin_delta(table: &BaseTable, version: u64) -> Result<Snapshot> {
    let state = match DeltaState::read_version(&table.location, Some(version)).await {
        Ok(state) if state.version == version => state,
        Ok(_) => return Err(no_log(table, version, None).await),
        Err(error) => return Err(no_log(table, version, Some(error)).await),
    };
    let present = Present::list(table).await?;
    if let Some(path) = present.first_gone(&state).await? {
        let rest = present.readable_after(table, version).await?;
        return Err(expired(table, version, &format!("the data file {path} of it is gone"), &rest));
    }
    // Buffered changes are no part of the version, so that nothing is lost where the store cannot be read.
    let manifest = match table.store.as_ref() {
        Some(store) => {
            let newest = store.newest_with(&ManifestNeeds::Files(Vec::new())).await;
            newest.map(|newest| newest.manifest).unwrap_or_else(|error| {
                tracing::warn!(reason = "segment_corrupt", store = store.text(), %error, "the indexes are not used");
                None
            })
        }
        None => None,
    };
    Snapshot::pin_delta(table, manifest, &state).await
}

/// The data files that are there now.
struct Present {
    object_store: Arc<dyn ObjectStore>,
    listed: HashSet<Path>,
}

impl Present {
    async fn list(table: &BaseTable) -> Result<Self> {
        let listed = locations(&table.location).await?;
        Ok(Self { object_store: Arc::clone(&table.location.object_store), listed })
    }

    /// The first data file of a version that is not there.
    async fn first_gone(&self, state: &DeltaState) -> Result<Option<String>> {
        // A listing may spell the path in another way, and lacks what a shallow clone has of another table.
        let unlisted = state.files.iter().filter(|file| !self.listed.contains(&file.meta.location));
        let heads: Vec<_> =
            unlisted.map(|file| async move { (file, self.object_store.head(&file.meta.location).await) }).collect();
        let mut heads = stream::iter(heads).buffered(CONCURRENT_REQUESTS);
        while let Some((file, head)) = heads.next().await {
            match head {
                Ok(_) => {}
                Err(object_store::Error::NotFound { .. }) => return Ok(Some(file.path.clone())),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The versions after one that have all of their files. A vacuum leaves files that were in use lately, so that these are all versions
    /// from one on. That one is searched by halves.
    async fn readable_after(&self, table: &BaseTable, version: u64) -> Result<BTreeSet<u64>> {
        let newest = DeltaState::read(&table.location).await?.version;
        let (mut gone, mut there) = (version, newest);
        while there > gone + 1 {
            let middle = gone + (there - gone) / 2;
            let is_there = match DeltaState::read_version(&table.location, Some(middle)).await {
                Ok(state) => self.first_gone(&state).await?.is_none(),
                Err(_) => false,
            };
            if is_there {
                there = middle;
            } else {
                gone = middle;
            }
        }
        Ok((there..=newest).filter(|version| *version > gone).collect())
    }
}

/// Why there is no version of this number.
async fn no_log(table: &BaseTable, version: u64, error: Option<Error>) -> Error {
    let log = match DeltaLog::list(&table.location).await {
        Ok(log) => log,
        Err(error) => return error,
    };
    let Some(newest) = log.newest() else { return never_was(table, version, None) };
    if version > newest {
        return never_was(table, version, Some(newest));
    }
    let readable = log.readable();
    match error {
        Some(error) if readable.contains(&version) => error,
        _ => expired(table, version, "the Delta log of it is gone", &readable),
    }
}

fn never_was(table: &BaseTable, version: u64, newest: Option<u64>) -> Error {
    let location = table.location();
    Error::not_found(match newest {
        Some(newest) => format!("{location} has no version {version}: the newest is {newest}"),
        None => format!("{location} has no version {version}, and no other: nothing was indexed or changed yet"),
    })
}

fn expired(table: &BaseTable, version: u64, why: &str, readable: &BTreeSet<u64>) -> Error {
    let rest = match readable.is_empty() {
        true => "no version can be read any more, but for the newest state".to_owned(),
        false => format!("versions that can still be read: {}", ranges(readable)),
    };
    Error::expired(format!("version {version} of {} has expired, as {why}; {rest}", table.location()))
}

/// Numbers as people write them: `1 to 3, 7`.
fn ranges(numbers: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let shown = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&BTreeSet::from([1, 2, 3, 7, 9, 10])), "1 to 3, 7, 9 to 10");
        assert_eq!(ranges(&BTreeSet::from([4])), "4");
    }
}

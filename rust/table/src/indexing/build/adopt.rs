//! Data files that were touched and not changed: their indexes go on under the new time or tag.

use std::sync::Arc;

use futures::{StreamExt, stream};
use lakemark_format::{Manifest, ManifestFile, ManifestIndex, ManifestSegment};

use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::storage::file_time::{BuildStart, modified_ns};
use crate::store::Store;
use crate::store::manifests::file_of;
use crate::store::segments::{ReadCounter, Segment};
use crate::store::transaction::Adoption;

/// A touched file that was not changed.
pub(crate) struct AdoptableFile {
    /// Its number in the snapshot.
    pub file: usize,
    pub adoption: Adoption,
}

/// The touched files of the snapshot whose footers and indexed columns have the hashes that every segment of theirs was
/// made from.
pub(crate) async fn adoptable(
    snapshot: &Snapshot,
    store: &Arc<Store>,
    lost: &[[u8; 16]],
    begun: BuildStart,
    threads: usize,
) -> Vec<AdoptableFile> {
    let Some(manifest) = &snapshot.manifest else { return Vec::new() };
    let touched: Vec<(usize, u32)> = snapshot
        .index_states
        .iter()
        .enumerate()
        .filter(|(_, state)| state.unverified)
        .filter_map(|(file, state)| Some((file, state.number?)))
        .collect();
    // By number, since a closure over borrowed items would make the future one that cannot change threads.
    let touched = touched.as_slice();
    stream::iter(0..touched.len())
        .map(|place| async move {
            let (file, number) = touched.get(place).copied()?;
            let data_file = snapshot.files().get(file)?;
            let was = file_of(manifest, number)?;
            if !is_proven(snapshot, store, manifest, lost, file, number).await {
                return None;
            }
            let modified_ns = modified_ns(&data_file.meta);
            let etag = if snapshot.delta_version().is_some() { None } else { begun.tag_of(&data_file.meta) };
            let adoption = Adoption { was: was.clone(), now: ManifestFile { modified_ns, etag, ..was.clone() } };
            Some(AdoptableFile { file, adoption })
        })
        .buffered(threads)
        .filter_map(|adoption| async { adoption })
        .collect()
        .await
}

/// Whether every segment that lists the file was made from the bytes that the file has now. Lost segments prove nothing and are built
/// again. `number` is that of the file in the manifest.
async fn is_proven(
    snapshot: &Snapshot,
    store: &Arc<Store>,
    manifest: &Manifest,
    lost: &[[u8; 16]],
    file: usize,
    number: u32,
) -> bool {
    let segments = manifest.segments().filter(|segment| segment.files.contains(number));
    let mut proofs = 0;
    for segment in segments.filter(|segment| !lost.contains(&segment.id)) {
        let index = manifest.indexes().find(|index| index.id == segment.index_id);
        let Some(index) = index else { return false };
        if !is_made_from(snapshot, store, index, segment, file).await {
            return false;
        }
        proofs += 1;
    }
    proofs > 0
}

async fn is_made_from(
    snapshot: &Snapshot,
    store: &Arc<Store>,
    index: &ManifestIndex,
    segment: &ManifestSegment,
    file: usize,
) -> bool {
    let Some(path) = snapshot.files().get(file).map(|file| file.path.as_str()) else { return false };
    let opened = match Segment::open(store, segment, index, &ReadCounter::default()).await {
        Ok(opened) => opened,
        Err(damage) => {
            tracing::warn!(
                index = index.name,
                segment = segment.path,
                reason = damage.reason.code(),
                problem = damage.problem,
                "an index file cannot be used; its touched files are indexed again"
            );
            return false;
        }
    };
    let Some(entry) = opened.directory.files.iter().find(|entry| entry.path == path) else { return false };
    is_same_data(snapshot, file, entry, segment, &opened.directory).await
}

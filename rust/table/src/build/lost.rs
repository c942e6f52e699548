//! Segments that the manifest names and the store has no more: what they covered is built again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lakemark_format::{Manifest, ManifestIndex, ManifestSegment};

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::verify::verify_index;

/// The segments of these indexes that are missing or have another length, by one listing, unless a newer manifest does without them.
pub(crate) async fn missing<'a>(
    store: &Store,
    manifest: &'a Manifest,
    indexes: &[ManifestIndex],
) -> Result<Vec<&'a ManifestSegment>> {
    let wanted: HashSet<[u8; 16]> = indexes.iter().map(|index| index.id).collect();
    let mut named: Vec<&ManifestSegment> =
        manifest.segments.iter().filter(|segment| wanted.contains(&segment.index_id)).collect();
    if named.is_empty() {
        return Ok(named);
    }
    let lengths: HashMap<String, u64> = store.segment_lengths().await?;
    named.retain(|segment| lengths.get(&segment.path) != Some(&segment.length));
    let mut missing = Vec::new();
    for segment in named {
        // Some stores list late what was written a moment ago.
        if store.length_of(&segment.path).await? != Some(segment.length) {
            missing.push(segment);
        }
    }
    if !missing.is_empty() {
        let still = store.named_segments().await?;
        missing.retain(|segment| still.contains(&segment.id));
    }
    Ok(missing)
}

/// The segments of these indexes that are of no use: those that are missing, and with `verify` those that are not what the data says.
pub(super) async fn lost(
    store: &Arc<Store>,
    snapshot: &Snapshot,
    indexes: &[ManifestIndex],
    verify: bool,
) -> Result<Vec<[u8; 16]>> {
    let Some(manifest) = &snapshot.manifest else { return Ok(Vec::new()) };
    let mut lost: HashSet<[u8; 16]> = HashSet::new();
    for segment in missing(store, manifest, indexes).await? {
        tracing::warn!(segment = segment.path, "a segment is missing or cut off; its files are indexed again");
        lost.insert(segment.id);
    }
    for index in indexes.iter().filter(|_| verify) {
        for finding in verify_index(snapshot, store, manifest, index).await?.damaged {
            tracing::warn!(
                segment = finding.path,
                problem = finding.problem,
                "a segment is damaged; its files are indexed again"
            );
            let damaged = manifest.segments.iter().filter(|segment| segment.path == finding.path);
            lost.extend(damaged.map(|segment| segment.id));
        }
    }
    Ok(lost.into_iter().collect())
}

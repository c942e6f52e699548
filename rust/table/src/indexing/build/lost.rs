//! Segments that the manifest names and the store has no more: the files that they covered are indexed again.

use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::ManifestIndex;

use crate::error::Result;
use crate::indexing::verify::verify_index;
use crate::snapshot::Snapshot;
use crate::store::Store;
use crate::store::segments::missing;

/// The segments of these indexes that are of no use: missing ones, and with `verify` those that differ from the data.
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

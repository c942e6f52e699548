//! Removing what nothing names, unless somebody came to need it meanwhile.
//!
//! A build takes over segments that an earlier one left. On a local disk locks keep builds and vacuums apart. In an object store a build makes
//! such a segment young, names it, and looks for it afterwards. A vacuum that listed the segment before looks at it again, and at the newest
//! manifest, right before it removes it.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use crate::error::{Error, Result};
use crate::store::layout::StoreFileKind;
use crate::store::{ListedStoreFile, Store};

/// Segments that are looked at again and removed at once: the fewer, the shorter the time between.
const AT_ONCE: usize = 256;
/// Requests at a time.
const CONCURRENT_LOOKS: usize = 32;

/// Removes files; gives the paths of those that stay, as they are young again or named by now.
pub(super) async fn remove(
    store: &Store,
    waste: &[&ListedStoreFile],
    before: DateTime<Utc>,
) -> Result<HashSet<String>> {
    if store.is_local() {
        store.remove(waste).await?;
        return Ok(HashSet::new());
    }
    let (segments, others): (Vec<&ListedStoreFile>, Vec<&ListedStoreFile>) =
        waste.iter().partition(|file| file.kind == StoreFileKind::Segment);
    store.remove(&others).await?;
    let mut stay = HashSet::new();
    for some in segments.chunks(AT_ONCE) {
        let needed = needed(store, some, before).await?;
        let left: Vec<&ListedStoreFile> = some.iter().copied().filter(|file| !needed.contains(&file.path)).collect();
        store.remove(&left).await?;
        stay.extend(needed);
    }
    Ok(stay)
}

/// The paths of those that are young, or that the newest manifest names.
async fn needed(store: &Store, files: &[&ListedStoreFile], before: DateTime<Utc>) -> Result<HashSet<String>> {
    let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
    let looks = stream::iter(paths.clone()).map(|path| async move {
        let meta = store.meta_of(&path).await?;
        Ok::<_, Error>(meta.filter(|meta| meta.last_modified >= before).map(|_| path))
    });
    let young = looks.buffer_unordered(CONCURRENT_LOOKS).try_filter_map(|path| async { Ok(path) });
    let mut needed: HashSet<String> = young.try_collect().await?;
    // Whoever makes one young names it later, so that the manifest is read last.
    if let Some(manifest) = store.newest().await?.manifest {
        let paths: HashSet<String> = paths.into_iter().collect();
        let named = manifest.segments().filter(|segment| paths.contains(&segment.path));
        needed.extend(named.map(|segment| segment.path.clone()));
    }
    Ok(needed)
}

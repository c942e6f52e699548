//! Segments that an earlier build left, or that another one has just written: nobody has to read their files again.
//!
//! Their names say what they are made of, so that one look finds each. It is taken over if its directory is about the same files with
//! the same footers. A vacuum takes segments that no manifest names once they are old. So whoever takes one over makes it young first, and again
//! right before the commit, and looks for it once more after that.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{Encoding, FileNumbers, ManifestIndex, ManifestSegment, SegmentFile};

use crate::error::{Error, Result};
use crate::files::footer::Footer;
use crate::store::Store;
use crate::store::segments::{ReadCounter, Segment};
use crate::store::transaction::{BuiltSegments, Edit, commit};

/// Requests at a time.
const CONCURRENT_LOOKS: usize = 32;

/// A data file as a segment that is taken over has to have it.
pub(super) struct ExpectedFile<'a> {
    pub path: &'a str,
    pub footer: &'a Footer,
}

/// The segment of this id, if it is there and can be taken over. Its `files` are empty.
pub(super) async fn take_over(
    store: &Arc<Store>,
    index: &ManifestIndex,
    encoding: Encoding,
    id: [u8; 16],
    files: &[ExpectedFile<'_>],
) -> Option<ManifestSegment> {
    let path = Store::segment_path(id);
    // What cannot be looked at is built.
    let length = store.length_of(&path).await.ok().flatten()?;
    let segment = ManifestSegment { id, index_id: index.id, path, length, files: FileNumbers::default() };
    let opened = match Segment::open_afresh(store, &segment, index, &ReadCounter::default()).await {
        Ok(opened) => opened,
        Err(damage) => {
            tracing::warn!(segment = segment.path, problem = damage.problem, "a segment that was left is built again");
            return None;
        }
    };
    let is_same = |have: &SegmentFile, file: &ExpectedFile<'_>| {
        let of_footer = (have.footer_hash, &have.row_groups) == (file.footer.hash, &file.footer.row_groups);
        have.path == file.path && of_footer
    };
    let have = &opened.directory.files;
    let is_whole = have.len() == files.len() && have.iter().zip(files).all(|(have, file)| is_same(have, file));
    if !is_whole || opened.directory.encoding != encoding {
        return None;
    }
    store.keep(&segment.path).await.ok()?;
    tracing::info!(index = index.name, segment = segment.path, "a segment that was left is taken over");
    Some(segment)
}

/// Makes a segment that was taken over young once more, right before its commit: the work may have taken long since. Says whether it is gone.
///
/// # Errors
/// The store cannot be read.
pub(crate) async fn is_gone(store: &Store, segment: &ManifestSegment) -> Result<bool> {
    Ok(store.keep(&segment.path).await.is_err() && store.length_of(&segment.path).await? != Some(segment.length))
}

/// Takes segments that were taken over and are gone out of what is to be committed, so that the others are; gives their ids, but for those
/// of indexes that were dropped.
pub(super) async fn leave_out_gone(
    store: &Store,
    built: &mut BuiltSegments,
    taken_over: &HashSet<[u8; 16]>,
) -> Result<HashSet<[u8; 16]>> {
    let segments: Vec<ManifestSegment> =
        built.segments.iter().filter(|segment| taken_over.contains(&segment.id)).cloned().collect();
    let looks = stream::iter(segments)
        .map(|segment| async move { Ok::<_, Error>(is_gone(store, &segment).await?.then_some(segment)) });
    let gone = looks.buffer_unordered(CONCURRENT_LOOKS).try_filter_map(|segment| async move { Ok(segment) });
    let gone: Vec<ManifestSegment> = gone.try_collect().await?;
    let ids: HashSet<[u8; 16]> = gone.iter().map(|segment| segment.id).collect();
    built.segments.retain(|segment| !ids.contains(&segment.id));
    let missed = without_dropped(store, gone.iter().collect()).await?;
    Ok(missed.into_iter().map(|segment| segment.id).collect())
}

/// Those of segments that are gone whose index nobody dropped.
async fn without_dropped<'a>(store: &Store, mut gone: Vec<&'a ManifestSegment>) -> Result<Vec<&'a ManifestSegment>> {
    if !gone.is_empty() {
        let declared = store.declared_indexes().await?;
        gone.retain(|segment| declared.contains(&segment.index_id));
    }
    Ok(gone)
}

/// The error of segments that a vacuum removed while they were taken over.
pub(super) fn vacuumed(store: &Store, count: usize, path: &str) -> Error {
    Error::not_found(format!(
        "a vacuum removed {count} segments of the store {} while they were taken over, such as {path}; their files count as not indexed: \
         build again",
        store.text()
    ))
}

/// Looks for segments that were taken over and are committed now. If a vacuum has removed some all the same, they are taken out of the
/// manifest again.
///
/// # Errors
/// Some are gone (`NotFound`), or the store cannot be read or changed.
pub(crate) async fn check_kept(store: &Store, built: &BuiltSegments, taken_over: &HashSet<[u8; 16]>) -> Result<()> {
    let segments: Vec<ManifestSegment> =
        built.segments.iter().filter(|segment| taken_over.contains(&segment.id)).cloned().collect();
    let looks = stream::iter(segments).map(|segment| async move {
        Ok::<_, Error>((store.length_of(&segment.path).await? != Some(segment.length)).then_some(segment))
    });
    let gone = looks.buffered(CONCURRENT_LOOKS).try_filter_map(|segment| async move { Ok(segment) });
    let gone: Vec<ManifestSegment> = gone.try_collect().await?;
    let gone = without_dropped(store, gone.iter().collect()).await?;
    let Some(first) = gone.first() else { return Ok(()) };
    let lost = gone.iter().map(|segment| segment.id).collect();
    commit(store, &Edit::AddSegments(BuiltSegments { lost, ..BuiltSegments::default() })).await?;
    Err(vacuumed(store, gone.len(), &first.path))
}

//! Segments that an earlier build left, or that another one has just written: nobody has to read their files again.
//!
//! Their names say what they are made of, so that one look finds each. It is taken over if its directory is about the same files with
//! the same footers. A vacuum takes segments that no manifest names once they are old. So whoever takes one over makes it young first, and looks
//! for it once more after the commit.

use std::collections::HashSet;
use std::sync::Arc;

use lakemark_format::{Encoding, FileNumbers, ManifestIndex, ManifestSegment, SegmentFile};

use crate::error::{Error, Result};
use crate::files::footer::Footer;
use crate::store::Store;
use crate::store::segments::{ReadCounter, Segment};
use crate::store::transaction::{BuiltSegments, Edit, commit};

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

/// Looks for segments that were taken over and are committed now. If a vacuum has removed some all the same, they are taken out of the
/// manifest again.
///
/// # Errors
/// Some are gone (`NotFound`), or the store cannot be read or changed.
pub(crate) async fn check_kept(store: &Store, built: &BuiltSegments, taken_over: &HashSet<[u8; 16]>) -> Result<()> {
    let mut gone: Vec<&ManifestSegment> = Vec::new();
    for segment in built.segments.iter().filter(|segment| taken_over.contains(&segment.id)) {
        if store.length_of(&segment.path).await? != Some(segment.length) {
            gone.push(segment);
        }
    }
    let Some(first) = gone.first() else { return Ok(()) };
    let lost = gone.iter().map(|segment| segment.id).collect();
    commit(store, &Edit::AddSegments(BuiltSegments { lost, ..BuiltSegments::default() })).await?;
    Err(Error::not_found(format!(
        "a vacuum removed {} segments of the store {} while they were taken over, such as {}; their files count as not indexed: build again",
        gone.len(),
        store.text(),
        first.path
    )))
}

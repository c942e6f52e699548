//! Whether segments say of their files what the manifest says: the same footers and row groups.
//!
//! Neither a segment nor what a manifest has under a number changes, but for files that were touched. So a segment is compared once, and
//! snapshots that follow each other share what was found. A segment that left and comes back under its name has other numbers. One that was
//! built again in its place may have other bytes, and has another length then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::{FileNumbers, Manifest, ManifestSegment};

use super::identity::says_same;
use crate::store::manifests::file_of;
use crate::store::segments::Segment;

/// Segments that are remembered though the manifest names them no more, at most.
const MOST_GONE: usize = 256;

/// What was found of each segment.
#[derive(Debug, Default)]
pub(crate) struct SegmentVerdicts(Mutex<HashMap<[u8; 16], Verdict>>);

#[derive(Debug)]
struct Verdict {
    /// The length of the segment.
    length: u64,
    /// The numbers of the segment's files.
    files: FileNumbers,
    /// Those of which it says what the manifest says.
    agreed: Arc<FileNumbers>,
}

impl SegmentVerdicts {
    /// The numbers of the files of which a segment says what the manifest says.
    pub(crate) fn agreed(&self, manifest: &Manifest, segment: &ManifestSegment, opened: &Segment) -> Arc<FileNumbers> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&segment.id)
            && known.length == segment.length
            && known.files == segment.files
        {
            return Arc::clone(&known.agreed);
        }
        let is_agreed = |number: &u32| {
            let Some(file) = file_of(manifest, *number) else { return false };
            opened.file(&file.path).is_some_and(|found| says_same(file, found.entry))
        };
        let agreed = Arc::new(FileNumbers::from_sorted(segment.files.iter().filter(is_agreed)));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_GONE + manifest.segments().len() {
            known.retain(|id, _| manifest.segment(id).is_some());
        }
        let verdict = Verdict { length: segment.length, files: segment.files.clone(), agreed: Arc::clone(&agreed) };
        known.insert(segment.id, verdict);
        agreed
    }
}

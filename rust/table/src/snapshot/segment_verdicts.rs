//! Whether segments say of their files what the manifest says: the same footers and row groups.
//!
//! Neither a segment nor what a manifest has under a number changes, but for files that were touched. So a segment is compared once, and
//! snapshots that follow each other share what was found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lakemark_format::{FileNumbers, Manifest, ManifestSegment, SegmentDirectory, SegmentFile};

use crate::store::manifests::file_of;

/// Segments that are remembered though the manifest names them no more, at most.
const MOST_GONE: usize = 256;

/// For each segment the numbers of its files that it says the same of as the manifest.
#[derive(Debug, Default)]
pub(crate) struct SegmentVerdicts(Mutex<HashMap<[u8; 16], Arc<FileNumbers>>>);

impl SegmentVerdicts {
    /// The numbers of the files of which a segment says what the manifest says.
    pub(crate) fn agreed(
        &self,
        manifest: &Manifest,
        segment: &ManifestSegment,
        directory: &SegmentDirectory,
    ) -> Arc<FileNumbers> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&segment.id) {
            return Arc::clone(known);
        }
        let entries: HashMap<&str, &SegmentFile> =
            directory.files.iter().map(|entry| (entry.path.as_str(), entry)).collect();
        let is_agreed = |number: &u32| {
            let Some(file) = file_of(manifest, *number) else { return false };
            let entry = entries.get(file.path.as_str());
            entry.is_some_and(|entry| entry.footer_hash == file.footer_hash && entry.row_groups == file.row_groups)
        };
        let agreed = Arc::new(FileNumbers::from_sorted(segment.files.iter().filter(is_agreed)));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() > MOST_GONE + manifest.segments().len() {
            known.retain(|id, _| manifest.segment(id).is_some());
        }
        Arc::clone(known.entry(segment.id).or_insert(agreed))
    }
}

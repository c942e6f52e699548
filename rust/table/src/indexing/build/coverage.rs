//! What others have committed since a build was planned: it need not be built twice.

use std::collections::HashMap;

use lakemark_format::{FileNumbers, Manifest, ManifestFile};

use super::manifest_slice::ManifestSlice;
use crate::error::Result;
use crate::files::file_version::FileVersion;
use crate::storage::file_time::was_young;
use crate::store::manifests::file_of;

/// What a manifest covers.
#[derive(Debug)]
pub(super) struct Coverage {
    /// The number of the manifest.
    number: u64,
    /// The numbers of the files that each index covers, by the id of the index.
    covered: HashMap<[u8; 16], FileNumbers>,
}

impl Coverage {
    /// What a manifest covers without segments that are of no use.
    pub(super) fn of(manifest: &Manifest, lost: &[[u8; 16]]) -> Self {
        let mut numbers: HashMap<[u8; 16], Vec<u32>> = HashMap::new();
        for segment in manifest.segments().filter(|segment| !lost.contains(&segment.id)) {
            numbers.entry(segment.index_id).or_default().extend(segment.files.iter());
        }
        let covered = numbers.into_iter().map(|(index, files)| (index, files.into_iter().collect())).collect();
        Self { number: manifest.number(), covered }
    }

    /// Whether it is what this manifest covers.
    pub(super) fn is_of(&self, manifest: &Manifest) -> bool {
        self.number == manifest.number()
    }

    /// Whether every index of a task covers every file of it, as the task has listed the file. The manifest, whose coverage it is, has read
    /// the task's paths.
    pub(super) fn has(&self, manifest: &Manifest, task: &ManifestSlice) -> Result<bool> {
        for file in &task.files {
            let Some(number) = manifest.number_of(&file.path)? else { return Ok(false) };
            let is_known = file_of(manifest, number).is_some_and(|known| is_same(known, file));
            let is_covered = |index| self.covered.get(index).is_some_and(|files| files.contains(number));
            if !is_known || !task.indexes.iter().all(|index| is_covered(&index.id)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether a listed file is the version that a manifest knows. One that was young then may have been written again unseen.
fn is_same(known: &ManifestFile, listed: &ManifestFile) -> bool {
    let known = FileVersion::of_manifest(known);
    let same_time = match (&known.tag, &listed.etag) {
        (Some(known), Some(listed)) => known == listed,
        (Some(known), None) if was_young(known) => false,
        _ => known.modified_ns == listed.modified_ns,
    };
    known.size == listed.size && same_time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(modified_ns: i64, tag: Option<&str>) -> ManifestFile {
        ManifestFile {
            path: "a.parquet".to_owned(),
            size: 1,
            modified_ns,
            etag: tag.map(str::to_owned),
            footer_hash: 0,
            schema: 0,
            row_groups: vec![1],
            false_statistics: Vec::new(),
        }
    }

    #[test]
    fn a_file_that_was_young_is_not_taken_for_the_same() {
        for (known, listed, same) in [
            (Some("a"), Some("a"), true),
            (Some("a"), Some("b"), false),
            (Some("a"), None, true),
            (None, Some("a"), true),
            (None, None, true),
            (Some("young:"), None, false),
            (Some("young:a"), Some("a"), false),
        ] {
            assert_eq!(is_same(&file(5, known), &file(5, listed)), same, "{known:?} {listed:?}");
        }
        assert!(!is_same(&file(5, None), &file(6, None)));
    }
}

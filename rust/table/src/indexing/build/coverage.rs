//! What others have committed since a build was planned: it need not be built twice.

use std::collections::{HashMap, HashSet};

use lakemark_format::{Manifest, ManifestFile};

use crate::files::file_version::FileVersion;

/// What a manifest covers.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// The number of the manifest.
    pub number: u64,
    /// Each data file with its ordinal, by its path.
    files: HashMap<String, CoveredFile>,
    /// Ids of indexes, each with the ordinal of a file that it covers.
    pairs: HashSet<([u8; 16], u32)>,
}

#[derive(Debug)]
struct CoveredFile {
    ordinal: u32,
    version: FileVersion,
}

impl Coverage {
    /// What a manifest covers without segments that are of no use.
    pub(super) fn of(manifest: &Manifest, lost: &[[u8; 16]]) -> Self {
        let file = |(ordinal, file): (u32, &ManifestFile)| {
            (file.path.clone(), CoveredFile { ordinal, version: FileVersion::of_manifest(file) })
        };
        let segments = manifest.segments.iter().filter(|segment| !lost.contains(&segment.id));
        let pairs = segments.flat_map(|segment| segment.files.iter().map(|file| (segment.index_id, *file)));
        Self { number: manifest.number, files: (0..).zip(&manifest.files).map(file).collect(), pairs: pairs.collect() }
    }

    /// Whether every index of a task covers every file of it, as the task has listed the file.
    pub(super) fn has(&self, task: &Manifest) -> bool {
        task.files.iter().all(|file| {
            let have = self.files.get(&file.path).filter(|have| is_same(&have.version, file));
            have.is_some_and(|have| task.indexes.iter().all(|index| self.pairs.contains(&(index.id, have.ordinal))))
        })
    }
}

/// Whether a listed file is the version that a manifest knows, which keeps no tag of a file that was young then.
fn is_same(known: &FileVersion, listed: &ManifestFile) -> bool {
    let same_time = match (&known.tag, &listed.etag) {
        (Some(known), Some(listed)) => known == listed,
        _ => known.modified_ns == listed.modified_ns,
    };
    known.size == listed.size && same_time
}

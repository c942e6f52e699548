//! What a task of a build gave, in a form that can be sent back.

use std::collections::HashSet;

use lakemark_format::{FileNumbers, ManifestFile};

use super::group::{BuiltFile, GroupResult};
use super::manifest_slice::ManifestSlice;
use super::task::BuildTask;
use crate::error::{Error, Result};
use crate::files::file_version::FileVersion;
use crate::report::Finding;
use crate::storage::fingerprint::fingerprint;
use crate::store::Store;
use crate::store::transaction::BuiltSegments;
use crate::values::schema;

/// What a task gave: the data files that it read, the segments that it wrote, and the files that it had to leave out.
///
/// Its bytes are numbers of eight bytes with the least significant first, JSON and an edit: the fingerprint of all that follows, the number
/// of parts that were spilled, the length of the JSON, in JSON the files that were left out and the segments that were taken over, and an
/// edit that adds just the files and segments.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildPart {
    pub(super) manifest: ManifestSlice,
    /// Files of the task that were left out, each with the reason.
    pub(super) failed: Vec<Finding>,
    /// The ids of segments that others had written.
    pub(super) taken_over: Vec<[u8; 16]>,
    pub(super) spilled: u64,
}

impl BuildPart {
    pub(super) fn new(task: &BuildTask, result: &GroupResult, spilled: u64) -> Result<Self> {
        let BuiltSegments { schemas, files, mut segments, .. } = built_of(result)?;
        segments.sort_unstable_by_key(|segment| segment.id);
        let ManifestSlice { store_id, number, indexes, .. } = task.manifest().clone();
        let manifest = ManifestSlice { store_id, number, schemas, files, indexes, segments };
        Ok(Self { manifest, failed: result.left_out().collect(), taken_over: result.taken_over.clone(), spilled })
    }

    /// Bytes of its segments.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.manifest.segments.iter().map(|segment| segment.length).sum()
    }

    /// The part in bytes.
    ///
    /// # Errors
    /// It is beyond the limits of the format (`Unsupported`).
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let manifest = self.manifest.encode().map_err(|error| {
            Error::unsupported("a part of the build is beyond the limits of the format; use fewer files per segment")
                .with_source(error)
        })?;
        let said = serde_json::to_vec(&(&self.failed, &self.taken_over))
            .map_err(|error| Error::internal("a part of the build cannot be written").with_source(error))?;
        let length = (said.len() as u64).to_le_bytes();
        let content = [self.spilled.to_le_bytes().as_slice(), &length, &said, &manifest].concat();
        Ok([fingerprint(&content).to_le_bytes().as_slice(), &content].concat())
    }

    /// Reads what [`BuildPart::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are none of a part (`Corrupt`).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt("what a task of the build sent is damaged; build again");
        let number = |bytes: &mut &[u8]| -> Result<u64> {
            let (number, rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
            *bytes = rest;
            Ok(u64::from_le_bytes(*number))
        };
        let mut rest = bytes;
        if number(&mut rest)? != fingerprint(rest) {
            return Err(damaged());
        }
        let spilled = number(&mut rest)?;
        let length = usize::try_from(number(&mut rest)?).map_err(|_| damaged())?;
        let (said, manifest) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let (failed, taken_over) = serde_json::from_slice(said).map_err(|error| damaged().with_source(error))?;
        let manifest = ManifestSlice::decode(manifest).map_err(|error| damaged().with_source(error))?;
        let manifest = manifest.ok_or_else(damaged)?;
        Ok(Self { manifest, failed, taken_over, spilled })
    }

    /// Fails if the part is no result of the task: what it says goes into a manifest.
    pub(super) fn check(&self, task: &BuildTask) -> Result<()> {
        let (requested, manifest) = (task.manifest(), &self.manifest);
        let wrong = |what: &str| {
            let files: Vec<&str> = task.files().take(1).collect();
            Err(Error::corrupt(format!(
                "what came back from the task of the build about {} and others {what}; nothing of it was committed, build again",
                files.concat()
            )))
        };
        if (manifest.store_id, &manifest.indexes) != (requested.store_id, &requested.indexes) {
            return wrong("is about other indexes");
        }
        let requested_files: HashSet<FileVersion> = requested.files.iter().map(FileVersion::of_manifest).collect();
        if !manifest.files.iter().all(|file| requested_files.contains(&FileVersion::of_manifest(file))) {
            return wrong("is about other data files");
        }
        let read = manifest.files.iter().map(|file| file.path.as_str());
        let answered: HashSet<&str> = read.chain(self.failed.iter().map(|finding| finding.path.as_str())).collect();
        if answered != task.files().collect() || manifest.files.len() + self.failed.len() != answered.len() {
            return wrong("does not say of each data file once what became of it");
        }
        let filled: HashSet<_> = manifest.segments.iter().map(|segment| segment.index_id).collect();
        let expected = if manifest.files.is_empty() { 0 } else { manifest.indexes.len() };
        let is_whole = |files: &FileNumbers| files.iter().eq((0..).take(manifest.files.len()));
        if filled.len() != expected
            || manifest.segments.len() != expected
            || !manifest.segments.iter().all(|segment| is_whole(&segment.files))
        {
            return wrong("has not one segment for each index");
        }
        if !manifest.segments.iter().all(|segment| segment.path == Store::segment_path(segment.id)) {
            return wrong("names segments that no build names so");
        }
        Ok(())
    }
}

/// What a group gave, as an edit has it.
pub(crate) fn built_of(result: &GroupResult) -> Result<BuiltSegments> {
    let mut built = BuiltSegments { segments: result.segments.clone(), ..BuiltSegments::default() };
    for BuiltFile { file, schema } in &result.files {
        let bytes = schema::to_bytes(schema)?;
        let schema = schema_in(&mut built, bytes)?;
        built.files.push(ManifestFile { schema, ..file.clone() });
    }
    Ok(built)
}

/// The number of a schema in an edit, which gets the schema if it lacks it.
pub(super) fn schema_in(built: &mut BuiltSegments, bytes: Vec<u8>) -> Result<u32> {
    let known = built.schemas.iter().position(|have| fingerprint(have) == fingerprint(&bytes) && *have == bytes);
    let place = known.unwrap_or_else(|| {
        built.schemas.push(bytes);
        built.schemas.len() - 1
    });
    u32::try_from(place).map_err(|_| Error::unsupported("too many schemas"))
}

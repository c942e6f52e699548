//! Data files matched with what the manifest knows of them, by path and size.
//!
//! All files of a table are matched with all files of the manifest, for which nobody has to read its pages of paths. Whoever matches a few
//! reads the pages of these.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use lakemark_format::{Manifest, ManifestFile};

use super::digest::{DigestedLists, FilesDigest};
use super::segment_verdicts::SegmentVerdicts;
use super::{DataFile, FileIndexState};
use crate::error::Result;
use crate::files::parted_list::PartedList;
use crate::storage::file_time::{modified_ns, was_young};
use crate::store::manifests::file_of;
use crate::values::schema;

/// What was found out when the files of a snapshot were matched, for whoever makes the next snapshot and for searches.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchedFiles {
    pub(super) schemas: Arc<KnownSchemas>,
    pub digest: Arc<FilesDigest>,
    /// Which segments say of their files what the manifest says.
    pub verdicts: Arc<SegmentVerdicts>,
}

impl MatchedFiles {
    /// Of all files of a snapshot.
    pub(super) fn of(
        matcher: &FileMatcher<'_>,
        files: &PartedList<DataFile>,
        states: &PartedList<FileIndexState>,
    ) -> Self {
        let digest = Arc::new(FilesDigest::of(DigestedLists { files, states }, None));
        Self { schemas: Arc::clone(&matcher.schemas), digest, verdicts: Arc::default() }
    }

    /// The same of other files, of which segments say the same.
    pub(crate) fn of_files(&self, files: &PartedList<DataFile>, states: &PartedList<FileIndexState>) -> Self {
        let digest = Arc::new(FilesDigest::of(DigestedLists { files, states }, None));
        Self { digest, ..self.clone() }
    }
}

/// A schema of a manifest.
#[derive(Clone, Debug)]
struct KnownSchema {
    bytes: Arc<[u8]>,
    schema: SchemaRef,
}

/// The schemas of a manifest by their numbers, decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownSchemas(HashMap<u32, KnownSchema>);

impl KnownSchemas {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those of a manifest. What was decoded before is taken from there.
    fn of(manifest: &Manifest, before: &Self) -> Result<Self> {
        let known = manifest.schemas().map(|(number, bytes)| {
            let same = before.0.get(&number).filter(|known| Arc::ptr_eq(&known.bytes, bytes) || known.bytes == *bytes);
            let schema = same.map_or_else(|| schema::from_bytes(bytes), |known| Ok(Arc::clone(&known.schema)))?;
            Ok((number, KnownSchema { bytes: Arc::clone(bytes), schema }))
        });
        known.collect::<Result<_>>().map(Self)
    }
}

/// Matches files with a manifest.
pub(super) struct FileMatcher<'a> {
    /// None where nothing is known of any file.
    manifest: Option<&'a Manifest>,
    pub schemas: Arc<KnownSchemas>,
}

impl<'a> FileMatcher<'a> {
    /// With a manifest, if there is one whose schemas can be read.
    pub(super) fn new(manifest: Option<&'a Manifest>, before: &KnownSchemas) -> Self {
        let schemas = manifest.map(|manifest| KnownSchemas::of(manifest, before));
        match schemas.unwrap_or_else(|| Ok(KnownSchemas::default())) {
            Ok(schemas) => Self { manifest, schemas: Arc::new(schemas) },
            Err(error) => {
                tracing::warn!(reason = "segment_corrupt", %error, "the indexes are not used");
                Self { manifest: None, schemas: Arc::default() }
            }
        }
    }

    /// Whether there is a manifest, and its schemas cannot be read.
    pub(super) fn is_blind(&self, manifest: Option<&Manifest>) -> bool {
        self.manifest.is_none() && manifest.is_some()
    }

    /// What the manifest knows of a data file, which gets its row groups from there.
    ///
    /// # Errors
    /// The manifest has not read the file's path.
    pub(super) fn match_file(&self, file: &mut DataFile) -> Result<FileIndexState> {
        let Some(manifest) = self.manifest else { return Ok(FileIndexState::default()) };
        let number = manifest.number_of(&file.path)?;
        Ok(self.match_number(file, number.and_then(|number| Some((number, file_of(manifest, number)?)))))
    }

    /// The same of all files of a table.
    ///
    /// # Errors
    /// The manifest has not read all of its files.
    pub(super) fn match_all(&self, files: &mut PartedList<DataFile>) -> Result<PartedList<FileIndexState>> {
        let mut known = self.manifest.map(KnownFiles::new);
        let mut states = Vec::with_capacity(files.len());
        for place in 0..files.len() {
            let Some(file) = files.get_mut(place) else { continue };
            let have = known.as_mut().map_or(Ok(None), |known| known.find(&file.path))?;
            states.push(self.match_number(file, have));
        }
        Ok(states.into())
    }

    fn match_number(&self, file: &mut DataFile, have: Option<(u32, &ManifestFile)>) -> FileIndexState {
        have.map_or_else(FileIndexState::default, |(number, have)| {
            let schema = self.schemas.0.get(&have.schema).map(|known| &known.schema);
            match_known(file, number, have, schema)
        })
    }
}

/// The files of a manifest, for whoever looks for all of a table, in the order of their paths.
struct KnownFiles<'a> {
    manifest: &'a Manifest,
    /// The number after the one that was found last. Files mostly entered in the order of their paths.
    next: u32,
    /// All files by path, once one was not found under the next number.
    by_path: Option<HashMap<&'a str, u32>>,
}

impl<'a> KnownFiles<'a> {
    fn new(manifest: &'a Manifest) -> Self {
        Self { manifest, next: 0, by_path: None }
    }

    /// The file of a path with its number; none if the manifest has none.
    fn find(&mut self, path: &str) -> Result<Option<(u32, &'a ManifestFile)>> {
        let found = match self.manifest.file(self.next)? {
            Some(file) if file.path == path => Some(self.next),
            _ => self.by_path()?.get(path).copied(),
        };
        let Some(number) = found else { return Ok(None) };
        self.next = number.saturating_add(1);
        Ok(self.manifest.file(number)?.map(|file| (number, file.as_ref())))
    }

    fn by_path(&mut self) -> Result<&HashMap<&'a str, u32>> {
        let by_path = match self.by_path.take() {
            Some(by_path) => by_path,
            None => self
                .manifest
                .files()
                .map(|entry| entry.map(|(number, file)| (file.path.as_str(), number)))
                .collect::<Result<_, _>>()?,
        };
        Ok(&*self.by_path.insert(by_path))
    }
}

/// What a manifest knows of a data file that it has under a number.
fn match_known(file: &mut DataFile, number: u32, have: &ManifestFile, schema: Option<&SchemaRef>) -> FileIndexState {
    if have.size != file.meta.size {
        return FileIndexState { size_changed: true, ..FileIndexState::default() };
    }
    let same = match (&have.etag, &file.meta.e_tag) {
        (Some(have), Some(now)) => have == now,
        (Some(have), None) if was_young(have) => false,
        _ => have.modified_ns == modified_ns(&file.meta),
    };
    // Also for a file in doubt: what is not there misleads nobody.
    file.false_statistics = have.false_statistics.as_slice().into();
    if !same {
        return FileIndexState { number: Some(number), unverified: true, ..FileIndexState::default() };
    }
    file.row_groups = Some(have.row_groups.clone());
    FileIndexState { number: Some(number), unverified: false, size_changed: false, schema: schema.cloned() }
}

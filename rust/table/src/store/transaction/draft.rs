//! The changes of files and segments while they are collected.
//!
//! ```text
//! a file comes that is not known                  ─▶ it gets the next number
//! a file comes in another version                 ─▶ its old number leaves, and it gets a new one: older segments do not cover it
//! a file was touched, or more is known of it      ─▶ it changes under its number
//! the last file of a segment leaves               ─▶ the segment leaves
//! the last segment of a file leaves               ─▶ the file leaves, unless its false statistics are known
//! the last file of a schema leaves                ─▶ the schema leaves
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use lakemark_format::{
    AddedFiles, AddedSchemas, FileNumbers, Manifest, ManifestChanges, ManifestFile, ManifestSegment,
};

use super::applied::has_as_built;
use super::{Adoption, BuiltSegments};
use crate::error::{Error, Result};

/// What an edit changes of files and segments.
pub(super) struct Draft<'a> {
    base: &'a Manifest,
    /// Files that stay, as they are from now on.
    changed: BTreeMap<u32, ManifestFile>,
    removed: BTreeSet<u32>,
    added: Vec<ManifestFile>,
    /// The places of added files by their paths.
    places: HashMap<String, usize>,
    schemas: Vec<Vec<u8>>,
    segments_removed: BTreeSet<[u8; 16]>,
    segments_added: Vec<ManifestSegment>,
}

/// What a file of a build is to the manifest.
#[derive(Clone, Copy)]
enum Known {
    /// The manifest has this version of the file, under a number.
    Same(u32),
    /// The manifest has none of the path, or another version, under a number.
    New(Option<u32>),
}

impl<'a> Draft<'a> {
    pub(super) fn new(base: &'a Manifest) -> Self {
        let (changed, removed, segments_removed) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let (added, places, schemas, segments_added) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        Self { base, changed, removed, added, places, schemas, segments_removed, segments_added }
    }

    pub(super) fn remove_segments(&mut self, ids: impl IntoIterator<Item = [u8; 16]>) {
        self.segments_removed.extend(ids);
    }

    /// Takes a removal back.
    pub(super) fn keep_segments(&mut self, ids: &[[u8; 16]]) {
        self.segments_removed.retain(|id| !ids.contains(id));
    }

    /// Gives touched files their new identity; says whether there was one.
    pub(super) fn adopt(&mut self, adopted: &[Adoption]) -> Result<bool> {
        for adoption in adopted {
            let Some(number) = self.base.number_of(&adoption.was.path)? else { continue };
            let Some(mut file) = self.file(number)?.cloned() else { continue };
            if adoption.apply(&mut file) {
                self.changed.insert(number, file);
            }
        }
        Ok(!self.changed.is_empty())
    }

    /// Adds the segments that cover what nothing covers yet, with their files; says whether there is one.
    pub(super) fn add(&mut self, built: &BuiltSegments) -> Result<bool> {
        let mut known = Vec::with_capacity(built.files.len());
        for file in &built.files {
            known.push(self.look_up(file, built)?);
        }
        let accepted = self.accepted(built, &known)?;
        if accepted.is_empty() {
            // More may be known of files, which is no reason to commit.
            return Ok(false);
        }
        let covered: BTreeSet<u32> = accepted.iter().flat_map(|segment| segment.files.iter()).collect();
        let mut numbers = BTreeMap::new();
        for (place, (file, known)) in (0u32..).zip(built.files.iter().zip(&known)) {
            let number = match known {
                Known::Same(number) => Some(self.learn(*number, file)?),
                Known::New(before) => {
                    self.removed.extend(*before);
                    let is_of_use = covered.contains(&place) || !file.false_statistics.is_empty();
                    if is_of_use { self.add_file(file, built)? } else { None }
                }
            };
            numbers.extend(number.map(|number| (place, number)));
        }
        for segment in accepted {
            let mut files: FileNumbers =
                segment.files.iter().filter_map(|place| numbers.get(&place).copied()).collect();
            if let Some(have) = self.base.segment(&segment.id) {
                files = files.union(&self.kept_files(have, segment, built));
                self.segments_removed.insert(segment.id);
            }
            if !files.is_empty() {
                self.segments_added.push(ManifestSegment { files, ..segment.clone() });
            }
        }
        Ok(true)
    }

    /// The file of a number, as it is from now on.
    fn file(&self, number: u32) -> Result<Option<&ManifestFile>> {
        match self.changed.get(&number) {
            Some(file) => Ok(Some(file)),
            None => Ok(self.base.file(number)?.map(Arc::as_ref)),
        }
    }

    fn look_up(&self, file: &ManifestFile, built: &BuiltSegments) -> Result<Known> {
        let Some(number) = self.base.number_of(&file.path)? else { return Ok(Known::New(None)) };
        let Some(have) = self.file(number)? else { return Ok(Known::New(None)) };
        let schema = built.schemas.get(file.schema as usize).map(Vec::as_slice);
        let is_same = have.is_same_version(file) && self.base.schema(have.schema).map(Arc::as_ref) == schema;
        Ok(if is_same { Known::Same(number) } else { Known::New(Some(number)) })
    }

    /// The files that a segment goes on to cover which was built again under its name: none if it may have other bytes now. It has other
    /// ones with another length. Of one that was lost or is removed nobody knows what it had.
    fn kept_files(&self, have: &ManifestSegment, again: &ManifestSegment, built: &BuiltSegments) -> FileNumbers {
        let is_lost = built.lost.contains(&have.id) || self.segments_removed.contains(&have.id);
        let stays = |number: &u32| self.base.is_live(*number) && !self.removed.contains(number);
        match have.length == again.length && !is_lost {
            true => have.files.iter().filter(stays).collect(),
            false => FileNumbers::default(),
        }
    }

    /// The built segments that a manifest needs. A builder that was faster may have covered the same files; an index may have been dropped
    /// meanwhile. One that was built again under its name is needed where it has another length, as the manifest would go on to miss it, and
    /// where it has files that the manifest does not give it.
    fn accepted<'b>(&self, built: &'b BuiltSegments, known: &[Known]) -> Result<Vec<&'b ManifestSegment>> {
        let declared: HashSet<[u8; 16]> = self.base.indexes().map(|index| index.id).collect();
        // A segment with a new file covers what nothing does: only one of files that are all known needs a look at the others.
        let number = |place: u32| match known.get(place as usize) {
            Some(Known::Same(number)) => Some(*number),
            _ => None,
        };
        let numbers = |segment: &ManifestSegment| segment.files.iter().map(number).collect::<Option<Vec<u32>>>();
        let mut candidates: Vec<(&ManifestSegment, Option<Vec<u32>>)> = Vec::new();
        for segment in built.segments.iter().filter(|segment| declared.contains(&segment.index_id)) {
            if !has_as_built(self.base, built, segment)? {
                candidates.push((segment, numbers(segment)));
            }
        }
        let in_doubt = candidates.iter().filter(|(_, numbers)| numbers.is_some()).map(|(segment, _)| segment.index_id);
        let rebuilt: HashSet<[u8; 16]> = candidates.iter().map(|(segment, _)| segment.id).collect();
        let covered = self.covered(&in_doubt.collect(), &rebuilt);
        let is_covered = |segment: &ManifestSegment, numbers: &Option<Vec<u32>>| {
            let have = self.base.segment(&segment.id);
            let own = have.map(|have| self.kept_files(have, segment, built)).unwrap_or_default();
            let is_in = |number: &u32| {
                own.contains(*number) || covered.get(&segment.index_id).is_some_and(|covered| covered.contains(*number))
            };
            numbers.as_ref().is_some_and(|numbers| numbers.iter().all(is_in))
        };
        let accepted = candidates.iter().filter(|(segment, numbers)| !is_covered(segment, numbers));
        Ok(accepted.map(|(segment, _)| *segment).collect())
    }

    /// The files that segments of these indexes cover which stay, without those that were built again.
    fn covered(&self, indexes: &HashSet<[u8; 16]>, rebuilt: &HashSet<[u8; 16]>) -> HashMap<[u8; 16], FileNumbers> {
        let mut files: HashMap<[u8; 16], Vec<u32>> = HashMap::new();
        if indexes.is_empty() {
            return HashMap::new();
        }
        for segment in self.base.segments().filter(|segment| indexes.contains(&segment.index_id)) {
            if !self.segments_removed.contains(&segment.id) && !rebuilt.contains(&segment.id) {
                files.entry(segment.index_id).or_default().extend(segment.files.iter());
            }
        }
        files.into_iter().map(|(index, numbers)| (index, numbers.into_iter().collect())).collect()
    }

    /// Of these files those that no segment covers any more. Those that come are asked first, as they cover what they replace.
    fn uncovered(&self, mut files: FileNumbers) -> FileNumbers {
        let stay = self.base.segments().map(Arc::as_ref).filter(|segment| !self.segments_removed.contains(&segment.id));
        for segment in self.segments_added.iter().chain(stay) {
            if files.is_empty() {
                break;
            }
            if files.intersects(&segment.files) {
                files = files.difference(&segment.files);
            }
        }
        files
    }

    /// Adds what a build knows of a file that is the same; gives its number.
    fn learn(&mut self, number: u32, file: &ManifestFile) -> Result<u32> {
        let Some(have) = self.file(number)? else { return Ok(number) };
        let columns = joined(&have.false_statistics, &file.false_statistics);
        if columns != have.false_statistics {
            let learned = ManifestFile { false_statistics: columns, ..have.clone() };
            self.changed.insert(number, learned);
        }
        Ok(number)
    }

    /// Adds a file; gives its number. Tasks of a build that fill other indexes bring the same file again. None if they bring another version of
    /// it, which the first one's segments do not cover.
    fn add_file(&mut self, file: &ManifestFile, built: &BuiltSegments) -> Result<Option<u32>> {
        let place = match self.places.get(&file.path).copied() {
            None => {
                let bytes = built.schemas.get(file.schema as usize).cloned().unwrap_or_default();
                let schema = self.schema_number(bytes)?;
                self.places.insert(file.path.clone(), self.added.len());
                self.added.push(ManifestFile { schema, ..file.clone() });
                self.added.len() - 1
            }
            Some(place) => {
                let have = self.added.get_mut(place).filter(|have| have.is_same_version(file));
                let Some(have) = have else { return Ok(None) };
                have.false_statistics = joined(&have.false_statistics, &file.false_statistics);
                place
            }
        };
        after(self.base.next_file(), place).map(Some)
    }

    /// The number of a schema, which is added where the manifest lacks it.
    fn schema_number(&mut self, bytes: Vec<u8>) -> Result<u32> {
        if let Some((number, _)) = self.base.schemas().find(|(_, have)| have.as_ref() == bytes) {
            return Ok(number);
        }
        let place = self.schemas.iter().position(|have| *have == bytes).unwrap_or_else(|| {
            self.schemas.push(bytes);
            self.schemas.len() - 1
        });
        after(self.base.next_schema(), place)
    }

    /// The changes, with all that leaves because of them.
    pub(super) fn finish(mut self) -> Result<ManifestChanges> {
        self.remove_emptied_segments();
        self.remove_uncovered_files()?;
        self.changed.retain(|number, _| !self.removed.contains(number));
        let schemas_removed = self.unused_schemas()?;
        let (next_file, next_schema) = (self.base.next_file(), self.base.next_schema());
        let mut changes = ManifestChanges {
            files_removed: FileNumbers::from_sorted(self.removed),
            schemas_removed,
            schemas_added: AddedSchemas {
                first: if self.schemas.is_empty() { 0 } else { next_schema },
                schemas: self.schemas,
            },
            files_changed: self.changed.into_iter().collect(),
            files_added: AddedFiles { first: if self.added.is_empty() { 0 } else { next_file }, files: self.added },
            segments_removed: self.segments_removed.into_iter().collect(),
            segments_added: self.segments_added,
            ..ManifestChanges::default()
        };
        changes.sort();
        Ok(changes)
    }

    /// Segments leave with the last of their files.
    fn remove_emptied_segments(&mut self) {
        let removed = FileNumbers::from_sorted(self.removed.iter().copied());
        if removed.is_empty() {
            return;
        }
        let is_emptied = |segment: &&Arc<ManifestSegment>| {
            let is_left = |number| self.base.is_live(number) && !removed.contains(number);
            segment.files.intersects(&removed) && !segment.files.iter().any(is_left)
        };
        let emptied: Vec<[u8; 16]> = self.base.segments().filter(is_emptied).map(|segment| segment.id).collect();
        self.segments_removed.extend(emptied);
    }

    /// Files leave with the last of their segments. What is known of a footer is of use without an index, too.
    fn remove_uncovered_files(&mut self) -> Result<()> {
        let mut files: Vec<u32> = Vec::new();
        for segment in self.segments_removed.iter().filter_map(|id| self.base.segment(id)) {
            files.extend(segment.files.iter().filter(|file| self.base.is_live(*file) && !self.removed.contains(file)));
        }
        for number in self.uncovered(files.into_iter().collect()).iter() {
            if self.file(number)?.is_some_and(|file| file.false_statistics.is_empty()) {
                self.removed.insert(number);
            }
        }
        Ok(())
    }

    /// Schemas of files that leave, if no other file has them. Almost always another one has, among the first.
    fn unused_schemas(&self) -> Result<Vec<u32>> {
        let mut unused: BTreeSet<u32> = BTreeSet::new();
        for number in &self.removed {
            unused.extend(self.base.file(*number)?.map(|file| file.schema));
        }
        for file in &self.added {
            unused.remove(&file.schema);
        }
        for entry in self.base.files() {
            if unused.is_empty() {
                break;
            }
            let (number, file) = entry?;
            if !self.removed.contains(&number) {
                unused.remove(&file.schema);
            }
        }
        Ok(unused.into_iter().collect())
    }
}

/// Columns with false statistics that either build has found.
fn joined(known: &[u32], found: &[u32]) -> Vec<u32> {
    let columns: BTreeSet<u32> = known.iter().chain(found).copied().collect();
    columns.into_iter().collect()
}

/// The number that is so many behind the first one.
fn after(first: u32, place: usize) -> Result<u32> {
    let number = u32::try_from(place).ok().and_then(|place| first.checked_add(place));
    number.ok_or_else(|| {
        Error::unsupported("the store has numbered 4,294,967,295 data files; delete the store folder, and index again")
    })
}

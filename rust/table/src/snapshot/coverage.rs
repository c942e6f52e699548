//! How much of a snapshot the indexes cover, and how long its oldest file has been waiting for one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use lakemark_format::{FileNumbers, Manifest, ManifestSegment};

use super::{ReadableSnapshot, Snapshot};
use crate::metrics::{CoverageOfIndex, IndexCoverage};
use crate::store::manifests::file_of;

/// What segments cover of a snapshot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CoveredFiles {
    pub files: u64,
    pub rows: u64,
}

impl Snapshot {
    /// How much the indexes cover. Reads nothing: segments that are lost count until a build has found out.
    #[must_use]
    pub fn index_coverage(&self) -> IndexCoverage {
        let indexes = self.indexes().into_iter().map(|index| CoverageOfIndex {
            name: index.name,
            coverage: index.coverage,
            segments: index.segments,
            bytes: index.bytes,
        });
        let mut coverage =
            IndexCoverage { files: self.files().len() as u64, indexes: indexes.collect(), ..IndexCoverage::default() };
        for file in self.uncovered_files().into_iter().filter_map(|place| self.files().get(place)) {
            coverage.uncovered_files += 1;
            let written = SystemTime::from(file.meta.last_modified);
            coverage.oldest_uncovered = Some(coverage.oldest_uncovered.map_or(written, |oldest| oldest.min(written)));
        }
        coverage
    }

    /// What these segments of a manifest cover.
    pub(super) fn covered_by<'a>(
        &self,
        manifest: &Manifest,
        segments: impl Iterator<Item = &'a ManifestSegment>,
    ) -> CoveredFiles {
        let digest = &self.matched.digest;
        let (settled, covered) = (digest.numbers(), numbers_of(segments));
        let covered = settled.intersection(&covered);
        let rows_of = |numbers: &FileNumbers| -> u64 {
            numbers.iter().filter_map(|number| file_of(manifest, number)).map(|file| file.rows()).sum()
        };
        // The fewer files are looked at.
        let uncovered = settled.difference(&covered);
        let rows = match uncovered.len() < covered.len() {
            true => digest.settled().rows.saturating_sub(rows_of(&uncovered)),
            false => rows_of(&covered),
        };
        CoveredFiles { files: covered.len(), rows }
    }

    /// The places of the files that some index does not cover. An index whose column is gone asks for nothing.
    fn uncovered_files(&self) -> Vec<usize> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let mut usable = manifest.indexes().filter(|index| self.is_usable(index)).peekable();
        if usable.peek().is_none() {
            return Vec::new();
        }
        let digest = &self.matched.digest;
        let covered = usable.fold(digest.numbers().clone(), |covered, index| {
            let segments = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
            covered.intersection(&numbers_of(segments))
        });
        let uncovered = digest.numbers().difference(&covered);
        let is_covered = |place: &usize| {
            let state = self.index_states.get(*place).filter(|state| !state.unverified);
            state.and_then(|state| state.number).is_some_and(|number| covered.contains(number))
        };
        digest.parts_with(&uncovered).flatten().filter(|place| !is_covered(place)).collect()
    }

    /// A number that is another one, as good as surely, once a data file or a declaration of an index is another one: what a build goes by.
    fn build_state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.matched.digest.versions(&self.files).hash(&mut hasher);
        for index in self.manifest.iter().flat_map(|manifest| manifest.indexes()) {
            (index.id, self.is_usable(index)).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The numbers of the files of segments.
fn numbers_of<'a>(segments: impl Iterator<Item = &'a ManifestSegment>) -> FileNumbers {
    segments.flat_map(|segment| segment.files.ranges().iter().cloned()).collect()
}

impl ReadableSnapshot {
    /// How much the indexes cover, where a file that cannot be read is one that no index covers.
    pub(crate) fn index_coverage(&self) -> IndexCoverage {
        let mut coverage = self.snapshot.index_coverage();
        let readable = coverage.files;
        coverage.files += self.unreadable.len() as u64;
        if coverage.indexes.is_empty() || self.unreadable.is_empty() {
            return coverage;
        }
        for index in &mut coverage.indexes {
            index.coverage *= readable as f64 / coverage.files as f64;
        }
        coverage.uncovered_files += self.unreadable.len() as u64;
        let written = self.unreadable.iter().map(|file| file.written);
        coverage.oldest_uncovered = coverage.oldest_uncovered.into_iter().chain(written).min();
        coverage
    }

    /// As [`Snapshot::build_state`], of files that cannot be read, too.
    pub(crate) fn build_state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.snapshot.build_state().hash(&mut hasher);
        for file in &self.unreadable {
            (&file.path, file.written).hash(&mut hasher);
        }
        hasher.finish()
    }
}

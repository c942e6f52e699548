//! How much of a snapshot the indexes cover, and how long its oldest file has been waiting for one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::SystemTime;

use lakemark_format::FileNumbers;

use super::{ReadableSnapshot, Snapshot};
use crate::metrics::{CoverageOfIndex, IndexCoverage};
use crate::storage::file_time::modified_ns;

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
        let covered = self.covered_by_each();
        for (state, file) in self.index_states.iter().zip(self.files()) {
            let number = state.number.filter(|_| !state.unverified);
            if covered.iter().all(|of_index| number.is_some_and(|number| of_index.contains(number))) {
                continue;
            }
            coverage.uncovered_files += 1;
            let written = SystemTime::from(file.meta.last_modified);
            coverage.oldest_uncovered = Some(coverage.oldest_uncovered.map_or(written, |oldest| oldest.min(written)));
        }
        coverage
    }

    /// The numbers of the files that each index covers. An index whose column is gone asks for nothing.
    fn covered_by_each(&self) -> Vec<FileNumbers> {
        let Some(manifest) = &self.manifest else { return Vec::new() };
        let usable = manifest.indexes().filter(|index| self.is_usable(index));
        let covered = usable.map(|index| {
            let segments = manifest.segments().filter(|segment| segment.index_id == index.id);
            segments.flat_map(|segment| segment.files.iter()).collect()
        });
        covered.collect()
    }

    /// A number that is another one, as good as surely, once a data file or a declaration of an index is another one: what a build goes by.
    fn build_state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for file in self.files() {
            (&file.path, file.meta.size, modified_ns(&file.meta), &file.meta.e_tag).hash(&mut hasher);
        }
        for index in self.manifest.iter().flat_map(|manifest| manifest.indexes()) {
            (index.id, self.is_usable(index)).hash(&mut hasher);
        }
        hasher.finish()
    }
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

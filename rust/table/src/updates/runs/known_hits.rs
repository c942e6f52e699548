//! What is known of where the keys of a run are in data files.
//!
//! Most files have none of the keys. Of these a run keeps only the list of files in which it searched them. Snapshots share that list.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use lakemark_index::RowSet;

use crate::files::file_version::FileVersion;
use crate::files::parted_list::PartedList;
use crate::snapshot::DataFile;

/// So many lists of files are remembered: readers of a few versions in turn do not search the files of each other anew.
const LISTS: usize = 4;

/// Where the keys of a run are in a data file: positions of all keys, in all physical rows. They hold for every version of the table and every
/// manifest. Each snapshot takes out what its own state says.
#[derive(Clone, Debug)]
pub(crate) struct FilePositions {
    /// Rows of the file per row group.
    pub row_groups: Vec<u32>,
    /// Rows of the file whose key is in the run.
    pub deleted: Arc<RowSet>,
    /// Rows of the run whose missing columns were taken from this file.
    pub completed: RowSet,
}

/// What a run was resolved to in a data file.
#[derive(Clone, Debug)]
pub(crate) struct HitsOfFile {
    pub file: FileVersion,
    pub hits: Arc<FilePositions>,
}

/// The hits of a run, as far as they are known.
#[derive(Default)]
pub(super) struct KnownHits {
    /// Of files that have some of the keys.
    some: HashMap<FileVersion, Arc<FilePositions>>,
    /// Of files that were looked at and have none.
    none: HashMap<FileVersion, Arc<FilePositions>>,
    /// Files that were resolved together, the latest list first: all that are in neither map have none.
    resolved: VecDeque<PartedList<DataFile>>,
}

impl FilePositions {
    /// Of a file that has none of the keys.
    fn none(row_groups: Vec<u32>, run_rows: u32) -> Self {
        let rows = row_groups.iter().copied().fold(0, u32::saturating_add);
        Self { row_groups, deleted: Arc::new(RowSet::empty(rows)), completed: RowSet::empty(run_rows) }
    }

    fn is_none(&self) -> bool {
        self.deleted.is_empty() && self.completed.is_empty()
    }
}

impl KnownHits {
    pub(super) fn set(&mut self, file: FileVersion, hits: Arc<FilePositions>) {
        let (own, other) = match hits.is_none() {
            true => (&mut self.none, &mut self.some),
            false => (&mut self.some, &mut self.none),
        };
        other.remove(&file);
        own.insert(file, hits);
    }

    pub(super) fn set_resolved(&mut self, files: &PartedList<DataFile>) {
        let known = self.resolved.iter().position(|list| list.is_same_list(files));
        let list = known.and_then(|place| self.resolved.remove(place)).unwrap_or_else(|| files.clone());
        self.resolved.push_front(list);
        self.resolved.truncate(LISTS);
    }

    pub(super) fn hits_among(&self, files: &PartedList<DataFile>) -> BTreeMap<usize, Arc<FilePositions>> {
        let some = self.some.iter();
        some.filter_map(|(version, hits)| Some((place_of(version, files)?, Arc::clone(hits)))).collect()
    }

    /// The hits of the files that have some.
    pub(super) fn some(&self) -> Vec<HitsOfFile> {
        let some = self.some.iter();
        some.map(|(file, hits)| HitsOfFile { file: file.clone(), hits: Arc::clone(hits) }).collect()
    }

    /// The files that were resolved last.
    pub(super) fn resolved(&self) -> Option<&PartedList<DataFile>> {
        self.resolved.front()
    }

    pub(super) fn unresolved_among(&self, files: &PartedList<DataFile>) -> Vec<usize> {
        let shared: HashSet<*const Vec<DataFile>> =
            self.resolved.iter().flat_map(PartedList::parts).map(Arc::as_ptr).collect();
        let (mut unresolved, mut first) = (Vec::new(), 0);
        for part in files.parts() {
            if !shared.contains(&Arc::as_ptr(part)) {
                let open = part.iter().enumerate().filter(|(_, file)| !self.is_known(file));
                unresolved.extend(open.map(|(place, _)| first + place));
            }
            first += part.len();
        }
        unresolved
    }

    /// The hits of all files that are known: of those without a hit, the ones that were resolved last.
    pub(super) fn all(&self, run_rows: u32) -> Vec<HitsOfFile> {
        let known = self.some.iter().chain(&self.none);
        let mut all: Vec<HitsOfFile> =
            known.map(|(file, hits)| HitsOfFile { file: file.clone(), hits: Arc::clone(hits) }).collect();
        for file in self.resolved.front().into_iter().flatten() {
            let version = file.version();
            let is_known = self.looked_at(&version).is_some();
            if let Some(row_groups) = file.row_groups.clone().filter(|_| !is_known) {
                all.push(HitsOfFile { file: version, hits: Arc::new(FilePositions::none(row_groups, run_rows)) });
            }
        }
        all
    }

    fn is_known(&self, file: &DataFile) -> bool {
        self.looked_at(&file.version()).is_some() || self.in_resolved(file).is_some()
    }

    /// The hits of a version of a file that was looked at by itself.
    fn looked_at(&self, version: &FileVersion) -> Option<&Arc<FilePositions>> {
        self.some.get(version).or_else(|| self.none.get(version))
    }

    /// The same version of a file among those that were resolved together.
    fn in_resolved(&self, file: &DataFile) -> Option<&DataFile> {
        self.resolved.iter().find_map(|list| {
            let place = list.partition_point(|have| have.path < file.path);
            list.get(place).filter(|have| have.is_same_version(file))
        })
    }
}

/// The place of a version of a file in a list, if the list has it.
pub(super) fn place_of(version: &FileVersion, files: &PartedList<DataFile>) -> Option<usize> {
    let place = files.partition_point(|file| file.path < version.path);
    files.get(place).filter(|file| file.version() == *version).map(|_| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_ROWS: u32 = 9;

    fn file(number: u64, size: u64) -> DataFile {
        DataFile::of_test(&format!("{number:05}.parquet"), size, Some(vec![5, 5]))
    }

    fn hits(rows: &[u32]) -> Arc<FilePositions> {
        let deleted = Arc::new(RowSet::from_rows(rows.to_vec(), 10));
        Arc::new(FilePositions { row_groups: vec![5, 5], deleted, completed: RowSet::empty(RUN_ROWS) })
    }

    #[test]
    fn files_that_were_resolved_together_are_known_and_only_hits_are_visited() {
        let files: PartedList<DataFile> = (0..2000).map(|number| file(number, 1)).collect();
        let mut known = KnownHits::default();
        assert_eq!(known.unresolved_among(&files).len(), 2000);
        known.set(file(700, 1).version(), hits(&[3]));
        known.set(file(701, 1).version(), hits(&[]));
        known.set_resolved(&files);
        assert!(known.unresolved_among(&files).is_empty());
        assert_eq!(known.hits_among(&files).into_keys().collect::<Vec<_>>(), [700]);
        assert_eq!(known.all(RUN_ROWS).len(), 2000);
        // Another version of a file is another file.
        let now: PartedList<DataFile> = (0..2001).map(|number| file(number, 1 + u64::from(number == 700))).collect();
        assert_eq!(known.unresolved_among(&now), [700, 2000]);
        assert!(known.hits_among(&now).is_empty());
    }

    #[test]
    fn two_versions_of_a_table_in_turn_are_resolved_once_each() {
        let list = |size| -> PartedList<DataFile> { (0..600).map(|number| file(number, size)).collect() };
        let (before, now) = (list(1), list(2));
        let mut known = KnownHits::default();
        for _ in 0..LISTS {
            known.set_resolved(&before);
            known.set_resolved(&now);
        }
        assert!(known.unresolved_among(&before).is_empty() && known.unresolved_among(&now).is_empty());
        assert_eq!((known.resolved.len(), known.all(RUN_ROWS).len()), (2, 600));
        // The list that was not asked for the longest is forgotten.
        (3..6).for_each(|size| known.set_resolved(&list(size)));
        assert_eq!((known.unresolved_among(&before).len(), known.unresolved_among(&now).len()), (600, 0));
        assert_eq!(known.all(RUN_ROWS).len(), 600);
    }
}

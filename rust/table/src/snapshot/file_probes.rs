//! What a probe found of the files of a snapshot, kept for those files alone of which there is something to tell.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{LazyLock, OnceLock};

use lakemark_index::RowSet;

use super::FileProbe;

/// What is found of a file that is ruled out as a whole.
static RULED_OUT: LazyLock<FileProbe> =
    LazyLock::new(|| FileProbe::Known { row_groups: Vec::new(), exact: RowSet::empty(0), recheck: RowSet::empty(0) });

/// What a probe found of one file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProbedFile {
    /// The place of the file in the snapshot.
    pub file: usize,
    pub probe: FileProbe,
}

/// What a probe found of every file of the snapshot, in the order of [`Snapshot::files`](super::Snapshot::files).
///
/// A file that is not listed is ruled out: an index covers it, and the predicate is true of no row of it. Of a count it may also have been
/// counted with another file of its segment. [`Self::listed`] visits the other files alone, so that a lookup costs what it found. As a slice
/// there is an entry for each file, which is made once somebody asks.
#[derive(Clone)]
pub struct FileProbes {
    files: usize,
    /// By place, ascending.
    listed: Vec<ProbedFile>,
    all: OnceLock<Vec<FileProbe>>,
}

impl FileProbes {
    /// Of so many files, of which all are ruled out but these, by place.
    pub(crate) fn of(files: usize, listed: Vec<ProbedFile>) -> Self {
        Self { files, listed, all: OnceLock::new() }
    }

    /// How many files the snapshot has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files
    }

    /// Whether the snapshot has no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// What was found of the file at a place of the snapshot.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&FileProbe> {
        let is_there = place < self.files;
        is_there.then(|| self.get_listed(place).unwrap_or_else(|| &*RULED_OUT))
    }

    /// What was found of the file at a place, if it is listed.
    pub(crate) fn get_listed(&self, place: usize) -> Option<&FileProbe> {
        let at = match self.listed.len() == self.files {
            true => place,
            false => self.listed.binary_search_by_key(&place, |listed| listed.file).ok()?,
        };
        self.listed.get(at).map(|listed| &listed.probe)
    }

    /// What was found of each file.
    #[must_use]
    pub fn iter(&self) -> FileProbesIter<'_> {
        FileProbesIter { probes: self, places: 0..self.files }
    }

    /// The files that are not ruled out as a whole before anything was searched in them, by their places in the snapshot.
    pub fn listed(&self) -> impl ExactSizeIterator<Item = (usize, &FileProbe)> + Clone {
        self.listed.iter().map(|listed| (listed.file, &listed.probe))
    }

    /// Whether rows of some files were only counted, so that files which are not listed may have some.
    pub(crate) fn are_counts(&self) -> bool {
        self.listed.iter().any(|listed| matches!(listed.probe, FileProbe::Counted { .. }))
    }

    /// The same, to be taken.
    pub fn into_listed(self) -> impl ExactSizeIterator<Item = (usize, FileProbe)> {
        self.listed.into_iter().map(|listed| (listed.file, listed.probe))
    }

    /// The same with another finding of each listed file.
    #[must_use]
    pub fn map(&self, change: impl Fn(usize, &FileProbe) -> FileProbe) -> Self {
        let changed = self.listed().map(|(file, probe)| ProbedFile { file, probe: change(file, probe) });
        Self::of(self.files, changed.collect())
    }
}

impl From<Vec<FileProbe>> for FileProbes {
    /// Of all files one by one.
    fn from(all: Vec<FileProbe>) -> Self {
        let files = all.len();
        Self::of(files, all.into_iter().enumerate().map(|(file, probe)| ProbedFile { file, probe }).collect())
    }
}

impl Deref for FileProbes {
    type Target = [FileProbe];

    fn deref(&self) -> &[FileProbe] {
        self.all.get_or_init(|| self.iter().cloned().collect())
    }
}

impl PartialEq for FileProbes {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files && self.iter().eq(other)
    }
}

impl fmt::Debug for FileProbes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileProbes").field("files", &self.files).field("listed", &self.listed).finish()
    }
}

impl<'a> IntoIterator for &'a FileProbes {
    type Item = &'a FileProbe;
    type IntoIter = FileProbesIter<'a>;

    fn into_iter(self) -> FileProbesIter<'a> {
        self.iter()
    }
}

/// What was found of each file of a snapshot.
#[derive(Clone, Debug)]
pub struct FileProbesIter<'a> {
    probes: &'a FileProbes,
    places: Range<usize>,
}

impl<'a> Iterator for FileProbesIter<'a> {
    type Item = &'a FileProbe;

    fn next(&mut self) -> Option<&'a FileProbe> {
        self.probes.get(self.places.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl ExactSizeIterator for FileProbesIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_listed_are_ruled_out() {
        let listed = |file, probe| ProbedFile { file, probe };
        let probes = FileProbes::of(5, vec![listed(1, FileProbe::Unknown), listed(3, FileProbe::Counted { rows: 7 })]);
        let none = FileProbe::Known { row_groups: Vec::new(), exact: RowSet::empty(0), recheck: RowSet::empty(0) };
        let all = [none.clone(), FileProbe::Unknown, none.clone(), FileProbe::Counted { rows: 7 }, none];
        assert_eq!((&probes[..], probes.len(), probes.get(5)), (&all[..], 5, None));
        assert_eq!(probes.listed().map(|(file, _)| file).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(probes, FileProbes::from(all.to_vec()));
        let unknown = probes.map(|_, _| FileProbe::Unknown);
        assert_eq!(unknown.iter().filter(|probe| **probe == FileProbe::Unknown).count(), 2);
    }
}

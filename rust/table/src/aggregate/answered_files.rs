//! Of which files an answer has all exact rows, kept for those alone of which it has not.

use std::collections::BTreeSet;

use super::selected_rows::has_nothing;
use crate::snapshot::FileProbes;

/// For each file of a snapshot whether all of its exact rows are in an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnsweredFiles {
    /// How many files the snapshot has.
    files: usize,
    /// The places of files whose rows are left to be read.
    open: BTreeSet<usize>,
}

impl AnsweredFiles {
    /// So many files, all of which are answered.
    pub(super) fn all_of(files: usize) -> Self {
        Self { files, open: BTreeSet::new() }
    }

    /// The files of a probe before anything is answered: of some it is known that they have no exact row.
    pub(super) fn none_of(files: &FileProbes) -> Self {
        let open = files.listed().filter(|(_, file)| !has_nothing(file)).map(|(place, _)| place);
        // Which file a counted row is of nobody knows.
        let open = if files.are_counts() { (0..files.len()).collect() } else { open.collect() };
        Self { files: files.len(), open }
    }

    /// All rows of the file at a place are in the answer.
    pub(super) fn answer(&mut self, place: usize) {
        self.open.remove(&place);
    }

    /// Rows of these files are not in the answer.
    pub(super) fn leave(&mut self, places: impl Iterator<Item = usize>) {
        self.open.extend(places);
    }

    /// Whether all exact rows of the file at a place are in the answer.
    #[must_use]
    pub fn contains(&self, place: usize) -> bool {
        place < self.files && !self.open.contains(&place)
    }

    /// Whether all files are answered.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.open.is_empty()
    }

    /// The places of the other files, ascending.
    pub fn open(&self) -> impl Iterator<Item = usize> + '_ {
        self.open.iter().copied()
    }

    /// The same of each file.
    pub fn each(&self) -> impl Iterator<Item = bool> + '_ {
        (0..self.files).map(|place| self.contains(place))
    }
}

#[cfg(test)]
mod tests {
    use lakemark_index::RowSet;

    use super::*;
    use crate::snapshot::{FileProbe, ProbedFile};

    #[test]
    fn files_without_an_exact_row_are_answered_before_anything_is() {
        let known = |rows: Vec<u32>| FileProbe::Known {
            row_groups: vec![9],
            exact: RowSet::from_rows(rows, 9),
            recheck: RowSet::from_rows(vec![8], 9),
        };
        let listed = [(1, FileProbe::Unknown), (3, known(vec![2])), (4, known(Vec::new()))];
        let listed = listed.into_iter().map(|(file, probe)| ProbedFile { file, probe });
        let mut answered = AnsweredFiles::none_of(&FileProbes::of(6, listed.collect()));
        assert_eq!(answered.each().collect::<Vec<_>>(), [true, false, true, false, true, true]);
        answered.answer(3);
        assert_eq!((answered.open().collect::<Vec<_>>(), answered.are_all()), (vec![1], false));
        let counted = vec![ProbedFile { file: 1, probe: FileProbe::Counted { rows: 7 } }];
        assert_eq!(AnsweredFiles::none_of(&FileProbes::of(3, counted)).open().count(), 3);
        assert!(answered.contains(3) && !answered.contains(6) && !AnsweredFiles::default().contains(0));
    }
}

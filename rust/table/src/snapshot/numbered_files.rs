//! The files of a snapshot by the numbers that the manifest gives them, as segments name them.

use lakemark_format::FileNumbers;

use super::{FileIndexState, Snapshot};

/// Some files of a snapshot that the manifest knows, in the order of their numbers.
#[derive(Clone, Debug)]
pub(crate) struct NumberedFiles(Vec<NumberedFile>);

#[derive(Clone, Copy, Debug)]
struct NumberedFile {
    number: u32,
    /// Its place in the snapshot.
    file: usize,
    is_taken: bool,
}

impl NumberedFiles {
    /// The files for which `is_wanted`.
    pub(crate) fn of(snapshot: &Snapshot, is_wanted: impl Fn(usize, &FileIndexState) -> bool) -> Self {
        let states = snapshot.index_states.iter().enumerate().filter(|(file, state)| is_wanted(*file, state));
        Self::sorted(states.filter_map(|(file, state)| Some((state.number?, file))))
    }

    /// The files at these places.
    pub(crate) fn at(snapshot: &Snapshot, places: &[usize]) -> Self {
        let number = |file: &usize| Some((snapshot.index_states.get(*file)?.number?, *file));
        Self::sorted(places.iter().filter_map(number))
    }

    fn sorted(files: impl Iterator<Item = (u32, usize)>) -> Self {
        let mut files: Vec<NumberedFile> =
            files.map(|(number, file)| NumberedFile { number, file, is_taken: false }).collect();
        files.sort_unstable_by_key(|file| file.number);
        Self(files)
    }

    /// The file of a number, if it is among them.
    pub(crate) fn get(&self, number: u32) -> Option<usize> {
        let place = self.0.binary_search_by_key(&number, |file| file.number).ok()?;
        self.0.get(place).filter(|file| !file.is_taken).map(|file| file.file)
    }

    /// The files that have one of these numbers.
    pub(crate) fn within<'a>(&'a self, numbers: &'a FileNumbers) -> impl Iterator<Item = usize> + 'a {
        let files = numbers.ranges().iter().flat_map(|range| {
            let from = self.0.partition_point(|file| file.number < range.start);
            self.0.iter().skip(from).take_while(|file| file.number < range.end)
        });
        files.filter(|file| !file.is_taken).map(|file| file.file)
    }

    /// The same, and nobody gets them again.
    pub(crate) fn take(&mut self, numbers: &FileNumbers) -> Vec<usize> {
        let mut taken = Vec::new();
        for range in numbers.ranges() {
            let from = self.0.partition_point(|file| file.number < range.start);
            for file in self.0.iter_mut().skip(from).take_while(|file| file.number < range.end) {
                if !std::mem::replace(&mut file.is_taken, true) {
                    taken.push(file.file);
                }
            }
        }
        taken
    }

    /// Forgets the files for which not `is_kept`.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        self.0.retain(|file| is_kept(file.file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_ranges_of_numbers_and_taken_once() {
        let mut files = NumberedFiles::sorted([(12, 0), (10, 1), (40, 2), (41, 3)].into_iter());
        let numbers = FileNumbers::from_sorted([9, 10, 11, 12, 41]);
        assert_eq!(files.within(&numbers).collect::<Vec<_>>(), [1, 0, 3]);
        assert_eq!((files.get(40), files.get(11)), (Some(2), None));
        assert_eq!(files.take(&FileNumbers::of_range(10..12)), [1]);
        assert_eq!(files.take(&numbers), [0, 3]);
        assert_eq!((files.get(10), files.get(40)), (None, Some(2)));
        files.retain(|file| file != 2);
        assert_eq!(files.within(&FileNumbers::of_range(0..100)).count(), 0);
    }
}

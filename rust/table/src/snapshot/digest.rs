//! What the files of a snapshot come to together, kept by parts of its list of files. A snapshot that was made from another one computes
//! it for the parts that changed.
//!
//! A file is *settled* if it is surely what the manifest has under its number. What a segment says of a settled file holds, so that nobody
//! has to look at the file before a search found something in it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use lakemark_format::FileNumbers;

use super::{DataFile, FileIndexState, Snapshot};
use crate::files::parted_list::PartedList;
use crate::storage::file_time::modified_ns;

/// The first file that has a schema.
#[derive(Clone, Debug)]
struct SchemaOfPart {
    /// Its place in the part.
    place: usize,
    schema: SchemaRef,
}

/// What the files of a part come to.
#[derive(Debug, Default)]
struct PartDigest {
    /// How many files it has.
    files: usize,
    /// The schemas of its files, distinct, in the order of the first file that has each.
    schemas: Vec<SchemaOfPart>,
    /// Places in the part of files that are not settled.
    unsettled: Vec<usize>,
    /// Places in the part of files that have false statistics.
    caught: Vec<usize>,
    /// Numbers of settled files.
    numbers: FileNumbers,
    settled: SettledRows,
    /// The sum of numbers that its files have by their versions, once somebody asks for it.
    versions: OnceLock<u64>,
}

/// How many row groups and rows settled files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SettledRows {
    pub row_groups: u64,
    pub rows: u64,
}

impl SettledRows {
    /// Of a file with these row groups.
    fn of(row_groups: &[u32]) -> Self {
        let rows = row_groups.iter().copied().map(u64::from).sum();
        Self { row_groups: row_groups.len() as u64, rows }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            row_groups: self.row_groups.saturating_sub(other.row_groups),
            rows: self.rows.saturating_sub(other.rows),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self { row_groups: self.row_groups + other.row_groups, rows: self.rows + other.rows }
    }
}

/// What the files of a snapshot come to together.
#[derive(Debug, Default)]
pub(crate) struct FilesDigest {
    /// The place of the first file of each part, with what the part comes to.
    parts: Vec<(usize, Arc<PartDigest>)>,
    /// The numbers of all settled files, once somebody asks for them.
    numbers: OnceLock<FileNumbers>,
}

/// The lists that a digest is about.
#[derive(Clone, Copy)]
pub(super) struct DigestedLists<'a> {
    pub files: &'a PartedList<DataFile>,
    /// One entry per file, in parts as those of the files.
    pub states: &'a PartedList<FileIndexState>,
}

/// The addresses of a part of both lists.
type PartAddress = (*const Vec<DataFile>, *const Vec<FileIndexState>);

impl<'a> DigestedLists<'a> {
    fn parts(self) -> impl Iterator<Item = (&'a Arc<Vec<DataFile>>, &'a Arc<Vec<FileIndexState>>)> {
        self.files.parts().zip(self.states.parts())
    }
}

fn address(files: &Arc<Vec<DataFile>>, states: &Arc<Vec<FileIndexState>>) -> PartAddress {
    (Arc::as_ptr(files), Arc::as_ptr(states))
}

impl FilesDigest {
    /// Of these lists. What parts come to that they share with others is taken from there.
    pub(super) fn of(lists: DigestedLists<'_>, before: Option<(DigestedLists<'_>, &Self)>) -> Self {
        let mut known: HashMap<PartAddress, &Arc<PartDigest>> = before.map_or_else(HashMap::new, |(lists, digest)| {
            let digests = digest.parts.iter().map(|(_, part)| part);
            lists.parts().map(|(files, states)| address(files, states)).zip(digests).collect()
        });
        let (mut first, mut parts, mut came) = (0, Vec::with_capacity(lists.files.parts().len()), Vec::new());
        for (files, states) in lists.parts() {
            let part = known.remove(&address(files, states)).cloned().unwrap_or_else(|| {
                let part = Arc::new(PartDigest::of(files, states));
                came.push(Arc::clone(&part));
                part
            });
            parts.push((first, part));
            first += files.len();
        }
        // No two files have one number.
        let numbers = before.and_then(|(_, digest)| digest.numbers.get()).map(|numbers| {
            let gone = numbers_of(known.into_values());
            numbers.difference(&gone).union(&numbers_of(came.iter()))
        });
        Self { parts, numbers: numbers.map_or_else(OnceLock::new, OnceLock::from) }
    }

    /// The schemas of the files, distinct, each with the place of the first file that has it.
    pub(super) fn schemas(&self) -> Vec<(usize, &SchemaRef)> {
        let all = self.parts.iter().flat_map(|(first, part)| part.schemas.iter().map(move |of| (first + of.place, of)));
        let mut distinct: Vec<(usize, &SchemaRef)> = Vec::new();
        for (place, SchemaOfPart { schema, .. }) in all {
            if !distinct.iter().any(|(_, have)| Arc::ptr_eq(have, schema) || *have == schema) {
                distinct.push((place, schema));
            }
        }
        distinct
    }

    /// The places of files that are not settled, ascending.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().flat_map(|(first, part)| part.unsettled.iter().map(move |place| first + place))
    }

    /// The places of files that have false statistics, ascending.
    pub(super) fn caught(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().flat_map(|(first, part)| part.caught.iter().map(move |place| first + place))
    }

    /// The numbers of settled files.
    pub(crate) fn numbers(&self) -> &FileNumbers {
        self.numbers.get_or_init(|| numbers_of(self.parts.iter().map(|(_, part)| part)))
    }

    /// The places of the parts that have unsettled files, or settled ones with some of these numbers.
    pub(super) fn parts_with<'a>(&'a self, numbers: &'a FileNumbers) -> impl Iterator<Item = Range<usize>> + 'a {
        let with =
            self.parts.iter().filter(move |(_, part)| !part.unsettled.is_empty() || part.numbers.intersects(numbers));
        with.map(|(first, part)| *first..*first + part.files)
    }

    /// A number that is another one, as good as surely, once a file is another version.
    pub(super) fn versions(&self, files: &PartedList<DataFile>) -> u64 {
        let of_part = |(first, part): &(usize, Arc<PartDigest>)| {
            let files = (*first..*first + part.files).filter_map(|place| files.get(place));
            *part.versions.get_or_init(|| files.map(version_number).fold(0, u64::wrapping_add))
        };
        self.parts.iter().map(of_part).fold(0, u64::wrapping_add)
    }

    /// What settled files have.
    pub(super) fn settled(&self) -> SettledRows {
        self.parts.iter().fold(SettledRows::default(), |all, (_, part)| all.plus(part.settled))
    }
}

impl PartDigest {
    fn of(files: &[DataFile], states: &[FileIndexState]) -> Self {
        let mut digest = Self { files: files.len(), ..Self::default() };
        let mut numbers = Vec::with_capacity(states.len());
        for (place, (file, state)) in files.iter().zip(states).enumerate() {
            if let Some(schema) = &state.schema {
                digest.add_schema(place, schema);
            }
            if !file.false_statistics.is_empty() {
                digest.caught.push(place);
            }
            match settled(file, state) {
                Some((number, rows)) => {
                    numbers.push(number);
                    digest.settled = digest.settled.plus(rows);
                }
                None => digest.unsettled.push(place),
            }
        }
        digest.numbers = numbers.into_iter().collect();
        digest
    }

    fn add_schema(&mut self, place: usize, schema: &SchemaRef) {
        let is_last = self.schemas.last().is_some_and(|last| Arc::ptr_eq(&last.schema, schema));
        let is_known = |have: &SchemaOfPart| Arc::ptr_eq(&have.schema, schema) || have.schema == *schema;
        if !is_last && !self.schemas.iter().any(is_known) {
            self.schemas.push(SchemaOfPart { place, schema: Arc::clone(schema) });
        }
    }
}

/// The numbers of the settled files of these parts.
fn numbers_of<'a>(parts: impl Iterator<Item = &'a Arc<PartDigest>>) -> FileNumbers {
    parts.flat_map(|part| part.numbers.ranges().iter().cloned()).collect()
}

/// A number of a version of a file. Sums of them do not depend on how files are cut into parts.
fn version_number(file: &DataFile) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&file.path, file.meta.size, modified_ns(&file.meta), &file.meta.e_tag).hash(&mut hasher);
    hasher.finish()
}

/// The number of a file that is settled, and what it has.
fn settled(file: &DataFile, state: &FileIndexState) -> Option<(u32, SettledRows)> {
    let number = state.number.filter(|_| !state.unverified)?;
    Some((number, SettledRows::of(file.row_groups.as_deref()?)))
}

impl Snapshot {
    /// What the settled files have that are not at these places.
    pub(crate) fn settled_without(&self, places: impl Iterator<Item = usize>) -> SettledRows {
        let at = |place: usize| settled(self.files.get(place)?, self.index_states.get(place)?);
        let of_places = places.filter_map(at).map(|(_, rows)| rows);
        self.matched.digest.settled().minus(of_places.fold(SettledRows::default(), SettledRows::plus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::parted_list::ListEdit;

    const FILES: usize = 3000;

    fn file(number: usize) -> DataFile {
        DataFile::of_test(&format!("{number:05}.parquet"), 1, Some(vec![10]))
    }

    fn state(number: u32) -> FileIndexState {
        FileIndexState { number: Some(number), ..FileIndexState::default() }
    }

    fn edit<T>(place: usize, item: Option<T>) -> ListEdit<T> {
        ListEdit { place, removes: true, item }
    }

    /// The lists with these places changed: a file that left, one that is in doubt, and one that came.
    fn changed(
        files: &PartedList<DataFile>,
        states: &PartedList<FileIndexState>,
    ) -> (PartedList<DataFile>, PartedList<FileIndexState>) {
        let doubted = FileIndexState { unverified: true, ..state(17) };
        let came = ListEdit { place: FILES, removes: false, item: Some(file(FILES)) };
        let files = files.edited([edit(1000, None), edit(2000, Some(file(2000))), came]);
        let came = ListEdit { place: FILES, removes: false, item: Some(state(9000)) };
        (files, states.edited([edit(1000, None), edit(2000, Some(doubted)), came]))
    }

    #[test]
    fn what_a_changed_list_comes_to_is_what_it_comes_to_anew() {
        let files: PartedList<DataFile> = (0..FILES).map(file).collect();
        // Files that follow each other have numbers far apart.
        let number = |place: usize| (place * 7 % FILES) as u32;
        let states: PartedList<FileIndexState> = (0..FILES).map(|place| state(number(place))).collect();
        let lists = DigestedLists { files: &files, states: &states };
        let digest = FilesDigest::of(lists, None);
        assert_eq!(digest.numbers(), &FileNumbers::of_range(0..FILES as u32));
        let (files_now, states_now) = changed(&files, &states);
        let now = DigestedLists { files: &files_now, states: &states_now };
        let (after, anew) = (FilesDigest::of(now, Some((lists, &digest))), FilesDigest::of(now, None));
        assert_eq!((after.numbers.get(), after.numbers().len()), (Some(anew.numbers()), FILES as u64 - 1));
        assert!(!after.numbers().contains(number(1000)) && after.numbers().contains(9000));
        assert_eq!((after.settled(), after.unsettled().collect::<Vec<_>>()), (anew.settled(), vec![1999]));
        assert_eq!(after.versions(&files_now), anew.versions(&files_now));
        assert_ne!(after.versions(&files_now), digest.versions(&files));
        // Of a few numbers only their parts are looked at, and those of files in doubt.
        let looked_at: usize = after.parts_with(&FileNumbers::of_range(9000..9001)).map(|places| places.len()).sum();
        assert!(looked_at < 3 * 512, "{looked_at}");
    }
}

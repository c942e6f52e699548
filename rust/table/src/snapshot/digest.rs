//! What the files of a snapshot come to together, kept by parts of its list of files. A snapshot that was made from another one computes
//! it for the parts that changed.
//!
//! A file is *settled* if it is surely what the manifest has under its number. What a segment says of a settled file holds, so that nobody
//! has to look at the file before a search found something in it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use lakemark_format::FileNumbers;

use super::{DataFile, FileIndexState, Snapshot};
use crate::files::parted_list::PartedList;

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
    /// The schemas of its files, distinct, in the order of the first file that has each.
    schemas: Vec<SchemaOfPart>,
    /// Places in the part of files that are not settled.
    unsettled: Vec<usize>,
    /// Places in the part of files that have false statistics.
    caught: Vec<usize>,
    /// Numbers of settled files.
    numbers: FileNumbers,
    settled: SettledRows,
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
        let known: HashMap<PartAddress, &Arc<PartDigest>> = before.map_or_else(HashMap::new, |(lists, digest)| {
            let digests = digest.parts.iter().map(|(_, part)| part);
            lists.parts().map(|(files, states)| address(files, states)).zip(digests).collect()
        });
        let mut first = 0;
        let part = |(files, states): (&Arc<Vec<DataFile>>, &Arc<Vec<FileIndexState>>)| {
            let place = first;
            first += files.len();
            let same = known.get(&address(files, states));
            (place, same.map_or_else(|| Arc::new(PartDigest::of(files, states)), |same| Arc::clone(same)))
        };
        Self { parts: lists.parts().map(part).collect(), numbers: OnceLock::new() }
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
        self.numbers.get_or_init(|| {
            let ranges = self.parts.iter().flat_map(|(_, part)| part.numbers.ranges().iter().cloned());
            ranges.collect()
        })
    }

    /// What settled files have.
    pub(super) fn settled(&self) -> SettledRows {
        self.parts.iter().fold(SettledRows::default(), |all, (_, part)| all.plus(part.settled))
    }
}

impl PartDigest {
    fn of(files: &[DataFile], states: &[FileIndexState]) -> Self {
        let mut digest = Self::default();
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

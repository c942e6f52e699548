//! Where the values of a column come from without reading it: segments that cover files as they are now, and constants.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use futures::{StreamExt, stream};
use lakemark_format::{FileNumbers, ManifestIndex, ManifestSegment, column};

use super::wanted_files::WantedFiles;
use crate::index_kind::IndexKind;
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::hashed::hash_bits;
use crate::store::segments::{FileOfSegment, ReadCounter, Segment};
use crate::values::fields::Presence;

/// Segments that are opened at a time.
const CONCURRENT_SEGMENTS: usize = 32;

impl Snapshot {
    /// Whether the values of a column or field may be index-only: it is a partition column, or it has an index.
    #[must_use]
    pub fn supports_index_only(&self, column: &str) -> bool {
        self.partition_columns().iter().any(|field| field.name() == column) || !self.exact_indexes_of(column).is_empty()
    }

    /// Whether that is so for a column or for any field inside of it.
    #[must_use]
    pub fn supports_index_only_within(&self, column: &str) -> bool {
        let stored = self.physical_name(column);
        let is_inside = |index: &ManifestIndex| {
            let is_values =
                !column::is_composite(&index.column) && !index.key_type.is_list() && hash_bits(index).is_none();
            is_values && column::names(&index.column).next() == Some(&stored)
        };
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        self.supports_index_only(column)
            || indexes.into_iter().any(|index| {
                is_inside(index) && self.is_usable(index) && index.kind.known().is_some_and(IndexKind::finds_rows)
            })
    }
}

/// A data file in an open segment.
#[derive(Clone, Debug)]
pub(crate) struct IndexedFile {
    /// Its place in the snapshot.
    pub file: usize,
    /// Its first row in the segment's row space.
    pub base: u32,
    pub rows: u32,
}

/// An open segment and the files that it covers.
#[derive(Clone, Debug)]
pub(crate) struct CoveringSegment {
    pub segment: Segment,
    /// Those that were looked at one by one.
    pub files: Vec<IndexedFile>,
    /// Those of the others that the segment has as they are, by their numbers.
    pub rest: FileNumbers,
}

impl CoveringSegment {
    /// How many files of the table it covers.
    pub(crate) fn file_count(&self) -> u64 {
        self.files.len() as u64 + self.rest.len()
    }
}

/// A file in which a column has one value for all rows.
#[derive(Clone, Debug)]
pub(crate) struct ConstantFile {
    /// Its place in the snapshot.
    pub file: usize,
    /// An array of length 1.
    pub value: ArrayRef,
}

/// The sources of the values of one column, each file at most once.
#[derive(Debug)]
pub(crate) struct ValueSources {
    pub data_type: DataType,
    /// Files in which the column has one value for all rows: partition columns, and NULL where a file lacks the column.
    pub constants: Vec<ConstantFile>,
    pub covers: Vec<CoveringSegment>,
}

/// Files in which the column is no partition column.
struct OpenFiles {
    /// By their numbers in the manifest.
    by_number: NumberedFiles,
    /// Files that lack the column. They are NULL throughout, whether or not a segment says so.
    lacking: Vec<usize>,
    /// The numbers of the others.
    rest: FileNumbers,
}

/// What is wanted of a segment.
struct SegmentFiles<'a> {
    segment: &'a ManifestSegment,
    /// Files that are looked at one by one.
    places: Vec<usize>,
}

/// Files that have a source.
#[derive(Default)]
struct TakenFiles {
    places: HashSet<usize>,
    numbers: FileNumbers,
}

impl ValueSources {
    /// Finds the sources of a column for the wanted files; none if the table has no such column.
    pub(super) async fn find(
        snapshot: &Snapshot,
        column: &str,
        wanted: &WantedFiles,
        counter: &Arc<ReadCounter>,
    ) -> Option<Self> {
        let data_type = snapshot.field(column)?.data_type().clone();
        let mut sources = Self { data_type, constants: Vec::new(), covers: Vec::new() };
        let open = sources.take_constants(snapshot, column, wanted);
        let mut taken = TakenFiles::default();
        let mut indexes = snapshot.exact_indexes_of(column);
        // The directory of a packed tree does not list its values.
        indexes.sort_by_key(|index| index.kind.known() == Some(IndexKind::Key));
        for index in indexes {
            let all = snapshot.manifest.iter().flat_map(|manifest| manifest.segments().map(Arc::as_ref));
            let segments = all.filter(|segment| segment.index_id == index.id);
            let rest =
                if wanted.is_rest_wanted { open.rest.difference(&taken.numbers) } else { FileNumbers::default() };
            let requests: Vec<SegmentFiles<'_>> = segments
                .filter_map(|segment| {
                    let places = open.by_number.within(&segment.files);
                    let places: Vec<usize> = places.filter(|file| !taken.places.contains(file)).collect();
                    let is_wanted = !places.is_empty() || rest.intersects(&segment.files);
                    is_wanted.then_some(SegmentFiles { segment, places })
                })
                .collect();
            // By number, since a closure over borrowed items would make the future one that cannot change threads.
            let (requests, rest) = (requests.as_slice(), &open.rest);
            let covers: Vec<CoveringSegment> = stream::iter(0..requests.len())
                .map(|number| async move { cover(snapshot, index, requests.get(number)?, rest, counter).await })
                .buffer_unordered(CONCURRENT_SEGMENTS)
                .filter_map(|cover| async { cover })
                .collect()
                .await;
            for cover in covers {
                sources.add(cover, wanted.is_rest_wanted, &mut taken);
            }
        }
        let null = new_null_array(&sources.data_type, 1);
        let uncovered = open.lacking.into_iter().filter(|file| !taken.places.contains(file));
        sources.constants.extend(uncovered.map(|file| ConstantFile { file, value: Arc::clone(&null) }));
        Some(sources)
    }

    /// Enters what is constant in files that are looked at one by one, and gives the other files.
    fn take_constants(&mut self, snapshot: &Snapshot, column: &str, wanted: &WantedFiles) -> OpenFiles {
        let partition = snapshot.partition_columns().iter().position(|field| field.name() == column);
        if let Some(partition) = partition {
            self.constants.extend(wanted.places.iter().filter_map(|&file| {
                let value = snapshot.files().get(file)?.partition_values.get(partition)?;
                Some(ConstantFile { file, value: Arc::clone(value) })
            }));
            let by_number = NumberedFiles::at(snapshot, &[]);
            return OpenFiles { by_number, lacking: Vec::new(), rest: FileNumbers::default() };
        }
        let table = snapshot.file_schema();
        let is_lacking = |file: &usize| {
            let schema = snapshot.index_states.get(*file).and_then(|state| state.schema.as_ref());
            schema.is_some_and(|schema| Presence::of(schema, &table, column) == Presence::Lacking)
        };
        let lacking = wanted.places.iter().copied().filter(is_lacking).collect();
        OpenFiles { by_number: NumberedFiles::at(snapshot, &wanted.places), lacking, rest: wanted.rest.clone() }
    }

    /// Enters a cover, for the files that no other cover has taken. Files of which no row counts may be in several.
    fn add(&mut self, mut cover: CoveringSegment, is_rest_wanted: bool, taken: &mut TakenFiles) {
        cover.files.retain(|covered| taken.places.insert(covered.file));
        if is_rest_wanted {
            cover.rest = cover.rest.difference(&taken.numbers);
            taken.numbers = taken.numbers.union(&cover.rest);
        }
        if !cover.files.is_empty() || is_rest_wanted && !cover.rest.is_empty() {
            self.covers.push(cover);
        }
    }
}

/// Files that both segments have at the same place of the same row space.
pub(crate) fn shared_files<'a>(
    one: &'a CoveringSegment,
    other: &'a CoveringSegment,
) -> impl Iterator<Item = &'a IndexedFile> {
    let same_space = one.segment.directory.universe == other.segment.directory.universe;
    let places: HashMap<usize, u32> = other.files.iter().map(|covered| (covered.file, covered.base)).collect();
    one.files.iter().filter(move |covered| same_space && places.get(&covered.file) == Some(&covered.base))
}

/// Opens a segment and keeps the files that are still what was indexed.
async fn cover(
    snapshot: &Snapshot,
    index: &ManifestIndex,
    wanted: &SegmentFiles<'_>,
    rest: &FileNumbers,
    counter: &Arc<ReadCounter>,
) -> Option<CoveringSegment> {
    let (store, manifest) = (snapshot.store.as_ref()?, snapshot.manifest.as_ref()?);
    let SegmentFiles { segment, places } = wanted;
    let opened = match Segment::open(store, segment, index, counter).await {
        Ok(opened) => opened,
        Err(damage) => {
            let (index, path, reason) = (&index.name, &segment.path, damage.reason.code());
            tracing::warn!(index, segment = path, reason, problem = damage.problem, "an index file cannot be used");
            return None;
        }
    };
    let mut files = Vec::with_capacity(places.len());
    for &file in places {
        let found = snapshot.files().get(file).and_then(|file| opened.file(&file.path));
        let Some(FileOfSegment { entry, .. }) = found else { continue };
        let Ok(rows) = u32::try_from(entry.rows()) else { continue };
        if is_same_data(snapshot, file, entry, segment, &opened.directory).await {
            files.push(IndexedFile { file, base: entry.base, rows });
        }
    }
    let rest = match rest.is_empty() {
        true => FileNumbers::default(),
        false => snapshot.matched.verdicts.agreed(manifest, segment, &opened).intersection(rest),
    };
    Some(CoveringSegment { segment: opened, files, rest })
}

//! Where the values of a column come from without reading it: segments that cover files as they are now, and constants.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::DataType;
use futures::{StreamExt, stream};
use lakemark_format::{ManifestIndex, ManifestSegment, SegmentFile, column};

use crate::index_kind::IndexKind;
use crate::snapshot::Snapshot;
use crate::snapshot::identity::is_same_data;
use crate::snapshot::numbered_files::NumberedFiles;
use crate::store::segments::{ReadCounter, Segment};
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
            let is_values = !column::is_composite(&index.column) && !index.key_type.is_list();
            is_values && column::names(&index.column).next() == Some(&stored)
        };
        let indexes = self.manifest.iter().flat_map(|manifest| manifest.indexes());
        self.supports_index_only(column)
            || indexes.into_iter().any(|index| {
                is_inside(index) && self.is_usable(index) && index.kind.known().is_some_and(IndexKind::is_exact)
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
    pub files: Vec<IndexedFile>,
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
}

impl ValueSources {
    /// Finds the sources of a column for the selected files; none if the table has no such column.
    pub(crate) async fn find(
        snapshot: &Snapshot,
        column: &str,
        wanted: &[bool],
        counter: &Arc<ReadCounter>,
    ) -> Option<Self> {
        let data_type = snapshot.field(column)?.data_type().clone();
        let mut sources = Self { data_type, constants: Vec::new(), covers: Vec::new() };
        let OpenFiles { by_number: open, lacking } = sources.take_constants(snapshot, column, wanted);
        let mut taken = HashSet::new();
        let mut indexes = snapshot.exact_indexes_of(column);
        // The directory of a packed tree does not list its values.
        indexes.sort_by_key(|index| index.kind.known() == Some(IndexKind::Key));
        for index in indexes {
            let all = snapshot.manifest.iter().flat_map(|manifest| manifest.segments().map(Arc::as_ref));
            let segments = all.filter(|segment| segment.index_id == index.id);
            let requests: Vec<(&ManifestSegment, Vec<usize>)> = segments
                .map(|segment| (segment, open.within(&segment.files).filter(|file| !taken.contains(file)).collect()))
                .filter(|(_, files): &(_, Vec<usize>)| !files.is_empty())
                .collect();
            // By number, since a closure over borrowed items would make the future one that cannot change threads.
            let requests = requests.as_slice();
            let covers: Vec<CoveringSegment> = stream::iter(0..requests.len())
                .map(|number| async move {
                    let (segment, files) = requests.get(number)?;
                    cover(snapshot, index, segment, files, counter).await
                })
                .buffer_unordered(CONCURRENT_SEGMENTS)
                .filter_map(|cover| async { cover })
                .collect()
                .await;
            for cover in covers {
                sources.add(cover, &mut taken);
            }
        }
        let null = new_null_array(&sources.data_type, 1);
        let uncovered = lacking.into_iter().filter(|file| !taken.contains(file));
        sources.constants.extend(uncovered.map(|file| ConstantFile { file, value: Arc::clone(&null) }));
        Some(sources)
    }

    /// Enters what is constant, and gives the other files.
    fn take_constants(&mut self, snapshot: &Snapshot, column: &str, wanted: &[bool]) -> OpenFiles {
        let partition = snapshot.partition_columns().iter().position(|field| field.name() == column);
        let (mut lacking, table) = (Vec::new(), snapshot.file_schema());
        for (file, state) in snapshot.index_states.iter().enumerate() {
            if !wanted.get(file).copied().unwrap_or(false) {
                continue;
            }
            if let Some(place) = partition {
                let value = snapshot.files().get(file).and_then(|file| file.partition_values.get(place));
                self.constants.extend(value.map(|value| ConstantFile { file, value: Arc::clone(value) }));
                continue;
            }
            let presence = state.schema.as_ref().map(|schema| Presence::of(schema, &table, column));
            if presence == Some(Presence::Lacking) {
                lacking.push(file);
            }
        }
        let is_open = |file: usize| partition.is_none() && wanted.get(file).copied().unwrap_or(false);
        OpenFiles { by_number: NumberedFiles::of(snapshot, |file, _| is_open(file)), lacking }
    }

    /// Enters a cover, for the files that no other cover has taken.
    fn add(&mut self, mut cover: CoveringSegment, taken: &mut HashSet<usize>) {
        cover.files.retain(|covered| taken.insert(covered.file));
        if !cover.files.is_empty() {
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
    segment: &ManifestSegment,
    files: &[usize],
    counter: &Arc<ReadCounter>,
) -> Option<CoveringSegment> {
    let store = snapshot.store.as_ref()?;
    let opened = match Segment::open(store, segment, index, counter).await {
        Ok(opened) => opened,
        Err(damage) => {
            let (index, path, reason) = (&index.name, &segment.path, damage.reason.code());
            tracing::warn!(index, segment = path, reason, problem = damage.problem, "an index file cannot be used");
            return None;
        }
    };
    let directory = Arc::clone(&opened.directory);
    let entries: HashMap<&str, &SegmentFile> =
        directory.files.iter().map(|entry| (entry.path.as_str(), entry)).collect();
    let mut covered = Vec::new();
    for &file in files {
        let Some(entry) = snapshot.files().get(file).and_then(|file| entries.get(file.path.as_str())) else { continue };
        let Ok(rows) = u32::try_from(entry.rows()) else { continue };
        if is_same_data(snapshot, file, entry, segment, &directory).await {
            covered.push(IndexedFile { file, base: entry.base, rows });
        }
    }
    (!covered.is_empty()).then_some(CoveringSegment { segment: opened, files: covered })
}

//! A snapshot made from the one before. It matches only files that came, left or changed, and those of which the manifest says something
//! else than before.
//!
//! ```text
//! listing before ─▶ listing now       files that came, left or changed      ┐
//! manifest before ─▶ manifest now     numbers whose files differ ─▶ paths   ┴▶ matched anew; all parts without one are shared
//! ```
//!
//! The result is what matching all files gives. Where a change could reach further than its file, all files are matched: the type of a
//! partition column follows from all values, for example.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use lakemark_format::{FileNumbers, Manifest};

use super::column_names::shown_schema;
use super::deletion_vectors::MatchedLists;
use super::digest::{DigestedLists, FilesDigest};
use super::match_files::{FileMatcher, MatchedFiles};
use super::reader_cache::ReaderCache;
use super::shapes::{SummaryOfFile, read_shapes};
use super::table_columns::TableColumns;
use super::{BaseTable, DataFile, FileIndexState, Lineage, Snapshot};
use crate::error::Result;
use crate::files::delta::{DeltaFile, DeltaState};
use crate::files::listed_file::{ListedFile, ListingChange};
use crate::files::listing::value_of_type;
use crate::files::parted_list::{ListEdit, PartedList};
use crate::files::trust::FalseStatistics;
use crate::store::pieces::ManifestNeeds;

/// Where more than one of so many files changed, all files are matched.
const MOST_CHANGED: usize = 4;

/// A file that came, left or changed, by its place in the snapshot before.
type FileChange = ListEdit<DataFile>;

/// A file that is matched anew, by its place in the snapshot before.
struct ChangedFile {
    place: usize,
    /// Whether the snapshot before has a file at this place that the change is about.
    was_there: bool,
    /// The file with what is known of it now; none if it is gone.
    now: Option<MatchedFile>,
}

/// A data file with what the manifest knows of it.
#[derive(Clone, Debug)]
struct MatchedFile {
    file: DataFile,
    state: FileIndexState,
}

impl ChangedFile {
    /// The change of a list that has something of each file.
    fn edit<T>(&self, item: impl Fn(&MatchedFile) -> T) -> ListEdit<T> {
        ListEdit { place: self.place, removes: self.was_there, item: self.now.as_ref().map(item) }
    }
}

/// What differs between two manifests.
struct ManifestDifference {
    /// Paths of files of which the manifests say different things.
    paths: HashSet<String>,
    /// Whether a number has a file in both, and not the same.
    has_changed_files: bool,
    /// Whether indexes and segments are the same.
    has_same_indexes: bool,
}

/// What the manifest says now of files of which it said something else before. None if that cannot be told.
fn difference(now: Option<&Manifest>, before: Option<&Manifest>) -> Option<ManifestDifference> {
    let (now, before) = match (now, before) {
        (None, None) => return Some(ManifestDifference::none()),
        (Some(now), Some(before)) if now.store_id() == before.store_id() => (now, before),
        _ => return None,
    };
    let numbers: FileNumbers = now.changed_files(before).ok()?;
    let mut paths = HashSet::new();
    let mut has_changed_files = false;
    let has_same_indexes = now.indexes().eq(before.indexes())
        && now.segments().len() == before.segments().len()
        && now.segments().zip(before.segments()).all(|(now, before)| Arc::ptr_eq(now, before) || now == before);
    for number in numbers.iter() {
        let files = [now.file(number).ok()?, before.file(number).ok()?];
        has_changed_files |= files.iter().all(Option::is_some);
        paths.extend(files.into_iter().flatten().map(|file| file.path.clone()));
    }
    Some(ManifestDifference { paths, has_changed_files, has_same_indexes })
}

impl ManifestDifference {
    fn none() -> Self {
        Self { paths: HashSet::new(), has_changed_files: false, has_same_indexes: true }
    }
}

impl Snapshot {
    /// The snapshot of a manifest and of the listing that these changes lead to. None if all files have to be matched.
    ///
    /// # Errors
    /// The footer of a file that no index covers cannot be read.
    pub(super) async fn advanced(
        &self,
        table: &BaseTable,
        manifest: Option<&Arc<Manifest>>,
        changes: Vec<ListingChange>,
    ) -> Result<Option<Self>> {
        let most = self.most_changed();
        let is_possible = changes.len() <= most && self.keeps_partition_types(&changes);
        let differs = difference(manifest.map(Arc::as_ref), self.manifest.as_deref());
        let Some(differs) = differs.filter(|differs| is_possible && differs.paths.len() <= most) else {
            return Ok(None);
        };
        let listed = changes.iter().filter_map(|change| change.now.as_ref()).map(|file| file.path.as_str());
        if !knows_paths(table, manifest, listed.chain(differs.paths.iter().map(String::as_str)).collect()).await {
            return Ok(None);
        }
        let Some(matcher) = self.next_matcher(manifest.map(Arc::as_ref)) else { return Ok(None) };
        let is_same_listing = changes.is_empty();
        let Some(changes) = self.listed_changes(changes) else { return Ok(None) };
        let mut changed = self.changed_files(changes, &differs.paths, &matcher)?;
        read_unknown(table, &mut changed).await?;
        let advanced = self.with_changes(&changed, manifest, &matcher, &differs);
        let Some(advanced) = advanced.filter(|advanced| !advanced.files.is_empty()) else { return Ok(None) };
        Ok(Some(self.with_cache(advanced, is_same_listing && differs.has_same_indexes)))
    }

    /// The snapshot of a manifest and of the state of a Delta table that these changes of its files lead to. None if all files have to be
    /// matched.
    ///
    /// # Errors
    /// The log says less than it should, or a file with a deletion vector cannot be read.
    pub(super) async fn advanced_log(
        &self,
        table: &BaseTable,
        manifest: Option<&Arc<Manifest>>,
        state: &DeltaState,
        changes: Vec<ListEdit<Arc<DeltaFile>>>,
    ) -> Result<Option<Self>> {
        let most = self.most_changed();
        let differs = difference(manifest.map(Arc::as_ref), self.manifest.as_deref());
        let Some(differs) = differs.filter(|differs| changes.len() <= most && differs.paths.len() <= most) else {
            return Ok(None);
        };
        let logged = changes.iter().filter_map(|change| change.item.as_ref()).map(|file| file.path.as_str());
        if !knows_paths(table, manifest, logged.chain(differs.paths.iter().map(String::as_str)).collect()).await {
            return Ok(None);
        }
        let Some(matcher) = self.next_matcher(manifest.map(Arc::as_ref)) else { return Ok(None) };
        let logged = |ListEdit { place, removes, item }: ListEdit<Arc<DeltaFile>>| {
            let item = item.map(|file| DataFile::logged(&file));
            FileChange { place, removes, item }
        };
        let changes = changes.into_iter().map(logged).collect();
        let mut changed = self.changed_files(changes, &differs.paths, &matcher)?;
        for matched in changed.iter_mut().filter_map(|changed| changed.now.as_mut()) {
            let shown = |stored| shown_schema(self.names.as_deref(), &stored);
            matched.state.schema = matched.state.schema.take().map(shown);
        }
        read_vectors(table, state, &mut changed).await?;
        let lineage = Lineage::of(state, manifest.map(Arc::as_ref)).await?;
        let advanced = self.with_lists(&changed, manifest, &matcher, &differs);
        let advanced = self.with_cache(advanced, differs.has_same_indexes);
        Ok(Some(Self { lineage, delta_version: Some(state.version), ..advanced }))
    }

    /// What matches files with the next manifest. None if its schemas cannot be read, or if those of the manifest before could not be.
    fn next_matcher<'a>(&self, manifest: Option<&'a Manifest>) -> Option<FileMatcher<'a>> {
        let was_blind = self.manifest.as_ref().is_some_and(|have| have.schemas().len() != self.matched.schemas.len());
        let matcher = FileMatcher::new(manifest, &self.matched.schemas);
        (!was_blind && !matcher.is_blind(manifest)).then_some(matcher)
    }

    /// How many files may change before matching all of them is as good.
    fn most_changed(&self) -> usize {
        (self.files.len() / MOST_CHANGED).max(1)
    }

    /// Changes of a listing as changes of data files. None if the partitions of a file are not those of the table.
    fn listed_changes(&self, changes: Vec<ListingChange>) -> Option<Vec<FileChange>> {
        let listed = |ListingChange { place, was_there, now }: ListingChange| {
            let item = match now {
                Some(now) => Some(self.listed(&now)?),
                None => None,
            };
            Some(FileChange { place, removes: was_there, item })
        };
        changes.into_iter().map(listed).collect()
    }

    /// The files that are matched anew, in the order of their places: those that changed, and those of these paths.
    fn changed_files(
        &self,
        changes: Vec<FileChange>,
        paths: &HashSet<String>,
        matcher: &FileMatcher<'_>,
    ) -> Result<Vec<ChangedFile>> {
        let mut changed = Vec::with_capacity(changes.len() + paths.len());
        let placed = paths.iter().filter_map(|path| {
            let place = self.place_of(path)?;
            Some((place, self.files.get(place)?))
        });
        let mut rematched: BTreeMap<usize, &DataFile> = placed.collect();
        for FileChange { place, removes, item } in changes {
            if removes {
                rematched.remove(&place);
            }
            let now = item.map(|file| matched(file, matcher)).transpose()?;
            changed.push(ChangedFile { place, was_there: removes, now });
        }
        for (place, file) in rematched {
            let false_statistics = FalseStatistics::default();
            let file = DataFile { row_groups: None, deleted: None, false_statistics, ..file.clone() };
            changed.push(ChangedFile { place, was_there: true, now: Some(matched(file, matcher)?) });
        }
        // At one place what comes is before what goes.
        changed.sort_by_key(|changed| (changed.place, changed.was_there));
        Ok(changed)
    }

    /// A listed file as a data file; none if its partitions have other columns or types.
    fn listed(&self, file: &ListedFile) -> Option<DataFile> {
        let names = self.partition_columns.iter().map(|column| column.name().as_str());
        if !file.folders.iter().map(|folder| folder.column.as_str()).eq(names) {
            return None;
        }
        let values = file.folders.iter().zip(&self.partition_columns);
        let values = values.map(|(folder, column)| value_of_type(folder.value.as_deref(), column.data_type()));
        Some(DataFile::listed(file, values.collect::<Option<_>>()?))
    }

    /// This snapshot with changed files and the columns that all files have then. None if the files do not go together any more.
    fn with_changes(
        &self,
        changed: &[ChangedFile],
        manifest: Option<&Arc<Manifest>>,
        matcher: &FileMatcher<'_>,
        differs: &ManifestDifference,
    ) -> Option<Self> {
        let advanced = self.with_lists(changed, manifest, matcher, differs);
        let (now, before) = (advanced.matched.digest.schemas(), self.matched.digest.schemas());
        if now.iter().map(|(_, schema)| schema).eq(before.iter().map(|(_, schema)| schema)) {
            return Some(advanced);
        }
        let TableColumns { schema, file_schema } =
            TableColumns::of(&advanced.files, &now, &self.partition_columns).ok()?;
        Some(Self { schema, file_schema, ..advanced })
    }

    /// This snapshot with changed files and the same columns.
    fn with_lists(
        &self,
        changed: &[ChangedFile],
        manifest: Option<&Arc<Manifest>>,
        matcher: &FileMatcher<'_>,
        differs: &ManifestDifference,
    ) -> Self {
        let files = self.files.edited(changed.iter().map(|changed| changed.edit(|now| now.file.clone())));
        let index_states =
            self.index_states.edited(changed.iter().map(|changed| changed.edit(|now| now.state.clone())));
        let before = DigestedLists { files: &self.files, states: &self.index_states };
        let now = DigestedLists { files: &files, states: &index_states };
        let digest = match changed.is_empty() {
            true => Arc::clone(&self.matched.digest),
            false => Arc::new(FilesDigest::of(now, Some((before, &self.matched.digest)))),
        };
        let verdicts = match differs.has_changed_files {
            true => Arc::default(),
            false => Arc::clone(&self.matched.verdicts),
        };
        let matched = MatchedFiles { schemas: Arc::clone(&matcher.schemas), digest, verdicts };
        let (deleted_rows, deleted_in) = (self.deleted_rows_after(changed), self.deleted_in_after(changed));
        let manifest = manifest.cloned();
        Self { files, index_states, matched, manifest, deleted_rows, deleted_in, ..self.clone() }
    }

    /// How many rows of the data files are deleted after these changes.
    fn deleted_rows_after(&self, changed: &[ChangedFile]) -> u64 {
        let gone = changed.iter().filter(|changed| changed.was_there);
        let gone: u64 = gone.filter_map(|changed| self.files.get(changed.place)).map(DataFile::deleted_row_count).sum();
        let came = changed.iter().filter_map(|changed| Some(&changed.now.as_ref()?.file));
        self.deleted_rows.saturating_sub(gone) + came.map(DataFile::deleted_row_count).sum::<u64>()
    }

    /// The places of the files with deleted rows after these changes.
    fn deleted_in_after(&self, changed: &[ChangedFile]) -> Arc<[usize]> {
        let mut before = self.deleted_in.iter().copied().peekable();
        let mut places = Vec::with_capacity(self.deleted_in.len() + changed.len());
        let (mut came, mut gone) = (0_usize, 0_usize);
        for change in changed {
            while let Some(place) = before.next_if(|place| *place < change.place) {
                places.push((place + came).saturating_sub(gone));
            }
            if let Some(now) = &change.now {
                if now.file.deleted.is_some() {
                    places.push((change.place + came).saturating_sub(gone));
                }
                came += 1;
            }
            if change.was_there {
                before.next_if_eq(&change.place);
                gone += 1;
            }
        }
        places.extend(before.map(|place| (place + came).saturating_sub(gone)));
        places.into()
    }

    /// The snapshot that followed, with the cache of this one if it may have it and its files are read alike.
    fn with_cache(&self, advanced: Self, may_share: bool) -> Self {
        let is_shared = may_share && self.reads_alike(&advanced);
        let attached = if is_shared { self.attached.clone() } else { ReaderCache::default() };
        Self { attached, ..advanced }
    }

    /// Whether readers find the same in the files of another snapshot, which has as many.
    fn reads_alike(&self, other: &Self) -> bool {
        let is_same = |one: &DataFile, other: &DataFile| {
            one.is_same_version(other)
                && one.false_statistics == other.false_statistics
                && one.partition_values == other.partition_values
        };
        self.files.eq_by(&other.files, is_same) && Arc::ptr_eq(&self.schema, &other.schema)
    }
}

/// Whether the manifest tells the numbers of these paths, or there is none. Where a piece cannot be read, all files are matched, for which
/// no number is looked up.
async fn knows_paths(table: &BaseTable, manifest: Option<&Arc<Manifest>>, paths: Vec<&str>) -> bool {
    let (Some(store), Some(manifest)) = (table.store.as_ref(), manifest) else { return true };
    let loaded = store.load(manifest, &ManifestNeeds::Paths(paths)).await;
    if let Err(error) = &loaded {
        tracing::warn!(store = store.text(), %error, "all files are matched with their indexes anew");
    }
    loaded.is_ok()
}

fn matched(mut file: DataFile, matcher: &FileMatcher<'_>) -> Result<MatchedFile> {
    let state = matcher.match_file(&mut file)?;
    Ok(MatchedFile { file, state })
}

/// Reads the footers of files of which no schema is known.
async fn read_unknown(table: &BaseTable, changed: &mut [ChangedFile]) -> Result<()> {
    let unknown = changed.iter_mut().filter_map(|changed| changed.now.as_mut());
    let mut unknown: Vec<&mut MatchedFile> = unknown.filter(|matched| matched.state.schema.is_none()).collect();
    let files: PartedList<DataFile> = unknown.iter().map(|matched| matched.file.clone()).collect();
    for SummaryOfFile { file, summary } in read_shapes(table, &files, (0..files.len()).collect()).await? {
        if let Some(matched) = unknown.get_mut(file) {
            matched.state.schema = Some(summary.schema);
            matched.file.row_groups = Some(summary.row_groups);
        }
    }
    Ok(())
}

/// Takes out of files of a Delta table what their deletion vectors delete.
async fn read_vectors(table: &BaseTable, state: &DeltaState, changed: &mut [ChangedFile]) -> Result<()> {
    let with_vectors = changed.iter_mut().filter_map(|changed| {
        let matched = changed.now.as_mut()?;
        Some((state.file(&matched.file.path)?.vector.as_ref()?, matched))
    });
    let (vectors, mut matched): (Vec<_>, Vec<&mut MatchedFile>) = with_vectors.unzip();
    let vectors: Vec<_> = vectors.into_iter().enumerate().collect();
    let files = matched.iter().map(|matched| matched.file.clone()).collect();
    let states = matched.iter().map(|matched| matched.state.clone()).collect();
    let mut lists = MatchedLists { files, states };
    lists.read_vectors(table, state, &vectors).await?;
    for (place, matched) in matched.iter_mut().enumerate() {
        if let (Some(file), Some(state)) = (lists.files.get(place), lists.states.get(place)) {
            (matched.file, matched.state) = (file.clone(), state.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

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

use super::digest::{DigestedLists, FilesDigest};
use super::match_files::{FileMatcher, MatchedFiles};
use super::reader_cache::ReaderCache;
use super::shapes::{SummaryOfFile, read_shapes};
use super::table_columns::TableColumns;
use super::{BaseTable, DataFile, FileIndexState, Lineage, Snapshot, shown_schema};
use crate::error::Result;
use crate::files::listed_file::{ListedFile, ListingChange};
use crate::files::listing::value_of_type;
use crate::files::parted_list::{ListEdit, PartedList};
use crate::files::trust::FalseStatistics;

/// Where more than one of so many files changed, all files are matched.
const MOST_CHANGED: usize = 4;

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
        let Some(matcher) = self.next_matcher(manifest.map(Arc::as_ref)) else { return Ok(None) };
        let is_same_listing = changes.is_empty();
        let Some(mut changed) = self.changed_files(changes, &differs.paths, &matcher)? else { return Ok(None) };
        read_unknown(table, &mut changed).await?;
        let advanced = self.with_changes(&changed, manifest, &matcher, &differs);
        let Some(advanced) = advanced.filter(|advanced| !advanced.files.is_empty()) else { return Ok(None) };
        Ok(Some(self.with_cache(advanced, is_same_listing && differs.has_same_indexes)))
    }

    /// The snapshot of the same version of a Delta table with another manifest. None if all files have to be matched.
    pub(super) fn advanced_log(&self, manifest: Option<&Arc<Manifest>>, lineage: Lineage) -> Result<Option<Self>> {
        let differs = difference(manifest.map(Arc::as_ref), self.manifest.as_deref());
        let Some(differs) = differs.filter(|differs| differs.paths.len() <= self.most_changed()) else {
            return Ok(None);
        };
        let Some(matcher) = self.next_matcher(manifest.map(Arc::as_ref)) else { return Ok(None) };
        let Some(mut changed) = self.changed_files(Vec::new(), &differs.paths, &matcher)? else { return Ok(None) };
        for matched in changed.iter_mut().filter_map(|changed| changed.now.as_mut()) {
            // What a vector deletes was read with the rows that the file had.
            if matched.file.deleted.is_some() {
                return Ok(None);
            }
            let shown = |stored| shown_schema(self.names.as_deref(), &stored);
            matched.state.schema = matched.state.schema.take().map(shown);
        }
        let advanced = self.with_lists(&changed, manifest, &matcher, &differs);
        Ok(Some(Self { lineage, ..self.with_cache(advanced, differs.has_same_indexes) }))
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

    /// The files that are matched anew, in the order of their places. None if the partitions of one are not those of the table.
    fn changed_files(
        &self,
        changes: Vec<ListingChange>,
        paths: &HashSet<String>,
        matcher: &FileMatcher<'_>,
    ) -> Result<Option<Vec<ChangedFile>>> {
        let mut changed = Vec::with_capacity(changes.len() + paths.len());
        let placed = paths.iter().filter_map(|path| {
            let place = self.place_of(path)?;
            Some((place, self.files.get(place)?))
        });
        let mut rematched: BTreeMap<usize, &DataFile> = placed.collect();
        for ListingChange { place, was_there, now } in changes {
            if was_there {
                rematched.remove(&place);
            }
            let now = match now {
                Some(now) => match self.listed(&now) {
                    Some(file) => Some(matched(file, matcher)?),
                    None => return Ok(None),
                },
                None => None,
            };
            changed.push(ChangedFile { place, was_there, now });
        }
        for (place, file) in rematched {
            let file = DataFile { row_groups: None, false_statistics: FalseStatistics::default(), ..file.clone() };
            changed.push(ChangedFile { place, was_there: true, now: Some(matched(file, matcher)?) });
        }
        // At one place what comes is before what goes.
        changed.sort_by_key(|changed| (changed.place, changed.was_there));
        Ok(Some(changed))
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
        let digest = Arc::new(FilesDigest::of(now, Some((before, &self.matched.digest))));
        let verdicts = match differs.has_changed_files {
            true => Arc::default(),
            false => Arc::clone(&self.matched.verdicts),
        };
        let matched = MatchedFiles { schemas: Arc::clone(&matcher.schemas), digest, verdicts };
        Self { files, index_states, matched, manifest: manifest.cloned(), ..self.clone() }
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
            one.is_same_version(other) && one.false_statistics == other.false_statistics
        };
        self.files.eq_by(&other.files, is_same) && Arc::ptr_eq(&self.schema, &other.schema)
    }
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

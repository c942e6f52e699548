//! How the state of the data files is pinned: which files there are, and what is known of each. What is buffered is merged with them
//! afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use lakemark_format::{Manifest, ManifestPublication, ManifestUpdates};
use lakemark_index::RowSet;
use object_store::ObjectMeta;

use super::match_files::{FileMatcher, KnownSchemas, MatchedFiles};
use super::reader_cache::ReaderCache;
use super::recent::{Recent, has_same_migrations, has_same_moves};
use super::relocating_store::followed;
use super::shapes::{ReadableShapes, SummaryOfFile, UnreadableFile, read_shapes, readable_shapes};
use super::snapshot_cache::FileListSource;
use super::table_columns::TableColumns;
use super::{BaseTable, BufferedRows, DataFile, FileIndexState, Lineage, Snapshot, deleted_rows_of, shown_schema};
use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::{DeltaFile, DeltaState};
use crate::files::listed_file::{FileList, ListedFile};
use crate::files::listing::{Listing, under_way};
use crate::files::parted_list::PartedList;
use crate::files::trust::FalseStatistics;
use crate::storage::clock::Moment;
use crate::storage::file_time::is_young;
use crate::store::Store;
use crate::table_format::TableFormat;

/// Footers that are read at a time.
const CONCURRENT_READS: usize = 32;
/// How often a state is pinned that moves under the reader.
const ATTEMPTS: usize = 10;

/// A state of the data files that can be read, and the others.
pub(crate) struct ReadableSnapshot {
    pub snapshot: Snapshot,
    pub unreadable: Vec<UnreadableFile>,
}

/// Rows of a data file that buffered changes delete or replace.
#[derive(Clone, Debug)]
pub(crate) struct DeletedPositions {
    /// Rows of the file per row group.
    pub row_groups: Vec<u32>,
    /// The rows that are deleted or replaced.
    pub rows: Arc<RowSet>,
}

impl Snapshot {
    /// Sets the number of the last change that the snapshot has.
    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = Some(sequence);
    }

    /// Deletes the rows that buffered changes delete or replace, and adds the rows that they add.
    pub(crate) fn apply_updates(
        &mut self,
        deleted: &BTreeMap<usize, DeletedPositions>,
        buffered: &Arc<BufferedRows>,
        next: u64,
    ) {
        for (place, hidden) in deleted {
            let Some(file) = self.files.get_mut(*place) else { continue };
            let was_deleted = file.deleted.as_ref().map_or(0, |deleted| u64::from(deleted.len()));
            let deleted = file.deleted.as_ref().map(|deleted| Arc::new(deleted.or(&hidden.rows)));
            let deleted = deleted.unwrap_or_else(|| Arc::clone(&hidden.rows));
            self.deleted_rows += u64::from(deleted.len()).saturating_sub(was_deleted);
            file.deleted = Some(deleted);
            file.row_groups.get_or_insert_with(|| hidden.row_groups.clone());
        }
        self.buffered = Some(Arc::clone(buffered)).filter(|buffered| buffered.row_count() > 0);
        self.sequence = Some(next.saturating_sub(1));
    }

    /// The newest state of the data files, without what is buffered.
    pub(crate) async fn pin_base(table: &BaseTable) -> Result<Self> {
        Self::pin_base_within(table, Duration::ZERO).await
    }

    /// A state of the data files that is the newest one or was so less than `within` ago, without what is buffered.
    #[tracing::instrument(level = "debug", name = "pin", skip_all, fields(table = table.location()))]
    pub(crate) async fn pin_base_within(table: &BaseTable, within: Duration) -> Result<Self> {
        match table.format {
            TableFormat::Parquet => Self::pin_folder(table, within).await,
            TableFormat::Delta => Self::pin_log(table, within).await,
        }
    }

    async fn pin_folder(table: &BaseTable, within: Duration) -> Result<Self> {
        let looked = recent_within(table, &table.recent_files, within, has_same_moves, newest_listing(table));
        let ManifestAndListing { manifest, found: files } = looked.await?;
        let updates = manifest.as_ref().and_then(|manifest| manifest.updates());
        let later: Vec<_> = updates.and_then(|updates| under_way(updates)).into_iter().collect();
        let is_plain = later.is_empty() && !updates.is_some_and(|updates| has_moved(updates));
        let last = table.last.last().filter(|_| is_plain);
        let changes = last.as_ref().and_then(|last| last.source.changes_to(&files));
        if let (Some(last), Some(changes)) = (&last, &changes)
            && changes.is_empty()
            && last.has_manifest(manifest.as_ref())
        {
            table.columns.insert(&files, &last.snapshot);
            return Ok(last.snapshot.clone());
        }
        // The age is read before anything else: what is read later may be of the same tick. Files that did not change were old enough then.
        let is_young = match &changes {
            Some(changes) => changes.iter().filter_map(|change| change.now.as_ref()).any(|file| is_young(&file.meta)),
            None => files.0.iter().any(|file| is_young(&file.meta)),
        };
        let advanced = match last.zip(changes) {
            Some((last, changes)) => last.snapshot.advanced(table, manifest.as_ref(), changes).await?,
            None => None,
        };
        let snapshot = match advanced {
            Some(advanced) => advanced,
            None => {
                let listing = listing_of(table, updates.map(Arc::as_ref), &later, &files).await?;
                Self::pin_listing(table, manifest, listing).await?
            }
        };
        if !is_young {
            table.columns.insert(&files, &snapshot);
        }
        if is_plain && !is_young {
            table.last.insert(FileListSource::Listing(files), &snapshot);
        }
        Ok(snapshot)
    }

    async fn pin_log(table: &BaseTable, within: Duration) -> Result<Self> {
        let looked = recent_within(table, &table.recent_log, within, has_same_migrations, newest_log(table));
        let ManifestAndLog { manifest, found: state } = looked.await?;
        let last = table.last.last().filter(|last| last.source.has_read(&state));
        if let Some(last) = last.as_ref().filter(|last| last.has_manifest(manifest.as_ref())) {
            return Ok(last.snapshot.clone());
        }
        let advanced = match last {
            Some(last) => {
                let lineage = Lineage::of(&state, manifest.as_deref()).await?;
                last.snapshot.advanced_log(manifest.as_ref(), lineage)?
            }
            None => None,
        };
        let snapshot = match advanced {
            Some(advanced) => advanced,
            None => Self::pin_delta(table, manifest, &state).await?,
        };
        table.last.insert(FileListSource::Log(state), &snapshot);
        Ok(snapshot)
    }

    /// The newest state without files whose footers cannot be read, for who can do without them: none of a table whose changes are about
    /// all of its files, or whose files' columns are listed in a log.
    pub(crate) async fn pin_readable(table: &BaseTable) -> Result<Option<ReadableSnapshot>> {
        if table.format != TableFormat::Parquet {
            return Ok(None);
        }
        let ManifestAndListing { manifest, found: files } = newest_listing(table).await?;
        if manifest.as_ref().is_some_and(|manifest| manifest.updates().is_some()) {
            return Ok(None);
        }
        let listing = listing_of(table, None, &[], &files).await?;
        let mut unreadable = Vec::new();
        let snapshot = Self::pin_files(table, manifest, listing, Some(&mut unreadable)).await?;
        Ok(Some(ReadableSnapshot { snapshot, unreadable }))
    }

    pub(crate) async fn pin_listing(
        table: &BaseTable,
        manifest: Option<Arc<Manifest>>,
        listing: Listing,
    ) -> Result<Self> {
        Self::pin_files(table, manifest, listing, None).await
    }

    /// Pins the files of a listing. Those whose footers cannot be read are left out where somebody takes their names.
    async fn pin_files(
        table: &BaseTable,
        manifest: Option<Arc<Manifest>>,
        listing: Listing,
        unreadable: Option<&mut Vec<UnreadableFile>>,
    ) -> Result<Self> {
        let listed = listing.files.iter().enumerate();
        let listed = listed.map(|(place, file)| DataFile::listed(file, listing.partition_values(place)));
        let mut files: PartedList<DataFile> = listed.collect();
        let matcher = FileMatcher::new(manifest.as_deref(), &KnownSchemas::default());
        let mut index_states = matched_states(&mut files, &matcher)?;
        let unknown = index_states.iter().enumerate().filter(|(_, state)| state.schema.is_none());
        let unknown: Vec<usize> = unknown.map(|(place, _)| place).collect();
        let (shapes, is_whole) = match unreadable {
            None => (read_shapes(table, &files, unknown).await?, true),
            Some(unreadable) => {
                let ReadableShapes { shapes, failed } = readable_shapes(table, &files, unknown).await?;
                unreadable.extend(failed);
                (shapes, false)
            }
        };
        for SummaryOfFile { file, summary } in shapes {
            if let (Some(index_state), Some(data_file)) = (index_states.get_mut(file), files.get_mut(file)) {
                index_state.schema = Some(summary.schema);
                data_file.row_groups = Some(summary.row_groups);
            }
        }
        if !is_whole {
            // Of the others the schema is not known.
            let readable = files.iter().zip(&index_states).filter(|(_, state)| state.schema.is_some());
            let (kept, states): (Vec<_>, Vec<_>) = readable.map(|(file, state)| (file.clone(), state.clone())).unzip();
            (files, index_states) = (kept.into(), states.into());
        }
        let matched = MatchedFiles::of(&matcher, &files, &index_states);
        let TableColumns { schema, file_schema } =
            TableColumns::of(&files, &matched.digest.schemas(), &listing.partition_columns)?;
        Ok(Self {
            schema,
            file_schema,
            partition_columns: listing.partition_columns,
            files,
            attached: ReaderCache::default(),
            object_store: followed(&table.location, table.store.as_ref()),
            root: table.location.root.clone(),
            delta_version: None,
            names: None,
            manifest,
            store: table.store.clone(),
            index_states,
            matched,
            lineage: Lineage::default(),
            table_id: None,
            deleted_rows: 0,
            buffered: None,
            sequence: None,
        })
    }

    pub(crate) async fn pin_delta(
        table: &BaseTable,
        manifest: Option<Arc<Manifest>>,
        state: &DeltaState,
    ) -> Result<Self> {
        let lineage = Lineage::of(state, manifest.as_deref()).await?;
        let mut files: PartedList<DataFile> = state.files.iter().map(DataFile::logged).collect();
        let matcher = FileMatcher::new(manifest.as_deref(), &KnownSchemas::default());
        let mut index_states = matched_states(&mut files, &matcher)?;
        let shown = |stored: SchemaRef| shown_schema(state.names.as_deref(), &stored);
        if state.names.is_some() {
            let states = index_states.iter().cloned();
            let renamed = states.map(|state| FileIndexState { schema: state.schema.map(shown), ..state });
            index_states = renamed.collect();
        }
        // Positions of deleted rows mean nothing without the number of rows.
        let vectors =
            || state.files.iter().enumerate().filter_map(|(file, delta)| Some((file, delta.vector.as_ref()?)));
        let unknown = vectors()
            .map(|(file, _)| file)
            .filter(|file| files.get(*file).is_some_and(|file| file.row_groups.is_none()));
        for SummaryOfFile { file, summary } in read_shapes(table, &files, unknown.collect()).await? {
            if let (Some(index_state), Some(data_file)) = (index_states.get_mut(file), files.get_mut(file)) {
                index_state.schema = Some(shown(summary.schema));
                data_file.row_groups = Some(summary.row_groups);
            }
        }
        let wanted = vectors().filter_map(|(file, vector)| Some((file, vector, files.get(file)?)));
        let mut reads = Vec::new();
        for (file, vector, data_file) in wanted {
            let rows = data_file.row_groups.iter().flatten().sum();
            reads.push(state.deleted(vector, rows, &data_file.path, &table.vectors).map_ok(move |rows| (file, rows)));
        }
        let deleted: Vec<(usize, Arc<RowSet>)> =
            stream::iter(reads).buffer_unordered(CONCURRENT_READS).try_collect().await?;
        for (file, rows) in deleted {
            if let Some(data_file) = files.get_mut(file) {
                data_file.deleted = Some(rows);
            }
        }
        let matched = MatchedFiles::of(&matcher, &files, &index_states);
        let deleted_rows = deleted_rows_of(&files);
        let is_partition = |name: &str| state.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> =
            state.schema.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        Ok(Self {
            schema: Arc::clone(&state.schema),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: state.partition_columns.clone(),
            files,
            attached: ReaderCache::default(),
            object_store: Arc::clone(&table.location.object_store),
            root: table.location.root.clone(),
            delta_version: Some(state.version),
            names: state.names.clone(),
            manifest,
            store: table.store.clone(),
            index_states,
            matched,
            lineage,
            table_id: Some(state.table_id().into()),
            deleted_rows,
            buffered: None,
            sequence: None,
        })
    }
}

/// Whether migrations put data files into the store.
fn has_moved(updates: &ManifestUpdates) -> bool {
    !updates.replaced.is_empty() || !updates.data.is_empty()
}

/// The data files of a table of Parquet files. Migrations and publications moved them, but later publications do not count.
pub(crate) async fn listing_of(
    table: &BaseTable,
    updates: Option<&ManifestUpdates>,
    later: &[&ManifestPublication],
    files: &FileList,
) -> Result<Listing> {
    match (updates, table.store.as_ref()) {
        (Some(updates), Some(store)) if has_moved(updates) || !later.is_empty() => {
            Listing::migrated(files, store, updates, later).await
        }
        _ => Listing::of(&table.location, files),
    }
}

/// A manifest and what goes together with it.
pub(crate) struct ManifestAnd<T> {
    pub manifest: Option<Arc<Manifest>>,
    pub found: Arc<T>,
}

/// A manifest and a listing that go together.
pub(crate) type ManifestAndListing = ManifestAnd<FileList>;

/// A manifest and a version of a Delta table that go together.
type ManifestAndLog = ManifestAnd<DeltaState>;

/// What a look found that began less than `within` ago, with the newest manifest, if they go together; else what a new look finds.
async fn recent_within<T>(
    table: &BaseTable,
    recent: &Recent<T>,
    within: Duration,
    goes_with: fn(Option<&ManifestUpdates>, Option<&ManifestUpdates>) -> bool,
    look: impl Future<Output = Result<ManifestAnd<T>>>,
) -> Result<ManifestAnd<T>> {
    if recent.is_within(within) {
        let manifest = newest_manifest(table).await?;
        if let Some(found) = recent.get(within, manifest.as_deref(), goes_with) {
            return Ok(ManifestAnd { manifest, found });
        }
    }
    let since = Moment::now();
    let newest = look.await?;
    recent.insert(since, &newest.found, newest.manifest.as_ref());
    Ok(newest)
}

/// The newest manifest and a listing that go together: no file of ours was moved into the folder, or out of it, while it was listed.
/// Migrations of a folder move nothing, so that any listing goes with them.
pub(crate) async fn newest_listing(table: &BaseTable) -> Result<ManifestAndListing> {
    fn publications(manifest: Option<&Arc<Manifest>>) -> Option<&[ManifestPublication]> {
        Some(&manifest?.updates()?.publications)
    }
    // A manifest that is remembered was there before, too. What it and the newest one say alike did not change in between.
    let remembered = table.store.as_ref().and_then(|store| store.remembered());
    let (mut before, mut was_newest) = match remembered {
        Some(remembered) => (Some(remembered), false),
        None => (newest_manifest(table).await?, true),
    };
    for _ in 0..ATTEMPTS {
        table.metrics.listings.add(1);
        let files = table.listing.list(&table.location).await?;
        if was_newest && before.as_ref().is_none_or(|manifest| manifest.updates().is_none()) {
            return Ok(ManifestAndListing { manifest: before, found: files });
        }
        let now = newest_manifest(table).await?;
        if publications(now.as_ref()) == publications(before.as_ref()) {
            return Ok(ManifestAndListing { manifest: now, found: files });
        }
        (before, was_newest) = (now, true);
    }
    Err(moves_too_fast(table))
}

/// The newest manifest and a version of the Delta table that go together. No migration began after the manifest was read. So the version
/// has nothing that is later than the buffered changes of the manifest and its log.
async fn newest_log(table: &BaseTable) -> Result<ManifestAndLog> {
    let migrations = |manifest: &Option<Arc<Manifest>>| Some(manifest.as_ref()?.updates()?.migrations);
    let mut manifest = newest_manifest(table).await?;
    for _ in 0..ATTEMPTS {
        table.metrics.listings.add(1);
        let state = table.log.read(&table.location).await?;
        if manifest.as_ref().is_none_or(|manifest| manifest.updates().is_none()) {
            return Ok(ManifestAndLog { manifest, found: state });
        }
        // This manifest may say of a migration that it is done which the log did not have yet.
        let now = newest_manifest(table).await?;
        if migrations(&now) == migrations(&manifest) {
            return Ok(ManifestAndLog { manifest, found: state });
        }
        manifest = now;
    }
    Err(moves_too_fast(table))
}

fn moves_too_fast(table: &BaseTable) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "the table {} was migrated or published {ATTEMPTS} times while it was read; read it again",
            table.location()
        ),
    )
}

/// Pins again where something was not there, or not what it should be. Between the reading of a manifest and of what it names a publication
/// may have moved files. A reader that was stopped for hours finds what a vacuum has left. Damage gives the same error again.
pub(crate) async fn retry_if_moved<T, F: Future<Output = Result<T>>>(pin: impl Fn() -> F) -> Result<T> {
    let mut met: Option<String> = None;
    for _ in 0..ATTEMPTS {
        let error = match pin().await {
            Ok(pinned) => return Ok(pinned),
            Err(error) => error,
        };
        let may_have_moved = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt | ErrorKind::Io);
        let text = error.to_string();
        if !may_have_moved || met.as_ref() == Some(&text) {
            return Err(error);
        }
        met = Some(text);
    }
    pin().await
}

/// Law 5: indexes that cannot be read are as good as none. Buffered updates are data: without a manifest that says what they are, nothing
/// is read.
pub(crate) async fn newest_manifest(table: &BaseTable) -> Result<Option<Arc<Manifest>>> {
    let Some(store) = table.store.as_ref() else { return Ok(None) };
    let error = match store.newest().await.map(|newest| newest.manifest) {
        Ok(Some(manifest)) => return Ok(Some(manifest)),
        Ok(None) if !may_have_updates(store).await? => return Ok(None),
        Ok(None) => None,
        Err(error) if !may_have_updates(store).await? => {
            tracing::warn!(reason = "segment_corrupt", store = store.text(), %error, "the indexes are not used");
            return Ok(None);
        }
        // A manifest that cannot be read now is not damaged: nobody shall restore what is there.
        Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
        Err(error) => Some(error),
    };
    let lost = Error::corrupt(format!(
        "the store {} has buffered updates and no manifest that can be read to tell what they are: restore its folders `manifest` and `checkpoint`; \
         without the folder `updates` the table is read as its data files are",
        store.text()
    ));
    Err(match error {
        Some(error) => lost.with_source(error),
        None => lost,
    })
}

/// Whether rows may be buffered. Updates are in local stores only; a store that cannot even be looked at may have some.
async fn may_have_updates(store: &Store) -> Result<bool> {
    Ok(store.is_local() && store.has_updates().await?)
}

/// What the manifest knows of each of these files, which get their row groups from there.
fn matched_states(files: &mut PartedList<DataFile>, matcher: &FileMatcher<'_>) -> Result<PartedList<FileIndexState>> {
    let mut states = Vec::with_capacity(files.len());
    for place in 0..files.len() {
        states.extend(files.get_mut(place).map(|file| matcher.match_file(file)).transpose()?);
    }
    Ok(states.into())
}

impl DataFile {
    /// A file that was listed, of which nothing else is known.
    pub(super) fn listed(file: &ListedFile, partition_values: Vec<ArrayRef>) -> Self {
        Self::unread(file.meta.as_ref().clone(), file.path.clone(), partition_values)
    }

    /// A file of a Delta table, of which nothing else is known.
    fn logged(file: &DeltaFile) -> Self {
        Self::unread(file.meta.clone(), file.path.clone(), file.partition_values.clone())
    }

    fn unread(meta: ObjectMeta, path: String, partition_values: Vec<ArrayRef>) -> Self {
        let false_statistics = FalseStatistics::default();
        Self { meta, path, partition_values, deleted: None, row_groups: None, false_statistics }
    }
}

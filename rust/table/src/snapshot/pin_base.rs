//! How the state of the data files is pinned: which files there are, and what is known of each. What is buffered is merged with them
//! afterwards.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use futures::future::join;
use lakemark_format::{Manifest, ManifestPublication, ManifestUpdates};
use object_store::ObjectMeta;

use super::column_names::shown_schema;
use super::deletion_vectors::MatchedLists;
use super::laid_files::LaidFiles;
use super::match_files::{FileMatcher, KnownSchemas, MatchedFiles};
use super::reader_cache::ReaderCache;
use super::recent::{Recent, has_same_migrations, has_same_moves};
use super::shapes::{ReadableShapes, SummaryOfFile, UnreadableFile, read_shapes, readable_shapes};
use super::snapshot_cache::FileListSource;
use super::table_columns::TableColumns;
use super::{BaseTable, BufferedRows, DataFile, FileIndexState, Lineage, Snapshot, deleted_of};
use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::{DeltaFile, DeltaState};
use crate::files::listed_file::{FileList, ListedFile};
use crate::files::listing::{Listing, under_way};
use crate::files::migrated_files::MigratedFolder;
use crate::files::parted_list::PartedList;
use crate::files::trust::FalseStatistics;
use crate::storage::clock::Moment;
use crate::storage::file_time::is_young;
use crate::store::Store;
use crate::store::pieces::ManifestNeeds;
use crate::table_format::TableFormat;

/// How often a state is pinned that moves under the reader.
const ATTEMPTS: usize = 10;

/// A state of the data files that can be read, and the others.
pub(crate) struct ReadableSnapshot {
    pub snapshot: Snapshot,
    pub unreadable: Vec<UnreadableFile>,
}

impl Snapshot {
    /// Sets the number of the last change that the snapshot has.
    pub(crate) fn set_sequence(&mut self, sequence: u64) {
        self.sequence = Some(sequence);
    }

    /// Takes the files without the rows that buffered changes delete or replace, and adds the rows that they add.
    pub(crate) fn apply_updates(&mut self, laid: LaidFiles, buffered: &Arc<BufferedRows>, next: u64) {
        (self.files, self.deleted_rows, self.hidden) = (laid.files, laid.deleted_rows, laid.deleted);
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
        let looked = recent_within(table, &table.cache.recent_files, within, has_same_moves, newest_listing(table));
        let ManifestAndListing { manifest, found: files } = looked.await?;
        let manifest = with_files(table, manifest).await?;
        let updates = manifest.as_ref().and_then(|manifest| manifest.updates());
        let later: Vec<_> = updates.and_then(|updates| under_way(updates)).into_iter().collect();
        let last = table.cache.last.last();
        let migrated = migrated_folder(table, updates.map(Arc::as_ref), &later);
        // The data files that count.
        let counted = match migrated {
            Some(migrated) => {
                let before = last.as_ref().and_then(|last| last.source.listing());
                Arc::new(migrated.files(&files, before).await?)
            }
            None => Arc::clone(&files),
        };
        let changes = last.as_ref().and_then(|last| last.source.changes_to(&counted));
        if let (Some(last), Some(changes)) = (&last, &changes)
            && changes.is_empty()
            && last.has_manifest(manifest.as_ref())
        {
            table.cache.columns.insert(&files, &last.snapshot);
            return Ok(last.snapshot.clone());
        }
        // The age is read before anything else: what is read later may be of the same tick. Files that did not change were old enough then.
        let is_young = match &changes {
            Some(changes) => changes.iter().filter_map(|change| change.now.as_ref()).any(|file| is_young(&file.meta)),
            None => counted.0.iter().any(|file| is_young(&file.meta)),
        };
        let advanced = match last.zip(changes) {
            Some((last, changes)) => last.snapshot.advanced(table, manifest.as_ref(), changes).await?,
            None => None,
        };
        let snapshot = match (advanced, migrated) {
            (Some(advanced), _) => advanced,
            (None, Some(_)) => Self::pin_listing(table, manifest.clone(), Listing::of_files(&counted)?).await?,
            (None, None) => Self::pin_listing(table, manifest.clone(), Listing::of(&table.location, &counted)?).await?,
        };
        if !is_young {
            table.cache.columns.insert(&files, &snapshot);
            table.cache.last.insert(FileListSource::Listing(counted), &snapshot);
        }
        Ok(snapshot)
    }

    async fn pin_log(table: &BaseTable, within: Duration) -> Result<Self> {
        let looked = recent_within(table, &table.cache.recent_log, within, has_same_migrations, newest_log(table));
        let ManifestAndLog { manifest, found: state } = looked.await?;
        let manifest = with_files(table, manifest).await?;
        let last = table.cache.last.last();
        if let Some(last) = last.as_ref().filter(|last| last.source.has_read(&state))
            && last.has_manifest(manifest.as_ref())
        {
            return Ok(last.snapshot.clone());
        }
        let changes = last.as_ref().and_then(|last| last.source.changes_of_log(&state));
        let advanced = match last.zip(changes) {
            Some((last, changes)) => last.snapshot.advanced_log(table, manifest.as_ref(), &state, changes).await?,
            None => None,
        };
        let snapshot = match advanced {
            Some(advanced) => advanced,
            None => Self::pin_delta(table, manifest, &state).await?,
        };
        table.cache.last.insert(FileListSource::Log(state), &snapshot);
        Ok(snapshot)
    }

    /// The newest state without files whose footers cannot be read, for who can do without them: none of a table whose changes are about
    /// all of its files, or whose files' columns are listed in a log.
    pub(crate) async fn pin_readable(table: &BaseTable) -> Result<Option<ReadableSnapshot>> {
        if table.format != TableFormat::Parquet {
            return Ok(None);
        }
        let ManifestAndListing { manifest, found: files } = newest_listing(table).await?;
        let manifest = with_files(table, manifest).await?;
        if manifest.as_ref().is_some_and(|manifest| manifest.updates().is_some()) {
            return Ok(None);
        }
        let listing = listing_of(table, None, &[], &files).await?;
        let mut unreadable = Vec::new();
        let snapshot = Self::pin_files(table, manifest, listing, Some(&mut unreadable)).await?;
        Ok(Some(ReadableSnapshot { snapshot, unreadable }))
    }

    /// Pins the files of a listing with a manifest that has read its files.
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
        let mut index_states = matcher.match_all(&mut files)?;
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
            object_store: table.data_store(),
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
            deleted_in: Arc::default(),
            hidden: Arc::default(),
            buffered: None,
            sequence: None,
        })
    }

    /// Pins a version of a Delta table with a manifest that has read its files.
    pub(crate) async fn pin_delta(
        table: &BaseTable,
        manifest: Option<Arc<Manifest>>,
        state: &DeltaState,
    ) -> Result<Self> {
        let lineage = Lineage::of(state, manifest.as_deref()).await?;
        let mut files: PartedList<DataFile> = state.files.iter().map(|file| DataFile::logged(file)).collect();
        let matcher = FileMatcher::new(manifest.as_deref(), &KnownSchemas::default());
        let mut states = matcher.match_all(&mut files)?;
        if state.names.is_some() {
            let shown = |stored: SchemaRef| shown_schema(state.names.as_deref(), &stored);
            let renamed = states.iter().cloned();
            states = renamed.map(|state| FileIndexState { schema: state.schema.map(shown), ..state }).collect();
        }
        let vectors = state.files.iter().enumerate().filter_map(|(place, file)| Some((place, file.vector.as_ref()?)));
        let mut lists = MatchedLists { files, states };
        lists.read_vectors(table, state, &vectors.collect::<Vec<_>>()).await?;
        let MatchedLists { files, states: index_states } = lists;
        let matched = MatchedFiles::of(&matcher, &files, &index_states);
        let (deleted_rows, deleted_in) = deleted_of(&files);
        let is_partition = |name: &str| state.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> =
            state.schema.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        Ok(Self {
            schema: Arc::clone(&state.schema),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: state.partition_columns.clone(),
            files,
            attached: ReaderCache::default(),
            object_store: table.data_store(),
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
            deleted_in,
            hidden: Arc::default(),
            buffered: None,
            sequence: None,
        })
    }
}

/// What migrations and publications made of a folder, if they moved files. Later publications do not count.
fn migrated_folder<'a>(
    table: &'a BaseTable,
    updates: Option<&'a ManifestUpdates>,
    later: &'a [&'a ManifestPublication],
) -> Option<MigratedFolder<'a>> {
    let (updates, store) = updates.zip(table.store.as_deref())?;
    let has_moved = !updates.replaced.is_empty() || !updates.data.is_empty() || !later.is_empty();
    has_moved.then_some(MigratedFolder { store, updates, later })
}

/// The data files of a table of Parquet files. Migrations and publications moved them, but later publications do not count.
pub(crate) async fn listing_of(
    table: &BaseTable,
    updates: Option<&ManifestUpdates>,
    later: &[&ManifestPublication],
    files: &FileList,
) -> Result<Listing> {
    match migrated_folder(table, updates, later) {
        Some(migrated) => Listing::of_files(&migrated.files(files, None).await?),
        None => Listing::of(&table.location, files),
    }
}

/// A manifest, of which nobody has asked for files yet, and what goes together with it.
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
        let (files, ()) = join(table.cache.listing.list(&table.location), read_ahead(table, before.as_ref())).await;
        let files = files?;
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

/// Reads the files of a manifest while data files are listed, or a log is read: they are going to be matched. Whoever matches them says what cannot be read.
async fn read_ahead(table: &BaseTable, manifest: Option<&Arc<Manifest>>) {
    let (Some(store), Some(manifest)) = (table.store.as_ref(), manifest) else { return };
    if let Err(error) = store.load(manifest, &ManifestNeeds::Files(Vec::new())).await {
        tracing::debug!(store = store.text(), %error, "files of the manifest cannot be read yet");
    }
}

/// The newest manifest and a version of the Delta table that go together. No migration began after the manifest was read. So the version
/// has nothing that is later than the buffered changes of the manifest and its log.
async fn newest_log(table: &BaseTable) -> Result<ManifestAndLog> {
    let migrations = |manifest: &Option<Arc<Manifest>>| Some(manifest.as_ref()?.updates()?.migrations);
    let mut manifest = newest_manifest(table).await?;
    for _ in 0..ATTEMPTS {
        table.metrics.listings.add(1);
        let (state, ()) = join(table.cache.log.read(&table.location), read_ahead(table, manifest.as_ref())).await;
        let state = state?;
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

/// The newest manifest, of which nobody has asked for files yet.
pub(crate) async fn newest_manifest(table: &BaseTable) -> Result<Option<Arc<Manifest>>> {
    let Some(store) = table.store.as_ref() else { return Ok(None) };
    or_without_indexes(store, store.newest().await.map(|newest| newest.manifest)).await
}

/// The manifest that was pinned, with all of its files: a snapshot matches each of them.
pub(crate) async fn with_files(table: &BaseTable, manifest: Option<Arc<Manifest>>) -> Result<Option<Arc<Manifest>>> {
    let (Some(store), Some(manifest)) = (table.store.as_ref(), manifest) else { return Ok(None) };
    let loaded = store.loaded(&manifest, &ManifestNeeds::Files(Vec::new())).await;
    or_without_indexes(store, loaded.map(Some)).await
}

/// Law 5: indexes that cannot be read are as good as none. Buffered updates are data: without a manifest that says what they are, nothing
/// is read.
async fn or_without_indexes(store: &Store, read: Result<Option<Arc<Manifest>>>) -> Result<Option<Arc<Manifest>>> {
    let error = match read {
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

impl DataFile {
    /// A file that was listed, of which nothing else is known.
    pub(super) fn listed(file: &ListedFile, partition_values: Vec<ArrayRef>) -> Self {
        Self::unread(file.meta.as_ref().clone(), file.path.clone(), partition_values)
    }

    /// A file of a Delta table, of which nothing else is known.
    pub(super) fn logged(file: &DeltaFile) -> Self {
        Self::unread(file.meta.clone(), file.path.clone(), file.partition_values.clone())
    }

    fn unread(meta: ObjectMeta, path: String, partition_values: Vec<ArrayRef>) -> Self {
        let false_statistics = FalseStatistics::default();
        Self { meta, path, partition_values, deleted: None, row_groups: None, false_statistics }
    }
}

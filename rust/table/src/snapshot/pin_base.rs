//! How the state of the data files is pinned: which files there are, and what is known of each. What is buffered is merged with them
//! afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use futures::{StreamExt, TryFutureExt, TryStreamExt, stream};
use lakemark_format::{Manifest, ManifestFile, ManifestPublication, ManifestUpdates};
use lakemark_index::RowSet;

use super::reader_cache::ReaderCache;
use super::recent::{has_same_migrations, has_same_moves};
use super::relocating_store::followed;
use super::shapes::{ReadableShapes, SummaryOfFile, UnreadableFile, read_shapes, readable_shapes};
use super::snapshot_cache::FileListSource;
use super::{BaseTable, BufferedRows, DataFile, FileIndexState, Lineage, Snapshot, shown_schema};
use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::DeltaState;
use crate::files::listed_file::FileList;
use crate::files::listing::{Listing, under_way};
use crate::files::trust::FalseStatistics;
use crate::storage::clock::Moment;
use crate::storage::file_time::{is_young, modified_ns, was_young};
use crate::store::Store;
use crate::store::manifests::file_of;
use crate::table_format::TableFormat;
use crate::values::schema::{self, FileSchema};

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
        deleted: &[Option<DeletedPositions>],
        buffered: &Arc<BufferedRows>,
        next: u64,
    ) {
        for (place, hidden) in deleted.iter().enumerate() {
            let Some(hidden) = hidden else { continue };
            let Some(file) = Arc::make_mut(&mut self.files).get_mut(place) else { continue };
            let deleted = file.deleted.as_ref().map(|deleted| Arc::new(deleted.or(&hidden.rows)));
            file.deleted = Some(deleted.unwrap_or_else(|| Arc::clone(&hidden.rows)));
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
            TableFormat::Parquet => {
                let ManifestAndListing { manifest, files } = listing_within(table, within).await?;
                let updates = manifest.as_ref().and_then(|manifest| manifest.updates());
                let later: Vec<_> = updates.and_then(|updates| under_way(updates)).into_iter().collect();
                let is_plain = later.is_empty() && !updates.is_some_and(|updates| has_moved(updates));
                let same = || table.last.get(manifest.as_ref(), |source| source.has_listed(&files));
                if let Some(same) = is_plain.then(same).flatten() {
                    table.columns.insert(&files, &same);
                    return Ok(same);
                }
                // The age is read before anything else: what is read later may be of the same tick.
                let is_young = files.0.iter().any(|file| is_young(&file.meta));
                let listing = listing_of(table, updates.map(Arc::as_ref), &later, &files).await?;
                let snapshot = Self::pin_listing(table, manifest, listing).await?;
                if !is_young {
                    table.columns.insert(&files, &snapshot);
                }
                if is_plain && !is_young {
                    table.last.insert(FileListSource::Listing(files), &snapshot);
                }
                Ok(snapshot)
            }
            TableFormat::Delta => {
                let ManifestAndLog { manifest, state } = delta_within(table, within).await?;
                if let Some(same) = table.last.get(manifest.as_ref(), |source| source.has_read(&state)) {
                    return Ok(same);
                }
                let snapshot = Self::pin_delta(table, manifest, &state).await?;
                table.last.insert(FileListSource::Log(state), &snapshot);
                Ok(snapshot)
            }
        }
    }

    /// The newest state without files whose footers cannot be read, for who can do without them: none of a table whose changes are about
    /// all of its files, or whose files' columns are listed in a log.
    pub(crate) async fn pin_readable(table: &BaseTable) -> Result<Option<ReadableSnapshot>> {
        if table.format != TableFormat::Parquet {
            return Ok(None);
        }
        let ManifestAndListing { manifest, files } = newest_listing(table).await?;
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
        let mut files: Vec<DataFile> = listing
            .files
            .iter()
            .enumerate()
            .map(|(place, file)| DataFile {
                meta: file.meta.as_ref().clone(),
                path: file.path.clone(),
                partition_values: listing.partition_values(place),
                deleted: None,
                row_groups: None,
                false_statistics: FalseStatistics::default(),
            })
            .collect();
        let mut index_states = match_manifest(&mut files, manifest.as_deref())?;
        let unknown: Vec<usize> = (0..files.len())
            .filter(|file| index_states.get(*file).is_none_or(|index_state| index_state.schema.is_none()))
            .collect();
        let shapes = match unreadable {
            None => read_shapes(table, &files, unknown).await?,
            Some(unreadable) => {
                let ReadableShapes { shapes, failed } = readable_shapes(table, &files, unknown).await?;
                unreadable.extend(failed);
                shapes
            }
        };
        for SummaryOfFile { file, summary } in shapes {
            if let (Some(index_state), Some(data_file)) = (index_states.get_mut(file), files.get_mut(file)) {
                index_state.schema = Some(summary.schema);
                data_file.row_groups = Some(summary.row_groups);
            }
        }
        // Of the others the schema is not known.
        let mut states = index_states.iter();
        files.retain(|_| states.next().is_some_and(|state| state.schema.is_some()));
        index_states.retain(|state| state.schema.is_some());
        let schemas = index_states.iter().zip(&files).filter_map(|(index_state, file)| {
            Some(FileSchema { file: &file.path, schema: index_state.schema.as_ref()? })
        });
        let merged = schema::merge(schemas)?;
        // Some writers store partition columns in the files too; the folder's name is what counts.
        let is_partition = |name: &str| listing.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> = merged.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        let all: Vec<_> =
            stored.iter().cloned().chain(listing.partition_columns.iter().cloned().map(Arc::new)).collect();
        Ok(Self {
            schema: Arc::new(Schema::new(all)),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: listing.partition_columns,
            files: Arc::new(files),
            attached: ReaderCache::default(),
            object_store: followed(&table.location, table.store.as_ref()),
            root: table.location.root.clone(),
            delta_version: None,
            names: None,
            manifest,
            store: table.store.clone(),
            index_states: Arc::new(index_states),
            lineage: Lineage::default(),
            table_id: None,
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
        let mut files: Vec<DataFile> = state
            .files
            .iter()
            .map(|file| DataFile {
                meta: file.meta.clone(),
                path: file.path.clone(),
                partition_values: file.partition_values.clone(),
                deleted: None,
                row_groups: None,
                false_statistics: FalseStatistics::default(),
            })
            .collect();
        let mut index_states = match_manifest(&mut files, manifest.as_deref())?;
        let shown = |stored: SchemaRef| shown_schema(state.names.as_deref(), &stored);
        for index_state in &mut index_states {
            index_state.schema = index_state.schema.take().map(shown);
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
        let is_partition = |name: &str| state.partition_columns.iter().any(|field| field.name() == name);
        let stored: Vec<_> =
            state.schema.fields().iter().filter(|field| !is_partition(field.name())).cloned().collect();
        Ok(Self {
            schema: Arc::clone(&state.schema),
            file_schema: Arc::new(Schema::new(stored)),
            partition_columns: state.partition_columns.clone(),
            files: Arc::new(files),
            attached: ReaderCache::default(),
            object_store: Arc::clone(&table.location.object_store),
            root: table.location.root.clone(),
            delta_version: Some(state.version),
            names: state.names.clone(),
            manifest,
            store: table.store.clone(),
            index_states: Arc::new(index_states),
            lineage,
            table_id: Some(state.table_id().into()),
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

/// A manifest and a listing that go together.
pub(crate) struct ManifestAndListing {
    pub manifest: Option<Arc<Manifest>>,
    pub files: Arc<FileList>,
}

/// A listing that began less than `within` ago, with the newest manifest, if they go together; else the newest of both.
async fn listing_within(table: &BaseTable, within: Duration) -> Result<ManifestAndListing> {
    if table.recent_files.is_within(within) {
        let manifest = newest_manifest(table).await?;
        if let Some(files) = table.recent_files.get(within, manifest.as_deref(), has_same_moves) {
            return Ok(ManifestAndListing { manifest, files });
        }
    }
    let since = Moment::now();
    let newest = newest_listing(table).await?;
    table.recent_files.insert(since, &newest.files, newest.manifest.as_ref());
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
            return Ok(ManifestAndListing { manifest: before, files });
        }
        let now = newest_manifest(table).await?;
        if publications(now.as_ref()) == publications(before.as_ref()) {
            return Ok(ManifestAndListing { manifest: now, files });
        }
        (before, was_newest) = (now, true);
    }
    Err(moves_too_fast(table))
}

/// A manifest and a version of a Delta table that go together.
struct ManifestAndLog {
    manifest: Option<Arc<Manifest>>,
    state: Arc<DeltaState>,
}

/// A version of the Delta table that was the newest less than `within` ago, with the newest manifest, if they go together; else the newest
/// of both.
async fn delta_within(table: &BaseTable, within: Duration) -> Result<ManifestAndLog> {
    if table.recent_log.is_within(within) {
        let manifest = newest_manifest(table).await?;
        if let Some(state) = table.recent_log.get(within, manifest.as_deref(), has_same_migrations) {
            return Ok(ManifestAndLog { manifest, state });
        }
    }
    let since = Moment::now();
    let newest = newest_delta(table).await?;
    table.recent_log.insert(since, &newest.state, newest.manifest.as_ref());
    Ok(newest)
}

/// The newest manifest and a version of the Delta table that go together. No migration began after the manifest was read. So the version
/// has nothing that is later than the buffered changes of the manifest and its log.
async fn newest_delta(table: &BaseTable) -> Result<ManifestAndLog> {
    let migrations = |manifest: &Option<Arc<Manifest>>| Some(manifest.as_ref()?.updates()?.migrations);
    let mut manifest = newest_manifest(table).await?;
    for _ in 0..ATTEMPTS {
        table.metrics.listings.add(1);
        let state = table.log.read(&table.location).await?;
        if manifest.as_ref().is_none_or(|manifest| manifest.updates().is_none()) {
            return Ok(ManifestAndLog { manifest, state });
        }
        // This manifest may say of a migration that it is done which the log did not have yet.
        let now = newest_manifest(table).await?;
        if migrations(&now) == migrations(&manifest) {
            return Ok(ManifestAndLog { manifest, state });
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

/// Finds every data file in the manifest by path and size.
fn match_manifest(files: &mut [DataFile], manifest: Option<&Manifest>) -> Result<Vec<FileIndexState>> {
    let Some(manifest) = manifest else { return Ok(vec![FileIndexState::default(); files.len()]) };
    let schemas = manifest.schemas().map(|(number, bytes)| Ok((number, schema::from_bytes(bytes)?)));
    let schemas: HashMap<u32, SchemaRef> = match schemas.collect::<Result<_>>() {
        Ok(schemas) => schemas,
        Err(error) => {
            tracing::warn!(reason = "segment_corrupt", %error, "the indexes are not used");
            return Ok(vec![FileIndexState::default(); files.len()]);
        }
    };
    let mut states = Vec::with_capacity(files.len());
    for file in files {
        let Some(number) = manifest.number_of(&file.path)? else {
            states.push(FileIndexState::default());
            continue;
        };
        states
            .push(file_of(manifest, number).map_or_else(FileIndexState::default, |have| {
                match_file(file, number, have, schemas.get(&have.schema))
            }));
    }
    Ok(states)
}

/// What a manifest knows of a data file that it has under a number.
fn match_file(file: &mut DataFile, number: u32, have: &ManifestFile, schema: Option<&SchemaRef>) -> FileIndexState {
    if have.size != file.meta.size {
        return FileIndexState { size_changed: true, ..FileIndexState::default() };
    }
    let same = match (&have.etag, &file.meta.e_tag) {
        (Some(have), Some(now)) => have == now,
        (Some(have), None) if was_young(have) => false,
        _ => have.modified_ns == modified_ns(&file.meta),
    };
    // Also for a file in doubt: what is not there misleads nobody.
    file.false_statistics = have.false_statistics.as_slice().into();
    if !same {
        return FileIndexState { number: Some(number), unverified: true, ..FileIndexState::default() };
    }
    file.row_groups = Some(have.row_groups.clone());
    FileIndexState { number: Some(number), unverified: false, size_changed: false, schema: schema.cloned() }
}

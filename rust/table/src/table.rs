//! A table and what can be done with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{Future, FutureExt};
use lakemark_format::Operation;
use object_store::ObjectStore;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::error::{ErrorKind, Result};
use crate::indexing::advise::{Advice, QueryUse};
use crate::indexing::build::{BuildPart, BuildPlan, BuildTask, RunningBuild};
use crate::indexing::{advise, build, compact, verify};
use crate::metrics::{IndexCoverage, Metrics, RunCounters, RunEnd};
use crate::options::{BuildOptions, IndexSpec, MigrateOptions, TableOptions, VacuumOptions};
use crate::report::{
    BuildReport, ChangesBesideFiles, CompactReport, HealthReport, MigrateReport, PublishReport, UpdatesInfo,
    VacuumReport, VerifyReport, VersionInfo,
};
use crate::snapshot::{BaseTable, Snapshot, TableKey, newest_manifest};
use crate::storage::clock::{self, Stopwatch};
use crate::storage::counting_store::counted;
use crate::storage::location::{Location, StoreLayer};
use crate::store::Store;
use crate::store::pieces::ManifestNeeds;
use crate::store::transaction::{Edit, commit};
use crate::table_format::TableFormat;
use crate::updates::{Change, RepairAction, StagedRows, Staging, UpdatableTable, WriteOptions, Written};
use crate::{doctor, pin, updates, vacuum};

/// A table: a set of Parquet files and the store of its indexes.
///
/// Futures are boxed and can change threads, so that callers may spawn them as they are.
#[derive(Debug)]
pub struct Table {
    pub(crate) updates: Arc<UpdatableTable>,
}

/// Which handles have a part in what one of them remembers.
#[derive(Clone, Copy)]
enum Sharing {
    /// Those of the process that see the same.
    Process,
    None,
}

impl Table {
    /// Opens the table at a path (folder, glob or file) or URL. Where other handles of this process have it open, or had until lately, with
    /// the same storage options, the new one begins with what they remember: of files and commits it reads what changed since.
    pub fn open(location: &str, options: TableOptions) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move {
            let plain = |store: Arc<dyn ObjectStore>| store;
            Self::opened(location, options, &plain, Sharing::Process).await
        })
    }

    /// Opens a table as the first handle of a process does, whatever others remember of it. For tests, which change what is there behind the
    /// back of handles, or stand for other processes.
    #[doc(hidden)]
    pub fn open_alone(location: &str, options: TableOptions) -> BoxFuture<'_, Result<Arc<Self>>> {
        Box::pin(async move { Self::open_layered(location, options, &|store: Arc<dyn ObjectStore>| store).await })
    }

    /// Opens a table with a layer around every object store that it uses, for counters, limits and faults. Nothing is taken from other
    /// handles, nor do they take anything from this one.
    pub fn open_layered<'a>(
        location: &'a str,
        options: TableOptions,
        layer: StoreLayer<'a>,
    ) -> BoxFuture<'a, Result<Arc<Self>>> {
        Box::pin(Self::opened(location, options, layer, Sharing::None))
    }

    async fn opened(
        location: &str,
        options: TableOptions,
        layer: StoreLayer<'_>,
        sharing: Sharing,
    ) -> Result<Arc<Self>> {
        let metrics = Arc::<Metrics>::default();
        let layer = &|store| counted(layer(store), &metrics);
        let location = Location::parse(location, &options.storage, layer).await?;
        let format = if location.is_delta().await? { TableFormat::Delta } else { TableFormat::Parquet };
        let place = location.locate_store(options.store.as_deref(), options.access_of_store(), layer)?;
        let key = match (sharing, options.version) {
            (Sharing::Process, None) => TableKey::of(&location, format, place.as_ref(), &options),
            (Sharing::Process, Some(_)) | (Sharing::None, _) => None,
        };
        let store = place.map(|place| Arc::new(Store::new(place, Arc::clone(&metrics))));
        let mut base = BaseTable::new(location, format, options.version, store, Arc::clone(&metrics));
        base.max_staleness = options.max_staleness;
        let updates = UpdatableTable::new(match key {
            Some(key) => base.shared_as(key),
            None => base,
        });
        if options.version.is_some() {
            // A caller that requests a version that is not there learns it now.
            pin::pin(&updates).await?;
        }
        Ok(Arc::new(Self { updates }))
    }

    /// The table without what is buffered.
    pub(crate) fn base(&self) -> &BaseTable {
        &self.updates.base
    }

    /// The location as it was given.
    #[must_use]
    pub fn location(&self) -> &str {
        self.base().location()
    }

    /// How the list of data files is known.
    #[must_use]
    pub fn format(&self) -> TableFormat {
        self.base().format
    }

    /// Path or URL of the store; none for a glob or a single file opened without one.
    #[must_use]
    pub fn store_location(&self) -> Option<&str> {
        self.base().store.as_ref().map(|store| store.text())
    }

    /// What was done through this handle, and through those that [`Table::at_version`] made of it.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.base().metrics
    }

    /// From now on lookups rule files out by an index before they look at each, as they do in tables of many files. For tests, whose tables
    /// have few: answers are the same.
    #[doc(hidden)]
    pub fn narrow_always(&self) {
        if let Some(store) = &self.base().store {
            store.narrow_always();
        }
    }

    /// From now on trees of indexes that are built have inner pages if they have more leaves than these, as indexes of billions of rows do.
    /// For tests, whose tables have few rows: answers are the same.
    #[doc(hidden)]
    pub fn limit_leaves(&self, most: usize) {
        if let Some(store) = &self.base().store {
            store.limit_leaves(most);
        }
    }

    /// The version that is read; none for the newest state.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        self.base().version
    }

    /// The same table at a version. Whether the version is there is seen when a snapshot is taken.
    #[must_use]
    pub fn at_version(&self, version: u64) -> Arc<Self> {
        Arc::new(Self { updates: UpdatableTable::new(self.base().at_version(version)) })
    }

    /// The newest version that was made until a point in time, in microseconds since 1970-01-01 UTC.
    ///
    /// # Errors
    /// All versions that can be read are younger (`SnapshotExpired`).
    pub fn version_at(&self, micros: i64) -> BoxFuture<'_, Result<u64>> {
        Box::pin(pin::history::version_at(self.base(), micros))
    }

    /// The versions that [`TableOptions::version`] takes, newest first: commits of a Delta table, else manifests of the store.
    pub fn history(&self, limit: Option<usize>) -> BoxFuture<'_, Result<Vec<VersionInfo>>> {
        Box::pin(pin::history::history(self.base(), limit.unwrap_or(usize::MAX)))
    }

    /// An error for a table that was opened at a version.
    ///
    /// # Errors
    /// The table was opened at a version (`InvalidInput`): nothing can be changed in the past.
    pub fn check_open_for_changes(&self) -> Result<()> {
        self.base().check_open_for_changes()
    }

    /// Pins the newest state, or the version that the table was opened at. Of a table with a [`TableOptions::max_staleness`] the data files
    /// may be as old as that. Indexes that cannot be read give a warning and a snapshot
    /// without indexes.
    pub fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>>> {
        Box::pin(async move { pin::pin(&self.updates).await.map(Arc::new) })
    }

    /// Pins the newest state of the data files alone: buffered changes delete or replace none of their rows and add none. For readers that
    /// see nothing but the files; [`Table::changes_beside_files`] says what they miss.
    pub fn snapshot_of_files(&self) -> BoxFuture<'_, Result<Arc<Snapshot>>> {
        Box::pin(async move {
            let base = self.base();
            // What was there when somebody looked last may be gone.
            match Snapshot::pin_base_within(base, base.max_staleness).await {
                Err(_) if !base.max_staleness.is_zero() => Snapshot::pin_base(base).await,
                pinned => pinned,
            }
            .map(Arc::new)
        })
    }

    /// What programs miss that read the folder's own files. The manifest says so, without a look at a data file or a change.
    pub fn changes_beside_files(&self) -> BoxFuture<'_, Result<ChangesBesideFiles>> {
        Box::pin(updates::changes_beside_files(self.base()))
    }

    /// Declares the columns that distinguish the table's rows, so that the table takes updates. All rows are read once to see that no key
    /// is NULL or there twice. The columns, without partition columns, get an index of the kind `key` where they have none that is exact.
    /// Says whether the key was declared now.
    ///
    /// Options: `cache_bytes` (of the SSD for buffered updates, 1 GiB), `page_bytes` (64 KiB), `alpha` (memory against writes, 1) and
    /// `migration_threshold` (none): see [`Parameters`](crate::Parameters).
    pub fn declare_key<'a>(
        self: &'a Arc<Self>,
        columns: &'a [String],
        options: &'a BTreeMap<String, String>,
        build: BuildOptions,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let progress = build.progress.clone();
            let declared = updates::declare_key(&self.updates, columns, options, build).await;
            if let Some(progress) = progress {
                progress.finish();
            }
            declared
        })
    }

    /// Makes changes, all of them or none, one after the other. They are durable, and every snapshot has them, when this returns.
    ///
    /// # Errors
    /// Rows that do not fit the table, inserted keys that are there already (`AlreadyExists`), keys that were changed since
    /// [`WriteOptions::read_at`] (`Conflict`), no space left for buffered updates (`CacheFull`). Then nothing was changed.
    pub fn write(self: &Arc<Self>, changes: Vec<Change>, options: WriteOptions) -> BoxFuture<'static, Result<Written>> {
        let table = Arc::clone(&self.updates);
        Box::pin(async move { updates::write(&table, changes, options).await })
    }

    /// The columns of the key of a table that can be changed.
    ///
    /// # Errors
    /// The table has no key, or was opened at a version (`InvalidInput`).
    pub fn key(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async move {
            self.check_open_for_changes()?;
            self.key_columns().await?.ok_or_else(|| updates::no_key(self.base()))
        })
    }

    /// The columns of the key, if one was declared. Of a folder the newest manifest names them, so that no data file is listed. The log of a
    /// Delta table may have given them other names.
    pub fn key_columns(&self) -> BoxFuture<'_, Result<Option<Vec<String>>>> {
        Box::pin(async move {
            let base = self.base();
            if base.version.is_some() || base.format == TableFormat::Delta {
                return Ok(self.snapshot().await?.key_columns());
            }
            let manifest = newest_manifest(base).await?;
            Ok(manifest.and_then(|manifest| Some(manifest.updates()?.key.clone())))
        })
    }

    /// Begins to write rows of changes aside, for a [`Table::write_staged`] of this or of another process.
    ///
    /// # Errors
    /// The table has no key (`InvalidInput`), or the folder of updates cannot be seen from here (`NotFound`).
    pub fn stage(self: &Arc<Self>, operation: Operation) -> BoxFuture<'_, Result<Staging>> {
        Box::pin(Staging::begin(&self.updates, operation))
    }

    /// Makes the changes that staged rows are, all of them or none: deletes first, then updates, upserts and inserts. A row may be deleted
    /// twice; otherwise no key may be there twice in one operation. The staged files are gone when it returns, unless it fails.
    ///
    /// # Errors
    /// Those of [`Table::write`], and staged rows that are damaged (`Corrupt`) or not seen from here (`NotFound`).
    pub fn write_staged<'a>(
        self: &'a Arc<Self>,
        staged: &'a [StagedRows],
        options: WriteOptions,
    ) -> BoxFuture<'a, Result<Written>> {
        Box::pin(updates::write_staged(&self.updates, staged, options))
    }

    /// Removes staged rows that no call will name.
    pub fn discard_staged<'a>(&'a self, staged: &'a [StagedRows]) -> BoxFuture<'a, Result<()>> {
        Box::pin(updates::discard_staged(self.base(), staged))
    }

    /// Compacts buffered rows into the data files, or a fraction of them: see [`MigrateOptions`]. Queries and changes go on meanwhile.
    ///
    /// # Errors
    /// Another migration is running, or others changed the data files again and again (`Conflict`): try later.
    pub fn migrate(self: &Arc<Self>, options: MigrateOptions) -> BoxFuture<'_, Result<MigrateReport>> {
        let span = tracing::debug_span!("migrate", table = self.location(), files = Empty, rows = Empty, bytes = Empty);
        let migrated = async move {
            let report = updates::migrate(&self.updates, &options).await?;
            record(report.files_written, report.rows, report.bytes_written);
            self.metrics().migrated_files.add(report.files_written);
            self.metrics().migrated_bytes.add(report.bytes_written);
            Ok(report)
        };
        recorded(&self.metrics().migrate, migrated).instrument(span).boxed()
    }

    /// Waits for the migration that a write of this object began by the option `migration_threshold`, if one is running. A process that
    /// ends without waiting stops the migration; the next process begins it again.
    pub fn wait_for_migration(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.updates.automatic.wait())
    }

    /// Lets the data files that migrations wrote into the store be files of the table's folder, in the place of those that they replace.
    /// Then every reader of the folder sees what was migrated. The originals go to the store: see [`VacuumOptions::originals`]. A migration
    /// of a Delta table is seen by every reader anyway.
    ///
    /// # Errors
    /// A migration or another publication is running (`Conflict`), or the table is no local folder (`Unsupported`).
    pub fn publish(self: &Arc<Self>) -> BoxFuture<'_, Result<PublishReport>> {
        Box::pin(updates::publish(&self.updates))
    }

    /// Decides what becomes of buffered changes where the store and the Delta table do not belong together any more (an error of the kind
    /// `StoreMismatch` says so). The store was put back from a backup, the table was made anew, or its log was set back. Says whether there
    /// was something to decide.
    ///
    /// # Errors
    /// The table has no key (`InvalidInput`), or a migration is running (`Conflict`).
    pub fn repair(self: &Arc<Self>, action: RepairAction) -> BoxFuture<'_, Result<bool>> {
        Box::pin(updates::repair(self.base(), action))
    }

    /// The state of the buffered updates; none if the table takes none, as at a version.
    pub fn updates_info(self: &Arc<Self>) -> BoxFuture<'_, Result<Option<UpdatesInfo>>> {
        Box::pin(updates::info(&self.updates))
    }

    /// Writes the buffered updates to a run now, and not when the buffer is full.
    pub fn flush(self: &Arc<Self>) -> BoxFuture<'_, Result<()>> {
        Box::pin(updates::flush_now(&self.updates))
    }

    /// Declares an index; [`Table::build`] fills it. Says whether it was created now.
    pub fn create_index(&self, spec: IndexSpec, if_not_exists: bool) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { updates::create_newest(&self.updates, &spec, if_not_exists).await })
    }

    /// Drops an index. Says whether there was one.
    pub fn drop_index(&self, name: &str, if_exists: bool) -> BoxFuture<'_, Result<bool>> {
        let name = name.to_owned();
        Box::pin(async move {
            let store = self.base().writable_store()?;
            Ok(commit(store, &Edit::DropIndex { name, if_exists }).await?.changed)
        })
    }

    /// Builds whatever the declared indexes do not cover yet, and commits from time to time what is finished. A data file that cannot be
    /// read is left out: [`BuildReport::failed`] has it with the reason. Then it merges segments where an index has too many:
    /// [`BuildOptions::merging`].
    ///
    /// # Errors
    /// The store or the storage of the data does not answer, the disk is full (`Io`), the caller requested a stop (`Cancelled`), or more files
    /// failed than may. What was finished is committed all the same, and the same build run again goes on from there.
    pub fn build(&self, options: BuildOptions) -> BoxFuture<'_, Result<BuildReport>> {
        let span = tracing::debug_span!("build", table = self.location(), files = Empty, rows = Empty, bytes = Empty);
        let built = async move {
            let report = updates::build_newest(&self.updates, options).await?;
            record(report.files, report.rows, report.bytes_written);
            Ok(report)
        };
        recorded(&self.metrics().build, built).instrument(span).boxed()
    }

    /// How much the indexes cover now, as a build sees it: a data file that cannot be read is one that no index covers.
    ///
    /// # Errors
    /// A manifest that cannot be read: by none at all nothing would be missing.
    pub fn index_coverage(&self) -> BoxFuture<'_, Result<IndexCoverage>> {
        Box::pin(async move { Ok(updates::pin_to_build(&self.updates).await?.index_coverage()) })
    }

    /// The first of the three steps of a build that other processes share in: what is to be done, cut into tasks. Where files allow it
    /// there is work for so many workers.
    pub fn plan_build<'a>(&'a self, options: &'a BuildOptions, workers: usize) -> BoxFuture<'a, Result<BuildPlan>> {
        Box::pin(async move {
            build::plan(self.base(), &updates::pin_to_build(&self.updates).await?, options, workers).await
        })
    }

    /// The second step, of each task in any process that opens the table: writes segments that nobody sees yet. Those that are there already
    /// it takes over, and those that are finished when it fails stay for the next one. It ignores the option `index`.
    ///
    /// # Errors
    /// The store is not the one that was planned for (`NotFound`), as where another machine has another disk under the same path.
    pub fn run_build_task<'a>(
        &'a self,
        task: &'a BuildTask,
        options: &'a BuildOptions,
    ) -> BoxFuture<'a, Result<BuildPart>> {
        Box::pin(build::run_in_turn(self.base(), task, options))
    }

    /// The last step, where the plan was made: takes what the tasks give, and commits that from time to time.
    ///
    /// # Errors
    /// More files cannot be read than [`BuildOptions::max_failures`] allows for (`Io`).
    pub fn begin_build(&self, plan: BuildPlan, options: &BuildOptions) -> Result<RunningBuild<'_>> {
        RunningBuild::begin(self.base(), plan, options)
    }

    /// What follows a build whose tasks were shared out: merges the segments of which it leaves too many, unless the options forbid it, and
    /// adds that to its report.
    ///
    /// # Errors
    /// The caller requested a stop (`Cancelled`). What was built is committed.
    pub fn merge_built<'a>(
        &'a self,
        report: BuildReport,
        options: &'a BuildOptions,
    ) -> BoxFuture<'a, Result<BuildReport>> {
        Box::pin(updates::merge_built(&self.updates, report, options))
    }

    /// Merges the segments of indexes, so that a search reads few: all but those that are far larger than the rest, or all that their
    /// `files_per_segment` allows ([`BuildOptions::merging`]). The old ones stay until a [vacuum](Table::vacuum), since queries may be
    /// reading them.
    pub fn compact(&self, options: BuildOptions) -> BoxFuture<'_, Result<CompactReport>> {
        let span = tracing::debug_span!("compact", table = self.location(), bytes = Empty);
        let compacted = async move {
            let progress = options.progress.clone();
            let compacted = async {
                compact::compact(self.base(), &updates::pin_to_build(&self.updates).await?.snapshot, options).await
            }
            .await;
            if let Some(progress) = progress {
                progress.finish();
            }
            compacted.inspect(|report| {
                Span::current().record("bytes", report.bytes_written);
            })
        };
        recorded(&self.metrics().compact, compacted).instrument(span).boxed()
    }

    /// Says which indexes these queries would profit from; without queries, standard predicates over every column. Reads a sample.
    pub fn advise(&self, queries: Option<Vec<QueryUse>>) -> BoxFuture<'_, Result<Advice>> {
        Box::pin(async move { advise::advice::advise(self.base(), &*self.snapshot().await?, queries).await })
    }

    /// Derives every segment from the data again and compares.
    pub fn verify(&self) -> BoxFuture<'_, Result<VerifyReport>> {
        Box::pin(async move {
            let Some(store) = &self.base().store else { return Ok(VerifyReport::default()) };
            // Unlike a query, a verification fails if there is nothing to verify against.
            let newest = store.newest_with(&ManifestNeeds::Everything).await?;
            let Some(manifest) = newest.manifest else { return Ok(VerifyReport::default()) };
            verify::verify(store, &manifest, &pin::pin_anew(&self.updates).await?).await
        })
    }

    /// Looks at everything that goes wrong with tables: what it finds is in the report, with what to do. Of the data it reads what a build
    /// that has nothing to build reads, and it writes nothing but an empty file in the store, which it removes again.
    ///
    /// # Errors
    /// The table was opened at a version (`InvalidInput`). Whatever else fails is in the report.
    pub fn doctor(&self) -> BoxFuture<'_, Result<HealthReport>> {
        Box::pin(doctor::examine(&self.updates))
    }

    /// Removes manifests, segments and unfinished files that nobody needs any more.
    pub fn vacuum(&self, options: VacuumOptions) -> BoxFuture<'_, Result<VacuumReport>> {
        Box::pin(async move { vacuum::vacuum(self.base(), &options).await })
    }
}

/// Runs a verb, and counts how it ended.
async fn recorded<T>(counters: &RunCounters, run: impl Future<Output = Result<T>>) -> Result<T> {
    let stopwatch = Stopwatch::start();
    let outcome = run.await;
    let end = match &outcome {
        Ok(_) => RunEnd::Done,
        Err(error) if error.kind() == ErrorKind::Cancelled => RunEnd::Stopped,
        Err(_) => RunEnd::Failed,
    };
    counters.record(end, stopwatch.seconds(), clock::now());
    outcome
}

/// Says in the span of a verb what it did.
fn record(files: u64, rows: u64, bytes: u64) {
    Span::current().record("files", files).record("rows", rows).record("bytes", bytes);
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;

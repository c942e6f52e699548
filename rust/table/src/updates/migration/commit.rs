//! The second half of a migration: new data files are written, checked against what others did meanwhile, and made to count.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::datatypes::DataType;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_format::{ReplacedFile, StoreFile};
use object_store::ObjectStoreExt;

use super::begin::StartedMigration;
use super::input::MigrationInput;
use super::small_files::small_files;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file_version::FileVersion;
use crate::options::MigrateOptions;
use crate::report::MigrateReport;
use crate::rewrite::delta::{ApplicationTransaction, ApplicationVersion, MigrationOutcome, migrate as migrate_delta};
use crate::rewrite::{RewriteInput, RewriteOutput, RewrittenKeys, folder};
use crate::snapshot::{BaseTable, DataFile, Snapshot, application, application_through};
use crate::storage::failpoint::reach;
use crate::storage::file_time::modified_ns;
use crate::storage::ids::new_id;
use crate::store::Store;
use crate::store::locks::holding;
use crate::store::transaction::{Edit, commit};
use crate::table_format::TableFormat;
use crate::updates::errors::no_key;
use crate::updates::key::KeyColumns;
use crate::updates::locks::MigrationLock;
use crate::updates::lookup::key_positions::{FilesToSearch, positions_of_keys};
use crate::updates::parameters::Parameters;
use crate::updates::recovery::stopped_migration::transaction_version;
use crate::updates::runs::resolve_keys::KeyResolver;
use crate::updates::state::updatable::UpdatableTable;
use crate::updates::view::context::{ManifestState, UpdateContext, UpdateScope};
use crate::updates::view::merged_view::{LiveRows, MergedView};

/// Times that others may be faster before the migration gives up.
const ATTEMPTS: usize = 5;
/// Times that a folder is listed until nothing was added meanwhile.
const LISTINGS: usize = 20;

/// A migration that was begun, and what carries it out.
pub(super) struct Migration<'a> {
    pub table: &'a UpdatableTable,
    pub store: &'a Arc<Store>,
    /// What the migration compacts.
    pub started: &'a StartedMigration,
    /// Whether no slice follows. The last one alone fills up small files: others stay as short as they were asked to be, and no file is filled
    /// up twice.
    pub is_last: bool,
    /// The lock is held as long as the migration may take effect.
    pub lock: &'a MigrationLock,
}

impl Migration<'_> {
    /// Writes and publishes the new data files. Where others are faster, it begins again. Gives a version of the Delta log that has the
    /// migration.
    pub(super) async fn write_files(
        &self,
        options: &MigrateOptions,
        report: &mut MigrateReport,
    ) -> Result<Option<u64>> {
        let (mut last, mut fills_up) = (None, self.is_last);
        for _ in 0..ATTEMPTS {
            let done = self.migrate_once(options, fills_up, report).await;
            if let Some(progress) = &options.progress {
                progress.finish();
            }
            match done {
                // A file that vanished while it was read was replaced by somebody who was faster.
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => last = Some(error),
                // It may be a small file that is damaged, which no change is about.
                Err(error) if fills_up && matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::SchemaMismatch) => {
                    tracing::info!(table = self.table.base.location(), %error, "a migration is made again without filling up small files");
                    last = Some(error);
                }
                done => return done,
            }
            // Small files are what others may replace as well, and nothing that has to be migrated.
            fills_up = false;
        }
        Err(last.unwrap_or_else(|| Error::internal("a migration was never tried")))
    }

    async fn migrate_once(
        &self,
        options: &MigrateOptions,
        fills_up: bool,
        report: &mut MigrateReport,
    ) -> Result<Option<u64>> {
        let Self { table, store, started, lock, .. } = *self;
        let mut base = Snapshot::pin_base(&table.base).await?;
        if base.migration_done() {
            // The attempt took effect, though it had looked like a failure.
            return Ok(base.delta_version());
        }
        let manifest = base.manifest.clone().ok_or_else(|| no_key(&table.base))?;
        let state = ManifestState { number: manifest.number(), migration_done: false };
        let (files, updates) = (&table.merged_views.files, &started.updates);
        let updated = UpdateContext::of(&mut base, store, files, updates, state, UpdateScope::Runs).await?;
        let runs = updated.active_runs(&base, files).await?;
        let ground = KeyResolver { base: &base, key: &updated.key, schema: &updated.schema };
        let view = MergedView::of(&ground, &runs, 0, &Parameters::of(&updates.options)?).await?;
        let slice = MigrationInput::of(&updated, &ground, &runs, &view, updates).await?;
        report.rows = slice.rows.iter().map(|part| part.row_count() as u64).sum();
        report.rows_replaced = slice.deleted.iter().flatten().map(|rows| u64::from(rows.len())).sum();
        let texts = base.partition_columns().iter().filter(|column| column.data_type().is_string());
        let texts = texts.map(|column| column.name().clone()).collect();
        let keys = MigratedKeys { table: &table.base, key: &updated.key, slices: &slice.keys, texts: &texts };
        let small = if fills_up { small_files(&base, &slice.deleted) } else { Vec::new() };
        let input = RewriteInput {
            deleted: &slice.deleted,
            rows: &slice.rows,
            small: &small,
            key: &updated.key.names,
            keys: Some(&keys),
            progress: options.progress.clone(),
            lock: Some(lock.guard()),
        };
        let (rewritten, version) = match table.base.format {
            TableFormat::Delta => {
                let transaction = transaction(manifest.store_id(), started)?;
                match migrate_delta(&table.base.location, &base, &input, &transaction).await? {
                    MigrationOutcome::Committed { version, rewritten } => {
                        report.delta_version = Some(version);
                        (rewritten, Some(version))
                    }
                    // Some version has it: the newest one does.
                    MigrationOutcome::Already => return Ok(Snapshot::pin_base(&table.base).await?.delta_version()),
                }
            }
            TableFormat::Parquet => {
                let rewritten = folder::write(store, &base, &input, new_id()).await?;
                reach("migration-written");
                self.take_in(&base, &rewritten, &keys).await?;
                (rewritten, None)
            }
        };
        report.files_replaced = rewritten.replaced.len() as u64;
        report.files_written = rewritten.files.len() as u64;
        report.bytes_written = rewritten.files.iter().map(|file| file.size).sum();
        Ok(version)
    }
}

/// What the commit says to stores that are put back from a backup.
fn transaction(store_id: [u8; 16], begun: &StartedMigration) -> Result<ApplicationTransaction> {
    let last = begun.updates.log.first_sequence.saturating_sub(1);
    let through = begun.is_whole.then(|| transaction_version(last)).transpose()?;
    Ok(ApplicationTransaction {
        id: application(store_id),
        version: transaction_version(begun.number)?,
        through: through.map(|version| ApplicationVersion { id: application_through(store_id), version }),
    })
}

/// The keys of the rows that are compacted.
struct MigratedKeys<'a> {
    table: &'a BaseTable,
    key: &'a Arc<KeyColumns>,
    slices: &'a [LiveRows],
    /// Partition columns that are read as text.
    texts: &'a BTreeSet<String>,
}

impl MigratedKeys<'_> {
    /// The newest state of the data files, with the types that the keys have.
    async fn now(&self) -> Result<Snapshot> {
        let mut now = Snapshot::pin_base(self.table).await?;
        now.read_as_text(self.texts)?;
        let schema = now.schema();
        let is_typed =
            |(name, of): (&String, &DataType)| schema.field_with_name(name).is_ok_and(|now| now.data_type() == of);
        match self.key.names.iter().zip(&self.key.types).all(is_typed) {
            true => Ok(now),
            false => Err(meanwhile("others changed the type of a column of the key")),
        }
    }

    /// Whether one of these files of a snapshot has one of the keys.
    async fn are_among(&self, now: &Snapshot, files: &[usize]) -> Result<bool> {
        for LiveRows { run, rows } in self.slices {
            let keys = run.keys(self.key, rows).await?;
            let found = positions_of_keys(now, self.key, &keys, FilesToSearch::These(files)).await?;
            if found.iter().any(|found| !found.rows.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl RewrittenKeys for MigratedKeys<'_> {
    fn are_in<'a>(&'a self, added: &'a [String]) -> BoxFuture<'a, Result<bool>> {
        async move {
            let now = self.now().await?;
            // A file that is gone again was removed by a commit that is checked as well.
            let is_added = |file: &usize| now.files().get(*file).is_some_and(|file| added.contains(&file.path));
            let files: Vec<usize> = (0..now.files().len()).filter(is_added).collect();
            self.are_among(&now, &files).await
        }
        .boxed()
    }
}

impl Migration<'_> {
    /// Lets a manifest name the new files of a folder in the place of those that they replace. The replaced files must still be what they
    /// were. No file that others added meanwhile may have one of the keys: the buffered rows would no longer replace its rows.
    async fn take_in(&self, base: &Snapshot, rewritten: &RewriteOutput, keys: &MigratedKeys<'_>) -> Result<()> {
        let mut known: HashSet<FileVersion> = base.files().iter().map(DataFile::version).collect();
        for _ in 0..LISTINGS {
            let now = keys.now().await?;
            check_unchanged(base, &now, rewritten)?;
            let is_new = |file: &usize| now.files().get(*file).is_some_and(|file| !known.contains(&file.version()));
            let added: Vec<usize> = (0..now.files().len()).filter(is_new).collect();
            if added.is_empty() {
                check_written(self.store, rewritten).await?;
                return self.commit_rewritten(base, rewritten).await;
            }
            if keys.are_among(&now, &added).await? {
                return Err(meanwhile("others added files with keys that are buffered"));
            }
            known.extend(now.files().iter().map(DataFile::version));
        }
        Err(meanwhile("others go on adding files"))
    }

    /// The commit is a task of its own: the lock is held until the commit is made or not, also if the caller goes away.
    async fn commit_rewritten(&self, base: &Snapshot, rewritten: &RewriteOutput) -> Result<()> {
        let is_own = |path: &str| path.starts_with(crate::storage::location::STORE_FOLDER);
        let (mut originals, mut own) = (Vec::new(), Vec::new());
        for file in rewritten.replaced.iter().filter_map(|file| base.files().get(*file)) {
            match is_own(&file.path) {
                true => own.push(file.path.split_once('/').map_or(String::new(), |(_, path)| path.to_owned())),
                false => originals.push(ReplacedFile {
                    path: file.path.clone(),
                    size: file.meta.size,
                    modified_ns: modified_ns(&file.meta),
                }),
            }
        }
        let data = rewritten.files.iter().map(|file| StoreFile { path: file.path.clone(), size: file.size }).collect();
        let edit = Edit::MigrateFolder { number: self.started.number, originals, own, data };
        let store = Arc::clone(self.store);
        let committed = holding(self.lock.clone(), async move { commit(&store, &edit).await });
        match committed.await??.changed {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Conflict, "the table was migrated by somebody else meanwhile")),
        }
    }
}

fn meanwhile(what: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("{what} while the table was migrated; migrate again"))
}

fn check_unchanged(base: &Snapshot, now: &Snapshot, rewritten: &RewriteOutput) -> Result<()> {
    let have: HashSet<FileVersion> = now.files().iter().map(DataFile::version).collect();
    for file in rewritten.replaced.iter().filter_map(|file| base.files().get(*file)) {
        if !have.contains(&file.version()) {
            let text = format!("the data file {} was changed by somebody else meanwhile; migrate again", file.path);
            return Err(Error::new(ErrorKind::Conflict, text));
        }
    }
    Ok(())
}

/// A process that was stopped for hours finds that a vacuum took files that no manifest named.
async fn check_written(store: &Store, rewritten: &RewriteOutput) -> Result<()> {
    for file in &rewritten.files {
        // Names of partitions may have characters that paths of the store escape.
        let place = store.data_path(&file.path);
        if !store.object_store().head(&place).await.is_ok_and(|meta| meta.size == file.size) {
            return Err(meanwhile("a vacuum removed files that were not finished"));
        }
    }
    Ok(())
}

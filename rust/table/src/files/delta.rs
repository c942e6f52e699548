//! Delta tables: the files of the current version, their partition values and deletion vectors.

mod after;
mod checkpoint;
mod commits;
mod log;
mod log_search;
mod logged_file;
pub(crate) mod logged_path;
mod mapped_by_id;
mod newest;
mod row_tracking;
mod scanned_files;
mod short_log;
mod type_changes;
mod writer_feature;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use buoyant_kernel::Error as KernelError;
use buoyant_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use chrono::{DateTime, Utc};
use deltalake_core::kernel::{Remove, Snapshot as LogSnapshot};
use deltalake_core::logstore::{
    LogStoreFactory, LogStoreRef, ObjectStoreRef, StorageConfig, default_logstore, logstore_factories,
};
use deltalake_core::{DeltaResult, DeltaTableBuilder, DeltaTableError};
use lakemark_index::RowSet;
use object_store::ObjectMeta;
use url::Url;

use crate::error::{Error, ErrorKind, Result};
use crate::files::column_mapping::{ColumnMapping, MappedBy, plain_schema};
use crate::files::parted_list::PartedList;
use crate::storage::location::Location;

pub(crate) use self::checkpoint::Checkpoint;
use self::commits::FileKey;
pub(crate) use self::log::DeltaLog;
use self::logged_file::{LoggedFile, malformed_vector};
use self::logged_path::{place_of_file, snapshot_path};
pub(crate) use self::newest::NewestState;
pub(crate) use self::row_tracking::{RowIdColumns, RowOrigin, RowTracking};
use self::scanned_files::{check_readable, scan_files};
pub(crate) use self::writer_feature::WriterFeature;

/// Deletion vectors that a table remembers.
const CACHE_ENTRIES: usize = 10_000;

/// Attempts to read a log that cannot be read.
const ATTEMPTS: u32 = 3;

/// The folder of the log.
pub(crate) const LOG_FOLDER: &str = "_delta_log";

/// A Delta table at one version.
pub(crate) struct DeltaState {
    pub version: u64,
    pub schema: SchemaRef,
    /// The same columns with all metadata of the log.
    pub logged_schema: SchemaRef,
    /// The names that columns have in the files, where these differ from the shown ones.
    pub names: Option<Arc<ColumnMapping>>,
    pub partition_columns: Vec<Field>,
    /// The data files, by path. Shared with the states that follow, as far as these have the same files.
    pub files: PartedList<Arc<DeltaFile>>,
    location: Location,
    /// What the library read: this version, or an earlier one with the same metadata and protocol.
    logged: Arc<LogSnapshot>,
    log_store: LogStoreRef,
    /// Transactions that were requested: the log is searched once for each. Nobody has the lock while a log is read, as others would wait.
    transactions: Mutex<HashMap<String, Option<i64>>>,
}

/// A data file of a version.
#[derive(Debug)]
pub(crate) struct DeltaFile {
    pub meta: ObjectMeta,
    pub path: String,
    /// The text that the log has for the path, where that is another one.
    logged_path: Option<Box<str>>,
    pub partition_values: Vec<ArrayRef>,
    pub vector: Option<DeletionVectorDescriptor>,
    /// What its rows are called, where the table tracks them.
    pub origin: Option<Box<RowOrigin>>,
}

/// An action that removes a data file.
pub(crate) struct Removal {
    pub action: Remove,
    /// The text that the log has for the path of the file.
    pub path: String,
}

/// Deleted rows by vector.
#[derive(Debug, Default)]
pub(crate) struct VectorCache(Mutex<HashMap<String, Arc<RowSet>>>);

fn delta_error(location: &Location, error: DeltaTableError) -> Error {
    match &error {
        DeltaTableError::KernelError(KernelError::MaxCatalogVersion(_)) => {
            return Error::unsupported(format!(
                "the Delta table {} is managed by a catalog, which alone knows its newest commits (catalogManaged), and this release asks \
                 no catalog for them; read it through its catalog, or copy it to a table without that feature",
                location.text
            ));
        }
        DeltaTableError::KernelError(KernelError::Unsupported(what)) => {
            return Error::unsupported(format!(
                "the Delta table {} has a feature that this release does not read: {what}; copy it to a table without that feature",
                location.text
            ));
        }
        _ => {}
    }
    Error::io(format!("the Delta log of {} cannot be read", location.text)).with_source(error)
}

/// Reads logs through the store that the caller gives, wherever that is; it never writes one.
struct AnyStore;

impl LogStoreFactory for AnyStore {
    fn with_options(
        &self,
        prefixed_store: ObjectStoreRef,
        root_store: ObjectStoreRef,
        location: &Url,
        options: &StorageConfig,
    ) -> DeltaResult<LogStoreRef> {
        Ok(default_logstore(prefixed_store, root_store, location, options))
    }
}

/// Makes the kernel take URLs of this scheme: by itself it knows files and memory only.
fn know_scheme(url: &Url) {
    if let Ok(scheme) = Url::parse(&format!("{}://", url.scheme())) {
        logstore_factories().entry(scheme).or_insert_with(|| Arc::new(AnyStore));
    }
}

/// What the library reads the log of a table with.
fn log_store_of(location: &Location) -> Result<LogStoreRef> {
    know_scheme(&location.root);
    DeltaTableBuilder::from_url(location.root.clone())
        .map(|builder| builder.with_storage_backend(Arc::clone(&location.object_store), location.root.clone()))
        .and_then(|builder| builder.build_storage())
        .map_err(|error| delta_error(location, error))
}

/// What is made of the files of a version, in no order.
async fn made_of_files<T>(
    location: &Location,
    logged: &LogSnapshot,
    log_store: &LogStoreRef,
    made: impl Fn(LoggedFile) -> Result<T>,
) -> Result<Vec<T>> {
    let unreadable = |error| delta_error(location, error);
    check_readable(logged).map_err(unreadable)?;
    if let Some(files) = short_log::files(location, logged.version(), logged.metadata().id()).await {
        return files.into_iter().map(made).collect();
    }
    let mut files = Vec::new();
    let take = |file: LoggedFile| -> Result<()> {
        files.push(made(file)?);
        Ok(())
    };
    scan_files(logged, log_store, unreadable, take).await?;
    Ok(files)
}

impl DeltaState {
    /// The same state, as another handle of the table reads it.
    ///
    /// # Errors
    /// The library does not take the place of the log.
    pub(crate) fn read_through(&self, location: &Location) -> Result<Self> {
        Ok(Self { location: location.clone(), log_store: log_store_of(location)?, ..self.copied() })
    }

    fn copied(&self) -> Self {
        Self {
            version: self.version,
            schema: Arc::clone(&self.schema),
            logged_schema: Arc::clone(&self.logged_schema),
            names: self.names.clone(),
            partition_columns: self.partition_columns.clone(),
            files: self.files.clone(),
            location: self.location.clone(),
            logged: Arc::clone(&self.logged),
            log_store: Arc::clone(&self.log_store),
            transactions: Mutex::new(self.known_transactions().clone()),
        }
    }

    /// Reads the log.
    pub(crate) async fn read(location: &Location) -> Result<Self> {
        Self::read_version(location, None).await
    }

    /// Reads the log up to a version, or all of it.
    ///
    /// A log is listed while others commit: a listing may have their second commit and lack the first. A log that cannot be read is read
    /// again; damage is there again then.
    pub(crate) async fn read_version(location: &Location, version: Option<u64>) -> Result<Self> {
        for _ in 1..ATTEMPTS {
            match Self::load(location, version).await {
                Err(error) if error.kind() == ErrorKind::Io => {}
                loaded => return loaded,
            }
        }
        Self::load(location, version).await
    }

    async fn load(location: &Location, version: Option<u64>) -> Result<Self> {
        let unreadable = |error| delta_error(location, error);
        let log_store = log_store_of(location)?;
        let logged = Arc::new(LogSnapshot::try_new(log_store.as_ref(), version).await.map_err(unreadable)?);
        let (metadata, logged_schema) = (logged.metadata(), logged.arrow_schema());
        type_changes::check(&location.text, &logged_schema)?;
        let mode = match metadata.configuration().get("delta.columnMapping.mode").map(String::as_str) {
            None | Some("none") => None,
            Some("name") => Some(MappedBy::Name),
            Some("id") => Some(MappedBy::Id),
            Some(mode) => {
                return Err(Error::unsupported(format!(
                    "the Delta table {} maps columns by {mode}, which this release does not know; copy it to a table that maps them by name",
                    location.text
                )));
            }
        };
        let names = mode.map(|by| Arc::new(ColumnMapping::of(&logged_schema, by)));
        let schema = if mode.is_some() { plain_schema(&logged_schema) } else { Arc::clone(&logged_schema) };
        let partition_columns = metadata
            .partition_columns()
            .iter()
            .map(|name| schema.field_with_name(name).cloned())
            .collect::<Result<Vec<Field>, _>>()
            .map_err(|error| {
                Error::corrupt("the Delta log names a partition column that it lacks").with_source(error)
            })?;
        let made = |file| data_file(location, file, &partition_columns, names.as_deref()).map(Arc::new);
        let mut files = made_of_files(location, &logged, &log_store, made).await?;
        // A path that a log gives two files has them in one order, whoever reads it.
        files.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.key().cmp(&b.key())));
        let state = Self {
            version: logged.version(),
            schema,
            logged_schema,
            names,
            partition_columns,
            files: files.into(),
            location: location.clone(),
            logged,
            log_store,
            transactions: Mutex::default(),
        };
        state.check_ids(state.files.iter().cloned()).await?;
        Ok(state)
    }

    /// The id of the table. A table that is made anew in the same place has another.
    pub(crate) fn table_id(&self) -> &str {
        self.logged.metadata().id()
    }

    /// The version of the protocol that writers need.
    pub(crate) fn writer_version(&self) -> i32 {
        self.logged.protocol().min_writer_version()
    }

    /// The features that writers need; older versions of the protocol do not list them.
    pub(crate) fn writer_features(&self) -> Vec<WriterFeature> {
        let features = self.logged.protocol().writer_features().unwrap_or_default();
        // Not by `as_ref`, which has one name for all that the kernel does not know.
        let names = features.iter().map(ToString::to_string);
        names.map(|name| WriterFeature::of(&name)).collect()
    }

    /// Whether the table may have columns that it is clustered by.
    pub(crate) fn is_clustered(&self) -> bool {
        self.writer_features().contains(&WriterFeature::Clustering)
    }

    /// The table's properties.
    pub(crate) fn properties(&self) -> &HashMap<String, String> {
        self.logged.metadata().configuration()
    }

    /// What the library reads of the log at this version.
    ///
    /// # Errors
    /// The log cannot be read (`Io`), or is the log of another table by now (`Conflict`).
    async fn logged_here(&self) -> Result<Arc<LogSnapshot>> {
        if self.logged.version() == self.version {
            return Ok(Arc::clone(&self.logged));
        }
        let logged = LogSnapshot::try_new(self.log_store.as_ref(), Some(self.version)).await;
        let logged = logged.map_err(|error| delta_error(&self.location, error))?;
        self.check_same_table(logged.metadata().id())?;
        Ok(Arc::new(logged))
    }

    /// The state of this version, read of the log as it is now.
    ///
    /// # Errors
    /// Those of [`Self::logged_here`].
    async fn read_again(&self) -> Result<Self> {
        let again = Self::read_version(&self.location, Some(self.version)).await?;
        self.check_same_table(again.table_id())?;
        Ok(again)
    }

    /// Fails if a log is not the one of this table. A table that was made anew in the same place may have as many versions.
    fn check_same_table(&self, id: &str) -> Result<()> {
        if id == self.table_id() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            format!("the Delta table {} was replaced while it was read; read it again", self.location.text),
        ))
    }

    /// The actions that remove files, in the order of `paths`. The log is read for that, as [`Self::application_version`] reads it.
    pub(crate) async fn removals(&self, paths: &[&str], time: i64) -> Result<Vec<Removal>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let mut logged = match self.read_files(paths).await {
            Ok(logged) => logged,
            Err(_) => self.read_again().await?.read_files(paths).await?,
        };
        let removal = |path: &&str| {
            let file = logged.remove(*path)?;
            Some(Removal { path: file.path.clone(), action: file.removal(time) })
        };
        let removals: Option<Vec<_>> = paths.iter().map(removal).collect();
        removals.ok_or_else(|| Error::internal("the Delta log lacks a file of the snapshot"))
    }

    /// What the log says of files, by path.
    async fn read_files(&self, paths: &[&str]) -> Result<HashMap<String, LoggedFile>> {
        let unreadable = |error| delta_error(&self.location, error);
        let wanted: HashSet<&str> = paths.iter().copied().collect();
        let logged = self.logged_here().await?;
        let mut found = HashMap::with_capacity(paths.len());
        let take = |file: LoggedFile| -> Result<()> {
            let path = snapshot_path(&self.location, &file.path)?;
            if wanted.contains(path.as_str()) {
                found.insert(path, file);
            }
            Ok(())
        };
        scan_files(&logged, &self.log_store, unreadable, take).await?;
        Ok(found)
    }

    /// The rows that a vector deletes, of a file with `rows` rows.
    pub(crate) async fn deleted(
        &self,
        vector: &DeletionVectorDescriptor,
        rows: u32,
        path: &str,
        cache: &VectorCache,
    ) -> Result<Arc<RowSet>> {
        let key = format!("{}|{:?}|{:?}|{rows}", vector.unique_id(), vector.size_in_bytes, vector.cardinality);
        if let Some(known) = cache.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(known));
        }
        let engine = self.log_store.engine(None);
        let mut root = self.log_store.root_url().clone();
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        let (vector, name) = (vector.clone(), path.to_owned());
        // The kernel's storage handler blocks.
        let positions = tokio::task::spawn_blocking(move || vector.row_indexes(engine.storage_handler(), &root))
            .await
            .map_err(|error| Error::task(&error))?
            .map_err(|error| {
                Error::corrupt(format!("the deletion vector of {name} cannot be read; restore the Delta table"))
                    .with_source(error)
            })?;
        let positions: Option<Vec<u32>> =
            positions.into_iter().map(|row| u32::try_from(row).ok().filter(|row| *row < rows)).collect();
        let Some(positions) = positions else {
            return Err(Error::corrupt(format!(
                "the deletion vector of {path} deletes rows that the file does not have; restore the Delta table"
            )));
        };
        let deleted = Arc::new(RowSet::from_rows(positions, rows));
        let mut known = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CACHE_ENTRIES {
            known.clear();
        }
        known.insert(key, Arc::clone(&deleted));
        Ok(deleted)
    }
}

impl DeltaFile {
    /// How the log knows the file.
    fn key(&self) -> FileKey {
        FileKey::new(self.logged_path.as_deref().unwrap_or(&self.path), self.vector.as_ref())
    }
}

fn data_file(
    location: &Location,
    file: LoggedFile,
    partition_columns: &[Field],
    names: Option<&ColumnMapping>,
) -> Result<DeltaFile> {
    let path = snapshot_path(location, &file.path)?;
    let size =
        u64::try_from(file.size).map_err(|_| Error::corrupt(format!("the Delta log gives {path} a negative size")))?;
    let last_modified = DateTime::<Utc>::from_timestamp_millis(file.modification_time).unwrap_or_default();
    let partition_values = partition_columns
        .iter()
        .map(|field| {
            let stored = names.and_then(|names| names.physical(field.name()));
            let value = file.partition_values.get(stored.as_ref().unwrap_or(field.name()));
            partition_value(field, value.and_then(Option::as_deref), &path)
        })
        .collect::<Result<_>>()?;
    let origin = file.origin().map(Box::new);
    let vector = file.deletion_vector.map(DeletionVectorDescriptor::try_from).transpose();
    let vector = vector.map_err(|error| malformed_vector(&path).with_source(error))?;
    let meta = ObjectMeta { location: place_of_file(location, &path), last_modified, size, e_tag: None, version: None };
    let logged_path = (file.path != path).then(|| file.path.into_boxed_str());
    Ok(DeltaFile { meta, path, logged_path, partition_values, vector, origin })
}

/// The protocol writes partition values as text; an empty text is NULL.
fn partition_value(field: &Field, raw: Option<&str>, path: &str) -> Result<ArrayRef> {
    let text = StringArray::from(vec![raw.filter(|raw| !raw.is_empty())]);
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&text, field.data_type(), &options).map_err(|error| {
        Error::corrupt(format!("the partition value of {} in {path} is no {}", field.name(), field.data_type()))
            .with_source(error)
    })
}

/// A partition value, an array of length 1, as the protocol writes it; none for NULL.
pub(crate) fn partition_text(value: &ArrayRef) -> Result<Option<String>> {
    if value.data_type().is_nested() || value.data_type().is_binary() {
        return Err(Error::unsupported(format!("new partitions by values of the type {}", value.data_type())));
    }
    let text = cast(value, &DataType::Utf8)
        .map_err(|error| Error::unsupported("a partition value cannot be written as text").with_source(error))?;
    let text = text.as_string::<i32>().iter().next().flatten().map(str::to_owned);
    Ok(match value.data_type() {
        DataType::Timestamp(_, None) => text.map(|text| text.replacen('T', " ", 1)),
        _ => text,
    })
}

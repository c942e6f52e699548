//! Delta tables: the files of the current version, their partition values and deletion vectors.

mod log;
mod newest;
mod writer_feature;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, SchemaRef};
use buoyant_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use chrono::{DateTime, Utc};
use deltalake_core::kernel::{LogicalFileView, Remove};
use deltalake_core::logstore::{
    LogStoreFactory, LogStoreRef, ObjectStoreRef, StorageConfig, default_logstore, logstore_factories,
};
use deltalake_core::table::state::DeltaTableState;
use deltalake_core::{DeltaResult, DeltaTableBuilder, DeltaTableError};
use futures::TryStreamExt;
use lakemark_index::RowSet;
use object_store::ObjectMeta;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{Error, ErrorKind, Result};
use crate::files::column_mapping::{ColumnMapping, plain_schema};
use crate::storage::location::Location;

pub(crate) use self::log::DeltaLog;
pub(crate) use self::newest::NewestState;
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
    pub files: Vec<DeltaFile>,
    location: Location,
    state: DeltaTableState,
    log_store: LogStoreRef,
    /// Transactions that were requested: the log is searched once for each.
    transactions: tokio::sync::Mutex<HashMap<String, Option<i64>>>,
}

/// A data file of a version.
pub(crate) struct DeltaFile {
    pub meta: ObjectMeta,
    pub path: String,
    pub partition_values: Vec<ArrayRef>,
    pub vector: Option<DeletionVectorDescriptor>,
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

impl DeltaState {
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
        know_scheme(&location.root);
        let mut builder = DeltaTableBuilder::from_url(location.root.clone())
            .map_err(|error| delta_error(location, error))?
            .with_storage_backend(Arc::clone(&location.object_store), location.root.clone());
        if let Some(version) = version {
            builder = builder.with_version(version);
        }
        let table = builder.load().await.map_err(|error| delta_error(location, error))?;
        let log_store = table.log_store();
        let table_state = table.snapshot().map_err(|error| delta_error(location, error))?.clone();
        let state = table_state.snapshot();
        let (metadata, logged_schema) = (state.metadata(), state.arrow_schema());
        let (schema, names) = match metadata.configuration().get("delta.columnMapping.mode").map(String::as_str) {
            None | Some("none") => (Arc::clone(&logged_schema), None),
            Some("name") => {
                let names = ColumnMapping::of(&logged_schema);
                (plain_schema(&logged_schema), Some(Arc::new(names)))
            }
            Some(mode) => {
                return Err(Error::unsupported(format!(
                    "the Delta table {} maps columns by {mode}, this release reads tables that map them by name; copy it to one",
                    location.text
                )));
            }
        };
        let partition_columns = metadata
            .partition_columns()
            .iter()
            .map(|name| schema.field_with_name(name).cloned())
            .collect::<Result<Vec<Field>, _>>()
            .map_err(|error| {
                Error::corrupt("the Delta log names a partition column that it lacks").with_source(error)
            })?;
        let views: Vec<LogicalFileView> = state
            .file_views(log_store.as_ref(), None)
            .try_collect()
            .await
            .map_err(|error| delta_error(location, error))?;
        let files = views.iter().map(|view| data_file(location, view, &partition_columns, names.as_deref()));
        let mut files = files.collect::<Result<Vec<_>>>()?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let version = state.version();
        let transactions = tokio::sync::Mutex::default();
        let state = table_state;
        let location = location.clone();
        Ok(Self {
            version,
            schema,
            logged_schema,
            names,
            partition_columns,
            files,
            location,
            state,
            log_store,
            transactions,
        })
    }

    /// The id of the table. A table that is made anew in the same place has another.
    pub(crate) fn table_id(&self) -> &str {
        self.state.metadata().id()
    }

    /// The version of the protocol that writers need.
    pub(crate) fn writer_version(&self) -> i32 {
        self.state.protocol().min_writer_version()
    }

    /// The features that writers need; older versions of the protocol do not list them.
    pub(crate) fn writer_features(&self) -> Vec<WriterFeature> {
        let features = self.state.protocol().writer_features().unwrap_or_default();
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
        self.state.metadata().configuration()
    }

    /// The last transaction that an application committed. The log is read for that. Where it was cleaned up since the state was read, it
    /// is read from the checkpoint that has what is gone.
    pub(crate) async fn application_version(&self, application: &str) -> Result<Option<i64>> {
        let mut known = self.transactions.lock().await;
        if let Some(version) = known.get(application) {
            return Ok(*version);
        }
        let version = match self.read_application_version(application).await {
            Ok(version) => version,
            Err(_) => {
                let anew = Self::read_version(&self.location, Some(self.version)).await?;
                anew.read_application_version(application).await.map_err(|error| delta_error(&self.location, error))?
            }
        };
        known.insert(application.to_owned(), version);
        Ok(version)
    }

    async fn read_application_version(&self, application: &str) -> DeltaResult<Option<i64>> {
        self.state.snapshot().transaction_version(self.log_store.as_ref(), application).await
    }

    /// The actions that remove files, in the order of `paths`.
    pub(crate) async fn removals(&self, paths: &[&str], time: i64) -> Result<Vec<Removal>> {
        let unreadable = |error: DeltaTableError| {
            Error::io(format!("the Delta log at version {} cannot be read", self.version)).with_source(error)
        };
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let views: Vec<LogicalFileView> =
            self.state.snapshot().file_views(self.log_store.as_ref(), None).try_collect().await.map_err(unreadable)?;
        let views: HashMap<String, &LogicalFileView> =
            views.iter().map(|view| (view.path().into_owned(), view)).collect();
        let mut logged = HashMap::new();
        for batch in self.state.add_actions_batches(true).map_err(unreadable)? {
            let Some(column) = batch.column_by_name("path") else { continue };
            let column = cast(column, &DataType::Utf8)
                .map_err(|error| Error::internal("the paths of the log are no text").with_source(error))?;
            let texts = column.as_string::<i32>().iter().flatten();
            logged
                .extend(texts.map(|text| (percent_decode_str(text).decode_utf8_lossy().into_owned(), text.to_owned())));
        }
        let removal = |path: &&str| {
            let view = views.get(*path)?;
            let mut remove = view.remove_action(true);
            remove.deletion_timestamp = Some(time);
            Some(Removal { action: remove, path: logged.get(*path)?.clone() })
        };
        let removals: Option<Vec<_>> = paths.iter().map(removal).collect();
        removals.ok_or_else(|| Error::internal("the Delta log lacks a file of the snapshot"))
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

/// Whether a path of the log is absolute: one with a scheme (`file:/a` has one slash), or one from the root.
fn is_elsewhere(path: &str) -> bool {
    let scheme = path.split_once(":/").map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '+' | '-' | '.'))
    };
    path.starts_with('/') || scheme.is_some_and(is_scheme)
}

fn data_file(
    location: &Location,
    view: &LogicalFileView,
    partition_columns: &[Field],
    names: Option<&ColumnMapping>,
) -> Result<DeltaFile> {
    let path = view.path().into_owned();
    if is_elsewhere(&path) {
        return Err(Error::unsupported(format!(
            "the Delta table {} has files outside its folder (a shallow clone?), which this release does not read: {path}",
            location.text
        )));
    }
    let size = u64::try_from(view.size())
        .map_err(|_| Error::corrupt(format!("the Delta log gives {path} a negative size")))?;
    let last_modified = DateTime::<Utc>::from_timestamp_millis(view.modification_time()).unwrap_or_default();
    let raw = view.partition_values_map();
    let partition_values = partition_columns
        .iter()
        .map(|field| {
            let stored = names.and_then(|names| names.physical(field.name()));
            let value = raw.get(stored.as_ref().unwrap_or(field.name()));
            partition_value(field, value.and_then(Option::as_deref), &path)
        })
        .collect::<Result<_>>()?;
    let vector =
        view.deletion_vector_descriptor().map(DeletionVectorDescriptor::try_from).transpose().map_err(|error| {
            Error::corrupt(format!("the deletion vector of {path} is malformed")).with_source(error)
        })?;
    let meta = ObjectMeta { location: location.data_file_path(&path), last_modified, size, e_tag: None, version: None };
    Ok(DeltaFile { meta, path, partition_values, vector })
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

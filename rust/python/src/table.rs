//! `_internal.Table`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use datafusion::catalog::TableProvider;
use datafusion_ffi::table_provider::FFI_TableProvider;
use datafusion_python_util::ffi_logical_codec_from_pycapsule;
use lakemark_catalog::Names;
use lakemark_datafusion::{LakemarkTable, QueryOptions};
use lakemark_table::{
    BuildOptions, CancelFlag, Error, ErrorKind, IndexInfo, IndexSpec, Merging, MigrateOptions, Progress, RepairAction,
    Report, StorageAccess, TableNames, TableOptions, Transaction, VacuumOptions, kind_or_auto,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::PyArray;
use pyo3_arrow::input::AnyArray;
use serde_json::{Value, json};

use crate::changes::{self, ChangeRows};
use crate::error;
use crate::links::Links;
use crate::progress::Counters;
use crate::provider::ForeignProvider;
use crate::rows::{ArrowTable, Rows};
use crate::runtime::{runtime, wait, wait_cancellable, wait_finished, wait_reporting};
use crate::schema::Schema;

/// What a build checks, keeps and forgives.
#[derive(FromPyObject)]
struct BuildCare {
    /// The share of segments that is compared with the data first.
    #[pyo3(item)]
    verify: f64,
    /// Seconds that finished segments wait for a commit at most.
    #[pyo3(item)]
    commit_every: f64,
    /// Data files that may fail.
    #[pyo3(item)]
    max_failures: Option<u64>,
    /// Whether segments are merged afterwards, if there are too many.
    #[pyo3(item)]
    merge: bool,
}

/// An indexed table.
#[pyclass(frozen, module = "lakemark._internal")]
pub(crate) struct Table(pub(crate) Arc<lakemark_table::Table>);

#[pymethods]
impl Table {
    #[new]
    fn new(
        py: Python<'_>,
        location: String,
        store: Option<String>,
        storage_options: HashMap<String, String>,
        profile: Option<String>,
        version: Option<u64>,
        max_staleness_micros: u64,
    ) -> PyResult<Self> {
        let max_staleness = Duration::from_micros(max_staleness_micros);
        let storage = StorageAccess::of(storage_options.into());
        let typed = TableOptions { store, storage, version, max_staleness, ..TableOptions::default() };
        let opened =
            move || async move { Names::load()?.resolve(&location, profile.as_deref(), typed).await?.open().await };
        wait(py, opened).map(Self)
    }

    fn location(&self) -> &str {
        self.0.location()
    }

    fn schema(&self, py: Python<'_>) -> PyResult<Schema> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move { Ok(Schema(table.snapshot().await?.schema())) })
    }

    fn version(&self) -> Option<u64> {
        self.0.version()
    }

    /// The versions as JSON, newest first.
    fn history(&self, py: Python<'_>, limit: Option<usize>) -> PyResult<String> {
        let table = Arc::clone(&self.0);
        let versions = wait(py, move || async move { table.history(limit).await })?;
        to_json(py, &versions)
    }

    /// The pinned state as JSON: versions, files, indexes.
    fn snapshot(&self, py: Python<'_>) -> PyResult<String> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move {
            let snapshot = table.snapshot().await?;
            Ok(describe(&snapshot, &snapshot.checked_indexes().await?).to_string())
        })
    }

    /// Counters of this object, and how much the indexes cover now, as JSON: each by the name that operators see, with its meaning.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move {
            // As a build sees it, if the newest state is open: a file that cannot be read is one that no index covers.
            let coverage = match table.index_coverage().await {
                Ok(coverage) => coverage,
                Err(_) => table.snapshot().await?.index_coverage(),
            };
            let now = lakemark_table::now();
            table.metrics().set_coverage(coverage, now);
            Ok(Value::Array(table.metrics().described(now)).to_string())
        })
    }

    fn create_index(
        &self,
        py: Python<'_>,
        columns: Vec<String>,
        kind: String,
        name: Option<String>,
        options: BTreeMap<String, String>,
        if_not_exists: bool,
    ) -> PyResult<bool> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move {
            let kind = kind_or_auto(&kind)?;
            table.create_index(IndexSpec { name, columns, kind, options }, if_not_exists).await
        })
    }

    fn drop_index(&self, py: Python<'_>, name: String, if_exists: bool) -> PyResult<bool> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move { table.drop_index(&name, if_exists).await })
    }

    fn build(
        &self,
        py: Python<'_>,
        index: Option<String>,
        memory_bytes: Option<u64>,
        threads: Option<usize>,
        care: BuildCare,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Described> {
        let BuildCare { verify, commit_every, max_failures, merge } = care;
        let commit_every = Duration::try_from_secs_f64(commit_every).map_err(|_| {
            let text =
                format!("commit_every is {commit_every}; give the seconds from one commit to the next, 0 or more");
            error::to_python(py, &Error::new(ErrorKind::InvalidInput, text))
        })?;
        let options = BuildOptions {
            memory_bytes,
            threads,
            index,
            verify,
            commit_every: Some(commit_every),
            max_failures,
            merging: if merge { Merging::Due } else { Merging::Never },
            ..BuildOptions::default()
        };
        let table = Arc::clone(&self.0);
        let report = watched(py, options, progress, move |options| async move { table.build(options).await })?;
        described(py, &report)
    }

    fn compact(
        &self,
        py: Python<'_>,
        index: Option<String>,
        memory_bytes: Option<u64>,
        threads: Option<usize>,
        full: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Described> {
        let table = Arc::clone(&self.0);
        let merging = if full { Merging::All } else { Merging::Due };
        let options = BuildOptions { memory_bytes, threads, index, merging, ..BuildOptions::default() };
        let report = watched(py, options, progress, move |options| async move { table.compact(options).await })?;
        described(py, &report)
    }

    /// The columns of the key.
    fn key(&self, py: Python<'_>) -> PyResult<Option<Vec<String>>> {
        let table = Arc::clone(&self.0);
        wait(py, move || async move { table.key_columns().await })
    }

    fn declare_key(
        &self,
        py: Python<'_>,
        columns: Vec<String>,
        options: BTreeMap<String, String>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let table = Arc::clone(&self.0);
        watched(py, BuildOptions::default(), progress, move |build| async move {
            table.declare_key(&columns, &options, build).await
        })
    }

    /// Makes a change; `rows` is an Arrow array or a stream of them, of structs or, for `delete`, of keys. Gives the
    /// sequence number and the number of rows.
    fn write(
        &self,
        py: Python<'_>,
        operation: String,
        rows: AnyArray,
        transaction: Option<(String, u64)>,
    ) -> PyResult<(u64, u64)> {
        let (table, rows) = (Arc::clone(&self.0), ChangeRows::read(py, rows)?);
        let operation = changes::operation_of(&operation).map_err(|cause| error::to_python(py, &cause))?;
        let transaction = transaction.map(|(application, version)| Transaction { application, version });
        let written = wait_finished(
            py,
            move || changes::write(table, operation, rows, transaction),
            |written| format!("the change was made all the same, with the sequence number {}", written.sequence),
        )?;
        Ok((written.sequence, written.rows))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let table = Arc::clone(&self.0);
        let flushed = move || async move { table.flush().await };
        wait_finished(py, flushed, |()| "the buffer was flushed all the same".to_owned())
    }

    /// Keeps or discards what a store has buffered that does not belong to the table; gives whether there was something.
    fn repair(&self, py: Python<'_>, keep: bool) -> PyResult<bool> {
        let table = Arc::clone(&self.0);
        let action = if keep { RepairAction::Keep } else { RepairAction::Discard };
        let repaired = move || async move { table.repair(action).await };
        wait_finished(py, repaired, |_| "it was decided all the same".to_owned())
    }

    /// Migrates buffered rows into the data files.
    fn migrate(
        &self,
        py: Python<'_>,
        fraction: f64,
        max_bytes: Option<u64>,
        threshold: Option<f64>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Described> {
        let (table, counters) = (Arc::clone(&self.0), Arc::new(Counters::default()));
        let listener = Arc::clone(&counters) as Arc<dyn Progress>;
        let options = MigrateOptions { fraction, max_bytes, threshold, progress: Some(listener) };
        let migrated = move || async move { table.migrate(options).await };
        let notify = |_: Python<'_>| match &progress {
            Some(progress) => progress.call1(counters.read()).map(drop),
            None => Ok(()),
        };
        let report = wait_reporting(py, migrated, |_| "the migration was finished all the same".to_owned(), notify)?;
        described(py, &report)
    }

    /// Lets what was migrated be files of the folder.
    fn publish(&self, py: Python<'_>) -> PyResult<Described> {
        let table = Arc::clone(&self.0);
        let published = move || async move { table.publish().await };
        let report = wait_finished(py, published, |_| "the publication was finished all the same".to_owned())?;
        described(py, &report)
    }

    /// The table at a glance, and how its buffered updates stand.
    fn info(&self, py: Python<'_>) -> PyResult<(Described, Option<Described>)> {
        let table = Arc::clone(&self.0);
        let info = wait(py, move || async move { lakemark_datafusion::table_info(&table).await })?;
        let updates = info.updates.as_ref().map(|updates| described(py, updates)).transpose()?;
        Ok((described(py, &info)?, updates))
    }

    /// How buffered updates stand.
    fn updates(&self, py: Python<'_>) -> PyResult<Option<Described>> {
        let table = Arc::clone(&self.0);
        let info = wait(py, move || async move { table.updates_info().await })?;
        info.map(|info| described(py, &info)).transpose()
    }

    /// Advice as JSON and as text.
    fn advise(&self, py: Python<'_>, queries: Option<String>) -> PyResult<(String, String)> {
        let table = Arc::clone(&self.0);
        let advice = wait(py, move || async move { lakemark_datafusion::advise(&table, queries.as_deref()).await })?;
        Ok((to_json(py, &advice)?, advice.to_string()))
    }

    fn verify(&self, py: Python<'_>) -> PyResult<Described> {
        let table = Arc::clone(&self.0);
        let report = wait(py, move || async move { table.verify().await })?;
        described(py, &report)
    }

    fn doctor(&self, py: Python<'_>) -> PyResult<Described> {
        let table = Arc::clone(&self.0);
        let report = wait(py, move || async move { table.doctor().await })?;
        described(py, &report)
    }

    fn vacuum(&self, py: Python<'_>, older_than_seconds: u64, dry_run: bool, originals: bool) -> PyResult<Described> {
        let table = Arc::clone(&self.0);
        let options = VacuumOptions { older_than: Duration::from_secs(older_than_seconds), dry_run, originals };
        let report = wait(py, move || async move { table.vacuum(options).await })?;
        described(py, &report)
    }

    fn scan(
        &self,
        py: Python<'_>,
        filter: Option<String>,
        columns: Option<Vec<String>>,
        limit: Option<usize>,
        use_index: bool,
    ) -> PyResult<Rows> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        wait(py, move || async move {
            lakemark_datafusion::scan(&table, filter.as_deref(), columns.as_deref(), limit, &options).await
        })
        .map(Rows::new)
    }

    /// Rows by key; `keys` is an Arrow array.
    fn lookup(
        &self,
        py: Python<'_>,
        keys: PyArray,
        on: Vec<String>,
        columns: Option<Vec<String>>,
        use_index: bool,
    ) -> PyResult<ArrowTable> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        let (keys, _) = keys.into_inner();
        let found = wait(py, move || async move {
            lakemark_datafusion::lookup(&table, &keys, &on, columns.as_deref(), &options).await
        });
        found.map(|found| ArrowTable::new(found.schema, found.batches))
    }

    /// Walks over the links of these columns.
    fn links(&self, columns: Vec<String>, memory_bytes: Option<u64>) -> Links {
        Links::new(Arc::clone(&self.0), columns, memory_bytes)
    }

    fn count(&self, py: Python<'_>, filter: Option<String>, use_index: bool, selection_cache: bool) -> PyResult<u64> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, selection_cache };
        wait(py, move || async move { lakemark_datafusion::count(&table, filter.as_deref(), &options).await })
    }

    fn group_count(
        &self,
        py: Python<'_>,
        columns: Vec<String>,
        filter: Option<String>,
        use_index: bool,
    ) -> PyResult<Rows> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        let counted = move || async move {
            lakemark_datafusion::group_count(&table, &columns, filter.as_deref(), &options).await
        };
        wait(py, counted).map(Rows::new)
    }

    fn min_max(&self, py: Python<'_>, column: String, filter: Option<String>, use_index: bool) -> PyResult<Rows> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        let extremes =
            move || async move { lakemark_datafusion::min_max(&table, &column, filter.as_deref(), &options).await };
        wait(py, extremes).map(Rows::new)
    }

    fn sum_mean(&self, py: Python<'_>, column: String, filter: Option<String>, use_index: bool) -> PyResult<Rows> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        let totals =
            move || async move { lakemark_datafusion::sum_mean(&table, &column, filter.as_deref(), &options).await };
        wait(py, totals).map(Rows::new)
    }

    fn count_distinct(&self, py: Python<'_>, column: String, filter: Option<String>, use_index: bool) -> PyResult<u64> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, ..QueryOptions::default() };
        wait(py, move || async move {
            lakemark_datafusion::count_distinct(&table, &column, filter.as_deref(), &options).await
        })
    }

    /// The report as JSON and as text, of a scan or of a count.
    fn explain(
        &self,
        py: Python<'_>,
        filter: Option<String>,
        count: bool,
        use_index: bool,
        selection_cache: bool,
    ) -> PyResult<(String, String)> {
        let table = Arc::clone(&self.0);
        let options = QueryOptions { use_index, selection_cache };
        let report = wait(py, move || async move {
            if count {
                lakemark_datafusion::explain_count(&table, filter.as_deref(), &options).await
            } else {
                lakemark_datafusion::explain(&table, filter.as_deref(), &options).await
            }
        })?;
        Ok((to_json(py, &report)?, report.to_string()))
    }

    /// The protocol of the `datafusion` package: called with its session context.
    fn __datafusion_table_provider__<'py>(
        &self,
        py: Python<'py>,
        session: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let codec = ffi_logical_codec_from_pycapsule(session.clone(), Some(&session))?;
        let table = Arc::clone(&self.0);
        let provider = wait(py, || LakemarkTable::new(table))?;
        let handle = runtime(py)?.handle().clone();
        let provider: Arc<dyn TableProvider> = Arc::new(ForeignProvider::new(provider, handle.clone()));
        let provider = FFI_TableProvider::new_with_ffi_codec(provider, true, Some(handle), codec);
        PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
    }
}

/// A report: its values and its description as JSON, and its text.
pub(crate) type Described = (String, String, String);

pub(crate) fn described(py: Python<'_>, report: &impl Report) -> PyResult<Described> {
    let description = report.describe();
    Ok((to_json(py, report)?, to_json(py, &description)?, description.to_string()))
}

pub(crate) fn to_json(py: Python<'_>, report: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(report).map_err(|cause| error::internal(py, cause.to_string()))
}

fn describe(snapshot: &lakemark_table::Snapshot, indexes: &[IndexInfo]) -> Value {
    let files = snapshot.files();
    let rows = files.iter().map(|file| Some(file.row_groups.as_ref()?.iter().map(|n| u64::from(*n)).sum::<u64>()));
    json!({
        "manifest": snapshot.manifest_number(),
        "delta_version": snapshot.delta_version(),
        "files": files.iter().map(|file| &file.path).collect::<Vec<_>>(),
        "bytes": files.iter().map(|file| file.meta.size).sum::<u64>(),
        "rows": rows.sum::<Option<u64>>(),
        "rows_deleted": snapshot.deleted_rows(),
        "rows_buffered": snapshot.buffered_rows().map_or(0, |buffered| buffered.row_count()),
        "key": snapshot.key_columns(),
        "sequence": snapshot.sequence(),
        "partition_columns": snapshot.partition_columns().iter().map(|field| field.name()).collect::<Vec<_>>(),
        "indexes": indexes,
    })
}

/// Runs a build or the like. `progress` gets how far it is, and an interrupt stops the work in good order.
fn watched<R, F>(
    py: Python<'_>,
    options: BuildOptions,
    progress: Option<Bound<'_, PyAny>>,
    work: impl FnOnce(BuildOptions) -> F + Send + 'static,
) -> PyResult<R>
where
    R: Send + 'static,
    F: Future<Output = lakemark_table::Result<R>>,
{
    let (counters, cancel) = (Arc::new(Counters::default()), CancelFlag::new());
    let listener = Arc::clone(&counters) as Arc<dyn Progress>;
    let options = BuildOptions { progress: Some(listener), cancel: Some(cancel.clone()), ..options };
    let notify = |_: Python<'_>| match &progress {
        Some(progress) => progress.call1(counters.read()).map(drop),
        None => Ok(()),
    };
    wait_cancellable(py, move || work(options), &cancel, notify)
}

//! From a filter to splits, on the driver.

use std::sync::{Arc, PoisonError};

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema};
use lakemark_index::{Predicate, Truth};
use lakemark_table::{DataFile, FileProbe, ProbeOptions, ProbeReport, RowSet, Snapshot, TopKRequest, field_of};
use serde::{Deserialize, Serialize};

use crate::covered::{CoveredRows, FoundBy};
use crate::error::{NativeError, Result};
use crate::exact::may_be_cut;
use crate::filter;
use crate::filter_result::{FilterResult, SelectedBuffer};
use crate::handle::{CachedProbe, Pinned};
use crate::nested::{RequestedField, UnknownColumns, requested_fields};
use crate::runtime_filters;
use crate::split::{Constant, StoreHome, constants};
use crate::split_packing::{FileInput, FileInputRows, PlannedSplit, SplitPacker, SplitSizes};
use crate::types::{spark_schema, spark_type};

/// What Java requests of the rows that a filter selects.
#[derive(Debug, Deserialize)]
pub(crate) struct PlanRequest {
    /// The columns to give, in their order, with the fields of structs that are read.
    columns: Vec<RequestedField>,
    /// What Spark learned about the rows since the scan was planned first; Spark goes on testing it.
    runtime: Option<filter::FilterNode>,
    /// Spark sorts the rows and takes the first.
    top: Option<SparkTopK>,
    sizes: SplitSizes,
    /// What the rows are read for, if they are to be changed.
    change: Option<ForChange>,
}

/// How a statement that changes rows goes on with those that it reads.
#[derive(Debug, Deserialize)]
struct ForChange {
    /// The columns of the table as Spark knows them.
    known: Vec<RequestedField>,
    /// The columns whose values the statement writes back, or names rows by.
    exact: Vec<String>,
}

impl ForChange {
    /// The columns of which no value may be cut, among those whose values may be.
    fn exact(&self, schema: &Schema) -> Vec<String> {
        let may_be_cut = |name: &&String| schema.field_with_name(name).is_ok_and(|field| may_be_cut(field.data_type()));
        self.exact.iter().filter(may_be_cut).cloned().collect()
    }
}

/// Which rows come first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SparkTopK {
    column: String,
    descending: bool,
    nulls_first: bool,
    rows: u64,
}

impl SparkTopK {
    /// The same for the indexes, if the order of a column's values is the one that Spark sees.
    fn request(self, schema: &Schema) -> Option<TopKRequest> {
        let field = field_of(schema, &self.column)?;
        // Spark sees these cut to microseconds and to days, so that values that differ may be equal to it.
        let is_cut = may_be_cut(field.data_type());
        let Self { column, descending, nulls_first, rows } = self;
        (!is_cut).then_some(TopKRequest { column, descending, nulls_first, rows })
    }
}

/// The answer to Java: what tasks get, and what the driver reports to Spark.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SparkPlan {
    /// A [`ScanSpec`](crate::split::ScanSpec), opaque to Java.
    scan: String,
    pub(crate) splits: Vec<PlannedSplit>,
    /// Buffered rows of the splits, which are in no data file yet.
    buffered_rows: u64,
    /// Index-only rows of the splits: an index gave their values, so that no data file is read for them.
    rows_index_only: u64,
    /// The index that gave them.
    covering_index: Option<String>,
    /// Those of the columns of which the indexes know something.
    indexed_columns: Vec<String>,
    /// What the table has and Spark does not know, if the rows are to be changed.
    unknown: UnknownColumns,
    report: ProbeReport,
    /// The same report for people.
    report_text: String,
}

impl SparkPlan {
    /// The plan for Java: the length of its JSON in four bytes, the JSON, the attachments of the inputs in their order.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(|_| NativeError::internal("a plan of more than 4 GiB"))?;
        let inputs = self.splits.iter().flat_map(|split| &split.inputs);
        let attached = inputs.map(|input| input.attachment.as_slice());
        Ok([&length.to_be_bytes()[..], &json].into_iter().chain(attached).collect::<Vec<_>>().concat())
    }
}

/// What is known of a filter; one probe serves all calls with the same filter.
pub(crate) async fn probe(pinned: &Pinned, filter: &str) -> Result<Arc<FilterResult>> {
    let known = pinned.probed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(known) = known
        && known.filter == filter
    {
        return Ok(known.result);
    }
    let predicate = filter::parse(filter, &pinned.snapshot.schema())?;
    let options = ProbeOptions { use_index: pinned.use_index, ..ProbeOptions::default() };
    let mut files = pinned.snapshot.probe(&predicate, &options).await?;
    // Buffered rows are tested here.
    files.buffered = None;
    let result = Arc::new(FilterResult { files, buffered: SelectedBuffer::of(pinned, &predicate).await? });
    let mut slot = pinned.probed.lock().unwrap_or_else(PoisonError::into_inner);
    *slot = Some(CachedProbe { filter: filter.to_owned(), result: Arc::clone(&result) });
    Ok(result)
}

/// Whether it is known exactly which rows a filter selects, so that Spark need not evaluate it.
pub(crate) async fn is_exact(pinned: &Pinned, filter: &str) -> Result<bool> {
    Ok(probe(pinned, filter).await?.exact_row_count().is_some())
}

/// The number of rows for which a filter is true, if no data file is needed to know it.
pub(crate) async fn count(pinned: &Pinned, filter: &str) -> Result<Option<u64>> {
    let predicate = filter::parse(filter, &pinned.snapshot.schema())?;
    if predicate != Predicate::Const(Truth::True) {
        return Ok(probe(pinned, filter).await?.exact_row_count());
    }
    // Without a filter nothing was promised to Spark yet, and the cheaper probe will do.
    let options = ProbeOptions { use_index: pinned.use_index, count_only: true, ..ProbeOptions::default() };
    let probe = pinned.snapshot.probe(&predicate, &options).await?;
    // Without a filter buffered rows need not be looked at to be counted.
    let buffered = probe.buffered_row_count();
    Ok(probe.exact_rows_of_files().map(|rows| rows + buffered))
}

/// Cuts the rows for which a filter is or may be true into splits.
pub(crate) async fn plan(pinned: &Pinned, filter: &str, request: PlanRequest) -> Result<SparkPlan> {
    let snapshot = &pinned.snapshot;
    let requested = Schema::new(requested_fields(snapshot.schema().fields(), &request.columns)?);
    let schema = Arc::new(spark_schema(&requested, &[])?);
    let table = snapshot.schema();
    let mut result = probe(pinned, filter).await?;
    let mut found_by = FoundBy { predicate: filter::parse(filter, &table)?, keyed: None };
    if let Some(runtime) = request.runtime {
        let keys = filter::predicate(runtime, &table);
        let narrowed = runtime_filters::narrowed(pinned, &result, found_by.predicate, keys, &schema).await?;
        (result, found_by) = (Arc::new(narrowed.result), narrowed.found_by);
    }
    if let Some(top) = request.top.filter(|_| pinned.use_index).and_then(|top| top.request(&table))
        && let Some(files) = snapshot.top_k(&result.files, &top, &ProbeOptions::default()).await?
    {
        result = Arc::new(FilterResult { files, buffered: result.buffered.clone() });
    }
    let covered = CoveredRows::of(pinned, &result.files.files, &found_by, &requested).await;
    if let Some(covered) = &covered {
        let files = covered.left_of(&result.files);
        result = Arc::new(FilterResult { files, buffered: result.buffered.clone() });
    }
    let files = inputs(snapshot, &result, &schema)?;
    let mut packer = SplitPacker::new(request.sizes, &files);
    files.iter().try_for_each(|file| packer.add_file(file))?;
    let change = request.change.as_ref();
    let exact = change.map(|change| change.exact(&table)).unwrap_or_default();
    if let Some(covered) = &covered {
        covered.add(&schema, &exact, &mut packer)?;
    }
    result.buffered.add_memory(&schema, &exact, &mut packer)?;
    let scan = pinned.scan_of(&schema)?.with_exact(exact);
    Ok(SparkPlan {
        scan: serde_json::to_string(&scan)?,
        splits: packer.finish(),
        buffered_rows: result.buffered.row_count(),
        rows_index_only: covered.as_ref().map_or(0, CoveredRows::count),
        covering_index: covered.map(|covered| covered.index),
        unknown: change.map(|change| UnknownColumns::of(table.fields(), &change.known)).unwrap_or_default(),
        indexed_columns: request
            .columns
            .into_iter()
            .map(|column| column.name)
            .filter(|name| pinned.use_index && snapshot.is_prunable(name))
            .collect(),
        report: result.files.report.clone(),
        report_text: result.files.report.to_string(),
    })
}

/// The files that are read, and the rows of each of them.
fn inputs<'a>(snapshot: &'a Snapshot, result: &'a FilterResult, schema: &Schema) -> Result<Vec<FileInput<'a>>> {
    let mut files = Vec::new();
    // Of files that are not listed no row is read.
    for (place, found) in result.files.files.listed() {
        let Some(file) = snapshot.files().get(place) else { continue };
        let constants = partition_constants(snapshot, file, schema)?;
        let rows = rows_of(file, found)?;
        files.push(FileInput { home: StoreHome::Table, meta: &file.meta, constants, rows });
    }
    files.extend(result.buffered.files());
    Ok(files)
}

/// The rows of a file that are read.
fn rows_of<'a>(file: &'a DataFile, found: &'a FileProbe) -> Result<FileInputRows<'a>> {
    match found {
        FileProbe::Unknown => Ok(match &file.row_groups {
            Some(row_groups) => FileInputRows::Known { row_groups, chosen: live_rows(file, row_groups) },
            None => FileInputRows::Unknown { deleted: file.deleted.as_deref() },
        }),
        FileProbe::Known { row_groups, exact, recheck } => {
            Ok(FileInputRows::Known { row_groups, chosen: exact.or(recheck) })
        }
        FileProbe::Counted { .. } => Err(NativeError::internal("a plan was answered with a count")),
    }
}

fn partition_constants(snapshot: &Snapshot, file: &DataFile, schema: &Schema) -> Result<Option<String>> {
    let mut found = Vec::new();
    for (field, value) in snapshot.partition_columns().iter().zip(&file.partition_values) {
        if schema.field_with_name(field.name()).is_ok() {
            let of = spark_type(field.name(), field.data_type())?;
            found.push(Constant { name: field.name().clone(), value: cast_constant(value, &of)? });
        }
    }
    constants(&found)
}

fn cast_constant(value: &ArrayRef, of: &DataType) -> Result<ArrayRef> {
    Ok(cast_with_options(value, of, &CastOptions { safe: false, ..Default::default() })?)
}

/// Every row that is not deleted.
fn live_rows(file: &DataFile, row_groups: &[u32]) -> RowSet {
    let all = RowSet::full(row_groups.iter().sum());
    match &file.deleted {
        Some(deleted) => all.minus(deleted),
        None => all,
    }
}

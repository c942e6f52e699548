//! From what a probe says of each file to the operator that reads it.
//!
//! ```text
//! exact rows               a Parquet scan of just these rows, without a predicate
//! exact rows, no column    a number
//! rows to be rechecked     a Parquet scan of just these rows ─┐ predicate for zone maps,
//! unknown file             a Parquet scan of its live rows   ─┘ then a filter with the whole predicate
//! buffered rows            a Parquet scan of runs, and rows in memory, with the same filter
//! covered rows             rows in memory: an index has their values; those to be rechecked are tested by these when the scan is planned
//! unselected stretches     read if many and short, and left out by row numbers behind the reader (see [`crate::read::row_filter`])
//! ```

mod buffered;
mod covered;
mod statistics;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::{DFSchema, Result, ScalarValue, Statistics, internal_datafusion_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{collect_columns, reassign_expr_columns};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use lakemark_index::{Predicate, Reason, RowSet};
use lakemark_table::{BufferedRows, Probe, ProbeReport, ReadCost, Snapshot};

use crate::exec::covered_rows::ScanFilter;
use crate::exec::dynamic_filters::DynamicProber;
use crate::exec::scan::{LakemarkScanExec, ScanParts};
use crate::exec::scan_probe::ScanProbe;
use crate::expr::projection::{self, have_lambdas};
use crate::expr::simplify::without_losses;
use crate::expr::text::text_of;
use crate::expr::types::TextTypes;
use crate::expr::zone_maps::prunable;
use crate::read::access::{FileAccess, ReadFile, share};
use crate::read::memory_gauge::MemoryGauge;
use crate::read::planning_cache::{FilePlace, PlanningCache};
use crate::read::reader::Footers;
use crate::read::row_filter::RowNumberFilter;
use crate::read::statistics::SnapshotFile;

use covered::CoveredScan;
use work::{ExactRows, RecheckedFile, ScanWork, SelectedRows};

/// What a query requests of one table.
pub(crate) struct ScanRequest<'a> {
    /// The table's location, for EXPLAIN.
    pub(crate) location: &'a str,
    pub(crate) snapshot: &'a Snapshot,
    /// The types of the output's columns.
    pub(crate) types: TextTypes,
    /// Whether the table is joined, so that its statistics are worth opening files.
    pub(crate) is_joined: bool,
    /// Columns of the snapshot's schema; all of them if none are named.
    pub(crate) projection: Option<&'a Vec<usize>>,
    pub(crate) filters: &'a [Expr],
    pub(crate) limit: Option<usize>,
    /// What the index was probed with, if it was: it may have the values of exact rows as well.
    pub(crate) predicate: Option<&'a Predicate>,
    /// What the probe found out, for operators that answer from the index.
    pub(crate) scan_probe: Option<Arc<ScanProbe>>,
    /// For filters that come while the query runs.
    pub(crate) prober: Option<DynamicProber>,
}

/// Builds the scan operator.
pub(crate) async fn plan_scan(
    state: &dyn Session,
    request: &ScanRequest<'_>,
    probe: Probe,
) -> Result<Arc<dyn ExecutionPlan>> {
    let planner = Planner::try_new(state, request)?;
    let Probe { files, buffered, mut report, skipped_selectivity: share_left, .. } = probe;
    let mut work = planner.sort_out(files, buffered.as_deref()).await?;
    if planner.output.fields().is_empty() && planner.predicate.is_none() {
        work.counted += std::mem::take(&mut work.buffered).map_or(0, BufferedRows::row_count);
    }
    if let Some(limit) = request.limit {
        work.cut(limit as u64);
    }
    let covered = planner.covered(&mut work).await?;
    if let Some(covered) = &covered {
        covered.enter(&mut report);
        if let Some(limit) = request.limit {
            work.cut(limit as u64);
        }
    }
    let statistics = planner.statistics(&work, &report, share_left).await?;
    let without_null = planner.without_null(&work)?;
    planner.learn_row_groups(&mut work).await;
    planner.learn_pages(&work).await;
    let most_rows = if request.is_joined { work.most_rows().or_else(|| request.snapshot.rows()) } else { None };
    let (exact, recheck) = (planner.exact_scan(&work)?, planner.recheck_scan(&work)?);
    let of_buffer = planner.buffered_scans(&work)?;
    let unselected_stretches: u64 =
        exact.iter().chain(&recheck).chain(&of_buffer).map(|scan| scan.unselected_stretches).sum();
    let summary = summary(request, &report, buffered.as_deref(), covered.as_ref());
    let filter = planner.filter()?;
    Ok(Arc::new(LakemarkScanExec::new(ScanParts {
        table_schema: Arc::clone(&planner.output),
        schema: planner.output,
        counted: work.counted,
        statistics,
        most_rows,
        without_null,
        exact: exact.map(|scan| scan.plan),
        recheck: recheck.map(|scan| scan.plan),
        buffered: of_buffer.into_iter().map(|scan| scan.plan).collect(),
        covered: covered.and_then(|covered| covered.rows),
        filter,
        memory: planner.memory,
        footers: planner.footers,
        unselected_stretches,
        fetch: request.limit,
        summary,
        report,
        scan_probe: request.scan_probe.clone(),
        prober: request.prober.clone(),
    })))
}

fn summary(
    request: &ScanRequest<'_>,
    report: &ProbeReport,
    buffered: Option<&BufferedRows>,
    covered: Option<&CoveredScan>,
) -> String {
    let mut text = format!(
        "table={}, files={}, files_pruned_index={}, files_scanned={}, rows_exact={}, rows_rechecked={}",
        request.location,
        report.files_total,
        report.files_pruned,
        report.files_scanned,
        report.rows_exact,
        report.rows_rechecked
    );
    if let Some(buffered) = buffered {
        text.push_str(&format!(", rows_buffered={}", buffered.row_count()));
    }
    if let Some(covered) = covered {
        text.push_str(&format!(", rows_index_only={}, covering_index={}", covered.count, covered.index));
    }
    if let Some(filter) = conjunction(request.filters.iter().cloned()) {
        text.push_str(&format!(", predicate={}", text_of(&filter)));
    }
    let left_out: Vec<&str> = report
        .leaves
        .iter()
        .filter(|leaf| leaf.reason == Some(Reason::ScanIsCheaper))
        .map(|leaf| leaf.text.as_str())
        .collect();
    if !left_out.is_empty() {
        text.push_str(&format!(", {}=[{}]", Reason::ScanIsCheaper, left_out.join(", ")));
    }
    text
}

/// When a scan of files ends, and what it hands on until then.
#[derive(Clone, Copy)]
struct ScanEnd {
    limit: Option<usize>,
    /// Rows of a batch, if not as many as the session says.
    batch_rows: Option<usize>,
}

/// Files of one kind: what reads them, and what is in them.
struct FileSource {
    footers: Footers,
    schema: TableSchema,
}

/// A scan of some of the rows.
struct PlannedScan {
    /// What reads the rows.
    plan: Arc<dyn ExecutionPlan>,
    /// Unselected stretches between selected rows that it reads and leaves out again.
    unselected_stretches: u64,
}

/// What a scan with the predicate reads.
struct Reading {
    /// As positions in the table's schema.
    columns: Vec<usize>,
    /// What zone maps may judge of the predicate.
    prunable: Option<Arc<dyn PhysicalExpr>>,
    /// None where the predicate leaves rows out that were read.
    limit: Option<usize>,
}

/// A file that is read.
struct OpenedFile<'r> {
    /// The file, with its number if stretches are closed.
    file: PartitionedFile,
    /// The rows to read; all where none are given.
    rows: Option<&'r RowSet>,
}

struct Planner<'a> {
    state: &'a dyn Session,
    request: &'a ScanRequest<'a>,
    footers: Footers,
    known: Arc<PlanningCache>,
    /// The memory that the scan takes for runs.
    memory: MemoryGauge,
    /// Columns of files, then partition columns.
    table_schema: TableSchema,
    /// What the operator gives.
    output: SchemaRef,
    /// The output's columns as positions in `table_schema`.
    columns: Vec<usize>,
    predicate: Option<Arc<dyn PhysicalExpr>>,
}

impl<'a> Planner<'a> {
    fn try_new(state: &'a dyn Session, request: &'a ScanRequest<'a>) -> Result<Self> {
        let snapshot = request.snapshot;
        let schema = request.types.of_table(snapshot);
        let output = match request.projection {
            Some(projection) => Arc::new(schema.project(projection)?),
            None => schema,
        };
        let partitions: Vec<FieldRef> =
            snapshot.partition_columns().iter().map(|field| Arc::new(field.clone())).collect();
        let table_schema =
            TableSchema::builder(request.types.of_files(snapshot)).with_table_partition_cols(partitions).build();
        let all = table_schema.table_schema();
        let columns =
            output.fields().iter().map(|field| Ok(all.index_of(field.name())?)).collect::<Result<Vec<_>>>()?;
        let predicate = match conjunction(request.filters.iter().cloned()) {
            Some(filter) => {
                let named = DFSchema::try_from(Arc::clone(all))?;
                // A session may do without our rules.
                Some(state.create_physical_expr(without_losses(filter)?.data, &named)?)
            }
            None => None,
        };
        let footers = Footers::new(snapshot, state.runtime_env().cache_manager.get_file_metadata_cache());
        let known = PlanningCache::of(snapshot);
        Ok(Self {
            state,
            request,
            footers,
            known,
            memory: MemoryGauge::default(),
            table_schema,
            output,
            columns,
            predicate,
        })
    }

    /// What rows have to pass that are given without being read. None for a lambda, which goes by the columns around it.
    fn filter(&self) -> Result<Option<ScanFilter>> {
        if have_lambdas(self.predicate.iter())? {
            return Ok(None);
        }
        let (predicate, schema) = (self.predicate.clone(), Arc::clone(self.table_schema.table_schema()));
        Ok(Some(ScanFilter { predicate, schema }))
    }

    /// The scan of exact rows, if there are any.
    fn exact_scan(&self, work: &ScanWork<'_>) -> Result<Option<PlannedScan>> {
        if work.exact.is_empty() {
            return Ok(None);
        }
        let partitions = self.state.config().target_partitions().max(1);
        let limit = self.request.limit;
        let chosen = work.exact.iter().map(|part| Some(&part.chosen.rows));
        let closed = self.closed_gaps(&self.table_schema, chosen, None, limit)?;
        let mut files = Vec::with_capacity(work.exact.len());
        let known = self.known_statistics(work.exact.iter().map(|part| part.file))?;
        for ((place, ExactRows { file, chosen }), known) in work.exact.iter().enumerate().zip(known) {
            let SelectedRows { row_groups, rows } = chosen;
            let opened = opened(partitioned_file(*file, known)?, place, Some(rows), closed.as_ref());
            let access = self.access(*file, row_groups, opened.rows.unwrap_or(rows));
            files.push(ReadFile { file: opened.file, access });
        }
        let end = ScanEnd { limit, batch_rows: None };
        let scan =
            self.file_scan(self.data_files(), share(files, partitions), &self.columns, None, end, closed.as_ref())?;
        let plan = self.filtered(scan, &self.columns, None, closed.as_ref())?;
        Ok(Some(PlannedScan { plan, unselected_stretches: closed.map_or(0, |closed| closed.count) }))
    }

    /// What is read of a file of these row groups if these rows are.
    fn access(&self, file: SnapshotFile<'_>, row_groups: &[u32], rows: &RowSet) -> FileAccess {
        FileAccess::of(row_groups, rows, self.known.pages_of(file.place, &file.meta, row_groups, &self.footers))
    }

    /// The scan of all other rows of data files, if there are any. Partitions share them evenly if the row groups of all files are known;
    /// else the engine cuts files by their bytes.
    fn recheck_scan(&self, work: &ScanWork<'_>) -> Result<Option<PlannedScan>> {
        if work.recheck.is_empty() {
            return Ok(None);
        }
        let partitions = self.state.config().target_partitions().max(1);
        let Reading { columns: read, prunable, limit } = self.reading();
        let chosen = work.recheck.iter().map(RecheckedFile::rows);
        let closed = self.closed_gaps(&self.table_schema, chosen, prunable.as_ref(), limit)?;
        let (mut shared, mut others) = (Vec::with_capacity(work.recheck.len()), Vec::new());
        let known = self.known_statistics(work.recheck.iter().map(|part| part.file))?;
        for ((place, part), known) in work.recheck.iter().enumerate().zip(known) {
            let whole = partitioned_file(part.file, known)?;
            let OpenedFile { file, rows } = opened(whole, place, part.rows(), closed.as_ref());
            match (&part.chosen, rows) {
                (Some(chosen), Some(rows)) if !rows.is_empty() => {
                    shared.push(ReadFile { file, access: self.access(part.file, &chosen.row_groups, rows) });
                }
                (Some(_), Some(_)) => {}
                _ => others.push(file),
            }
        }
        let are_known = others.is_empty();
        let groups = if are_known {
            share(shared, partitions)
        } else {
            others.extend(shared.into_iter().map(ReadFile::whole));
            FileGroup::new(others).split_files(partitions)
        };
        let end = ScanEnd { limit, batch_rows: self.batch_rows(work, closed.as_ref()) };
        let scan = self.file_scan(self.data_files(), groups, &read, prunable.as_ref(), end, closed.as_ref())?;
        let scan = if are_known { scan } else { self.repartitioned(scan, partitions)? };
        let plan = self.filtered(scan, &read, self.predicate.as_ref(), closed.as_ref())?;
        Ok(Some(PlannedScan { plan, unselected_stretches: closed.map_or(0, |closed| closed.count) }))
    }

    /// Rows of a batch where reading ends with a limit. A batch of selected rows reaches as far into a file as one of all rows would, so
    /// that little is decoded beyond the last row that is needed. None for batches of the usual size: all rows of a file are read, or the
    /// reader filters, whose batches are of rows that pass.
    fn batch_rows(&self, work: &ScanWork<'_>, closed: Option<&RowNumberFilter>) -> Option<usize> {
        let limit = self.request.limit?;
        if self.reader_filters() {
            return None;
        }
        let whole = self.state.config().batch_size();
        let (mut chosen, mut reached) = (0, 0);
        for (place, part) in work.recheck.iter().enumerate() {
            let rows = part.rows()?;
            let read = closed.and_then(|closed| closed.read(place)).unwrap_or(rows);
            chosen += u64::from(read.len());
            reached += reach(read, whole);
        }
        let share = chosen as f64 / reached.max(1) as f64;
        Some(((whole as f64 * share) as usize).max(limit).max(ReadCost::LEAST_BATCH_ROWS)).filter(|&rows| rows < whole)
    }

    /// Closes unselected stretches of files of which these rows are selected. Not for a limit, which counts the rows that are read. Not
    /// where the reader filters, as it would evaluate the predicate for deleted rows, too. Nor for a lambda: closing a stretch takes two
    /// more columns.
    fn closed_gaps<'r>(
        &self,
        schema: &TableSchema,
        chosen: impl Iterator<Item = Option<&'r RowSet>>,
        prunable: Option<&Arc<dyn PhysicalExpr>>,
        limit: Option<usize>,
    ) -> Result<Option<RowNumberFilter>> {
        if limit.is_some() || self.reader_filters() || have_lambdas(self.predicate.iter())? {
            return Ok(None);
        }
        Ok(RowNumberFilter::of(schema, chosen, prunable.is_some()))
    }

    fn reader_filters(&self) -> bool {
        self.state.default_table_options().parquet.global.pushdown_filters
    }

    /// Data files of the table.
    fn data_files(&self) -> FileSource {
        FileSource { footers: self.footers.clone(), schema: self.table_schema.clone() }
    }

    /// A scan of these columns of files, and of those that number files and rows if stretches are closed.
    fn file_scan(
        &self,
        from: FileSource,
        groups: Vec<FileGroup>,
        columns: &[usize],
        prunable: Option<&Arc<dyn PhysicalExpr>>,
        end: ScanEnd,
        closed: Option<&RowNumberFilter>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = from.schema.table_schema().fields().len();
        let schema = closed.map_or(&from.schema, RowNumberFilter::schema);
        let columns = columns.iter().copied().chain(own..schema.table_schema().fields().len()).collect();
        let reader: Arc<dyn ParquetFileReaderFactory> = Arc::new(from.footers);
        let mut source = ParquetSource::new(schema.clone())
            .with_table_parquet_options(self.state.default_table_options().parquet)
            .with_parquet_file_reader_factory(reader)
            .with_enable_page_index(true);
        if let Some(predicate) = prunable {
            source = source.with_predicate(Arc::clone(predicate));
        }
        // The reader factory has the table's own store; the URL only has to be one that every session knows.
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups)
            .with_limit(end.limit)
            .with_batch_size(end.batch_rows)
            .with_projection_indices(Some(columns))?
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    /// What a scan with the predicate reads.
    fn reading(&self) -> Reading {
        let Some(predicate) = &self.predicate else {
            return Reading { columns: self.columns.clone(), prunable: None, limit: self.request.limit };
        };
        let mut read: BTreeSet<usize> = self.columns.iter().copied().collect();
        read.extend(collect_columns(predicate).iter().map(|column| column.index()));
        let prunable = prunable(predicate, self.table_schema.table_schema());
        Reading { columns: read.into_iter().collect(), prunable, limit: None }
    }

    /// The rows of a scan of the columns `read` that are selected and that pass the predicate, as the operator's output. Rows of closed
    /// stretches are left out.
    fn filtered(
        &self,
        scan: Arc<dyn ExecutionPlan>,
        read: &[usize],
        predicate: Option<&Arc<dyn PhysicalExpr>>,
        closed: Option<&RowNumberFilter>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let predicate = predicate.map(|predicate| reassign_expr_columns(Arc::clone(predicate), &scan.schema()));
        let filter = match (closed, predicate.transpose()?) {
            (Some(closed), predicate) => closed.filter(read.len(), predicate),
            (None, Some(predicate)) => predicate,
            (None, None) => return Ok(scan),
        };
        let place = |column: &usize| {
            let place = read.iter().position(|have| have == column);
            place.ok_or_else(|| internal_datafusion_err!("column {column} is not read"))
        };
        let output = self.columns.iter().map(place).collect::<Result<Vec<_>>>()?;
        // A filter gathers whole batches of rows that pass, of 8,192 unless it is told. With the limit the filter stops at the first batch
        // that has enough.
        let filter = FilterExecBuilder::new(filter, scan).with_batch_size(self.state.config().batch_size());
        let filter = filter.apply_projection(Some(output))?.with_fetch(self.request.limit).build()?;
        Ok(projection::of_fields(&filter)?.unwrap_or_else(|| Arc::new(filter)))
    }

    /// Large files are cut into byte ranges, as DataFusion does with its own tables.
    fn repartitioned(&self, scan: Arc<dyn ExecutionPlan>, partitions: usize) -> Result<Arc<dyn ExecutionPlan>> {
        let cut = scan.repartitioned(partitions, self.state.config_options())?;
        Ok(cut.unwrap_or(scan))
    }
}

/// The rows that a reader passes to read these. Of an unselected stretch at most `gap` rows count, since the reader skips more at once.
fn reach(rows: &RowSet, gap: usize) -> u64 {
    let (mut reached, mut end) = (0, None);
    for range in rows.iter_ranges() {
        let before = end.map_or(0, |end| u64::from(range.start - end));
        reached += before.min(gap as u64) + u64::from(range.end - range.start);
        end = Some(range.end);
    }
    reached
}

/// The file at a place of the work, and the rows to read of it, if some are selected.
fn opened<'r>(
    file: PartitionedFile,
    place: usize,
    chosen: Option<&'r RowSet>,
    closed: Option<&'r RowNumberFilter>,
) -> OpenedFile<'r> {
    match closed {
        None => OpenedFile { file, rows: chosen },
        Some(closed) => OpenedFile { file: closed.number(place, file), rows: closed.read(place).or(chosen) },
    }
}

/// A file with its statistics if they are known: a filter that comes while the query runs may rule the file out, and what comes first
/// in an order is read first.
fn partitioned_file(file: SnapshotFile<'_>, known: Option<Arc<Statistics>>) -> Result<PartitionedFile> {
    let values =
        file.partition_values.iter().map(|value| ScalarValue::try_from_array(value, 0)).collect::<Result<Vec<_>>>()?;
    let whole = PartitionedFile::new_from_meta(file.meta.clone()).with_partition_values(values);
    let whole = whole.with_extension(FilePlace(file.place));
    // With statistics of partition columns each file would have a copy, in which a value of NULL is called none.
    let statistics = known.filter(|_| file.partition_values.is_empty());
    Ok(PartitionedFile { statistics, ..whole })
}

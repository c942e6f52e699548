//! What the engine learns of a scan before its first row is read: rows and bytes, and of each column bounds, NULLs and bytes.
//!
//! ```text
//! all rows of a file             as its footer says                          exact, but for floats
//! some of its rows               bounds as they are, the rest by the share   the number of rows is exact
//! rows with a predicate          as the engine estimates a filter
//! buffered rows                  columns like those of the files
//! ```
//!
//! Footers are read of files that the scan opens anyway. They are also read of files that an index may answer for, if the table is joined
//! with others: then the shape of the join is worth it. The engine answers `MIN`, `MAX` and `COUNT` from what is called exact, so that only
//! what is believed of a footer is.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics, exec_err};
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::cache::cache_manager::CachedFileMetadata;
use datafusion::execution::cache::{SchemaFingerprint, TableScopedPath};
use futures::{StreamExt, TryStreamExt, stream};
use lakemark_table::{DataFile, Snapshot, is_young};
use object_store::ObjectMeta;
use object_store::path::Path;
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::statistics::Statistics as ParquetStatistics;

use crate::expr::types::TextTypes;
use crate::read::access::Pages;
use crate::read::planning_cache::PlanningCache;
use crate::read::reader::{CONCURRENT_FOOTERS, Footers};

/// Of files with more columns only the columns that a query needs are read.
const MOST_COLUMNS: usize = 512;
/// For more columns of files than this a plan would take too long.
const MOST_STATISTICS: usize = 1 << 20;

/// A data file and its place in the snapshot.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotFile<'a> {
    pub(crate) place: usize,
    pub(crate) file: &'a DataFile,
}

impl Deref for SnapshotFile<'_> {
    type Target = DataFile;

    fn deref(&self) -> &DataFile {
        self.file
    }
}

/// Rows of a file that a scan reads.
pub(crate) struct ScannedRows<'a> {
    pub(crate) file: SnapshotFile<'a>,
    /// How many of them; all where none is given.
    pub(crate) rows: Option<u64>,
}

/// A table's state with what is known of its files.
#[derive(Clone, Copy)]
pub(crate) struct StatisticsSource<'a> {
    /// The state of the table.
    pub(crate) snapshot: &'a Snapshot,
    /// How the engine sees the columns.
    pub(crate) types: TextTypes,
    /// What reads footers.
    pub(crate) footers: &'a Footers,
    /// What was found out before.
    pub(crate) known: &'a PlanningCache,
}

/// Reads the statistics of some columns of files.
pub(crate) struct StatisticsReader<'a> {
    state: &'a dyn Session,
    from: StatisticsSource<'a>,
    /// The columns that are read of a footer.
    read: SchemaRef,
    fingerprint: Arc<SchemaFingerprint>,
    /// The requested ones among them.
    wanted: Vec<usize>,
    /// Whether all columns of the files are read.
    has_all: bool,
}

impl<'a> StatisticsReader<'a> {
    /// For these columns of the files of a table.
    pub(crate) fn new(
        state: &'a dyn Session,
        from: StatisticsSource<'a>,
        file_schema: &SchemaRef,
        wanted: &[usize],
    ) -> Result<Self> {
        // All of them, so that the next query finds those that it needs.
        let has_all = file_schema.fields().len() <= MOST_COLUMNS;
        let (read, wanted) = if has_all {
            (Arc::clone(file_schema), wanted.to_vec())
        } else {
            (Arc::new(file_schema.project(wanted)?), (0..wanted.len()).collect())
        };
        let fingerprint = Arc::new(SchemaFingerprint::from_schema(&read));
        Ok(Self { state, from, read, fingerprint, wanted, has_all })
    }

    /// Whether the statistics of these files are known without reading.
    pub(crate) fn covers(&self, files: &[ScannedRows<'_>]) -> bool {
        self.joint(files).is_some() || self.cached(files.iter().map(|read| read.file)).iter().all(Option::is_some)
    }

    /// The statistics of what is read of these files together, with partition columns behind the others; none if no row is.
    pub(crate) async fn of(&self, files: &[ScannedRows<'_>]) -> Result<Option<Statistics>> {
        if files.len() * self.wanted.len() > MOST_STATISTICS {
            return exec_err!("{} columns of {} files are too many for statistics", self.wanted.len(), files.len());
        }
        if let Some(known) = self.joint(files) {
            return Ok(Some(known));
        }
        let found = self.of_each(files).await?;
        let chosen = |(whole, read): (&Arc<Statistics>, &ScannedRows<'_>)| {
            let wanted = self.wanted.iter().map(|column| whole.column_statistics.get(*column).cloned());
            let column_statistics = wanted.map(Option::unwrap_or_default).collect();
            chosen(&Statistics { column_statistics, ..**whole }, read)
        };
        let mut each = found.iter().zip(files).map(chosen).collect::<Result<Vec<_>>>()?;
        // Statistics of no row are wrong for the other files: the value of a folder, say.
        each.retain(|statistics| statistics.num_rows != Precision::Exact(0));
        without_nulls(&mut each);
        if each.is_empty() {
            return Ok(None);
        }
        let joint = Statistics::try_merge_iter(&each, &self.read)?;
        let are_all_rows = || found.iter().zip(files).all(|(whole, read)| are_all_rows(whole, read));
        // A file that was young when it was read may be another one by now: such statistics are not kept.
        let are_kept = || self.cached(files.iter().map(|read| read.file)).iter().all(Option::is_some);
        if self.are_all(files) && are_all_rows() && are_kept() {
            self.from.known.put_joint(self.from.types, &self.columns(), &joint);
        }
        Ok(Some(joint))
    }

    /// The requested columns, with those that folders are named by.
    fn columns(&self) -> Vec<usize> {
        let own = self.read.fields().len();
        self.wanted.iter().copied().chain(own..own + self.from.snapshot.partition_columns().len()).collect()
    }

    /// Whether these are the files of the snapshot, and all of their columns are read.
    fn are_all(&self, files: &[ScannedRows<'_>]) -> bool {
        self.has_all && files.len() == self.from.snapshot.files().len()
    }

    /// The statistics of all rows of all files, if these are all files and their statistics are known.
    fn joint(&self, files: &[ScannedRows<'_>]) -> Option<Statistics> {
        let known = self.from.known.joint(self.from.types, &self.columns()).filter(|_| self.are_all(files))?;
        let are_all_rows = files.iter().all(|read| read.rows.is_none())
            || read_of(files).map(Precision::Exact) == Some(known.num_rows);
        are_all_rows.then_some(known)
    }

    /// The statistics of each file as a whole.
    async fn of_each(&self, files: &[ScannedRows<'_>]) -> Result<Vec<Arc<Statistics>>> {
        let mut each = self.cached(files.iter().map(|read| read.file));
        let missing = each.iter_mut().zip(files).filter(|(kept, _)| kept.is_none());
        let (missing, named): (Vec<_>, Vec<_>) =
            missing.map(|(kept, read)| (kept, (read.file.place, read.file.meta.clone()))).unzip();
        let footers = named.into_iter().map(|(place, meta)| async move { self.of_file(place, &meta).await });
        let found: Vec<_> = stream::iter(footers).buffered(CONCURRENT_FOOTERS).try_collect().await?;
        for (missing, found) in missing.into_iter().zip(found) {
            *missing = Some(found);
        }
        Ok(each.into_iter().flatten().collect())
    }

    /// The statistics of each file as a whole, as far as a session remembers them.
    pub(crate) fn cached<'f>(
        &self,
        files: impl Iterator<Item = SnapshotFile<'f>> + Clone,
    ) -> Vec<Option<Arc<Statistics>>> {
        if !self.has_all {
            return files.map(|_| None).collect();
        }
        let known = self.from.known.statistics_of(self.from.types, files.clone().map(|file| file.place));
        let ask = |(known, file): (Option<_>, SnapshotFile<'_>)| {
            known.unwrap_or_else(|| self.remembered(file.place, &file.meta))
        };
        known.into_iter().zip(files).map(ask).collect()
    }

    fn key_of(&self, meta: &ObjectMeta) -> TableScopedPath {
        // Statistics of views are others.
        let is_view = |field: &FieldRef| matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
        let types = if self.read.fields().iter().any(is_view) { "#views" } else { "" };
        TableScopedPath { table: None, path: Path::from(format!("{}{types}", self.from.footers.key_of(meta))) }
    }

    fn remembered(&self, place: usize, meta: &ObjectMeta) -> Option<Arc<Statistics>> {
        let cache = self.state.runtime_env().cache_manager.get_file_statistic_cache();
        let known = cache.and_then(|cache| cache.get(&self.key_of(meta)));
        let is_valid = |known: &CachedFileMetadata| known.is_valid_for(meta, &self.fingerprint);
        let statistics = known.filter(is_valid).map(|known| Arc::clone(&known.statistics));
        self.keep(place, statistics.as_ref());
        statistics
    }

    fn keep(&self, place: usize, statistics: Option<&Arc<Statistics>>) {
        if self.has_all {
            self.from.known.put_statistics(self.from.types, place, statistics);
        }
    }

    /// The statistics of a whole file, remembered by the session.
    async fn of_file(&self, place: usize, meta: &ObjectMeta) -> Result<Arc<Statistics>> {
        if let Some(remembered) = self.remembered(place, meta) {
            return Ok(remembered);
        }
        let was_young = is_young(meta);
        let footer = self.from.footers.fetch(meta).await?;
        self.from.known.put_pages(place, Pages::of(&footer));
        let found = DFParquetMetadata::statistics_from_parquet_metadata(&footer, &self.read)?;
        let found = Arc::new(believed(found, &footer, &self.read));
        let cache = self.state.runtime_env().cache_manager.get_file_statistic_cache();
        if let Some(cache) = cache.filter(|_| !was_young) {
            let known = CachedFileMetadata::new(meta.clone(), Arc::clone(&self.fingerprint), Arc::clone(&found), None);
            cache.put(&self.key_of(meta), known);
            self.keep(place, Some(&found));
        }
        Ok(found)
    }
}

/// How many rows are read of these files, if that is said of each.
fn read_of(files: &[ScannedRows<'_>]) -> Option<usize> {
    usize::try_from(files.iter().map(|read| read.rows).sum::<Option<u64>>()?).ok()
}

fn are_all_rows(whole: &Statistics, read: &ScannedRows<'_>) -> bool {
    let rows = read.rows.and_then(|rows| usize::try_from(rows).ok());
    read.rows.is_none() || (rows.is_some() && rows == whole.num_rows.get_value().copied())
}

/// What is true of the statistics that the engine takes from a footer. It calls some of them exact that are not:
///
/// * bounds of floats leave NaN out, and those of 96-bit times are in another order;
/// * row groups without bounds are passed over, and missing counts of NULLs are zeros to it;
/// * a column that the file has in another type gets bounds of NULL;
/// * counts of distinct values are estimates of some writers.
fn believed(mut statistics: Statistics, footer: &ParquetMetaData, columns: &Schema) -> Statistics {
    let described = footer.file_metadata().schema_descr();
    let flat = described.columns().iter().enumerate().filter(|(_, leaf)| leaf.path().parts().len() == 1);
    let leaves: HashMap<&str, usize> = flat.map(|(place, leaf)| (leaf.name(), place)).collect();
    let rows = statistics.num_rows;
    for (column, field) in statistics.column_statistics.iter_mut().zip(columns.fields()) {
        column.distinct_count = column.distinct_count.to_inexact();
        let mut has_bounds = true;
        if let Some(leaf) = leaves.get(field.name().as_str()) {
            let chunks: Vec<_> = footer.row_groups().iter().map(|group| group.column(*leaf)).collect();
            if !chunks.iter().all(|group| nulls_of(group).is_some()) {
                column.null_count = Precision::Absent;
            }
            has_bounds = described.column(*leaf).physical_type() != PhysicalType::INT96
                && chunks.iter().all(|group| has_bounds_or_nulls(group));
        }
        let value_type = value_type(field.data_type());
        for bound in [&mut column.min_value, &mut column.max_value] {
            let is_bound = |value: &ScalarValue| match value.is_null() {
                true => column.null_count == rows,
                false => has_bounds && value.data_type() == *value_type,
            };
            let have = std::mem::take(bound);
            *bound = match (have.get_value().is_some_and(is_bound), value_type.is_floating()) {
                (false, _) => Precision::Absent,
                (true, true) => have.to_inexact(),
                (true, false) => have,
            };
        }
        // No estimate can go by bounds that are the wrong way round.
        if column.min_value.get_value() > column.max_value.get_value() {
            (column.min_value, column.max_value) = (Precision::Absent, Precision::Absent);
        }
    }
    statistics
}

fn nulls_of(group: &ColumnChunkMetaData) -> Option<u64> {
    group.statistics().and_then(|statistics| statistics.null_count_opt())
}

fn has_bounds_or_nulls(group: &ColumnChunkMetaData) -> bool {
    let has_bounds = |of: &ParquetStatistics| of.min_bytes_opt().is_some() && of.max_bytes_opt().is_some();
    group.statistics().is_some_and(has_bounds)
        || nulls_of(group).is_some_and(|nulls| nulls as i64 == group.num_values())
}

fn value_type(of: &DataType) -> &DataType {
    match of {
        DataType::Dictionary(_, value) => value,
        other => other,
    }
}

/// Files of which a column is all NULL say nothing of its bounds, where merging would take NULL for the least value. They get the bounds of
/// another file.
pub(crate) fn without_nulls(each: &mut [Statistics]) {
    let columns = each.first().map_or(0, |first| first.column_statistics.len());
    for column in 0..columns {
        let has_value = |statistics: &&Statistics| bound_of(statistics, column).is_some_and(|value| !value.is_null());
        let Some(value) = each.iter().find(has_value).and_then(|statistics| bound_of(statistics, column)).cloned()
        else {
            continue;
        };
        for of in each.iter_mut().filter_map(|statistics| statistics.column_statistics.get_mut(column)) {
            for bound in [&mut of.min_value, &mut of.max_value] {
                *bound = std::mem::take(bound).map(|bound| if bound.is_null() { value.clone() } else { bound });
            }
        }
    }
}

fn bound_of(statistics: &Statistics, column: usize) -> Option<&ScalarValue> {
    statistics.column_statistics.get(column)?.min_value.get_value()
}

/// The statistics of the rows that are read of a file, with those of its partition columns.
fn chosen(whole: &Statistics, read: &ScannedRows<'_>) -> Result<Statistics> {
    let all = whole.num_rows.get_value().copied().unwrap_or(0);
    let rows = read.rows.map_or(all, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
    let mut statistics = whole.clone();
    if rows != all {
        statistics = share_of(whole, (rows as f64 / all.max(1) as f64).min(1.0));
        statistics.num_rows = Precision::Exact(rows);
    }
    for value in &read.file.partition_values {
        let value = ScalarValue::try_from_array(value, 0)?;
        statistics.column_statistics.push(of_constant(value, rows));
    }
    Ok(statistics)
}

/// The statistics of a share of the rows, estimated.
pub(crate) fn share_of(whole: &Statistics, share: f64) -> Statistics {
    let part = |number: Precision<usize>| number.with_estimated_selectivity(share);
    let mut statistics = whole.clone().to_inexact();
    statistics.num_rows = part(statistics.num_rows);
    statistics.total_byte_size = part(statistics.total_byte_size);
    for column in &mut statistics.column_statistics {
        column.null_count = part(column.null_count);
        column.byte_size = part(column.byte_size);
        column.sum_value = Precision::Absent;
        column.distinct_count = column.distinct_count.min(&statistics.num_rows);
    }
    statistics
}

/// Without the bounds of dates that are no time in nanoseconds (of years before 1677 or after 2262). Where the engine judges what casts
/// make of bounds, its arithmetic overflows for them.
pub(crate) fn without_far_dates(mut statistics: Statistics) -> Statistics {
    const DAYS: i64 = i64::MAX / (24 * 60 * 60 * 1_000_000_000);
    let is_far = |bound: &ScalarValue| match bound {
        ScalarValue::Date32(Some(days)) => i64::from(*days).abs() > DAYS,
        ScalarValue::Date64(Some(milliseconds)) => (milliseconds / (24 * 60 * 60 * 1_000)).abs() > DAYS,
        _ => false,
    };
    for column in &mut statistics.column_statistics {
        for bound in [&mut column.min_value, &mut column.max_value] {
            if bound.get_value().is_some_and(is_far) {
                *bound = Precision::Absent;
            }
        }
    }
    statistics
}

fn of_constant(value: ScalarValue, rows: usize) -> ColumnStatistics {
    let bytes = value.data_type().primitive_width().map(|width| width * rows);
    let nulls = if value.is_null() { rows } else { 0 };
    ColumnStatistics {
        null_count: Precision::Exact(nulls),
        distinct_count: Precision::Inexact(usize::from(nulls == 0)),
        byte_size: bytes.map_or(Precision::Absent, Precision::Exact),
        min_value: Precision::Exact(value.clone()),
        max_value: Precision::Exact(value),
        sum_value: Precision::Absent,
    }
}

/// With so many buffered rows, which are taken to be like those of the files.
pub(crate) fn with_buffered(of_files: Statistics, buffered: Precision<usize>) -> Statistics {
    if buffered == Precision::Exact(0) {
        return of_files;
    }
    let rows = of_files.num_rows.add(&buffered);
    let share = match (rows.get_value(), of_files.num_rows.get_value()) {
        (Some(rows), Some(before)) => *rows as f64 / (*before).max(1) as f64,
        _ => 1.0,
    };
    let grown = |number: Precision<usize>| number.map(|number| (number as f64 * share) as usize);
    let mut statistics = of_files.to_inexact();
    statistics.num_rows = rows;
    statistics.total_byte_size = grown(statistics.total_byte_size);
    for column in &mut statistics.column_statistics {
        column.null_count = grown(column.null_count);
        column.byte_size = grown(column.byte_size);
        column.sum_value = Precision::Absent;
    }
    statistics
}

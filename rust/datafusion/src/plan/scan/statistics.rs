//! What the engine learns of a planned scan: the statistics of what is read of its files, and of what a predicate leaves of these.

use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::{Result, Statistics, exec_err};
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use futures::future::join_all;
use lakemark_table::{BufferedRows, ProbeReport};

use super::Planner;
use super::work::{ExactRows, ScanWork, SelectedRows, live_rows};
use crate::read::access::{Pages, is_worth_cutting};
use crate::read::statistics::{
    ScannedRows, SnapshotFile, StatisticsReader, StatisticsSource, share_of, with_buffered, without_far_dates,
    without_nulls,
};

/// Of fewer files a partition cutting by bytes may be uneven, as a byte range has whole row groups.
const FILES_OF_A_PARTITION: usize = 4;

impl Planner<'_> {
    /// The statistics of the scan for the engine. `share_left` is what the index expects a predicate to leave of the rows that are read
    /// with it. With a limit the engine gets the number of rows alone, so that not all files are opened.
    pub(super) async fn statistics(
        &self,
        work: &ScanWork<'_>,
        report: &ProbeReport,
        share_left: Option<f64>,
    ) -> Result<Statistics> {
        let rows = row_count(work, report);
        let wants_columns = self.state.config().collect_statistics() && !self.output.fields().is_empty();
        // Of rows that an index gave nothing is opened either.
        if !wants_columns || self.request.limit.is_some() || work.covered > 0 {
            return Ok(self.of_rows(rows));
        }
        match self.of_columns(work, share_left).await {
            // A scan that cannot be estimated can still be read, or its own error says why not.
            Err(_) => Ok(self.of_rows(rows)),
            Ok(known) => Ok(self.with_distinct(known).await),
        }
    }

    /// What follows from the number of rows alone: also bytes, if the columns are of fixed width.
    fn of_rows(&self, rows: Precision<usize>) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.output).with_num_rows(rows);
        statistics.calculate_total_byte_size(&self.output);
        statistics
    }

    /// With the numbers of different values that an index knows, if the table is joined. No number is called exact: values that are equal
    /// to the engine may be two to an index.
    async fn with_distinct(&self, mut statistics: Statistics) -> Statistics {
        if !self.request.is_joined || self.request.scan_probe.is_none() {
            return statistics;
        }
        let names = self.output.fields().iter().map(|field| field.name());
        let known = join_all(names.map(|name| self.distinct_values(name))).await;
        let rows = statistics.num_rows.get_value().copied().unwrap_or(usize::MAX);
        for (column, known) in statistics.column_statistics.iter_mut().zip(known) {
            let Some(known) = known else { continue };
            let count = usize::try_from(known).unwrap_or(usize::MAX).min(rows);
            let likely = column.distinct_count.get_value().map_or(count, |other| count.min(*other));
            column.distinct_count = Precision::Inexact(likely);
        }
        statistics
    }

    /// About how many different values a column has, by its index.
    async fn distinct_values(&self, column: &str) -> Option<u64> {
        if let Some(known) = self.known.distinct_of(column) {
            return known;
        }
        // A directory that cannot be read now may be read for the next plan.
        let found = self.request.snapshot.distinct_values(column).await.ok()?;
        self.known.put_distinct(column, found);
        found
    }

    async fn of_columns(&self, work: &ScanWork<'_>, share_left: Option<f64>) -> Result<Statistics> {
        let read = self.reading().columns;
        let read = if work.recheck.is_empty() { &self.columns } else { &read };
        let exact = work.exact.iter().map(|part| ScannedRows { file: part.file, rows: Some(part.chosen.count()) });
        let exact = self.merged(read, exact.collect()).await?;
        let recheck = work
            .recheck
            .iter()
            .map(|part| ScannedRows { file: part.file, rows: part.chosen.as_ref().map(SelectedRows::count) });
        let recheck = self.merged(read, recheck.collect()).await?;
        let exact = exact.map(|statistics| {
            let mut projected = statistics.project(Some(&self.columns));
            projected.calculate_total_byte_size(&self.output);
            projected
        });
        let all = recheck.as_ref().and_then(|recheck| recheck.num_rows.get_value().copied());
        let recheck = recheck.map(|statistics| self.estimated(read, statistics)).transpose()?;
        let recheck = recheck.map(|statistics| match (all, share_left) {
            (Some(all), Some(share)) => with_rows(&statistics, all as f64 * share),
            _ => statistics,
        });
        let passing = recheck.as_ref().and_then(|recheck| recheck.num_rows.get_value().copied());
        let buffered = buffered_rows(work, all, passing);
        let buffered = if self.predicate.is_none() { buffered } else { buffered.to_inexact() };
        let mut of_files: Vec<Statistics> = exact.into_iter().chain(recheck).collect();
        if of_files.is_empty() {
            let none = Statistics::new_unknown(&self.output).with_num_rows(Precision::Exact(0));
            return Ok(with_buffered(none, buffered));
        }
        let is_exact = of_files.iter().all(|statistics| matches!(statistics.num_rows, Precision::Exact(_)));
        // Bounds of no row are NULL.
        if of_files.iter().any(has_rows) {
            of_files.retain(has_rows);
        }
        without_nulls(&mut of_files);
        let of_files = Statistics::try_merge_iter(&of_files, &self.output)?;
        Ok(with_buffered(if is_exact { of_files } else { of_files.to_inexact() }, buffered))
    }

    /// For each column of the output whether no row of it is NULL, by what is known of the files by now. Empty if the table is not joined,
    /// or has rows that are in no file that is read.
    pub(super) fn without_null(&self, work: &ScanWork<'_>) -> Result<Vec<bool>> {
        let has_others = work.covered > 0 || work.buffered.is_some_and(|buffered| buffered.row_count() > 0);
        if !self.request.is_joined || has_others {
            return Ok(Vec::new());
        }
        let exact = work.exact.iter().map(|part| part.file);
        let known = self.known_statistics(exact.chain(work.recheck.iter().map(|part| part.file)))?;
        let is_full = |statistics: &Option<Arc<Statistics>>, column: usize| {
            let column = statistics.as_ref().and_then(|statistics| statistics.column_statistics.get(column));
            column.is_some_and(|column| column.null_count == Precision::Exact(0))
        };
        let is_whole = |column: &usize| known.iter().all(|statistics| is_full(statistics, *column));
        Ok(self.columns.iter().map(is_whole).collect())
    }

    /// What is known of data files as a whole.
    pub(super) fn known_statistics<'f>(
        &self,
        files: impl Iterator<Item = SnapshotFile<'f>> + Clone,
    ) -> Result<Vec<Option<Arc<Statistics>>>> {
        Ok(self.statistics_reader(&[])?.cached(files))
    }

    /// What reads the statistics of these columns of the files.
    fn statistics_reader(&self, columns: &[usize]) -> Result<StatisticsReader<'_>> {
        let from = StatisticsSource {
            snapshot: self.request.snapshot,
            types: self.request.types,
            footers: &self.footers,
            known: &self.known,
        };
        StatisticsReader::new(self.state, from, self.table_schema.file_schema(), columns)
    }

    /// The statistics of what is read of these files together, column by column of the table. Nothing is known of the columns that are not
    /// read.
    async fn merged(&self, read: &[usize], files: Vec<ScannedRows<'_>>) -> Result<Option<Statistics>> {
        let file_schema = self.table_schema.file_schema();
        let own = file_schema.fields().len();
        let of_files: Vec<usize> = read.iter().copied().filter(|column| *column < own).collect();
        let reader = self.statistics_reader(&of_files)?;
        if self.may_be_answered() && !reader.covers(&files) {
            return exec_err!("no file is opened where the index may answer");
        }
        let Some(mut merged) = reader.of(&files).await? else { return Ok(None) };
        let all = self.table_schema.table_schema();
        let found = std::mem::replace(&mut merged.column_statistics, Statistics::unknown_column(all));
        let places = of_files.into_iter().chain(own..all.fields().len());
        for (place, column) in places.zip(found) {
            if let Some(unknown) = merged.column_statistics.get_mut(place) {
                *unknown = column;
            }
        }
        Ok(Some(merged))
    }

    /// Whether the index may answer in place of this scan, which opens no file then.
    fn may_be_answered(&self) -> bool {
        self.request.scan_probe.is_some() && !self.request.is_joined
    }

    /// What is left of rows with these statistics by the predicate, as the engine estimates it of its own scans, with the output's columns.
    fn estimated(&self, read: &[usize], statistics: Statistics) -> Result<Statistics> {
        let source = Arc::new(ParquetSource::new(self.table_schema.clone()));
        let config = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_projection_indices(Some(read.to_vec()))?
            .with_statistics(without_far_dates(statistics))
            .build();
        let scan = self.filtered(DataSourceExec::from_data_source(config), read, self.predicate.as_ref(), None)?;
        let found = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new())?;
        // A filter calls the value of `x = 4` exact, though no row may be left.
        let is_exact = self.predicate.is_none();
        let found = Arc::unwrap_or_clone(found);
        Ok(if is_exact { found } else { found.to_inexact() })
    }

    /// Finds out which row groups the files have that are read as a whole, if their footers were read or are so few that these are read now.
    /// A footer that cannot be read is a matter of the reader.
    pub(super) async fn learn_row_groups(&self, work: &mut ScanWork<'_>) {
        let unknown = work.recheck.iter().filter(|part| part.chosen.is_none()).count();
        let are_few = unknown < FILES_OF_A_PARTITION * self.state.config().target_partitions().max(1);
        if unknown == 0 || !are_few || self.request.limit.is_some() || self.may_be_answered() {
            return;
        }
        join_all(work.recheck.iter_mut().filter(|part| part.chosen.is_none()).map(|part| async {
            let Ok(row_groups) = self.footers.row_groups(&part.file.meta).await else { return };
            let rows = live_rows(&part.file, &row_groups).ok();
            part.chosen = rows.map(|rows| SelectedRows { row_groups, rows });
        }))
        .await;
    }

    /// Reads the footers of files that have more than a partition's share of the rows, unless their pages are known: whether such a file is
    /// cut depends on its pages. Such files are fewer than partitions. A footer that cannot be read is a matter of the reader.
    pub(super) async fn learn_pages(&self, work: &ScanWork<'_>) {
        if self.request.limit.is_some() {
            return;
        }
        let exact = work.exact.iter().map(|ExactRows { file, chosen }| (*file, chosen.count()));
        self.learn_pages_of(exact.collect()).await;
        if self.may_be_answered() {
            return;
        }
        let recheck = work.recheck.iter().filter_map(|part| Some((part.file, part.chosen.as_ref()?.count())));
        self.learn_pages_of(recheck.collect()).await;
    }

    /// The same for files that are read by one scan, each with the number of its rows.
    async fn learn_pages_of(&self, files: Vec<(SnapshotFile<'_>, u64)>) {
        let partitions = self.state.config().target_partitions().max(1) as u64;
        let all: u64 = files.iter().map(|(_, rows)| rows).sum();
        let large = files.iter().filter(|(file, rows)| {
            is_worth_cutting(*rows) && rows * partitions > all && !self.known.has_pages(file.place)
        });
        join_all(large.map(|(file, _)| async {
            if let Ok(footer) = self.footers.fetch(&file.meta).await {
                self.known.put_pages(file.place, Pages::of(&footer));
            }
        }))
        .await;
    }
}

/// The same statistics for so many rows.
fn with_rows(statistics: &Statistics, rows: f64) -> Statistics {
    let found = statistics.num_rows.get_value().map_or(1.0, |found| (*found).max(1) as f64);
    share_of(statistics, rows / found).with_num_rows(Precision::Inexact(rows as usize))
}

fn has_rows(statistics: &Statistics) -> bool {
    statistics.num_rows.get_value() != Some(&0)
}

/// How many buffered rows are in the answer, if as many of them pass the predicate as of the files: `passing` of `all`.
fn buffered_rows(work: &ScanWork<'_>, all: Option<usize>, passing: Option<usize>) -> Precision<usize> {
    let buffered = work.buffered.map_or(0, BufferedRows::row_count);
    let buffered = Precision::Exact(usize::try_from(buffered).unwrap_or(usize::MAX));
    match (all, passing) {
        (Some(all), Some(passing)) if passing < all => buffered.with_estimated_selectivity(passing as f64 / all as f64),
        _ => buffered,
    }
}

/// The number of rows, as far as the probe knows it.
fn row_count(work: &ScanWork<'_>, report: &ProbeReport) -> Precision<usize> {
    let Ok(rows) = usize::try_from(work.exact_rows()) else { return Precision::Absent };
    match work.recheck.is_empty() && work.buffered.is_none() {
        true => Precision::Exact(rows),
        false if report.files_scanned == 0 => {
            Precision::Inexact(rows + usize::try_from(report.rows_rechecked).unwrap_or(0))
        }
        false => Precision::Absent,
    }
}

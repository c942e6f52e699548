//! The scans of buffered rows: of runs, which are read like data files, and of rows in memory.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::table_schema::TableSchema;
use lakemark_table::BufferedRows;

use super::work::ScanWork;
use super::{FileSource, PlannedScan, Planner, Reading, ScanEnd, opened};
use crate::read::access::plan_of;

impl Planner<'_> {
    /// The scans of buffered rows: those of runs and those in memory.
    pub(super) fn buffered_scans(&self, work: &ScanWork<'_>) -> Result<Vec<PlannedScan>> {
        let (Some(buffered), Some(store)) = (work.buffered, self.request.snapshot.run_store()) else {
            return Ok(Vec::new());
        };
        let reading = self.reading();
        // In runs partition columns stand like all others.
        let all = self.table_schema.table_schema().fields().iter();
        let schema =
            Arc::new(Schema::new(all.map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>()));
        let mut scans = Vec::new();
        if !buffered.files.is_empty() {
            let source = FileSource {
                footers: self.footers.of_runs(store, self.memory.clone()),
                schema: TableSchema::builder(Arc::clone(&schema)).build(),
            };
            scans.push(self.run_scan(source, buffered, &reading)?);
        }
        if !buffered.batches.is_empty() {
            let rows = buffered.batches.iter().map(|batch| in_order_of(batch, &schema)).collect::<Result<Vec<_>>>()?;
            let read = reading.columns;
            let scan = MemorySourceConfig::try_new_exec(&[rows], Arc::clone(&schema), Some(read.clone()))?;
            let plan = self.filtered(scan, &read, self.predicate.as_ref(), None)?;
            scans.push(PlannedScan { plan, unselected_stretches: 0 });
        }
        Ok(scans)
    }

    /// The scan of the rows of runs that count. Others may stand between these (deletes, and rows that are newer elsewhere).
    fn run_scan(&self, source: FileSource, buffered: &BufferedRows, reading: &Reading) -> Result<PlannedScan> {
        let (read, prunable, limit) = (&reading.columns, reading.prunable.as_ref(), reading.limit);
        let chosen = buffered.files.iter().map(|file| Some(&file.rows));
        let closed = self.closed_gaps(&source.schema, chosen, prunable, limit)?;
        let mut files = Vec::with_capacity(buffered.files.len());
        for (place, file) in buffered.files.iter().enumerate() {
            let whole = PartitionedFile::new_from_meta(file.meta.clone());
            let opened = opened(whole, place, Some(&file.rows), closed.as_ref());
            let rows = opened.rows.unwrap_or(&file.rows);
            if !rows.is_empty() {
                files.push(opened.file.with_extension(plan_of(&file.row_groups, rows)));
            }
        }
        // Each partition keeps a row group in memory.
        let fit = buffered.memory_bytes / buffered.row_group_bytes.max(1);
        let partitions = self.state.config().target_partitions();
        let partitions = partitions.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1);
        let groups = FileGroup::new(files).split_files(partitions);
        let end = ScanEnd { limit, batch_rows: None };
        let scan = self.file_scan(source, groups, read, prunable, end, closed.as_ref())?;
        let scan = self.repartitioned(scan, partitions)?;
        let plan = self.filtered(scan, read, self.predicate.as_ref(), closed.as_ref())?;
        Ok(PlannedScan { plan, unselected_stretches: closed.map_or(0, |closed| closed.count) })
    }
}

/// The columns of a batch as this schema has them.
fn in_order_of(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &FieldRef| Ok(cast(batch.column(batch.schema().index_of(field.name())?), field.data_type())?);
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

//! Rows that an index gives with their values, as it includes the columns: they travel with the splits, and no file is opened for them.
//!
//! ```text
//! rows that a probe left ─┬─ an index has their values: sent to tasks as they are
//!                         └─ all others: read by tasks in the data files
//! ```
//!
//! Which rows are read was settled before. An index may find rows by one condition of several, and Spark then tests all of them again. So
//! rows to be rechecked are given as well as exact ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use lakemark_index::{Predicate, RowSet};
use lakemark_table::{CoverRequest, CoveredValues, FileProbe, FileProbes, Probe, RowsOfFile};

use crate::buffered::{add_rows, in_spark_types};
use crate::error::Result;
use crate::filter_result::row_groups_read;
use crate::handle::Pinned;
use crate::split_packing::SplitPacker;

/// What the rows of a scan were found by.
#[derive(Debug)]
pub(crate) struct FoundBy {
    /// What the rows meet, as far as indexes can tell.
    pub(crate) predicate: Predicate,
    /// What the keys of a join alone leave, if a search was made for them. Of the rows that are planned nobody needs any other one.
    pub(crate) keyed: Option<FileProbes>,
}

impl FoundBy {
    /// The rows of a file that an index may have the values of; none if there are none.
    fn rows(&self, place: usize, planned: &FileProbe) -> Option<RowSet> {
        let planned = rows_in(planned)?;
        let rows = match &self.keyed {
            None => planned,
            Some(keyed) => {
                let keyed = rows_in(keyed.get(place)?)?;
                (keyed.universe() == planned.universe()).then(|| planned.and(&keyed))?
            }
        };
        (!rows.is_empty()).then_some(rows)
    }
}

/// The rows that a probe left of a file, if it knows them.
fn rows_in(found: &FileProbe) -> Option<RowSet> {
    match found {
        FileProbe::Known { exact, recheck, .. } => Some(exact.or(recheck)),
        FileProbe::Unknown | FileProbe::Counted { .. } => None,
    }
}

/// Rows that an index gave.
#[derive(Debug)]
pub(crate) struct CoveredRows {
    /// The name of the index.
    pub(crate) index: String,
    /// The rows, with the columns of the scan as the table has them.
    rows: RecordBatch,
    /// What is left to read of each file that has some of the rows, by the places of the files.
    left: HashMap<usize, RowSet>,
    index_reads: u64,
    index_bytes_read: u64,
}

impl CoveredRows {
    /// The rows of `planned` whose values an index has; `columns` has those of the scan, with the table's types. None if no index has all of
    /// these columns, or if the rows are too many to be sent.
    pub(crate) async fn of(
        pinned: &Pinned,
        planned: &FileProbes,
        found_by: &FoundBy,
        columns: &Schema,
    ) -> Option<Self> {
        let snapshot = &pinned.snapshot;
        let is_worth_a_look = pinned.use_index && snapshot.has_covering_index() && !columns.fields().is_empty();
        if !is_worth_a_look || found_by.predicate.leaves().is_empty() {
            return None;
        }
        let rows_of = |(place, found): (usize, &FileProbe)| Some((place, found_by.rows(place, found)?));
        let wanted: BTreeMap<usize, RowSet> = planned.listed().filter_map(rows_of).collect();
        let request = CoverRequest {
            predicate: &found_by.predicate,
            columns: columns.fields().iter().map(|field| field.name().clone()).collect(),
            rows: wanted.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect(),
        };
        let CoveredValues { index, columns: values, rows, index_reads, index_bytes_read, .. } =
            snapshot.covered_rows(&request).await?;
        let fields = columns.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        // What cannot be given is read, and the reader says what is wrong with it.
        let batch = RecordBatch::try_new(schema, values).ok()?;
        let left = |file: usize, given: &RowSet| Some((file, wanted.get(&file)?.minus(given)));
        let left = rows.iter().filter_map(|of_file| left(of_file.file, &of_file.rows)).collect();
        Some(Self { index, rows: batch, left, index_reads, index_bytes_read })
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> u64 {
        self.rows.num_rows() as u64
    }

    /// What is left to read of `planned`, with a report of both.
    pub(crate) fn left_of(&self, planned: &Probe) -> Probe {
        let files = planned.files.map(|place, found| match (self.left.get(&place), found) {
            (Some(left), FileProbe::Known { row_groups, exact, recheck }) => {
                let row_groups = row_groups.clone();
                FileProbe::Known { row_groups, exact: exact.and(left), recheck: recheck.and(left) }
            }
            _ => found.clone(),
        });
        let mut report = planned.report.clone();
        report.index_reads += self.index_reads;
        report.index_bytes_read += self.index_bytes_read;
        for place in self.left.keys() {
            let (before, after) = (read_of(&planned.files, *place), read_of(&files, *place));
            report.row_groups_pruned += before.saturating_sub(after);
            report.files_pruned += u64::from(before > 0 && after == 0);
        }
        Probe { files, report, ..planned.clone() }
    }

    /// Adds the rows, as rows in memory are added; `schema` has the scan's columns with Spark's types, of which those that are `exact` may
    /// not be cut.
    pub(crate) fn add(&self, schema: &SchemaRef, exact: &[String], packer: &mut SplitPacker) -> Result<()> {
        let place = format!("the rows of the index {}", self.index);
        add_rows(&in_spark_types(&self.rows, schema, exact, &place)?, packer)
    }
}

/// How many row groups of a file are read.
fn read_of(files: &FileProbes, place: usize) -> u64 {
    match files.get(place) {
        Some(FileProbe::Known { row_groups, exact, recheck }) => row_groups_read(row_groups, exact, recheck) as u64,
        _ => 0,
    }
}

#[cfg(test)]
#[path = "covered_tests.rs"]
mod tests;

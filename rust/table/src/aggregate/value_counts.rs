//! A request to count rows by the values of columns, and the counts as they are gathered from segments and constants.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use lakemark_index::Predicate;

use super::answered_files::AnsweredFiles;
use super::sources::{ConstantFile, ValueSources};
use crate::error::{Error, Result};
use crate::snapshot::{FileProbe, FileProbes};
use crate::store::parts::at_once;
use crate::store::segments::Damage;

/// Segments that are counted at a time.
pub(super) const CONCURRENT_COUNTS: usize = 8;

/// A request for the values of columns in the exact rows of a probe.
#[derive(Clone, Copy, Debug)]
pub struct GroupCountRequest<'a> {
    /// One column or two, by their names in the table's schema; more are not answered.
    pub columns: &'a [String],
    /// The predicate of the probe.
    pub predicate: &'a Predicate,
    /// What the probe found of every file.
    pub files: &'a FileProbes,
    /// One of the columns, if only its sum and the number of its rows with a value are requested. The index may then give other values, as
    /// many and with the same sum in each group. None of these lie further apart than the real ones. Where they come from bit slices, no
    /// row is looked at.
    pub sum_column: Option<&'a str>,
    /// Whether values are requested only where they are few. A query that ends with the first groups finds these as soon in the rows.
    pub only_few_values: bool,
}

/// How many rows have each value.
#[derive(Clone, Debug, Default)]
pub struct GroupCounts {
    /// The files of which all exact rows are in the parts.
    pub answered: AnsweredFiles,
    /// Values with their rows; parts may share values.
    pub parts: Vec<ValueCounts>,
    /// Reads of the store.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes_read: u64,
}

/// Some values and how many rows have each.
#[derive(Clone, Debug)]
pub struct ValueCounts {
    /// By column in the order of the request, in the column's type in the table: the values, or the halves of pairs; NULL is one.
    pub values: Vec<ArrayRef>,
    /// Rows of each value or pair, at least one.
    pub rows: Vec<u64>,
}

/// The counts of one segment.
pub(super) struct SegmentCounts {
    pub(super) files: Vec<usize>,
    pub(super) part: ValueCounts,
}

impl GroupCounts {
    /// Runs the jobs of some segments of `columns`, a few at a time, and enters what they count. Gives the files of which something was
    /// counted.
    pub(super) async fn gather<J>(&mut self, jobs: Vec<J>, columns: &str) -> Result<Vec<usize>>
    where
        J: Future<Output = std::result::Result<Option<SegmentCounts>, Damage>> + Send + 'static,
    {
        let mut files = Vec::new();
        for counted in at_once(jobs.into_iter(), CONCURRENT_COUNTS).await.map_err(|error| Error::task(&error))? {
            if let Some(counted) = unless_damaged(counted, columns) {
                files.extend_from_slice(&counted.files);
                self.add(counted);
            }
        }
        Ok(files)
    }

    /// Enters the counts of a segment.
    fn add(&mut self, counted: SegmentCounts) {
        for file in counted.files {
            self.answered.answer(file);
        }
        if !counted.part.rows.is_empty() {
            self.parts.push(counted.part);
        }
    }

    /// Enters the files in which the columns are constant.
    pub(super) fn add_constants(
        &mut self,
        first: &ValueSources,
        second: Option<&ValueSources>,
        files: &FileProbes,
    ) -> Result<()> {
        let others: Option<HashMap<usize, &ArrayRef>> =
            second.map(|second| second.constants.iter().map(|other| (other.file, &other.value)).collect());
        let (mut values, mut rows): ([Vec<&dyn Array>; 2], Vec<u64>) = Default::default();
        for ConstantFile { file, value } in &first.constants {
            let other = match &others {
                None => None,
                Some(others) => match others.get(file) {
                    None => continue,
                    other => other,
                },
            };
            let Some(chosen) = files.get(*file).and_then(FileProbe::exact_rows) else { continue };
            self.answered.answer(*file);
            if !chosen.is_empty() {
                let [firsts, seconds] = &mut values;
                firsts.push(value.as_ref());
                seconds.extend(other.map(|other| other.as_ref() as &dyn Array));
                rows.push(u64::from(chosen.len()));
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        let columns = values.iter().filter(|values| !values.is_empty()).map(|values| concat(values));
        let values = columns.collect::<std::result::Result<_, _>>();
        let values = values
            .map_err(|error| Error::internal("the values of a partition column differ in type").with_source(error))?;
        self.parts.push(ValueCounts { values, rows });
        Ok(())
    }
}

/// What was counted in a segment of `columns`, if anything was. Damage is logged.
pub(super) fn unless_damaged<T>(counted: std::result::Result<Option<T>, Damage>, columns: &str) -> Option<T> {
    counted.unwrap_or_else(|Damage { reason, problem, .. }| {
        let reason = reason.code();
        tracing::warn!(column = %columns, reason, problem, "an index file cannot be used; its files are scanned");
        None
    })
}

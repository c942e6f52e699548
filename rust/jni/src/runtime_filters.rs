//! Filters that Spark learns while a query runs: the keys of a join's other side.
//!
//! The scan was planned before, of the same snapshot, and Spark goes on joining, so that any superset of the rows will do. Whether a search
//! for the keys pays is estimated twice. Here the plan may be small and the keys many. Then the indexes know how many rows the keys have.

use arrow::datatypes::Schema;
use lakemark_index::{Leaf, Predicate, Reason};
use lakemark_table::{
    ColumnReadCost, FileProbe, FileProbes, IndexOnlyCost, LeafReport, ProbeOptions, ReadCost, Snapshot,
};

use crate::covered::FoundBy;
use crate::error::Result;
use crate::filter_result::{FilterResult, SelectedBuffer, row_groups_read};
use crate::handle::Pinned;

/// Nanoseconds to bring a key from Spark into a search, whatever is found.
const KEY: f64 = 150.0;
/// To begin with a row group: its pages are fetched and decompressed.
const ROW_GROUP: f64 = 200_000.0;
/// What a row costs Spark in any case.
const ROW: f64 = 20.0;
/// Answers to more keys are not remembered: the keys would drive many small answers out of the memory for them.
const REMEMBERED_KEYS: usize = 1_024;
/// Of more keys, or of more rows, no index is expected to give the values.
const MOST_COVERED: usize = 8_192;
/// Nanoseconds to find a key with its values in a leaf, and to send the values of a row to a task, about.
const COVERED_KEY: f64 = 2_000.0;
const COVERED_ROW: f64 = 400.0;

/// What is left of a plan.
pub(crate) struct Narrowed {
    pub(crate) result: FilterResult,
    /// What the rows were found by.
    pub(crate) found_by: FoundBy,
}

/// What is left of `planned`, the answer to `filter`, if only rows with the `keys` are selected. `schema` has the columns that are read.
pub(crate) async fn narrowed(
    pinned: &Pinned,
    planned: &FilterResult,
    filter: Predicate,
    keys: Predicate,
    schema: &Schema,
) -> Result<Narrowed> {
    let snapshot = &pinned.snapshot;
    let output = schema.fields().iter().map(|field| ColumnReadCost::of(field.data_type()));
    let output = output.fold(ColumnReadCost::default(), ColumnReadCost::plus);
    let count = keys.leaves().into_iter().map(key_count).sum::<usize>();
    let mut searched = None;
    let files = if !pinned.use_index || is_cheaper_read(snapshot, &planned.files.files, output, count) {
        let mut files = planned.files.clone();
        files.report.leaves.extend(keys.leaves().into_iter().map(left_out));
        files
    } else {
        let index_only = covering_cost(snapshot, &keys, count, schema).await;
        let reading =
            Some(ReadCost { output, filter: ColumnReadCost::default(), limit: None, index_only, parent_cost: 0.0 });
        let options = ProbeOptions { reading, selection_cache: count <= REMEMBERED_KEYS, ..ProbeOptions::default() };
        let later = snapshot.probe(&keys, &options).await?;
        let files = snapshot.with_runtime_filter(&planned.files, &later);
        searched = Some(later.files).filter(|_| count <= MOST_COVERED);
        files
    };
    let both = Predicate::And(vec![filter.clone(), keys]);
    let buffered = SelectedBuffer::of(pinned, &both).await?;
    // More keys are not searched again for their values.
    let predicate = if searched.is_some() { both } else { filter };
    Ok(Narrowed { result: FilterResult { files, buffered }, found_by: FoundBy { predicate, keyed: searched } })
}

/// What it costs if an index gives the rows that have the keys with all values; none if it does not, or if they are many.
async fn covering_cost(snapshot: &Snapshot, keys: &Predicate, count: usize, schema: &Schema) -> Option<IndexOnlyCost> {
    let Predicate::Leaf(leaf) = keys else { return None };
    let columns: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    if count > MOST_COVERED || !snapshot.is_covered(keys, &columns) {
        return None;
    }
    let rows = snapshot.rows()? as f64;
    let values = snapshot.distinct_values(&leaf.column).await.ok()?? as f64;
    let found = count as f64 * rows / values.max(1.0);
    let nanoseconds = count as f64 * COVERED_KEY + found * COVERED_ROW;
    (found <= MOST_COVERED as f64).then(|| IndexOnlyCost { nanoseconds, ..IndexOnlyCost::default() })
}

fn key_count(leaf: &Leaf) -> usize {
    leaf.test.ranges().map_or(1, |ranges| ranges.ranges().len())
}

/// Whether the planned rows are read in less time than a probe for so many keys takes.
fn is_cheaper_read(snapshot: &Snapshot, planned: &FileProbes, output: ColumnReadCost, keys: usize) -> bool {
    let mut cost = 0.0;
    for (place, found) in planned.listed() {
        let row_groups = snapshot.files().get(place).and_then(|file| file.row_groups.as_ref());
        let (rows, row_groups) = match (found, row_groups) {
            (FileProbe::Known { row_groups, exact, recheck }, _) => {
                let read = row_groups_read(row_groups, exact, recheck);
                (f64::from(exact.len()) + f64::from(recheck.len()), read)
            }
            (_, Some(row_groups)) => (row_groups.iter().map(|rows| f64::from(*rows)).sum(), row_groups.len()),
            // Nothing says how many rows the file has.
            (_, None) => return false,
        };
        cost += rows * (output.decode + ROW) + row_groups as f64 * ROW_GROUP;
    }
    cost < keys as f64 * KEY
}

fn left_out(leaf: &Leaf) -> LeafReport {
    let (text, column) = (leaf.text.clone(), Some(leaf.column.clone()));
    let reason = Some(Reason::ScanIsCheaper);
    LeafReport { text, column, index: None, encoding: None, choice: None, reason, rows: None }
}

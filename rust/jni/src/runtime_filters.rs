//! Filters that Spark learns while a query runs: the keys of a join's other side.
//!
//! The scan was planned before, of the same snapshot, and Spark goes on joining, so that any superset of the rows will do. Whether a search
//! for the keys pays is estimated twice. Here the plan may be small and the keys many. Then the indexes know how many rows the keys have.

use arrow::datatypes::Schema;
use lakemark_index::{Leaf, Predicate, Reason};
use lakemark_table::{ColumnReadCost, FileProbe, FileProbes, LeafReport, ProbeOptions, ReadCost, Snapshot};

use crate::error::Result;
use crate::filter_result::{FilterResult, SelectedBuffer};
use crate::handle::Pinned;

/// Nanoseconds to bring a key from Spark into a search, whatever is found.
const KEY: f64 = 150.0;
/// To begin with a row group: its pages are fetched and decompressed.
const ROW_GROUP: f64 = 200_000.0;
/// What a row costs Spark in any case.
const ROW: f64 = 20.0;
/// Answers to more keys are not remembered: the keys would drive many small answers out of the memory for them.
const REMEMBERED_KEYS: usize = 1_024;

/// What is left of `planned`, the answer to `filter`, if only rows with the `keys` are selected. `schema` has the columns that are read.
pub(crate) async fn narrowed(
    pinned: &Pinned,
    planned: &FilterResult,
    filter: Predicate,
    keys: Predicate,
    schema: &Schema,
) -> Result<FilterResult> {
    let snapshot = &pinned.snapshot;
    let output = schema.fields().iter().map(|field| ColumnReadCost::of(field.data_type()));
    let output = output.fold(ColumnReadCost::default(), ColumnReadCost::plus);
    let count = keys.leaves().into_iter().map(key_count).sum::<usize>();
    let files = if !pinned.use_index || is_cheaper_read(snapshot, &planned.files.files, output, count) {
        let mut files = planned.files.clone();
        files.report.leaves.extend(keys.leaves().into_iter().map(left_out));
        files
    } else {
        let reading = Some(ReadCost {
            output,
            filter: ColumnReadCost::default(),
            limit: None,
            index_only: None,
            parent_cost: 0.0,
        });
        let options = ProbeOptions { reading, selection_cache: count <= REMEMBERED_KEYS, ..ProbeOptions::default() };
        snapshot.with_runtime_filter(&planned.files, &snapshot.probe(&keys, &options).await?)
    };
    let buffered = SelectedBuffer::of(pinned, &Predicate::And(vec![filter, keys])).await?;
    Ok(FilterResult { files, buffered })
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
                let mut start = 0;
                let is_read = |length: &&u32| {
                    let from = start;
                    start += **length;
                    exact.count_in(from, start) + recheck.count_in(from, start) > 0
                };
                let read = row_groups.iter().filter(is_read).count();
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

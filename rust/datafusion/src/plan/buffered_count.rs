//! Counts of rows that nobody reads in the data files. Indexes know how many there are, or have the values that tell which rows count. Only
//! buffered rows are read, and nothing is planned around them.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::physical_plan::collect;
use lakemark_index::{Predicate, Truth};
use lakemark_table::{FileProbe, MOST_COVERED_ROWS, Probe, Snapshot};

use crate::exec::scan::LakemarkScanExec;
use crate::expr::types::TextTypes;
use crate::plan::scan::{ScanRequest, plan_scan};

/// A count of rows of a table.
pub(crate) struct CountRequest<'a> {
    /// The table's location, for EXPLAIN.
    pub(crate) location: &'a str,
    /// The state that is counted.
    pub(crate) snapshot: &'a Snapshot,
    /// The condition that the indexes are probed with.
    pub(crate) predicate: &'a Predicate,
    /// The same condition as the engine plans it; none if it has no plain form, or if all rows are counted.
    pub(crate) filter: Option<Expr>,
}

/// The number of rows of a request, if the probe with its predicate knows the rows of every data file exactly, or if an index has the values
/// of the others. `task` makes what the scan of the buffered rows runs in, if there is one.
pub(crate) async fn count_with_buffered(
    state: &dyn Session,
    task: impl FnOnce() -> Arc<TaskContext>,
    request: CountRequest<'_>,
    probe: Probe,
) -> Result<Option<u64>> {
    let buffered = probe.buffered_row_count();
    match (probe.exact_rows_of_files(), request.predicate) {
        (Some(in_files), _) if buffered == 0 => return Ok(Some(in_files)),
        (Some(in_files), Predicate::Const(Truth::True)) => return Ok(Some(in_files + buffered)),
        (Some(in_files), Predicate::Const(_)) => return Ok(Some(in_files)),
        (Some(_), _) => {}
        (None, _) if !request.may_have_values(&probe) => return Ok(None),
        (None, _) => {}
    }
    let CountRequest { location, snapshot, predicate, filter } = request;
    let Some(filter) = filter.map(unnormalize_col) else { return Ok(None) };
    // This scan counts the rows of files that the probe knows, and those that pass by their values.
    let (projection, filters) = (Vec::new(), [filter]);
    let request = ScanRequest {
        location,
        snapshot,
        types: TextTypes::Declared,
        is_joined: false,
        projection: Some(&projection),
        filters: &filters,
        limit: None,
        predicate: Some(predicate),
        scan_probe: None,
        prober: None,
    };
    let scan = plan_scan(state, &request, probe).await?;
    // A plan of the whole statement reads them in all partitions.
    if scan.downcast_ref::<LakemarkScanExec>().is_none_or(LakemarkScanExec::reads_data_files) {
        return Ok(None);
    }
    let batches = collect(scan, task()).await?;
    Ok(Some(batches.iter().map(|batch| batch.num_rows() as u64).sum()))
}

impl CountRequest<'_> {
    /// Whether an index may have the values of all rows that the probe leaves open.
    fn may_have_values(&self, probe: &Probe) -> bool {
        let open = probe.files.listed().map(|(_, file)| match file {
            FileProbe::Unknown => None,
            FileProbe::Known { recheck, .. } => Some(u64::from(recheck.len())),
            FileProbe::Counted { .. } => Some(0),
        });
        let are_few = open.sum::<Option<u64>>().is_some_and(|open| open <= MOST_COVERED_ROWS);
        are_few && self.filter.as_ref().is_some_and(|filter| is_covered(self.snapshot, self.predicate, filter))
    }
}

/// Whether an index has all columns of a condition, and a part of the condition on its key.
pub(crate) fn is_covered(snapshot: &Snapshot, predicate: &Predicate, condition: &Expr) -> bool {
    let columns: Vec<String> = condition.column_refs().into_iter().map(|column| column.name.clone()).collect();
    snapshot.is_covered(predicate, &columns)
}

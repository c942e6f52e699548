//! Counts of which the indexes know the part of the data files: only buffered rows are read, and nothing is planned around them.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::unnormalize_col;
use datafusion::physical_plan::collect;
use lakemark_index::{Predicate, Truth};
use lakemark_table::{Probe, Snapshot};

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

/// The number of rows of a request, if the probe with its predicate knows the rows of every data file exactly. `task` makes what the scan
/// of the buffered rows runs in, if there is one.
pub(crate) async fn count_with_buffered(
    state: &dyn Session,
    task: impl FnOnce() -> Arc<TaskContext>,
    request: CountRequest<'_>,
    probe: Probe,
) -> Result<Option<u64>> {
    let Some(in_files) = probe.exact_rows_of_files() else { return Ok(None) };
    let buffered = probe.buffered_row_count();
    if buffered == 0 {
        return Ok(Some(in_files));
    }
    let CountRequest { location, snapshot, predicate, filter } = request;
    let filter = match (predicate, filter) {
        (Predicate::Const(Truth::True), _) => return Ok(Some(in_files + buffered)),
        (Predicate::Const(_), _) => return Ok(Some(in_files)),
        (_, Some(filter)) => unnormalize_col(filter),
        (_, None) => return Ok(None),
    };
    // Rows of files are only counted by this scan, since the probe knows them all.
    let (projection, filters) = (Vec::new(), [filter]);
    let request = ScanRequest {
        location,
        snapshot,
        types: TextTypes::Declared,
        is_joined: false,
        projection: Some(&projection),
        filters: &filters,
        limit: None,
        predicate: None,
        scan_probe: None,
        prober: None,
    };
    let batches = collect(plan_scan(state, &request, probe).await?, task()).await?;
    Ok(Some(batches.iter().map(|batch| batch.num_rows() as u64).sum()))
}

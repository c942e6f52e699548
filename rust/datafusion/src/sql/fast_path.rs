//! Statements that the index answers faster than the engine plans them. The part of a plan that counts or finds rows becomes a table that
//! probes the index when its rows are requested, so that the optimizer has next to nothing to look at.
//!
//! EXPLAIN, a session without indexes, and every statement that is not clearly one of these keep the ordinary plan.

mod count;
mod lookup;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, TableScan};

use crate::plan::provider::{LakemarkTable, probe_options};

/// A plan of the same rows, which is cheaper if the plan counts or looks up rows of one of our tables.
pub(crate) fn with_fast_path(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    if let Some(counted) = count::with_fast_path(&plan)? {
        return Ok(counted);
    }
    if !probe_options(state).use_index {
        return Ok(plan);
    }
    Ok(lookup::with_fast_path(&plan)?.unwrap_or(plan))
}

/// The scan of a table, which may have another name there.
fn scan_of(plan: &LogicalPlan) -> Option<&TableScan> {
    match plan {
        LogicalPlan::TableScan(scan) => Some(scan),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::TableScan(scan) => Some(scan),
            _ => None,
        },
        _ => None,
    }
}

/// Our table under a scan that does not stop early.
fn scanned(scan: &TableScan) -> Option<Arc<dyn TableProvider>> {
    let table = source_as_provider(&scan.source).ok().filter(|_| scan.fetch.is_none())?;
    table.downcast_ref::<LakemarkTable>().is_some().then_some(table)
}

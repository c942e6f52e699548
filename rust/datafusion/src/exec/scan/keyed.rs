//! The scan of the rows that have one of some keys, for a join that knows these before it asks for rows.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use super::{LakemarkScanExec, ScanParts};
use crate::exec::covered_rows::CoveredRows;
use crate::exec::dynamic_filters::keyed_rows::{KeyedRows, WantedKeys};

/// A scan of the rows that have one of some keys.
pub(crate) struct KeyedScan {
    /// It has the partitions of the whole scan.
    pub(crate) scan: Arc<dyn ExecutionPlan>,
    /// Different keys.
    pub(crate) keys: u64,
    /// Reads of the index.
    pub(crate) index_reads: u64,
    /// Rows that the index gave with their values.
    pub(crate) rows_index_only: u64,
}

impl LakemarkScanExec {
    /// Whether an index may know the rows that have some value of an expression over the output. Not if only the first rows are wanted:
    /// others would come in their place.
    pub(crate) fn may_be_keyed_by(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        let gives_all = self.parts.fetch.is_none() && self.first_rows.is_none() && self.parts.counted == 0;
        let prober = self.parts.prober.as_ref().filter(|_| gives_all);
        prober.is_some_and(|prober| prober.has_index_on(expr, &self.parts.table_schema))
    }

    /// The same scan of the rows that have one of the keys, and of rows of which no index knows whether they have. None if no index knows
    /// anything, or if it takes longer to search for the keys than to read all rows.
    pub(crate) async fn keyed(&self, wanted: &[WantedKeys], context: &TaskContext) -> Result<Option<KeyedScan>> {
        let Some(prober) = &self.parts.prober else { return Ok(None) };
        let found = prober.keyed_rows(wanted, &self.columns(context)).await?;
        let Some(KeyedRows { mut pruned, keys }) = found else { return Ok(None) };
        let mut inner = self.planned();
        self.cut(&mut inner, &mut pruned)?;
        let rows_index_only = pruned.covered.as_ref().map_or(0, CoveredRows::count);
        let parts = ScanParts {
            exact: inner.exact,
            recheck: inner.recheck,
            covered: pruned.covered.or_else(|| self.parts.covered.clone()),
            prober: None,
            scan_probe: None,
            ..self.parts.clone()
        };
        // Joins above would leave out few of the rows that are left.
        self.keys.values().for_each(|keys| keys.remove_reader());
        let scan = Self { parts, filters: Vec::new(), keys: HashMap::new(), pruned: Arc::default(), ..self.clone() };
        let index_reads = pruned.report.index_reads;
        Ok(Some(KeyedScan { scan: Arc::new(scan), keys, index_reads, rows_index_only }))
    }
}

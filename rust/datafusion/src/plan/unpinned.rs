//! Plans that are kept: over tables without a state, which is pinned anew for each run.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use lakemark_table::{Result, Table};

use crate::error::from_engine;
use crate::plan::provider::LakemarkTable;
use crate::plan::statement_snapshots::pinned_for_statement;

/// A table of ours in a plan that is kept.
#[derive(Debug)]
struct UnpinnedTable {
    table: Arc<Table>,
    /// Its columns when the query was planned.
    columns: SchemaRef,
}

#[async_trait]
impl TableProvider for UnpinnedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        internal_err!("a plan that is kept is run over states of its tables")
    }
}

/// A plan over tables of ours, without their states.
pub(crate) fn unpinned(plan: LogicalPlan) -> EngineResult<LogicalPlan> {
    with_tables(plan, |table| {
        let pinned = table.downcast_ref::<LakemarkTable>()?;
        Some(Arc::new(UnpinnedTable { table: Arc::clone(pinned.table()), columns: pinned.snapshot().schema() }))
    })
}

/// A plan that was kept, over the newest states of its tables; none if the columns of one are others by now.
pub(crate) async fn over_newest(kept: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut newest: Vec<Arc<dyn TableProvider>> = Vec::new();
    for provider in unpinned_tables(kept).map_err(from_engine)? {
        let Some(UnpinnedTable { table, columns }) = provider.downcast_ref::<UnpinnedTable>() else { continue };
        let snapshot = pinned_for_statement(table).await?;
        if snapshot.schema() != *columns {
            return Ok(None);
        }
        newest.push(Arc::new(LakemarkTable::pinned_to(Arc::clone(table), snapshot)));
    }
    let pinned = with_tables(kept.clone(), |table| {
        let UnpinnedTable { table, .. } = table.downcast_ref::<UnpinnedTable>()?;
        of_table(&newest, table).cloned()
    });
    pinned.map(Some).map_err(from_engine)
}

/// The providers of a plan's tables, one of each table.
fn unpinned_tables(kept: &LogicalPlan) -> EngineResult<Vec<Arc<dyn TableProvider>>> {
    let mut found: Vec<Arc<dyn TableProvider>> = Vec::new();
    kept.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Ok(provider) = source_as_provider(&scan.source)
            && let Some(unpinned) = provider.downcast_ref::<UnpinnedTable>()
        {
            let is_same = |known: &UnpinnedTable| Arc::ptr_eq(&known.table, &unpinned.table);
            if !found.iter().any(|known| known.downcast_ref::<UnpinnedTable>().is_some_and(is_same)) {
                found.push(Arc::clone(&provider));
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The provider of a table of ours among these.
pub(crate) fn of_table<'a>(
    providers: &'a [Arc<dyn TableProvider>],
    table: &Arc<Table>,
) -> Option<&'a Arc<dyn TableProvider>> {
    let is_same = |provider: &LakemarkTable| Arc::ptr_eq(provider.table(), table);
    providers.iter().find(|provider| provider.downcast_ref::<LakemarkTable>().is_some_and(is_same))
}

/// A plan with other providers of its tables, where there is another one.
pub(crate) fn with_tables(
    plan: LogicalPlan,
    other: impl Fn(&Arc<dyn TableProvider>) -> Option<Arc<dyn TableProvider>>,
) -> EngineResult<LogicalPlan> {
    let replaced = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source).ok().and_then(|provider| other(&provider));
        let Some(provider) = provider else { return Ok(Transformed::no(LogicalPlan::TableScan(scan))) };
        scan.source = provider_as_source(provider);
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    });
    Ok(replaced?.data)
}

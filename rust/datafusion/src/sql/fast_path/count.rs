//! `SELECT count(*) FROM t WHERE …` where the index knows the number: neither planned nor run.
//!
//! Planning a count takes longer than most counts take. So the plan of such a statement is replaced by a table of one row, which probes the
//! index when its row is requested. It plans the statement as it was only if some row of a data file has to be looked at. A row whose values
//! an index has need not:
//!
//! ```text
//! Projection count(*) ─ Aggregate count(*) ─ Filter ─ TableScan t      becomes      TableScan: the number
//! ```
//!
//! EXPLAIN shows what stands on the left.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchemaRef;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableProviderFilterPushDown, UNNAMED_TABLE,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use lakemark_index::{Predicate, Truth};
use lakemark_table::{ProbeOptions, Snapshot};

use super::{scan_of, scanned};
use crate::error::to_engine;
use crate::expr::simplify::simplified;
use crate::expr::translate::translate;
use crate::plan::buffered_count::{CountRequest, count_with_buffered, is_covered};
use crate::plan::provider::{LakemarkTable, probe_options, pushdown};
use crate::read::read_cost::reading;

/// The plan as a table of its one row, if it counts the rows of one of our tables.
pub(super) fn with_fast_path(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let scan =
        |counting| LogicalPlanBuilder::scan(UNNAMED_TABLE, provider_as_source(Arc::new(counting)), None)?.build();
    CountTable::of(plan).map(scan).transpose()
}

/// The one row of a count.
#[derive(Debug)]
struct CountTable {
    schema: SchemaRef,
    /// What is counted, as the engine would do it.
    plan: LogicalPlan,
    table: Arc<dyn TableProvider>,
    filter: Option<CountFilter>,
}

/// Which rows are counted.
#[derive(Debug)]
struct CountFilter {
    /// The condition as the statement has it.
    condition: Expr,
    /// The columns that the condition is about.
    schema: DFSchemaRef,
}

impl CountTable {
    /// The count that a plan is, if it is nothing but one.
    fn of(plan: &LogicalPlan) -> Option<Self> {
        let LogicalPlan::Projection(Projection { expr: shown, input, .. }) = plan else { return None };
        let LogicalPlan::Aggregate(Aggregate { input, group_expr, aggr_expr, .. }) = input.as_ref() else {
            return None;
        };
        let ([shown], [], [counted]) = (shown.as_slice(), group_expr.as_slice(), aggr_expr.as_slice()) else {
            return None;
        };
        if !matches!(unaliased(shown), Expr::Column(_)) || !counts_rows(unaliased(counted)) {
            return None;
        }
        let (filter, input) = match input.as_ref() {
            LogicalPlan::Filter(filter) => {
                let (condition, schema) = (filter.predicate.clone(), Arc::clone(filter.input.schema()));
                (Some(CountFilter { condition, schema }), &filter.input)
            }
            _ => (None, input),
        };
        let is_exact = |filter: &CountFilter| pushdown(&filter.condition) == TableProviderFilterPushDown::Exact;
        if !filter.as_ref().is_none_or(is_exact) {
            return None;
        }
        let scan = scan_of(input).filter(|scan| scan.filters.is_empty())?;
        let schema = Arc::new(plan.schema().as_arrow().clone());
        Some(Self { schema, plan: plan.clone(), table: scanned(scan)?, filter })
    }

    /// The number, if the index knows it exactly for all rows of the data files.
    async fn known(&self, state: &dyn Session) -> Result<Option<u64>> {
        let (Some(table), Some(session)) =
            (self.table.downcast_ref::<LakemarkTable>(), state.as_any().downcast_ref::<SessionState>())
        else {
            return Ok(None);
        };
        let snapshot = table.current().await.map_err(to_engine)?;
        let (predicate, filter) = match &self.filter {
            None => (Predicate::Const(Truth::True), None),
            Some(CountFilter { condition, schema }) => {
                let now = state.execution_props().query_execution_start_time;
                match simplified(session, condition.clone(), Arc::clone(schema), now) {
                    Ok(plain) => (translate(std::slice::from_ref(&plain), &snapshot.schema()), Some(plain)),
                    // The engine says what is wrong with the condition when it plans the statement.
                    Err(_) => return Ok(None),
                }
            }
        };
        let known = probe_options(state);
        let options = if is_index_only(&snapshot, &predicate) {
            ProbeOptions { count_only: true, ..known }
        } else if let Some(filter) = filter.as_ref().filter(|filter| is_covered(&snapshot, &predicate, filter)) {
            // Rows that are left open are tested by their values, if they are few. So the search is weighed as that of a scan.
            let reading = reading(&snapshot.schema(), Some(&Vec::new()), std::slice::from_ref(filter), None);
            ProbeOptions { reading: Some(reading), ..known }
        } else {
            return Ok(None);
        };
        if !options.use_index {
            return Ok(None);
        }
        let probe = snapshot.probe(&predicate, &options).await.map_err(to_engine)?;
        let location = table.table().location();
        let request = CountRequest { location, snapshot: &snapshot, predicate: &predicate, filter };
        count_with_buffered(state, || state.task_ctx(), request, probe).await
    }
}

#[async_trait]
impl TableProvider for CountTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(rows) = self.known(state).await?.and_then(|rows| i64::try_from(rows).ok()) {
            let row = RecordBatch::try_new(Arc::clone(&self.schema), vec![Arc::new(Int64Array::from(vec![rows]))])?;
            return Ok(MemorySourceConfig::try_new_exec(&[vec![row]], self.schema(), projection.cloned())?);
        }
        let planned = state.create_physical_plan(&self.plan).await?;
        match projection {
            Some(chosen) if chosen.as_slice() != [0] => {
                let field = |place: &usize| {
                    let name = self.schema.field(*place).name();
                    (Arc::new(Column::new(name, *place)) as _, name.clone())
                };
                Ok(Arc::new(ProjectionExec::try_new(chosen.iter().map(field).collect::<Vec<_>>(), planned)?))
            }
            _ => Ok(planned),
        }
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Whether an aggregate is `count(*)`.
fn counts_rows(aggregate: &Expr) -> bool {
    let Expr::AggregateFunction(aggregate) = aggregate else { return false };
    let given = &aggregate.params;
    let plain = !given.distinct && given.filter.is_none() && given.order_by.is_empty();
    let all = matches!(given.args.as_slice(), [Expr::Literal(value, _)] if !value.is_null());
    plain && all && aggregate.func == count_udaf()
}

/// Whether there is an index for every condition.
fn is_index_only(snapshot: &Snapshot, predicate: &Predicate) -> bool {
    predicate.unknowns().is_empty()
        && snapshot.with_composites(predicate).leaves().iter().all(|leaf| snapshot.supports_index_only(&leaf.column))
}

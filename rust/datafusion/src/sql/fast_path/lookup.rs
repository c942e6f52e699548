//! `SELECT … FROM t WHERE key = 7` without a pass of the optimizer over the condition and the columns.
//!
//! The filter and the scan below it become one table, which makes the condition plain and goes from snapshot to probe to scan
//! when the physical plan is made:
//!
//! ```text
//! Limit ─ Projection id, name ─ Filter key = 7 ─ TableScan t      becomes      Limit ─ TableScan t [id, name]: the rows of key = 7
//! Projection id + 1 ─ Filter key = 7 ─ TableScan t                becomes      Projection id + 1 ─ TableScan t: the rows of key = 7
//! ```
//!
//! What is read, and what is said of it in metrics, is what the ordinary plan would read and say.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, DFSchema, DFSchemaRef, TableReference};
use datafusion::datasource::{TableType, provider_as_source};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, Sort, SubqueryAlias,
    TableProviderFilterPushDown, TableScan, TableScanBuilder,
};
use datafusion::physical_plan::ExecutionPlan;
use lakemark_table::Snapshot;

use super::{scan_of, scanned};
use crate::expr::simplify::simplified;
use crate::plan::provider::{LakemarkTable, pushdown};

/// The plan with its lookup as a table, if it is nothing but a lookup whose rows may be computed with, sorted or cut.
pub(super) fn with_fast_path(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Limit(limit) => with_fast_path(&limit.input)?
            .map(|input| LogicalPlan::Limit(Limit { input: Arc::new(input), ..limit.clone() })),
        LogicalPlan::Sort(sort) => {
            with_fast_path(&sort.input)?.map(|input| LogicalPlan::Sort(Sort { input: Arc::new(input), ..sort.clone() }))
        }
        LogicalPlan::SubqueryAlias(named) => match with_fast_path(&named.input)? {
            Some(input) => {
                Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(Arc::new(input), named.alias.clone())?))
            }
            None => None,
        },
        LogicalPlan::Projection(projection) => match projection.input.as_ref() {
            LogicalPlan::Filter(filter) => looked_up(projection, filter)?,
            other => match with_fast_path(other)? {
                Some(input) => Some(above(projection, input)?),
                None => None,
            },
        },
        // The engine optimizes a statement that is prepared: no projection of all columns is left of it, and what needs no parameter
        // is a filter of the scan.
        LogicalPlan::Filter(filter) => match Lookup::of(filter) {
            Some(lookup) => lookup.rows(None, filter.input.schema())?,
            None => None,
        },
        _ => None,
    })
}

/// The same projection of other rows of the same columns.
fn above(projection: &Projection, input: LogicalPlan) -> Result<LogicalPlan> {
    let (shown, schema) = (projection.expr.clone(), Arc::clone(&projection.schema));
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(shown, Arc::new(input), schema)?))
}

/// A projection of a lookup: columns are left to its scan, whatever else is shown is computed above.
fn looked_up(projection: &Projection, filter: &Filter) -> Result<Option<LogicalPlan>> {
    let is_plain = |expr: &Expr| pushdown(expr) == TableProviderFilterPushDown::Exact;
    if !projection.expr.iter().all(is_plain) {
        return Ok(None);
    }
    let Some(lookup) = Lookup::of(filter) else { return Ok(None) };
    let schema = filter.input.schema();
    let place = |expr: &Expr| match expr {
        Expr::Column(column) => schema.maybe_index_of_column(column),
        _ => None,
    };
    match projection.expr.iter().map(place).collect::<Option<Vec<usize>>>() {
        Some(columns) => lookup.rows(Some(&columns), &projection.schema),
        None => lookup.rows(None, schema)?.map(|input| above(projection, input)).transpose(),
    }
}

/// A lookup in a plan.
struct Lookup<'a> {
    scan: &'a TableScan,
    /// What the table is called.
    name: &'a TableReference,
    table: LookupTable,
}

impl<'a> Lookup<'a> {
    /// The lookup that a filter is, if it is one.
    fn of(filter: &'a Filter) -> Option<Self> {
        let scan = scan_of(&filter.input)?;
        let name = match filter.input.as_ref() {
            LogicalPlan::SubqueryAlias(alias) => &alias.alias,
            _ => &scan.table_name,
        };
        let table = scanned(scan)?;
        let snapshot = table.downcast_ref::<LakemarkTable>()?.snapshot();
        let predicate = &filter.predicate;
        let mut parts = split_conjunction(predicate).into_iter().chain(&scan.filters);
        let is_lookup =
            pushdown(predicate) == TableProviderFilterPushDown::Exact && parts.any(|part| finds_keys(part, snapshot));
        is_lookup.then(|| Self { scan, name, table: LookupTable { table, filter: filter.clone() } })
    }

    /// A scan of its rows that has just the columns of `schema`: these of the scan, or all of them.
    fn rows(self, columns: Option<&[usize]>, schema: &DFSchemaRef) -> Result<Option<LogicalPlan>> {
        let read = match (&self.scan.projection, columns) {
            (Some(read), Some(columns)) => columns.iter().map(|column| read.get(*column).copied()).collect(),
            (read, columns) => columns.map(<[usize]>::to_vec).or_else(|| read.clone()),
        };
        let source = provider_as_source(Arc::new(self.table));
        let rows = TableScanBuilder::new(self.name.clone(), source).with_projection(read).build()?;
        Ok((rows.projected_schema == *schema).then_some(LogicalPlan::TableScan(rows)))
    }
}

/// The rows of one of our tables that have one of a few keys.
#[derive(Debug)]
struct LookupTable {
    table: Arc<dyn TableProvider>,
    /// The condition over the rows of the table, as the engine would plan it.
    filter: Filter,
}

impl LookupTable {
    /// The condition in its plain form, part by part. None where the engine would not scan the table, or finds something wrong with the
    /// condition.
    fn filters(&self, state: &dyn Session) -> Option<Vec<Expr>> {
        let session = state.as_any().downcast_ref::<SessionState>()?;
        // A prepared statement has conditions at its scan, which nothing made plain either.
        let known = scan_of(&self.filter.input)?.filters.iter().cloned();
        let condition = conjunction(unnormalize_cols(std::iter::once(self.filter.predicate.clone()).chain(known)))?;
        let schema = DFSchema::try_from(self.schema()).ok()?;
        let now = state.execution_props().query_execution_start_time;
        let plain = simplified(session, condition, Arc::new(schema), now).ok()?;
        (!matches!(plain, Expr::Literal(..))).then(|| split_conjunction_owned(plain))
    }
}

#[async_trait]
impl TableProvider for LookupTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(filters) = self.filters(state) {
            return self.table.scan(state, projection, &filters, limit).await;
        }
        let mut rows = LogicalPlanBuilder::new(LogicalPlan::Filter(self.filter.clone()));
        if let Some(columns) = projection {
            let (all, has) = (self.schema(), self.filter.input.schema());
            let column =
                |place: &usize| Ok(has.qualified_field_with_unqualified_name(all.field(*place).name())?.into());
            let columns = columns.iter().map(column).collect::<Result<Vec<Column>>>()?;
            rows = rows.project(columns.into_iter().map(Expr::Column))?;
        }
        state.create_physical_plan(&rows.build()?).await
    }
}

/// Whether a condition selects rows by keys of a column with an index that is made for keys.
fn finds_keys(part: &Expr, snapshot: &Snapshot) -> bool {
    let is_key = |expr: &Expr| matches!(expr, Expr::Column(column) if snapshot.has_key_index(&column.name));
    let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(..)) || !expr.any_column_refs();
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            is_key(left) && is_constant(right) || is_constant(left) && is_key(right)
        }
        Expr::InList(InList { expr, list, negated: false }) => is_key(expr) && list.iter().all(is_constant),
        _ => false,
    }
}

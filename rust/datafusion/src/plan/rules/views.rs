//! Texts and bytes are read as views, as the engine reads them of its own Parquet tables.
//!
//! ```text
//! Projection: m                                 Projection: CAST(m AS Utf8) AS m
//!   Aggregate: max(t.text) AS m        ─▶         Projection: m
//!     TableScan: t                                  Aggregate: max(t.text) AS m
//!                                                     TableScan: t (views)
//! ```
//!
//! A view has a length and a place where a text has an offset of 32 bits: rows are gathered without their bytes, and no join comes to the
//! end of 2 GiB. Views stay inside: what a statement gives has the types that its columns were declared with.
//!
//! The rule comes when types were coerced, so that it knows which types a statement gives. It changes the scans and coerces once more.
//! Subqueries know the types of the columns around them by heart, and get the new ones.
//!
//! A statement that only hands rows on, sorted or not, is left as it is: its texts would be views for nothing. Not so where a sort keeps
//! the first rows alone: only these are cast then. Casts are below a sort, since rows that are cast above one may lose their order;
//! [`LastCasts`](super::last_casts) takes them above one that keeps few rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::config::ConfigOptions;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, FetchType, LogicalPlan, Projection, SkipType, Subquery, TableScan, TableScanBuilder,
};
use datafusion::optimizer::analyzer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use super::last_casts::MOST_ROWS as MOST_LAST_ROWS;
use crate::config::LakemarkOptions;
use crate::expr::types::TextTypes;
use crate::plan::provider::LakemarkTable;

/// How deep subqueries may hand types on to each other.
const MOST_ROUNDS: usize = 4;

/// The analyzer rule.
#[derive(Debug)]
pub(super) struct Views;

impl AnalyzerRule for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        match plan {
            // What is written, and what is explained.
            LogicalPlan::Dml(_) | LogicalPlan::Copy(_) | LogicalPlan::Analyze(_) => {
                plan.map_children(|input| of_query(input, config, false).map(Transformed::yes)).data()
            }
            LogicalPlan::Ddl(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::DescribeTable(_) => Ok(plan),
            query => of_query(query, config, false),
        }
    }
}

/// The query over views, whose rows have the types that they had. `is_cut` says that a sort above keeps a few of them.
fn of_query(query: LogicalPlan, config: &ConfigOptions, is_cut: bool) -> Result<LogicalPlan> {
    if !LakemarkOptions::of(config).use_views {
        let declared = |node| of_scan(node, TextTypes::Declared, true);
        return if joins(&query)? { query.transform_up_with_subqueries(declared).data() } else { Ok(query) };
    }
    if is_sorted(&query) {
        let is_cut = cuts(&query, is_cut)?;
        return query.map_children(|input| of_query(input, config, is_cut).map(Transformed::yes)).data();
    }
    if !gathers(&query, is_cut)? {
        return Ok(query);
    }
    let declared = Arc::clone(query.schema());
    let is_joined = joins(&query)?;
    let views = query.clone().transform_up_with_subqueries(|node| of_scan(node, TextTypes::Views, is_joined))?;
    match views.transformed.then(|| coerced(views.data, config)).transpose()?.flatten() {
        Some(views) => as_declared(views, &declared),
        None => Ok(query),
    }
}

/// Whether a plan gives its rows in the order of a sort.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Distinct(Distinct::On(on)) => on.sort_expr.is_some(),
        LogicalPlan::Projection(_) | LogicalPlan::Limit(_) | LogicalPlan::SubqueryAlias(_) => {
            plan.inputs().first().is_some_and(|input| is_sorted(input))
        }
        _ => false,
    }
}

/// Whether a sort keeps few rows of what is below a plan; `is_cut` says that of what is below the plan above. Casts are not taken above a
/// sort by something that the sort computes itself.
fn cuts(plan: &LogicalPlan, is_cut: bool) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(skip), FetchType::Literal(Some(rows))) => skip.saturating_add(rows) <= MOST_LAST_ROWS,
            _ => false,
        },
        LogicalPlan::Distinct(_) => false,
        LogicalPlan::Sort(sort) => is_cut && sort.expr.iter().all(|key| matches!(key.expr, Expr::Column(_))),
        _ => is_cut,
    })
}

/// Whether rows are compared, grouped, put together or `cut` down, of a plan in which all types can be derived anew.
fn gathers(plan: &LogicalPlan, cut: bool) -> Result<bool> {
    let (mut gathers, mut is_known) = (cut, true);
    plan.apply_with_subqueries(|node| {
        match node {
            // Its rounds are of the type of the first.
            LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) | LogicalPlan::Unnest(_) => is_known = false,
            LogicalPlan::Join(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Distinct(_) => gathers = true,
            _ => {}
        }
        // A lateral join reads columns of its other side.
        is_known &= !node.inputs().iter().any(|input| matches!(input, LogicalPlan::Subquery(_)));
        node.apply_expressions(|expr| {
            is_known &= !expr.exists(|part| Ok(depends_on_types(part, node)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if is_known { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(gathers && is_known)
}

/// Whether tables are joined: subqueries are, too.
fn joins(plan: &LogicalPlan) -> Result<bool> {
    let mut joins = false;
    plan.apply_with_subqueries(|node| {
        joins |= matches!(node, LogicalPlan::Join(_) | LogicalPlan::Subquery(_));
        Ok(if joins { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(joins)
}

/// Whether an expression gives the type of a text, turns a text into one of another type, or knows one by heart: around a view it would be
/// another expression. The variable of a lambda, and the key by which a value of a map is looked up, keep the types that they were written
/// with.
fn depends_on_types(expr: &Expr, node: &LogicalPlan) -> bool {
    match expr {
        Expr::LambdaVariable(_) => true,
        Expr::ScalarFunction(call) => {
            let is_of_map = |base: &Expr| {
                let data_type = base.get_type(&merge_schema(&node.inputs()));
                data_type.is_ok_and(|data_type| matches!(data_type, DataType::Map(..)))
            };
            call.name().starts_with("arrow_")
                || (call.name() == "get_field" && call.args.first().is_some_and(is_of_map))
        }
        Expr::Cast(cast) => {
            let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8);
            let Expr::Column(column) = cast.expr.as_ref() else { return false };
            let from = merge_schema(&node.inputs());
            is_text(cast.field.data_type())
                && from.qualified_field_from_column(column).is_ok_and(|(_, field)| is_text(field.data_type()))
        }
        _ => false,
    }
}

fn of_scan(plan: LogicalPlan, types: TextTypes, is_joined: bool) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::TableScan(scan) = plan else { return Ok(Transformed::no(plan)) };
    let table = source_as_provider(&scan.source).ok();
    let Some(table) = table.as_ref().and_then(|table| table.downcast_ref::<LakemarkTable>()) else {
        return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
    };
    let source = provider_as_source(Arc::new(table.within(types, is_joined)));
    let scan = TableScanBuilder::from(TableScan { source, ..scan }).build()?;
    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
}

/// The plan with types that fit together; none if its subqueries do not come to an end.
fn coerced(mut plan: LogicalPlan, config: &ConfigOptions) -> Result<Option<LogicalPlan>> {
    for _ in 0..MOST_ROUNDS {
        plan = TypeCoercion::new().analyze(plan, config)?;
        if !has_columns_around(&plan)? {
            return Ok(Some(plan));
        }
        let typed = with_types_around(plan, &[])?;
        plan = typed.data;
        if !typed.transformed {
            return Ok(Some(plan));
        }
    }
    Ok(None)
}

/// Whether subqueries read columns of the queries around them.
fn has_columns_around(plan: &LogicalPlan) -> Result<bool> {
    let mut reads = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            reads |= expr.contains_outer();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(reads)
}

/// The plan whose subqueries know the types that columns around them have. `around` are those columns, the innermost last.
fn with_types_around(plan: LogicalPlan, around: &[DFSchemaRef]) -> Result<Transformed<LogicalPlan>> {
    let mut changed = false;
    let mut go_on = |plan: LogicalPlan, around: &[DFSchemaRef]| {
        let typed = with_types_around(plan, around)?;
        changed |= typed.transformed;
        Ok(typed)
    };
    let plan = plan.map_children(|input| go_on(input, around)).data()?;
    let mut within = around.to_vec();
    within.push(Arc::new(merge_schema(&plan.inputs())));
    let plan = plan.map_subqueries(|query| go_on(query, &within)).data()?;
    let typed = plan.map_expressions(|expr| expr.transform(|part| of_column_around(part, around)))?;
    changed |= typed.transformed;
    let plan = match typed.data {
        LogicalPlan::Subquery(query) => {
            let columns = query.outer_ref_columns.into_iter();
            let columns = columns.map(|column| column.transform(|part| of_column_around(part, around)).data());
            let outer_ref_columns = columns.collect::<Result<_>>()?;
            LogicalPlan::Subquery(Subquery { outer_ref_columns, ..query })
        }
        other => other,
    };
    Ok(Transformed::new(plan, changed, TreeNodeRecursion::Continue))
}

/// A column of a query around this one, with the type that it has there now.
fn of_column_around(expr: Expr, around: &[DFSchemaRef]) -> Result<Transformed<Expr>> {
    let Expr::OuterReferenceColumn(field, column) = expr else { return Ok(Transformed::no(expr)) };
    let field_in =
        |columns: &DFSchemaRef| columns.qualified_field_from_column(&column).ok().map(|(_, now)| Arc::clone(now));
    match around.iter().rev().find_map(field_in).filter(|now| now.data_type() != field.data_type()) {
        Some(now) => Ok(Transformed::yes(Expr::OuterReferenceColumn(now, column))),
        None => Ok(Transformed::no(Expr::OuterReferenceColumn(field, column))),
    }
}

/// The rows with these types.
fn as_declared(plan: LogicalPlan, declared: &DFSchema) -> Result<LogicalPlan> {
    let now: Vec<_> = plan.schema().fields().iter().map(|field| field.data_type().clone()).collect();
    if now.iter().zip(declared.fields()).all(|(now, field)| now == field.data_type()) {
        return Ok(plan);
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let output = columns.zip(now).zip(declared.iter()).map(|((column, now), (qualifier, field))| {
        if now == *field.data_type() {
            return column;
        }
        let cast = Expr::Cast(Cast::new_from_field(Box::new(column), Arc::clone(field)));
        cast.alias_qualified(qualifier.cloned(), field.name())
    });
    Projection::try_new(output.collect(), Arc::new(plan)).map(LogicalPlan::Projection)
}

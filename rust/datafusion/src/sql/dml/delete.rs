//! `DELETE FROM t AS z WHERE z.id > 7`: DataFusion's planner looks for the columns under the table's own name alone. A query of
//! the same rows knows the alias, and is made the input of the change.

use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, TableScan, WriteOp};
use datafusion::sql::parser::{DFParser, Statement as EngineStatement};
use datafusion::sql::sqlparser::ast::{
    Delete, FromTable, LimitClause, SetExpr, Statement, TableFactor, TableWithJoins,
};
use std::sync::Arc;

/// What stands for the query until it has the statement's own parts.
const TEMPLATE: &str = "SELECT * FROM t";

/// The query of the rows that a statement deletes, if it deletes from a table under another name.
pub(crate) fn aliased(statement: &EngineStatement) -> Result<Option<EngineStatement>> {
    let EngineStatement::Statement(statement) = statement else { return Ok(None) };
    let Statement::Delete(delete) = statement.as_ref() else { return Ok(None) };
    let Some(from) = target(delete) else { return Ok(None) };
    let mut query = DFParser::parse_sql(TEMPLATE)?;
    if let Some(EngineStatement::Statement(query)) = query.front_mut()
        && let Statement::Query(query) = query.as_mut()
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        select.from = vec![from.clone()];
        select.selection.clone_from(&delete.selection);
        query.limit_clause = delete.limit.clone().map(|limit| LimitClause::LimitOffset {
            limit: Some(limit),
            offset: None,
            limit_by: Vec::new(),
        });
    }
    Ok(query.pop_front())
}

/// The aliased table of a statement that has nothing else which the planner would refuse.
fn target(delete: &Delete) -> Option<&TableWithJoins> {
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    let [from] = tables.as_slice() else { return None };
    let TableFactor::Table { alias: Some(_), .. } = &from.relation else { return None };
    let is_plain = delete.tables.is_empty()
        && delete.using.is_none()
        && delete.returning.is_none()
        && delete.output.is_none()
        && delete.order_by.is_empty()
        && delete.optimizer_hints.is_empty()
        && from.joins.is_empty();
    is_plain.then_some(from)
}

/// The change that deletes the rows of the planned query. It is made of the table as the query reads it, so that both see one state.
pub(crate) fn deleting(query: LogicalPlan) -> Result<LogicalPlan> {
    let Some(scan) = scanned(&query) else { return Err(plan_datafusion_err!("DELETE is for tables; name one")) };
    let (name, target) = (scan.table_name.clone(), Arc::clone(&scan.source));
    Ok(LogicalPlan::Dml(DmlStatement::new(name, target, WriteOp::Delete, Arc::new(query))))
}

/// The table right below the statement's own parts. A view would stand there with its own name below the alias.
fn scanned(mut plan: &LogicalPlan) -> Option<&TableScan> {
    loop {
        plan = match plan {
            LogicalPlan::Limit(limit) => &limit.input,
            LogicalPlan::Projection(all) => &all.input,
            LogicalPlan::Filter(condition) => &condition.input,
            LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
                LogicalPlan::TableScan(scan) => return Some(scan),
                _ => return None,
            },
            _ => return None,
        };
    }
}

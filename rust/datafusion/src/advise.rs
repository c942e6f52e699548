//! Advice on marks from a file of SQL: each query is planned over the table, and what reaches its scans is what advice is asked for.

use std::sync::Arc;

use datafusion::datasource::TableProvider;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, TableScan};
use datafusion::prelude::SessionConfig;
use lakemark_index::{Predicate, Reason};
use lakemark_table::advise::{Advice, ConditionUse, QueryProblem, QueryUse};
use lakemark_table::{Result, Snapshot, Table};

use crate::error::from_engine;
use crate::provider::LakemarkTable;
use crate::session::LakemarkSession;
use crate::statement::Statement;
use crate::translate::translate;

/// Aggregates that marks answer without a row being read.
const TOLD: [&str; 3] = ["count", "min", "max"];
/// Those that they answer for exact numbers.
const TOLD_EXACT: [&str; 2] = ["sum", "avg"];

/// Which marks these queries, separated by semicolons, would profit from; without queries, standard predicates over every
/// column. Whatever name a query gives to a table, this one is meant. Queries that cannot be planned are among the problems of
/// the advice.
pub async fn advise(table: &Arc<Table>, queries: Option<&str>) -> Result<Advice> {
    let Some(text) = queries else { return table.advise(None).await };
    let snapshot = table.snapshot().await?;
    let (mut used, mut problems) = (Vec::new(), Vec::new());
    for (line, query) in split(text) {
        match uses_of(table, &snapshot, query).await {
            Ok(found) => used.extend(found.into_iter().map(|found| QueryUse { line, text: one_line(query), ..found })),
            Err(error) => problems.push(QueryProblem { line: line as u64, problem: error.to_string() }),
        }
    }
    let advice = table.advise(Some(used)).await?;
    Ok(Advice { problems, ..advice })
}

async fn uses_of(table: &Arc<Table>, snapshot: &Arc<Snapshot>, query: &str) -> Result<Vec<QueryUse>> {
    // A session of its own: what one query calls a table says nothing about the next.
    let session = LakemarkSession::with_config(SessionConfig::new());
    let mut uses = Vec::new();
    for statement in session.parse(query)? {
        let Statement::Engine(statement) = statement else { continue };
        let state = session.context().state();
        for name in state.resolve_table_references(&statement).map_err(from_engine)? {
            if !session.context().table_exist(name.clone()).map_err(from_engine)? {
                let provider = LakemarkTable::pinned_to(Arc::clone(table), Arc::clone(snapshot));
                session
                    .context()
                    .register_table(name, Arc::new(provider) as Arc<dyn TableProvider>)
                    .map_err(from_engine)?;
            }
        }
        let plan = session.context().state().statement_to_plan(*statement).await.map_err(from_engine)?;
        let plan = session.context().state().optimize(&plan).map_err(from_engine)?;
        collect(&plan, &[], false, snapshot, &mut uses);
    }
    Ok(uses)
}

/// Finds the scans of a plan, with the filters that stand right above them and whether only an aggregate needs their rows.
fn collect(plan: &LogicalPlan, kept: &[&Expr], aggregated: bool, snapshot: &Snapshot, uses: &mut Vec<QueryUse>) {
    match plan {
        LogicalPlan::TableScan(scan) => uses.push(use_of(scan, kept, aggregated, snapshot)),
        LogicalPlan::Filter(filter) => {
            let kept: Vec<&Expr> = kept.iter().copied().chain([&filter.predicate]).collect();
            collect(&filter.input, &kept, aggregated, snapshot, uses);
        }
        LogicalPlan::Projection(projection) => collect(&projection.input, kept, aggregated, snapshot, uses),
        LogicalPlan::SubqueryAlias(alias) => collect(&alias.input, kept, aggregated, snapshot, uses),
        LogicalPlan::Aggregate(aggregate) => collect(&aggregate.input, &[], is_told(aggregate), snapshot, uses),
        other => other.inputs().into_iter().for_each(|input| collect(input, &[], false, snapshot, uses)),
    }
}

fn is_told(aggregate: &Aggregate) -> bool {
    let columns_only = aggregate.group_expr.iter().all(|expr| matches!(expr, Expr::Column(_)));
    let is_exact =
        |expr: &Expr| expr.get_type(aggregate.input.schema()).is_ok_and(|kind| kind.is_integer() || kind.is_decimal());
    let is_told = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(function) => {
            let name = function.func.name();
            let exact = TOLD_EXACT.contains(&name) && function.params.args.iter().all(is_exact);
            (exact || TOLD.contains(&name)) && function.params.filter.is_none()
        }
        _ => false,
    };
    columns_only && aggregate.aggr_expr.iter().all(is_told)
}

fn use_of(scan: &TableScan, kept: &[&Expr], aggregated: bool, snapshot: &Snapshot) -> QueryUse {
    let schema = snapshot.schema();
    let columns = |expr: &Expr| expr.column_refs().into_iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let asked = scan.filters.iter().map(|filter| ConditionUse {
        columns: columns(filter),
        predicate: translate(std::slice::from_ref(filter), &schema),
    });
    let left = conjunction(kept.iter().map(|expr| (*expr).clone())).map(|expr| ConditionUse {
        columns: columns(&expr),
        predicate: Predicate::Unknown {
            reason: Reason::ExpressionNotSupported,
            text: expr.human_display().to_string(),
        },
    });
    QueryUse {
        conditions: asked.chain(left).collect(),
        output: scan.projected_schema.fields().iter().map(|field| field.name().clone()).collect(),
        aggregated,
        weight: 1.0,
        ..QueryUse::default()
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The statements of a text with the lines where they begin. Semicolons in quotes and comments separate nothing.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut statements = Vec::new();
    let mut rest = text.char_indices().peekable();
    let (mut start, mut line, mut first_line) = (0, 1, None);
    let mut take = |from: usize, to: usize, line: Option<usize>| {
        if let (Some(line), Some(part)) = (line, text.get(from..to)) {
            statements.push((line, part.trim()));
        }
    };
    while let Some((at, c)) = rest.next() {
        let next = rest.peek().map(|(_, c)| *c);
        let ends: &dyn Fn(char, Option<char>) -> bool = match (c, next) {
            ('-', Some('-')) => &|c, _| c == '\n',
            ('/', Some('*')) => &|c, next| c == '*' && next == Some('/'),
            ('\'', _) => &|c, _| c == '\'',
            ('"', _) => &|c, _| c == '"',
            (';', _) => {
                take(start, at, first_line.take());
                start = at + 1;
                continue;
            }
            _ => {
                line += usize::from(c == '\n');
                if !c.is_whitespace() {
                    first_line.get_or_insert(line);
                }
                continue;
            }
        };
        if matches!(c, '\'' | '"') {
            first_line.get_or_insert(line);
        } else if c == '/' {
            rest.next();
        }
        while let Some((_, c)) = rest.next() {
            line += usize::from(c == '\n');
            if ends(c, rest.peek().map(|(_, c)| *c)) {
                // The slash of a comment's end.
                if c == '*' {
                    rest.next();
                }
                break;
            }
        }
    }
    take(start, text.len(), first_line);
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_split_with_their_lines() {
        let text = "-- first; of two\nSELECT 1;\n\n/* a; b\n */ SELECT ';', \"a;b\"\n;;  \n-- end; of it\n";
        let found: Vec<(usize, String)> = split(text).into_iter().map(|(line, text)| (line, one_line(text))).collect();
        assert_eq!(
            found,
            [(2, "-- first; of two SELECT 1".to_owned()), (5, "/* a; b */ SELECT ';', \"a;b\"".to_owned()),]
        );
    }
}

//! Advice on indexes from a file of SQL. Each query is planned over the tables, and what reaches a scan is what the advice is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::{TableProvider, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, Join, JoinType, LogicalPlan, TableScan};
use datafusion::prelude::SessionConfig;
use lakemark_index::{Predicate, Reason, Truth};
use lakemark_table::advise::{Advice, ConditionUse, JoinedKeys, QueryProblem, QueryUse};
use lakemark_table::{Result, Snapshot, Table};

use crate::error::from_engine;
use crate::expr::text::text_of;
use crate::expr::translate::translate;
use crate::plan::provider::LakemarkTable;
use crate::sql::session::LakemarkSession;
use crate::sql::statement::Statement;

/// Aggregates that indexes answer without a row being read.
const INDEX_ONLY: [&str; 3] = ["count", "min", "max"];
/// Those that they answer for exact numbers.
const INDEX_ONLY_IF_EXACT: [&str; 2] = ["sum", "avg"];

/// Joins with more rows than these are not looked at for advice.
const MOST_JOINED_ROWS: usize = 10_000_000;

/// Which indexes these queries, separated by semicolons, would profit from; without queries, standard predicates over every
/// column. Whatever name a query gives to a table, this one is meant. Queries that cannot be planned are among the problems of
/// the advice.
pub async fn advise(table: &Arc<Table>, queries: Option<&str>) -> Result<Advice> {
    let Some(text) = queries else { return table.advise(None).await };
    let snapshot = table.snapshot().await?;
    let (mut used, mut problems) = (Vec::new(), Vec::new());
    for query in split(text) {
        match uses_of(table, &snapshot, query.text).await {
            Ok(found) => used.extend(found.into_iter().map(|found| query.with(found))),
            Err(error) => problems.push(query.problem(&error)),
        }
    }
    let advice = table.advise(Some(used)).await?;
    Ok(Advice { problems, ..advice })
}

/// Which indexes the Lakemark tables of a session would profit from, by their names, for these queries over any of them. Columns that
/// tables are joined by count like conditions: the other side of the join is counted to know which part of its keys is left. Queries that
/// cannot be planned are among the problems of each advice.
///
/// # Errors
/// A table cannot be sampled.
pub async fn advise_session(session: &LakemarkSession, queries: &str) -> Result<BTreeMap<String, Advice>> {
    // Queries may give a table several names, and one name to several tables.
    let mut by_table: BTreeMap<TableAddress, QueriedTable> = BTreeMap::new();
    let mut problems = Vec::new();
    for query in split(queries) {
        match uses_in(session, query.text).await {
            Ok(found) => {
                for TableUse { place, name, table, used } in found {
                    let queried =
                        by_table.entry(place).or_insert_with(|| QueriedTable { name, table, used: Vec::new() });
                    queried.used.push(query.with(used));
                }
            }
            Err(error) => problems.push(query.problem(&error)),
        }
    }
    let mut advice = BTreeMap::new();
    for QueriedTable { name, table, used } in by_table.into_values() {
        let found = table.advise(Some(used)).await?;
        let name = if advice.contains_key(&name) { format!("{name} at {}", table.location()) } else { name };
        advice.insert(name, Advice { problems: problems.clone(), ..found });
    }
    Ok(advice)
}

/// What distinguishes a table from others for advice.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct TableAddress {
    /// Its folder.
    folder: String,
    /// Where its indexes are, if not beside the data.
    store: Option<String>,
    /// The version that is read, if it is not the newest.
    version: Option<u64>,
}

/// A table with what all queries use of it.
struct QueriedTable {
    /// The name that the first query gives to the table.
    name: String,
    /// The table itself.
    table: Arc<Table>,
    /// What each query uses of the table.
    used: Vec<QueryUse>,
}

fn place_of(table: &Table, snapshot: &Snapshot) -> TableAddress {
    let root = snapshot.root_url().to_string();
    let store = table.store_location().map(|store| store.trim_end_matches('/').to_owned());
    let last = |text: &str| text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    // Of a file, and of a pattern, the root is a folder that others have, too.
    let within = if last(&root) == last(table.location()) { "" } else { table.location() };
    TableAddress { folder: format!("{root}{within}"), store, version: table.version() }
}

/// What a query uses of a table.
struct TableUse {
    place: TableAddress,
    /// The name that the query gives to the table.
    name: String,
    table: Arc<Table>,
    used: QueryUse,
}

/// A query in a text of several.
struct QueryText<'t> {
    /// The line where it begins.
    line: usize,
    /// The query itself.
    text: &'t str,
}

impl QueryText<'_> {
    /// What the query uses of a table, with the line and the text of the query.
    fn with(&self, used: QueryUse) -> QueryUse {
        QueryUse { line: self.line, text: one_line(self.text), ..used }
    }

    /// Why the query cannot be planned.
    fn problem(&self, error: &lakemark_table::Error) -> QueryProblem {
        QueryProblem { line: self.line as u64, problem: error.to_string() }
    }
}

async fn uses_of(table: &Arc<Table>, snapshot: &Arc<Snapshot>, query: &str) -> Result<Vec<QueryUse>> {
    // A session of its own: what one query calls a table says nothing about the next.
    let session = LakemarkSession::with_config(SessionConfig::new());
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
    }
    Ok(uses_in(&session, query).await?.into_iter().map(|found| found.used).collect())
}

/// What a query uses of each Lakemark table of a session.
async fn uses_in(session: &LakemarkSession, query: &str) -> Result<Vec<TableUse>> {
    let mut uses = Vec::new();
    for statement in session.parse(query)? {
        let Statement::Engine(statement) = statement else { continue };
        let state = session.context().state();
        let plan = state.statement_to_plan(*statement).await.map_err(from_engine)?;
        let plan = state.optimize(&plan).map_err(from_engine)?;
        let mut scans = Vec::new();
        collect(&plan, ScanParents::default(), &mut scans);
        for FoundScan { scan, above } in scans {
            let Some(provider) = source_as_provider(&scan.source).ok() else { continue };
            let Some(provider) = provider.downcast_ref::<LakemarkTable>() else { continue };
            let mut used = use_of(scan, &above, provider.snapshot());
            used.conditions.extend(joined_keys(&state, &above.joined).await);
            let table = Arc::clone(provider.table());
            let place = place_of(&table, provider.snapshot());
            uses.push(TableUse { place, name: scan.table_name.to_string(), table, used });
        }
    }
    Ok(uses)
}

/// What stands above a scan.
#[derive(Clone, Default)]
struct ScanParents<'p> {
    /// Filters right above it.
    filters: Vec<&'p Expr>,
    /// Only an aggregate that indexes can answer needs its rows.
    aggregated: bool,
    /// Columns of it that are joined with those of other plans.
    joined: Vec<JoinedColumn<'p>>,
}

/// A column that is joined with a column of another plan.
#[derive(Clone)]
struct JoinedColumn<'p> {
    /// As the plan calls it.
    column: Column,
    /// The other plan.
    keys: &'p LogicalPlan,
}

/// A scan of a plan.
struct FoundScan<'p> {
    /// The scan itself.
    scan: &'p TableScan,
    /// What stands above it.
    above: ScanParents<'p>,
}

/// Finds the scans of a plan, and what stands above each.
fn collect<'p>(plan: &'p LogicalPlan, above: ScanParents<'p>, scans: &mut Vec<FoundScan<'p>>) {
    match plan {
        LogicalPlan::TableScan(scan) => scans.push(FoundScan { scan, above }),
        LogicalPlan::Filter(filter) => {
            let filters = above.filters.iter().copied().chain([&filter.predicate]).collect();
            collect(&filter.input, ScanParents { filters, ..above }, scans);
        }
        LogicalPlan::Projection(projection) => {
            let below =
                |place: usize| projection.expr.get(place).and_then(|expr| expr.clone().unalias().try_as_col().cloned());
            let joined = within(&above.joined, plan, below);
            collect(&projection.input, ScanParents { joined, ..above }, scans);
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let below = |place: usize| alias.input.schema().columns().get(place).cloned();
            let joined = within(&above.joined, plan, below);
            collect(&alias.input, ScanParents { joined, ..above }, scans);
        }
        LogicalPlan::Aggregate(aggregate) => {
            collect(
                &aggregate.input,
                ScanParents { aggregated: is_index_only(aggregate), ..ScanParents::default() },
                scans,
            );
        }
        LogicalPlan::Join(join) => {
            for Side { plan, joined } in sides(join, &above.joined) {
                collect(plan, ScanParents { joined, ..ScanParents::default() }, scans);
            }
        }
        other => other.inputs().into_iter().for_each(|input| collect(input, ScanParents::default(), scans)),
    }
}

/// The columns below a plan that these ones of it are; those that are computed are none.
fn within<'p>(
    joined: &[JoinedColumn<'p>],
    plan: &LogicalPlan,
    below: impl Fn(usize) -> Option<Column>,
) -> Vec<JoinedColumn<'p>> {
    let place = |column: &Column| plan.schema().maybe_index_of_column(column);
    let moved =
        |joined: &JoinedColumn<'p>| Some(JoinedColumn { column: below(place(&joined.column)?)?, keys: joined.keys });
    joined.iter().filter_map(moved).collect()
}

/// A side of a join.
struct Side<'p> {
    /// The plan of this side.
    plan: &'p LogicalPlan,
    /// Its columns whose keys are those of another plan.
    joined: Vec<JoinedColumn<'p>>,
}

/// Both sides of a join.
fn sides<'p>(join: &'p Join, above: &[JoinedColumn<'p>]) -> [Side<'p>; 2] {
    let own = |plan: &'p LogicalPlan| {
        let joined = above.iter().filter(|joined| plan.schema().has_column(&joined.column)).cloned().collect();
        Side { plan, joined }
    };
    let (mut left, mut right) = (own(join.left.as_ref()), own(join.right.as_ref()));
    for (one, other) in &join.on {
        let (Expr::Column(one), Expr::Column(other)) = (one, other) else { continue };
        if matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi) {
            left.joined.push(JoinedColumn { column: one.clone(), keys: right.plan });
        }
        if matches!(join.join_type, JoinType::Inner | JoinType::RightSemi) {
            right.joined.push(JoinedColumn { column: other.clone(), keys: left.plan });
        }
    }
    [left, right]
}

/// The columns that are joined with a part of another table's rows.
async fn joined_keys(state: &SessionState, joined: &[JoinedColumn<'_>]) -> Vec<ConditionUse> {
    let mut conditions = Vec::new();
    let mut rest = joined.to_vec();
    while let Some(&JoinedColumn { keys, .. }) = rest.first() {
        let (same, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|other| std::ptr::eq(other.keys, keys));
        rest = others;
        let Some(left) = left_of(state, keys).await else { continue };
        // Columns that are joined with the same plan leave its share together.
        let joined = JoinedKeys { share: left.share.powf(1.0 / same.len() as f64), ..left };
        conditions.extend(same.into_iter().map(|same| ConditionUse {
            columns: vec![same.column.name],
            predicate: Predicate::Const(Truth::True),
            joined: Some(joined),
        }));
    }
    conditions
}

/// How many rows conditions leave of a table, and which part that is; none if nothing is left out, or if it is no single table.
async fn left_of(state: &SessionState, plan: &LogicalPlan) -> Option<JoinedKeys> {
    let SingleScan { scan, is_filtered } = single(plan)?;
    if !is_filtered {
        return None;
    }
    let all = LogicalPlan::TableScan(TableScan { filters: Vec::new(), fetch: None, ..scan.clone() });
    let all = DataFrame::new(state.clone(), all).count().await.ok().filter(|rows| *rows <= MOST_JOINED_ROWS)?;
    let left = DataFrame::new(state.clone(), plan.clone()).count().await.ok()?;
    (left < all).then(|| JoinedKeys { keys: left as u64, share: left as f64 / all as f64 })
}

/// The only scan of a plan.
struct SingleScan<'p> {
    /// The scan itself.
    scan: &'p TableScan,
    /// Whether the plan selects some of its rows.
    is_filtered: bool,
}

/// The only scan of a plan that does nothing but to select some of its rows.
fn single(plan: &LogicalPlan) -> Option<SingleScan<'_>> {
    match plan {
        LogicalPlan::TableScan(scan) => Some(SingleScan { scan, is_filtered: !scan.filters.is_empty() }),
        LogicalPlan::Filter(filter) => single(&filter.input).map(|single| SingleScan { is_filtered: true, ..single }),
        LogicalPlan::Projection(projection) => single(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => single(&alias.input),
        _ => None,
    }
}

fn is_index_only(aggregate: &Aggregate) -> bool {
    let columns_only = aggregate.group_expr.iter().all(|expr| matches!(expr, Expr::Column(_)));
    let is_exact =
        |expr: &Expr| expr.get_type(aggregate.input.schema()).is_ok_and(|kind| kind.is_integer() || kind.is_decimal());
    let is_index_only = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(function) => {
            let name = function.func.name();
            let exact = INDEX_ONLY_IF_EXACT.contains(&name) && function.params.args.iter().all(is_exact);
            (exact || INDEX_ONLY.contains(&name)) && function.params.filter.is_none()
        }
        _ => false,
    };
    columns_only && aggregate.aggr_expr.iter().all(is_index_only)
}

fn use_of(scan: &TableScan, above: &ScanParents<'_>, snapshot: &Snapshot) -> QueryUse {
    let schema = snapshot.schema();
    let columns = |expr: &Expr| expr.column_refs().into_iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let of_scan = scan.filters.iter().map(|filter| ConditionUse {
        columns: columns(filter),
        predicate: translate(std::slice::from_ref(filter), &schema),
        joined: None,
    });
    let left = conjunction(above.filters.iter().map(|expr| (*expr).clone())).map(|expr| ConditionUse {
        columns: columns(&expr),
        predicate: Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: text_of(&expr) },
        joined: None,
    });
    QueryUse {
        conditions: of_scan.chain(left).collect(),
        output: scan.projected_schema.fields().iter().map(|field| field.name().clone()).collect(),
        aggregated: above.aggregated,
        weight: 1.0,
        ..QueryUse::default()
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The statements of a text with the lines where they begin. Semicolons in quotes and comments separate nothing.
fn split(text: &str) -> Vec<QueryText<'_>> {
    let mut statements = Vec::new();
    let mut rest = text.char_indices().peekable();
    let (mut start, mut line, mut first_line) = (0, 1, None);
    let mut take = |from: usize, to: usize, line: Option<usize>| {
        if let (Some(line), Some(part)) = (line, text.get(from..to)) {
            statements.push(QueryText { line, text: part.trim() });
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
        let found: Vec<(usize, String)> = split(text).iter().map(|query| (query.line, one_line(query.text))).collect();
        assert_eq!(
            found,
            [(2, "-- first; of two SELECT 1".to_owned()), (5, "/* a; b */ SELECT ';', \"a;b\"".to_owned()),]
        );
    }
}

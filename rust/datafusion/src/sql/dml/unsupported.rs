//! What a statement that changes a table of ours must not say, and what its columns are called. It is looked at before it is planned.
//!
//! The engine's planner passes over parts of such statements: the join in `UPDATE t JOIN s … SET`, a `TABLESAMPLE`, the qualifier in
//! `SET other.a = 1`, the second one of two values for a column. Wrong rows would be changed then. Other parts it refuses without a word on
//! what to do instead.
//!
//! In queries of any statement it forgets `WITH ROLLUP`, and `ORDER BY ALL` of a `UNION`. These are refused everywhere.
//!
//! Columns that are written get the names that the engine looks for: an unquoted one is folded as everywhere else, which `UPDATE` does not
//! do.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::TableReference;
use datafusion::datasource::TableType;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, Statement as EngineStatement};
use datafusion::sql::planner::{IdentNormalizer, object_name_to_table_reference};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, FromTable, GroupByExpr, GroupByWithModifier, Ident, Insert, Merge,
    MergeAction, ObjectName, ObjectNamePart, OrderByKind, Query, Select, SetExpr, SqliteOnConflict, Statement,
    TableAlias, TableFactor, TableObject, Update, Visit, Visitor,
};
use lakemark_table::{Error, ErrorKind};

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::sql::schema::registered;

/// A part of a statement that is not supported.
#[derive(Clone, Copy)]
struct UnsupportedClause {
    /// What it is called.
    name: &'static str,
    /// What to do instead.
    instead: &'static str,
}

impl UnsupportedClause {
    /// The part of this name.
    const fn of(name: &'static str, instead: &'static str) -> Self {
        Self { name, instead }
    }

    /// The part, if the statement has it.
    fn when(self, is_there: bool) -> Option<Self> {
        is_there.then_some(self)
    }
}

const MERGE: &str = "use MERGE INTO t USING s ON … WHEN MATCHED THEN UPDATE SET …";
const NO_ROWS_BACK: UnsupportedClause = UnsupportedClause::of("RETURNING", "ask for the rows with a SELECT");
const NO_OUTPUT: UnsupportedClause = UnsupportedClause::of("OUTPUT", "ask for the rows with a SELECT");
const NO_HINT: UnsupportedClause = UnsupportedClause::of("a hint", "leave it out");
const NO_ORDER: UnsupportedClause =
    UnsupportedClause::of("ORDER BY", "choose the rows with WHERE … IN (SELECT … ORDER BY … LIMIT …)");

/// Refuses what the planner passes over in the queries of any statement: their answers would be others.
pub(super) fn check_queries(statement: &EngineStatement) -> EngineResult<()> {
    let found = match statement {
        EngineStatement::Statement(statement) => statement.visit(&mut Querying),
        EngineStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(&mut Querying),
            CopyToSource::Relation(_) => return Ok(()),
        },
        EngineStatement::Explain(explain) => return check_queries(&explain.statement),
        _ => return Ok(()),
    };
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(UnsupportedClause { name, instead }) => {
            Err(to_engine(Error::new(ErrorKind::Unsupported, format!("{name} is not supported; {instead}"))))
        }
    }
}

/// Refuses what cannot be done to a table of ours or to a view, and gives columns that are written their plain names.
pub(super) async fn check(state: &SessionState, statement: &mut Statement) -> EngineResult<()> {
    let (name, alias) = match target(statement) {
        StatementTarget::Table { name, alias } => (name.clone(), alias.map(|alias| alias.name.clone())),
        StatementTarget::Query(what) => {
            return Err(invalid(format!("{what} changes a table and no query; name the table")));
        }
        StatementTarget::Other => return Ok(()),
    };
    let fold = state.config_options().sql_parser.enable_ident_normalization;
    let table = object_name_to_table_reference(name.clone(), fold)?;
    let Some(provider) = registered(state, &table).await? else { return Ok(()) };
    if provider.table_type() == TableType::View {
        return Err(invalid(format!("{name} is a view, and only tables are changed; change the table that it shows")));
    }
    if !provider.is::<LakemarkTable>() {
        return Ok(());
    }
    if let Some(UnsupportedClause { name: part, instead }) = refused(statement) {
        let text = format!("{part} is not supported in {} of a Lakemark table; {instead}", called(statement));
        return Err(to_engine(Error::new(ErrorKind::Unsupported, text)));
    }
    let catalog = &state.config_options().catalog;
    let whole = TableReference::from(table.resolve(&catalog.default_catalog, &catalog.default_schema));
    let alias = alias.map(|alias| TableReference::bare(IdentNormalizer::new(fold).normalize(alias)));
    TableColumns { name, whole, alias, fold }.named_plainly(statement)
}

/// What a statement is about.
enum StatementTarget<'a> {
    Table {
        name: &'a ObjectName,
        alias: Option<&'a TableAlias>,
    },
    /// A subquery or a function in its place.
    Query(&'static str),
    /// The statement changes no table, or the engine refuses it.
    Other,
}

fn target(statement: &Statement) -> StatementTarget<'_> {
    let factor = match statement {
        Statement::Insert(insert) => {
            return match &insert.table {
                TableObject::TableName(name) if !name.0.is_empty() => StatementTarget::Table { name, alias: None },
                TableObject::TableName(_) => StatementTarget::Other,
                _ => StatementTarget::Query("INSERT"),
            };
        }
        Statement::Update(update) => &update.table.relation,
        Statement::Delete(delete) => match tables_of(delete).first() {
            Some(first) => &first.relation,
            None => return StatementTarget::Other,
        },
        Statement::Merge(merge) => &merge.table,
        _ => return StatementTarget::Other,
    };
    match factor {
        TableFactor::Table { name, alias, .. } => StatementTarget::Table { name, alias: alias.as_ref() },
        _ => StatementTarget::Query(match statement {
            Statement::Update(_) => "UPDATE",
            Statement::Delete(_) => "DELETE",
            _ => "MERGE",
        }),
    }
}

fn tables_of(delete: &Delete) -> &[datafusion::sql::sqlparser::ast::TableWithJoins] {
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    tables
}

fn called(statement: &Statement) -> &'static str {
    match statement {
        Statement::Insert(Insert { replace_into: true, .. }) => "a REPLACE",
        Statement::Insert(_) => "an INSERT",
        Statement::Update(_) => "an UPDATE",
        Statement::Delete(_) => "a DELETE",
        _ => "a MERGE",
    }
}

/// The first part of a statement that is not supported.
fn refused(statement: &Statement) -> Option<UnsupportedClause> {
    let own = match statement {
        Statement::Insert(insert) => of_insert(insert),
        Statement::Update(update) => of_update(update),
        Statement::Delete(delete) => of_delete(delete),
        Statement::Merge(merge) => of_merge(merge),
        _ => None,
    };
    own.or_else(|| match statement.visit(&mut ClauseVisitor) {
        ControlFlow::Break(part) => Some(part),
        ControlFlow::Continue(()) => None,
    })
}

fn first(parts: &[Option<UnsupportedClause>]) -> Option<UnsupportedClause> {
    parts.iter().find_map(|part| *part)
}

fn of_insert(insert: &Insert) -> Option<UnsupportedClause> {
    const ONE_TABLE: UnsupportedClause =
        UnsupportedClause::of("INSERT ALL or INSERT FIRST", "insert into each table by itself");
    const CONFLICT: UnsupportedClause = UnsupportedClause::of(
        "a clause for rows whose key is there already",
        "use REPLACE INTO for whole rows, or MERGE INTO t USING s ON … WHEN MATCHED … WHEN NOT MATCHED …",
    );
    let is_one_table = insert.multi_table_insert_type.is_none()
        && insert.multi_table_into_clauses.is_empty()
        && insert.multi_table_when_clauses.is_empty()
        && insert.multi_table_else_clause.is_none();
    let is_conflict = insert.on.is_some()
        || insert.ignore
        || insert.or.as_ref().is_some_and(|or| !matches!(or, SqliteOnConflict::Replace));
    first(&[
        ONE_TABLE.when(!is_one_table),
        CONFLICT.when(is_conflict),
        UnsupportedClause::of("PARTITION (…)", "insert the partition columns like all others: INSERT INTO t (…, p) …")
            .when(insert.partitioned.is_some() || !insert.after_columns.is_empty()),
        UnsupportedClause::of("SET", "use INSERT INTO t (a, b) VALUES (…)").when(!insert.assignments.is_empty()),
        UnsupportedClause::of("an alias of the table", "leave it out").when(insert.table_alias.is_some()),
        UnsupportedClause::of("an alias of the rows", "leave it out").when(insert.insert_alias.is_some()),
        NO_ROWS_BACK.when(insert.returning.is_some()),
        NO_OUTPUT.when(insert.output.is_some()),
        NO_HINT.when(!insert.optimizer_hints.is_empty() || insert.priority.is_some()),
        UnsupportedClause::of("SETTINGS", "use SET before the statement").when(insert.settings.is_some()),
        UnsupportedClause::of("FORMAT", "insert from a query or VALUES").when(insert.format_clause.is_some()),
        UnsupportedClause::of("DEFAULT VALUES", "give the key in VALUES (…)").when(insert.source.is_none()),
    ])
}

fn of_update(update: &Update) -> Option<UnsupportedClause> {
    let of_target = modifier(&update.table.relation);
    of_target.or_else(|| of_assignments(&update.assignments)).or_else(|| {
        first(&[
            UnsupportedClause::of("a join", MERGE).when(!update.table.joins.is_empty()),
            UnsupportedClause::of("FROM", MERGE).when(update.from.is_some()),
            UnsupportedClause::of("OR", "leave it out").when(update.or.is_some()),
            NO_ORDER.when(!update.order_by.is_empty()),
            UnsupportedClause::of("LIMIT", "choose the rows with WHERE … IN (SELECT … LIMIT …)")
                .when(update.limit.is_some()),
            NO_ROWS_BACK.when(update.returning.is_some()),
            NO_OUTPUT.when(update.output.is_some()),
            NO_HINT.when(!update.optimizer_hints.is_empty()),
        ])
    })
}

fn of_delete(delete: &Delete) -> Option<UnsupportedClause> {
    const OTHER_TABLES: UnsupportedClause = UnsupportedClause::of(
        "another table",
        "use WHERE EXISTS (SELECT …), or MERGE INTO t USING s ON … WHEN MATCHED THEN DELETE",
    );
    let tables = tables_of(delete);
    tables.first().and_then(|target| modifier(&target.relation)).or_else(|| {
        first(&[
            OTHER_TABLES.when(tables.len() != 1 || tables.iter().any(|table| !table.joins.is_empty())),
            OTHER_TABLES.when(delete.using.is_some()),
            UnsupportedClause::of("a name before FROM", "use DELETE FROM t WHERE …").when(!delete.tables.is_empty()),
            NO_ORDER.when(!delete.order_by.is_empty()),
            NO_ROWS_BACK.when(delete.returning.is_some()),
            NO_OUTPUT.when(delete.output.is_some()),
            NO_HINT.when(!delete.optimizer_hints.is_empty()),
        ])
    })
}

fn of_merge(merge: &Merge) -> Option<UnsupportedClause> {
    const CONDITION: UnsupportedClause =
        UnsupportedClause::of("WHERE or DELETE WHERE in a clause", "use WHEN MATCHED AND … THEN …");
    let of_clause = |action: &MergeAction| match action {
        MergeAction::Insert(insert) => insert
            .insert_predicate
            .as_ref()
            .map(|_| UnsupportedClause::of("WHERE in a clause", "use WHEN NOT MATCHED AND … THEN …")),
        MergeAction::Update(update) => of_assignments(&update.assignments)
            .or_else(|| (update.update_predicate.is_some() || update.delete_predicate.is_some()).then_some(CONDITION)),
        MergeAction::Delete { .. } => None,
    };
    modifier(&merge.table)
        .or_else(|| merge.clauses.iter().find_map(|clause| of_clause(&clause.action)))
        .or_else(|| first(&[NO_OUTPUT.when(merge.output.is_some()), NO_HINT.when(!merge.optimizer_hints.is_empty())]))
}

fn of_assignments(assignments: &[Assignment]) -> Option<UnsupportedClause> {
    let is_tuple = |assignment: &Assignment| matches!(assignment.target, AssignmentTarget::Tuple(_));
    assignments
        .iter()
        .any(is_tuple)
        .then_some(UnsupportedClause::of("a tuple of columns", "set the columns one by one"))
}

/// What stands beside the name of the table that is changed.
fn modifier(factor: &TableFactor) -> Option<UnsupportedClause> {
    let TableFactor::Table { alias, args, with_hints, version, index_hints, .. } = factor else { return None };
    first(&[
        UnsupportedClause::of("a list of arguments behind the table", "leave it out").when(args.is_some()),
        NO_HINT.when(!with_hints.is_empty() || !index_hints.is_empty()),
        UnsupportedClause::of("a version", "leave it out: only the newest state is changed").when(version.is_some()),
        UnsupportedClause::of("a list of columns behind the alias", "call the columns by the names that the table has")
            .when(alias.as_ref().is_some_and(|alias| !alias.columns.is_empty())),
    ])
    .or_else(|| unread(factor))
}

/// What the planner passes over where a table is read: the rows would be others.
fn unread(factor: &TableFactor) -> Option<UnsupportedClause> {
    const SAMPLE: UnsupportedClause = UnsupportedClause::of("TABLESAMPLE", "choose the rows with WHERE");
    match factor {
        TableFactor::Table { alias, args, with_ordinality, partitions, json_path, sample, .. } => first(&[
            SAMPLE.when(sample.is_some()),
            UnsupportedClause::of("PARTITION (…) behind a table", "choose the rows with WHERE")
                .when(!partitions.is_empty()),
            UnsupportedClause::of("a path behind a table", "read the field in a SELECT").when(json_path.is_some()),
            UnsupportedClause::of("WITH ORDINALITY", "use row_number() OVER ()")
                .when(*with_ordinality && args.is_none()),
            UnsupportedClause::of("AT behind an alias", "use row_number() OVER ()")
                .when(alias.as_ref().is_some_and(|alias| alias.at.is_some())),
        ]),
        TableFactor::Derived { sample, .. } => sample.as_ref().map(|_| SAMPLE),
        _ => None,
    }
}

/// Looks for what the planner passes over in queries of any statement.
struct Querying;

impl Visitor for Querying {
    type Break = UnsupportedClause;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<UnsupportedClause> {
        let is_all = query.order_by.as_ref().is_some_and(|order| matches!(order.kind, OrderByKind::All(_)));
        if is_all && !matches!(query.body.as_ref(), SetExpr::Select(_)) {
            return ControlFlow::Break(UnsupportedClause::of(
                "ORDER BY ALL of anything but a plain SELECT",
                "name the columns: ORDER BY 1, 2",
            ));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<UnsupportedClause> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
        match modifiers.first() {
            None => ControlFlow::Continue(()),
            Some(modifier) => ControlFlow::Break(match modifier {
                GroupByWithModifier::Rollup => UnsupportedClause::of("WITH ROLLUP", "use GROUP BY ROLLUP (…)"),
                GroupByWithModifier::Cube => UnsupportedClause::of("WITH CUBE", "use GROUP BY CUBE (…)"),
                GroupByWithModifier::Totals => {
                    UnsupportedClause::of("WITH TOTALS", "use GROUP BY GROUPING SETS ((…), ())")
                }
                GroupByWithModifier::GroupingSets(_) => {
                    UnsupportedClause::of("GROUPING SETS behind columns", "use GROUP BY GROUPING SETS (…) without them")
                }
            }),
        }
    }
}

/// Looks for such parts in all queries of a statement.
struct ClauseVisitor;

impl Visitor for ClauseVisitor {
    type Break = UnsupportedClause;

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<UnsupportedClause> {
        unread(factor).map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<UnsupportedClause> {
        let found = first(&[
            UnsupportedClause::of("PREWHERE", "use WHERE").when(select.prewhere.is_some()),
            UnsupportedClause::of("CONNECT BY", "use WITH RECURSIVE").when(!select.connect_by.is_empty()),
            UnsupportedClause::of("EXCLUDE behind the columns", "write * EXCLUDE (…), or name the columns")
                .when(select.exclude.is_some()),
        ]);
        found.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// How columns of the table that is changed may be called.
struct TableColumns {
    /// The table as it was written.
    name: ObjectName,
    /// With schema and catalog.
    whole: TableReference,
    alias: Option<TableReference>,
    fold: bool,
}

impl TableColumns {
    fn named_plainly(&self, statement: &mut Statement) -> EngineResult<()> {
        match statement {
            Statement::Insert(insert) => self.all(&mut insert.columns),
            Statement::Update(update) => self.all(assigned(&mut update.assignments)),
            Statement::Merge(merge) => merge.clauses.iter_mut().try_for_each(|clause| match &mut clause.action {
                MergeAction::Insert(insert) => self.all(&mut insert.columns),
                MergeAction::Update(update) => self.all(assigned(&mut update.assignments)),
                MergeAction::Delete { .. } => Ok(()),
            }),
            _ => Ok(()),
        }
    }

    fn all<'a>(&self, names: impl IntoIterator<Item = &'a mut ObjectName>) -> EngineResult<()> {
        let mut seen = HashSet::new();
        for name in names {
            let column = self.column(name)?;
            if !seen.insert(column.value.clone()) {
                return Err(invalid(format!("the column {} gets two values; name it once", column.value)));
            }
            *name = ObjectName(vec![ObjectNamePart::Identifier(column)]);
        }
        Ok(())
    }

    /// The column's name as the table has it, in quotes so that it stays so.
    fn column(&self, name: &ObjectName) -> EngineResult<Ident> {
        let foreign = |column: &str| {
            let called = self.alias.as_ref().unwrap_or(&self.whole).table();
            invalid(format!(
                "{name} is no column of {}: write {column} or {called}.{column}; a field of a struct is set with its whole column",
                self.name
            ))
        };
        let Some((ObjectNamePart::Identifier(last), before)) = name.0.split_last() else {
            return Err(foreign("the name alone"));
        };
        let column = IdentNormalizer::new(self.fold).normalize(last.clone());
        if !before.is_empty() {
            let qualifier = object_name_to_table_reference(ObjectName(before.to_vec()), self.fold);
            let is_ours =
                |called: &TableReference| self.alias.as_ref() == Some(called) || self.whole.resolved_eq(called);
            if !qualifier.is_ok_and(|called| is_ours(&called)) {
                return Err(foreign(&column));
            }
        }
        Ok(Ident { value: column, quote_style: Some('"'), span: last.span })
    }
}

fn assigned(assignments: &mut [Assignment]) -> impl Iterator<Item = &mut ObjectName> {
    assignments.iter_mut().filter_map(|assignment| match &mut assignment.target {
        AssignmentTarget::ColumnName(name) => Some(name),
        AssignmentTarget::Tuple(_) => None,
    })
}

fn invalid(message: String) -> datafusion::error::DataFusionError {
    to_engine(Error::new(ErrorKind::InvalidInput, message))
}

//! Plans of statements that change a table, with the casts of what they write made exact.
//!
//! The engine's planner puts a cast around each value that a statement writes. `7.5` for a column of integers and `CAST(7.5 AS BIGINT)` are
//! the same plan then, though only the second one says that digits may go. So values are distinguished before they are planned:
//!
//! ```text
//! UPDATE t SET a = x               a = written(x)             cast(written(x)) ─▶ exact cast of x
//! INSERT INTO t VALUES (x)         VALUES (written(x))        cast(written(x)) ─▶ exact cast of x
//! INSERT INTO t SELECT x FROM s    the query alone: rows in its own types      ─▶ exact cast of each column
//! ```
//!
//! A query is planned by itself, since the engine gives rows of `VALUES` anywhere inside of it the types of the table's first columns.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, internal_datafusion_err};
use datafusion::error::Result as EngineResult;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::expr::{Alias, Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, DmlStatement, Expr, LogicalPlan, Projection, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Values, Volatility,
};
use datafusion::sql::parser::{DFParser, Statement as EngineStatement};
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Insert,
    ObjectName, ObjectNamePart, Query, SetExpr, Statement as SqlStatement, Update, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};

use super::exact::TargetColumn;
use super::{planned, target, unsupported};

/// Plans a statement; what it writes to a table of ours keeps its digits.
pub(crate) async fn plan(state: &mut SessionState, statement: EngineStatement) -> EngineResult<LogicalPlan> {
    unsupported::check_queries(&statement)?;
    let EngineStatement::Statement(mut inner) = statement else { return planned(state, statement).await };
    unsupported::check(state, &mut inner).await?;
    match *inner {
        SqlStatement::Insert(insert) => plan_insert(state, insert).await,
        SqlStatement::Update(update) => plan_update(state, update).await,
        other => plain(state, other).await,
    }
}

async fn plain(state: &SessionState, statement: SqlStatement) -> EngineResult<LogicalPlan> {
    planned(state, EngineStatement::Statement(Box::new(statement))).await
}

async fn plan_update(state: &mut SessionState, mut update: Update) -> EngineResult<LogicalPlan> {
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(UserCast::new())))?;
    update.assignments.iter_mut().for_each(|assignment| tag_cast(&mut assignment.value));
    let plan = plain(state, SqlStatement::Update(update)).await?;
    let LogicalPlan::Dml(mut statement) = plan else { return Ok(plan) };
    let columns = ChangedColumns::of(&statement);
    let LogicalPlan::Projection(Projection { expr, input, .. }) = statement.input.as_ref() else {
        return Err(internal_datafusion_err!("an UPDATE has no list of values"));
    };
    let values = expr.iter().map(|expr| columns.named(expr.clone(), input)).collect::<EngineResult<_>>()?;
    statement.input = Arc::new(LogicalPlan::Projection(Projection::try_new(values, Arc::clone(input))?));
    Ok(LogicalPlan::Dml(statement))
}

async fn plan_insert(state: &mut SessionState, mut insert: Insert) -> EngineResult<LogicalPlan> {
    let Some(source) = insert.source.take_if(|source| !is_values(&source.body)) else {
        return plan_values(state, insert).await;
    };
    let rows = plain(state, SqlStatement::Query(source.clone())).await?;
    // Says which of the rows' columns goes where.
    insert.source = Some(nulls(rows.schema().fields().len())?);
    let plan = plain(state, SqlStatement::Insert(insert.clone())).await?;
    match plan {
        LogicalPlan::Dml(mut statement) if target(&statement).is_some() => {
            statement.input = Arc::new(ChangedColumns::of(&statement).spliced(&statement.input, rows)?);
            Ok(LogicalPlan::Dml(statement))
        }
        _ => plain(state, SqlStatement::Insert(Insert { source: Some(source), ..insert })).await,
    }
}

/// An `INSERT` of `VALUES`, each of which may be of another type.
async fn plan_values(state: &mut SessionState, mut insert: Insert) -> EngineResult<LogicalPlan> {
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(UserCast::new())))?;
    let ControlFlow::Continue(()) = insert.visit(&mut CastTagger);
    let plan = plain(state, SqlStatement::Insert(insert)).await?;
    let LogicalPlan::Dml(mut statement) = plan else { return Ok(plan) };
    let columns = ChangedColumns::of(&statement);
    let LogicalPlan::Projection(Projection { expr, input, .. }) = statement.input.as_ref() else {
        return Err(internal_datafusion_err!("an INSERT has no list of columns"));
    };
    let names = columns.sources(expr, input);
    let rows = input.as_ref().clone().transform_down_with_subqueries(|node| match node {
        LogicalPlan::Values(values) => Ok(Transformed::yes(LogicalPlan::Values(columns.of_rows(values, &names)?))),
        other => Ok(Transformed::no(other)),
    })?;
    let rows = Arc::new(rows.data);
    let values = expr.iter().map(|expr| columns.named(expr.clone(), &rows)).collect::<EngineResult<_>>()?;
    statement.input = Arc::new(LogicalPlan::Projection(Projection::try_new(values, rows)?));
    Ok(LogicalPlan::Dml(statement))
}

/// Whether a query is nothing but `VALUES`.
fn is_values(body: &SetExpr) -> bool {
    match body {
        SetExpr::Values(_) => true,
        SetExpr::Query(query) => is_values(&query.body),
        _ => false,
    }
}

/// A row of so many NULLs.
fn nulls(count: usize) -> EngineResult<Box<Query>> {
    let text = format!("VALUES ({})", vec!["NULL"; count].join(", "));
    match DFParser::parse_sql(&text)?.pop_front() {
        Some(EngineStatement::Statement(statement)) => match *statement {
            SqlStatement::Query(query) => Ok(query),
            _ => Err(internal_datafusion_err!("VALUES is no query")),
        },
        _ => Err(internal_datafusion_err!("VALUES is no statement")),
    }
}

/// The columns of a table that is changed.
struct ChangedColumns {
    fields: Vec<FieldRef>,
    key: Vec<String>,
    /// Whether the table is one of ours; of others nothing is checked.
    is_ours: bool,
}

impl ChangedColumns {
    fn of(statement: &DmlStatement) -> Self {
        let ours = target(statement);
        let key = ours.as_ref().and_then(|pinned| pinned.snapshot.key_columns()).unwrap_or_default();
        let fields = statement.target.schema().fields().iter().cloned().collect();
        Self { fields, key, is_ours: ours.is_some() }
    }

    /// What is written to a column.
    fn fitted(&self, name: &str, of: &DataType, written: Expr, input: &LogicalPlan) -> EngineResult<Expr> {
        TargetColumn { name, of, is_key: self.key.iter().any(|key| key == name) }.fitted(written, input)
    }

    /// The value of a column, as the planner gives it a name, without the planner's cast.
    fn named(&self, expr: Expr, input: &LogicalPlan) -> EngineResult<Expr> {
        let Expr::Alias(Alias { expr, relation, name, metadata }) = expr else { return Ok(expr) };
        let of = self.fields.iter().find(|field| *field.name() == name).map(|field| field.data_type());
        let expr = match of {
            Some(of) => Box::new(self.uncast(&name, of, *expr, input)?),
            None => expr,
        };
        Ok(Expr::Alias(Alias { expr, relation, name, metadata }))
    }

    /// A value with an exact cast in the place of the planner's.
    fn uncast(&self, name: &str, of: &DataType, expr: Expr, input: &LogicalPlan) -> EngineResult<Expr> {
        match expr {
            Expr::Cast(Cast { expr, field }) => {
                let written = untagged(*expr);
                if self.is_ours {
                    return self.fitted(name, of, written, input);
                }
                Ok(Expr::Cast(Cast { expr: Box::new(written), field }))
            }
            // The planner takes the type of a parameter for granted.
            Expr::Placeholder(_) if self.is_ours => self.fitted(name, of, expr, input),
            other => match (is_tagged(&other), untagged(other)) {
                (true, column @ (Expr::Column(_) | Expr::Literal(..))) => Ok(column),
                // The engine may yet make the branches of a CASE of one type.
                (true, written) if self.is_ours => self.fitted(name, of, written, input),
                (_, other) => Ok(other),
            },
        }
    }

    /// Rows of `VALUES`, whose columns go to the columns that `names` has.
    fn of_rows(&self, rows: Values, names: &[String]) -> EngineResult<Values> {
        let Values { schema, values } = rows;
        let none = LogicalPlan::Values(Values { schema: Arc::clone(&schema), values: Vec::new() });
        let row = |row: Vec<Expr>| -> EngineResult<Vec<Expr>> {
            let cells = row.into_iter().enumerate().zip(schema.fields());
            let cells = cells.map(|((place, expr), field)| {
                self.uncast(names.get(place).unwrap_or(field.name()), field.data_type(), expr, &none)
            });
            cells.collect()
        };
        let values = values.into_iter().map(row).collect::<EngineResult<_>>()?;
        Ok(Values { schema, values })
    }

    /// The column of the table that each column of the rows goes to.
    fn sources(&self, exprs: &[Expr], rows: &LogicalPlan) -> Vec<String> {
        let mut names: Vec<String> = rows.schema().fields().iter().map(|field| field.name().clone()).collect();
        for expr in exprs {
            if let Expr::Alias(Alias { expr, name, .. }) = expr
                && let Some(place) = column_of(expr).and_then(|column| rows.schema().maybe_index_of_column(column))
                && let Some(source) = names.get_mut(place)
            {
                source.clone_from(name);
            }
        }
        names
    }

    /// The columns of the table of `rows`, where `shape` says which of them goes where.
    fn spliced(&self, shape: &LogicalPlan, rows: LogicalPlan) -> EngineResult<LogicalPlan> {
        let LogicalPlan::Projection(Projection { expr, input, .. }) = shape else {
            return Err(internal_datafusion_err!("an INSERT has no list of columns"));
        };
        let mut values = Vec::with_capacity(expr.len());
        for shaped in expr {
            let Expr::Alias(Alias { expr: inner, name, .. }) = shaped else {
                values.push(shaped.clone());
                continue;
            };
            let place = column_of(inner).and_then(|column| input.schema().maybe_index_of_column(column));
            let of = self.fields.iter().find(|field| field.name() == name).map(|field| field.data_type());
            values.push(match place.zip(of) {
                Some((place, of)) => {
                    let column = Expr::Column(Column::from(rows.schema().qualified_field(place)));
                    // Also where it seems to have the type: the engine widens the columns of a UNION later.
                    self.fitted(name, of, column, &rows)?.alias(name)
                }
                // A column that the statement leaves out.
                None => shaped.clone(),
            });
        }
        Ok(LogicalPlan::Projection(Projection::try_new(values, Arc::new(rows))?))
    }
}

/// The column that an expression is, maybe cast.
fn column_of(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Cast(Cast { expr, .. }) => column_of(expr),
        _ => None,
    }
}

/// The name of the function that stands around what the user wrote while it is planned.
const WRITTEN: &str = "__lakemark_written";

/// Tags the rows of `VALUES`.
struct CastTagger;

impl VisitorMut for CastTagger {
    type Break = std::convert::Infallible;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        tag_values(&mut query.body);
        ControlFlow::Continue(())
    }
}

fn tag_values(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(tag_cast),
        SetExpr::SetOperation { left, right, .. } => {
            tag_values(left);
            tag_values(right);
        }
        _ => {}
    }
}

/// Tags what may be a cast of the user's own. Numbers, texts and parameters cannot be one.
fn tag_cast(expr: &mut SqlExpr) {
    let is_plain = match &*expr {
        SqlExpr::Value(_) => true,
        SqlExpr::UnaryOp { expr, .. } => {
            matches!(expr.as_ref(), SqlExpr::Value(ValueWithSpan { value: Value::Number(..), .. }))
        }
        _ => false,
    };
    if is_plain {
        return;
    }
    let nothing = SqlExpr::Identifier(Ident::new(""));
    let argument = FunctionArg::Unnamed(FunctionArgExpr::Expr(std::mem::replace(expr, nothing)));
    *expr = SqlExpr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(WRITTEN))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    });
}

fn is_tagged(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.name() == WRITTEN)
}

fn untagged(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, mut args }) if func.name() == WRITTEN && args.len() == 1 => {
            args.pop().unwrap_or_default()
        }
        other => other,
    }
}

/// Stands around what the user wrote; no plan that is run has it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct UserCast {
    signature: Signature,
}

impl UserCast {
    fn new() -> Self {
        Self { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for UserCast {
    fn name(&self) -> &str {
        WRITTEN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> EngineResult<DataType> {
        types.first().cloned().ok_or_else(|| internal_datafusion_err!("a value has no type"))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> EngineResult<FieldRef> {
        args.arg_fields.first().cloned().ok_or_else(|| internal_datafusion_err!("a value has no type"))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        args.args.into_iter().next().ok_or_else(|| internal_datafusion_err!("a value is missing"))
    }
}

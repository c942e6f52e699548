//! `INSERT`, `UPDATE`, `DELETE` and `MERGE`: a query finds the rows, one call changes them.
//!
//! ```text
//! DELETE FROM t WHERE …          the keys of the rows                        ─▶ delete
//! UPDATE t SET a = … WHERE …     the keys, and the new values of a           ─▶ update   (of the key: delete and insert)
//! INSERT INTO t …                the rows                                    ─▶ insert
//! MERGE INTO t USING s ON …      t and s joined, each row by its clause      ─▶ all of them in one call
//! ```
//!
//! The statement's own plan is run, with its condition as it was written. DataFusion's hooks of tables hand a list of conditions on
//! instead, which lacks those with a subquery: `DELETE … WHERE k IN (SELECT …)` would delete everything. A key that another writer changes
//! between query and call makes the statement a conflict. Parts of statements that DataFusion's planner passes over are refused before it
//! sees them.

mod computed;
mod delete;
mod exact;
mod exact_plan;
mod merge;
mod unsupported;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use datafusion::common::{Column, plan_datafusion_err};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, Projection, WriteOp};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as EngineStatement;
use lakemark_table::{Change, Error, ErrorKind, Operation, Result, Table, Transaction, WriteOptions};

use crate::error::from_engine;
use crate::plan::provider::LakemarkTable;
use crate::plan::sharing::unshared;
use crate::plan::statement_snapshots::note_names;
use crate::share::bound_query::PinnedTable;
use crate::sql::planning_place::operators_of;
use crate::sql::unreadable;

pub(crate) use exact_plan::plan;

/// The names under which keys travel beside the columns that a statement computes.
const KEY_PREFIX: &str = "__lakemark_key_";

/// The plan of a statement as DataFusion makes it, and of deletions under an alias, which it does not know.
///
/// # Errors
/// Those of planning; a table or view that the statement needs cannot be read.
async fn planned(state: &SessionState, statement: EngineStatement) -> EngineResult<LogicalPlan> {
    let names = unreadable::read_by(state, &statement)?;
    note_names(&names);
    let plan = match delete::aliased(&statement)? {
        Some(query) => state.statement_to_plan(query).await.and_then(delete::deleting),
        None => state.statement_to_plan(statement).await,
    };
    match plan {
        Ok(plan) => unreadable::check(&plan).map(|()| plan),
        Err(error) => Err(unreadable::error_among(state, names).await.unwrap_or(error)),
    }
}

/// The table of ours that a statement changes.
pub(crate) fn target(statement: &DmlStatement) -> Option<PinnedTable> {
    let provider = source_as_provider(&statement.target).ok()?;
    let table = provider.downcast_ref::<LakemarkTable>()?;
    Some(PinnedTable { table: Arc::clone(table.table()), snapshot: Arc::clone(table.snapshot()) })
}

/// Runs a statement that changes a table; gives the number of rows that it changed, none if it was made before.
pub(crate) async fn run(state: SessionState, statement: DmlStatement, transaction: Option<Transaction>) -> Result<u64> {
    // What is changed is read by whoever changes it.
    let state = unshared(state);
    let Some(PinnedTable { table, snapshot }) = target(&statement) else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} is not a Lakemark table", statement.table_name)));
    };
    table.check_open_for_changes()?;
    let Some(key) = snapshot.key_columns() else { return Err(no_key(&table)) };
    let statement_name = statement.op.name().to_owned();
    let input = statement.input.as_ref().clone();
    let mut options = WriteOptions { read_at: snapshot.sequence(), read: Some(Arc::clone(&snapshot)), transaction };
    let changes = match statement.op {
        WriteOp::Insert(InsertOp::Append) => {
            // Rows that are there already are an error of their own.
            (options.read_at, options.read) = (None, None);
            change(Operation::Insert, &rows(&state, input).await?)
        }
        WriteOp::Insert(InsertOp::Replace) => {
            (options.read_at, options.read) = (None, None);
            change(Operation::Upsert, &rows(&state, input).await?)
        }
        WriteOp::Delete => {
            let keys = keys_of(&input, &key).map_err(from_engine)?;
            let plan = LogicalPlanBuilder::from(input).project(keys).and_then(LogicalPlanBuilder::build);
            change(Operation::Delete, &rows(&state, plan.map_err(from_engine)?).await?)
        }
        WriteOp::Update => match update(&state, input, &key).await? {
            UpdatePlan::Changed(changes) => changes,
            UpdatePlan::Same(rows) => return Ok(rows),
        },
        WriteOp::MergeInto(merge) => merge::changes(&state, &statement.target, *merge, input, &key).await?,
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{statement_name} is not supported on Lakemark tables; use INSERT, UPDATE, DELETE or MERGE INTO"
                ),
            ));
        }
    };
    // A row that gets another key is deleted and inserted.
    let moved = u64::from(changes.len() == 2 && statement_name == "Update") + 1;
    if changes.iter().all(|change| change.rows.num_rows() == 0) {
        return Ok(0);
    }
    Ok(table.write(changes, options).await?.rows / moved)
}

/// The error of a table that takes no updates.
pub(crate) fn no_key(table: &Table) -> Error {
    let location = table.location();
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "the table {location} has no key, which tells changed rows apart: declare one first, as in \
             `CREATE EXTERNAL TABLE … STORED AS LAKEMARK LOCATION '{location}' OPTIONS (key 'COLUMN')`, \
             `lakemark key {location} --on COLUMN` or `Table.declare_key`"
        ),
    )
}

fn change(operation: Operation, rows: &RecordBatch) -> Vec<Change> {
    vec![Change { operation, rows: rows.clone() }]
}

/// The rows of a plan in one batch.
async fn rows(state: &SessionState, plan: LogicalPlan) -> Result<RecordBatch> {
    let schema = Arc::new(plan.schema().as_arrow().clone());
    let operators = operators_of(state, plan).await?;
    let batches = collect(operators, state.task_ctx()).await.map_err(from_engine)?;
    concat_batches(&schema, &batches).map_err(|error| from_engine(error.into()))
}

/// The key columns of the target among the columns of a plan: those that come first.
fn keys_of(plan: &LogicalPlan, key: &[String]) -> EngineResult<Vec<Expr>> {
    key.iter().map(|name| column_of(plan, name)).collect()
}

fn column_of(plan: &LogicalPlan, name: &str) -> EngineResult<Expr> {
    let (qualifier, field) = plan
        .schema()
        .iter()
        .find(|(_, field)| field.name() == name)
        .ok_or_else(|| plan_datafusion_err!("the statement does not read the key column {name}"))?;
    Ok(Expr::Column(Column::new(qualifier.cloned(), field.name())))
}

/// What an `UPDATE` does.
enum UpdatePlan {
    Changed(Vec<Change>),
    /// Each column of so many rows gets the value that it has.
    Same(u64),
}

/// The new values of assigned columns beside the keys of their rows. A column that is assigned to itself is in the plan like one that is
/// not assigned.
async fn update(state: &SessionState, input: LogicalPlan, key: &[String]) -> Result<UpdatePlan> {
    let LogicalPlan::Projection(Projection { expr, input, .. }) = input else {
        return Err(Error::new(ErrorKind::Internal, "an UPDATE has no list of values"));
    };
    let is_assigned = |expr: &Expr| match expr {
        Expr::Alias(alias) => !matches!(alias.expr.as_ref(), Expr::Column(column) if column.name == alias.name),
        _ => true,
    };
    let moves = expr.iter().any(|expr| is_assigned(expr) && key.contains(&expr.schema_name().to_string()));
    let mut wanted: Vec<Expr> = keys_of(&input, key).map_err(from_engine)?;
    for (place, expr) in wanted.iter_mut().enumerate() {
        *expr = expr.clone().alias(format!("{KEY_PREFIX}{place}"));
    }
    wanted.extend(expr.into_iter().filter(|expr| moves || is_assigned(expr)));
    let plan = LogicalPlanBuilder::from(input.as_ref().clone()).project(wanted).and_then(LogicalPlanBuilder::build);
    let found = rows(state, plan.map_err(from_engine)?).await?;
    let SplitRows { keys, values } = split(&found, key)?;
    if moves {
        let delete = Change { operation: Operation::Delete, rows: keys };
        return Ok(UpdatePlan::Changed(vec![delete, Change { operation: Operation::Insert, rows: values }]));
    }
    if values.num_columns() == 0 {
        return Ok(UpdatePlan::Same(found.num_rows() as u64));
    }
    Ok(UpdatePlan::Changed(change(Operation::Update, &joined(&keys, &values)?)))
}

/// Rows of a plan, taken apart.
struct SplitRows {
    /// The keys under their own names.
    keys: RecordBatch,
    /// The other columns.
    values: RecordBatch,
}

/// Takes rows apart whose first columns are the keys.
fn split(rows: &RecordBatch, key: &[String]) -> Result<SplitRows> {
    let places: Vec<usize> = (0..key.len()).collect();
    let others: Vec<usize> = (key.len()..rows.num_columns()).collect();
    let keys = rows.project(&places).map_err(|error| from_engine(error.into()))?;
    let named =
        keys.schema().fields().iter().zip(key).map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
    let keys = batch(named, keys.columns().to_vec(), rows.num_rows())?;
    Ok(SplitRows { keys, values: rows.project(&others).map_err(|error| from_engine(error.into()))? })
}

/// Both batches' columns side by side.
fn joined(one: &RecordBatch, other: &RecordBatch) -> Result<RecordBatch> {
    let fields =
        one.schema().fields().iter().chain(other.schema().fields()).map(|field| field.as_ref().clone()).collect();
    let columns = one.columns().iter().chain(other.columns()).cloned().collect();
    batch(fields, columns, one.num_rows())
}

fn batch(fields: Vec<Field>, columns: Vec<arrow::array::ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|error| from_engine(error.into()))
}

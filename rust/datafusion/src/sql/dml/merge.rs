//! `MERGE INTO`: target and source are joined once, and each row goes to the first clause that takes it.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::array_value_to_string;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, ScalarValue, TableReference};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::error::Result as EngineResult;
use datafusion::execution::SessionState;
use datafusion::logical_expr::dml::{MergeIntoAction, MergeIntoClause, MergeIntoClauseKind, MergeIntoOp};
use datafusion::logical_expr::{
    Expr, JoinType, LogicalPlan, LogicalPlanBuilder, TableSource, UNNAMED_TABLE, col, lit, when,
};
use datafusion::physical_plan::collect_partitioned;
use datafusion::prelude::SessionContext;
use lakemark_table::{Change, Error, ErrorKind, Operation, Result};

use super::exact::TargetColumn;
use super::{KEY_PREFIX, SplitRows, rows, split};
use crate::error::from_engine;
use crate::sql::planning_place::operators_of;

/// Columns that say which sides a joined row has, and which clause takes it.
const OF_TARGET: &str = "__lakemark_target";
const OF_SOURCE: &str = "__lakemark_source";
const CLAUSE: &str = "__lakemark_clause";

/// What the clauses do.
pub(super) async fn changes(
    state: &SessionState,
    target: &Arc<dyn TableSource>,
    merge: MergeIntoOp,
    source: LogicalPlan,
    key: &[String],
) -> Result<Vec<Change>> {
    let called = qualifier_of(&merge, &source).unwrap_or_else(|| UNNAMED_TABLE.into());
    let taken = taken(target, &called, &merge, source.clone()).map_err(from_engine)?;
    // Kept, so that all clauses see the same rows.
    let taken = kept(state, taken).await?;
    let mut changes = Vec::new();
    for (number, clause) in merge.clauses.iter().enumerate() {
        let ClauseValues { operation, wanted } = values(target, &called, clause, key, &source)?;
        let plain = |expr: Expr| flat(expr).map_err(from_engine);
        let wanted = wanted.into_iter().map(plain).collect::<Result<Vec<_>>>()?;
        let frame = taken.clone().filter(col(CLAUSE).eq(lit(number as i64))).and_then(|rows| rows.select(wanted));
        let found = rows(state, frame.map_err(from_engine)?.into_unoptimized_plan()).await?;
        let (keys, values) = match operation {
            Operation::Insert => (None, found),
            _ => {
                let SplitRows { keys, values } = split(&found, key)?;
                (Some(keys), values)
            }
        };
        changes.extend(change(operation, keys, values)?);
    }
    changes.retain(|change| change.rows.num_rows() > 0);
    check_once(&changes, key)?;
    Ok(changes)
}

fn change(operation: Operation, keys: Option<RecordBatch>, values: RecordBatch) -> Result<Option<Change>> {
    let rows = match (operation, keys) {
        (Operation::Update, Some(keys)) => super::joined(&keys, &values)?,
        (_, Some(keys)) => keys,
        (_, None) => values,
    };
    Ok(Some(Change { operation, rows }))
}

/// The rows that a clause takes, with its number. All columns have plain names: those of the target with `t.` before them, those of the
/// source with `s.`.
fn taken(
    target: &Arc<dyn TableSource>,
    called: &TableReference,
    merge: &MergeIntoOp,
    source: LogicalPlan,
) -> EngineResult<LogicalPlan> {
    let target = LogicalPlanBuilder::scan(called.clone(), Arc::clone(target), None)?;
    let side = |plan: LogicalPlanBuilder, flag: &str| -> EngineResult<LogicalPlanBuilder> {
        let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
        columns.push(lit(true).alias(flag));
        plan.project(columns)
    };
    let needs = |kind: MergeIntoClauseKind| merge.clauses.iter().any(|clause| clause.kind == kind);
    let rest_of_source = needs(MergeIntoClauseKind::NotMatched) || needs(MergeIntoClauseKind::NotMatchedByTarget);
    let join = match (needs(MergeIntoClauseKind::NotMatchedBySource), rest_of_source) {
        (true, true) => JoinType::Full,
        (true, false) => JoinType::Left,
        (false, true) => JoinType::Right,
        (false, false) => JoinType::Inner,
    };
    let source = side(LogicalPlanBuilder::from(source), OF_SOURCE)?.build()?;
    let joined = side(target, OF_TARGET)?.join_on(source, join, [merge.on.clone()])?;
    let mut number: Option<Expr> = None;
    for (place, clause) in merge.clauses.iter().enumerate().rev() {
        let of_kind = match clause.kind {
            MergeIntoClauseKind::Matched => col(OF_TARGET).is_not_null().and(col(OF_SOURCE).is_not_null()),
            MergeIntoClauseKind::NotMatched | MergeIntoClauseKind::NotMatchedByTarget => col(OF_TARGET).is_null(),
            MergeIntoClauseKind::NotMatchedBySource => col(OF_SOURCE).is_null(),
        };
        let condition = match &clause.predicate {
            Some(predicate) => of_kind.and(predicate.clone()),
            None => of_kind,
        };
        let otherwise = number.take().unwrap_or_else(|| lit(ScalarValue::Int64(None)));
        number = Some(when(condition, lit(place as i64)).otherwise(otherwise)?);
    }
    let mut columns = Vec::new();
    for column in joined.schema().columns() {
        let name = flat_name(&column);
        columns.push(Expr::Column(column).alias(name));
    }
    columns.push(number.unwrap_or_else(|| lit(ScalarValue::Int64(None))).alias(CLAUSE));
    joined.project(columns)?.filter(col(CLAUSE).is_not_null())?.build()
}

/// The rows of a plan, in memory.
async fn kept(state: &SessionState, plan: LogicalPlan) -> Result<DataFrame> {
    let operators = operators_of(state, plan).await?;
    let schema = operators.schema();
    let rows = collect_partitioned(operators, state.task_ctx()).await.map_err(from_engine)?;
    let table = MemTable::try_new(schema, rows).map_err(from_engine)?;
    SessionContext::new_with_state(state.clone()).read_table(Arc::new(table)).map_err(from_engine)
}

/// How the statement calls its target: what no column of the source is called.
fn qualifier_of(merge: &MergeIntoOp, source: &LogicalPlan) -> Option<TableReference> {
    let mut found = None;
    for expr in merge.exprs() {
        for column in expr.column_refs() {
            if found.is_none() && !source.schema().has_column(column) {
                found.clone_from(&column.relation);
            }
        }
    }
    found
}

/// One name for a column that has a table's before it.
fn flat_name(column: &Column) -> String {
    match &column.relation {
        Some(relation) => format!("{relation}.{}", column.name),
        None => column.name.clone(),
    }
}

/// An expression over the plain names.
fn flat(expr: Expr) -> EngineResult<Expr> {
    expr.transform_up(|part| match part {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(flat_name(&column))))),
        other => Ok(Transformed::no(other)),
    })
    .data()
}

/// What a clause does.
struct ClauseValues {
    /// What becomes of the rows.
    operation: Operation,
    /// The columns that it needs: the target's keys first, unless it inserts.
    wanted: Vec<Expr>,
}

/// What a clause does, and the columns that it needs.
fn values(
    target: &Arc<dyn TableSource>,
    called: &TableReference,
    clause: &MergeIntoClause,
    key: &[String],
    source: &LogicalPlan,
) -> Result<ClauseValues> {
    let schema = target.schema();
    let typed = |name: &str, value: &Expr| -> Result<Expr> {
        let field = schema.field_with_name(name).map_err(|error| from_engine(error.into()))?;
        let column = TargetColumn { name, of: field.data_type(), is_key: key.iter().any(|key| key == name) };
        // What the source computes counts as computed; columns of the target are what they are.
        Ok(column.fitted(value.clone(), source).map_err(from_engine)?.alias(name))
    };
    match &clause.action {
        MergeIntoAction::Insert { columns, values } => {
            let all: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
            let columns = if columns.is_empty() { &all } else { columns };
            let wanted = columns.iter().zip(values).map(|(name, value)| typed(name, value));
            Ok(ClauseValues { operation: Operation::Insert, wanted: wanted.collect::<Result<_>>()? })
        }
        MergeIntoAction::Update(assignments) => {
            if let Some((name, _)) = assignments.iter().find(|(name, _)| key.contains(name)) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("MERGE cannot set {name}, which is part of the key; delete the row and insert it"),
                ));
            }
            let mut wanted = target_keys(called, key);
            for (name, value) in assignments {
                wanted.push(typed(name, value)?);
            }
            Ok(ClauseValues { operation: Operation::Update, wanted })
        }
        MergeIntoAction::Delete => Ok(ClauseValues { operation: Operation::Delete, wanted: target_keys(called, key) }),
    }
}

fn target_keys(called: &TableReference, key: &[String]) -> Vec<Expr> {
    let column = |name: &String| Expr::Column(Column::new(Some(called.clone()), name));
    key.iter().enumerate().map(|(place, name)| column(name).alias(format!("{KEY_PREFIX}{place}"))).collect()
}

/// A row of the target may be changed by one row of the source only.
fn check_once(changes: &[Change], key: &[String]) -> Result<()> {
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    for change in changes {
        let columns: Vec<_> = key.iter().filter_map(|name| change.rows.column_by_name(name).cloned()).collect();
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|error| from_engine(error.into()))?;
        let bytes = converter.convert_columns(&columns).map_err(|error| from_engine(error.into()))?;
        for (row, bytes) in bytes.iter().enumerate() {
            if !seen.insert(bytes.as_ref().to_vec()) {
                let shown: Vec<String> =
                    columns.iter().filter_map(|column| array_value_to_string(column, row).ok()).collect();
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "MERGE would change the row with the key {} more than once; let each row of the table match one row of \
                         the source",
                        shown.join(", ")
                    ),
                ));
            }
        }
    }
    Ok(())
}

//! Counts by value, extremes and numbers of values, without a statement around the filter.

use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::dataframe::DataFrame;
use datafusion::functions_aggregate::expr_fn::{avg, count, count_distinct as distinct, max, min, sum};
use datafusion::logical_expr::{Expr, lit};
use lakemark_table::{Error, ErrorKind, Result, Table};

use crate::api::query::{Query, QueryOptions};
use crate::error::from_engine;

/// How many rows hold each value, or each combination of values, of some columns: these columns, then `count`.
pub async fn group_count(
    table: &Arc<Table>,
    columns: &[String],
    filter: Option<&str>,
    options: &QueryOptions,
) -> Result<DataFrame> {
    if columns.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "group_count needs a column to group by"));
    }
    let query = Query::new(table, options).await?;
    let groups = query.columns(columns)?;
    let counted = query.filtered(filter)?.aggregate(groups, vec![count(lit(1)).alias("count")]);
    counted.map_err(from_engine)
}

/// The least and the greatest value of a column: one row with `min` and `max`.
pub async fn min_max(
    table: &Arc<Table>,
    column: &str,
    filter: Option<&str>,
    options: &QueryOptions,
) -> Result<DataFrame> {
    let extremes = |column: Expr| vec![min(column.clone()).alias("min"), max(column).alias("max")];
    of_column(table, column, filter, options, extremes).await
}

/// The sum and the mean of a column: one row with `sum` and `mean`.
pub async fn sum_mean(
    table: &Arc<Table>,
    column: &str,
    filter: Option<&str>,
    options: &QueryOptions,
) -> Result<DataFrame> {
    let totals = |column: Expr| vec![sum(column.clone()).alias("sum"), avg(column).alias("mean")];
    of_column(table, column, filter, options, totals).await
}

/// How many different values a column has; NULL is none.
pub async fn count_distinct(
    table: &Arc<Table>,
    column: &str,
    filter: Option<&str>,
    options: &QueryOptions,
) -> Result<u64> {
    let counted = of_column(table, column, filter, options, |column| vec![distinct(column)]).await?;
    let batches = counted.collect().await.map_err(from_engine)?;
    let number = batches
        .iter()
        .find(|batch| batch.num_rows() == 1)
        .and_then(|batch| batch.columns().first()?.as_primitive_opt::<Int64Type>()?.values().first().copied());
    number
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a count gave no number"))
}

/// One row with what `measures` makes of a column.
async fn of_column(
    table: &Arc<Table>,
    column: &str,
    filter: Option<&str>,
    options: &QueryOptions,
    measures: impl FnOnce(Expr) -> Vec<Expr>,
) -> Result<DataFrame> {
    let query = Query::new(table, options).await?;
    let column = the_column(&query, column)?;
    query.filtered(filter)?.aggregate(Vec::new(), measures(column)).map_err(from_engine)
}

fn the_column(query: &Query, name: &str) -> Result<Expr> {
    let missing = || Error::new(ErrorKind::Internal, "a column was lost");
    query.columns(&[name.to_owned()])?.pop().ok_or_else(missing)
}

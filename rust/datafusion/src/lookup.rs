//! Rows by key: from keys to row positions to rows, without a query plan in between.
//!
//! ```text
//! keys ─ cast exactly ─▶ column IN (…) ─ probe ─▶ rows of each file ─▶ Parquet pages of these rows
//! ```
//!
//! A statement would be parsed, optimized and planned for more than the time of the reads. Rows that the index does not know
//! for sure are tested, and files that it does not cover are scanned, as in every scan.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{CastOptions, cast_with_options, filter};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::InList;
use datafusion::physical_plan::collect;
use lakemark_table::{Error, ErrorKind, Kind, Result, Snapshot, Table};

use crate::error::from_engine;
use crate::fields::expression;
use crate::query::{Query, QueryOptions};
use crate::scan::{ScanRequest, plan_scan};
use crate::translate::translate;

/// The rows whose value of a column, or field of a struct, is one of `keys`, in no particular order: the named columns, or all of them. The column is
/// the one with an index of the kind `key`, or without any that of the kind `bloom_tree` or `summary`, unless `on` names it. NULL equals nothing, and a key that the column's type cannot hold is in no row.
///
/// # Errors
/// No or several columns with such an index and none named; keys of a type that cannot be compared with the column.
pub async fn lookup(
    table: &Arc<Table>,
    keys: &ArrayRef,
    on: Option<&str>,
    columns: Option<&[String]>,
    options: &QueryOptions,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let query = Query::new(table, options).await?;
    let snapshot = query.snapshot();
    let schema = snapshot.schema();
    let column = match on {
        Some(column) => column.to_owned(),
        None => key_column(snapshot)?,
    };
    let columns = columns.map(|columns| query.positions(columns)).transpose()?;
    let found = snapshot.resolve(&column).and_then(|name| Some((snapshot.field(&name)?, expression(&name))));
    let Some((field, tested)) = found else { return Err(query.unknown_column(&column)) };
    let keys = values_of(keys, field.data_type(), &column)?;
    let output = match &columns {
        Some(columns) => Arc::new(schema.project(columns).map_err(|error| from_engine(error.into()))?),
        None => Arc::clone(&schema),
    };
    if keys.is_empty() {
        return Ok((output, Vec::new()));
    }
    let list = keys.into_iter().map(|key| Expr::Literal(key, None)).collect();
    let filters = [Expr::InList(InList::new(Box::new(tested), list, false))];
    let predicate = translate(&filters, &schema);
    let probe = query.probe(&predicate, false).await?;
    if probe.certain_rows() == Some(0) {
        return Ok((output, Vec::new()));
    }
    let request = ScanRequest {
        location: table.location(),
        snapshot,
        projection: columns.as_ref(),
        filters: &filters,
        limit: None,
        facts: None,
        prober: None,
    };
    let runner = query.runner();
    let plan = plan_scan(&runner.state, &request, probe).await.map_err(from_engine)?;
    let batches = collect(plan, Arc::clone(&runner.task)).await.map_err(from_engine)?;
    Ok((output, batches.into_iter().filter(|batch| batch.num_rows() > 0).collect()))
}

/// The column of the only index of the kind `key`, or of all of them if they have the same; without any, that of the filters.
fn key_column(snapshot: &Snapshot) -> Result<String> {
    let with = |kinds: &[Kind]| -> Vec<String> {
        let indexes = snapshot.indexes().into_iter();
        let kept = indexes.filter(|index| kinds.iter().any(|kind| kind.name() == index.kind));
        let mut columns: Vec<String> = kept.map(|index| index.column).collect();
        columns.sort();
        columns.dedup();
        columns
    };
    let keys = with(&[Kind::Key]);
    let columns = if keys.is_empty() { with(&[Kind::BloomTree, Kind::Summary]) } else { keys };
    match columns.as_slice() {
        [column] => Ok(column.clone()),
        [] => Err(Error::new(
            ErrorKind::NotFound,
            "the table has no index of the kind key, bloom_tree or summary to look keys up in; create one with \
             `lakemark index create TABLE --on COLUMN --using key`, or name a column",
        )),
        several => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the columns {} have an index to look keys up in; name the one that is meant", several.join(", ")),
        )),
    }
}

/// The keys as values of the column, without NULL and without those that its type cannot hold.
fn values_of(keys: &ArrayRef, column_type: &DataType, column: &str) -> Result<Vec<ScalarValue>> {
    let refuse = |why: String| {
        let text =
            format!("keys of type {} cannot be looked up in {column}, which is {column_type}: {why}", keys.data_type());
        Error::new(ErrorKind::InvalidInput, text)
    };
    if *keys.data_type() == DataType::Null {
        return Ok(Vec::new());
    }
    if is_text(keys.data_type()) && !is_text(column_type) {
        // As typed at a prompt: a text that is no such value is a mistake.
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let parsed = cast_with_options(keys, column_type, &strict).map_err(|error| refuse(error.to_string()))?;
        return scalars(&parsed);
    }
    if family(keys.data_type()) != family(column_type) {
        return Err(refuse("they are of another kind; cast them first".to_owned()));
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let held = cast_with_options(keys, column_type, &lenient).map_err(|error| refuse(error.to_string()))?;
    let back = cast_with_options(&held, keys.data_type(), &lenient).map_err(|error| refuse(error.to_string()))?;
    let same = eq(&back, keys).map_err(|error| refuse(error.to_string()))?;
    scalars(&filter(&held, &same).map_err(|error| refuse(error.to_string()))?)
}

fn scalars(array: &ArrayRef) -> Result<Vec<ScalarValue>> {
    let valid = (0..array.len()).filter(|row| array.is_valid(*row));
    valid.map(|row| ScalarValue::try_from_array(array, row).map_err(from_engine)).collect()
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Types whose values can be equal.
fn family(data_type: &DataType) -> u8 {
    match data_type {
        DataType::Dictionary(_, values) => family(values),
        _ if is_text(data_type) => 1,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => 2,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => 3,
        DataType::Time32(_) | DataType::Time64(_) => 4,
        DataType::Boolean => 5,
        _ if data_type.is_numeric() => 6,
        _ => 0,
    }
}

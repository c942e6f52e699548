//! Rows by key: from keys to row positions to rows, without a query plan in between.
//!
//! ```text
//! keys ─ cast exactly ─▶ column IN (…) ─ probe ─▶ rows of each file ─▶ Parquet pages of these rows
//! ```
//!
//! To parse, optimize and plan a statement would take longer than the reads. As in every scan, rows that the index does not know exactly
//! are rechecked, and files without an index are scanned.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, new_null_array};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{CastOptions, and, cast, cast_with_options, filter, is_not_null};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use csv::{ReaderBuilder, StringRecord};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::conjunction;
use datafusion::physical_plan::collect;
use lakemark_format::column;
use lakemark_table::{Error, ErrorKind, IndexKind, Result, Snapshot, Table, null_within};

use crate::api::query::{Query, QueryOptions};
use crate::error::from_engine;
use crate::expr::fields::expression;
use crate::expr::translate::translate;
use crate::expr::types::TextTypes;
use crate::plan::scan::{ScanRequest, plan_scan};

/// Rows in memory, and their columns where there are none.
#[derive(Clone, Debug)]
pub struct RowsWithSchema {
    /// The columns of the rows.
    pub schema: SchemaRef,
    /// The rows; no batch is empty.
    pub batches: Vec<RecordBatch>,
}

/// A column that keys are looked up in.
struct KeyColumn {
    /// Its type.
    field: FieldRef,
    /// Its whole name, if it is a field of a struct.
    name: String,
}

/// Keys as values of a column.
struct KeyValues {
    /// In the type of the column.
    values: ArrayRef,
    /// Which of them are values: not NULL, and none that the type cannot hold.
    are_held: BooleanArray,
}

/// The rows with one of these keys, in no particular order: the named columns, or all of them. A key is a value of one column or field of a
/// struct, or a struct of values of several: by name if the names are those of the columns, else in their order. Unless `on` names the
/// columns, they are those of the one index of the kind `key`, or without any that of the kind `bloom_tree` or `summary`. NULL equals
/// nothing, and a key that the type of a column cannot hold is in no row. Text is read as values of any type. For several columns it is
/// read as values with commas between, quoted as in CSV files.
///
/// # Errors
/// No or several indexes to look keys up in and no column named; keys that cannot be compared with the columns.
pub async fn lookup(
    table: &Arc<Table>,
    keys: &ArrayRef,
    on: &[String],
    columns: Option<&[String]>,
    options: &QueryOptions,
) -> Result<RowsWithSchema> {
    let query = Query::new(table, options).await?;
    let snapshot = query.snapshot();
    let schema = snapshot.schema();
    let on = if on.is_empty() { key_columns(snapshot)? } else { on.to_vec() };
    let columns = columns.map(|columns| query.positions(columns)).transpose()?;
    let named = |column: &String| {
        let found = snapshot.resolve(column).and_then(|name| Some(KeyColumn { field: snapshot.field(&name)?, name }));
        found.ok_or_else(|| query.unknown_column(column))
    };
    let on: Vec<KeyColumn> = on.iter().map(named).collect::<Result<_>>()?;
    let keys = keys_of(keys, &on)?;
    let output = match &columns {
        Some(columns) => Arc::new(schema.project(columns).map_err(|error| from_engine(error.into()))?),
        None => Arc::clone(&schema),
    };
    if keys.first().is_none_or(|first| first.is_empty()) {
        return Ok(RowsWithSchema { schema: output, batches: Vec::new() });
    }
    let filters = filters(&on, &keys)?;
    let names: Vec<String> = on.into_iter().map(|column| column.name).collect();
    let by_columns = translate(&filters, &schema);
    let by_index = snapshot.composite_lookup(&names, &keys);
    let mut probe = query.probe(by_index.as_ref().unwrap_or(&by_columns), false).await?;
    if by_index.is_some() && options.use_index {
        // An index over several columns knows nothing of buffered rows.
        probe.buffered = probe.buffered.map(|buffered| buffered.pruned(&by_columns));
    }
    if probe.exact_row_count() == Some(0) {
        return Ok(RowsWithSchema { schema: output, batches: Vec::new() });
    }
    let request = ScanRequest {
        location: table.location(),
        snapshot,
        types: TextTypes::Declared,
        is_joined: false,
        projection: columns.as_ref(),
        filters: &filters,
        limit: None,
        predicate: options.use_index.then_some(by_index.as_ref().unwrap_or(&by_columns)),
        scan_probe: None,
        prober: None,
    };
    let runner = query.runner();
    let plan = plan_scan(&runner.state, &request, probe).await.map_err(from_engine)?;
    let batches = collect(plan, Arc::clone(&runner.task)).await.map_err(from_engine)?;
    let batches = batches.into_iter().filter(|batch| batch.num_rows() > 0).collect();
    Ok(RowsWithSchema { schema: output, batches })
}

/// The columns of the only index of the kind `key`, or of all of them if they have the same; without any, those of the filters.
fn key_columns(snapshot: &Snapshot) -> Result<Vec<String>> {
    let with = |kinds: &[IndexKind]| -> Vec<Vec<String>> {
        let mut columns = snapshot.columns_of_kinds(kinds);
        columns.sort();
        columns.dedup();
        columns
    };
    let keys = with(&[IndexKind::Key]);
    let indexes = if keys.is_empty() { with(&[IndexKind::BloomTree, IndexKind::Summary]) } else { keys };
    match indexes.as_slice() {
        [columns] => Ok(columns.clone()),
        [] => Err(Error::new(
            ErrorKind::NotFound,
            "the table has no index of the kind key, bloom_tree or summary to look keys up in; create one with \
             `lakemark index create TABLE --on COLUMN --using key`, or name a column",
        )),
        several => {
            let shown: Vec<String> = several.iter().map(|columns| format!("({})", columns.join(", "))).collect();
            Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "there are indexes on {} to look keys up in; name the columns that are meant",
                    shown.join(" and ")
                ),
            ))
        }
    }
}

/// The keys as a column of values for each column that they are of, without those that are in no row.
fn keys_of(keys: &ArrayRef, on: &[KeyColumn]) -> Result<Vec<ArrayRef>> {
    let parts = match on {
        [_] => vec![Arc::clone(keys)],
        several => parts_of(keys, several)?,
    };
    let mut held = Vec::with_capacity(on.len());
    let mut is_held: Option<BooleanArray> = None;
    for (KeyColumn { field, name }, part) in on.iter().zip(&parts) {
        let KeyValues { values, are_held } = values_of(part, field.data_type(), &column::display(name))?;
        held.push(values);
        is_held = Some(match is_held {
            Some(others) => and(&others, &are_held).map_err(|error| from_engine(error.into()))?,
            None => are_held,
        });
    }
    let Some(is_held) = is_held else { return Ok(Vec::new()) };
    let kept = held.iter().map(|values| filter(values, &is_held));
    kept.collect::<Result<_, _>>().map_err(|error| from_engine(error.into()))
}

/// Keys of several columns, taken apart.
fn parts_of(keys: &ArrayRef, on: &[KeyColumn]) -> Result<Vec<ArrayRef>> {
    let shown: Vec<_> = on.iter().map(|of| column::display(&of.name)).collect();
    let refuse = |why: String| {
        let text = format!("a key of {} is a value for each of these columns: {why}", shown.join(", "));
        Error::new(ErrorKind::InvalidInput, text)
    };
    if let Some(rows) = keys.as_struct_opt() {
        let by_name = shown.iter().map(|name| rows.column_by_name(name).cloned()).collect::<Option<Vec<_>>>();
        let parts = by_name.unwrap_or_else(|| rows.columns().to_vec());
        if parts.len() != on.len() {
            return Err(refuse(format!("keys of {} values were given", parts.len())));
        }
        let within = parts.iter().map(|part| null_within(part, rows.nulls()));
        return within.collect::<Result<_, _>>().map_err(|error| from_engine(error.into()));
    }
    if !is_text(keys.data_type()) {
        return Err(refuse(format!("keys of type {} were given", keys.data_type())));
    }
    let texts = cast(keys, &DataType::Utf8).map_err(|error| from_engine(error.into()))?;
    let mut parts: Vec<Vec<Option<String>>> = vec![Vec::new(); on.len()];
    for text in texts.as_string::<i32>() {
        let values = text.map(record).transpose().map_err(|error| refuse(error.to_string()))?;
        if values.as_ref().is_some_and(|values| values.len() != on.len()) {
            return Err(refuse(format!("{:?} is none", text.unwrap_or_default())));
        }
        for (place, part) in parts.iter_mut().enumerate() {
            part.push(values.as_ref().and_then(|values| values.get(place)).map(str::to_owned));
        }
    }
    Ok(parts.into_iter().map(|part| Arc::new(StringArray::from(part)) as ArrayRef).collect())
}

/// Values with commas between, quoted as in CSV files.
fn record(text: &str) -> Result<StringRecord, csv::Error> {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.records();
    let first = records.next().transpose()?.unwrap_or_default();
    // A second line is no part of the key, whose text begins and ends with it.
    Ok(if records.next().is_some() || text.starts_with(['\n', '\r']) { StringRecord::new() } else { first })
}

/// The conditions that a row has one of the keys.
fn filters(on: &[KeyColumn], keys: &[ArrayRef]) -> Result<Vec<Expr>> {
    let mut lists = Vec::with_capacity(on.len());
    let mut values = Vec::with_capacity(on.len());
    for (KeyColumn { name, .. }, keys) in on.iter().zip(keys) {
        let of_column = scalars(keys)?;
        // Lists compare floats by their bits, which distinguishes 0.0 from -0.0. For several columns the conditions below say all.
        if on.len() == 1 || !keys.data_type().is_floating() {
            let different: HashSet<&ScalarValue> = of_column.iter().collect();
            let list = different.into_iter().map(|key| Expr::Literal(key.clone(), None)).collect();
            lists.push(Expr::InList(InList::new(Box::new(expression(name)), list, false)));
        }
        values.push((expression(name), of_column));
    }
    let rows = keys.first().map_or(0, |first| first.len());
    if on.len() > 1 {
        let key = |row: usize| {
            let columns = values.iter().filter_map(|(column, keys)| Some((column, keys.get(row)?)));
            conjunction(columns.map(|(column, key)| column.clone().eq(Expr::Literal(key.clone(), None))))
        };
        lists.extend(any_of((0..rows).filter_map(key).collect()));
    }
    Ok(lists)
}

/// The disjunction of conditions, nested no deeper than it must be: each level of an expression takes some of the stack.
fn any_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    while conditions.len() > 1 {
        let pairs = conditions.chunks(2).map(|pair| pair.iter().cloned().reduce(Expr::or));
        conditions = pairs.collect::<Option<_>>()?;
    }
    conditions.pop()
}

/// The keys as values of the column.
fn values_of(keys: &ArrayRef, column_type: &DataType, column: &str) -> Result<KeyValues> {
    let refuse = |why: String| {
        let text =
            format!("keys of type {} cannot be looked up in {column}, which is {column_type}: {why}", keys.data_type());
        Error::new(ErrorKind::InvalidInput, text)
    };
    if *keys.data_type() == DataType::Null {
        let values = new_null_array(column_type, keys.len());
        return Ok(KeyValues { values, are_held: BooleanArray::from(vec![false; keys.len()]) });
    }
    let valid = |array: &ArrayRef| is_not_null(array).map_err(|error| from_engine(error.into()));
    if is_text(keys.data_type()) && !is_text(column_type) {
        // As typed at a prompt: a text that is no such value is a mistake.
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let parsed = cast_with_options(keys, column_type, &strict).map_err(|error| refuse(error.to_string()))?;
        let are_held = valid(&parsed)?;
        return Ok(KeyValues { values: parsed, are_held });
    }
    if family(keys.data_type()) != family(column_type) {
        return Err(refuse("they are of another kind; cast them first".to_owned()));
    }
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let held = cast_with_options(keys, column_type, &lenient).map_err(|error| refuse(error.to_string()))?;
    let back = cast_with_options(&held, keys.data_type(), &lenient).map_err(|error| refuse(error.to_string()))?;
    let are_held = eq(&back, keys).map_err(|error| refuse(error.to_string()))?;
    Ok(KeyValues { values: held, are_held })
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

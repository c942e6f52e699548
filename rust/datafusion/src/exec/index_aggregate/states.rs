//! Partial states of aggregates, made of values and of how many rows hold each.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat_batches, filter, is_not_null, is_null, nullif};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use lakemark_table::{ColumnMinMax, FileProbe, FileProbes, MinMax, MinMaxRequest, ValueCounts};

use super::request::{AggregateRequest, Measure};
use super::sums::multiplied;
use crate::expr::fields::type_of;

/// What values are read by, and what states are written in.
#[derive(Clone, Copy)]
pub(super) struct StateSchemas<'a> {
    /// The table's columns as the scan gives them.
    pub(super) table: &'a Schema,
    /// The states' columns.
    pub(super) states: &'a SchemaRef,
}

/// One row of states per value or pair of values of these `columns` of the table. The final aggregate puts those of one group together.
/// None if a sum would depend on the order of the rows. `magnitudes` has a number for each measure, which goes from part to part.
pub(super) fn of_values(
    aggregate: &AggregateRequest,
    schemas: StateSchemas<'_>,
    columns: &[String],
    part: &ValueCounts,
    magnitudes: &mut [f64],
) -> Result<Option<RecordBatch>> {
    let StateSchemas { table, states: schema } = schemas;
    let values = columns.iter().zip(&part.values).map(|(column, values)| as_scanned(values, type_of(table, column)));
    let values = values.collect::<Result<Vec<_>>>()?;
    let fields = columns.iter().zip(&values);
    let fields = fields.map(|(column, values)| Field::new(column, values.data_type().clone(), true));
    let values = RecordBatch::try_new(Arc::new(Schema::new(fields.collect::<Vec<_>>())), values)?;
    let rows = part.rows.iter().map(|&rows| to_count(rows)).collect::<Result<Vec<i64>>>()?;
    let groups = aggregate.groups.iter().map(|group| evaluate(group, &values));
    let mut states = groups.collect::<Result<Vec<_>>>()?;
    for (measure, magnitude) in aggregate.measures.iter().zip(magnitudes) {
        let fields: Vec<&DataType> =
            schema.fields().iter().skip(states.len()).take(measure.states()).map(|field| field.data_type()).collect();
        // Measures that count rows are answered with the first column.
        let read = measure.columns();
        let own = match read.is_empty() {
            true => columns.first() == aggregate.columns.first(),
            false => read.iter().all(|column| columns.contains(column)),
        };
        let measured = if own {
            states_of(measure, &values, &rows, &fields, magnitude)?
        } else {
            Some(empty_states(measure, &rows, &fields)?)
        };
        let Some(measured) = measured else { return Ok(None) };
        states.extend(measured);
    }
    batch(schema, states).map(Some)
}

/// Values of a column as a scan gives them.
fn as_scanned(values: &ArrayRef, scanned: Option<&DataType>) -> Result<ArrayRef> {
    match scanned {
        Some(view @ (DataType::Utf8View | DataType::BinaryView)) => Ok(cast(values, view)?),
        _ => Ok(Arc::clone(values)),
    }
}

/// The states of one measure, a row for each value; none if the values do not determine them.
fn states_of(
    measure: &Measure,
    values: &RecordBatch,
    rows: &[i64],
    fields: &[&DataType],
    magnitude: &mut f64,
) -> Result<Option<Vec<ArrayRef>>> {
    let Some(last) = fields.last() else { return Err(internal_datafusion_err!("an aggregate without a state")) };
    Ok(Some(match measure {
        Measure::Count(arguments) => vec![counts(arguments, values, rows)?],
        Measure::Distinct(argument) => vec![lists(&evaluate(argument, values)?, last)?],
        Measure::Least(argument) | Measure::Greatest(argument) => vec![evaluate(argument, values)?],
        Measure::Sum(argument) | Measure::Mean(argument) => {
            let Some(sums) = multiplied(&evaluate(argument, values)?, rows, last, magnitude)? else { return Ok(None) };
            match measure {
                Measure::Mean(_) => {
                    // As in the engine's own states: a count, even 0, says that the group has a mean.
                    let counts = counts(std::slice::from_ref(argument), values, rows)?;
                    vec![nullif(&counts, &is_null(&sums)?)?, sums]
                }
                _ => vec![sums],
            }
        }
    }))
}

/// The states of a measure before the first row, as often as there are values.
fn empty_states(measure: &Measure, rows: &[i64], fields: &[&DataType]) -> Result<Vec<ArrayRef>> {
    let empty = |data_type: &&DataType| match measure {
        Measure::Distinct(_) => lists(&new_null_array(list_item(data_type)?.data_type(), rows.len()), data_type),
        Measure::Count(_) => Ok(zeros(rows)),
        _ => Ok(new_null_array(data_type, rows.len())),
    };
    fields.iter().map(empty).collect()
}

fn zeros(rows: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(vec![0; rows.len()]))
}

/// Rows of `values` that count: those in which no argument is NULL, each as often as it occurs.
fn counts(arguments: &[Arc<dyn PhysicalExpr>], values: &RecordBatch, rows: &[i64]) -> Result<ArrayRef> {
    let arguments = arguments.iter().map(|argument| evaluate(argument, values)).collect::<Result<Vec<_>>>()?;
    let nulls: Vec<_> = arguments.iter().filter_map(|argument| argument.logical_nulls()).collect();
    let is_null = |row: usize| nulls.iter().any(|nulls| nulls.is_null(row));
    let counts = rows.iter().enumerate().map(|(row, &rows)| if is_null(row) { 0 } else { rows });
    Ok(Arc::new(Int64Array::from_iter_values(counts)))
}

/// The state of `COUNT(DISTINCT …)`: a list with the value of each row, or with none for NULL.
fn lists(values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let item = list_item(data_type)?;
    let held = is_not_null(values)?;
    let lengths = held.values().iter().map(usize::from);
    let values = cast(&filter(values, &held)?, item.data_type())?;
    let lists = ListArray::try_new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), values, None)?;
    Ok(Arc::new(lists))
}

fn list_item(data_type: &DataType) -> Result<&FieldRef> {
    match data_type {
        DataType::List(item) => Ok(item),
        other => Err(internal_datafusion_err!("the state of COUNT(DISTINCT) is {other} and no list")),
    }
}

fn evaluate(expr: &Arc<dyn PhysicalExpr>, values: &RecordBatch) -> Result<ArrayRef> {
    let expr = reassign_expr_columns(Arc::clone(expr), &values.schema())?;
    expr.evaluate(values)?.into_array(values.num_rows())
}

/// One row of states per part of a column's bounds, and one for the functions that count rows.
pub(super) fn of_bounds(
    aggregate: &AggregateRequest,
    schema: &SchemaRef,
    requests: &[MinMaxRequest],
    bounds: &MinMax,
    files: &FileProbes,
) -> Result<RecordBatch> {
    let answered = files.listed().filter(|(place, _)| bounds.answered.contains(*place));
    let rows = answered.map(|(_, file)| match file {
        FileProbe::Known { exact, .. } => u64::from(exact.len()),
        FileProbe::Counted { .. } | FileProbe::Unknown => 0,
    });
    let mut states = vec![state_row(aggregate, schema, None, rows.sum())?];
    for (request, parts) in requests.iter().zip(&bounds.columns) {
        for part in parts {
            let part = ColumnPart { column: &request.column, bounds: part };
            states.push(state_row(aggregate, schema, Some(part), 0)?);
        }
    }
    Ok(concat_batches(schema, &states)?)
}

/// A part of the bounds of a column.
#[derive(Clone, Copy)]
struct ColumnPart<'a> {
    /// The whole name of the column.
    column: &'a str,
    /// The bounds of the part.
    bounds: &'a ColumnMinMax,
}

/// The states of one column's part; the others stay as they are before the first row.
fn state_row(
    aggregate: &AggregateRequest,
    schema: &SchemaRef,
    part: Option<ColumnPart<'_>>,
    rows: u64,
) -> Result<RecordBatch> {
    let states = aggregate.measures.iter().zip(schema.fields()).map(|(measure, field)| {
        let own = part.filter(|part| measure.column() == Some(part.column)).map(|part| part.bounds);
        let count = |rows: u64| -> Result<ArrayRef> { Ok(Arc::new(Int64Array::from(vec![to_count(rows)?]))) };
        match (measure, own) {
            (Measure::Count(arguments), None) if measure.counts_rows() => {
                count(if never_null(arguments)? { rows } else { 0 })
            }
            (Measure::Count(_), None) => count(0),
            (Measure::Count(_), Some(part)) => count(part.rows - part.nulls),
            (_, None) => Ok(new_null_array(field.data_type(), 1)),
            (Measure::Least(_), Some(part)) => Ok(Arc::clone(&part.least)),
            (Measure::Greatest(_), Some(part)) => Ok(Arc::clone(&part.greatest)),
            (Measure::Distinct(_) | Measure::Sum(_) | Measure::Mean(_), Some(_)) => {
                Err(internal_datafusion_err!("bounds give extremes and counts only"))
            }
        }
    });
    batch(schema, states.collect::<Result<_>>()?)
}

/// Whether no constant of `COUNT(…)` is NULL.
fn never_null(arguments: &[Arc<dyn PhysicalExpr>]) -> Result<bool> {
    let schema = Schema::new(vec![Field::new("row", DataType::Int64, false)]);
    let row = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int64Array::from(vec![0]))])?;
    for argument in arguments {
        if argument.evaluate(&row)?.into_array(1)?.logical_null_count() > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn to_count(rows: u64) -> Result<i64> {
    i64::try_from(rows).map_err(|_| internal_datafusion_err!("{rows} rows are more than a count can hold"))
}

/// A batch of states, in the types that the partial aggregate has.
fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let columns = columns.into_iter().zip(schema.fields()).map(|(column, field)| {
        Ok(if column.data_type() == field.data_type() { column } else { cast(&column, field.data_type())? })
    });
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_>>()?)?)
}

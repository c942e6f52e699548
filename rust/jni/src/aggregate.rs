//! Aggregates that the indexes answer for every row of the data files: Spark then plans no scan at all.
//!
//! Spark gets whole groups or nothing. Segments give their values and how many rows hold each, and buffered rows are added one by one. This
//! module puts the parts of one group together, in Spark's types: two values of the table may be one in Spark (timestamps finer than
//! microseconds).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Field, Schema};
use arrow::row::{RowConverter, SortField};
use lakemark_format::column;
use lakemark_table::{GroupCountRequest, MinMax, MinMaxRequest, Probe, field_of};
use serde::Deserialize;

use crate::error::{NativeError, Result};
use crate::filter;
use crate::filter_result::SelectedBuffer;
use crate::handle::Pinned;
use crate::plan::probe;
use crate::types::spark_type;

/// The driver keeps all groups in memory; more of them are better computed by tasks.
const MAX_GROUPS: usize = 100_000;
/// Values that are put together on the driver, groups or not; with more of them tasks do it, too.
const MAX_VALUES: usize = 1 << 20;
/// The most digits of a decimal.
const MAX_PRECISION: u8 = 38;
/// By how many digits Spark widens a decimal to sum it.
const SUM_DIGITS: u8 = 10;

/// The aggregate that Spark requests.
#[derive(Debug, Deserialize)]
pub(crate) struct SparkAggregate {
    /// Columns and fields by which rows are grouped; one group of all rows if there are none.
    groups: Vec<String>,
    measures: Vec<SparkMeasure>,
}

#[derive(Debug, Deserialize)]
struct SparkMeasure {
    function: Function,
    /// None for `count_all`.
    column: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Function {
    CountAll,
    Count,
    CountDistinct,
    Min,
    Max,
    Sum,
}

/// One row per group: its values, then the measures in their order. None if the indexes do not know all of it.
pub(crate) async fn answer(pinned: &Pinned, filter: &str, aggregate: &SparkAggregate) -> Result<Option<RecordBatch>> {
    let Some(mut groups) = GroupStates::new(pinned, aggregate)? else { return Ok(None) };
    let result = probe(pinned, filter).await?;
    let Some(rows) = result.exact_row_count() else { return Ok(None) };
    let answered = match aggregate.groups.is_empty() {
        true => groups.add_all_rows(rows) && groups.add_columns(pinned, filter, &result.files).await?,
        false => groups.add_groups(pinned, filter, &result.files).await?,
    };
    if answered && groups.add_buffered(pinned, &result.buffered).await? { groups.finish() } else { Ok(None) }
}

/// Groups while they are put together.
struct GroupStates<'a> {
    aggregate: &'a SparkAggregate,
    keys: Codec,
    /// By measure, for those that keep values.
    values: Vec<Option<Codec>>,
    places: HashMap<Box<[u8]>, usize>,
    /// By group, then by measure.
    states: Vec<Vec<State>>,
}

#[derive(Clone, Debug)]
enum State {
    Rows(i64),
    Values(HashSet<Box<[u8]>>),
    Best(Option<Box<[u8]>>),
    Sum(Option<i128>),
}

impl<'a> GroupStates<'a> {
    /// None if a column has no type that Spark and the index order alike.
    fn new(pinned: &Pinned, aggregate: &'a SparkAggregate) -> Result<Option<Self>> {
        let schema = pinned.snapshot.schema();
        let typed = |name: &String| -> Result<Option<DataType>> {
            let Some(field) = field_of(&schema, name) else { return Ok(None) };
            let known = pinned.snapshot.supports_index_only(name) && !field.data_type().is_floating();
            if known { spark_type(name, field.data_type()).map(Some) } else { Ok(None) }
        };
        let mut keys = Vec::new();
        for name in &aggregate.groups {
            let Some(data_type) = typed(name)? else { return Ok(None) };
            keys.push(data_type);
        }
        let mut values = Vec::new();
        for SparkMeasure { function, column } in &aggregate.measures {
            let Some(name) = column else {
                values.push(None);
                continue;
            };
            let Some(data_type) = typed(name)? else { return Ok(None) };
            let sums = matches!(data_type, DataType::Decimal128(..)) || data_type.is_integer();
            if *function == Function::Sum && !sums {
                return Ok(None);
            }
            values.push(Some(Codec::new(vec![data_type])?));
        }
        let keys = Codec::new(keys)?;
        Ok(Some(Self { aggregate, keys, values, places: HashMap::new(), states: Vec::new() }))
    }

    /// The one group of all rows, which is there also if no row is.
    fn add_all_rows(&mut self, rows: u64) -> bool {
        let Some(states) = self.group(Box::default()) else { return false };
        let Ok(rows) = i64::try_from(rows) else { return false };
        let Some(states) = self.states.get_mut(states) else { return false };
        for (state, measure) in states.iter_mut().zip(&self.aggregate.measures) {
            if let (State::Rows(count), Function::CountAll) = (state, measure.function) {
                *count = rows;
            }
        }
        true
    }

    /// Answers one column after the other; false as soon as one is not known.
    async fn add_columns(&mut self, pinned: &Pinned, filter: &str, probe: &Probe) -> Result<bool> {
        let aggregate = self.aggregate;
        let columns: BTreeSet<&String> =
            aggregate.measures.iter().filter_map(|measure| measure.column.as_ref()).collect();
        for column in columns {
            let of_column = aggregate.measures.iter().filter(|measure| measure.column.as_ref() == Some(column));
            let extremes = |function| matches!(function, Function::Min | Function::Max);
            let by_bounds =
                of_column.clone().all(|measure| extremes(measure.function) || measure.function == Function::Count);
            if by_bounds {
                let extremes = of_column.clone().any(|measure| extremes(measure.function));
                let request = [MinMaxRequest { column: column.clone(), extremes }];
                let bounds = pinned.snapshot.min_max(&request, &probe.files).await?;
                if bounds.answered.are_all() {
                    self.add_bounds(column, &bounds)?;
                    continue;
                }
            }
            if !self.add_counts(pinned, filter, probe, std::slice::from_ref(column)).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn add_groups(&mut self, pinned: &Pinned, filter: &str, probe: &Probe) -> Result<bool> {
        let columns: Vec<String> = self.columns().into_iter().cloned().collect();
        self.add_counts(pinned, filter, probe, &columns).await
    }

    /// The columns of groups and measures.
    fn columns(&self) -> BTreeSet<&'a String> {
        let measured = self.aggregate.measures.iter().filter_map(|measure| measure.column.as_ref());
        self.aggregate.groups.iter().chain(measured).collect()
    }

    /// Whether only sums and the number of rows with a value are requested of a column.
    fn is_summed(&self, column: &String) -> bool {
        let mut of_column =
            self.aggregate.measures.iter().filter(|measure| measure.column.as_ref() == Some(column)).peekable();
        !self.aggregate.groups.contains(column)
            && of_column.peek().is_some()
            && of_column.all(|measure| matches!(measure.function, Function::Sum | Function::Count))
    }

    /// Adds buffered rows, which a filter selected; false if they are too many.
    async fn add_buffered(&mut self, pinned: &Pinned, buffered: &SelectedBuffer) -> Result<bool> {
        let columns = self.columns();
        if buffered.row_count() == 0 || columns.is_empty() {
            return Ok(true);
        }
        let Some(batches) = buffered.values(pinned, &columns).await? else { return Ok(false) };
        for batch in batches {
            let column = |name: &String| batch.column_by_name(name).cloned();
            if !self.add(&column, &vec![1; batch.num_rows()])? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the values of some columns; false if they are not known for every file.
    async fn add_counts(&mut self, pinned: &Pinned, filter: &str, probe: &Probe, columns: &[String]) -> Result<bool> {
        let predicate = filter::parse(filter, &pinned.snapshot.schema())?;
        let summed = columns.iter().find(|column| self.is_summed(column)).map(String::as_str);
        let request = GroupCountRequest {
            columns,
            predicate: &predicate,
            files: &probe.files,
            sum_column: summed,
            only_few_values: false,
        };
        let counts = pinned.snapshot.group_counts(&request).await?;
        let values: usize = counts.parts.iter().map(|part| part.rows.len()).sum();
        if values > MAX_VALUES || !counts.answered.are_all() {
            return Ok(false);
        }
        for part in &counts.parts {
            let column = |name: &String| {
                let place = columns.iter().position(|column| column == name);
                place.and_then(|place| part.values.get(place)).cloned()
            };
            if !self.add(&column, &part.rows)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds values that so many rows hold; false if groups or values become too many, or a number too large.
    fn add(&mut self, column: &dyn Fn(&String) -> Option<ArrayRef>, rows: &[u64]) -> Result<bool> {
        let keys: Vec<ArrayRef> = self.aggregate.groups.iter().filter_map(column).collect();
        let keys = self.keys.encode(&keys, rows.len())?;
        let places: Option<Vec<usize>> = keys.into_iter().map(|key| self.group(key)).collect();
        let Some(places) = places else { return Ok(false) };
        for (number, measure) in self.aggregate.measures.iter().enumerate() {
            let array = measure.column.as_ref().and_then(column);
            if array.is_none() && (measure.column.is_some() || self.aggregate.groups.is_empty()) {
                continue;
            }
            let codec = self.values.get_mut(number).and_then(Option::as_mut);
            let Some(values) = MeasureValues::of(measure.function, array, codec, rows.len())? else { return Ok(false) };
            for (row, (place, rows)) in places.iter().zip(rows).enumerate() {
                let state = self.states.get_mut(*place).and_then(|states| states.get_mut(number));
                let Some(state) = state else { return Err(NativeError::internal("a group has no such measure")) };
                if state.add(measure.function, &values, row, *rows).is_none() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn add_bounds(&mut self, column: &String, bounds: &MinMax) -> Result<()> {
        for part in bounds.columns.iter().flatten() {
            for (number, measure) in self.aggregate.measures.iter().enumerate() {
                if measure.column.as_ref() != Some(column) {
                    continue;
                }
                let Some(state) = self.states.first_mut().and_then(|states| states.get_mut(number)) else { continue };
                let bound = if measure.function == Function::Min { &part.least } else { &part.greatest };
                match (measure.function, self.values.get_mut(number).and_then(Option::as_mut)) {
                    (Function::Min | Function::Max, codec @ Some(_)) => {
                        if let Some(values) = MeasureValues::of(measure.function, Some(Arc::clone(bound)), codec, 1)? {
                            state.add(measure.function, &values, 0, 1);
                        }
                    }
                    _ => {
                        if let State::Rows(count) = state {
                            *count += i64::try_from(part.rows - part.nulls)
                                .map_err(|_| NativeError::internal("too many rows for Java"))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The place of a group; none if there are too many.
    fn group(&mut self, key: Box<[u8]>) -> Option<usize> {
        let next = self.states.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            if next == MAX_GROUPS {
                return None;
            }
            self.states.push(self.aggregate.measures.iter().map(|measure| State::before(measure.function)).collect());
        }
        Some(place)
    }

    fn finish(self) -> Result<Option<RecordBatch>> {
        let mut keys: Vec<(&[u8], usize)> = self.places.iter().map(|(key, place)| (key.as_ref(), *place)).collect();
        keys.sort_unstable();
        let mut columns = self.keys.decode(keys.iter().map(|(key, _)| Some(*key)))?;
        let names = self.aggregate.groups.iter().map(|name| column::display(name));
        let mut fields: Vec<Field> =
            names.zip(&columns).map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
        for (number, codec) in self.values.iter().enumerate() {
            let states = keys.iter().filter_map(|(_, place)| self.states.get(*place)?.get(number));
            let Some(measure) = self.aggregate.measures.get(number) else { continue };
            let Some(result) = finished(measure.function, states, codec.as_ref())? else { return Ok(None) };
            fields.push(Field::new(format!("measure_{number}"), result.values.data_type().clone(), result.nullable));
            columns.push(result.values);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        Ok(Some(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?))
    }
}

/// The values of a measure's column, as the measure needs them.
enum MeasureValues {
    Rows,
    Held(Vec<bool>),
    Encoded(Vec<Option<Box<[u8]>>>),
    Numbers(Vec<Option<i128>>),
}

impl MeasureValues {
    fn of(function: Function, array: Option<ArrayRef>, codec: Option<&mut Codec>, rows: usize) -> Result<Option<Self>> {
        let (Some(array), Some(codec)) = (array, codec) else { return Ok(Some(Self::Rows)) };
        let array = codec.cast(&array, 0)?;
        Ok(Some(match function {
            Function::CountAll => Self::Rows,
            Function::Count => Self::Held((0..array.len()).map(|row| array.is_valid(row)).collect()),
            Function::CountDistinct | Function::Min | Function::Max => {
                let encoded = codec.encode(std::slice::from_ref(&array), rows)?;
                let held = |(row, bytes)| array.is_valid(row).then_some(bytes);
                Self::Encoded(encoded.into_iter().enumerate().map(held).collect())
            }
            Function::Sum => {
                let numbers = match array.data_type() {
                    DataType::Decimal128(..) => array,
                    _ => cast(&array, &DataType::Decimal128(MAX_PRECISION, 0))?,
                };
                Self::Numbers(numbers.as_primitive::<Decimal128Type>().iter().collect())
            }
        }))
    }
}

impl State {
    fn before(function: Function) -> Self {
        match function {
            Function::CountAll | Function::Count => Self::Rows(0),
            Function::CountDistinct => Self::Values(HashSet::new()),
            Function::Min | Function::Max => Self::Best(None),
            Function::Sum => Self::Sum(None),
        }
    }

    /// Adds one value that so many rows hold; none if a number grows too large, or different values become too many.
    fn add(&mut self, function: Function, values: &MeasureValues, row: usize, rows: u64) -> Option<()> {
        match (self, values) {
            (Self::Rows(count), MeasureValues::Rows) => *count = count.checked_add(i64::try_from(rows).ok()?)?,
            (Self::Rows(count), MeasureValues::Held(held)) => {
                if *held.get(row)? {
                    *count = count.checked_add(i64::try_from(rows).ok()?)?;
                }
            }
            (Self::Values(known), MeasureValues::Encoded(encoded)) => {
                known.extend(encoded.get(row)?.clone());
                return (known.len() <= MAX_VALUES).then_some(());
            }
            (Self::Best(best), MeasureValues::Encoded(encoded)) => {
                let Some(value) = encoded.get(row)? else { return Some(()) };
                let better = best.as_ref().is_none_or(|best| (value < best) == (function == Function::Min));
                if better {
                    *best = Some(value.clone());
                }
            }
            (Self::Sum(sum), MeasureValues::Numbers(numbers)) => {
                let Some(value) = numbers.get(row)? else { return Some(()) };
                *sum = Some(sum.unwrap_or(0).checked_add(value.checked_mul(i128::from(rows))?)?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// The column of a measure.
struct MeasureColumn {
    /// A value for each group.
    values: ArrayRef,
    /// Whether one may be NULL.
    nullable: bool,
}

/// A measure's column. None if a sum is too large for its type: then Spark computes the aggregate and says so.
fn finished<'a>(
    function: Function,
    states: impl Iterator<Item = &'a State> + Clone,
    codec: Option<&Codec>,
) -> Result<Option<MeasureColumn>> {
    let counts = |count: &dyn Fn(&State) -> Option<i64>| -> ArrayRef {
        Arc::new(states.clone().map(|state| count(state).unwrap_or(0)).collect::<Int64Array>())
    };
    Ok(match (function, codec) {
        (Function::Min | Function::Max, Some(codec)) => {
            let best = states.map(|state| match state {
                State::Best(best) => best.as_deref(),
                _ => None,
            });
            codec.decode(best)?.pop().map(|values| MeasureColumn { values, nullable: true })
        }
        (Function::Sum, Some(codec)) => {
            let sums = states.map(|state| match state {
                State::Sum(sum) => *sum,
                _ => None,
            });
            summed(sums.collect(), codec.types.first()).map(|values| MeasureColumn { values, nullable: true })
        }
        (Function::CountDistinct, _) => {
            let count = |state: &State| match state {
                State::Values(values) => i64::try_from(values.len()).ok(),
                _ => None,
            };
            Some(MeasureColumn { values: counts(&count), nullable: false })
        }
        _ => {
            let count = |state: &State| match state {
                State::Rows(rows) => Some(*rows),
                _ => None,
            };
            Some(MeasureColumn { values: counts(&count), nullable: false })
        }
    })
}

/// Sums in the type that Spark gives them.
fn summed(sums: Vec<Option<i128>>, of: Option<&DataType>) -> Option<ArrayRef> {
    match of {
        Some(DataType::Decimal128(precision, scale)) => {
            let precision = precision.saturating_add(SUM_DIGITS).min(MAX_PRECISION);
            let limit = 10_i128.checked_pow(precision.into())?;
            let fits = sums.iter().flatten().all(|sum| (1 - limit..limit).contains(sum));
            let sums = Decimal128Array::from(sums).with_precision_and_scale(precision, *scale).ok()?;
            fits.then(|| Arc::new(sums) as ArrayRef)
        }
        _ => {
            let sums = sums.into_iter().map(|sum| sum.map(i64::try_from).transpose());
            sums.collect::<std::result::Result<Int64Array, _>>().ok().map(|sums| Arc::new(sums) as ArrayRef)
        }
    }
}

/// Values of some columns as bytes that are equal, and ordered, as the values are.
struct Codec {
    types: Vec<DataType>,
    converter: RowConverter,
}

impl Codec {
    fn new(types: Vec<DataType>) -> Result<Self> {
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        Ok(Self { types, converter })
    }

    /// An array in the type of a column.
    fn cast(&self, array: &ArrayRef, column: usize) -> Result<ArrayRef> {
        let Some(data_type) = self.types.get(column) else { return Err(NativeError::internal("a column too many")) };
        Ok(cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() })?)
    }

    fn encode(&mut self, columns: &[ArrayRef], rows: usize) -> Result<Vec<Box<[u8]>>> {
        if columns.is_empty() {
            return Ok(vec![Box::default(); rows]);
        }
        let columns: Vec<ArrayRef> =
            columns.iter().enumerate().map(|(place, array)| self.cast(array, place)).collect::<Result<_>>()?;
        let encoded = self.converter.convert_columns(&columns)?;
        Ok(encoded.iter().map(|row| Box::from(row.as_ref())).collect())
    }

    /// The columns again; NULL where there are no bytes.
    fn decode<'a>(&self, encoded: impl Iterator<Item = Option<&'a [u8]>>) -> Result<Vec<ArrayRef>> {
        if self.types.is_empty() {
            return Ok(Vec::new());
        }
        let nulls: Vec<ArrayRef> = self.types.iter().map(|of| arrow::array::new_null_array(of, 1)).collect();
        let null = self.converter.convert_columns(&nulls)?;
        let parser = self.converter.parser();
        let rows = encoded.map(|bytes| bytes.map_or_else(|| null.row(0), |bytes| parser.parse(bytes)));
        Ok(self.converter.convert_rows(rows)?)
    }
}

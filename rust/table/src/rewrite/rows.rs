//! The new rows: found by key, each with its partition, and which of them have a place already.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{cast, interleave_record_batch, take};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::{Error, Result};
use crate::rewrite::conform::{Match, conform_batch};
use crate::rewrite::{Fold, unfit};
use crate::snapshot::Snapshot;

/// The new rows as they will be stored.
pub(super) struct NewRows {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The number of the first row of each batch.
    starts: Vec<usize>,
    key: Key,
    keys: Rows,
    /// Row numbers by key.
    order: Vec<u32>,
    placed: Vec<bool>,
    partitions: Partitions,
    /// The partition of each row.
    partition_of: Vec<u32>,
}

/// Where the columns of the key are, and what makes them comparable.
struct Key {
    columns: Vec<KeyColumn>,
    converter: RowConverter,
}

#[derive(Clone, Copy)]
enum KeyColumn {
    /// A column of the files.
    Stored(usize),
    /// One that is constant in each file.
    Partition(usize),
}

/// The partitions that occur.
struct Partitions {
    /// None for a table without.
    converter: Option<RowConverter>,
    /// Numbers by values in their comparable form.
    numbers: BTreeMap<Vec<u8>, u32>,
    values: Vec<Vec<ArrayRef>>,
}

impl NewRows {
    /// Takes the rows as files of `schema` will have them: the columns of the table's files, in their order, under
    /// stored names.
    pub(super) fn new(snapshot: &Snapshot, fold: &Fold<'_>, schema: &SchemaRef) -> Result<Self> {
        let key = Key::new(snapshot, fold.key, schema)?;
        let mut keys = key.converter.empty_rows(0, 0);
        let mut partitions = Partitions::new(snapshot.partition_columns())?;
        let (mut batches, mut starts, mut partition_of, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for batch in fold.rows.iter().filter(|batch| batch.num_rows() > 0) {
            let values = columns_of(batch, snapshot.partition_columns().iter())?;
            let stored = columns_of(batch, snapshot.file_schema().fields().iter().map(AsRef::as_ref))?;
            let shown = Schema::new(snapshot.file_schema().fields().clone());
            let stored = nullable(&shown, stored, batch.num_rows())
                .and_then(|stored| conform_batch(&stored, schema, Match::Place))
                .map_err(|error| unfit("the updates").with_source(error))?;
            let columns = key.columns(&stored, |place| values.get(place).cloned())?;
            key.converter.append(&mut keys, &columns).map_err(incomparable)?;
            partitions.assign(&values, batch.num_rows(), &mut partition_of)?;
            starts.push(count);
            count += batch.num_rows();
            batches.push(stored);
        }
        let rows = u32::try_from(count)
            .map_err(|_| Error::unsupported("more than 4,294,967,295 rows cannot be folded at once"))?;
        let mut order: Vec<u32> = (0..rows).collect();
        order.sort_unstable_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        let twice = order.windows(2).any(|pair| match pair {
            [a, b] => keys.row(*a as usize) == keys.row(*b as usize),
            _ => false,
        });
        if twice {
            return Err(Error::internal("two of the rows to fold have the same key"));
        }
        let placed = vec![false; count];
        let schema = Arc::clone(schema);
        Ok(Self { schema, batches, starts, key, keys, order, placed, partitions, partition_of })
    }

    /// The number of the partition with these values, if a new row has it.
    pub(super) fn partition_of(&self, values: &[ArrayRef]) -> Result<Option<u32>> {
        self.partitions.find(values)
    }

    /// One value for each partition column.
    pub(super) fn partition_values(&self, partition: u32) -> Vec<ArrayRef> {
        self.partitions.values.get(partition as usize).cloned().unwrap_or_default()
    }

    /// Gives the shadowed rows of a batch to the new rows of the same keys, if those are of the file's partition and
    /// have no place yet. Tells rows of the batch with the numbers of new rows, in order.
    pub(super) fn take_places(
        &mut self,
        batch: &RecordBatch,
        shadowed: &[u32],
        partition_values: &[ArrayRef],
        partition: Option<u32>,
    ) -> Result<Vec<(u32, u32)>> {
        let (Some(partition), false) = (partition, shadowed.is_empty() || self.order.is_empty()) else {
            return Ok(Vec::new());
        };
        let chosen = UInt32Array::from(shadowed.to_vec());
        let first = UInt32Array::from(vec![0; shadowed.len()]);
        let stored = batch.columns().iter().map(|column| take(column, &chosen, None));
        let stored = stored.collect::<Result<Vec<_>, _>>().map_err(incomparable)?;
        let stored = RecordBatch::try_new(batch.schema(), stored).map_err(incomparable)?;
        let constant = |place: usize| take(partition_values.get(place)?, &first, None).ok();
        let columns = self.key.columns(&stored, constant)?;
        let keys = self.key.converter.convert_columns(&columns).map_err(incomparable)?;
        let mut found = Vec::new();
        for (place, key) in shadowed.iter().zip(&keys) {
            let at = self.order.binary_search_by(|row| self.keys.row(*row as usize).cmp(&key));
            let Some(row) = at.ok().and_then(|at| self.order.get(at).copied()) else { continue };
            let is_here = self.partition_of.get(row as usize) == Some(&partition);
            if let Some(placed) = self.placed.get_mut(row as usize).filter(|placed| is_here && !**placed) {
                *placed = true;
                found.push((*place, row));
            }
        }
        Ok(found)
    }

    /// The batch of a new row and its place there.
    pub(super) fn place(&self, row: u32) -> Result<(&RecordBatch, usize)> {
        let batch = self.starts.partition_point(|start| *start <= row as usize).saturating_sub(1);
        let (Some(found), Some(start)) = (self.batches.get(batch), self.starts.get(batch)) else {
            return Err(Error::internal("a row out of range"));
        };
        Ok((found, row as usize - start))
    }

    /// The rows that have no place, by key, of each partition.
    pub(super) fn left(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut left: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for row in &self.order {
            if let (Some(false), Some(partition)) =
                (self.placed.get(*row as usize), self.partition_of.get(*row as usize))
            {
                left.entry(*partition).or_default().push(*row);
            }
        }
        left
    }

    /// These rows, in this order.
    pub(super) fn gather(&self, rows: &[u32]) -> Result<RecordBatch> {
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let place = |row: &u32| {
            let (_, at) = self.place(*row)?;
            Ok((self.starts.partition_point(|start| *start <= *row as usize).saturating_sub(1), at))
        };
        let places = rows.iter().map(place).collect::<Result<Vec<_>>>()?;
        if self.schema.fields().is_empty() || batches.is_empty() {
            return Err(Error::unsupported("a table of partition columns only has no files to fold rows into"));
        }
        interleave_record_batch(&batches, &places).map_err(incomparable)
    }
}

impl Key {
    fn new(snapshot: &Snapshot, names: &[String], schema: &SchemaRef) -> Result<Self> {
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for name in names {
            let stored = snapshot.file_schema().fields().iter().position(|field| field.name() == name);
            let partition = snapshot.partition_columns().iter().position(|field| field.name() == name);
            let (column, field) = match (stored, partition) {
                (Some(place), _) => (KeyColumn::Stored(place), schema.fields().get(place).map(AsRef::as_ref)),
                (None, Some(place)) => (KeyColumn::Partition(place), snapshot.partition_columns().get(place)),
                (None, None) => (KeyColumn::Stored(usize::MAX), None),
            };
            let Some(field) = field else {
                return Err(Error::not_found(format!("there is no column {name}, which the key has")));
            };
            columns.push(column);
            fields.push(SortField::new(field.data_type().clone()));
        }
        if columns.is_empty() {
            return Err(Error::internal("rows cannot be folded without a key"));
        }
        Ok(Self { columns, converter: RowConverter::new(fields).map_err(incomparable)? })
    }

    /// The columns of the key, of rows as they are stored and the partition columns that `constant` tells.
    fn columns(&self, stored: &RecordBatch, constant: impl Fn(usize) -> Option<ArrayRef>) -> Result<Vec<ArrayRef>> {
        let columns = self.columns.iter().map(|column| match column {
            KeyColumn::Stored(place) => stored.columns().get(*place).cloned(),
            KeyColumn::Partition(place) => constant(*place),
        });
        columns.collect::<Option<_>>().ok_or_else(|| Error::internal("a column of the key is missing"))
    }
}

impl Partitions {
    fn new(columns: &[Field]) -> Result<Self> {
        let fields: Vec<_> = columns.iter().map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = if fields.is_empty() { None } else { Some(RowConverter::new(fields).map_err(incomparable)?) };
        Ok(Self { converter, numbers: BTreeMap::new(), values: Vec::new() })
    }

    /// Adds the partition of each row, by the values of its partition columns.
    fn assign(&mut self, values: &[ArrayRef], rows: usize, partition_of: &mut Vec<u32>) -> Result<()> {
        let Some(converter) = &self.converter else {
            if self.values.is_empty() {
                self.values.push(Vec::new());
            }
            partition_of.resize(partition_of.len() + rows, 0);
            return Ok(());
        };
        let encoded = converter.convert_columns(values).map_err(incomparable)?;
        for (row, key) in encoded.iter().enumerate() {
            let number = match self.numbers.get(key.data()) {
                Some(number) => *number,
                None => {
                    let number = self.values.len() as u32;
                    self.values.push(values.iter().map(|column| column.slice(row, 1)).collect());
                    self.numbers.insert(key.data().to_vec(), number);
                    number
                }
            };
            partition_of.push(number);
        }
        Ok(())
    }

    fn find(&self, values: &[ArrayRef]) -> Result<Option<u32>> {
        let Some(converter) = &self.converter else { return Ok((!self.values.is_empty()).then_some(0)) };
        let encoded = converter.convert_columns(values).map_err(incomparable)?;
        Ok(encoded.iter().next().and_then(|key| self.numbers.get(key.data()).copied()))
    }
}

/// The columns of these fields, by name and in their types where those are flat.
fn columns_of<'a>(batch: &RecordBatch, fields: impl Iterator<Item = &'a Field>) -> Result<Vec<ArrayRef>> {
    let columns = fields.map(|field| {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(Error::internal(format!("the rows to fold lack the column {}", field.name())));
        };
        if field.data_type().is_nested() || column.data_type() == field.data_type() {
            return Ok(Arc::clone(column));
        }
        cast(column, field.data_type()).map_err(incomparable)
    });
    columns.collect()
}

/// The columns under the names of `shown`, whatever types they have inside; whether a column takes NULL is seen later.
fn nullable(shown: &Schema, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let fields = shown.fields().iter().zip(&columns);
    let fields: Vec<Field> =
        fields.map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true)).collect();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn incomparable(error: ArrowError) -> Error {
    Error::internal("the rows to fold cannot be compared by key and partition").with_source(error)
}

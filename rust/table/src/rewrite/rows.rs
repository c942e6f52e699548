//! The new rows: found by key, each with its partition, and which of them have a place already.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Field, FieldRef, Fields, Schema, SchemaRef};
use arrow::row::{Row, RowConverter, Rows, SortField};

use crate::error::{Error, Result};
use crate::rewrite::RewriteInput;
use crate::rewrite::row_block::{NumberedRows, RowBlock, columns_of, conformed, incomparable};
use crate::rewrite::row_ids::RowId;
use crate::snapshot::Snapshot;

/// The new rows by key and partition. Of each row the key alone is in memory; the rest is where it was until it is written.
pub(super) struct NewRows {
    source: Arc<NumberedRows>,
    key: ComparableKey,
    keys: Rows,
    /// Row numbers by key.
    order: Vec<u32>,
    placed: Vec<bool>,
    /// Which rows replace a row of a file, in its place or elsewhere.
    replacing: Vec<bool>,
    /// What rows were called before, that are written elsewhere.
    kept: HashMap<u32, RowId>,
    partitions: Partitions,
    /// The partition of each row.
    partition_of: Vec<u32>,
    /// The columns that say the key and the partition of a row, by the names that the table shows.
    needed: SchemaRef,
    partition_columns: Vec<Field>,
    /// How many rows are new: those behind them were in files.
    count: u32,
}

/// What a part says of its rows.
struct PartKeys {
    /// The columns of the key.
    key: Vec<ArrayRef>,
    /// The partition columns.
    partition: Vec<ArrayRef>,
    rows: usize,
}

/// A new row that takes the place of a row of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenPlace {
    /// The row of the file.
    pub position: u32,
    /// The number of the new row.
    pub new_row: u32,
}

/// What becomes of a row, as a feed of changes calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowChange {
    Inserted,
    Deleted,
    /// The row had these values before.
    UpdatedFrom,
    /// The row has these values now.
    UpdatedTo,
}

impl RowChange {
    /// The word of the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inserted => "insert",
            Self::Deleted => "delete",
            Self::UpdatedFrom => "update_preimage",
            Self::UpdatedTo => "update_postimage",
        }
    }
}

/// What became of replaced rows of a file.
pub(super) struct AssignedRows {
    /// The places that new rows take, in order.
    pub here: Vec<TakenPlace>,
    /// Rows that new ones replace which are written to other files, in order.
    pub elsewhere: Vec<TakenPlace>,
}

/// The columns of the key, and what makes them comparable.
struct ComparableKey {
    columns: Vec<KeyColumn>,
    /// Columns of the key that files have, as they are shown and as they are stored.
    shown: Fields,
    stored: SchemaRef,
    converter: RowConverter,
}

#[derive(Clone, Copy)]
enum KeyColumn {
    /// A column of the files, by its place among those of the key.
    Stored(usize),
    /// A column that is constant in each file.
    Partition(usize),
}

/// The partitions that occur.
struct Partitions {
    /// Converts values to their comparable form; none for a table without partitions.
    converter: Option<RowConverter>,
    /// Numbers by values in their comparable form.
    numbers: BTreeMap<Vec<u8>, u32>,
    values: Vec<Vec<ArrayRef>>,
}

impl NewRows {
    /// Reads the keys and partitions of the rows; files will have the columns of `schema`, in its order, under stored names.
    pub(super) async fn new(snapshot: &Snapshot, input: &RewriteInput<'_>, schema: &SchemaRef) -> Result<Self> {
        let source = NumberedRows::new(input.rows, snapshot.file_schema().fields(), schema)?;
        let key = ComparableKey::new(snapshot, input.key, schema)?;
        let mut keys = key.converter.empty_rows(0, 0);
        let mut partitions = Partitions::new(snapshot.partition_columns())?;
        let mut partition_of = Vec::new();
        let needed: Vec<FieldRef> =
            key.shown.iter().cloned().chain(snapshot.partition_columns().iter().cloned().map(Arc::new)).collect();
        let needed: SchemaRef = Arc::new(Schema::new(needed));
        for part in source.parts().iter().filter(|part| part.row_count() > 0) {
            let of = key.of_part(part.as_ref(), &needed, snapshot.partition_columns()).await?;
            key.converter.append(&mut keys, &of.key).map_err(incomparable)?;
            partitions.assign(&of.partition, of.rows, &mut partition_of)?;
        }
        let count = keys.num_rows();
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_unstable_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        let twice = order.windows(2).any(|pair| match pair {
            [a, b] => keys.row(*a as usize) == keys.row(*b as usize),
            _ => false,
        });
        if twice {
            return Err(Error::internal("two of the rows to compact have the same key"));
        }
        Ok(Self {
            source: Arc::new(source),
            key,
            keys,
            order,
            placed: vec![false; count],
            replacing: vec![false; count],
            kept: HashMap::new(),
            partitions,
            partition_of,
            needed,
            partition_columns: snapshot.partition_columns().to_vec(),
            count: count as u32,
        })
    }

    /// Adds rows that were in a file, to be written together with those without a place. Says whether it did: it adds none if a key of
    /// theirs is there already or twice among them, as files of others may have it. `row_ids` say what they are called where the table
    /// tracks rows.
    pub(super) async fn add(&mut self, part: &Arc<dyn RowBlock>, row_ids: Vec<RowId>) -> Result<bool> {
        if part.row_count() == 0 {
            return Ok(true);
        }
        let of = self.key.of_part(part.as_ref(), &self.needed, &self.partition_columns).await?;
        let added = self.key.converter.convert_columns(&of.key).map_err(incomparable)?;
        let mut sorted: Vec<_> = added.iter().collect();
        sorted.sort_unstable();
        let is_twice = sorted.windows(2).any(|pair| matches!(pair, [a, b] if a == b));
        if is_twice || sorted.iter().any(|key| self.row_of(*key).is_some()) {
            return Ok(false);
        }
        let source = self.source.with(Arc::clone(part))?;
        let first = self.keys.num_rows();
        added.iter().for_each(|key| self.keys.push(key));
        self.partitions.assign(&of.partition, of.rows, &mut self.partition_of)?;
        let count = self.keys.num_rows();
        self.source = Arc::new(source);
        self.placed.resize(count, false);
        self.replacing.resize(count, false);
        self.kept.extend((first as u32..count as u32).zip(row_ids));
        self.order.extend(first as u32..count as u32);
        let keys = &self.keys;
        // Rows of files are mostly in order, which this kind of sort makes use of.
        self.order.sort_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        Ok(true)
    }

    /// The row with a key.
    fn row_of(&self, key: Row<'_>) -> Option<u32> {
        let at = self.order.binary_search_by(|row| self.keys.row(*row as usize).cmp(&key)).ok()?;
        self.order.get(at).copied()
    }

    /// How many of these rows are new.
    pub(super) fn count_new(&self, rows: &[u32]) -> u64 {
        rows.iter().filter(|row| **row < self.count).count() as u64
    }

    /// Where the rows are.
    pub(super) fn source(&self) -> &Arc<NumberedRows> {
        &self.source
    }

    /// The columns of the key that files have, as they are stored.
    pub(super) fn key_schema(&self) -> &SchemaRef {
        &self.key.stored
    }

    /// The number of the partition with these values, if a new row has it.
    pub(super) fn partition_of(&self, values: &[ArrayRef]) -> Result<Option<u32>> {
        self.partitions.find(values)
    }

    /// One value for each partition column.
    pub(super) fn partition_values(&self, partition: u32) -> Vec<ArrayRef> {
        self.partitions.values.get(partition as usize).cloned().unwrap_or_default()
    }

    /// What a row is called that is written to another file than the one that it was in.
    pub(super) fn keep(&mut self, row: u32, row_id: RowId) {
        self.kept.entry(row).or_insert(row_id);
    }

    /// What became of a row, after all replaced rows were looked at; none for a row that was in a file before as it is.
    pub(super) fn change_of(&self, row: u32) -> Option<RowChange> {
        let is_replacing = *self.replacing.get(row as usize).filter(|_| row < self.count)?;
        Some(if is_replacing { RowChange::UpdatedTo } else { RowChange::Inserted })
    }

    /// What rows are called that were in other files.
    pub(super) fn take_kept(&mut self) -> HashMap<u32, RowId> {
        std::mem::take(&mut self.kept)
    }

    /// Gives replaced rows of a file to the new rows of the same keys, if those are of the file's partition and have no place yet. `keys`
    /// has the columns of [`key_schema`](Self::key_schema) of the rows at these `positions`. A partition that no new row has is none.
    pub(super) fn assign_positions(
        &mut self,
        keys: &RecordBatch,
        positions: &[u32],
        partition_values: &[ArrayRef],
        partition: Option<u32>,
    ) -> Result<AssignedRows> {
        let first = UInt32Array::from(vec![0; positions.len()]);
        let constant = |place: usize| take(partition_values.get(place)?, &first, None).ok();
        let columns = self.key.columns(keys, constant)?;
        let keys = self.key.converter.convert_columns(&columns).map_err(incomparable)?;
        let mut assigned = AssignedRows { here: Vec::new(), elsewhere: Vec::new() };
        for (position, key) in positions.iter().zip(&keys) {
            let Some(new_row) = self.row_of(key) else { continue };
            let row = new_row as usize;
            let is_here = partition.is_some() && self.partition_of.get(row).copied() == partition;
            let (Some(placed), Some(replacing)) = (self.placed.get_mut(row), self.replacing.get_mut(row)) else {
                continue;
            };
            let place = TakenPlace { position: *position, new_row };
            if is_here && !*placed {
                *placed = true;
                assigned.here.push(place);
            } else if !*replacing {
                assigned.elsewhere.push(place);
            }
            *replacing = true;
        }
        Ok(assigned)
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
}

impl ComparableKey {
    fn new(snapshot: &Snapshot, names: &[String], schema: &SchemaRef) -> Result<Self> {
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        let (mut shown, mut in_files): (Vec<FieldRef>, Vec<FieldRef>) = (Vec::new(), Vec::new());
        for name in names {
            let stored = snapshot.file_schema().fields().iter().position(|field| field.name() == name);
            let partition = snapshot.partition_columns().iter().position(|field| field.name() == name);
            let missing = || Error::not_found(format!("there is no column {name}, which the key has"));
            if let Some(place) = stored {
                let file_schema = snapshot.file_schema();
                let (Some(is), Some(was)) = (schema.fields().get(place), file_schema.fields().get(place)) else {
                    return Err(missing());
                };
                columns.push(KeyColumn::Stored(in_files.len()));
                fields.push(SortField::new(is.data_type().clone()));
                shown.push(Arc::clone(was));
                in_files.push(Arc::clone(is));
            } else {
                let place = partition.ok_or_else(missing)?;
                let field = snapshot.partition_columns().get(place).ok_or_else(missing)?;
                columns.push(KeyColumn::Partition(place));
                fields.push(SortField::new(field.data_type().clone()));
            }
        }
        if columns.is_empty() {
            return Err(Error::internal("rows cannot be compacted without a key"));
        }
        let converter = RowConverter::new(fields).map_err(incomparable)?;
        Ok(Self { columns, shown: shown.into(), stored: Arc::new(Schema::new(in_files)), converter })
    }

    /// What a part says of its rows; `needed` are the columns that this takes.
    async fn of_part(&self, part: &dyn RowBlock, needed: &SchemaRef, partition_columns: &[Field]) -> Result<PartKeys> {
        let batch = part.read(needed, None).await?;
        let partition = columns_of(&batch, partition_columns.iter())?;
        let stored = conformed(&batch, &self.shown, &self.stored)?;
        let key = self.columns(&stored, |place| partition.get(place).cloned())?;
        Ok(PartKeys { key, partition, rows: batch.num_rows() })
    }

    /// The columns of the key: those that files have, and the partition columns that `constant` gives.
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

//! Keys of a table that takes updates: the columns that distinguish its rows, and their values as ordered bytes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::array_value_to_string;
use lakemark_format::{KeyFilter, KeyType};
use lakemark_index::{hash_rows, key_type_of};

use crate::error::{Error, Result};

/// The columns of a key, by the names that the table shows.
#[derive(Debug)]
pub(crate) struct KeyColumns {
    pub names: Vec<String>,
    pub types: Vec<DataType>,
    converter: RowConverter,
    /// Converts the first column alone to bytes, with which bounds of pages are compared.
    first: RowConverter,
}

impl KeyColumns {
    /// The key of these columns of a table.
    pub(crate) fn new(schema: &Schema, names: &[String]) -> Result<Arc<Self>> {
        let mut types = Vec::with_capacity(names.len());
        for name in names {
            let field = schema.field_with_name(name).map_err(|_| {
                Error::not_found(format!(
                    "there is no column {name}, which the key of the table names; add it again, or start a new store"
                ))
            })?;
            types.push(field.data_type().clone());
        }
        let sorted = types.iter().cloned().map(SortField::new).collect::<Vec<_>>();
        let impossible = |error| Error::unsupported("rows cannot be ordered by these columns").with_source(error);
        let first = RowConverter::new(sorted.iter().take(1).cloned().collect()).map_err(impossible)?;
        let converter = RowConverter::new(sorted).map_err(impossible)?;
        Ok(Arc::new(Self { names: names.to_vec(), types, converter, first }))
    }

    /// The types of its columns as filters of runs have them; none if there are types without.
    pub(crate) fn key_types(&self) -> Option<Vec<KeyType>> {
        self.types.iter().map(key_type_of).collect()
    }

    /// The schema of keys alone.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = self.names.iter().zip(&self.types).map(|(name, of)| Field::new(name, of.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The key columns of a batch that has them.
    pub(crate) fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let column = |name: &String| batch.column_by_name(name).cloned();
        let found: Option<Vec<ArrayRef>> = self.names.iter().map(column).collect();
        found.ok_or_else(|| {
            let names = self.names.join(", ");
            Error::invalid(format!("the rows lack a column of the key ({names}); give all of them"))
        })
    }

    /// The keys of a batch as bytes in their order.
    pub(crate) fn encode(&self, batch: &RecordBatch) -> Result<Rows> {
        self.encode_columns(&self.columns(batch)?)
    }

    pub(crate) fn encode_columns(&self, columns: &[ArrayRef]) -> Result<Rows> {
        self.converter
            .convert_columns(columns)
            .map_err(|error| Error::internal("the keys of rows cannot be ordered").with_source(error))
    }

    /// Values of the first column as bytes that sort with keys.
    pub(crate) fn encode_first(&self, values: &ArrayRef) -> Result<Rows> {
        self.first
            .convert_columns(std::slice::from_ref(values))
            .map_err(|error| Error::internal("the bounds of a page cannot be ordered").with_source(error))
    }

    /// The key of a row, for people.
    pub(crate) fn display(&self, batch: &RecordBatch, row: usize) -> String {
        let value = |name: &String| {
            let value = batch.column_by_name(name).and_then(|column| array_value_to_string(column, row).ok());
            format!("{name} = {}", value.unwrap_or_default())
        };
        self.names.iter().map(value).collect::<Vec<_>>().join(", ")
    }
}

/// A key and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlacedKey {
    /// The bytes of the key, by which keys are ordered.
    bytes: Box<[u8]>,
    /// The place of the key in the columns.
    place: u32,
}

/// Different keys.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// One array for each column of the key.
    pub columns: Vec<ArrayRef>,
    /// The keys, ascending.
    sorted: Vec<PlacedKey>,
    places: HashMap<Box<[u8]>, u32>,
    /// The hashes of the keys by their places, once a filter was probed; none if a key has no hash.
    hashes: OnceLock<Option<Vec<u64>>>,
}

impl KeySet {
    /// The keys of rows; of equal ones the last place counts.
    pub(crate) fn of(key: &KeyColumns, columns: Vec<ArrayRef>) -> Result<Self> {
        let rows = key.encode_columns(&columns)?;
        let places: HashMap<Box<[u8]>, u32> =
            rows.iter().zip(0u32..).map(|(row, place)| (Box::from(row.as_ref()), place)).collect();
        let mut sorted: Vec<PlacedKey> =
            places.iter().map(|(key, place)| PlacedKey { bytes: key.clone(), place: *place }).collect();
        sorted.sort_unstable();
        Ok(Self { columns, sorted, places, hashes: OnceLock::new() })
    }

    /// The keys that a run of so many rows may have; none if its filter says nothing.
    pub(crate) fn within(&self, key: &KeyColumns, filter: &KeyFilter, rows: u32) -> Option<Self> {
        if key.key_types().as_ref() != Some(&filter.types) {
            return None;
        }
        let hashes = self.hashes.get_or_init(|| hash_rows(&self.columns)).as_ref()?;
        let may_be = |place: u32| hashes.get(place as usize).is_none_or(|hash| filter.may_contain(rows, *hash));
        let sorted: Vec<PlacedKey> = self.sorted.iter().filter(|key| may_be(key.place)).cloned().collect();
        let places = sorted.iter().map(|key| (key.bytes.clone(), key.place)).collect();
        Some(Self { columns: self.columns.clone(), sorted, places, hashes: OnceLock::new() })
    }

    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether one may begin with NULL, which is in no bounds.
    pub(crate) fn may_begin_with_null(&self) -> bool {
        self.columns.first().is_none_or(|first| first.null_count() > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The bytes of the keys, ascending.
    pub(crate) fn sorted(self) -> Vec<Box<[u8]>> {
        self.sorted.into_iter().map(|key| key.bytes).collect()
    }

    /// The place of a key.
    pub(crate) fn position(&self, key: &[u8]) -> Option<u32> {
        self.places.get(key).copied()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.places.contains_key(key)
    }

    /// The places of the keys that are in these rows, which are in the order of keys.
    pub(crate) fn positions_in(&self, rows: &Rows) -> Vec<u32> {
        let (mut found, mut from) = (Vec::new(), 0);
        for PlacedKey { bytes, .. } in &self.sorted {
            let (mut low, mut high) = (from, rows.num_rows());
            while low < high {
                let middle = low.midpoint(high);
                if rows.row(middle).as_ref() < bytes.as_ref() { low = middle + 1 } else { high = middle }
            }
            from = low;
            if from < rows.num_rows() && rows.row(from).as_ref() == bytes.as_ref() {
                found.extend(u32::try_from(from));
            }
        }
        found
    }

    /// Whether a key begins with a value from `low` to `high`, both inclusive.
    pub(crate) fn meets(&self, low: &[u8], high: &[u8]) -> bool {
        let from = self.sorted.partition_point(|key| key.bytes.as_ref() < low);
        self.sorted.get(from).is_some_and(|key| key.bytes.as_ref() <= high || key.bytes.starts_with(high))
    }

    /// The values of the keys in some of the key's columns.
    pub(crate) fn values(&self, key: &KeyColumns, columns: &[String]) -> Option<Vec<ArrayRef>> {
        let column = |name: &String| self.columns.get(key.names.iter().position(|have| have == name)?);
        let places: UInt32Array = self.sorted.iter().map(|key| key.place).collect();
        columns.iter().map(|name| take(column(name)?.as_ref(), &places, None).ok()).collect()
    }
}

//! Changes as callers give them, checked and made to fit the table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use lakemark_format::Operation;
use lakemark_format::limits::MAX_NAME_LENGTH;

use super::rows::batch;
use crate::error::{Error, ErrorKind, Result};
use crate::snapshot::Snapshot;
use crate::updates::key::KeyColumns;
use crate::values::conform::unknown_field;
use crate::values::exact;
use crate::values::fields::null_fields;

/// One operation on some rows.
#[derive(Clone, Debug)]
pub struct Change {
    /// What is done.
    pub operation: Operation,
    /// The rows. `insert` and `upsert` give all columns of the table, and those that are missing are NULL. `update` gives the key and the
    /// columns that are set, `delete` the key. A struct is given as a whole: fields of it that are missing are NULL.
    pub rows: RecordBatch,
}

/// How changes are written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The sequence number up to which the caller has seen the table, where the changes depend on that. A key that was changed since then
    /// is a conflict.
    pub read_at: Option<u64>,
    /// The state that the caller has read, where the changes depend on that. A key whose row other writers changed in the data files since
    /// then is a conflict. No sequence number shows such a change.
    pub read: Option<Arc<Snapshot>>,
    /// The caller's name for the call, so that the call is made once, however often the caller repeats it.
    pub transaction: Option<Transaction>,
}

/// A number that an application gives to a call: what Delta calls an application transaction (`txnAppId`, `txnVersion`).
///
/// A call is left out if the application made one with this number, or a higher one, before. That holds after a crash, from another
/// process, and when the changes are in the data files by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The application's name.
    pub application: String,
    /// The number, which ascends from call to call.
    pub version: u64,
}

impl Transaction {
    /// The transaction as the log has it.
    pub(crate) fn tag(&self) -> Result<String> {
        if self.application.is_empty() || self.application.len() > MAX_NAME_LENGTH / 2 {
            return Err(Error::invalid(format!(
                "the name of an application has {} bytes; give one of 1 to {}",
                self.application.len(),
                MAX_NAME_LENGTH / 2
            )));
        }
        Ok(format!("{} {}", self.version, self.application))
    }

    /// The transaction that a tag of the log names, if the tag names one.
    pub(crate) fn of_tag(tag: &str) -> Option<Self> {
        let (version, application) = tag.split_once(' ')?;
        let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
        let version = version.parse().ok().filter(|_| is_number && !application.is_empty())?;
        Some(Self { application: application.to_owned(), version })
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The sequence number of the changes. Of a call that was made before it is that call's, or a later one's.
    pub sequence: u64,
    /// Rows of the changes; none of a call that was made before.
    pub rows: u64,
}

/// The change in the table's types, without columns that the operation does not need.
///
/// # Errors
/// Columns that the table does not have, values that do not fit, NULL in a key or in a column that does not allow it, a key that is given
/// twice.
pub(crate) fn fitted(change: &Change, table: &SchemaRef, key: &KeyColumns) -> Result<RecordBatch> {
    let Change { operation, rows } = change;
    if let Some(field) = rows.schema().fields().iter().find(|field| table.field_with_name(field.name()).is_err()) {
        let columns: Vec<&str> = table.fields().iter().map(|field| field.name().as_str()).collect();
        return Err(Error::new(
            ErrorKind::SchemaMismatch,
            format!("the table has no column {}; its columns are {}", field.name(), columns.join(", ")),
        ));
    }
    for (place, field) in rows.schema().fields().iter().enumerate() {
        if rows.schema().fields().iter().take(place).any(|before| before.name() == field.name()) {
            return Err(Error::invalid(format!("the rows have the column {} twice; give it once", field.name())));
        }
    }
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for field in table.fields() {
        let is_key = key.names.contains(field.name());
        let given = rows.column_by_name(field.name());
        let column = match (operation, given) {
            (Operation::Delete, _) if !is_key => continue,
            (Operation::Update, None) if !is_key => continue,
            (_, Some(column)) => {
                refuse_unknown_fields(column.data_type(), field)?;
                null_fields(&cast_exactly(column, field)?).map_err(|error| {
                    Error::internal(format!("fields of {} cannot be NULL", field.name())).with_source(error)
                })?
            }
            (_, None) if is_key => return Err(lacks_key(*operation, key)),
            (_, None) => new_null_array(field.data_type(), rows.num_rows()),
        };
        // Others may have left rows without a key, which can only be deleted.
        let may_be_null = if is_key { *operation == Operation::Delete } else { field.is_nullable() };
        if column.null_count() > 0 && !may_be_null {
            return Err(holds_null(field, &column, is_key));
        }
        fields.push(Arc::clone(field));
        columns.push(column);
    }
    if *operation == Operation::Update && columns.len() == key.names.len() {
        return Err(Error::invalid("an update names no column beside the key; give those that are to be set"));
    }
    let fitted = batch(&Arc::new(arrow::datatypes::Schema::new(fields)), columns, rows.num_rows())?;
    match operation {
        // A statement that finds a key twice in the table names the key twice, and means all of its rows.
        Operation::Delete => once(&fitted, key),
        Operation::Update => {
            let different = different_rows(&fitted)?;
            check_unique(&different, key).map(|()| different)
        }
        Operation::Insert | Operation::Upsert => check_unique(&fitted, key).map(|()| fitted),
    }
}

/// Whether all values of a change say the same in the table's types as in those that they were given in, whatever types the columns have
/// later. Columns that the table lacks are an error of [`fitted`].
pub(crate) fn is_kept(change: &Change, table: &SchemaRef) -> bool {
    let rows = &change.rows;
    rows.schema_ref().fields().iter().zip(rows.columns()).all(|(field, values)| {
        match table.field_with_name(field.name()) {
            Ok(column) => exact::is_kept(values, column.data_type()),
            Err(_) => true,
        }
    })
}

/// The first row of each key.
pub(crate) fn once(rows: &RecordBatch, key: &KeyColumns) -> Result<RecordBatch> {
    first_of_each(rows, &keys_of(rows, key)?)
}

/// The first of equal rows, where all of them can be compared.
fn different_rows(rows: &RecordBatch) -> Result<RecordBatch> {
    let fields = rows.schema_ref().fields().iter().map(|field| SortField::new(field.data_type().clone()));
    match RowConverter::new(fields.collect()).and_then(|converter| converter.convert_columns(rows.columns())) {
        Ok(bytes) => first_of_each(rows, &bytes),
        Err(_) => Ok(rows.clone()),
    }
}

fn first_of_each(rows: &RecordBatch, bytes: &Rows) -> Result<RecordBatch> {
    let mut seen = HashSet::with_capacity(rows.num_rows());
    let is_first: BooleanArray = bytes.iter().map(|row| Some(seen.insert(row))).collect();
    if is_first.true_count() == rows.num_rows() {
        return Ok(rows.clone());
    }
    filter_record_batch(rows, &is_first).map_err(|error| Error::internal("rows cannot be filtered").with_source(error))
}

fn lacks_key(operation: Operation, key: &KeyColumns) -> Error {
    Error::invalid(format!(
        "the rows of the {} lack a column of the key ({}); give all of them",
        operation.name(),
        key.names.join(", ")
    ))
}

fn holds_null(field: &Field, column: &ArrayRef, is_key: bool) -> Error {
    let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or_default();
    let why = if is_key { "is part of the key" } else { "may not be NULL" };
    Error::invalid(format!("row {row} has no value for {}, which {why}; give one, or leave the row out", field.name()))
}

fn check_unique(rows: &RecordBatch, key: &KeyColumns) -> Result<()> {
    let keys = key.encode(rows)?;
    let mut seen: HashMap<&[u8], usize> = HashMap::with_capacity(rows.num_rows());
    let bytes: Vec<_> = keys.iter().collect();
    for (row, key_of_row) in bytes.iter().enumerate() {
        if let Some(first) = seen.insert(key_of_row.as_ref(), row) {
            return Err(Error::invalid(format!(
                "the key {} stands in rows {first} and {row} of one batch; keep one of them",
                key.display(rows, row)
            )));
        }
    }
    Ok(())
}

/// The keys of rows whose columns may have other types than the table's, as bytes in their order.
pub(crate) fn keys_of(rows: &RecordBatch, key: &KeyColumns) -> Result<Rows> {
    let given = key.columns(rows)?;
    let types = key.names.iter().zip(&key.types).zip(&given);
    let cast = types.map(|((name, of), column)| cast_exactly(column, &Field::new(name, of.clone(), true)));
    key.encode_columns(&cast.collect::<Result<Vec<_>>>()?)
}

/// A value for a field that the table lacks would be lost.
fn refuse_unknown_fields(given: &DataType, field: &Field) -> Result<()> {
    let Some(unknown) = unknown_field(given, field.data_type()) else { return Ok(()) };
    let (name, of) = (field.name(), field.data_type());
    let text = format!("the rows have the field {unknown} in the column {name}, which is {of}; leave it out");
    Err(Error::new(ErrorKind::SchemaMismatch, text))
}

/// The same values in another type, or an error if one of them does not fit.
pub(crate) fn cast_exactly(column: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    exact::cast_exactly(column, field.data_type()).map_err(|misfit| {
        let (name, of, given) = (field.name(), field.data_type(), column.data_type());
        let text = match (misfit.row, &misfit.value) {
            (Some(row), Some(value)) => {
                let (inside, wanted) = (&misfit.inside, &misfit.target);
                let what = if misfit.loses_digits { "cast it first" } else { "give a value that fits it" };
                format!("row {row} has {value} for {name}{inside}, which is {wanted}; {what}")
            }
            _ => format!("the column {name} is {of}, the rows have {given} that does not fit it; cast it first"),
        };
        Error::new(ErrorKind::SchemaMismatch, text).with_source(misfit)
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        AsArray, Decimal128Array, Float64Array, Int64Array, StringArray, StructArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::{Int64Type, TimeUnit};

    use super::*;

    fn fit(given: ArrayRef, wanted: DataType) -> Result<ArrayRef> {
        cast_exactly(&given, &Field::new("c", wanted, true))
    }

    #[test]
    fn values_that_a_cast_would_cut_are_errors() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(2.5)]));
        let cents: ArrayRef = Arc::new(Decimal128Array::from(vec![125]).with_precision_and_scale(5, 2).unwrap());
        let moment: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_000_001]));
        for (given, wanted, says) in [
            (&floats, DataType::Int64, "row 2 has 2.5 for c, which is Int64"),
            (&cents, DataType::Decimal128(5, 1), "row 0 has 1.25 for c"),
            (&cents, DataType::Int32, "row 0 has 1.25 for c"),
            (&moment, DataType::Timestamp(TimeUnit::Millisecond, None), "row 0 has 1970-01-01T00:00:01.000001 for c"),
            (&moment, DataType::Date32, "row 0 has 1970-01-01T00:00:01.000001 for c"),
        ] {
            let error = fit(Arc::clone(given), wanted).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::SchemaMismatch);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn fields_of_structs_are_taken_by_name() {
        let structs = |names: [&str; 2]| -> ArrayRef {
            let column = |name: &str, value| {
                (Arc::new(Field::new(name, DataType::Int64, true)), Arc::new(Int64Array::from(vec![value])) as ArrayRef)
            };
            Arc::new(StructArray::from(vec![column(names[0], 1), column(names[1], 2)]))
        };
        let wanted = structs(["a", "b"]);
        assert_eq!(&fit(structs(["a", "b"]), wanted.data_type().clone()).unwrap(), &wanted);
        let turned = fit(structs(["b", "a"]), wanted.data_type().clone()).unwrap();
        assert_eq!(turned.as_struct().column(0).as_primitive::<Int64Type>().values(), &[2]);
        let field = Field::new("c", wanted.data_type().clone(), true);
        let error = refuse_unknown_fields(structs(["a", "x"]).data_type(), &field).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SchemaMismatch);
        assert!(error.to_string().contains("the rows have the field x in the column c, which is Struct"), "{error}");
        assert!(refuse_unknown_fields(wanted.data_type(), &field).is_ok());
    }

    #[test]
    fn values_that_fit_are_cast() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None]));
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
        assert_eq!(&fit(Arc::clone(&floats), DataType::Int64).unwrap(), &integers);
        assert_eq!(&fit(integers, DataType::Float64).unwrap(), &floats);
        let tenth: ArrayRef = Arc::new(Float64Array::from(vec![0.1]));
        assert!(fit(tenth, DataType::Float32).is_ok());
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["2024-05-06"]));
        assert_eq!(fit(texts, DataType::Date32).unwrap().data_type(), &DataType::Date32);
    }
}

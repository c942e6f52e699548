//! Parts of nested columns: which fields of structs Spark reads, and where they lie in a file.
//!
//! Spark says what it reads as a schema in which structs have only the fields that a query needs, also inside of lists and maps. A file is
//! read by its leaves, which stand in the order of a walk through its schema:
//!
//! ```text
//! columns of a file    id   place: { city, point: { x, y } }   tags: [ { name, by } ]
//! leaves               0             1              2  3                 4     5
//! Spark reads               place: { point: { y } }            tags: [ { name } ]
//! leaves that are read                           3                       4
//! ```

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use lakemark_format::column;
use lakemark_table::{ErrorKind, item_of, null_within};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::error::{NativeError, Result};

/// A column or a field as Spark's schemas say it in JSON.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedField {
    pub(crate) name: String,
    #[serde(rename = "type")]
    shape: FieldShape,
}

/// Which parts of a value are read.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FieldShape {
    Parts(Parts),
    /// A type without fields inside.
    Whole(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Parts {
    Struct { fields: Vec<RequestedField> },
    Array { element_type: Box<FieldShape> },
    Map { key_type: Box<FieldShape>, value_type: Box<FieldShape> },
}

/// The requested columns in the order of the request, with nothing inside but what is requested.
pub(crate) fn requested_fields(have: &Fields, requested: &[RequestedField]) -> Result<Fields> {
    fields_at(&[], have, requested)
}

/// The same for the fields inside of what these names lead to.
fn fields_at(way: &[&str], have: &Fields, requested: &[RequestedField]) -> Result<Fields> {
    let field = |requested: &RequestedField| -> Result<FieldRef> {
        let way = [way, &[requested.name.as_str()]].concat();
        let Some(field) = named(have, &requested.name) else {
            let (what, way) = (if way.len() == 1 { "column" } else { "field" }, way.join("."));
            return Err(NativeError::new(
                ErrorKind::NotFound,
                format!("the table has no {what} '{way}' any more; load it again"),
            ));
        };
        with_parts(&way, field, &requested.shape)
    };
    requested.iter().map(field).collect()
}

fn with_parts(way: &[&str], field: &FieldRef, shape: &FieldShape) -> Result<FieldRef> {
    let FieldShape::Parts(parts) = shape else { return Ok(Arc::clone(field)) };
    let data_type = match (field.data_type(), parts) {
        (DataType::Struct(fields), Parts::Struct { fields: requested }) => {
            DataType::Struct(fields_at(way, fields, requested)?)
        }
        (DataType::List(item), Parts::Array { element_type }) => DataType::List(with_parts(way, item, element_type)?),
        (DataType::LargeList(item), Parts::Array { element_type }) => {
            DataType::LargeList(with_parts(way, item, element_type)?)
        }
        (DataType::FixedSizeList(item, length), Parts::Array { element_type }) => {
            DataType::FixedSizeList(with_parts(way, item, element_type)?, *length)
        }
        (DataType::Map(entries, is_sorted), Parts::Map { key_type, value_type }) => {
            let DataType::Struct(fields) = entries.data_type() else { return Ok(Arc::clone(field)) };
            let parts = fields.iter().zip([key_type, value_type]).map(|(field, shape)| with_parts(way, field, shape));
            let entries = entries.as_ref().clone().with_data_type(DataType::Struct(parts.collect::<Result<_>>()?));
            DataType::Map(Arc::new(entries), *is_sorted)
        }
        // Spark knows the column by another type than the table has; the cast of the column reports that.
        _ => return Ok(Arc::clone(field)),
    };
    Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
}

/// What a table has and a schema of Spark's lacks, which may be older than the table.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct UnknownColumns {
    columns: Vec<String>,
    /// Fields inside of columns that Spark has, with the way to them.
    fields: Vec<String>,
}

impl UnknownColumns {
    pub(crate) fn of(have: &Fields, known: &[RequestedField]) -> Self {
        let mut unknown = Self::default();
        unknown.add_fields(&[], have, known);
        unknown
    }

    fn add_fields(&mut self, way: &[&str], have: &Fields, known: &[RequestedField]) {
        for field in have {
            let way = [way, &[field.name().as_str()]].concat();
            match known.iter().find(|known| known.name == *field.name()) {
                Some(known) => self.add(&way, field.data_type(), &known.shape),
                None if way.len() == 1 => self.columns.push(field.name().clone()),
                None => self.fields.push(way.join(".")),
            }
        }
    }

    fn add(&mut self, way: &[&str], have: &DataType, known: &FieldShape) {
        let FieldShape::Parts(parts) = known else { return };
        match (have, parts) {
            (DataType::Struct(fields), Parts::Struct { fields: known }) => self.add_fields(way, fields, known),
            (DataType::Map(entries, _), Parts::Map { key_type, value_type }) => {
                let DataType::Struct(fields) = entries.data_type() else { return };
                for (field, known) in fields.iter().zip([key_type, value_type]) {
                    self.add(way, field.data_type(), known);
                }
            }
            (list, Parts::Array { element_type }) => {
                if let Some(item) = item_of(list) {
                    self.add(way, item.data_type(), element_type);
                }
            }
            _ => {}
        }
    }
}

/// The leaves of a file that have what is `wanted` of its columns.
pub(crate) fn leaves(file: &Fields, wanted: &Schema) -> Vec<usize> {
    let mut walk = LeafWalk::default();
    walk.add_fields(file, wanted.fields());
    walk.found
}

/// A walk through the leaves of a file.
#[derive(Default)]
struct LeafWalk {
    next: usize,
    found: Vec<usize>,
}

impl LeafWalk {
    fn add_fields(&mut self, have: &Fields, wanted: &Fields) {
        for field in have {
            match named(wanted, field.name()) {
                Some(wanted) => self.add(field.data_type(), wanted.data_type()),
                None => self.next += count(field.data_type()),
            }
        }
    }

    fn add(&mut self, have: &DataType, wanted: &DataType) {
        match (have, wanted) {
            (DataType::Struct(have), DataType::Struct(wanted)) => {
                let (first, before) = (self.next, self.found.len());
                self.add_fields(have, wanted);
                // Any field says where the struct is NULL.
                if self.found.len() == before {
                    self.add_cheapest(have, first);
                }
            }
            (DataType::Map(have, _), DataType::Map(wanted, _)) => match (have.data_type(), wanted.data_type()) {
                (DataType::Struct(have), DataType::Struct(wanted)) => {
                    // Keys and values have their places, however they are called.
                    for (have, wanted) in have.iter().zip(wanted) {
                        self.add(have.data_type(), wanted.data_type());
                    }
                }
                _ => self.add_all(have.data_type()),
            },
            (have, wanted) => match (item_of(have), item_of(wanted)) {
                (Some(have), Some(wanted)) => self.add(have.data_type(), wanted.data_type()),
                _ => self.add_all(have),
            },
        }
    }

    /// The field with the fewest leaves, whole: a map is no map without its values. The first leaf of the struct is `first`.
    fn add_cheapest(&mut self, have: &Fields, first: usize) {
        let mut start = first;
        let fields = have.iter().map(|field| {
            let leaves = start..start + count(field.data_type());
            start = leaves.end;
            leaves
        });
        self.found.extend(fields.filter(|leaves| !leaves.is_empty()).min_by_key(Range::len).into_iter().flatten());
    }

    fn add_all(&mut self, have: &DataType) {
        let end = self.next + count(have);
        self.found.extend(self.next..end);
        self.next = end;
    }
}

/// How many leaves a column of a type has.
fn count(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| count(field.data_type())).sum(),
        DataType::Map(entries, _) => count(entries.data_type()),
        other => item_of(other).map_or(1, |item| count(item.data_type())),
    }
}

/// Columns, and fields of structs under their whole names, as columns of their own: NULL where a struct around a field is.
pub(crate) fn flattened(rows: &RecordBatch, names: &BTreeSet<&String>) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    for name in names {
        let Some(values) = values_of(rows, name)? else {
            let name = column::display(name);
            return Err(NativeError::internal(format!("buffered rows have no column '{name}'")));
        };
        fields.push(Field::new(name.as_str(), values.data_type().clone(), true));
        columns.push(values);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
}

fn values_of(rows: &RecordBatch, name: &str) -> Result<Option<ArrayRef>, ArrowError> {
    let mut names = column::names(name);
    let Some(column) = names.next().and_then(|root| rows.column_by_name(root)) else { return Ok(None) };
    let mut values = Arc::clone(column);
    for name in names {
        let Some(outer) = values.as_struct_opt() else { return Ok(None) };
        let Some(inner) = outer.column_by_name(name) else { return Ok(None) };
        values = null_within(inner, outer.nulls())?;
    }
    Ok(Some(values))
}

/// The columns around these columns and fields.
pub(crate) fn roots<'a>(names: &BTreeSet<&'a String>) -> BTreeSet<&'a str> {
    names.iter().filter_map(|name| column::names(name).next()).collect()
}

fn named<'a>(fields: &'a Fields, name: &str) -> Option<&'a FieldRef> {
    fields.iter().find(|field| field.name() == name)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StructArray};
    use arrow::buffer::NullBuffer;
    use serde_json::json;

    use super::*;

    fn flat(name: &str) -> Field {
        Field::new(name, DataType::Int32, true)
    }

    fn of_fields(name: &str, fields: Vec<Field>) -> Field {
        Field::new(name, DataType::Struct(fields.into()), true)
    }

    fn list(name: &str, item: Field) -> Field {
        Field::new(name, DataType::List(Arc::new(item)), true)
    }

    fn map(name: &str, value: Field) -> Field {
        let fields = vec![Field::new("key", DataType::Utf8, false), value];
        let entries = Field::new("entries", DataType::Struct(fields.into()), false);
        Field::new(name, DataType::Map(Arc::new(entries), false), true)
    }

    /// id; place: {city, point: {x, y}}; tags: [{name, by}]; notes: {text -> {at, by}}; last
    fn table() -> Fields {
        Fields::from(vec![
            flat("id"),
            of_fields("place", vec![flat("city"), of_fields("point", vec![flat("x"), flat("y")])]),
            list("tags", of_fields("item", vec![flat("name"), flat("by")])),
            map("notes", of_fields("value", vec![flat("at"), flat("by")])),
            flat("last"),
        ])
    }

    fn part(name: &str, fields: &serde_json::Value) -> serde_json::Value {
        json!({"name": name, "type": {"type": "struct", "fields": fields}, "nullable": true, "metadata": {}})
    }

    fn leaf(name: &str) -> serde_json::Value {
        json!({"name": name, "type": "integer", "nullable": true, "metadata": {}})
    }

    fn requested(columns: serde_json::Value) -> Result<Schema> {
        let requested: Vec<RequestedField> = serde_json::from_value(columns).expect("a schema of Spark's");
        requested_fields(&table(), &requested).map(Schema::new)
    }

    #[test]
    fn only_the_requested_fields_are_left_in_the_requested_order() {
        let tags = json!({"type": "array", "elementType": {"type": "struct", "fields": [leaf("by")]}});
        let notes = json!({
            "type": "map", "keyType": "string", "valueType": {"type": "struct", "fields": [leaf("by")]}
        });
        let schema = requested(json!([
            leaf("last"),
            part("place", &json!([part("point", &json!([leaf("y")]))])),
            {"name": "notes", "type": notes},
            {"name": "tags", "type": tags},
        ]));
        let expected = Fields::from(vec![
            flat("last"),
            of_fields("place", vec![of_fields("point", vec![flat("y")])]),
            map("notes", of_fields("value", vec![flat("by")])),
            list("tags", of_fields("item", vec![flat("by")])),
        ]);
        let schema = schema.expect("columns of the table");
        assert_eq!(*schema.fields(), expected);
        assert_eq!(leaves(&table(), &schema), [3, 5, 6, 8, 9]);
    }

    #[test]
    fn a_type_of_another_kind_is_the_whole_column() {
        let schema = requested(json!([{"name": "place", "type": {"type": "udt", "sqlType": "integer"}}, leaf("tags")]));
        let schema = schema.expect("columns of the table");
        assert_eq!(schema.field(0), table()[1].as_ref());
        assert_eq!(leaves(&table(), &schema), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_field_that_the_table_lacks_is_an_error() {
        let error = requested(json!([part("place", &json!([leaf("street")]))])).expect_err("no such field");
        assert_eq!(error.kind, ErrorKind::NotFound);
        assert!(error.to_string().contains("the table has no field 'place.street' any more"), "{error}");
    }

    #[test]
    fn columns_and_fields_that_an_older_schema_lacks_are_found() {
        let of = |fields: &serde_json::Value| json!({"type": "struct", "fields": fields});
        let known = json!([
            leaf("id"),
            part("place", &json!([part("point", &json!([leaf("y")]))])),
            {"name": "tags", "type": {"type": "array", "elementType": of(&json!([leaf("name")]))}},
            {"name": "notes", "type": {"type": "map", "keyType": "string", "valueType": of(&json!([leaf("by")]))}},
        ]);
        let known: Vec<RequestedField> = serde_json::from_value(known).expect("a schema of Spark's");
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let fields = texts(&["place.city", "place.point.x", "tags.by", "notes.at"]);
        assert_eq!(UnknownColumns::of(&table(), &known), UnknownColumns { columns: texts(&["last"]), fields });
        let whole: Vec<RequestedField> =
            serde_json::from_value(json!(["id", "place", "tags", "notes", "last"].map(leaf))).expect("a schema");
        assert_eq!(UnknownColumns::of(&table(), &whole), UnknownColumns::default());
    }

    #[test]
    fn a_struct_without_any_requested_field_is_read_by_another() {
        let file = Fields::from(vec![flat("id"), of_fields("place", vec![flat("old"), flat("older")]), flat("last")]);
        let schema = requested(json!([part("place", &json!([leaf("city")])), leaf("last")])).expect("columns");
        assert_eq!(leaves(&file, &schema), [1, 3]);
        let empty = requested(json!([part("place", &json!([]))])).expect("columns");
        assert_eq!(leaves(&file, &empty), [1]);
        // A map is read with its values, and only if there is nothing cheaper.
        let place = |fields: Vec<Field>| Fields::from(vec![flat("id"), of_fields("place", fields), flat("last")]);
        assert_eq!(leaves(&place(vec![map("props", flat("value"))]), &empty), [1, 2]);
        assert_eq!(leaves(&place(vec![map("props", flat("value")), flat("old")]), &empty), [3]);
    }

    #[test]
    fn fields_are_columns_and_null_where_a_struct_is() {
        let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let around = |name: &str, array: ArrayRef, valid: Vec<bool>| -> ArrayRef {
            let fields = Fields::from(vec![Field::new(name, array.data_type().clone(), true)]);
            Arc::new(StructArray::new(fields, vec![array], Some(NullBuffer::from(valid))))
        };
        let point = around("x", x, vec![true, true, false]);
        let rows = RecordBatch::try_from_iter([("place", around("point", point, vec![true, true, true]))]).unwrap();
        let (x, place) = ("place\0point\0x".to_owned(), "place".to_owned());
        let names = BTreeSet::from([&x, &place]);
        assert_eq!(roots(&names), BTreeSet::from(["place"]));
        let flat = flattened(&rows, &names).expect("columns of the rows");
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, None]));
        assert_eq!(flat.column_by_name(&x), Some(&values));
        assert_eq!(flat.column_by_name("place"), rows.column_by_name("place"));
        let rest = flattened(&rows.slice(1, 2), &names).expect("columns of the rows");
        assert_eq!(rest.column_by_name(&x), Some(&values.slice(1, 2)));
        let absent = "place\0street".to_owned();
        assert!(flattened(&rows, &BTreeSet::from([&absent])).is_err());
    }
}

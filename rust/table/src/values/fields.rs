//! Columns of a table, fields inside of its structs and values of its maps, by the names of [`lakemark_format::column`].
//!
//! A row in which a struct is NULL, at any level, has NULL for each field of it. A row whose map is NULL or lacks a key has NULL for the
//! key's value. A map that has a key twice has the first value, as engines read it. Files may lack a field or have something else than
//! their table. [`Presence`] says where a file is like a file of NULLs and where an engine had better read it.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, Int32Array, MapArray, make_array};
use arrow::buffer::NullBuffer;
use arrow::compute::{nullif, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use arrow::error::ArrowError;
use lakemark_format::{KeyType, column};
use lakemark_index::{composite_type, element_of, key_type_of, list_type_of};
use parquet::schema::types::SchemaDescriptor;

use crate::values::int96::is_rebased;

/// A column, a field of a struct, or the values of a map under a key, by the whole name. None if the schema has none, or if a list
/// is on the way.
#[must_use]
pub fn field_of(schema: &Schema, name: &str) -> Option<FieldRef> {
    if column::is_composite(name) {
        return None;
    }
    let mut names = column::names(name);
    let mut found = named(schema.fields(), names.next()?)?;
    for name in names {
        found = match fields_of(found) {
            Some(fields) => named(fields, name)?,
            None => values_of(found)?,
        };
    }
    Some(Arc::new(found.as_ref().clone().with_name(name)))
}

/// What an index can be on, by the whole name: a column or field, or a composite as a struct of its columns.
pub(crate) fn indexed_field(schema: &Schema, name: &str) -> Option<FieldRef> {
    if !column::is_composite(name) {
        return field_of(schema, name);
    }
    let columns = column::columns(name).map(|column| field_of(schema, column)).collect::<Option<Fields>>()?;
    Some(Arc::new(Field::new(name, DataType::Struct(columns), false)))
}

/// The columns of a composite by their whole names, or the column itself.
pub(crate) fn columns_of(field: &FieldRef) -> Vec<FieldRef> {
    match fields_of(field) {
        Some(columns) if column::is_composite(field.name()) => {
            let named = column::columns(field.name()).zip(columns);
            named.map(|(name, column)| Arc::new(column.as_ref().clone().with_name(name))).collect()
        }
        _ => vec![Arc::clone(field)],
    }
}

/// How the values of a column or field, the elements of its lists, or the rows of a composite, become keys; none if no index serves it.
pub(crate) fn key_type_of_field(field: &Field) -> Option<KeyType> {
    match fields_of(field) {
        Some(columns) if column::is_composite(field.name()) => composite_type(columns),
        _ => key_type_in(field.data_type()),
    }
}

/// Whether values of a type may be nodes or predicates of links: two that are equal for an engine are one.
pub(crate) fn may_be_linked(data_type: &DataType) -> bool {
    use KeyType::{Binary, FixedBinary, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Utf8};
    let whole = [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Utf8, Binary];
    key_type_of(data_type).is_some_and(|of| whole.contains(&of) || matches!(of, FixedBinary(_)))
}

/// How values, or the elements of lists, become keys.
pub(crate) fn key_type_in(data_type: &DataType) -> Option<KeyType> {
    key_type_of(data_type).or_else(|| list_type_of(data_type))
}

/// The map whose values under a key these are, by its whole name.
pub(crate) fn map_of<'a>(schema: &Schema, name: &'a str) -> Option<(&'a str, &'a str)> {
    let (map, key) = name.rsplit_once(column::SEPARATOR)?;
    field_of(schema, map).is_some_and(|field| values_of(&field).is_some()).then_some((map, key))
}

/// The whole names of a schema's columns and fields that an index could be on.
pub(crate) fn indexable(schema: &Schema) -> Vec<String> {
    fn add(fields: &Fields, outer: &[&str], found: &mut Vec<String>) {
        for field in fields {
            let way = [outer, &[field.name().as_str()]].concat();
            match fields_of(field) {
                Some(inner) => add(inner, &way, found),
                None if key_type_in(field.data_type()).is_some() => found.push(column::join(way)),
                None => {}
            }
        }
    }
    let mut found = Vec::new();
    add(schema.fields(), &[], &mut found);
    found
}

/// How a data file has a column or field of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The values are stored.
    Stored,
    /// The column is not there: every row has NULL.
    Lacking,
    /// The file has something else in its place, which engines may refuse or read in ways of their own.
    Unclear,
}

impl Presence {
    /// By the schema of the file, under the names that its table shows.
    ///
    /// A composite has a key in every row, of NULL where the file lacks a column.
    pub(crate) fn of(file: &Schema, table: &Schema, name: &str) -> Self {
        if column::is_composite(name) {
            let is_unclear = |column| Self::of(file, table, column) == Self::Unclear;
            return if column::columns(name).any(is_unclear) { Self::Unclear } else { Self::Stored };
        }
        let mut names = column::names(name);
        let first = names.next().unwrap_or_default();
        let Some(mut have) = named(file.fields(), first) else { return Self::Lacking };
        let want = named(table.fields(), first);
        if !column::is_field(name) {
            let fits = want.is_none_or(|want| match element_of(want.data_type()) {
                Some(_) => are_lists_of(have, want),
                // Engines take a list for a single value, or refuse to.
                None => element_of(have.data_type()).is_none(),
            });
            return if fits { Self::Stored } else { Self::Unclear };
        }
        let Some(mut want) = want else { return Self::Unclear };
        for name in names {
            if let (Some(inside), Some(wanted)) = (values_of(have), values_of(want)) {
                (have, want) = (inside, wanted);
                continue;
            }
            let (Some(inside), Some(wanted)) = (fields_of(have), fields_of(want)) else { return Self::Unclear };
            let Some(next) = named(wanted, name) else { return Self::Unclear };
            want = next;
            // Structs are read by name; a struct without any name in common is an error to engines.
            let related = wanted.iter().any(|field| named(inside, field.name()).is_some());
            match named(inside, name) {
                Some(next) => have = next,
                None if related && want.is_nullable() => return Self::Lacking,
                None => return Self::Unclear,
            }
        }
        let fits = match element_of(want.data_type()) {
            // Where a struct is NULL, readers give a required list a value: see `hollow`.
            Some(_) => are_lists_of(have, want) && have.is_nullable(),
            None => !have.data_type().is_nested(),
        };
        if fits { Self::Stored } else { Self::Unclear }
    }
}

/// Whether both have lists whose elements have keys, so that engines read the one as the other.
fn are_lists_of(have: &Field, want: &Field) -> bool {
    let length = |field: &Field| match field.data_type() {
        DataType::FixedSizeList(_, length) => Some(*length),
        _ => None,
    };
    list_type_of(have.data_type()).is_some() && length(want).is_none_or(|wanted| length(have) == Some(wanted))
}

/// Whether the file with this schema has values of another calendar in a column or field, or in one of a composite.
pub(crate) fn has_other_calendar(file: &Schema, name: &str) -> bool {
    if column::is_composite(name) {
        return column::columns(name).any(|column| has_other_calendar(file, column));
    }
    let root = column::names(name).next().and_then(|root| named(file.fields(), root));
    let value_type = |data_type: &DataType| match element_of(data_type) {
        Some(element) => element.data_type().is_temporal(),
        None => data_type.is_temporal(),
    };
    root.is_some_and(|root| is_rebased(root)) && field_of(file, name).is_some_and(|field| value_type(field.data_type()))
}

/// Fields of a file that are required in structs which are not. Arrow's readers give such fields a value where the struct is NULL, and
/// engines take that value for the field's.
pub(crate) fn hollow(columns: &SchemaDescriptor) -> Vec<String> {
    let is_hollow = |leaf: &parquet::schema::types::ColumnDescriptor| {
        leaf.max_def_level() > 0 && leaf.max_rep_level() == 0 && !leaf.self_type().is_optional()
    };
    let leaves = columns.columns().iter().filter(|leaf| is_hollow(leaf));
    leaves.map(|leaf| column::join(leaf.path().parts().iter().map(String::as_str))).collect()
}

/// The values of the only leaf of an array, NULL where a struct around them is. In a map they are those of a key.
pub(crate) fn leaf_values(array: &ArrayRef, key: Option<&str>) -> Result<ArrayRef, ArrowError> {
    let (mut values, mut nulls) = (Arc::clone(array), None);
    while let Some(outer) = values.as_struct_opt() {
        nulls = NullBuffer::union(nulls.as_ref(), outer.nulls());
        let Some(inner) = outer.columns().first() else { break };
        values = Arc::clone(inner);
    }
    if let (Some(map), Some(key)) = (values.as_map_opt(), key) {
        values = values_under(map, key)?;
    }
    null_within(&values, nulls.as_ref())
}

/// The values of a field, NULL where what is around it is, too.
///
/// # Errors
///
/// The values are of a type that Arrow cannot make NULL.
pub fn null_within(values: &ArrayRef, outer: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    let Some(outer) = outer.filter(|outer| outer.null_count() > 0) else { return Ok(Arc::clone(values)) };
    nullif(values, &BooleanArray::new(!outer.inner(), None))
}

/// The same values with NULL in every field of a struct that is NULL, as Parquet files have them: whoever takes a field out of a struct
/// gets what stands there.
///
/// # Errors
/// A field is of a type that Arrow cannot make NULL.
pub(crate) fn null_fields(values: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !values.data_type().is_nested() {
        return Ok(Arc::clone(values));
    }
    let data = values.to_data();
    let outer = if matches!(values.data_type(), DataType::Struct(_)) { values.nulls() } else { None };
    let inside = |child: &ArrayData| null_fields(&null_within(&make_array(child.clone()), outer)?);
    let children = data.child_data().iter().map(|child| Ok(inside(child)?.to_data()));
    let children = children.collect::<Result<Vec<_>, ArrowError>>()?;
    Ok(make_array(data.into_builder().child_data(children).build()?))
}

/// For each map the value of the first entry with the key.
fn values_under(map: &MapArray, key: &str) -> Result<ArrayRef, ArrowError> {
    let keys = map.keys().as_string_opt::<i32>();
    let keys = keys.ok_or_else(|| ArrowError::SchemaError(format!("a map has keys of {}", map.keys().data_type())))?;
    let entries = map.offsets().windows(2).enumerate().map(|(row, ends)| match ends {
        [start, end] if map.is_valid(row) => (*start..*end)
            .find(|entry| usize::try_from(*entry).is_ok_and(|entry| keys.is_valid(entry) && keys.value(entry) == key)),
        _ => None,
    });
    take(map.values(), &Int32Array::from_iter(entries), None)
}

fn named<'a>(fields: &'a Fields, name: &str) -> Option<&'a FieldRef> {
    fields.iter().find(|field| field.name() == name)
}

/// The fields of a struct.
fn fields_of(field: &Field) -> Option<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    }
}

/// The flat values of a map whose keys are strings.
fn values_of(field: &Field) -> Option<&FieldRef> {
    let DataType::Map(entries, _) = field.data_type() else { return None };
    match fields_of(entries)?.iter().collect::<Vec<_>>().as_slice() {
        [key, value] if *key.data_type() == DataType::Utf8 && !value.data_type().is_nested() => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, Int32Builder, MapBuilder, StringBuilder, StructArray};

    fn of_fields(name: &str, fields: Vec<Field>) -> Field {
        Field::new(name, DataType::Struct(fields.into()), true)
    }

    fn int(name: &str) -> Field {
        Field::new(name, DataType::Int32, true)
    }

    #[test]
    fn fields_are_found_by_the_names_on_the_way() {
        let list = Field::new_list("l", of_fields("item", vec![int("x")]), true);
        let schema =
            Schema::new(vec![int("a.b"), of_fields("a", vec![int("b"), of_fields("c", vec![int("d"), list])])]);
        let found = |name: &str| field_of(&schema, name).map(|field| (field.name().clone(), field.data_type().clone()));
        for name in ["a.b", "a\0b", "a\0c\0d"] {
            assert_eq!(found(name), Some((name.to_owned(), DataType::Int32)));
        }
        for name in ["b", "a\0x", "a.b\0c", "a\0b\0c", "a\0c\0l\0x", "a\0c\0l\0item\0x", "a\0"] {
            assert_eq!(found(name), None, "{name:?}");
        }
        assert_eq!(indexable(&schema), ["a.b", "a\0b", "a\0c\0d"]);
    }

    #[test]
    fn a_file_without_a_field_is_one_of_nulls_if_its_struct_is_related() {
        let table =
            Schema::new(vec![int("k"), of_fields("s", vec![int("a"), of_fields("t", vec![int("b"), int("c")])])]);
        let of = |fields: Vec<Field>, name: &str| Presence::of(&Schema::new(fields), &table, name);
        let inner = || of_fields("t", vec![int("c")]);
        assert_eq!(of(vec![], "k"), Presence::Lacking);
        assert_eq!(of(vec![], "s\0t\0b"), Presence::Lacking);
        assert_eq!(of(vec![int("k")], "k"), Presence::Stored);
        assert_eq!(of(vec![of_fields("s", vec![int("a")])], "s\0a"), Presence::Stored);
        assert_eq!(of(vec![of_fields("s", vec![int("a")])], "s\0t\0b"), Presence::Lacking);
        assert_eq!(of(vec![of_fields("s", vec![inner()])], "s\0t\0b"), Presence::Lacking);
        assert_eq!(of(vec![of_fields("s", vec![inner()])], "s\0t\0c"), Presence::Stored);
        assert_eq!(of(vec![of_fields("s", vec![int("x")])], "s\0a"), Presence::Unclear, "nothing in common");
        assert_eq!(of(vec![of_fields("s", vec![int("a"), int("t")])], "s\0t\0b"), Presence::Unclear);
        assert_eq!(of(vec![int("s")], "s\0a"), Presence::Unclear);
        assert_eq!(of(vec![of_fields("s", vec![of_fields("a", vec![])])], "s\0a"), Presence::Unclear);
    }

    #[test]
    fn a_field_is_null_where_its_struct_is() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
        let around = |values: ArrayRef, valid: Vec<bool>| -> ArrayRef {
            let fields = Fields::from(vec![Field::new("x", values.data_type().clone(), true)]);
            Arc::new(StructArray::new(fields, vec![values], Some(NullBuffer::from(valid))))
        };
        let nested = around(around(values, vec![true, true, false, true]), vec![true, true, true, false]);
        let expected = Int32Array::from(vec![Some(1), None, None, None]);
        assert_eq!(leaf_values(&nested, None).unwrap().as_ref(), &expected as &dyn Array);
        for start in 0..3 {
            let part = leaf_values(&nested.slice(start, 4 - start), None).unwrap();
            assert_eq!(part.as_ref(), &expected.slice(start, 4 - start) as &dyn Array, "from {start}");
        }
    }

    #[test]
    fn a_map_has_the_first_value_of_a_key_or_null() {
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        for entries in
            [vec![("a", Some(1)), ("b", Some(2))], vec![("b", Some(3)), ("b", Some(4))], vec![], vec![("b", None)]]
        {
            for (key, value) in entries {
                maps.keys().append_value(key);
                maps.values().append_option(value);
            }
            maps.append(true).unwrap();
        }
        maps.append(false).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        let under = |key: &str, array: &ArrayRef| -> Vec<Option<i32>> {
            leaf_values(array, Some(key)).unwrap().as_primitive::<arrow::datatypes::Int32Type>().iter().collect()
        };
        assert_eq!(under("b", &maps), [Some(2), Some(3), None, None, None]);
        assert_eq!(under("a", &maps.slice(1, 3)), [None, None, None]);
        let field = Field::new("m", maps.data_type().clone(), true);
        let schema = Schema::new(vec![of_fields("s", vec![field])]);
        assert_eq!(field_of(&schema, "s\0m\0b").unwrap().data_type(), &DataType::Int32);
        assert_eq!(map_of(&schema, "s\0m\0b"), Some(("s\0m", "b")));
        assert_eq!((field_of(&schema, "s\0m\0b\0c"), map_of(&schema, "s\0m")), (None, None));
        assert_eq!(Presence::of(&schema, &schema, "s\0m\0b"), Presence::Stored);
        assert_eq!(
            Presence::of(&Schema::new(vec![of_fields("s", vec![int("m")])]), &schema, "s\0m\0b"),
            Presence::Unclear
        );
    }
}

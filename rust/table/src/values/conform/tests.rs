use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, LargeListArray, ListArray,
    MapArray, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema, TimeUnit};

use super::*;

fn conformed(array: ArrayRef, wanted: DataType, by: Match) -> Result<ArrayRef, arrow::error::ArrowError> {
    let batch = RecordBatch::try_from_iter([("c", array)]).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("c", wanted.clone(), true)]));
    let conformed = conform_batch(&batch, &schema, by)?;
    assert_eq!(conformed.column(0).data_type(), &wanted);
    Ok(conformed.column(0).clone())
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// Structs of `a` and `b`, the second NULL.
fn pairs() -> StructArray {
    let fields = Fields::from(vec![field("a", DataType::Int32), field("b", DataType::Utf8)]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int32Array::from(vec![1, 2, 3])), Arc::new(StringArray::from(vec!["x", "y", "z"]))];
    StructArray::new(fields, columns, Some(NullBuffer::from(vec![true, false, true])))
}

#[test]
fn fields_are_found_by_name_or_by_place() {
    let wanted = DataType::Struct(Fields::from(vec![
        field("b", DataType::LargeUtf8),
        field("c", DataType::Date32),
        field("a", DataType::Int64),
    ]));
    let by_name = conformed(Arc::new(pairs()), wanted, Match::Name).unwrap();
    let by_name = by_name.as_struct();
    assert_eq!(by_name.column(0).as_string::<i64>().iter().collect::<Vec<_>>(), [Some("x"), Some("y"), Some("z")]);
    assert_eq!(by_name.column(1).null_count(), 3);
    assert_eq!(by_name.column(2).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
    assert!(by_name.is_null(1) && by_name.null_count() == 1);

    let renamed = DataType::Struct(Fields::from(vec![field("col-1", DataType::Int32), field("a", DataType::Utf8)]));
    let by_place = conformed(Arc::new(pairs()), renamed, Match::Place).unwrap();
    assert_eq!(by_place.as_struct().column(0).as_primitive::<Int32Type>().values(), &[1, 2, 3]);
    assert_eq!(by_place.as_struct().column(1).as_string::<i32>().value(2), "z");
}

#[test]
fn lists_and_maps_are_conformed_inside() {
    let item = |name: &str, fields: [&str; 2]| {
        let fields = vec![field(fields[0], DataType::Int32), field(fields[1], DataType::Utf8)];
        Arc::new(field(name, DataType::Struct(Fields::from(fields))))
    };
    let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
    let list = ListArray::new(item("item", ["a", "b"]), offsets, Arc::new(pairs()), None);
    let wanted = DataType::List(item("element", ["a", "b"]));
    let made = conformed(Arc::new(list), wanted, Match::Name).unwrap();
    assert_eq!(made.as_list::<i32>().value(2).as_struct().column(1).as_string::<i32>().value(1), "z");

    let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
    let large = LargeListArray::new(item("item", ["a", "b"]), offsets, Arc::new(pairs()), None);
    let made = conformed(Arc::new(large), DataType::LargeList(item("item", ["p", "q"])), Match::Place).unwrap();
    assert_eq!(made.as_list::<i64>().value(0).as_struct().column(0).as_primitive::<Int32Type>().values(), &[1]);

    let fixed = FixedSizeListArray::new(item("item", ["a", "b"]), 3, Arc::new(pairs()), None);
    let made = conformed(Arc::new(fixed), DataType::FixedSizeList(item("e", ["b", "c"]), 3), Match::Name);
    assert!(made.is_err(), "text is no number");

    let entries = |names: [&str; 2], value: DataType| {
        let fields = vec![Field::new(names[0], DataType::Int32, false), field(names[1], value)];
        Arc::new(Field::new("entries", DataType::Struct(Fields::from(fields)), false))
    };
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(10), None, Some(30)]));
    let DataType::Struct(fields) = entries(["key", "value"], DataType::Int32).data_type().clone() else { panic!() };
    let items = StructArray::new(fields, vec![keys, values], None);
    let offsets = OffsetBuffer::from_lengths([2, 1]);
    let map = MapArray::new(entries(["key", "value"], DataType::Int32), offsets, items, None, false);
    let wanted = DataType::Map(entries(["keys", "values"], DataType::Int64), false);
    let made = conformed(Arc::new(map), wanted, Match::Name).unwrap();
    let made = made.as_map();
    assert_eq!(made.value(1).column(1).as_primitive::<Int64Type>().values(), &[30]);
    assert!(made.value(0).column(1).is_null(1));
}

#[test]
fn flat_types_are_cast_without_losing_values() {
    let text: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
    let made = conformed(Arc::new(text), DataType::Utf8, Match::Name).unwrap();
    assert_eq!(made.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), None, Some("a")]);
    let moments = arrow::array::TimestampNanosecondArray::from(vec![1_500, -1]);
    let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    conformed(Arc::new(moments), micros, Match::Name).unwrap();
    let wide = Int64Array::from(vec![1, i64::MAX]);
    assert!(conformed(Arc::new(wide), DataType::Int32, Match::Name).is_err());
}

#[test]
fn columns_that_take_no_null_refuse_it() {
    let batch = RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("b", DataType::Int32, false)]));
    assert!(conform_batch(&batch, &schema, Match::Name).is_err());
}

#[test]
fn lists_of_another_kind_keep_their_items_by_name() {
    let item = |fields: &[(&str, DataType)]| {
        let fields = fields.iter().map(|(name, of)| field(name, of.clone())).collect::<Fields>();
        Arc::new(field("item", DataType::Struct(fields)))
    };
    let given = item(&[("a", DataType::Int32), ("b", DataType::Utf8)]);
    let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
    let large: ArrayRef = Arc::new(LargeListArray::new(given, offsets, Arc::new(pairs()), None));
    let wanted = DataType::List(item(&[("c", DataType::Int64), ("b", DataType::Utf8)]));
    let made = conform(&large, &wanted).unwrap();
    let last = made.as_list::<i32>().value(2);
    assert_eq!(last.as_struct().column(0).null_count(), 2);
    assert_eq!(last.as_struct().column(1).as_string::<i32>().value(1), "z");
    // And back: fewer fields, in a list with wider offsets.
    let DataType::LargeList(of_large) = large.data_type() else { panic!() };
    let wanted = DataType::LargeList(item(&[("b", DataType::LargeUtf8), ("a", DataType::Int64)]));
    let again = conform(&made, &DataType::LargeList(Arc::clone(of_large))).unwrap();
    assert_eq!(again.as_list::<i64>().value(2).as_struct().column(0).null_count(), 2, "no field `a` any more");
    let turned = conform(&large, &wanted).unwrap();
    assert_eq!(turned.as_list::<i64>().value(2).as_struct().column(1).as_primitive::<Int64Type>().values(), &[2, 3]);
}

#[test]
fn lists_of_another_length_are_refused() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..6));
    let threes = FixedSizeListArray::new(Arc::new(field("item", DataType::Int32)), 3, numbers, None);
    let twos = DataType::FixedSizeList(Arc::new(field("e", DataType::Int32)), 2);
    assert!(conform(&(Arc::new(threes) as ArrayRef), &twos).is_err());
}

#[test]
fn a_field_without_a_place_is_named_with_the_way_to_it() {
    let of = |fields: Vec<Field>| DataType::Struct(Fields::from(fields));
    let inner = |name: &str| of(vec![field(name, DataType::Int32)]);
    let wanted = of(vec![field("a", DataType::Int32), field("s", inner("x"))]);
    assert_eq!(unknown_field(&of(vec![field("a", DataType::Utf8)]), &wanted), None);
    assert_eq!(unknown_field(&of(vec![field("s", inner("y"))]), &wanted).as_deref(), Some("s.y"));
    let list = |of: DataType| DataType::List(Arc::new(field("item", of)));
    let large = |of: DataType| DataType::LargeList(Arc::new(field("item", of)));
    assert_eq!(unknown_field(&large(inner("y")), &list(inner("x"))).as_deref(), Some("y"));
    assert_eq!(unknown_field(&DataType::Utf8, &list(DataType::Utf8)), None);
}

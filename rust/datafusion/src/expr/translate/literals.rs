//! Where literals lie among the values of a column, also where it is seen through a cast, and the two zeros of floats.

use std::borrow::Borrow;

use arrow::array::Array;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use lakemark_format::key::Key;
use lakemark_index::{KeyRanges, LiteralKey, Reason, encode_literal, key_type_of};

/// A column of the table or a field in one, perhaps seen through a cast.
pub(super) struct ColumnRef<'a> {
    /// Its whole name, if it is a field of a struct.
    pub(super) name: String,
    pub(super) data_type: &'a DataType,
    pub(super) cast: Option<&'a DataType>,
}

/// Where a literal lies among the values of a column.
pub(super) enum LiteralPlace {
    Null,
    At(Key),
    /// Less than every value of the column's type.
    Below,
    /// Greater than every value of the column's type.
    Above,
}

impl LiteralPlace {
    /// The key of a value of the column's type.
    pub(super) fn key(self) -> Option<Key> {
        match self {
            Self::At(key) => Some(key),
            Self::Null | Self::Below | Self::Above => None,
        }
    }
}

pub(super) fn seen_as<'a>(column: ColumnRef<'a>, to: &'a DataType) -> Option<ColumnRef<'a>> {
    let from = column.cast.unwrap_or(column.data_type);
    let same_keys = key_type_of(from).is_some() && key_type_of(from) == key_type_of(to) && !is_zoned(from);
    (same_keys || widens(value_type(from), value_type(to))).then_some(ColumnRef { cast: Some(to), ..column })
}

fn is_zoned(data_type: &DataType) -> bool {
    matches!(value_type(data_type), DataType::Timestamp(_, Some(_)))
}

/// Whether every integer of `from` is an integer of `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    match (integer_range(from), integer_range(to)) {
        (Some((from_min, from_max)), Some((to_min, to_max))) => to_min <= from_min && from_max <= to_max,
        _ => false,
    }
}

fn integer_range(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value,
        other => other,
    }
}

/// The literal's place in the column's domain, or why it has none.
pub(super) fn place(column: &ColumnRef<'_>, literal: &ScalarValue) -> Result<LiteralPlace, Reason> {
    let Some(key_type) = key_type_of(column.data_type) else {
        return Err(Reason::TypeNotIndexed);
    };
    if literal.is_null() {
        return Ok(LiteralPlace::Null);
    }
    let literal = match literal {
        ScalarValue::Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    let literal_type = literal.data_type();
    let literal = if key_type_of(&literal_type) == Some(key_type) {
        literal.clone()
    } else {
        match integer_place(value_type(column.data_type), literal)? {
            Ok(fitting) => fitting,
            Err(outside) => return Ok(outside),
        }
    };
    let array = literal.to_array().map_err(|_| Reason::LiteralNotRepresentable)?;
    match encode_literal(array.as_ref()) {
        Some(LiteralKey::Key(key)) => Ok(LiteralPlace::At(key)),
        Some(LiteralKey::Null) => Ok(LiteralPlace::Null),
        None => Err(Reason::LiteralNotRepresentable),
    }
}

/// An integer literal as a value of the column's integer type, or on which side it lies outside.
fn integer_place(data_type: &DataType, literal: &ScalarValue) -> Result<Result<ScalarValue, LiteralPlace>, Reason> {
    let (Some((min, max)), Some(value)) = (integer_range(data_type), integer_value(literal)) else {
        return Err(Reason::LiteralNotRepresentable);
    };
    if value < min {
        return Ok(Err(LiteralPlace::Below));
    }
    if value > max {
        return Ok(Err(LiteralPlace::Above));
    }
    literal.cast_to(data_type).map(Ok).map_err(|_| Reason::LiteralNotRepresentable)
}

fn integer_value(literal: &ScalarValue) -> Option<i128> {
    Some(match literal {
        ScalarValue::Int8(Some(value)) => (*value).into(),
        ScalarValue::Int16(Some(value)) => (*value).into(),
        ScalarValue::Int32(Some(value)) => (*value).into(),
        ScalarValue::Int64(Some(value)) => (*value).into(),
        ScalarValue::UInt8(Some(value)) => (*value).into(),
        ScalarValue::UInt16(Some(value)) => (*value).into(),
        ScalarValue::UInt32(Some(value)) => (*value).into(),
        ScalarValue::UInt64(Some(value)) => (*value).into(),
        _ => return None,
    })
}

pub(super) fn below(place: LiteralPlace, inclusive: bool) -> Option<KeyRanges> {
    match place {
        LiteralPlace::Null => None,
        LiteralPlace::At(key) => Some(KeyRanges::less_than(key, inclusive)),
        LiteralPlace::Below => Some(KeyRanges::none()),
        LiteralPlace::Above => Some(KeyRanges::all()),
    }
}

/// The place of what is looked for among the elements of lists.
pub(super) fn element_place(list: &ColumnRef<'_>, element: &ScalarValue) -> Result<LiteralPlace, Reason> {
    // In lists the engine distinguishes -0.0 from 0.0.
    if is_negative_zero(element).is_some() {
        return Err(Reason::LiteralNotRepresentable);
    }
    place(list, element)
}

/// The elements of a list that is a constant; none if it is NULL or no list.
pub(super) fn elements_of(list: &ScalarValue) -> Option<Vec<ScalarValue>> {
    let elements = match list {
        ScalarValue::List(list) => list.is_valid(0).then(|| list.value(0)),
        ScalarValue::LargeList(list) => list.is_valid(0).then(|| list.value(0)),
        ScalarValue::FixedSizeList(list) => list.is_valid(0).then(|| list.value(0)),
        _ => None,
    }?;
    (0..elements.len()).map(|place| ScalarValue::try_from_array(&elements, place).ok()).collect()
}

pub(super) fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) => Some(value),
        Expr::Alias(alias) => literal(&alias.expr),
        _ => None,
    }
}

/// Whether a zero of floating-point numbers has the sign; none for other values.
fn is_negative_zero(value: &ScalarValue) -> Option<bool> {
    let number = match value {
        ScalarValue::Dictionary(_, value) => return is_negative_zero(value),
        ScalarValue::Float16(Some(value)) => value.to_f64(),
        ScalarValue::Float32(Some(value)) => f64::from(*value),
        ScalarValue::Float64(Some(value)) => *value,
        _ => return None,
    };
    (number == 0.0).then(|| number.is_sign_negative())
}

/// 0.0 for -0.0; none for other values.
pub(crate) fn positive_zero(value: &ScalarValue) -> Option<ScalarValue> {
    (is_negative_zero(value) == Some(true)).then(|| negated_zero(value)).flatten()
}

/// The zero of floating-point numbers that is missing beside the other one.
pub(crate) fn missing_zero<V: Borrow<ScalarValue>>(values: impl Iterator<Item = V>) -> Option<ScalarValue> {
    let mut zeros = values.filter_map(|value| Some((is_negative_zero(value.borrow())?, negated_zero(value.borrow())?)));
    let (first, other) = zeros.next()?;
    zeros.all(|(sign, _)| sign == first).then_some(other)
}

/// The other zero of the same type.
fn negated_zero(value: &ScalarValue) -> Option<ScalarValue> {
    Some(match value {
        ScalarValue::Dictionary(key, value) => ScalarValue::Dictionary(key.clone(), Box::new(negated_zero(value)?)),
        ScalarValue::Float16(Some(value)) => ScalarValue::Float16(Some(-*value)),
        ScalarValue::Float32(Some(value)) => ScalarValue::Float32(Some(-value)),
        ScalarValue::Float64(Some(value)) => ScalarValue::Float64(Some(-value)),
        _ => return None,
    })
}

//! Filters as Java sends them, to the predicates that an index answers.
//!
//! The tree is JSON. Each node has an `op`: `and` and `or` with `children`, `not` with `child`, `is_null` with `column`,
//! `eq`, `lt`, `le`, `gt`, `ge` and `starts_with` with `column` and `value`, `in` with `column` and `values`, `in_longs` with
//! `column`, `longs` (of 8 bytes each, low bytes first, base64) and `null` (whether NULL is listed, too), `true`, `false`,
//! and `unknown` with `text` for what only Spark can evaluate. A value is an object with one of the members
//! `null`, `boolean`, `long`, `decimal` (unscaled digits, with `scale`), `string`, `binary` (base64), `date` (days),
//! `timestamp` and `timestamp_ntz` (microseconds).
//!
//! A column is called by its name, a field of a struct by the names on the way to it ([`lakemark_format::column`]).
//!
//! A literal must be a value of the column's own type, exactly. Whatever is not becomes [`Predicate::Unknown`], which keeps
//! every row, so that Spark evaluates the condition itself.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use base64::Engine;
use lakemark_format::column::display;
use lakemark_index::{KeyRanges, Leaf, Predicate, Reason, Test, Truth, encode_literals, literal_text, quoted};
use lakemark_table::field_of;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::Result;

/// So many values of a list are named in reports.
const NAMED_VALUES: usize = 8;

/// A node of the tree.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum FilterNode {
    And { children: Vec<FilterNode> },
    Or { children: Vec<FilterNode> },
    Not { child: Box<FilterNode> },
    True,
    False,
    Unknown { text: String },
    IsNull { column: String },
    Eq { column: String, value: Literal },
    Lt { column: String, value: Literal },
    Le { column: String, value: Literal },
    Gt { column: String, value: Literal },
    Ge { column: String, value: Literal },
    StartsWith { column: String, value: Literal },
    In { column: String, values: Vec<Literal> },
    InLongs { column: String, longs: PackedLongs, null: bool },
}

/// Numbers that come as bytes.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PackedLongs(Vec<i64>);

impl TryFrom<String> for PackedLongs {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let decoded = base64::engine::general_purpose::STANDARD.decode(text).map_err(|error| error.to_string())?;
        match decoded.as_chunks() {
            (longs, []) => Ok(Self(longs.iter().map(|long| i64::from_le_bytes(*long)).collect())),
            _ => Err("numbers of 8 bytes each end within one".to_owned()),
        }
    }
}

/// A value as Spark holds it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Literal {
    Null(IgnoredAny),
    Boolean(bool),
    Long(i64),
    Decimal { unscaled: String, scale: i8 },
    String(String),
    Binary(String),
    Date(i32),
    Timestamp(i64),
    TimestampNtz(i64),
}

impl Literal {
    fn as_boolean(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    fn as_long(&self) -> Option<i64> {
        if let Self::Long(value) = self { Some(*value) } else { None }
    }

    fn as_text(&self) -> Option<&str> {
        if let Self::String(value) = self { Some(value) } else { None }
    }

    fn as_days(&self) -> Option<i32> {
        if let Self::Date(days) = self { Some(*days) } else { None }
    }

    fn as_timestamp(&self) -> Option<i64> {
        if let Self::Timestamp(micros) = self { Some(*micros) } else { None }
    }

    fn as_local_timestamp(&self) -> Option<i64> {
        if let Self::TimestampNtz(micros) = self { Some(*micros) } else { None }
    }
}

/// As SQL writes it.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value: ArrayRef = match self {
            Self::Null(_) => return f.write_str("NULL"),
            Self::Boolean(value) => return write!(f, "{value}"),
            Self::Long(value) => return write!(f, "{value}"),
            Self::String(value) => return f.write_str(&quoted(value)),
            Self::Decimal { unscaled, scale } => {
                let number = unscaled.parse::<i128>().map(|number| Decimal128Array::from(vec![number]));
                match number.map(|number| number.with_precision_and_scale(38, *scale)) {
                    Ok(Ok(number)) => Arc::new(number),
                    _ => return f.write_str(unscaled),
                }
            }
            Self::Binary(value) => match base64::engine::general_purpose::STANDARD.decode(value) {
                Ok(bytes) => Arc::new(BinaryArray::from_vec(vec![bytes.as_slice()])),
                Err(_) => return write!(f, "base64 {value}"),
            },
            Self::Date(days) => Arc::new(Date32Array::from(vec![*days])),
            // An instant: which zone the session shows it in is nothing that reports know.
            Self::Timestamp(micros) => Arc::new(TimestampMicrosecondArray::from(vec![*micros]).with_timezone_utc()),
            Self::TimestampNtz(micros) => Arc::new(TimestampMicrosecondArray::from(vec![*micros])),
        };
        f.write_str(&literal_text(value.as_ref(), 0))
    }
}

/// The predicate of a filter over a table's schema.
pub(crate) fn parse(json: &str, schema: &Schema) -> Result<Predicate> {
    Ok(predicate(serde_json::from_str(json)?, schema))
}

/// The predicate of a tree over a table's schema.
pub(crate) fn predicate(node: FilterNode, schema: &Schema) -> Predicate {
    translate(node, schema).simplify()
}

fn translate(node: FilterNode, schema: &Schema) -> Predicate {
    let all = |nodes: Vec<FilterNode>| nodes.into_iter().map(|node| translate(node, schema)).collect();
    match node {
        FilterNode::And { children } => Predicate::And(all(children)),
        FilterNode::Or { children } => Predicate::Or(all(children)),
        FilterNode::Not { child } => Predicate::Not(Box::new(translate(*child, schema))),
        FilterNode::True => Predicate::Const(Truth::True),
        FilterNode::False => Predicate::Const(Truth::False),
        FilterNode::Unknown { text } => Predicate::Unknown { reason: Reason::ExpressionNotSupported, text },
        FilterNode::IsNull { column } => {
            let text = format!("{} IS NULL", display(&column));
            match field_of(schema, &column) {
                Some(_) => Predicate::Leaf(Leaf { column, test: Test::IsNull, text }),
                None => Predicate::Unknown { reason: Reason::ExpressionNotSupported, text },
            }
        }
        FilterNode::Eq { column, value } => compare(schema, column, "=", &value, KeyRanges::point),
        FilterNode::Lt { column, value } => {
            compare(schema, column, "<", &value, |key| KeyRanges::less_than(key, false))
        }
        FilterNode::Le { column, value } => {
            compare(schema, column, "<=", &value, |key| KeyRanges::less_than(key, true))
        }
        FilterNode::Gt { column, value } => {
            compare(schema, column, ">", &value, |key| KeyRanges::greater_than(key, false))
        }
        FilterNode::Ge { column, value } => {
            compare(schema, column, ">=", &value, |key| KeyRanges::greater_than(key, true))
        }
        FilterNode::StartsWith { column, value } => starts_with(schema, column, &value),
        FilterNode::In { column, values } => in_list(schema, column, values),
        FilterNode::InLongs { column, longs: PackedLongs(longs), null } => in_longs(schema, column, longs, null),
    }
}

fn in_list(schema: &Schema, column: String, mut values: Vec<Literal>) -> Predicate {
    let listed = values.len();
    let text = if listed <= NAMED_VALUES {
        let named: Vec<String> = values.iter().map(Literal::to_string).collect();
        format!("{} IN ({})", display(&column), named.join(", "))
    } else {
        in_many(&column, listed)
    };
    values.retain(|value| !matches!(value, Literal::Null(_)));
    let has_null = values.len() < listed;
    if values.is_empty() {
        // No row is in an empty list, not even one without a value.
        return Predicate::Const(if has_null { Truth::Null } else { Truth::False });
    }
    let array = field_of(schema, &column).and_then(|field| literals(&values, field.data_type()));
    one_of(column, text, array, has_null)
}

/// A join may send many thousands of them.
fn in_longs(schema: &Schema, column: String, longs: Vec<i64>, has_null: bool) -> Predicate {
    let text = in_many(&column, longs.len() + usize::from(has_null));
    let array = field_of(schema, &column).and_then(|field| {
        let column = stored(field.data_type());
        let longs: ArrayRef = Arc::new(Int64Array::from(longs));
        if column.is_integer() { in_type_of(&longs, column) } else { None }
    });
    one_of(column, text, array, has_null)
}

fn in_many(column: &str, listed: usize) -> String {
    format!("{} IN ({listed} values)", display(column))
}

/// One test of all values, which are of the column's type; of none if a value has no key.
fn one_of(column: String, text: String, values: Option<ArrayRef>, has_null: bool) -> Predicate {
    let Some(keys) = values.and_then(|values| encode_literals(values.as_ref())) else {
        return Predicate::Unknown { reason: Reason::LiteralNotRepresentable, text };
    };
    let leaf = Predicate::Leaf(Leaf { column, test: Test::Ranges(KeyRanges::points(keys)), text });
    if has_null { Predicate::Or(vec![leaf, Predicate::Const(Truth::Null)]) } else { leaf }
}

fn compare(
    schema: &Schema,
    column: String,
    sign: &str,
    value: &Literal,
    ranges: impl Fn(lakemark_format::key::Key) -> KeyRanges,
) -> Predicate {
    let text = format!("{} {sign} {value}", display(&column));
    if matches!(value, Literal::Null(_)) {
        return Predicate::Const(Truth::Null);
    }
    let key = field_of(schema, &column)
        .and_then(|field| literals(std::slice::from_ref(value), field.data_type()))
        .and_then(|array| encode_literals(array.as_ref()))
        .and_then(|mut keys| keys.pop());
    match key {
        Some(key) => Predicate::Leaf(Leaf { column, test: Test::Ranges(ranges(key)), text }),
        None => Predicate::Unknown { reason: Reason::LiteralNotRepresentable, text },
    }
}

fn starts_with(schema: &Schema, column: String, value: &Literal) -> Predicate {
    let text = format!("startswith({}, {value})", display(&column));
    let strings = field_of(schema, &column).is_some_and(|field| is_string(field.data_type()));
    match value {
        Literal::String(prefix) if strings => {
            Predicate::Leaf(Leaf { column, test: Test::Ranges(KeyRanges::prefix(prefix.as_bytes())), text })
        }
        _ => Predicate::Unknown { reason: Reason::ExpressionNotSupported, text },
    }
}

fn is_string(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, value) => is_string(value),
        _ => false,
    }
}

/// The literals, none of which is NULL, as values of the column's own type. Left out are those that no value of the column equals: numbers
/// out of its range, timestamps between its units. None if they are of another kind.
fn literals(values: &[Literal], column: &DataType) -> Option<ArrayRef> {
    let column = stored(column);
    let plain: ArrayRef = match (values.first()?, column) {
        (Literal::Boolean(_), DataType::Boolean) => Arc::new(BooleanArray::from(all(values, Literal::as_boolean)?)),
        (Literal::Long(_), column) if column.is_integer() => Arc::new(Int64Array::from(all(values, Literal::as_long)?)),
        (Literal::Decimal { scale, .. }, column) => decimals(values, *scale, column)?,
        (Literal::String(_), column) if is_string(column) => {
            Arc::new(StringArray::from(all(values, Literal::as_text)?))
        }
        (Literal::Binary(_), column) => binaries(values, column)?,
        (Literal::Date(_), DataType::Date32) => Arc::new(Date32Array::from(all(values, Literal::as_days)?)),
        (Literal::Timestamp(_), DataType::Timestamp(unit, Some(_))) => {
            timestamps(all(values, Literal::as_timestamp)?, *unit, column)?
        }
        (Literal::TimestampNtz(_), DataType::Timestamp(unit, None)) => {
            timestamps(all(values, Literal::as_local_timestamp)?, *unit, column)?
        }
        _ => return None,
    };
    in_type_of(&plain, column)
}

/// The type of a column's values.
fn stored(column: &DataType) -> &DataType {
    match column {
        DataType::Dictionary(_, value) => value.as_ref(),
        other => other,
    }
}

/// Values in the type of a column. A value out of the column's range becomes a NULL, which has no key.
fn in_type_of(values: &ArrayRef, column: &DataType) -> Option<ArrayRef> {
    cast_with_options(values, column, &CastOptions { safe: true, ..Default::default() }).ok()
}

/// What each value is; none if one of them is something else.
fn all<'a, T>(values: &'a [Literal], of: impl Fn(&'a Literal) -> Option<T>) -> Option<Vec<T>> {
    values.iter().map(of).collect()
}

fn decimals(values: &[Literal], scale: i8, column: &DataType) -> Option<ArrayRef> {
    let unscaled = all(values, |value| match value {
        Literal::Decimal { unscaled, scale: of } if *of == scale => unscaled.parse::<i128>().ok(),
        _ => None,
    })?;
    let precision = match column {
        // Spark reads unsigned 64-bit integers as decimals without a fraction.
        DataType::UInt64 if scale == 0 => 38,
        DataType::Decimal32(_, of)
        | DataType::Decimal64(_, of)
        | DataType::Decimal128(_, of)
        | DataType::Decimal256(_, of)
            if *of == scale =>
        {
            38
        }
        _ => return None,
    };
    let array = Decimal128Array::from(unscaled).with_precision_and_scale(precision, scale).ok()?;
    Some(Arc::new(array))
}

fn binaries(values: &[Literal], column: &DataType) -> Option<ArrayRef> {
    let decoded = all(values, |value| match value {
        Literal::Binary(text) => base64::engine::general_purpose::STANDARD.decode(text).ok(),
        _ => None,
    })?;
    let fits = |bytes: &Vec<u8>| match column {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).is_ok_and(|width| width == bytes.len()),
        _ => true,
    };
    let is_binary = matches!(
        column,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
    );
    is_binary.then(|| Arc::new(BinaryArray::from_iter_values(decoded.into_iter().filter(fits))) as ArrayRef)
}

fn timestamps(mut micros: Vec<i64>, unit: TimeUnit, column: &DataType) -> Option<ArrayRef> {
    let micros_of_unit = match unit {
        TimeUnit::Second => 1_000_000,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1,
        // Spark sees such a column cut to microseconds, which the index does not.
        TimeUnit::Nanosecond => return None,
    };
    let DataType::Timestamp(_, zone) = column else {
        return None;
    };
    micros.retain(|micros| micros % micros_of_unit == 0);
    Some(Arc::new(TimestampMicrosecondArray::from(micros).with_timezone_opt(zone.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use lakemark_format::key::{Key, key_of_i64};

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("k", DataType::Int32, true),
            Field::new("u", DataType::UInt8, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("d", DataType::Decimal128(10, 2), true),
            Field::new("ms", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
            Field::new("day", DataType::Date32, true),
            Field::new("ns", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
            Field::new("place", DataType::Struct(vec![Field::new("x", DataType::Int32, true)].into()), true),
            Field::new_list("list", Field::new("x", DataType::Int32, true), true),
        ])
    }

    fn is_leaf(json: &str) -> bool {
        matches!(parse(json, &schema()).expect(json), Predicate::Leaf(_))
    }

    #[test]
    fn literals_of_the_columns_own_type_become_leaves() {
        for json in [
            r#"{"op":"eq","column":"k","value":{"long":5}}"#,
            r#"{"op":"le","column":"u","value":{"long":255}}"#,
            r#"{"op":"gt","column":"s","value":{"string":"ä"}}"#,
            r#"{"op":"starts_with","column":"s","value":{"string":"ab"}}"#,
            r#"{"op":"eq","column":"d","value":{"decimal":{"unscaled":"-125","scale":2}}}"#,
            r#"{"op":"ge","column":"ms","value":{"timestamp":2000}}"#,
            r#"{"op":"in","column":"k","values":[{"long":5},{"long":7}]}"#,
            r#"{"op":"is_null","column":"k"}"#,
            r#"{"op":"is_null","column":"place"}"#,
            r#"{"op":"gt","column":"place\u0000x","value":{"long":5}}"#,
            r#"{"op":"is_null","column":"place\u0000x"}"#,
        ] {
            assert!(is_leaf(json), "{json}");
        }
    }

    #[test]
    fn what_is_not_exactly_a_value_of_the_column_stays_with_spark() {
        for json in [
            r#"{"op":"eq","column":"u","value":{"long":256}}"#,
            r#"{"op":"eq","column":"k","value":{"string":"5"}}"#,
            r#"{"op":"eq","column":"d","value":{"decimal":{"unscaled":"125","scale":3}}}"#,
            r#"{"op":"ge","column":"ms","value":{"timestamp":2001}}"#,
            r#"{"op":"ge","column":"ns","value":{"timestamp":2000}}"#,
            r#"{"op":"ge","column":"ms","value":{"timestamp_ntz":2000}}"#,
            r#"{"op":"eq","column":"absent","value":{"long":1}}"#,
            r#"{"op":"is_null","column":"absent"}"#,
            r#"{"op":"eq","column":"place\u0000absent","value":{"long":1}}"#,
            r#"{"op":"eq","column":"place\u0000x","value":{"string":"5"}}"#,
            r#"{"op":"is_null","column":"list\u0000item"}"#,
            r#"{"op":"is_null","column":"k\u0000x"}"#,
            r#"{"op":"unknown","text":"f(k) = 1"}"#,
        ] {
            let predicate = parse(json, &schema()).expect(json);
            assert!(matches!(predicate, Predicate::Unknown { .. }), "{json}: {predicate:?}");
        }
    }

    #[test]
    fn a_comparison_with_null_is_null_for_every_row() {
        let predicate = parse(r#"{"op":"eq","column":"k","value":{"null":true}}"#, &schema()).expect("valid");
        assert_eq!(predicate, Predicate::Const(Truth::Null));
    }

    #[test]
    fn a_list_is_one_test_of_its_sorted_values() {
        let list = |json: &str| parse(json, &schema()).expect(json);
        let leaf = |keys: &[i64], text: &str| {
            let keys = keys.iter().map(|key| Key::Fixed(key_of_i64(*key))).collect();
            Predicate::Leaf(Leaf {
                column: "k".to_owned(),
                test: Test::Ranges(KeyRanges::points(keys)),
                text: text.to_owned(),
            })
        };
        let found = list(r#"{"op":"in","column":"k","values":[{"long":7},{"long":-5},{"long":7}]}"#);
        assert_eq!(found, leaf(&[-5, 7], "k IN (7, -5, 7)"));
        let found = list(r#"{"op":"in","column":"k","values":[{"long":7},{"null":true}]}"#);
        let either = Predicate::Or(vec![leaf(&[7], "k IN (7, NULL)"), Predicate::Const(Truth::Null)]);
        assert_eq!(found, either);
        assert_eq!(list(r#"{"op":"in","column":"k","values":[]}"#), Predicate::Const(Truth::False));
        assert_eq!(list(r#"{"op":"in","column":"k","values":[{"null":true}]}"#), Predicate::Const(Truth::Null));
        let many: Vec<String> = (0..50_000).rev().map(|key| format!(r#"{{"long":{key}}}"#)).collect();
        let found = list(&format!(r#"{{"op":"in","column":"k","values":[{}]}}"#, many.join(",")));
        assert_eq!(found, leaf(&(0..50_000).collect::<Vec<_>>(), "k IN (50000 values)"));
        let bytes: Vec<u8> = (0..50_000_i64).rev().flat_map(i64::to_le_bytes).collect();
        let packed = |column: &str, bytes: &[u8], null: bool| {
            let longs = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!(r#"{{"op":"in_longs","column":"{column}","longs":"{longs}","null":{null}}}"#)
        };
        assert_eq!(list(&packed("k", &bytes, false)), found);
        let either = Predicate::Or(vec![leaf(&[7], "k IN (2 values)"), Predicate::Const(Truth::Null)]);
        assert_eq!(list(&packed("k", &7_i64.to_le_bytes(), true)), either);
        assert!(matches!(list(&packed("s", &bytes, false)), Predicate::Unknown { .. }));
        assert!(parse(&packed("k", &bytes[1..], false), &schema()).is_err());
        // No row has what is no value of the column.
        let found = list(r#"{"op":"in","column":"u","values":[{"long":256},{"long":-1}]}"#);
        let Predicate::Leaf(Leaf { test, .. }) = found else { panic!("{found:?}") };
        assert_eq!(test, Test::Ranges(KeyRanges::none()));
        let found = list(r#"{"op":"in","column":"ms","values":[{"timestamp":2000},{"timestamp":2001}]}"#);
        let Predicate::Leaf(Leaf { test, .. }) = found else { panic!("{found:?}") };
        assert_eq!(test, Test::Ranges(KeyRanges::point(Key::Fixed(key_of_i64(2)))));
        // Values of several kinds are nothing that Spark sends.
        let found = list(r#"{"op":"in","column":"s","values":[{"string":"a"},{"long":7}]}"#);
        assert!(matches!(found, Predicate::Unknown { .. }), "{found:?}");
    }

    #[test]
    fn conditions_are_named_as_sql_writes_them() {
        for (json, text) in [
            (r#"{"op":"eq","column":"s","value":{"string":"d'or"}}"#, "s = 'd''or'"),
            (r#"{"op":"eq","column":"d","value":{"decimal":{"unscaled":"-125","scale":2}}}"#, "d = -1.25"),
            (r#"{"op":"ge","column":"ms","value":{"timestamp":2000}}"#, "ms >= '1970-01-01T00:00:00.002Z'"),
            (r#"{"op":"ge","column":"ms","value":{"timestamp_ntz":980985600000000}}"#, "ms >= '2001-02-01'"),
            (r#"{"op":"eq","column":"s","value":{"binary":"AP8="}}"#, "s = X'00ff'"),
            (r#"{"op":"lt","column":"day","value":{"date":59}}"#, "day < '1970-03-01'"),
            (r#"{"op":"starts_with","column":"s","value":{"string":"ab"}}"#, "startswith(s, 'ab')"),
            (r#"{"op":"eq","column":"place\u0000x","value":{"long":5}}"#, "place.x = 5"),
        ] {
            assert_eq!(parse(json, &schema()).expect(json).to_string(), text);
        }
    }

    #[test]
    fn a_tree_that_is_not_ours_is_an_error() {
        assert!(parse(r#"{"op":"like","column":"k"}"#, &schema()).is_err());
    }
}

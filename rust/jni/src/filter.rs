//! Filters as Java sends them, to the predicates that an index answers.
//!
//! The tree is JSON. Each node has an `op`: `and` and `or` with `children`, `not` with `child`, `is_null` with `column`,
//! `eq`, `lt`, `le`, `gt`, `ge` and `starts_with` with `column` and `value`, `in` with `column` and `values`, `true`,
//! `false`, and `unknown` with `text` for what only Spark can evaluate. A value is an object with one of the members
//! `null`, `boolean`, `long`, `decimal` (unscaled digits, with `scale`), `string`, `binary` (base64), `date` (days),
//! `timestamp` and `timestamp_ntz` (microseconds).
//!
//! A literal must be a value of the column's own type, exactly. Whatever is not becomes [`Predicate::Unknown`], which keeps
//! every row, so that Spark evaluates the condition itself.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use base64::Engine;
use lakemark_index::{KeyRanges, Leaf, LiteralKey, Predicate, Reason, Test, Truth, encode_literal};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::Result;

/// A node of the tree.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Node {
    And { children: Vec<Node> },
    Or { children: Vec<Node> },
    Not { child: Box<Node> },
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
}

/// A value as Spark holds it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Literal {
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

/// The predicate of a filter over a table's schema.
pub(crate) fn parse(json: &str, schema: &Schema) -> Result<Predicate> {
    let node: Node = serde_json::from_str(json)?;
    Ok(translate(node, schema).simplify())
}

fn translate(node: Node, schema: &Schema) -> Predicate {
    let all = |nodes: Vec<Node>| nodes.into_iter().map(|node| translate(node, schema)).collect();
    match node {
        Node::And { children } => Predicate::And(all(children)),
        Node::Or { children } => Predicate::Or(all(children)),
        Node::Not { child } => Predicate::Not(Box::new(translate(*child, schema))),
        Node::True => Predicate::Const(Truth::True),
        Node::False => Predicate::Const(Truth::False),
        Node::Unknown { text } => Predicate::Unknown { reason: Reason::ExpressionNotSupported, text },
        Node::IsNull { column } => {
            let text = format!("{column} IS NULL");
            match schema.field_with_name(&column) {
                Ok(_) => Predicate::Leaf(Leaf { column, test: Test::IsNull, text }),
                Err(_) => Predicate::Unknown { reason: Reason::ExpressionNotSupported, text },
            }
        }
        Node::Eq { column, value } => compare(schema, column, "=", &value, KeyRanges::point),
        Node::Lt { column, value } => compare(schema, column, "<", &value, |key| KeyRanges::less_than(key, false)),
        Node::Le { column, value } => compare(schema, column, "<=", &value, |key| KeyRanges::less_than(key, true)),
        Node::Gt { column, value } => compare(schema, column, ">", &value, |key| KeyRanges::greater_than(key, false)),
        Node::Ge { column, value } => compare(schema, column, ">=", &value, |key| KeyRanges::greater_than(key, true)),
        Node::StartsWith { column, value } => starts_with(schema, column, &value),
        Node::In { column, values } => Predicate::Or(
            values.iter().map(|value| compare(schema, column.clone(), "=", value, KeyRanges::point)).collect(),
        ),
    }
}

fn compare(
    schema: &Schema,
    column: String,
    sign: &str,
    value: &Literal,
    ranges: impl Fn(lakemark_format::key::Key) -> KeyRanges,
) -> Predicate {
    let text = format!("{column} {sign} {value:?}");
    if matches!(value, Literal::Null(_)) {
        return Predicate::Const(Truth::Null);
    }
    let key = schema
        .field_with_name(&column)
        .ok()
        .and_then(|field| literal(value, field.data_type()))
        .and_then(|array| encode_literal(array.as_ref()));
    match key {
        Some(LiteralKey::Null) => Predicate::Const(Truth::Null),
        Some(LiteralKey::Key(key)) => Predicate::Leaf(Leaf { column, test: Test::Ranges(ranges(key)), text }),
        None => Predicate::Unknown { reason: Reason::LiteralNotRepresentable, text },
    }
}

fn starts_with(schema: &Schema, column: String, value: &Literal) -> Predicate {
    let text = format!("{column} LIKE {value:?}%");
    let strings = schema.field_with_name(&column).is_ok_and(|field| is_string(field.data_type()));
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

/// The literal as a value of the column's own type, if it is one.
fn literal(value: &Literal, column: &DataType) -> Option<ArrayRef> {
    let column = match column {
        DataType::Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    let plain: ArrayRef = match (value, column) {
        (Literal::Boolean(value), DataType::Boolean) => Arc::new(BooleanArray::from(vec![*value])),
        (Literal::Long(value), column) if column.is_integer() => Arc::new(Int64Array::from(vec![*value])),
        (Literal::Decimal { unscaled, scale }, column) => decimal(unscaled, *scale, column)?,
        (Literal::String(value), column) if is_string(column) => Arc::new(StringArray::from(vec![value.as_str()])),
        (Literal::Binary(value), column) => binary(value, column)?,
        (Literal::Date(days), DataType::Date32) => Arc::new(Date32Array::from(vec![*days])),
        (Literal::Timestamp(micros), DataType::Timestamp(unit, Some(_)))
        | (Literal::TimestampNtz(micros), DataType::Timestamp(unit, None)) => timestamp(*micros, *unit, column)?,
        _ => return None,
    };
    // Not safe: a value out of the column's range is an error and so no key, never a NULL.
    cast_with_options(&plain, column, &CastOptions { safe: false, ..Default::default() }).ok()
}

fn decimal(unscaled: &str, scale: i8, column: &DataType) -> Option<ArrayRef> {
    let unscaled: i128 = unscaled.parse().ok()?;
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
    let array = Decimal128Array::from(vec![unscaled]).with_precision_and_scale(precision, scale).ok()?;
    Some(Arc::new(array))
}

fn binary(value: &str, column: &DataType) -> Option<ArrayRef> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).ok()?;
    let fits = match column {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::FixedSizeBinary(width) => usize::try_from(*width).is_ok_and(|width| width == bytes.len()),
        _ => false,
    };
    fits.then(|| Arc::new(BinaryArray::from(vec![bytes.as_slice()])) as ArrayRef)
}

fn timestamp(micros: i64, unit: TimeUnit, column: &DataType) -> Option<ArrayRef> {
    let exact = match unit {
        TimeUnit::Second => micros % 1_000_000 == 0,
        TimeUnit::Millisecond => micros % 1_000 == 0,
        TimeUnit::Microsecond => true,
        // Spark sees such a column cut to microseconds, which the index does not.
        TimeUnit::Nanosecond => false,
    };
    let DataType::Timestamp(_, zone) = column else {
        return None;
    };
    exact.then(|| Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone_opt(zone.clone())) as ArrayRef)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("k", DataType::Int32, true),
            Field::new("u", DataType::UInt8, true),
            Field::new("s", DataType::Utf8View, true),
            Field::new("d", DataType::Decimal128(10, 2), true),
            Field::new("ms", DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), true),
            Field::new("ns", DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true),
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
    fn a_tree_that_is_not_ours_is_an_error() {
        assert!(parse(r#"{"op":"like","column":"k"}"#, &schema()).is_err());
    }
}

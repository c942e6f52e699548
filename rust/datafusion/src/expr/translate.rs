//! DataFusion's expressions to what an index is asked.
//!
//! The rule is *exact or decline*: an expression becomes a test of keys only if the test has the
//! same truth value as the engine's own evaluation for every value of the column, NULL included.
//! Everything else becomes [`Predicate::Unknown`] with the reason, which keeps every row. Literals
//! are compared in the column's domain; a cast around a column is undone only where it is a
//! widening of integers, which loses nothing and keeps the order. Expressions that may raise an
//! error (division, casts that fail) are never taken.

use std::borrow::Borrow;
use std::collections::HashSet;

use arrow::array::Array;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions_nested::array_has::{ArrayHas, ArrayHasAll, ArrayHasAny};
use datafusion::logical_expr::expr::{Between, InList, Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, UNNAMED_TABLE};
use lakemark_format::key::{Key, KeyType};
use lakemark_index::{
    KeyRanges, Leaf, LiteralKey, Predicate, Reason, Test, Truth, element_of, encode_literal, key_type_of,
};

use crate::expr::fields::{name_of, text_of, type_of};

/// Elements that `array_has_all` searches for one by one.
const MAX_SEARCHES: usize = 32;

/// Translates the conjunction of `filters` over columns of `schema`.
#[must_use]
pub fn translate(filters: &[Expr], schema: &Schema) -> Predicate {
    let translator = Translator { schema };
    match filters {
        [] => Predicate::Const(Truth::True),
        [only] => translator.predicate(only).simplify(),
        several => Predicate::And(several.iter().map(|filter| translator.predicate(filter)).collect()).simplify(),
    }
}

struct Translator<'a> {
    schema: &'a Schema,
}

/// A column of the table or a field in one, perhaps seen through a cast.
struct ColumnRef<'a> {
    /// Its whole name, if it is a field of a struct.
    name: String,
    data_type: &'a DataType,
    cast: Option<&'a DataType>,
}

/// Where a literal lies among the values of a column.
enum Place {
    Null,
    At(Key),
    /// Less than every value of the column's type.
    Below,
    /// Greater than every value of the column's type.
    Above,
}

impl Place {
    fn key(self) -> Option<Key> {
        match self {
            Self::At(key) => Some(key),
            Self::Null | Self::Below | Self::Above => None,
        }
    }
}

impl Translator<'_> {
    fn predicate(&self, expr: &Expr) -> Predicate {
        match expr {
            Expr::Alias(alias) => self.predicate(&alias.expr),
            Expr::Literal(value, _) => {
                constant(value).unwrap_or_else(|| declined(expr, Reason::ExpressionNotSupported))
            }
            Expr::Column(_) => self.bare_boolean(expr),
            Expr::Not(inner) => negate(self.predicate(inner)),
            Expr::BinaryExpr(binary) => self.binary(expr, binary),
            Expr::Between(between) => self.between(expr, between),
            Expr::InList(list) => self.in_list(expr, list),
            Expr::IsNull(inner) => self.is_null(expr, inner),
            Expr::IsNotNull(inner) => negate(self.is_null(expr, inner)),
            Expr::IsTrue(inner) => self.is_true(expr, inner, false),
            Expr::IsFalse(inner) => self.is_true(expr, inner, true),
            Expr::IsNotTrue(inner) => negate(self.is_true(expr, inner, false)),
            Expr::IsNotFalse(inner) => negate(self.is_true(expr, inner, true)),
            Expr::IsUnknown(inner) => self.is_unknown(expr, inner),
            Expr::IsNotUnknown(inner) => negate(self.is_unknown(expr, inner)),
            Expr::Like(like) => self.like(expr, like),
            Expr::ScalarFunction(function) => self.function(expr, function),
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn binary(&self, expr: &Expr, binary: &BinaryExpr) -> Predicate {
        match binary.op {
            Operator::And => Predicate::And(self.operands(expr, Operator::And)),
            Operator::Or => Predicate::Or(self.operands(expr, Operator::Or)),
            op => self.comparison(expr, &binary.left, op, &binary.right),
        }
    }

    /// Operands of a chain of AND or OR, found without recursion: engines write chains of
    /// thousands as a left-deep tree.
    fn operands(&self, expr: &Expr, op: Operator) -> Vec<Predicate> {
        let (mut pending, mut parts) = (vec![expr], Vec::new());
        while let Some(next) = pending.pop() {
            match next {
                Expr::BinaryExpr(binary) if binary.op == op => {
                    pending.push(&binary.right);
                    pending.push(&binary.left);
                }
                other => parts.push(self.predicate(other)),
            }
        }
        parts
    }

    fn comparison(&self, expr: &Expr, left: &Expr, op: Operator, right: &Expr) -> Predicate {
        let (column, literal, op) = match (self.column(left), literal(right), self.column(right), literal(left)) {
            (Some(column), Some(literal), _, _) => (column, literal, op),
            (_, _, Some(column), Some(literal)) => match op.swap() {
                Some(op) => (column, literal, op),
                None => return declined(expr, Reason::ExpressionNotSupported),
            },
            _ => return declined(expr, Reason::ExpressionNotSupported),
        };
        let place = match place(&column, literal) {
            Ok(place) => place,
            Err(reason) => return declined(expr, reason),
        };
        let equal = |place: Place| match place {
            Place::Null => None,
            Place::At(key) => Some(KeyRanges::point(key)),
            Place::Below | Place::Above => Some(KeyRanges::none()),
        };
        let leaf = |ranges: Option<KeyRanges>| match ranges {
            Some(ranges) => ranges_leaf(&column, ranges, expr),
            None => Predicate::Const(Truth::Null),
        };
        match op {
            Operator::Eq => leaf(equal(place)),
            Operator::NotEq => leaf(equal(place).map(|ranges| ranges.complement())),
            Operator::Lt => leaf(below(place, false)),
            Operator::LtEq => leaf(below(place, true)),
            Operator::Gt => leaf(below(place, true).map(|ranges| ranges.complement())),
            Operator::GtEq => leaf(below(place, false).map(|ranges| ranges.complement())),
            Operator::IsNotDistinctFrom | Operator::IsDistinctFrom => {
                let same = match equal(place) {
                    None => null_leaf(&column, expr),
                    Some(ranges) => {
                        Predicate::And(vec![ranges_leaf(&column, ranges, expr), negate(null_leaf(&column, expr))])
                    }
                };
                if op == Operator::IsDistinctFrom { negate(same) } else { same }
            }
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn between(&self, expr: &Expr, between: &Between) -> Predicate {
        let both = Predicate::And(vec![
            self.comparison(expr, &between.expr, Operator::GtEq, &between.low),
            self.comparison(expr, &between.expr, Operator::LtEq, &between.high),
        ]);
        if between.negated { negate(both) } else { both }
    }

    fn in_list(&self, expr: &Expr, list: &InList) -> Predicate {
        let Some(column) = self.column(&list.expr) else {
            return declined(expr, Reason::ExpressionNotSupported);
        };
        let (mut keys, mut with_null) = (Vec::with_capacity(list.list.len()), false);
        for item in &list.list {
            let Some(literal) = literal(item) else {
                return declined(expr, Reason::ExpressionNotSupported);
            };
            match place(&column, literal) {
                Ok(Place::Null) => with_null = true,
                Ok(Place::At(key)) => keys.push(key),
                Ok(Place::Below | Place::Above) => {}
                Err(reason) => return declined(expr, reason),
            }
        }
        // The engine looks long lists of floats up by their bits, where -0.0 is not 0.0.
        if missing_zero(list.list.iter().filter_map(literal)).is_some() {
            return declined(expr, Reason::LiteralNotRepresentable);
        }
        let mut found = ranges_leaf(&column, KeyRanges::points(keys), expr);
        if with_null {
            found = Predicate::Or(vec![found, Predicate::Const(Truth::Null)]);
        }
        if list.negated { negate(found) } else { found }
    }

    fn is_null(&self, expr: &Expr, inner: &Expr) -> Predicate {
        if let Some(value) = literal(inner) {
            return Predicate::Const(if value.is_null() { Truth::True } else { Truth::False });
        }
        match self.column(inner) {
            // A cast may make NULL of what is not (or fail), so it is not looked through, unless
            // `column` has found it harmless.
            Some(column) => null_leaf(&column, expr),
            None => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn bare_boolean(&self, expr: &Expr) -> Predicate {
        match self.column(expr) {
            Some(column) if key_type_of(column.data_type) == Some(KeyType::Bool) => {
                match place(&column, &ScalarValue::Boolean(Some(true))) {
                    Ok(Place::At(key)) => ranges_leaf(&column, KeyRanges::point(key), expr),
                    _ => declined(expr, Reason::ExpressionNotSupported),
                }
            }
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    /// `p IS TRUE`, or `p IS FALSE` if `opposite`: p, but FALSE where p is NULL. That is known for
    /// a test of one column, which is NULL just where the column is. (The opposite of a test of elements is none.)
    fn is_true(&self, expr: &Expr, inner: &Expr, opposite: bool) -> Predicate {
        let tested = self.predicate(inner);
        let tested = if opposite { negate(tested).simplify() } else { tested.simplify() };
        match tested {
            Predicate::Leaf(Leaf { column, test: test @ (Test::Ranges(_) | Test::Elements(_)), .. }) => {
                let text = text(expr);
                let is_null = Leaf { column: column.clone(), test: Test::IsNull, text: text.clone() };
                Predicate::And(vec![Predicate::Leaf(Leaf { column, test, text }), negate(Predicate::Leaf(is_null))])
            }
            Predicate::Const(truth) => Predicate::Const(if truth == Truth::True { Truth::True } else { Truth::False }),
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn is_unknown(&self, expr: &Expr, inner: &Expr) -> Predicate {
        match self.predicate(inner).simplify() {
            Predicate::Leaf(Leaf { column, test: Test::Ranges(_) | Test::Elements(_), .. }) => {
                Predicate::Leaf(Leaf { column, test: Test::IsNull, text: text(expr) })
            }
            Predicate::Const(truth) => Predicate::Const(if truth == Truth::Null { Truth::True } else { Truth::False }),
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn like(&self, expr: &Expr, like: &Like) -> Predicate {
        let plain = !like.case_insensitive && like.escape_char.is_none();
        let (Some(column), Some(pattern), true) = (self.text_column(&like.expr), literal(&like.pattern), plain) else {
            return declined(expr, Reason::ExpressionNotSupported);
        };
        let ranges = match pattern.try_as_str() {
            Some(None) => return Predicate::Const(Truth::Null),
            Some(Some(pattern)) => like_ranges(pattern),
            None => None,
        };
        match ranges {
            Some(ranges) if like.negated => ranges_leaf(&column, ranges.complement(), expr),
            Some(ranges) => ranges_leaf(&column, ranges, expr),
            None => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn function(&self, expr: &Expr, call: &ScalarFunction) -> Predicate {
        let function = call.func.inner();
        match call.args.as_slice() {
            [searched, prefix] if call.name() == "starts_with" => self.starts_with(expr, searched, prefix),
            [list, element] if function.is::<ArrayHas>() => self.has_element(expr, list, element),
            [list, elements] if function.is::<ArrayHasAll>() => self.has_all(expr, list, elements),
            [one, other] if function.is::<ArrayHasAny>() => match literal(one) {
                Some(_) => self.has_any(expr, other, one),
                None => self.has_any(expr, one, other),
            },
            _ => self.bare_boolean(expr),
        }
    }

    /// `array_has(list, element)`, `element = ANY(list)`.
    fn has_element(&self, expr: &Expr, list: &Expr, element: &Expr) -> Predicate {
        let (Some(list), Some(element)) = (self.list(list), literal(element)) else {
            return declined(expr, Reason::ExpressionNotSupported);
        };
        match element_place(&list, element) {
            Ok(Place::Null) => Predicate::Const(Truth::Null),
            Ok(place) => elements_leaf(&list, KeyRanges::points(place.key().into_iter().collect()), text(expr)),
            Err(reason) => declined(expr, reason),
        }
    }

    /// `array_has_any(list, elements)`: one search for all of them.
    fn has_any(&self, expr: &Expr, list: &Expr, elements: &Expr) -> Predicate {
        match self.elements(list, elements) {
            Ok((list, places)) => {
                let keys = places.into_iter().filter_map(|(_, place)| place.key()).collect();
                elements_leaf(&list, KeyRanges::points(keys), text(expr))
            }
            Err(reason) => declined(expr, reason),
        }
    }

    /// `array_has_all(list, elements)`: a search for each. Beyond some of them the engine looks, at the few rows that are left.
    fn has_all(&self, expr: &Expr, list: &Expr, elements: &Expr) -> Predicate {
        let (column, mut places) = match self.elements(list, elements) {
            Ok(found) => found,
            Err(reason) => return declined(expr, reason),
        };
        let shown = text(list);
        let mut seen = HashSet::new();
        places.retain(|(_, place)| match place {
            Place::At(key) => seen.insert(Some(key.clone())),
            _ => seen.insert(None),
        });
        let is_cut = places.len() > MAX_SEARCHES;
        let leaf = |(element, place): (ScalarValue, Place)| {
            let text = format!("array_has({shown}, {element})");
            elements_leaf(&column, KeyRanges::points(place.key().into_iter().collect()), text)
        };
        let mut parts: Vec<Predicate> = places.into_iter().take(MAX_SEARCHES).map(leaf).collect();
        if is_cut {
            parts.push(declined(expr, Reason::ExpressionNotSupported));
        }
        Predicate::And(parts)
    }

    /// A column of lists, and the elements that are looked for in it with their places among its own.
    fn elements<'e>(
        &'e self,
        list: &'e Expr,
        elements: &Expr,
    ) -> Result<(ColumnRef<'e>, Vec<(ScalarValue, Place)>), Reason> {
        let elements = literal(elements).and_then(elements_of);
        // Without elements the engine answers TRUE or FALSE for a list that is NULL, too.
        let (Some(list), Some(elements)) = (self.list(list), elements.filter(|elements| !elements.is_empty())) else {
            return Err(Reason::ExpressionNotSupported);
        };
        let mut places = Vec::with_capacity(elements.len());
        for element in elements {
            match element_place(&list, &element)? {
                // A NULL among the elements is looked for like a value.
                Place::Null => return Err(Reason::LiteralNotRepresentable),
                place => places.push((element, place)),
            }
        }
        Ok((list, places))
    }

    /// A column of lists as one of its elements, also where a cast widens these.
    fn list<'e>(&'e self, expr: &'e Expr) -> Option<ColumnRef<'e>> {
        let cast = |inner: &'e Expr, to: &'e DataType| match to {
            DataType::List(element) | DataType::LargeList(element) => seen_as(self.list(inner)?, element.data_type()),
            _ => None,
        };
        match expr {
            Expr::Alias(alias) => self.list(&alias.expr),
            Expr::Column(_) | Expr::ScalarFunction(_) => {
                let name = name_of(expr)?;
                let element = element_of(type_of(self.schema, &name)?)?;
                Some(ColumnRef { name, data_type: element.data_type(), cast: None })
            }
            Expr::Cast(inner) => cast(&inner.expr, inner.field.data_type()),
            Expr::TryCast(inner) => cast(&inner.expr, inner.field.data_type()),
            _ => None,
        }
    }

    fn starts_with(&self, expr: &Expr, searched: &Expr, prefix: &Expr) -> Predicate {
        match (self.text_column(searched), literal(prefix).and_then(ScalarValue::try_as_str)) {
            (Some(_), Some(None)) => Predicate::Const(Truth::Null),
            (Some(column), Some(Some(prefix))) => ranges_leaf(&column, KeyRanges::prefix(prefix.as_bytes()), expr),
            _ => declined(expr, Reason::ExpressionNotSupported),
        }
    }

    fn text_column<'e>(&'e self, expr: &'e Expr) -> Option<ColumnRef<'e>> {
        self.column(expr).filter(|column| key_type_of(column.data_type) == Some(KeyType::Utf8))
    }

    /// A column or field, or a cast of one that keeps value and order: between integers without loss, or
    /// between types whose keys are the same (plain, large, view and dictionary text).
    fn column<'e>(&'e self, expr: &'e Expr) -> Option<ColumnRef<'e>> {
        match expr {
            Expr::Alias(alias) => self.column(&alias.expr),
            Expr::Column(_) | Expr::ScalarFunction(_) => {
                let name = name_of(expr)?;
                let data_type = type_of(self.schema, &name)?;
                Some(ColumnRef { name, data_type, cast: None })
            }
            Expr::Cast(cast) => self.column(&cast.expr).and_then(|column| seen_as(column, cast.field.data_type())),
            Expr::TryCast(cast) => self.column(&cast.expr).and_then(|column| seen_as(column, cast.field.data_type())),
            _ => None,
        }
    }
}

fn seen_as<'a>(column: ColumnRef<'a>, to: &'a DataType) -> Option<ColumnRef<'a>> {
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
fn place(column: &ColumnRef<'_>, literal: &ScalarValue) -> Result<Place, Reason> {
    let Some(key_type) = key_type_of(column.data_type) else {
        return Err(Reason::TypeNotIndexed);
    };
    if literal.is_null() {
        return Ok(Place::Null);
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
        Some(LiteralKey::Key(key)) => Ok(Place::At(key)),
        Some(LiteralKey::Null) => Ok(Place::Null),
        None => Err(Reason::LiteralNotRepresentable),
    }
}

/// An integer literal as a value of the column's integer type, or on which side it lies outside.
fn integer_place(data_type: &DataType, literal: &ScalarValue) -> Result<Result<ScalarValue, Place>, Reason> {
    let (Some((min, max)), Some(value)) = (integer_range(data_type), integer_value(literal)) else {
        return Err(Reason::LiteralNotRepresentable);
    };
    if value < min {
        return Ok(Err(Place::Below));
    }
    if value > max {
        return Ok(Err(Place::Above));
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

fn below(place: Place, inclusive: bool) -> Option<KeyRanges> {
    match place {
        Place::Null => None,
        Place::At(key) => Some(KeyRanges::less_than(key, inclusive)),
        Place::Below => Some(KeyRanges::none()),
        Place::Above => Some(KeyRanges::all()),
    }
}

/// Keys that match a pattern which is a plain text or a prefix. A backslash escapes in LIKE, so
/// patterns with one are left to the engine.
fn like_ranges(pattern: &str) -> Option<KeyRanges> {
    let prefix = pattern.trim_end_matches('%');
    if prefix.contains(['%', '_', '\\']) {
        return None;
    }
    Some(if prefix.len() == pattern.len() {
        KeyRanges::point(Key::Bytes(prefix.as_bytes().to_vec()))
    } else {
        KeyRanges::prefix(prefix.as_bytes())
    })
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
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

fn constant(value: &ScalarValue) -> Option<Predicate> {
    match value {
        ScalarValue::Boolean(Some(true)) => Some(Predicate::Const(Truth::True)),
        ScalarValue::Boolean(Some(false)) => Some(Predicate::Const(Truth::False)),
        ScalarValue::Boolean(None) | ScalarValue::Null => Some(Predicate::Const(Truth::Null)),
        _ => None,
    }
}

fn ranges_leaf(column: &ColumnRef<'_>, ranges: KeyRanges, expr: &Expr) -> Predicate {
    Predicate::Leaf(Leaf { column: column.name.clone(), test: Test::Ranges(ranges), text: text(expr) })
}

/// The place of what is looked for among the elements of lists.
fn element_place(list: &ColumnRef<'_>, element: &ScalarValue) -> Result<Place, Reason> {
    // The engine tells -0.0 from 0.0 in lists.
    if is_negative_zero(element).is_some() {
        return Err(Reason::LiteralNotRepresentable);
    }
    place(list, element)
}

/// Whether a list has an element of some; NULL where it is NULL.
fn elements_leaf(list: &ColumnRef<'_>, keys: KeyRanges, text: String) -> Predicate {
    Predicate::Leaf(Leaf { column: list.name.clone(), test: Test::Elements(keys), text })
}

/// The elements of a list that is a constant; none if it is NULL or no list.
fn elements_of(list: &ScalarValue) -> Option<Vec<ScalarValue>> {
    let elements = match list {
        ScalarValue::List(list) => list.is_valid(0).then(|| list.value(0)),
        ScalarValue::LargeList(list) => list.is_valid(0).then(|| list.value(0)),
        ScalarValue::FixedSizeList(list) => list.is_valid(0).then(|| list.value(0)),
        _ => None,
    }?;
    (0..elements.len()).map(|place| ScalarValue::try_from_array(&elements, place).ok()).collect()
}

fn null_leaf(column: &ColumnRef<'_>, expr: &Expr) -> Predicate {
    Predicate::Leaf(Leaf { column: column.name.clone(), test: Test::IsNull, text: text(expr) })
}

fn negate(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

fn declined(expr: &Expr, reason: Reason) -> Predicate {
    Predicate::Unknown { reason, text: text(expr) }
}

/// The expression as its user wrote it: without the name that DataFusion gives to a table that has none.
fn text(expr: &Expr) -> String {
    text_of(expr).replace(&format!("{UNNAMED_TABLE}."), "")
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;

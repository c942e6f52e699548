//! From DataFusion's expressions to those that an index is probed with.
//!
//! The rule is *exact or decline*: an expression becomes a test of keys only if the test has the
//! same truth value as the engine's own evaluation for every value of the column, NULL included.
//! Everything else becomes [`Predicate::Unknown`] with the reason, which keeps every row. Literals
//! are compared in the column's domain; a cast around a column is undone only where it is a
//! widening of integers, which loses nothing and keeps the order. Expressions that may raise an
//! error (division, casts that fail) are never taken.

mod literals;

use std::collections::HashSet;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions_nested::array_has::{ArrayHas, ArrayHasAll, ArrayHasAny};
use datafusion::logical_expr::expr::{Between, InList, Like, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use lakemark_format::key::{Key, KeyType};
use lakemark_index::{KeyRanges, Leaf, Predicate, Reason, Test, Truth, element_of, key_type_of};

use crate::expr::fields::{name_of, type_of};
use crate::expr::text::{text_of, value_text};

use literals::{ColumnRef, LiteralPlace, below, element_place, elements_of, literal, place, seen_as};
pub(crate) use literals::{missing_zero, positive_zero};

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

/// Elements that are looked for in lists.
struct SoughtElements<'a> {
    /// The column of lists as one of its elements.
    list: ColumnRef<'a>,
    /// None of them is NULL.
    elements: Vec<SoughtElement>,
}

/// An element that is looked for.
struct SoughtElement {
    /// As the statement has it.
    value: ScalarValue,
    /// Where it lies among the elements of the column.
    place: LiteralPlace,
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
        let equal = |place: LiteralPlace| match place {
            LiteralPlace::Null => None,
            LiteralPlace::At(key) => Some(KeyRanges::point(key)),
            LiteralPlace::Below | LiteralPlace::Above => Some(KeyRanges::none()),
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
        if between.negated {
            let opposite = Between { negated: false, ..between.clone() };
            return negate(self.between(&Expr::Between(opposite.clone()), &opposite));
        }
        Predicate::And(vec![
            self.comparison(expr, &between.expr, Operator::GtEq, &between.low),
            self.comparison(expr, &between.expr, Operator::LtEq, &between.high),
        ])
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
                Ok(LiteralPlace::Null) => with_null = true,
                Ok(LiteralPlace::At(key)) => keys.push(key),
                Ok(LiteralPlace::Below | LiteralPlace::Above) => {}
                Err(reason) => return declined(expr, reason),
            }
        }
        // The engine looks long lists of floats up by their bits, where -0.0 is not 0.0.
        if missing_zero(list.list.iter().filter_map(literal)).is_some() {
            return declined(expr, Reason::LiteralNotRepresentable);
        }
        let listed = KeyRanges::points(keys);
        let found = ranges_leaf(&column, if list.negated { listed.complement() } else { listed }, expr);
        match (with_null, list.negated) {
            (false, _) => found,
            (true, false) => Predicate::Or(vec![found, Predicate::Const(Truth::Null)]),
            (true, true) => Predicate::And(vec![found, Predicate::Const(Truth::Null)]),
        }
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
                    Ok(LiteralPlace::At(key)) => ranges_leaf(&column, KeyRanges::point(key), expr),
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
                let text = text_of(expr);
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
                Predicate::Leaf(Leaf { column, test: Test::IsNull, text: text_of(expr) })
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
            Ok(LiteralPlace::Null) => Predicate::Const(Truth::Null),
            Ok(place) => elements_leaf(&list, KeyRanges::points(place.key().into_iter().collect()), text_of(expr)),
            Err(reason) => declined(expr, reason),
        }
    }

    /// `array_has_any(list, elements)`: one search for all of them.
    fn has_any(&self, expr: &Expr, list: &Expr, elements: &Expr) -> Predicate {
        match self.elements(list, elements) {
            Ok(SoughtElements { list, elements }) => {
                let keys = elements.into_iter().filter_map(|sought| sought.place.key()).collect();
                elements_leaf(&list, KeyRanges::points(keys), text_of(expr))
            }
            Err(reason) => declined(expr, reason),
        }
    }

    /// `array_has_all(list, elements)`: a search for each. Beyond some of them the engine tests the few rows that are left.
    fn has_all(&self, expr: &Expr, list: &Expr, elements: &Expr) -> Predicate {
        let SoughtElements { list: column, mut elements } = match self.elements(list, elements) {
            Ok(found) => found,
            Err(reason) => return declined(expr, reason),
        };
        let shown = text_of(list);
        let mut seen = HashSet::new();
        elements.retain(|sought| match &sought.place {
            LiteralPlace::At(key) => seen.insert(Some(key.clone())),
            _ => seen.insert(None),
        });
        let is_cut = elements.len() > MAX_SEARCHES;
        let leaf = |sought: SoughtElement| {
            let text = format!("array_has({shown}, {})", value_text(&sought.value));
            elements_leaf(&column, KeyRanges::points(sought.place.key().into_iter().collect()), text)
        };
        let mut parts: Vec<Predicate> = elements.into_iter().take(MAX_SEARCHES).map(leaf).collect();
        if is_cut {
            parts.push(declined(expr, Reason::ExpressionNotSupported));
        }
        Predicate::And(parts)
    }

    /// The elements that are looked for in a column of lists.
    fn elements<'e>(&'e self, list: &'e Expr, elements: &Expr) -> Result<SoughtElements<'e>, Reason> {
        let elements = literal(elements).and_then(elements_of);
        // Without elements the engine answers TRUE or FALSE for a list that is NULL, too.
        let (Some(list), Some(elements)) = (self.list(list), elements.filter(|elements| !elements.is_empty())) else {
            return Err(Reason::ExpressionNotSupported);
        };
        let mut sought = Vec::with_capacity(elements.len());
        for value in elements {
            match element_place(&list, &value)? {
                // A NULL among the elements is looked for like a value.
                LiteralPlace::Null => return Err(Reason::LiteralNotRepresentable),
                place => sought.push(SoughtElement { value, place }),
            }
        }
        Ok(SoughtElements { list, elements: sought })
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

fn constant(value: &ScalarValue) -> Option<Predicate> {
    match value {
        ScalarValue::Boolean(Some(true)) => Some(Predicate::Const(Truth::True)),
        ScalarValue::Boolean(Some(false)) => Some(Predicate::Const(Truth::False)),
        ScalarValue::Boolean(None) | ScalarValue::Null => Some(Predicate::Const(Truth::Null)),
        _ => None,
    }
}

fn ranges_leaf(column: &ColumnRef<'_>, ranges: KeyRanges, expr: &Expr) -> Predicate {
    Predicate::Leaf(Leaf { column: column.name.clone(), test: Test::Ranges(ranges), text: text_of(expr) })
}

/// Whether a list has an element of some; NULL where it is NULL.
fn elements_leaf(list: &ColumnRef<'_>, keys: KeyRanges, text: String) -> Predicate {
    Predicate::Leaf(Leaf { column: list.name.clone(), test: Test::Elements(keys), text })
}

fn null_leaf(column: &ColumnRef<'_>, expr: &Expr) -> Predicate {
    Predicate::Leaf(Leaf { column: column.name.clone(), test: Test::IsNull, text: text_of(expr) })
}

fn negate(predicate: Predicate) -> Predicate {
    Predicate::Not(Box::new(predicate))
}

fn declined(expr: &Expr, reason: Reason) -> Predicate {
    Predicate::Unknown { reason, text: text_of(expr) }
}

#[cfg(test)]
#[path = "translate_tests.rs"]
mod tests;

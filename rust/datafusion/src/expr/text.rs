//! Expressions as SQL, for reports: what their user wrote, more or less, and what can be pasted back.
//!
//! Casts are left out, as most of them are the engine's own. Literals are written by [`literal_text`], as those of Spark are.

use datafusion::common::{Column, ScalarValue};
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::expr::{Between, Case, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, UNNAMED_TABLE};
use lakemark_format::column;
use lakemark_index::{literal_text, quoted};

use crate::expr::fields::name_of;

/// So many values of a list are named; nobody writes more of them by hand.
const NAMED_VALUES: usize = 32;

// How tightly parts of an expression hold together: an operand that holds less than where it stands is in parentheses.
const OR: u8 = 1;
const AND: u8 = 2;
const COMPARISON: u8 = 3;
const OPERAND: u8 = 4;
const SUM: u8 = 5;
const PRODUCT: u8 = 6;
const ATOM: u8 = 7;

/// An expression as SQL.
pub(crate) fn text_of(expr: &Expr) -> String {
    let mut text = String::new();
    write(&mut text, expr, OR);
    text
}

/// A value as a literal of SQL.
pub(crate) fn value_text(value: &ScalarValue) -> String {
    match value {
        ScalarValue::Dictionary(_, value) => value_text(value),
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            quoted(text)
        }
        // The common ones need no array.
        value if value.is_null() || value.data_type().is_integer() => value.to_string(),
        value => value.to_array().map_or_else(|_| value.to_string(), |array| literal_text(array.as_ref(), 0)),
    }
}

fn strength(expr: &Expr) -> u8 {
    match expr {
        Expr::Alias(alias) => strength(&alias.expr),
        Expr::Cast(cast) => strength(&cast.expr),
        Expr::TryCast(cast) => strength(&cast.expr),
        Expr::BinaryExpr(binary) => strength_of(binary.op),
        Expr::Not(_)
        | Expr::Between(_)
        | Expr::InList(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_) => COMPARISON,
        _ => ATOM,
    }
}

fn strength_of(op: Operator) -> u8 {
    match op {
        Operator::Or => OR,
        Operator::And => AND,
        Operator::Plus | Operator::Minus => SUM,
        Operator::Multiply | Operator::Divide | Operator::Modulo => PRODUCT,
        // Parsers do not agree on the others.
        _ => COMPARISON,
    }
}

fn write(text: &mut String, expr: &Expr, least: u8) {
    let loose = strength(expr) < least;
    if loose {
        text.push('(');
    }
    write_bare(text, expr);
    if loose {
        text.push(')');
    }
}

fn write_bare(text: &mut String, expr: &Expr) {
    match expr {
        Expr::Alias(alias) => write_bare(text, &alias.expr),
        Expr::Cast(cast) => write_bare(text, &cast.expr),
        Expr::TryCast(cast) => write_bare(text, &cast.expr),
        Expr::Literal(value, _) => text.push_str(&value_text(value)),
        Expr::Column(column) => text.push_str(&column_text(column)),
        Expr::BinaryExpr(binary) => write_binary(text, expr, binary),
        Expr::Not(inner) => {
            text.push_str("NOT ");
            write(text, inner, ATOM);
        }
        Expr::Between(between) => write_between(text, between),
        Expr::InList(list) => write_in_list(text, list),
        Expr::Like(like) => write_like(text, like, if like.case_insensitive { "ILIKE" } else { "LIKE" }),
        Expr::SimilarTo(like) => write_like(text, like, "SIMILAR TO"),
        Expr::IsNull(inner) => write_is(text, inner, "NULL"),
        Expr::IsNotNull(inner) => write_is(text, inner, "NOT NULL"),
        Expr::IsTrue(inner) => write_is(text, inner, "TRUE"),
        Expr::IsNotTrue(inner) => write_is(text, inner, "NOT TRUE"),
        Expr::IsFalse(inner) => write_is(text, inner, "FALSE"),
        Expr::IsNotFalse(inner) => write_is(text, inner, "NOT FALSE"),
        Expr::IsUnknown(inner) => write_is(text, inner, "UNKNOWN"),
        Expr::IsNotUnknown(inner) => write_is(text, inner, "NOT UNKNOWN"),
        Expr::Negative(inner) => {
            text.push_str("(- ");
            write(text, inner, ATOM);
            text.push(')');
        }
        Expr::Case(case) => write_case(text, case),
        Expr::ScalarFunction(call) => match name_of(expr) {
            Some(name) if call.func.inner().is::<GetFieldFunc>() => text.push_str(&in_brackets(&name)),
            _ => {
                text.push_str(call.name());
                text.push('(');
                write_list(text, &call.args);
                text.push(')');
            }
        },
        // As the engine shows it, but for the name that it gives to a table that has none.
        other => text.push_str(&other.human_display().to_string().replace(&format!("{UNNAMED_TABLE}."), "")),
    }
}

fn write_binary(text: &mut String, expr: &Expr, binary: &BinaryExpr) {
    let op = binary.op;
    if matches!(op, Operator::And | Operator::Or) {
        for (place, operand) in operands(expr, op).into_iter().enumerate() {
            if place > 0 {
                text.push_str(&format!(" {op} "));
            }
            write(text, operand, strength_of(op) + 1);
        }
        return;
    }
    // Sums and products of the same strength are worked out from the left.
    let (left, right) = match strength_of(op) {
        COMPARISON => (OPERAND, OPERAND),
        strength => (strength, strength + 1),
    };
    write(text, &binary.left, left);
    text.push_str(&format!(" {op} "));
    write(text, &binary.right, right);
}

/// Operands of a chain of AND or OR, found without recursion: engines write chains of thousands as a left-deep tree.
fn operands(expr: &Expr, op: Operator) -> Vec<&Expr> {
    let (mut pending, mut found) = (vec![expr], Vec::new());
    while let Some(next) = pending.pop() {
        match next {
            Expr::BinaryExpr(binary) if binary.op == op => {
                pending.push(&binary.right);
                pending.push(&binary.left);
            }
            other => found.push(other),
        }
    }
    found
}

fn not(negated: bool) -> &'static str {
    if negated { " NOT" } else { "" }
}

fn write_between(text: &mut String, between: &Between) {
    write(text, &between.expr, OPERAND);
    text.push_str(not(between.negated));
    text.push_str(" BETWEEN ");
    write(text, &between.low, OPERAND);
    text.push_str(" AND ");
    write(text, &between.high, OPERAND);
}

fn write_in_list(text: &mut String, list: &InList) {
    write(text, &list.expr, OPERAND);
    text.push_str(not(list.negated));
    text.push_str(" IN (");
    if list.list.len() <= NAMED_VALUES {
        write_list(text, &list.list);
    } else {
        text.push_str(&format!("{} values", list.list.len()));
    }
    text.push(')');
}

fn write_list(text: &mut String, list: &[Expr]) {
    for (place, item) in list.iter().enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        write(text, item, OR);
    }
}

fn write_like(text: &mut String, like: &Like, word: &str) {
    write(text, &like.expr, OPERAND);
    text.push_str(not(like.negated));
    text.push_str(&format!(" {word} "));
    write(text, &like.pattern, OPERAND);
    if let Some(escape) = like.escape_char {
        text.push_str(&format!(" ESCAPE {}", quoted(&escape.to_string())));
    }
}

fn write_is(text: &mut String, inner: &Expr, what: &str) {
    write(text, inner, OPERAND);
    text.push_str(&format!(" IS {what}"));
}

fn write_case(text: &mut String, case: &Case) {
    text.push_str("CASE ");
    if let Some(of) = &case.expr {
        write(text, of, OPERAND);
        text.push(' ');
    }
    for (when, then) in &case.when_then_expr {
        text.push_str("WHEN ");
        write(text, when, OR);
        text.push_str(" THEN ");
        write(text, then, OR);
        text.push(' ');
    }
    if let Some(otherwise) = &case.else_expr {
        text.push_str("ELSE ");
        write(text, otherwise, OR);
        text.push(' ');
    }
    text.push_str("END");
}

/// A column without the name that DataFusion gives to a table that has none.
fn column_text(column: &Column) -> String {
    match &column.relation {
        Some(relation) if relation.table() != UNNAMED_TABLE => format!("{relation}.{}", identifier(&column.name)),
        _ => identifier(&column.name),
    }
}

/// A name, in quotes if it is not read as one without.
fn identifier(name: &str) -> String {
    let mut characters = name.chars();
    let starts = characters.next().is_some_and(|first| first.is_alphabetic() || first == '_');
    if starts && characters.all(|next| next.is_alphanumeric() || next == '_') {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A field by its names in brackets.
fn in_brackets(name: &str) -> String {
    let mut names = column::names(name);
    let root = identifier(names.next().unwrap_or_default());
    names.fold(root, |text, name| format!("{text}[{}]", quoted(name)))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

    use super::*;

    /// How a condition that somebody wrote is shown.
    fn shown(sql: &str) -> String {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
            Field::new("flag", DataType::Boolean, true),
            Field::new("carrier", DataType::Utf8View, true),
            Field::new("arrival delay", DataType::Float64, true),
            Field::new("day", DataType::Date32, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            Field::new("place", DataType::Struct(vec![Field::new("city", DataType::Utf8, true)].into()), true),
        ]);
        let schema = DFSchema::try_from_qualified_schema(UNNAMED_TABLE, &schema).unwrap();
        let state = SessionContext::new().state();
        text_of(&state.create_logical_expr(sql, &schema).unwrap())
    }

    #[test]
    fn conditions_are_shown_as_they_were_written() {
        for sql in [
            "carrier = 'UA'",
            "carrier IN ('UA', 'it''s', NULL)",
            "carrier NOT IN ('UA')",
            "carrier LIKE 'U%' AND carrier NOT ILIKE '%x'",
            "carrier LIKE 'U!%%' ESCAPE '!'",
            "day < '2001-02-01'",
            "a BETWEEN 1 AND 5 OR a NOT BETWEEN b AND 9",
            "(a = 1 OR b = 2) AND a < 9",
            "a = 1 OR b = 2 AND a < 9",
            "NOT (a = 1)",
            "NOT flag",
            "(a + b) * 2 > a - (b - 3)",
            "a - b - 3 = a * b / 2 % 7",
            "flag IS NOT TRUE",
            "(a > 1) IS UNKNOWN",
            "\"arrival delay\" > 15",
            "place['city'] = 'Oslo'",
            "abs(a) = abs(-5)",
            "CASE WHEN a > 1 THEN 'x' ELSE 'y' END = carrier",
        ] {
            assert_eq!(shown(sql), sql);
        }
    }

    #[test]
    fn literals_of_every_type_are_text_that_can_be_pasted_back() {
        for (value, text) in [
            (ScalarValue::TimestampMicrosecond(Some(980_985_600_000_000), None), "'2001-02-01'"),
            (ScalarValue::TimestampSecond(Some(0), Some("+00:00".into())), "'1970-01-01T00:00:00Z'"),
            (ScalarValue::Date32(Some(0)), "'1970-01-01'"),
            (ScalarValue::Time64Microsecond(Some(1_000_000)), "'00:00:01'"),
            (ScalarValue::Decimal128(Some(-125), 10, 2), "-1.25"),
            (ScalarValue::Binary(Some(vec![0, 255])), "X'00ff'"),
            (ScalarValue::Boolean(Some(true)), "true"),
            (ScalarValue::Float64(Some(1.5)), "1.5"),
            (ScalarValue::Int32(None), "NULL"),
            (ScalarValue::Utf8(None), "NULL"),
            (ScalarValue::Null, "NULL"),
        ] {
            assert_eq!(value_text(&value), text);
            let coded = ScalarValue::Dictionary(Box::new(DataType::Int8), Box::new(value));
            assert_eq!(value_text(&coded), text);
        }
    }

    #[test]
    fn long_lists_and_chains_are_shown_without_a_deep_stack() {
        let list = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        assert_eq!(shown(&format!("a IN ({list})")), "a IN (100 values)");
        let column = Expr::Column(Column::new_unqualified("a"));
        let test = |value| column.clone().eq(Expr::Literal(ScalarValue::Int64(Some(value)), None));
        let chain = (1..20_000).fold(test(0), |chain, value| {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(chain), Operator::Or, Box::new(test(value))))
        });
        let text = text_of(&chain);
        assert!(text.starts_with("a = 0 OR a = 1 OR a = 2 OR ") && text.ends_with(" OR a = 19999"));
        // Dropping the chain recurses within DataFusion's own types.
        std::mem::forget(chain);
    }
}

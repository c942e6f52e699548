//! From the text of a constraint to its condition.
//!
//! The text is Spark's SQL. What other engines would do in their own way (functions, casts, zones of sessions, collations) has no
//! condition: the constraint is refused then, in words that go on after "it".

use arrow::datatypes::{DataType, Field, Schema};
use sqlparser::ast::{
    BinaryOperator, CastKind, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, UnaryOperator, Value as SqlValue,
};
use sqlparser::dialect::SparkSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::Token;

use super::expression::{Arithmetic, Comparison, Condition, Value};
use super::literal;

/// Conditions within conditions, and terms of one: a deeper text would be a stack of calls as deep.
const DEEPEST: usize = 64;
/// Values of a list, each of which is compared with each row.
const MOST_VALUES: usize = 1000;

/// The metadata of a text column whose values are compared in an order of their own.
const COLLATIONS: &str = "__COLLATIONS";

/// What is compared: a literal has no type before it is known what it stands beside.
enum Operand {
    Value(Value),
    Number(String),
    Text(String),
    Null,
}

/// Both sides of a comparison in one type; none if one of them is NULL.
struct Sides {
    left: Value,
    right: Value,
}

/// The condition that a text is, of rows with these columns.
///
/// # Errors
/// What the text does that is not known, as a sentence that begins with "it".
pub(super) fn bind(text: &str, schema: &Schema) -> Result<Condition, String> {
    let unread = |error: sqlparser::parser::ParserError| format!("cannot be read as SQL ({error})");
    let mut parser = Parser::new(&SparkSqlDialect {}).try_with_sql(text).map_err(unread)?;
    let expression = parser.parse_expr().map_err(unread)?;
    if parser.peek_token().token != Token::EOF {
        return Err(format!("has more than a condition, from `{}` on", parser.peek_token().token));
    }
    Binder { schema }.condition(&expression, DEEPEST)
}

struct Binder<'a> {
    schema: &'a Schema,
}

impl Binder<'_> {
    fn condition(&self, expression: &Expr, depth: usize) -> Result<Condition, String> {
        let depth = depth.checked_sub(1).ok_or("is too deep")?;
        let inner = |inner: &Expr| self.condition(inner, depth);
        match expression {
            Expr::Nested(within) => inner(within),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Ok(not(inner(expr)?)),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                Ok(Condition::And(Box::new(inner(left)?), Box::new(inner(right)?)))
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                Ok(Condition::Or(Box::new(inner(left)?), Box::new(inner(right)?)))
            }
            Expr::BinaryOp { left, op, right } => match comparison_of(op) {
                Some(comparison) => self.compare(comparison, left, right, depth),
                None => Err(format!("has `{op}` for a condition")),
            },
            Expr::IsDistinctFrom(left, right) => Ok(not(self.compare(Comparison::Same, left, right, depth)?)),
            Expr::IsNotDistinctFrom(left, right) => self.compare(Comparison::Same, left, right, depth),
            Expr::IsNull(of) => self.is_null(of, depth),
            Expr::IsNotNull(of) => Ok(not(self.is_null(of, depth)?)),
            Expr::IsTrue(of) => Ok(is(inner(of)?, true)),
            Expr::IsNotTrue(of) => Ok(not(is(inner(of)?, true))),
            Expr::IsFalse(of) => Ok(is(inner(of)?, false)),
            Expr::IsNotFalse(of) => Ok(not(is(inner(of)?, false))),
            Expr::InList { expr, list, negated } => self.is_in(expr, list, depth).map(|found| negate(found, *negated)),
            Expr::Between { expr, negated, low, high } => {
                let from = self.compare(Comparison::GreaterOrEqual, expr, low, depth)?;
                let until = self.compare(Comparison::LessOrEqual, expr, high, depth)?;
                Ok(negate(Condition::And(Box::new(from), Box::new(until)), *negated))
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                self.like(expr, pattern, depth).map(|found| negate(found, *negated))
            }
            Expr::Value(value) => match &value.value {
                SqlValue::Boolean(truth) => Ok(Condition::Constant(Some(*truth))),
                SqlValue::Null => Ok(Condition::Constant(None)),
                other => Err(format!("has `{other}` for a condition")),
            },
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.boolean(expression, depth),
            other => Err(format!("has `{other}`")),
        }
    }

    fn boolean(&self, expression: &Expr, depth: usize) -> Result<Condition, String> {
        match self.operand(expression, depth)? {
            Operand::Value(value) if value.data_type() == DataType::Boolean => Ok(Condition::Value(value)),
            _ => Err(format!("has `{expression}` for a condition")),
        }
    }

    fn is_null(&self, expression: &Expr, depth: usize) -> Result<Condition, String> {
        match self.operand(expression, depth)? {
            Operand::Value(value) => Ok(Condition::IsNull(value)),
            Operand::Null => Ok(Condition::Constant(Some(true))),
            Operand::Number(_) | Operand::Text(_) => Ok(Condition::Constant(Some(false))),
        }
    }

    fn is_in(&self, expression: &Expr, list: &[Expr], depth: usize) -> Result<Condition, String> {
        if list.len() > MOST_VALUES {
            return Err(format!("has a list of more than {MOST_VALUES} values"));
        }
        let equal = |item: &Expr| self.compare(Comparison::Equal, expression, item, depth);
        let mut found = list.iter().map(equal).collect::<Result<Vec<_>, _>>()?;
        // In halves, as one condition within the other would be as deep as the list is long.
        while found.len() > 1 {
            let mut halved = Vec::with_capacity(found.len().div_ceil(2));
            let mut left = found.into_iter();
            while let Some(one) = left.next() {
                halved.push(match left.next() {
                    Some(other) => Condition::Or(Box::new(one), Box::new(other)),
                    None => one,
                });
            }
            found = halved;
        }
        found.pop().ok_or_else(|| "has an empty list".to_owned())
    }

    fn like(&self, expression: &Expr, pattern: &Expr, depth: usize) -> Result<Condition, String> {
        let (Operand::Value(text), Operand::Text(pattern)) =
            (self.operand(expression, depth)?, self.operand(pattern, depth)?)
        else {
            return Err(format!("has a LIKE other than that of a column and a text: `{expression} LIKE {pattern}`"));
        };
        match text.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 => Ok(Condition::Like { text: text.cast(&DataType::Utf8), pattern }),
            other => Err(format!("has LIKE for {other}")),
        }
    }

    fn compare(&self, by: Comparison, left: &Expr, right: &Expr, depth: usize) -> Result<Condition, String> {
        let (left, right) = (self.operand(left, depth)?, self.operand(right, depth)?);
        match (sides(left, right)?, by) {
            (Ok(Sides { left, right }), comparison) => Ok(Condition::Compare { comparison, left, right }),
            // Beside NULL nothing is known, but whether the other side is NULL.
            (Err(Operand::Value(other)), Comparison::Same) => Ok(Condition::IsNull(other)),
            (Err(other), Comparison::Same) => Ok(Condition::Constant(Some(matches!(other, Operand::Null)))),
            (Err(_), _) => Ok(Condition::Constant(None)),
        }
    }

    fn operand(&self, expression: &Expr, depth: usize) -> Result<Operand, String> {
        let depth = depth.checked_sub(1).ok_or("is too deep")?;
        match expression {
            Expr::Nested(within) => self.operand(within, depth),
            Expr::Identifier(name) => self.column(std::slice::from_ref(name)).map(Operand::Value),
            Expr::CompoundIdentifier(names) => self.column(names).map(Operand::Value),
            Expr::Value(value) => literal_of(&value.value),
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => self.number(expr, "", depth),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => self.number(expr, "-", depth),
            Expr::TypedString(typed) => self.typed(&typed.data_type, &typed.value.value),
            Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None } => match expr.as_ref() {
                Expr::Value(value) => self.typed(data_type, &value.value),
                _ => Err(format!("has `{expression}`")),
            },
            Expr::BinaryOp { left, op, right } => match arithmetic_of(op) {
                Some(operation) => self.calculate(operation, left, right, depth).map(Operand::Value),
                None => self.truth(expression, depth),
            },
            Expr::Function(function) => self.function(function, depth).map(Operand::Value),
            other => self.truth(other, depth),
        }
    }

    fn truth(&self, expression: &Expr, depth: usize) -> Result<Operand, String> {
        let condition = self.condition(expression, depth)?;
        Ok(Operand::Value(Value::Truth(Box::new(condition))))
    }

    fn number(&self, expression: &Expr, sign: &str, depth: usize) -> Result<Operand, String> {
        match self.operand(expression, depth)? {
            Operand::Number(text) if !text.starts_with('-') => Ok(Operand::Number(format!("{sign}{text}"))),
            _ => Err(format!("has a sign before `{expression}`")),
        }
    }

    /// A literal of a type, or the cast of a text to one, which is the same.
    fn typed(&self, data_type: &SqlType, value: &SqlValue) -> Result<Operand, String> {
        match (data_type, literal_of(value)?) {
            (SqlType::Date, Operand::Text(text)) => {
                let date = literal::date(&text).ok_or_else(|| format!("has the date '{text}'"))?;
                Ok(Operand::Value(Value::Constant(date)))
            }
            (other, _) => Err(format!("has a literal or a cast of {other}")),
        }
    }

    fn calculate(&self, operation: Arithmetic, left: &Expr, right: &Expr, depth: usize) -> Result<Value, String> {
        let term = |of: &Expr| match self.operand(of, depth)? {
            Operand::Value(value) if value.data_type().is_integer() => Ok(value),
            Operand::Number(text) => literal::whole_number(&text).map(Value::Constant),
            _ => Err(format!("calculates with `{of}`, which is no whole number")),
        };
        let (left, right) = (term(left)?, term(right)?);
        let (of_left, of_right) = (left.data_type(), right.data_type());
        let wider = if of_left.primitive_width() >= of_right.primitive_width() { of_left } else { of_right };
        let (left, right) = (Box::new(left.cast(&wider)), Box::new(right.cast(&wider)));
        Ok(Value::Arithmetic { operation, left, right })
    }

    fn function(&self, function: &Function, depth: usize) -> Result<Value, String> {
        let name = function.name.to_string().to_lowercase();
        let unknown = || format!("has the function `{function}`");
        let FunctionArguments::List(arguments) = &function.args else { return Err(unknown()) };
        let [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] = arguments.args.as_slice() else {
            return Err(unknown());
        };
        let is_plain = function.over.is_none() && function.filter.is_none() && arguments.clauses.is_empty();
        if !is_plain || !matches!(name.as_str(), "length" | "len" | "char_length" | "character_length") {
            return Err(unknown());
        }
        match self.operand(argument, depth)? {
            Operand::Value(value) if value.data_type().is_string() => {
                Ok(Value::Length(Box::new(value.cast(&DataType::Utf8))))
            }
            _ => Err(unknown()),
        }
    }

    /// A column by its name, or a field by the names on the way to it, whatever their case.
    fn column(&self, names: &[Ident]) -> Result<Value, String> {
        let shown = names.iter().map(|name| name.value.as_str()).collect::<Vec<_>>().join(".");
        let missing = || format!("has the column `{shown}`, which the table has not");
        let (first, inner) = names.split_first().ok_or_else(missing)?;
        let mut found =
            named(self.schema.fields().iter().map(AsRef::<Field>::as_ref), &first.value).ok_or_else(missing)?;
        let (name, mut fields) = (found.name().clone(), Vec::new());
        for next in inner {
            check_collation(found)?;
            let DataType::Struct(within) = found.data_type() else { return Err(missing()) };
            found = named(within.iter().map(AsRef::<Field>::as_ref), &next.value).ok_or_else(missing)?;
            fields.push(found.name().clone());
        }
        check_collation(found)?;
        Ok(Value::Column { name, fields, data_type: found.data_type().clone() })
    }
}

fn check_collation(field: &Field) -> Result<(), String> {
    match field.metadata().contains_key(COLLATIONS) {
        true => Err(format!("has the column `{}`, whose texts have a collation", field.name())),
        false => Ok(()),
    }
}

/// The only field of a name, whatever its case.
fn named<'a>(fields: impl Iterator<Item = &'a Field>, name: &str) -> Option<&'a Field> {
    let name = name.to_lowercase();
    let mut found = fields.filter(|field| field.name().to_lowercase() == name);
    found.next().filter(|_| found.next().is_none())
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn is(condition: Condition, truth: bool) -> Condition {
    Condition::Is { condition: Box::new(condition), truth }
}

fn negate(condition: Condition, is_negated: bool) -> Condition {
    if is_negated { not(condition) } else { condition }
}

fn comparison_of(operator: &BinaryOperator) -> Option<Comparison> {
    Some(match operator {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        BinaryOperator::Spaceship => Comparison::Same,
        _ => return None,
    })
}

fn arithmetic_of(operator: &BinaryOperator) -> Option<Arithmetic> {
    Some(match operator {
        BinaryOperator::Plus => Arithmetic::Plus,
        BinaryOperator::Minus => Arithmetic::Minus,
        BinaryOperator::Multiply => Arithmetic::Times,
        BinaryOperator::Modulo => Arithmetic::Remainder,
        _ => return None,
    })
}

fn literal_of(value: &SqlValue) -> Result<Operand, String> {
    match value {
        SqlValue::Null => Ok(Operand::Null),
        SqlValue::Boolean(truth) => Ok(Operand::Value(Value::Truth(Box::new(Condition::Constant(Some(*truth)))))),
        SqlValue::Number(..) => {
            let text = value.to_string();
            Ok(Operand::Number(text.strip_suffix('L').unwrap_or(&text).to_owned()))
        }
        // What a backslash or a quote within a text means depends on settings of the session.
        SqlValue::SingleQuotedString(text) | SqlValue::DoubleQuotedString(text)
            if !text.contains(['\\', '\'', '"']) =>
        {
            Ok(Operand::Text(text.clone()))
        }
        other => Err(format!("has the literal {other}")),
    }
}

/// Both sides in one type. Beside NULL the other operand.
fn sides(left: Operand, right: Operand) -> Result<Result<Sides, Operand>, String> {
    let (left, right) = match (left, right) {
        (Operand::Null, other) | (other, Operand::Null) => return Ok(Err(other)),
        (Operand::Value(left), Operand::Value(right)) => (left, right),
        (Operand::Value(left), literal) => {
            let right = beside(&literal, &left.data_type())?;
            (left, right)
        }
        (literal, Operand::Value(right)) => (beside(&literal, &right.data_type())?, right),
        (left @ Operand::Number(_), right) => {
            let left = beside(&left, &DataType::Int64)?;
            let right = beside(&right, &left.data_type())?;
            (left, right)
        }
        (left, right) => (beside(&left, &DataType::Utf8)?, beside(&right, &DataType::Utf8)?),
    };
    let wanted = common(&left.data_type(), &right.data_type())?;
    Ok(Ok(Sides { left: left.cast(&wanted), right: right.cast(&wanted) }))
}

fn beside(literal: &Operand, data_type: &DataType) -> Result<Value, String> {
    match literal {
        Operand::Number(text) => literal::number(text, data_type).map(Value::Constant),
        Operand::Text(text) => literal::text(text, data_type).map(Value::Constant),
        Operand::Value(_) | Operand::Null => Err("has a comparison without a value".to_owned()),
    }
}

/// The type in which two values are compared: that of Spark, or a wider one in which the comparison is the same.
fn common(left: &DataType, right: &DataType) -> Result<DataType, String> {
    use DataType::{Boolean, Date32, Decimal256, Float32, Float64, Int64, Timestamp, Utf8};
    let scale = |of: &DataType| match of {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    match (left, right) {
        (left, right) if left.is_integer() && right.is_integer() => Ok(Int64),
        (left, right) if left.is_string() && right.is_string() => Ok(Utf8),
        (Float32, Float32) => Ok(Float32),
        (Float32, other) | (other, Float32) if other.is_integer() => Ok(Float32),
        (Float32 | Float64, Float32 | Float64) => Ok(Float64),
        (Float64, other) | (other, Float64) if other.is_integer() => Ok(Float64),
        (left, right) if is_exact(left) && is_exact(right) => Ok(Decimal256(76, scale(left).max(scale(right)))),
        (Boolean, Boolean) | (Date32, Date32) | (Timestamp(..), Timestamp(..)) if left == right => Ok(left.clone()),
        _ => Err(format!("compares {left} with {right}")),
    }
}

/// Whether the type has whole numbers, or decimals that have a wider type.
fn is_exact(of: &DataType) -> bool {
    of.is_integer() || matches!(of, DataType::Decimal128(_, scale) if *scale >= 0)
}

//! What the conditions of rows are, as Spark evaluates them.
//!
//! NaN is equal to itself and greater than every other number, and both zeros are the same number. Texts are compared by their bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int32Array, StringArray, UInt32Array};
use arrow::compute::kernels::{cmp, numeric};
use arrow::compute::{CastOptions, and_kleene, cast_with_options, is_null, like, not, or_kleene, take};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Schema};
use arrow::error::ArrowError;

use super::expression::{Arithmetic, Comparison, Condition, Value};
use crate::values::fields::null_within;

/// Rows whose conditions are asked for.
pub(super) struct Rows<'a> {
    /// What the columns are called.
    pub schema: &'a Schema,
    pub columns: &'a [ArrayRef],
    pub count: usize,
}

impl Rows<'_> {
    /// The condition of each row.
    ///
    /// # Errors
    /// A number does not fit its type, or is divided by zero.
    pub(super) fn truth(&self, condition: &Condition) -> Result<BooleanArray, ArrowError> {
        match condition {
            Condition::Constant(truth) => Ok(std::iter::repeat_n(*truth, self.count).collect()),
            Condition::Compare { comparison, left, right } => {
                compare(*comparison, &comparable(&self.values(left)?), &comparable(&self.values(right)?))
            }
            Condition::IsNull(value) => is_null(&self.values(value)?),
            Condition::Is { condition, truth } => {
                let found = self.truth(condition)?;
                Ok(found.iter().map(|found| Some(found == Some(*truth))).collect())
            }
            Condition::Like { text, pattern } => like(&self.values(text)?, &StringArray::new_scalar(pattern)),
            Condition::And(left, right) => and_kleene(&self.truth(left)?, &self.truth(right)?),
            Condition::Or(left, right) => or_kleene(&self.truth(left)?, &self.truth(right)?),
            Condition::Not(condition) => not(&self.truth(condition)?),
            Condition::Value(value) => {
                let values = self.values(value)?;
                values.as_boolean_opt().cloned().ok_or_else(|| unfit("a boolean", &values))
            }
        }
    }

    fn values(&self, value: &Value) -> Result<ArrayRef, ArrowError> {
        match value {
            Value::Column { name, fields, data_type } => self.column(name, fields, data_type),
            Value::Constant(value) => take(value, &UInt32Array::from(vec![0; self.count]), None),
            Value::Arithmetic { operation, left, right } => {
                let (left, right) = (self.values(left)?, self.values(right)?);
                match operation {
                    Arithmetic::Plus => numeric::add(&left, &right),
                    Arithmetic::Minus => numeric::sub(&left, &right),
                    Arithmetic::Times => numeric::mul(&left, &right),
                    Arithmetic::Remainder => numeric::rem(&left, &right),
                }
            }
            Value::Length(text) => {
                let texts = self.values(text)?;
                let texts = texts.as_string_opt::<i32>().ok_or_else(|| unfit("a text", &texts))?;
                let lengths = texts.iter().map(|text| text.map(|text| text.chars().count() as i32));
                Ok(Arc::new(lengths.collect::<Int32Array>()))
            }
            Value::Truth(condition) => Ok(Arc::new(self.truth(condition)?)),
            Value::Cast { value, to } => cast(&self.values(value)?, to),
        }
    }

    fn column(&self, name: &str, fields: &[String], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let (place, _) = self
            .schema
            .column_with_name(name)
            .ok_or_else(|| ArrowError::SchemaError(format!("there is no column {name}")))?;
        let mut values = self.columns.get(place).cloned().ok_or_else(|| missing(name))?;
        for field in fields {
            let within = values.as_struct_opt().ok_or_else(|| unfit("a struct", &values))?;
            let inside = within.column_by_name(field).ok_or_else(|| missing(field))?;
            values = null_within(inside, within.nulls())?;
        }
        // Of what is nested nobody asks more than whether it is NULL.
        if data_type.is_nested() { Ok(values) } else { cast(&values, data_type) }
    }
}

fn missing(name: &str) -> ArrowError {
    ArrowError::SchemaError(format!("the rows lack the column {name}"))
}

fn unfit(what: &str, values: &ArrayRef) -> ArrowError {
    ArrowError::SchemaError(format!("{} is not {what}", values.data_type()))
}

fn cast(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if values.data_type() == to {
        return Ok(Arc::clone(values));
    }
    cast_with_options(values, to, &CastOptions { safe: false, ..CastOptions::default() })
}

/// Floating-point numbers of which equal ones have the same bits.
fn comparable(values: &ArrayRef) -> ArrayRef {
    match values.data_type() {
        DataType::Float32 => {
            let plain = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
            Arc::new(values.as_primitive::<Float32Type>().unary::<_, Float32Type>(plain))
        }
        DataType::Float64 => {
            let plain = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
            Arc::new(values.as_primitive::<Float64Type>().unary::<_, Float64Type>(plain))
        }
        _ => Arc::clone(values),
    }
}

fn compare(comparison: Comparison, left: &ArrayRef, right: &ArrayRef) -> Result<BooleanArray, ArrowError> {
    match comparison {
        Comparison::Equal => cmp::eq(left, right),
        Comparison::NotEqual => cmp::neq(left, right),
        Comparison::Less => cmp::lt(left, right),
        Comparison::LessOrEqual => cmp::lt_eq(left, right),
        Comparison::Greater => cmp::gt(left, right),
        Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
        Comparison::Same => cmp::not_distinct(left, right),
    }
}

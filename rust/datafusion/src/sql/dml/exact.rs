//! The cast of what a statement writes to the type of its column: it keeps every digit, or the statement fails.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use lakemark_table::{Error, ErrorKind, LossyCast, cast_exactly, cast_rounded, unknown_field};

use super::computed::is_computed;
use crate::error::to_engine;

/// A column that values are written to.
#[derive(Clone, Copy)]
pub(super) struct TargetColumn<'a> {
    pub name: &'a str,
    pub of: &'a DataType,
    pub is_key: bool,
}

impl TargetColumn<'_> {
    /// What the user wrote for the column, in its type. `input` has the columns that the expression names.
    pub(super) fn fitted(self, written: Expr, input: &LogicalPlan) -> EngineResult<Expr> {
        Ok(match written {
            Expr::Literal(value, metadata) => {
                let cast = self.cast(&value.to_array()?, false)?;
                Expr::Literal(ScalarValue::try_from_array(&cast, 0)?, metadata)
            }
            // Each value goes by itself.
            Expr::Case(Case { expr, when_then_expr, else_expr }) => {
                let branch = |(when, then): (Box<Expr>, Box<Expr>)| Ok((when, Box::new(self.fitted(*then, input)?)));
                Expr::Case(Case {
                    expr,
                    when_then_expr: when_then_expr.into_iter().map(branch).collect::<EngineResult<_>>()?,
                    else_expr: else_expr.map(|other| self.fitted(*other, input).map(Box::new)).transpose()?,
                })
            }
            Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "coalesce" => {
                let args = args.into_iter().map(|value| self.fitted(value, input)).collect::<EngineResult<_>>()?;
                Expr::ScalarFunction(ScalarFunction { func, args })
            }
            other => {
                let rounds = !self.is_key && is_computed(&other, input);
                let (name, of) = (self.name.to_owned(), self.of.clone());
                let signature = Signature::any(1, Volatility::Immutable);
                ScalarUDF::new_from_impl(ExactCast { name, of, rounds, signature }).call(vec![other])
            }
        })
    }

    /// Values in the type of the column. Where they are results of arithmetic, a decimal column rounds them.
    fn cast(self, given: &ArrayRef, rounds: bool) -> EngineResult<ArrayRef> {
        let have = given.data_type();
        if let Some(unknown) = unknown_field(have, self.of) {
            let (name, of) = (self.name, sql_type(self.of));
            let text = format!("the statement has the field {unknown} for {name}, which is {of}; leave it out");
            return Err(to_engine(Error::new(ErrorKind::SchemaMismatch, text)));
        }
        let rounds = rounds && self.of.is_decimal() && have.is_numeric();
        let cast = if rounds { cast_rounded(given, self.of) } else { cast_exactly(given, self.of) };
        cast.map_err(|misfit| to_engine(self.refused(misfit, have)))
    }

    fn refused(self, misfit: LossyCast, given: &DataType) -> Error {
        let (column, of) = (format!("{}{}", self.name, misfit.inside), sql_type(&misfit.target));
        let text = match &misfit.value {
            Some(value) if misfit.loses_digits => format!(
                "{value} cannot be written to {column}, which is {of}, without losing a part of it; if that is meant, write {}",
                cast_to(&misfit.target)
            ),
            Some(value) => format!("{value} cannot be written to {column}, which is {of}; give a value that fits it"),
            None => format!(
                "values of the type {} cannot be written to {column}, which is {of}; cast them first",
                sql_type(given)
            ),
        };
        Error::new(ErrorKind::SchemaMismatch, text).with_source(misfit)
    }
}

/// [`TargetColumn::cast`] as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactCast {
    name: String,
    of: DataType,
    rounds: bool,
    signature: Signature,
}

impl ScalarUDFImpl for ExactCast {
    fn name(&self) -> &str {
        "lakemark_written_as"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(self.of.clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> EngineResult<FieldRef> {
        Ok(Arc::new(Field::new(&self.name, self.of.clone(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let target = TargetColumn { name: &self.name, of: &self.of, is_key: false };
        match args.args.as_slice() {
            [ColumnarValue::Scalar(value)] => {
                let cast = target.cast(&value.to_array()?, self.rounds)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&cast, 0)?))
            }
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(target.cast(values, self.rounds)?)),
            _ => Err(to_engine(Error::new(ErrorKind::Internal, "a cast takes one value"))),
        }
    }
}

/// A cast to a type, as SQL has it.
fn cast_to(of: &DataType) -> String {
    match named(of) {
        Some(name) => format!("CAST(… AS {name})"),
        None => format!("arrow_cast(…, '{of}')"),
    }
}

/// The name of a type in SQL.
fn sql_type(of: &DataType) -> String {
    named(of).unwrap_or_else(|| of.to_string())
}

fn named(of: &DataType) -> Option<String> {
    Some(match of {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INT".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::UInt8 => "TINYINT UNSIGNED".to_owned(),
        DataType::UInt16 => "SMALLINT UNSIGNED".to_owned(),
        DataType::UInt32 => "INT UNSIGNED".to_owned(),
        DataType::UInt64 => "BIGINT UNSIGNED".to_owned(),
        DataType::Float32 => "REAL".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision}, {scale})"),
        DataType::Date32 => "DATE".to_owned(),
        DataType::Time64(TimeUnit::Nanosecond) => "TIME".to_owned(),
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP(0)".to_owned(),
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP(3)".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP(6)".to_owned(),
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP(9)".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn casts_that_errors_name_are_those_of_the_engine() {
        let context = SessionContext::new();
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
        let mut types: Vec<DataType> = units.iter().map(|unit| DataType::Timestamp(*unit, None)).collect();
        types.extend(units.iter().map(|unit| DataType::Timestamp(*unit, Some("+02:00".into()))));
        types.extend([DataType::Boolean, DataType::Int8, DataType::Int16, DataType::Int32, DataType::Int64]);
        types.extend([DataType::UInt8, DataType::UInt16, DataType::UInt32, DataType::UInt64]);
        types.extend([DataType::Float32, DataType::Float64, DataType::Date32, DataType::Date64]);
        types.extend([DataType::Decimal128(5, 2), DataType::Decimal256(50, 2)]);
        types.extend([DataType::Time32(TimeUnit::Millisecond), DataType::Time64(TimeUnit::Nanosecond)]);
        for of in types {
            let written = cast_to(&of).replace('…', "NULL");
            let plan = context.state().create_logical_plan(&format!("SELECT {written}")).await;
            let plan = plan.unwrap_or_else(|error| panic!("{written}: {error}"));
            assert_eq!(plan.schema().field(0).data_type(), &of, "{written}");
        }
    }
}

//! Values that a change of Spark's writes back, or names its rows by.
//!
//! Spark has microseconds and days. It writes whole rows, also of columns that a statement does not set, so that a value which it reads cut
//! would be cut in the table. A query may read such a value; a change may not.

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, TimeUnit};
use arrow::error::ArrowError;
use lakemark_table::{ErrorKind, LossyCast, cast_exactly, conform, item_of};

use crate::error::{NativeError, Result};

/// Whether Spark may read values of a type cut.
pub(crate) fn may_be_cut(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Date64 => true,
        DataType::Dictionary(_, values) => may_be_cut(values),
        DataType::Struct(fields) => fields.iter().any(|field| may_be_cut(field.data_type())),
        DataType::Map(entries, _) => may_be_cut(entries.data_type()),
        other => item_of(other).is_some_and(|item| may_be_cut(item.data_type())),
    }
}

/// Values of a column in the type that Spark has for it; `place` says where they are. Of a column among `exact` none may be cut.
pub(crate) fn in_spark_type(values: &ArrayRef, field: &Field, exact: &[String], place: &str) -> Result<ArrayRef> {
    if exact.contains(field.name()) {
        match cast_exactly(values, field.data_type()) {
            Ok(values) => return Ok(values),
            Err(misfit) if misfit.loses_digits => return Err(cut(field, place, &misfit)),
            // Said below.
            Err(_) => {}
        }
    }
    conform(values, field.data_type()).map_err(|error| unreadable(field, place, &error))
}

fn cut(field: &Field, place: &str, misfit: &LossyCast) -> NativeError {
    let (name, inside, value) = (field.name(), &misfit.inside, misfit.value.as_deref().unwrap_or("a value"));
    NativeError::new(
        ErrorKind::Unsupported,
        format!(
            "column '{name}{inside}' of {place} has {value}, which Spark would cut to {}; so that no digit is lost nothing was changed: make \
             the change in Python (Table.update, Table.delete) or with `lakemark sql`",
            misfit.target
        ),
    )
}

fn unreadable(field: &Field, place: &str, error: &ArrowError) -> NativeError {
    NativeError::new(
        ErrorKind::SchemaMismatch,
        format!("column '{}' of {place} cannot be read as {}: {error}", field.name(), field.data_type()),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ListArray, TimestampMicrosecondArray, TimestampNanosecondArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    fn moments(nanoseconds: &[i64]) -> ArrayRef {
        Arc::new(TimestampNanosecondArray::from(nanoseconds.to_vec()))
    }

    fn in_list(values: ArrayRef) -> ArrayRef {
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([values.len()]), values, None))
    }

    #[test]
    fn a_value_of_an_exact_column_that_spark_would_cut_is_an_error() {
        let micro = DataType::Timestamp(TimeUnit::Microsecond, None);
        let list = DataType::List(Arc::new(Field::new("item", micro.clone(), true)));
        let exact = ["at".to_owned()];
        let cut = moments(&[2_000, -1]);
        for (values, wanted, place) in
            [(Arc::clone(&cut), micro.clone(), "'at' of f"), (in_list(cut), list, "'at[]' of f")]
        {
            assert!(may_be_cut(values.data_type()));
            let field = Field::new("at", wanted.clone(), true);
            let error = in_spark_type(&values, &field, &exact, "f").expect_err("digits are lost");
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert!(error.message.contains(place), "{error}");
            assert!(error.message.contains("has 1969-12-31T23:59:59.999999999, which Spark would cut"), "{error}");
            assert_eq!(in_spark_type(&values, &field, &[], "f").expect("a query").data_type(), &wanted);
        }
        assert!(!may_be_cut(&micro));
    }

    #[test]
    fn whole_microseconds_of_an_exact_column_are_cast() {
        let field = Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true);
        let found = in_spark_type(&moments(&[2_000, -3_000]), &field, &["at".to_owned()], "f").expect("whole");
        let expected: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![2, -3]));
        assert_eq!(&found, &expected);
    }
}

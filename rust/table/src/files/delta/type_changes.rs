//! Changes of types that the columns of a Delta table went through: files from before them have other types.
//!
//! A reader gives values of the narrower type as values of the wider one. A change of a kind that this release does not know could mean
//! something else, so that such a table is not read.

use arrow::datatypes::Schema;
use serde::Deserialize;

use crate::error::{Error, Result};

/// The metadata of a field with the changes of its type, or of the types inside of it.
const TYPE_CHANGES: &str = "delta.typeChanges";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeChange {
    from_type: String,
    to_type: String,
}

/// Digits before and after the point of a decimal.
struct Digits {
    whole: u32,
    fraction: u32,
}

/// Fails if a column or field has changed its type in a way that the protocol does not allow.
///
/// # Errors
/// `Unsupported`, with the `table`, the column and the types.
pub(super) fn check(table: &str, schema: &Schema) -> Result<()> {
    for field in schema.flattened_fields() {
        let Some(text) = field.metadata().get(TYPE_CHANGES) else { continue };
        let changes: Vec<TypeChange> = serde_json::from_str(text).map_err(|error| {
            Error::corrupt(format!("the Delta log of {table} has changes of types that cannot be read: {text}"))
                .with_source(error)
        })?;
        if let Some(TypeChange { from_type, to_type }) = changes.iter().find(|change| !change.is_known()) {
            return Err(Error::unsupported(format!(
                "the column {} of the Delta table {table} was changed from {from_type} to {to_type}, which this release does not read; have \
                 its writer write the files anew and drop the feature typeWidening, or copy the table",
                field.name()
            )));
        }
    }
    Ok(())
}

impl TypeChange {
    fn is_known(&self) -> bool {
        let (from, to) = (self.from_type.as_str(), self.to_type.as_str());
        match (from, to) {
            ("float" | "byte" | "short" | "integer", "double") | ("date", "timestamp_ntz") => true,
            _ => match (integer_rank(from), integer_rank(to)) {
                (Some(from), Some(to)) => from < to,
                _ => widens_digits(from, to),
            },
        }
    }
}

/// Whether a number keeps its digits as a decimal.
fn widens_digits(from: &str, to: &str) -> bool {
    let from = match from {
        "byte" | "short" | "integer" => Some(Digits { whole: 10, fraction: 0 }),
        "long" => Some(Digits { whole: 20, fraction: 0 }),
        other => digits(other),
    };
    from.zip(digits(to)).is_some_and(|(from, to)| from.whole <= to.whole && from.fraction <= to.fraction)
}

fn integer_rank(name: &str) -> Option<usize> {
    ["byte", "short", "integer", "long"].iter().position(|known| *known == name)
}

/// The digits of a type such as `decimal(10,2)`.
fn digits(name: &str) -> Option<Digits> {
    let (precision, scale) = name.strip_prefix("decimal(")?.strip_suffix(')')?.split_once(',')?;
    let (precision, fraction): (u32, u32) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    Some(Digits { whole: precision.checked_sub(fraction)?, fraction })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field};
    use serde_json::json;

    use super::*;
    use crate::ErrorKind;

    /// A field of a struct that went from one type to another one.
    fn checked(from: &str, to: &str) -> Result<()> {
        let changes = json!([{"fromType": "byte", "toType": "short"}, {"fromType": from, "toType": to}]);
        let said = HashMap::from([(TYPE_CHANGES.to_owned(), changes.to_string())]);
        let inner = Field::new("x", DataType::Int64, true).with_metadata(said);
        let outer = Field::new("s", DataType::Struct(vec![Arc::new(inner)].into()), true);
        check("t", &Schema::new(vec![outer]))
    }

    #[test]
    fn changes_of_types_that_the_protocol_allows_are_known() {
        for (from, to) in [
            ("byte", "short"),
            ("short", "long"),
            ("float", "double"),
            ("integer", "double"),
            ("date", "timestamp_ntz"),
            ("decimal(5,2)", "decimal(10,4)"),
            ("decimal(5, 2)", "decimal(6, 2)"),
            ("integer", "decimal(10,0)"),
            ("long", "decimal(22,2)"),
        ] {
            assert!(checked(from, to).is_ok(), "{from} to {to}");
        }
        for (from, to) in [
            ("long", "integer"),
            ("long", "double"),
            ("date", "timestamp"),
            ("string", "integer"),
            ("decimal(5,2)", "decimal(5,3)"),
            ("decimal(5,2)", "decimal(4,2)"),
            ("integer", "decimal(11,2)"),
            ("long", "decimal(19,0)"),
        ] {
            let error = checked(from, to).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{from} to {to}");
            assert!(
                error.to_string().contains(&format!("column x of the Delta table t was changed from {from} to {to}"))
            );
        }
    }
}

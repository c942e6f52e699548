//! Which Delta tables can be written: those without a feature that demands more of a commit than ours does.

use arrow::datatypes::{DataType, Field};

use crate::error::{Error, Result};
use crate::files::delta::{DeltaState, WriterFeature};
use crate::rewrite::constraints::{Constraints, INVARIANTS};

/// The newest version of the protocol that is known.
const WRITER_VERSION: i32 = 7;

/// What is to be done where nothing else helps.
const OTHER_WRITER: &str = "change the table with another writer; indexes and queries work";

/// A property that demands more where it is true.
struct Switch {
    property: &'static str,
    what: &'static str,
    remedy: &'static str,
}

const SWITCHES: [Switch; 3] = [
    Switch {
        property: "delta.appendOnly",
        what: "takes appends only",
        remedy: "set the property to false, or insert with another writer",
    },
    Switch { property: "delta.enableIcebergCompatV1", what: "is an Iceberg table as well", remedy: OTHER_WRITER },
    Switch { property: "delta.enableIcebergCompatV2", what: "is an Iceberg table as well", remedy: OTHER_WRITER },
];

/// Metadata of columns whose values others calculate.
const COLUMN_FEATURES: [(&str, &str); 3] = [
    ("delta.generationExpression", "is generated"),
    ("delta.identity.", "is an identity column"),
    ("CURRENT_DEFAULT", "has a default"),
];

/// Says which feature keeps a table from being updated, if one does, and what to do.
///
/// # Errors
/// `Unsupported`, by the name of the feature.
pub(crate) fn check_writable(state: &DeltaState) -> Result<()> {
    if state.writer_version() > WRITER_VERSION {
        return refuse(&format!("its writers need version {} of the protocol", state.writer_version()), OTHER_WRITER);
    }
    if let Some(feature) = state.writer_features().iter().find_map(unwritable) {
        let what = format!("it has the feature {feature}, which this release does not know how to write");
        return refuse(&what, OTHER_WRITER);
    }
    let properties = state.properties();
    for Switch { property, what, remedy } in SWITCHES {
        if properties.get(property).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return refuse(&format!("it {what} ({property})"), remedy);
        }
    }
    if let Some(ColumnFeature { column, what }) =
        state.logged_schema.fields().iter().find_map(|field| feature_of(field, false))
    {
        return refuse(&format!("its column {column} {what}"), OTHER_WRITER);
    }
    state.row_tracking()?;
    Constraints::of(state).map(drop)
}

fn refuse(what: &str, remedy: &str) -> Result<()> {
    Err(Error::unsupported(format!("the Delta table cannot be updated: {what}; {remedy}")))
}

/// The name of a feature that demands what our commits do not do. The others demand nothing of a commit, or only in tables that use them,
/// which the properties and columns show. New files have statistics of every column and field, so those of a clustered table have them, too.
fn unwritable(feature: &WriterFeature) -> Option<&str> {
    match feature {
        WriterFeature::Unknown(name) => Some(name),
        _ => None,
    }
}

/// A column, or a field inside of it, that demands more than its values.
struct ColumnFeature {
    column: String,
    /// What the column demands, in words.
    what: &'static str,
}

/// Finds a column that demands more than its values: the column itself, or a field inside of it.
fn feature_of(field: &Field, is_inside: bool) -> Option<ColumnFeature> {
    let has = |key: &str| field.metadata().keys().any(|have| have.starts_with(key));
    let what = COLUMN_FEATURES.iter().find(|(key, _)| has(key)).map(|(_, what)| *what);
    // An invariant is of rows, and a field of an element is in none.
    let what = what.or_else(|| (is_inside && has(INVARIANTS)).then_some("has an invariant in a nested column"));
    if let Some(what) = what {
        return Some(ColumnFeature { column: field.name().clone(), what });
    }
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().find_map(|field| feature_of(field, true)),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => feature_of(item, true),
        _ => None,
    }
}

//! Which Delta tables can be written: those without a feature that demands more of a commit than ours does.

use arrow::datatypes::{DataType, Field};

use crate::error::{Error, Result};
use crate::files::delta::{DeltaState, WriterFeature};

/// The newest version of the protocol that is known.
const WRITER_VERSION: i32 = 7;

/// Properties that demand more where they are true.
const SWITCHES: [(&str, &str); 5] = [
    ("delta.appendOnly", "takes appends only"),
    ("delta.enableChangeDataFeed", "keeps a feed of changes"),
    ("delta.enableRowTracking", "tracks rows"),
    ("delta.enableIcebergCompatV1", "is an Iceberg table as well"),
    ("delta.enableIcebergCompatV2", "is an Iceberg table as well"),
];

/// Metadata of columns that demand more.
const COLUMN_FEATURES: [(&str, &str); 4] = [
    ("delta.generationExpression", "is generated"),
    ("delta.identity.", "is an identity column"),
    ("delta.invariants", "has an invariant"),
    ("CURRENT_DEFAULT", "has a default"),
];

/// Says which feature keeps a table from being updated, if one does.
pub(crate) fn check_writable(state: &DeltaState) -> Result<()> {
    let refuse = |what: String| Err(Error::unsupported(format!("the Delta table cannot be updated: {what}")));
    if state.writer_version() > WRITER_VERSION {
        return refuse(format!("its writers need version {} of the protocol", state.writer_version()));
    }
    if let Some(feature) = state.writer_features().iter().find_map(unwritable) {
        return refuse(format!("it has the feature {feature}, which this release does not know how to write"));
    }
    let has_structs =
        || state.logged_schema.fields().iter().any(|field| matches!(field.data_type(), DataType::Struct(_)));
    if state.is_clustered() && has_structs() {
        return refuse("it is clustered (clustering) and has structs, whose fields it may be clustered by".to_owned());
    }
    let properties = state.properties();
    for (property, what) in SWITCHES {
        if properties.get(property).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return refuse(format!("it {what} ({property})"));
        }
    }
    if let Some(constraint) = properties.keys().find(|name| name.starts_with("delta.constraints.")) {
        return refuse(format!("it has a CHECK constraint ({constraint})"));
    }
    match state.logged_schema.fields().iter().find_map(|field| feature_of(field)) {
        Some(ColumnFeature { column, what }) => refuse(format!("its column {column} {what}")),
        None => Ok(()),
    }
}

/// The name of a feature that demands what our commits do not do. The others demand nothing of a commit, or only in tables that use them,
/// which the properties and columns show. New files have statistics of every flat column, so those of a clustered table have them, too.
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
fn feature_of(field: &Field) -> Option<ColumnFeature> {
    let feature = COLUMN_FEATURES.iter().find(|(key, _)| field.metadata().keys().any(|have| have.starts_with(key)));
    if let Some((_, what)) = feature {
        return Some(ColumnFeature { column: field.name().clone(), what });
    }
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().find_map(|field| feature_of(field)),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => feature_of(item),
        _ => None,
    }
}

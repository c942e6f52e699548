//! How fields that are no text become text in JSON: as people read them.

use std::fmt::Display;

use serde::{Serialize, Serializer};

/// A field as its text.
pub(crate) fn as_text<T: Display, S: Serializer>(field: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(field)
}

/// A field as its text, if there is one.
pub(crate) fn as_optional_text<T: Display, S: Serializer>(field: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    field.as_ref().map(ToString::to_string).serialize(serializer)
}

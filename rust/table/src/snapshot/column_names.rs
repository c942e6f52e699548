//! Names of columns and fields: as somebody writes them, as the table shows them, and as the files have them.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, SchemaRef};
use lakemark_format::column;

use super::Snapshot;
use crate::files::column_mapping::ColumnMapping;
use crate::values::fields::{Presence, field_of, indexed_field};

impl Snapshot {
    /// The names that columns have in the files, where those differ from what the table shows.
    #[must_use]
    pub fn column_names(&self) -> Option<&Arc<ColumnMapping>> {
        self.names.as_ref()
    }

    /// The column or field that a user's text names: the column of just this name, else the field with dots between the
    /// names on the way to it (in double quotes where a name has dots itself). None if the table has neither.
    #[must_use]
    pub fn resolve(&self, text: &str) -> Option<String> {
        let is_known = |name: &String| field_of(&self.schema, name).is_some();
        Some(text.to_owned()).filter(is_known).or_else(|| column::parse(text).filter(is_known))
    }

    /// The text for a column or field that [`Snapshot::resolve`] takes for just this one.
    #[must_use]
    pub fn display_name(&self, name: &str) -> String {
        let text = column::display(name);
        let is_other = column::is_field(name) && self.schema.field_with_name(&text).is_ok();
        if is_other { column::quoted(name) } else { text.into_owned() }
    }

    /// A column of the table, or a field inside of its structs, under its whole name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldRef> {
        field_of(&self.schema, name)
    }

    /// The column or field of the files that has this name there, typed as it is now; none if the table has it no more.
    pub(crate) fn physical_field(&self, stored: &str) -> Option<FieldRef> {
        let field = indexed_field(&self.file_schema, &self.logical_name(stored)?)?;
        Some(Arc::new(field.as_ref().clone().with_name(stored)))
    }

    /// The name that a column or field of the table has in the files.
    pub(crate) fn physical_name<'a>(&self, shown: &'a str) -> Cow<'a, str> {
        self.names.as_ref().and_then(|names| names.physical(shown)).map_or(Cow::Borrowed(shown), Cow::Owned)
    }

    /// The name that a column or field of the files shows; none if the table has it no more.
    pub(crate) fn logical_name<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        match &self.names {
            Some(names) => names.logical(stored).map(Cow::Owned),
            None => Some(Cow::Borrowed(stored)),
        }
    }

    /// How a file with this schema, by stored names, has a column or field of the table, by its shown name.
    pub(crate) fn presence(&self, stored: &SchemaRef, shown: &str) -> Presence {
        Presence::of(&shown_schema(self.names.as_deref(), stored), &self.file_schema, shown)
    }
}

/// The schema of a file by the names that its columns show.
pub(super) fn shown_schema(names: Option<&ColumnMapping>, stored: &SchemaRef) -> SchemaRef {
    names.map_or_else(|| Arc::clone(stored), |names| names.logical_schema(stored))
}

//! The columns that ride along with an index, as the table has them now.

use arrow::datatypes::FieldRef;
use lakemark_format::{ManifestIndex, column};
use lakemark_index::riding_type_of;

use super::Snapshot;
use crate::store::included::{INCLUDE, column_list, included, names_of};
use crate::store::recorded::is_record;

impl Snapshot {
    /// The columns that ride along with an index, under the names that they have in the files. Those that are gone, or that have become
    /// columns of several values, are left out: segments do without them.
    pub(crate) fn riding_fields(&self, index: &ManifestIndex) -> Vec<FieldRef> {
        let fields = included(index).into_iter().filter_map(|stored| self.physical_field(&stored));
        fields.filter(|field| riding_type_of(field.data_type()).is_some()).collect()
    }

    /// Whether the values of a column, as the table shows it, may ride along with the keys of others.
    pub(crate) fn may_ride(&self, name: &str) -> bool {
        let is_partition = self.partition_columns().iter().any(|field| field.name() == name);
        let has_type = |field: FieldRef| riding_type_of(field.data_type()).is_some();
        !is_partition && !column::is_field(name) && self.field(name).is_some_and(has_type)
    }

    /// The options of an index as users gave them, columns as the table shows them now.
    pub(super) fn shown_options(&self, index: &ManifestIndex) -> Vec<(String, String)> {
        let own = index.options.iter().filter(|(name, _)| !is_record(name));
        own.map(|option| self.shown_option(option)).collect()
    }

    fn shown_option(&self, (name, value): &(String, String)) -> (String, String) {
        let names = Some(value).filter(|_| name == INCLUDE).and_then(|value| names_of(value));
        let Some(names) = names else { return (name.clone(), value.clone()) };
        let shown = names.iter().map(|stored| self.logical_name(stored).unwrap_or(stored.into()).into_owned());
        let shown: Vec<String> = shown.collect();
        (name.clone(), column_list(shown.iter().map(String::as_str)))
    }
}

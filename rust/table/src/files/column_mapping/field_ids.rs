//! Whether a file has its columns under the ids of a mapping by id.
//!
//! Writers of Delta give a column of a file its stored name and its id. Names then find what ids find. Writers of another format, before a
//! table became one of Delta, may have given columns other names, or no ids. In such a file names may find another column.

use std::sync::Arc;

use parquet::schema::types::Type;

use super::{ColumnMapping, MappedColumns, NestedMapping, is_item};

impl ColumnMapping {
    /// What is wrong with the schema of a file, by the ids. None if names find what ids find.
    pub(crate) fn disagreement(&self, schema: &Type) -> Option<String> {
        in_group(schema, &self.columns)
    }
}

fn in_group(group: &Type, columns: &MappedColumns) -> Option<String> {
    let Type::GroupType { fields, .. } = group else { return None };
    columns.iter().find_map(|(stored, column)| {
        let named = fields.iter().find(|field| field.name() == stored);
        let Some(id) = column.id else { return in_field(named?, &column.inner) };
        let numbered = fields.iter().find(|field| id_of(field) == Some(id));
        match (named, numbered) {
            // A column that the file does not have is NULL.
            (None, None) => None,
            (Some(named), Some(numbered)) if Arc::ptr_eq(named, numbered) => in_field(named, &column.inner),
            (_, Some(numbered)) => {
                Some(format!("has the column {stored} (id {id}) under the name {}", numbered.name()))
            }
            (Some(named), None) => Some(match id_of(named) {
                Some(other) => format!("has the column {stored} (id {id}) under the id {other}"),
                None => format!("has the column {stored} (id {id}) without an id"),
            }),
        }
    })
}

fn in_field(field: &Type, inner: &NestedMapping) -> Option<String> {
    let Type::GroupType { fields, .. } = field else { return None };
    match inner {
        NestedMapping::Flat => None,
        NestedMapping::Struct(columns) => in_group(field, columns),
        NestedMapping::List(item) => {
            let repeated = fields.first()?;
            let element = match repeated.as_ref() {
                Type::GroupType { fields, .. } if !is_item(field.name(), repeated) => fields.first()?,
                _ => repeated,
            };
            in_field(element, item)
        }
        NestedMapping::Map(key, value) => {
            let Type::GroupType { fields, .. } = fields.first()?.as_ref() else { return None };
            let [key_field, value_field] = fields.as_slice() else { return None };
            in_field(key_field, key).or_else(|| in_field(value_field, value))
        }
    }
}

fn id_of(field: &Type) -> Option<i32> {
    let info = field.get_basic_info();
    info.has_id().then(|| info.id())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::datatypes::{DataType, Field, FieldRef, Schema};
    use parquet::schema::parser::parse_message_type;

    use super::super::{COLUMN_ID, MappedBy, STORED_NAME};
    use super::*;

    fn numbered(shown: &str, stored: &str, id: i32, data_type: DataType) -> FieldRef {
        let said = [(STORED_NAME, stored.to_owned()), (COLUMN_ID, id.to_string())];
        let said: HashMap<String, String> = said.map(|(key, value)| (key.to_owned(), value)).into();
        Arc::new(Field::new(shown, data_type, true).with_metadata(said))
    }

    /// `k`, and a list of points.
    fn mapping(by: MappedBy) -> ColumnMapping {
        let point = DataType::Struct(vec![numbered("x", "cx", 3, DataType::Int64)].into());
        let many = DataType::List(Arc::new(Field::new("element", point, true)));
        ColumnMapping::of(
            &Schema::new(vec![numbered("k", "ck", 1, DataType::Int64), numbered("many", "cm", 2, many)]),
            by,
        )
    }

    fn disagreement(by: MappedBy, k: &str, x: &str) -> Option<String> {
        let list =
            format!("optional group cm (LIST) = 2 {{ repeated group list {{ optional group element {{ {x} }} }} }}");
        mapping(by).disagreement(&parse_message_type(&format!("message m {{ {k} {list} }}")).unwrap())
    }

    #[test]
    fn names_and_ids_of_a_file_have_to_agree() {
        let (k, x) = ("optional int64 ck = 1;", "optional int64 cx = 3;");
        assert_eq!(disagreement(MappedBy::Id, k, x), None);
        // Columns that the mapping does not have, and a file that lacks one.
        assert_eq!(disagreement(MappedBy::Id, "optional int64 other = 9;", x), None);
        for (k, x, wrong) in [
            ("optional int64 ck;", x, "has the column ck (id 1) without an id"),
            ("optional int64 ck = 4;", x, "has the column ck (id 1) under the id 4"),
            ("optional int64 k = 1;", x, "has the column ck (id 1) under the name k"),
            ("optional int64 ck = 7; optional int64 k = 1;", x, "has the column ck (id 1) under the name k"),
            (k, "optional int64 cx;", "has the column cx (id 3) without an id"),
        ] {
            assert_eq!(disagreement(MappedBy::Id, k, x).as_deref(), Some(wrong), "{k} {x}");
            assert_eq!(disagreement(MappedBy::Name, k, x), None, "{k} {x}");
        }
    }
}

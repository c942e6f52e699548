//! Columns that are stored under other names than the table shows: Delta's column mapping, by name and by id.
//!
//! A table shows one name, its files have another. The stored name stays when the column is renamed, and is never used again when the
//! column is dropped. Whatever outlives a snapshot (manifests, segments, the footers that a table remembers) has *stored* names; whatever a
//! snapshot gives has *shown* names. [`ColumnMapping`] translates, and gives engines footers with shown names. A file of a table that maps by
//! id has the same names, which [`field_ids`] checks.

mod field_ids;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use lakemark_format::column;
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, parquet_to_arrow_schema};
use parquet::basic::{ConvertedType, LogicalType, Repetition};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use serde::{Deserialize, Serialize};

use crate::storage::fingerprint::fingerprint;
use crate::values::footer_edit::with_schema;

/// The field metadata of Delta's column mapping.
const MAPPING_PREFIX: &str = "delta.columnMapping.";
const STORED_NAME: &str = "delta.columnMapping.physicalName";
const COLUMN_ID: &str = "delta.columnMapping.id";
/// How columns of runs begin that are not the table's: these have one name only.
pub(crate) const OURS: &str = "__lakemark_";

/// The names of a table's columns in its files, and those that it shows. It can be sent to other processes that read the same files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ColumnMapping {
    columns: MappedColumns,
    by: MappedBy,
    fingerprint: u64,
}

/// The fields of the table, or of a struct, by stored name.
type MappedColumns = BTreeMap<String, MappedColumn>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MappedColumn {
    shown: String,
    /// By which files know the column, where the table maps columns by id.
    id: Option<i32>,
    inner: NestedMapping,
}

/// A column, and the name that it has on the other side.
struct NamedColumn<'a> {
    name: &'a str,
    column: &'a MappedColumn,
}

/// Where nested fields have names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum NestedMapping {
    Flat,
    Struct(MappedColumns),
    List(Box<NestedMapping>),
    Map(Box<NestedMapping>, Box<NestedMapping>),
}

/// What finds a column in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MappedBy {
    Name,
    Id,
}

impl ColumnMapping {
    /// The stored names that the fields of a Delta table's schema give, and their ids, if these find columns.
    pub(crate) fn of(schema: &Schema, by: MappedBy) -> Self {
        let columns = columns_of(schema.fields(), by);
        let fingerprint = fingerprint(format!("{columns:?}").as_bytes());
        Self { columns, by, fingerprint }
    }

    /// Whether ids find columns, and names only as far as they agree.
    pub(crate) fn is_by_id(&self) -> bool {
        self.by == MappedBy::Id
    }

    /// The names of some columns alone, selected by their shown names: all that a reader of just these columns needs.
    #[must_use]
    pub fn of_columns(&self, is_read: impl Fn(&str) -> bool) -> Self {
        let read = self.columns.iter().filter(|(_, column)| is_read(&column.shown));
        let columns = read.map(|(stored, column)| (stored.clone(), column.clone())).collect();
        Self { columns, ..*self }
    }

    /// Changes whenever a name does.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The stored name of a column or field.
    pub(crate) fn physical(&self, shown: &str) -> Option<String> {
        self.walk_each(shown, |columns, name| {
            let (stored, column) = columns.iter().find(|(_, column)| column.shown == name)?;
            Some(NamedColumn { name: stored, column })
        })
    }

    /// The shown name of a stored column or field; none if the table has it no more.
    pub(crate) fn logical(&self, stored: &str) -> Option<String> {
        self.walk_each(stored, |columns, name| {
            columns.get(name).map(|column| NamedColumn { name: &column.shown, column })
        })
    }

    /// The same for each column of a composite.
    fn walk_each<'a>(
        &'a self,
        name: &str,
        find: impl Fn(&'a MappedColumns, &str) -> Option<NamedColumn<'a>>,
    ) -> Option<String> {
        let found: Option<Vec<String>> = column::columns(name).map(|name| self.walk(name, &find)).collect();
        Some(column::composite(found?.iter().map(String::as_str)))
    }

    /// A name made of what `find` calls the columns on its way. The keys of maps are the same in files and in the table.
    fn walk<'a>(
        &'a self,
        name: &str,
        find: impl Fn(&'a MappedColumns, &str) -> Option<NamedColumn<'a>>,
    ) -> Option<String> {
        let (mut fields, mut is_map, mut way) = (Some(&self.columns), false, Vec::new());
        for part in column::names(name) {
            if std::mem::take(&mut is_map) {
                way.push(part);
                continue;
            }
            let NamedColumn { name, column } = find(fields.take()?, part)?;
            way.push(name);
            match &column.inner {
                NestedMapping::Struct(columns) => fields = Some(columns),
                NestedMapping::Map(..) => is_map = true,
                NestedMapping::Flat | NestedMapping::List(_) => {}
            }
        }
        Some(column::join(way))
    }

    /// The schema of a file with shown names, also inside. Columns that the table has no more are left out.
    pub(crate) fn logical_schema(&self, stored: &Schema) -> SchemaRef {
        let shown = |field: &FieldRef| {
            let column = self.columns.get(field.name())?;
            let data_type = shown_type(field.data_type(), &column.inner);
            Some(field.as_ref().clone().with_name(&column.shown).with_data_type(data_type))
        };
        Arc::new(Schema::new(stored.fields().iter().filter_map(shown).collect::<Vec<_>>()))
    }

    /// The same footer, from which readers take the shown names.
    pub(crate) fn logical_footer(&self, metadata: ParquetMetaData) -> ParquetResult<ParquetMetaData> {
        let file = metadata.file_metadata();
        let stored = file.schema_descr();
        let schema = parquet_to_arrow_schema(stored, file.key_value_metadata())?;
        let schema = Schema::new(shown_fields(schema.fields(), &self.columns));
        let root = renamed_group(stored.root_schema(), stored.root_schema().name(), &self.columns)?;
        Ok(with_schema(metadata, &schema, Arc::new(SchemaDescriptor::new(root))))
    }
}

fn columns_of(fields: &Fields, by: MappedBy) -> MappedColumns {
    let column = |field: &FieldRef| {
        // A table that was not mapped from the beginning has columns whose stored name is their first one.
        let stored = field.metadata().get(STORED_NAME).unwrap_or(field.name()).clone();
        let id = field.metadata().get(COLUMN_ID).filter(|_| by == MappedBy::Id).and_then(|id| id.parse().ok());
        (stored, MappedColumn { shown: field.name().clone(), id, inner: inner_of(field.data_type(), by) })
    };
    fields.iter().map(column).collect()
}

fn inner_of(data_type: &DataType, by: MappedBy) -> NestedMapping {
    let inner = |field: &Field| Box::new(inner_of(field.data_type(), by));
    match data_type {
        DataType::Struct(fields) => NestedMapping::Struct(columns_of(fields, by)),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            NestedMapping::List(inner(item))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => match fields.iter().collect::<Vec<_>>().as_slice() {
                [key, value] => NestedMapping::Map(inner(key), inner(value)),
                _ => NestedMapping::Flat,
            },
            _ => NestedMapping::Flat,
        },
        _ => NestedMapping::Flat,
    }
}

/// The schema of a Delta table without what its fields say of the mapping.
pub(crate) fn plain_schema(schema: &Schema) -> SchemaRef {
    Arc::new(Schema::new(plain_fields(schema.fields())))
}

/// Fields without their metadata of the mapping, also inside.
fn plain_fields(fields: &Fields) -> Fields {
    fields.iter().map(|field| plain(field)).collect()
}

fn plain(field: &Field) -> FieldRef {
    let metadata = field.metadata().iter().filter(|(key, _)| !key.starts_with(MAPPING_PREFIX));
    let metadata = metadata.map(|(key, value)| (key.clone(), value.clone())).collect();
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(plain_fields(fields)),
        DataType::List(item) => DataType::List(plain(item)),
        DataType::LargeList(item) => DataType::LargeList(plain(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(plain(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(plain(entries), *sorted),
        other => other.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(metadata))
}

/// The fields of a Delta table's schema as new files have them: stored names, also inside, and the ids that the
/// mapping gives them.
pub(crate) fn physical_fields(fields: &Fields) -> Fields {
    fields.iter().map(stored_field).collect()
}

fn stored_field(field: &FieldRef) -> FieldRef {
    let name = field.metadata().get(STORED_NAME).unwrap_or(field.name());
    let id = field.metadata().get(COLUMN_ID).map(|id| (PARQUET_FIELD_ID_META_KEY.to_owned(), id.clone()));
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(physical_fields(fields)),
        DataType::List(item) => DataType::List(stored_field(item)),
        DataType::LargeList(item) => DataType::LargeList(stored_field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(stored_field(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(stored_field(entries), *sorted),
        other => other.clone(),
    };
    Arc::new(Field::new(name, data_type, field.is_nullable()).with_metadata(id.into_iter().collect()))
}

/// The name that a stored field shows. A field that the table has no more gets a name that no column can have.
fn shown_name(stored: &str, columns: &MappedColumns) -> String {
    match columns.get(stored) {
        Some(column) => column.shown.clone(),
        None if stored.starts_with(OURS) => stored.to_owned(),
        None => format!("{stored}\u{0}"),
    }
}

fn shown_fields(fields: &Fields, columns: &MappedColumns) -> Fields {
    let shown = |field: &FieldRef| {
        let inner = columns.get(field.name()).map_or(&NestedMapping::Flat, |column| &column.inner);
        let renamed = field.as_ref().clone().with_name(shown_name(field.name(), columns));
        Arc::new(renamed.with_data_type(shown_type(field.data_type(), inner)))
    };
    fields.iter().map(shown).collect()
}

fn shown_type(data_type: &DataType, inner: &NestedMapping) -> DataType {
    let item = |field: &FieldRef, inner: &NestedMapping| {
        Arc::new(field.as_ref().clone().with_data_type(shown_type(field.data_type(), inner)))
    };
    match (data_type, inner) {
        (DataType::Struct(fields), NestedMapping::Struct(columns)) => DataType::Struct(shown_fields(fields, columns)),
        (DataType::List(field), NestedMapping::List(inner)) => DataType::List(item(field, inner)),
        (DataType::LargeList(field), NestedMapping::List(inner)) => DataType::LargeList(item(field, inner)),
        (DataType::FixedSizeList(field, length), NestedMapping::List(inner)) => {
            DataType::FixedSizeList(item(field, inner), *length)
        }
        (DataType::Map(entries, sorted), NestedMapping::Map(key, value)) => match entries.data_type() {
            DataType::Struct(fields) => {
                let inners = [key, value];
                let fields = fields.iter().zip(inners).map(|(field, inner)| item(field, inner)).collect();
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(fields))), *sorted)
            }
            _ => data_type.clone(),
        },
        _ => data_type.clone(),
    }
}

/// The Parquet group under another name, its fields with shown names.
fn renamed_group(group: &Type, name: &str, columns: &MappedColumns) -> ParquetResult<TypePtr> {
    let Type::GroupType { fields, .. } = group else { return Ok(Arc::new(group.clone())) };
    let fields = fields.iter().map(|field| {
        let inner = columns.get(field.name()).map_or(&NestedMapping::Flat, |column| &column.inner);
        renamed(field, &shown_name(field.name(), columns), inner)
    });
    with_fields(group, name, fields.collect::<ParquetResult<_>>()?)
}

fn renamed(field: &Type, name: &str, inner: &NestedMapping) -> ParquetResult<TypePtr> {
    let Type::GroupType { fields, .. } = field else { return renamed_leaf(field, name) };
    let inners: &[&NestedMapping] = match inner {
        NestedMapping::Struct(columns) => return renamed_group(field, name, columns),
        NestedMapping::Flat => &[],
        NestedMapping::List(item) => &[item],
        NestedMapping::Map(key, value) => &[key, value],
    };
    // Lists and maps have one repeated group, in it the items.
    let repeated = |group: &TypePtr| match (group.as_ref(), inner) {
        (_, NestedMapping::List(item)) if is_item(field.name(), group) => {
            // Readers know the group by the name of the list.
            let is_named = group.name() == format!("{}_tuple", field.name());
            let shown = if is_named { format!("{name}_tuple") } else { group.name().to_owned() };
            renamed(group, &shown, item)
        }
        (Type::GroupType { fields, .. }, _) if fields.len() == inners.len() => {
            let items = fields.iter().zip(inners).map(|(item, inner)| renamed(item, item.name(), inner));
            with_fields(group, group.name(), items.collect::<ParquetResult<_>>()?)
        }
        _ => Ok(Arc::clone(group)),
    };
    with_fields(field, name, fields.iter().map(repeated).collect::<ParquetResult<_>>()?)
}

/// Whether the repeated group of a list is the item itself, as old writers have it: the rule of the Parquet reader.
fn is_item(list: &str, repeated: &Type) -> bool {
    let Type::GroupType { basic_info, fields } = repeated else { return false };
    let [only] = fields.as_slice() else { return true };
    let is_list = match basic_info.logical_type_ref() {
        Some(logical) => *logical == LogicalType::List,
        None => basic_info.converted_type() == ConvertedType::LIST,
    };
    let only = only.get_basic_info();
    let is_repeated = only.has_repetition() && only.repetition() == Repetition::REPEATED;
    !is_list && !is_repeated && (repeated.name() == "array" || repeated.name() == format!("{list}_tuple"))
}

fn with_fields(group: &Type, name: &str, fields: Vec<TypePtr>) -> ParquetResult<TypePtr> {
    let info = group.get_basic_info();
    let mut builder = Type::group_type_builder(name)
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_id(info.has_id().then(|| info.id()))
        .with_fields(fields);
    if info.has_repetition() {
        builder = builder.with_repetition(info.repetition());
    }
    Ok(Arc::new(builder.build()?))
}

fn renamed_leaf(leaf: &Type, name: &str) -> ParquetResult<TypePtr> {
    let Type::PrimitiveType { basic_info: info, physical_type, type_length, scale, precision } = leaf else {
        return Ok(Arc::new(leaf.clone()));
    };
    let mut builder = Type::primitive_type_builder(name, *physical_type)
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned())
        .with_length(*type_length)
        .with_precision(*precision)
        .with_scale(*scale)
        .with_id(info.has_id().then(|| info.id()));
    if info.has_repetition() {
        builder = builder.with_repetition(info.repetition());
    }
    Ok(Arc::new(builder.build()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use parquet::file::metadata::FileMetaData;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn named(shown: &str, stored: &str, data_type: DataType) -> FieldRef {
        let said = HashMap::from([(STORED_NAME.to_owned(), stored.to_owned())]);
        Arc::new(Field::new(shown, data_type, true).with_metadata(said))
    }

    /// A list of structs in three levels, and in two as old writers have them.
    #[test]
    fn items_of_lists_show_their_names_however_they_are_stored() {
        let point = DataType::Struct(vec![named("x", "cx", DataType::Int64)].into());
        let item = Arc::new(Field::new("element", point, true));
        let names = ColumnMapping::of(&Schema::new(vec![named("many", "c4", DataType::List(item))]), MappedBy::Name);
        for repeated in [
            "repeated group list { optional group element { optional int64 cx; } }",
            "repeated group array { optional int64 cx; }",
            "repeated group c4_tuple { optional int64 cx; }",
        ] {
            let message = format!("message spark_schema {{ optional group c4 (LIST) {{ {repeated} }} }}");
            let stored = Arc::new(SchemaDescriptor::new(Arc::new(parse_message_type(&message).unwrap())));
            let footer = ParquetMetaData::new(FileMetaData::new(1, 0, None, None, stored, None), Vec::new());
            let shown = names.logical_footer(footer).unwrap();
            let file = shown.file_metadata();
            let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()).unwrap();
            let many = schema.field_with_name("many").unwrap();
            let DataType::List(item) = many.data_type() else { panic!("{many}") };
            let DataType::Struct(fields) = item.data_type() else { panic!("{item}") };
            assert_eq!(fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["x"], "{repeated}");
        }
    }
}

//! Keys: the columns that tell the rows of a table apart. No table refers to another.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::CommandGetPrimaryKeys;
use tonic::Status;

use crate::error::{arrow_status, status};
use crate::statements::Statements;
use crate::tables::{CATALOG, ServedTable};

/// The columns of an answer about primary keys.
pub(crate) static PRIMARY_KEYS: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
});

/// The columns of an answer about keys of other tables.
pub(crate) static REFERENCES: LazyLock<SchemaRef> = LazyLock::new(|| {
    let text = |name: &str, nullable: bool| Field::new(name, DataType::Utf8, nullable);
    Arc::new(Schema::new(vec![
        text("pk_catalog_name", true),
        text("pk_db_schema_name", true),
        text("pk_table_name", false),
        text("pk_column_name", false),
        text("fk_catalog_name", true),
        text("fk_db_schema_name", true),
        text("fk_table_name", false),
        text("fk_column_name", false),
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
});

/// The key of a table, column by column; no rows for a table without one, or that there is not.
pub(crate) async fn primary_keys(statements: &Statements, query: CommandGetPrimaryKeys) -> Result<RecordBatch, Status> {
    let CommandGetPrimaryKeys { catalog, db_schema, table } = query;
    let is_ours = catalog.is_none_or(|name| name.is_empty() || name == CATALOG);
    let is_meant = |served: &&ServedTable| {
        is_ours && served.name == table && db_schema.as_ref().is_none_or(|schema| *schema == served.schema)
    };
    let served = statements.tables().list();
    let found = served.iter().find(is_meant);
    let columns = match found {
        Some(served) => served.table.key_columns().await.map_err(status)?.unwrap_or_default(),
        None => Vec::new(),
    };
    let schema = found.map(|served| served.schema.as_str()).unwrap_or_default();
    let rows = columns.len();
    let repeated = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text; rows])) };
    let columns: Vec<ArrayRef> = vec![
        repeated(CATALOG),
        repeated(schema),
        repeated(&table),
        Arc::new(StringArray::from(columns)),
        repeated(&format!("{table}_key")),
        Arc::new(Int32Array::from_iter_values((1..).take(rows))),
    ];
    RecordBatch::try_new(Arc::clone(&PRIMARY_KEYS), columns).map_err(arrow_status)
}

/// No rows, since no table refers to another.
pub(crate) fn references() -> RecordBatch {
    RecordBatch::new_empty(Arc::clone(&REFERENCES))
}

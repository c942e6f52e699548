//! A table at a glance.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use lakemark_table::{ColumnInfo, Result, Table, TableInfo};

use crate::api::query::{QueryOptions, count};

/// What a table is and how its indexes and updates stand. Its rows are counted, from the index where that is possible.
///
/// # Errors
/// The table or its store cannot be read.
pub async fn table_info(table: &Arc<Table>) -> Result<TableInfo> {
    let snapshot = table.snapshot().await?;
    let indexes = snapshot.checked_indexes().await?;
    let column = |field: &FieldRef| ColumnInfo {
        name: field.name().clone(),
        data_type: field.data_type().to_string(),
        nullable: field.is_nullable(),
    };
    Ok(TableInfo {
        location: table.location().to_owned(),
        format: table.format(),
        store: table.store_location().map(str::to_owned),
        version: table.version(),
        delta_version: snapshot.delta_version(),
        manifest: snapshot.manifest_number(),
        files: snapshot.files().len() as u64,
        bytes: snapshot.files().iter().map(|file| file.meta.size).sum(),
        rows: count(table, None, &QueryOptions::default()).await?,
        columns: snapshot.schema().fields().iter().map(column).collect(),
        partition_columns: snapshot.partition_columns().iter().map(|field| field.name().clone()).collect(),
        index_bytes: indexes.iter().map(|index| index.bytes).sum(),
        indexes,
        updates: table.updates_info().await?,
    })
}

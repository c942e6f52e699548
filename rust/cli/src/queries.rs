//! `count`, `lookup` and `explain`: queries that the indexes answer.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::concat_batches;
use datafusion::error::DataFusionError;
use lakemark_catalog::Names;
use lakemark_datafusion::QueryOptions;
use lakemark_table::{StorageAccess, Table, TableNames, TableOptions};

use crate::args::{CountArgs, ExplainArgs, KeyValue, LookupArgs, TableArgs, TextFormat};
use crate::failure::Failure;
use crate::output;

/// Opens the table that a verb works on.
pub(crate) async fn open(at: &TableArgs) -> Result<Arc<Table>, Failure> {
    open_at(at, None).await
}

/// Opens the table at a version, if one is given.
pub(crate) async fn open_at(at: &TableArgs, version: Option<u64>) -> Result<Arc<Table>, Failure> {
    let storage = typed_storage(&at.storage);
    let typed = TableOptions { store: at.store.clone(), storage, version, ..TableOptions::default() };
    Ok(Names::load()?.resolve(&at.table, at.profile.as_deref(), typed).await?.open().await?)
}

/// How storage is reached by what was typed.
pub(crate) fn typed_storage(options: &[KeyValue]) -> StorageAccess {
    StorageAccess::of(options.iter().map(|option| (option.key.clone(), option.value.clone())).collect())
}

pub(crate) async fn count(args: CountArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let rows = lakemark_datafusion::count(&table, args.predicate.as_deref(), &QueryOptions::default()).await?;
    output::text(&rows.to_string())
}

pub(crate) async fn lookup(args: LookupArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let keys: ArrayRef = Arc::new(StringArray::from(args.keys));
    let options = QueryOptions::default();
    let found = lakemark_datafusion::lookup(&table, &keys, &args.on, args.columns.as_deref(), &options).await?;
    output::batch(concat_batches(&found.schema, &found.batches).map_err(DataFusionError::from)?, args.format)
}

pub(crate) async fn explain(args: ExplainArgs) -> Result<(), Failure> {
    let table = open_at(&args.at, args.version).await?;
    let report = lakemark_datafusion::explain(&table, Some(&args.predicate), &QueryOptions::default()).await?;
    match args.format {
        TextFormat::Json => output::json_value(&report),
        TextFormat::Text => output::text(&format!("{}\n{report}", args.predicate)),
    }
}

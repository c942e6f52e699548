//! Catalogs, schemas and tables.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use datafusion::catalog::SchemaProvider;
use datafusion::datasource::TableType;
use tonic::Status;

use crate::error::{engine_status, flight_status};
use crate::statements::Statements;
use crate::tables::CATALOG;
use crate::wire;

/// The schemas of every session that tables are described in.
const INFORMATION_SCHEMA: &str = "information_schema";
const TABLE: &str = "TABLE";
const VIEW: &str = "VIEW";
/// Bytes of a pattern of names.
const MOST_PATTERN: usize = 1000;

/// The catalogs: there is one.
pub(crate) fn catalogs(query: CommandGetCatalogs) -> Result<RecordBatch, Status> {
    let mut rows = query.into_builder();
    rows.append(CATALOG);
    rows.build().map_err(flight_status)
}

/// The types of tables.
pub(crate) fn table_types(query: CommandGetTableTypes) -> Result<RecordBatch, Status> {
    let mut rows = query.into_builder();
    rows.append(TABLE);
    rows.append(VIEW);
    rows.build().map_err(flight_status)
}

/// The schemas of the catalog.
pub(crate) async fn schemas(statements: &Statements, query: CommandGetDbSchemas) -> Result<RecordBatch, Status> {
    check_pattern(query.db_schema_filter_pattern.as_deref())?;
    look(statements).await;
    let mut rows = query.into_builder();
    for name in names(statements) {
        rows.append(CATALOG, name);
    }
    rows.append(CATALOG, INFORMATION_SCHEMA);
    rows.build().map_err(flight_status)
}

/// The tables of the schemas, with their columns if they are asked for. A table that cannot be read has none.
pub(crate) async fn tables(statements: &Statements, mut query: CommandGetTables) -> Result<RecordBatch, Status> {
    for pattern in [&query.db_schema_filter_pattern, &query.table_name_filter_pattern] {
        check_pattern(pattern.as_deref())?;
    }
    query.table_types = known_types(query.table_types);
    look(statements).await;
    let with_columns = query.include_schema;
    // Which tables are meant is known before their columns are, for which each of them has to be opened.
    let mut meant = CommandGetTables { include_schema: false, ..query.clone() }.into_builder();
    let catalog = statements.session().context().catalog(CATALOG);
    let schema_of = |name: &str| catalog.as_ref().and_then(|catalog| catalog.schema(name));
    for schema_name in names(statements) {
        let Some(schema) = schema_of(&schema_name) else { continue };
        for name in schema.table_names() {
            let kind = schema.table_type(&name).await.map_err(engine_status)?;
            let kind = if kind == Some(TableType::View) { VIEW } else { TABLE };
            meant.append(CATALOG, &schema_name, &name, kind, &Schema::empty()).map_err(flight_status)?;
        }
    }
    let meant = meant.build().map_err(flight_status)?;
    if !with_columns {
        return Ok(meant);
    }
    let mut rows = query.into_builder();
    for row in 0..meant.num_rows() {
        let [schema_name, name, kind] = [1, 2, 3].map(|column| meant.column(column).as_string::<i32>().value(row));
        let columns = match schema_of(schema_name) {
            Some(schema) => columns_of(schema.as_ref(), name).await,
            None => Schema::empty().into(),
        };
        rows.append(CATALOG, schema_name, name, kind, &columns).map_err(flight_status)?;
    }
    rows.build().map_err(flight_status)
}

/// Refuses patterns that are longer than names are: a short message could have a long search made of them.
fn check_pattern(pattern: Option<&str>) -> Result<(), Status> {
    match pattern.map(str::len).filter(|length| *length > MOST_PATTERN) {
        None => Ok(()),
        Some(length) => Err(Status::invalid_argument(format!(
            "a pattern of names has {length} bytes, and {MOST_PATTERN} are allowed; ask for all names, and choose among them"
        ))),
    }
}

/// The types that are asked for and that there are, each of them once; where there is none of them, one that no table has.
fn known_types(asked: Vec<String>) -> Vec<String> {
    if asked.is_empty() {
        return asked;
    }
    let known = [TABLE, VIEW].into_iter().filter(|known| asked.iter().any(|asked| asked == known));
    let known: Vec<String> = known.map(str::to_owned).collect();
    if known.is_empty() { vec![String::new()] } else { known }
}

async fn columns_of(schema: &dyn SchemaProvider, name: &str) -> SchemaRef {
    match schema.table(name).await {
        Ok(found) => found.map_or_else(|| Schema::empty().into(), |table| wire::schema(&table.schema())),
        Err(error) => {
            tracing::warn!(table = name, %error, "the columns of a table cannot be told");
            Schema::empty().into()
        }
    }
}

fn names(statements: &Statements) -> Vec<String> {
    let catalog = statements.session().context().catalog(CATALOG);
    let mut names = catalog.map(|catalog| catalog.schema_names()).unwrap_or_default();
    names.retain(|name| name != INFORMATION_SCHEMA);
    names
}

/// Finds tables that came since. What is known is told even where the folder cannot be listed just now.
async fn look(statements: &Statements) {
    if let Err(error) = statements.tables().look(statements.session()).await {
        tracing::warn!(%error, "the warehouse cannot be looked at");
    }
}

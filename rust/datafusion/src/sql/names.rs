//! Names that a session knows beside those that its statements defined. Their tables are opened when a statement needs them.
//!
//! ```text
//! SELECT … FROM trips              defined by a statement? ─▶ that table
//!                                  else known by name?     ─▶ the table that the name stands for, opened once
//! SELECT … FROM main.sales.trips   of a known catalog      ─▶ the table that its server knows, opened once
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::Schema;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::{DataFusionError, Result};
use lakemark_table::{TableNames, TableOptions};

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::sql::unreadable::Unreadable;
use crate::sql::versions::VersionedName;

/// The names of a session, as an extension of its configuration: `CREATE EXTERNAL TABLE … LOCATION` takes them, too.
pub(crate) struct SessionNames(pub(crate) Arc<dyn TableNames>);

impl fmt::Debug for SessionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionNames").field(&self.0.listed()).finish()
    }
}

/// The tables of names that were needed until now.
#[derive(Debug)]
pub(crate) struct OpenedTables {
    names: Arc<dyn TableNames>,
    opened: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl OpenedTables {
    pub(crate) fn new(names: Arc<dyn TableNames>) -> Self {
        Self { names, opened: Mutex::default() }
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn TableProvider>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of what is written. One that cannot be opened gives its error to the statement that reads it.
    async fn table(&self, written: &str) -> Arc<dyn TableProvider> {
        let known = self.opened().get(written).cloned();
        if let Some(known) = known {
            return known;
        }
        match self.open(written).await {
            // Somebody else may have opened it meanwhile.
            Ok(table) => Arc::clone(self.opened().entry(written.to_owned()).or_insert_with(|| Arc::new(table))),
            Err(error) => {
                let nothing = EmptyTable::new(Arc::new(Schema::empty()));
                Arc::new(Unreadable::new(Arc::new(nothing), to_engine(error)))
            }
        }
    }

    async fn open(&self, written: &str) -> lakemark_table::Result<LakemarkTable> {
        let place = self.names.resolve(written, None, TableOptions::default()).await?;
        LakemarkTable::new(place.open().await?).await
    }
}

/// A schema whose tables are those that statements defined, and beside them those of names.
#[derive(Debug)]
pub(crate) struct NamedTables {
    defined: Arc<dyn SchemaProvider>,
    tables: Arc<OpenedTables>,
}

impl NamedTables {
    pub(crate) fn new(defined: Arc<dyn SchemaProvider>, tables: Arc<OpenedTables>) -> Self {
        Self { defined, tables }
    }

    /// Whether a name is known, and no statement defined a table under it.
    pub(crate) fn is_undefined(&self, name: &str) -> bool {
        !self.defined.table_exist(name) && self.is_named(name)
    }

    /// Whether such a table was not needed yet.
    pub(crate) fn is_unopened(&self, name: &str) -> bool {
        self.is_undefined(name) && !self.tables.opened().contains_key(name)
    }

    fn is_named(&self, name: &str) -> bool {
        self.tables.names.listed().iter().any(|known| known == name)
    }
}

#[async_trait]
impl SchemaProvider for NamedTables {
    fn owner_name(&self) -> Option<&str> {
        self.defined.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        let mut names = self.defined.table_names();
        let others = self.tables.names.listed().into_iter().filter(|name| !self.defined.table_exist(name));
        names.extend(others);
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        if let Some(defined) = self.defined.table(name).await? {
            return Ok(Some(defined));
        }
        if !self.is_named(name) {
            return Ok(None);
        }
        Ok(Some(self.tables.table(name).await))
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        match self.defined.table_type(name).await? {
            None if self.is_named(name) => Ok(Some(TableType::Base)),
            defined => Ok(defined),
        }
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        self.defined.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.defined.deregister_table(name)
    }

    /// Whether a statement defined it: statements may define a table under a name that stands for another one.
    fn table_exist(&self, name: &str) -> bool {
        self.defined.table_exist(name)
    }
}

/// A catalog whose server knows what schemas and tables it has. It lists none: a server may have any number of them.
#[derive(Debug)]
pub(crate) struct RemoteCatalog {
    name: String,
    tables: Arc<OpenedTables>,
    /// Those that were looked up: a schema stays the same one.
    schemas: Mutex<HashMap<String, Arc<dyn SchemaProvider>>>,
}

impl RemoteCatalog {
    pub(crate) fn new(name: &str, tables: Arc<OpenedTables>) -> Self {
        Self { name: name.to_owned(), tables, schemas: Mutex::default() }
    }
}

impl CatalogProvider for RemoteCatalog {
    fn schema_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let mut schemas = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        let schema = schemas.entry(name.to_owned()).or_insert_with(|| {
            let (catalog, name) = (self.name.clone(), name.to_owned());
            Arc::new(RemoteSchema { catalog, name, tables: Arc::clone(&self.tables) })
        });
        Some(Arc::clone(schema))
    }
}

/// A schema of such a catalog.
#[derive(Debug)]
struct RemoteSchema {
    catalog: String,
    name: String,
    tables: Arc<OpenedTables>,
}

#[async_trait]
impl SchemaProvider for RemoteSchema {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        // The version is that of a table of another name.
        if VersionedName::of(name).is_some() {
            return Ok(None);
        }
        let written = self.tables.names.in_catalog(&self.catalog, &self.name, name);
        Ok(Some(self.tables.table(&written).await))
    }

    async fn table_type(&self, _name: &str) -> Result<Option<TableType>> {
        Ok(Some(TableType::Base))
    }

    /// Not known before somebody asks the server.
    fn table_exist(&self, _name: &str) -> bool {
        false
    }
}

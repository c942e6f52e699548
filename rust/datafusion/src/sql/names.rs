//! Names that a session knows beside those that its statements defined. Their tables are opened when a statement needs them.
//!
//! ```text
//! SELECT … FROM trips   defined by a statement? ─▶ that table
//!                       else known by name?     ─▶ the table that the name stands for, opened once
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::datatypes::Schema;
use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::{DataFusionError, Result};
use lakemark_table::{TableNames, TableOptions};

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::sql::unreadable::Unreadable;

/// The names of a session, as an extension of its configuration: `CREATE EXTERNAL TABLE … LOCATION` takes them, too.
pub(crate) struct SessionNames(pub(crate) Arc<dyn TableNames>);

impl fmt::Debug for SessionNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SessionNames").field(&self.0.listed()).finish()
    }
}

/// A schema whose tables are those that statements defined, and beside them those of names.
#[derive(Debug)]
pub(crate) struct NamedTables {
    defined: Arc<dyn SchemaProvider>,
    names: Arc<dyn TableNames>,
    opened: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl NamedTables {
    pub(crate) fn new(defined: Arc<dyn SchemaProvider>, names: Arc<dyn TableNames>) -> Self {
        Self { defined, names, opened: Mutex::default() }
    }

    /// Whether a name is known, and no statement defined a table under it.
    pub(crate) fn is_undefined(&self, name: &str) -> bool {
        !self.defined.table_exist(name) && self.is_named(name)
    }

    /// Whether such a table was not needed yet.
    pub(crate) fn is_unopened(&self, name: &str) -> bool {
        self.is_undefined(name) && !self.opened().contains_key(name)
    }

    fn is_named(&self, name: &str) -> bool {
        self.names.listed().iter().any(|known| known == name)
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn TableProvider>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, name: &str) -> lakemark_table::Result<LakemarkTable> {
        let place = self.names.resolve(name, None, TableOptions::default()).await?;
        LakemarkTable::new(place.open().await?).await
    }
}

#[async_trait]
impl SchemaProvider for NamedTables {
    fn owner_name(&self) -> Option<&str> {
        self.defined.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        let mut names = self.defined.table_names();
        let others = self.names.listed().into_iter().filter(|name| !self.defined.table_exist(name));
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
        let known = self.opened().get(name).cloned();
        if known.is_some() {
            return Ok(known);
        }
        Ok(Some(match self.open(name).await {
            // Somebody else may have opened it meanwhile.
            Ok(table) => Arc::clone(self.opened().entry(name.to_owned()).or_insert_with(|| Arc::new(table))),
            Err(error) => {
                let nothing = EmptyTable::new(Arc::new(Schema::empty()));
                Arc::new(Unreadable::new(Arc::new(nothing), to_engine(error)))
            }
        }))
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

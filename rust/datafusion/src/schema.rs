//! A schema of tables whose snapshot is pinned once per statement.
//!
//! DataFusion resolves a table's name once per statement. That is where a snapshot is taken: a
//! self-join sees one state of the table, and the next statement sees the newest.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};

use crate::error::to_engine;
use crate::provider::LakemarkTable;

/// Pins the Lakemark tables of another schema as they are looked up.
#[derive(Debug)]
pub(crate) struct PinningSchema {
    inner: Arc<dyn SchemaProvider>,
}

impl PinningSchema {
    pub(crate) fn new(inner: Arc<dyn SchemaProvider>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl SchemaProvider for PinningSchema {
    fn owner_name(&self) -> Option<&str> {
        self.inner.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        let Some(found) = self.inner.table(name).await? else {
            return Ok(None);
        };
        match found.downcast_ref::<LakemarkTable>() {
            Some(table) => Ok(Some(Arc::new(table.pin().await.map_err(to_engine)?))),
            None => Ok(Some(found)),
        }
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        self.inner.table_type(name).await
    }

    fn register_table(&self, name: String, table: Arc<dyn TableProvider>) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.inner.table_exist(name)
    }
}

//! What stands for a table where somebody writes its path: names of a configuration or of a catalog. What there is, others know.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::error::Result;
use crate::options::TableOptions;
use crate::table::Table;

/// Names of tables, and paths, which stand for themselves.
pub trait TableNames: fmt::Debug + Send + Sync {
    /// The names that stand for tables by themselves, sorted.
    fn listed(&self) -> Vec<String>;

    /// The names of catalogs, sorted. What tables they have, their servers know.
    fn catalogs(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is written for a table of a catalog.
    fn in_catalog(&self, catalog: &str, schema: &str, table: &str) -> String {
        format!("{catalog}.{schema}.{table}")
    }

    /// The table of a name, or of a path, with what was typed: that counts over what is known of the name. A profile has credentials.
    fn resolve<'a>(
        &'a self,
        written: &'a str,
        profile: Option<&'a str>,
        typed: TableOptions,
    ) -> BoxFuture<'a, Result<TablePlace>>;
}

/// Where a table is, and how it is opened.
#[derive(Clone, Debug, Default)]
pub struct TablePlace {
    /// Its path or URL.
    pub location: String,
    /// How it is opened.
    pub options: TableOptions,
}

impl TablePlace {
    /// Opens the table.
    ///
    /// # Errors
    /// As of [`Table::open`].
    pub async fn open(self) -> Result<Arc<Table>> {
        Table::open(&self.location, self.options).await
    }
}

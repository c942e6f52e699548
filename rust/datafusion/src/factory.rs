//! `CREATE EXTERNAL TABLE … STORED AS LAKEMARK`.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::CreateExternalTable;
use lakemark_table::{Error, ErrorKind, Result, Table, TableOptions};

use crate::error::to_engine;
use crate::provider::LakemarkTable;

/// The word after `STORED AS`.
pub(crate) const FORMAT: &str = "LAKEMARK";

/// Opens tables for `CREATE EXTERNAL TABLE … STORED AS LAKEMARK LOCATION '…'`.
///
/// Options: `lakemark.store` names the store's place, `lakemark.storage.<key>` goes to the object
/// store. Columns are those of the files; `PARTITIONED BY` may repeat the partition columns.
#[derive(Debug, Default)]
pub struct LakemarkTableFactory;

#[async_trait]
impl TableProviderFactory for LakemarkTableFactory {
    async fn create(
        &self,
        _state: &dyn Session,
        command: &CreateExternalTable,
    ) -> EngineResult<Arc<dyn TableProvider>> {
        Ok(Arc::new(open(command).await.map_err(to_engine)?))
    }
}

async fn open(command: &CreateExternalTable) -> Result<LakemarkTable> {
    let [location] = command.locations.as_slice() else {
        return Err(invalid(format!("table {} needs one LOCATION", command.name)));
    };
    if !command.schema.fields().is_empty() {
        return Err(invalid(format!("leave the columns of table {} out: they are those of its files", command.name)));
    }
    if !command.order_exprs.is_empty() {
        return Err(invalid("WITH ORDER is not supported for STORED AS LAKEMARK"));
    }
    let options = table_options(&command.options)?;
    let provider = LakemarkTable::new(Table::open(location, options).await?).await?;
    let found: Vec<&str> = provider.snapshot().partition_columns().iter().map(|field| field.name().as_str()).collect();
    if !command.table_partition_cols.is_empty() && command.table_partition_cols != found {
        return Err(invalid(format!(
            "PARTITIONED BY ({}) does not fit {location}, which is partitioned by ({})",
            command.table_partition_cols.join(", "),
            found.join(", ")
        )));
    }
    Ok(provider)
}

fn table_options(given: &HashMap<String, String>) -> Result<TableOptions> {
    let mut options = TableOptions::default();
    for (key, value) in given {
        // DataFusion puts `format.` before a key without a namespace.
        let name = key.strip_prefix("format.").unwrap_or(key);
        let name = name.strip_prefix("lakemark.").unwrap_or(name);
        if name == "store" {
            options.store = Some(value.clone());
        } else if let Some(storage) = name.strip_prefix("storage.") {
            options.storage_options.insert(storage.to_owned(), value.clone());
        } else {
            return Err(invalid(format!(
                "unknown option {key:?}; a Lakemark table takes 'lakemark.store' and 'lakemark.storage.<key>'"
            )));
        }
    }
    Ok(options)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<TableOptions> {
        table_options(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn known_options_are_taken() {
        let taken = options(&[("lakemark.store", "/ssd/t"), ("lakemark.storage.aws_region", "x")]).unwrap();
        assert_eq!(taken.store.as_deref(), Some("/ssd/t"));
        assert_eq!(taken.storage_options.get("aws_region").map(String::as_str), Some("x"));
        assert_eq!(options(&[("format.store", "/a")]).unwrap().store.as_deref(), Some("/a"));
    }

    #[test]
    fn an_unknown_option_is_an_error_that_lists_the_known() {
        let error = options(&[("lakemark.stor", "/a")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("'lakemark.store'"), "{error}");
    }
}

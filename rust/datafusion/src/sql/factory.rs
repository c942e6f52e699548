//! `CREATE EXTERNAL TABLE … STORED AS LAKEMARK`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::error::Result as EngineResult;
use datafusion::logical_expr::CreateExternalTable;
use lakemark_table::{BuildOptions, Error, ErrorKind, Result, Table, TableOptions, UpdateOption};

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::sql::names::SessionNames;

/// The word after `STORED AS`.
pub(crate) const FORMAT: &str = "LAKEMARK";

/// Opens tables for `CREATE EXTERNAL TABLE … STORED AS LAKEMARK LOCATION '…'`.
///
/// Options: `lakemark.store` names the store's place, `lakemark.storage.<key>` goes to the object store, `lakemark.profile` names a profile
/// that has credentials, in a session that [knows](crate::LakemarkSession::know) some. `key` declares the columns that
/// identify a row (`'a, b'`), with the options of [`Table::declare_key`] beside it. `version` is the version that is read in place of the
/// newest state. Columns are those of the files; `PARTITIONED BY` may repeat the partition columns.
#[derive(Debug, Default)]
pub struct LakemarkTableFactory;

#[async_trait]
impl TableProviderFactory for LakemarkTableFactory {
    async fn create(&self, state: &dyn Session, command: &CreateExternalTable) -> EngineResult<Arc<dyn TableProvider>> {
        let names = state.config().get_extension::<SessionNames>();
        Ok(Arc::new(open(command, names.as_deref()).await.map_err(to_engine)?))
    }
}

async fn open(command: &CreateExternalTable, names: Option<&SessionNames>) -> Result<LakemarkTable> {
    let [location] = command.locations.as_slice() else {
        return Err(invalid(format!("table {} needs one LOCATION", command.name)));
    };
    if !command.schema.fields().is_empty() {
        return Err(invalid(format!("leave the columns of table {} out: they are those of its files", command.name)));
    }
    if !command.order_exprs.is_empty() {
        return Err(invalid("WITH ORDER is not supported for STORED AS LAKEMARK"));
    }
    let Options { opening, profile, key } = table_options(&command.options)?;
    let table = match names {
        Some(SessionNames(names)) => names.resolve(location, profile.as_deref(), opening).await?.open().await?,
        None if profile.is_some() => return Err(invalid("this session knows no profiles; leave 'profile' out")),
        None => Table::open(location, opening).await?,
    };
    let provider = LakemarkTable::new(Arc::clone(&table)).await?;
    let found: Vec<&str> = provider.snapshot().partition_columns().iter().map(|field| field.name().as_str()).collect();
    if !command.table_partition_cols.is_empty() && command.table_partition_cols != found {
        return Err(invalid(format!(
            "PARTITIONED BY ({}) does not fit {location}, which is partitioned by ({})",
            command.table_partition_cols.join(", "),
            found.join(", ")
        )));
    }
    if key.columns.is_empty() {
        return Ok(provider);
    }
    table.declare_key(&key.columns, &key.options, BuildOptions::default()).await?;
    LakemarkTable::new(table).await
}

/// What the options say.
#[derive(Debug, Default)]
struct Options {
    opening: TableOptions,
    profile: Option<String>,
    key: KeyOption,
}

/// A key to declare; without columns none.
#[derive(Debug, Default)]
struct KeyOption {
    columns: Vec<String>,
    options: BTreeMap<String, String>,
}

/// An option of `CREATE EXTERNAL TABLE`, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableOption<'a> {
    /// The place of the store.
    Store,
    /// The version that is read.
    Version,
    /// How long queries may go by the data files that an earlier one found.
    MaxStaleness,
    /// The columns that tell rows apart.
    Key,
    /// What may stand beside `key`.
    Update(UpdateOption),
    /// An option of the object store, by the object store's name for it.
    Storage(&'a str),
    /// The profile that has credentials.
    Profile,
}

impl<'a> TableOption<'a> {
    /// The option of a name as it was written, or as DataFusion hands it over.
    fn from_name(given: &'a str) -> Option<Self> {
        // DataFusion puts `format.` before a name without a namespace.
        let name = given.strip_prefix("format.").unwrap_or(given);
        let name = name.strip_prefix("lakemark.").unwrap_or(name);
        match name {
            "store" => Some(Self::Store),
            "version" => Some(Self::Version),
            "max_staleness" => Some(Self::MaxStaleness),
            "key" => Some(Self::Key),
            "profile" => Some(Self::Profile),
            _ => UpdateOption::from_name(name)
                .map(Self::Update)
                .or_else(|| name.strip_prefix("storage.").map(Self::Storage)),
        }
    }
}

fn table_options(given: &HashMap<String, String>) -> Result<Options> {
    let Options { mut opening, mut profile, mut key } = Options::default();
    for (given, value) in given {
        let option = TableOption::from_name(given).ok_or_else(|| {
            invalid(format!(
                "unknown option {given:?}; a Lakemark table takes 'lakemark.store', 'lakemark.storage.<key>', 'profile', 'version', 'max_staleness', \
                 'key' and, beside that, {}",
                UpdateOption::ALL.map(|option| format!("'{}'", option.name())).join(", ")
            ))
        })?;
        match option {
            TableOption::Store => opening.store = Some(value.clone()),
            TableOption::Version => {
                let number = value.trim().parse();
                opening.version = Some(number.map_err(|_| {
                    invalid(format!("the option 'version' is {value:?}; give the number of a version, as in '12'"))
                })?);
            }
            TableOption::MaxStaleness => opening.max_staleness = TableOptions::parse_staleness(value)?,
            TableOption::Key => key.columns = value.split(',').map(|column| column.trim().to_owned()).collect(),
            TableOption::Update(option) => {
                key.options.insert(option.name().to_owned(), value.clone());
            }
            TableOption::Storage(name) => {
                opening.storage.options.insert(name, value.as_str());
            }
            TableOption::Profile => profile = Some(value.clone()),
        }
    }
    if key.columns.is_empty()
        && let Some(name) = key.options.keys().next()
    {
        return Err(invalid(format!("the option '{name}' is for tables with a key; give 'key' as well")));
    }
    Ok(Options { opening, profile, key })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<Options> {
        table_options(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn known_options_are_taken() {
        let taken = options(&[("lakemark.store", "/ssd/t"), ("lakemark.storage.aws_region", "x")]).unwrap().opening;
        assert_eq!(taken.store.as_deref(), Some("/ssd/t"));
        assert_eq!(taken.storage.options.get("aws_region"), Some("x"));
        assert_eq!(options(&[("format.store", "/a")]).unwrap().opening.store.as_deref(), Some("/a"));
    }

    #[test]
    fn a_version_is_a_number() {
        assert_eq!(options(&[("format.version", "12")]).unwrap().opening.version, Some(12));
        let error = options(&[("version", "latest")]).unwrap_err();
        assert!(error.message().contains("\"latest\"; give the number of a version"), "{error}");
    }

    #[test]
    fn staleness_is_a_time() {
        let taken = options(&[("format.max_staleness", "30s")]).unwrap().opening;
        assert_eq!(taken.max_staleness, std::time::Duration::from_secs(30));
        let error = options(&[("max_staleness", "soon")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("\"soon\"; give a number with ms, s, m or h"), "{error}");
    }

    #[test]
    fn an_unknown_option_is_an_error_that_lists_the_known() {
        let error = options(&[("lakemark.stor", "/a")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("'lakemark.store'"), "{error}");
    }

    #[test]
    fn a_key_has_columns_and_options() {
        let taken = options(&[("format.key", "a, b"), ("lakemark.alpha", "2")]).unwrap().key;
        assert_eq!(
            (taken.columns, taken.options.get("alpha").map(String::as_str)),
            (vec!["a".into(), "b".into()], Some("2"))
        );
        let error = options(&[("alpha", "2")]).unwrap_err();
        assert!(error.message().contains("give 'key' as well"), "{error}");
    }
}

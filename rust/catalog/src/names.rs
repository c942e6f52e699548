//! What stands for a table where somebody writes its path: a name of the configuration or of a catalog, or the path itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::{Error, ErrorKind, Result, StorageAccess, TableNames, TableOptions, TablePlace};

use crate::config::{Config, NamedTable, ProfileName, WrittenStore};
use crate::find;
use crate::unity;
use crate::unity::name::{SCHEME, UnityName};
use crate::value::Value;

/// The names of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Names {
    config: Arc<Config>,
}

impl Names {
    /// Those of the files that are in force for this process. They are read anew each time.
    ///
    /// # Errors
    /// A file cannot be read or understood; the message names it, and the line.
    pub fn load() -> Result<Self> {
        Ok(Self::of(Config::of(find::documents()?)?))
    }

    /// Those of a configuration.
    #[must_use]
    pub fn of(config: Config) -> Self {
        Self { config: Arc::new(config) }
    }

    /// What the files say.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    async fn place(&self, written: &str, profile: Option<&str>, typed: TableOptions) -> Result<TablePlace> {
        let config = &self.config;
        let named = config.tables.get(written);
        if named.is_none() {
            self.check_path(written)?;
        }
        let mut location = named.map_or(written, |table| table.path.as_str()).to_owned();
        let (mut catalog, mut credentials) = (None, None);
        if let Some(name) = UnityName::of(&location)? {
            // Where the store is elsewhere, nobody writes beside the data.
            let has_store = typed.store.is_some() || named.is_some_and(|table| table.store.is_some());
            let found = unity::find(config, &name, !has_store).await?;
            catalog = config.catalogs.get(&name.catalog);
            (location, credentials) = (found.location, found.credentials);
        }
        let of_table = named.and_then(|table| ProfileName::written(table.profile.as_deref(), &table.place));
        let of_catalog = catalog.and_then(|all| ProfileName::written(all.profile.as_deref(), &all.place));
        let own = [catalog.map(|all| &all.storage), named.map(|table| &table.storage)];
        let own: Vec<&BTreeMap<String, Value>> = own.into_iter().flatten().collect();
        let storage = config.storage(&location, ProfileName::typed(profile).or(of_table).or(of_catalog), &own)?;
        let mut options = self.with_store(named, typed)?;
        options.storage.options = options.storage.options.over(storage);
        if options.max_staleness.is_zero() {
            options.max_staleness = named.and_then(|table| table.max_staleness).unwrap_or_default();
        }
        // Keys that somebody wrote count over those that a catalog gives.
        if let Some(credentials) = credentials.filter(|_| !options.storage.options.has_credentials()) {
            if options.store.is_some() && options.store_storage.is_none() {
                options.store_storage = Some(options.storage.clone());
            }
            options.storage.credentials.get_or_insert(credentials);
        }
        Ok(TablePlace { location, options })
    }

    /// The options with the place of the store, and how it is reached if that is not as the data are.
    fn with_store(&self, named: Option<&NamedTable>, mut typed: TableOptions) -> Result<TableOptions> {
        let config = &self.config;
        let store = match (typed.store.take(), named.and_then(|table| table.store.as_ref())) {
            (Some(typed), _) => WrittenStore { located: typed.clone(), written: typed },
            (None, Some(store)) => store.clone(),
            (None, None) => return Ok(typed),
        };
        let WrittenStore { written, located } = store;
        let (path, storage) = match config.store(&written) {
            Some((store, path)) => {
                let profile = ProfileName::written(store.profile.as_deref(), &store.place);
                let storage = config.storage(&path, profile, &[&store.storage])?;
                (path, Some(storage))
            }
            // A place of its own has credentials of its own, if a profile says so.
            None if config.profile_for(&located).is_some() => {
                let storage = config.storage(&located, None, &[])?;
                (located, Some(storage))
            }
            None => (located, None),
        };
        let is_remote = path.contains("://") && !path.starts_with("file:");
        if let Some(storage) = storage.filter(|_| is_remote) {
            typed.store_storage = Some(StorageAccess::of(typed.storage.options.clone().over(storage)));
        }
        typed.store = Some(path);
        Ok(typed)
    }

    /// Refuses a name that is none, where names are known and no such path is there.
    fn check_path(&self, written: &str) -> Result<()> {
        let is_path = written.contains(['/', '\\', ':', '*', '?', '[', '.']) || Path::new(written).exists();
        let known = self.config.table_names();
        if is_path || known.is_empty() || written.trim().is_empty() {
            return Ok(());
        }
        let text = format!("there is no table {written}: no such path, and lakemark.toml has {}", known.join(", "));
        Err(Error::new(ErrorKind::NotFound, text))
    }
}

impl TableNames for Names {
    fn listed(&self) -> Vec<String> {
        self.config.table_names()
    }

    fn catalogs(&self) -> Vec<String> {
        self.config.catalog_names()
    }

    fn in_catalog(&self, catalog: &str, schema: &str, table: &str) -> String {
        format!("{SCHEME}{catalog}.{schema}.{table}")
    }

    fn resolve<'a>(
        &'a self,
        written: &'a str,
        profile: Option<&'a str>,
        typed: TableOptions,
    ) -> BoxFuture<'a, Result<TablePlace>> {
        self.place(written, profile, typed).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::document::Document;
    use crate::unity::stub::Stub;

    fn names(text: &str) -> Names {
        Names::of(Config::of([Document::new("lakemark.toml", text)]).unwrap())
    }

    fn typed(options: &[(&str, &str)]) -> TableOptions {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        TableOptions { storage: StorageAccess::of(options), ..TableOptions::default() }
    }

    const TEXT: &str = "[tables]\ntrips = 's3://lake/trips'\n\
        [tables.orders]\npath = 's3://lake/orders'\nstore = 'index/orders'\nprofile = 'lake'\nmax_staleness = '5s'\n\
        storage = { aws_region = 'table' }\n\
        [tables.lost]\npath = 's3://lake/lost'\nprofile = 'nobody'\n\
        [stores.index]\npath = 's3://index'\nprofile = 'index'\n\
        [profiles.lake]\naws_region = 'lake'\naws_access_key_id = 'l'\n\
        [profiles.index]\naws_region = 'index'\n\
        [profiles.scoped]\nscope = 's3://scoped/'\naws_region = 'scoped'\n";

    #[tokio::test]
    async fn a_name_stands_for_the_path_store_profile_and_options_of_its_table() {
        let found = names(TEXT).resolve("orders", None, TableOptions::default()).await.unwrap();
        assert_eq!(
            (found.location.as_str(), found.options.max_staleness),
            ("s3://lake/orders", Duration::from_secs(5))
        );
        assert_eq!(found.options.store.as_deref(), Some("s3://index/orders"));
        let region = |access: &StorageAccess| access.options.get("aws_region").map(str::to_owned);
        assert_eq!(region(&found.options.storage).as_deref(), Some("table"));
        assert_eq!(found.options.storage.options.get("aws_access_key_id"), Some("l"));
        let of_store = found.options.store_storage.unwrap();
        assert_eq!(region(&of_store).as_deref(), Some("index"));
        assert_eq!(of_store.options.get("aws_access_key_id"), None);
    }

    #[tokio::test]
    async fn what_is_typed_counts_over_what_is_written() {
        let given = TableOptions { store: Some("/ssd".to_owned()), ..typed(&[("aws_region", "typed")]) };
        let found = names(TEXT).resolve("orders", Some("index"), given).await.unwrap();
        assert_eq!(found.options.storage.options.get("aws_region"), Some("typed"));
        assert_eq!(found.options.storage.options.get("aws_access_key_id"), None);
        assert_eq!((found.options.store.as_deref(), found.options.store_storage.is_none()), (Some("/ssd"), true));
    }

    #[tokio::test]
    async fn a_path_stands_for_itself_and_takes_the_profile_of_its_scope() {
        let names = names(TEXT);
        let found = names.resolve("s3://scoped/t", None, TableOptions::default()).await.unwrap();
        assert_eq!(
            (found.location.as_str(), found.options.storage.options.get("aws_region")),
            ("s3://scoped/t", Some("scoped"))
        );
        let given = TableOptions { store: Some("s3://scoped/i".to_owned()), ..TableOptions::default() };
        let found = names.resolve("/data/t", None, given).await.unwrap();
        assert!(found.options.storage.options.is_empty());
        assert_eq!(found.options.store_storage.unwrap().options.get("aws_region"), Some("scoped"));
        let local = names.resolve("./trips", None, TableOptions::default()).await.unwrap();
        assert_eq!(local.location, "./trips");
    }

    #[tokio::test]
    async fn names_and_profiles_that_are_not_there_are_refused_with_those_that_are() {
        let names = names(TEXT);
        let error = names.resolve("tripps", None, TableOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().ends_with("lakemark.toml has lost, orders, trips"), "{error}");
        let error = names.resolve("lost", None, TableOptions::default()).await.unwrap_err().to_string();
        assert!(error.starts_with("lakemark.toml:9: there is no profile nobody"), "{error}");
        // Without names a path that is not there is what the table says it is.
        assert!(Names::default().resolve("tripps", None, TableOptions::default()).await.is_ok());
    }

    /// A catalog with one table at a place, and a file that names both.
    fn of_catalog(location: &str, more: &str) -> (Stub, Names) {
        let table = format!("{{\"table_id\":\"7\",\"storage_location\":\"{location}\"}}");
        let stub = Stub::new(&[(200, &table)]);
        let text = format!(
            "[catalogs.main]\nuri = '{}'\nstorage = {{ aws_region = 'catalog' }}\n\
             [tables]\ntrips = 'uc://main.sales.trips'\n{more}",
            stub.url
        );
        let names = names(&text);
        (stub, names)
    }

    #[tokio::test]
    async fn a_table_of_a_catalog_is_where_the_catalog_says_with_its_credentials() {
        let (stub, names) = of_catalog("s3://lake/trips", "");
        for written in ["trips", &names.in_catalog("main", "sales", "trips")] {
            let found = names.resolve(written, None, TableOptions::default()).await.unwrap();
            assert_eq!(found.location, "s3://lake/trips");
            let TableOptions { storage, store_storage, .. } = found.options;
            assert_eq!(storage.options.get("aws_region"), Some("catalog"));
            assert!(storage.credentials.is_some() && store_storage.is_none());
        }
        // Nobody asks for credentials before a request needs them.
        assert_eq!(stub.requests().len(), 2);
        let given = TableOptions { store: Some("s3://index/trips".to_owned()), ..TableOptions::default() };
        let found = names.resolve("trips", None, given).await.unwrap();
        let of_store = found.options.store_storage.unwrap();
        assert!(found.options.storage.credentials.is_some() && of_store.credentials.is_none());
        assert_eq!(of_store.options.get("aws_region"), Some("catalog"));
    }

    #[tokio::test]
    async fn keys_of_a_profile_count_over_those_of_a_catalog_and_files_need_none() {
        let profile = "[profiles.lake]\nscope = 's3://lake/'\naws_region = 'lake'\naws_access_key_id = 'k'\n";
        let (_stub, names) = of_catalog("s3://lake/trips", profile);
        let found = names.resolve("trips", None, TableOptions::default()).await.unwrap().options.storage;
        assert!(found.credentials.is_none());
        assert_eq!(
            (found.options.get("aws_access_key_id"), found.options.get("aws_region")),
            (Some("k"), Some("catalog"))
        );
        let (_stub, names) = of_catalog("file:///lake/trips", "");
        let found = names.resolve("trips", None, TableOptions::default()).await.unwrap();
        assert_eq!(
            (found.location.as_str(), found.options.storage.credentials.is_none()),
            ("file:///lake/trips", true)
        );
    }
}

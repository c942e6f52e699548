//! What stands for a table where somebody writes its path: a name of the configuration, or the path itself.

use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::{Error, ErrorKind, Result, StorageAccess, TableNames, TableOptions, TablePlace};

use crate::config::{Config, NamedTable, ProfileName, WrittenStore};
use crate::find;

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

    fn place(&self, written: &str, profile: Option<&str>, typed: TableOptions) -> Result<TablePlace> {
        let config = &self.config;
        let named = config.tables.get(written);
        if named.is_none() {
            self.check_path(written)?;
        }
        let location = named.map_or(written, |table| table.path.as_str()).to_owned();
        let written = named.and_then(|table| ProfileName::written(table.profile.as_deref(), &table.place));
        let profile = ProfileName::typed(profile).or(written);
        let storage = config.storage(&location, profile, named.map(|table| &table.storage))?;
        let mut options = self.with_store(named, typed)?;
        options.storage.options = options.storage.options.over(storage);
        if options.max_staleness.is_zero() {
            options.max_staleness = named.and_then(|table| table.max_staleness).unwrap_or_default();
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
                let storage = config.storage(&path, profile, Some(&store.storage))?;
                (path, Some(storage))
            }
            // A place of its own has credentials of its own, if a profile says so.
            None if config.profile_for(&located).is_some() => {
                let storage = config.storage(&located, None, None)?;
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

    fn resolve<'a>(
        &'a self,
        written: &'a str,
        profile: Option<&'a str>,
        typed: TableOptions,
    ) -> BoxFuture<'a, Result<TablePlace>> {
        async move { self.place(written, profile, typed) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::document::Document;

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
}

//! The tables that handles of this process have open, or had until lately. Whoever opens one of them again begins with what is remembered.
//!
//! ```text
//! open     ─▶ a handle of the same table that is open, or was ─▶ what it found when it looked last
//! snapshot ─▶ the same looks as of a handle that stays open   ─▶ what changed since
//! ```
//!
//! What was found with one set of credentials serves nobody who has others: the key has all that decides what a handle may see.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use url::Url;

use super::table_cache::TableCache;
use crate::options::TableOptions;
use crate::storage::cache::Cache;
use crate::storage::location::{FileSet, Location, StorageSettings, StorePlace};
use crate::table_format::TableFormat;

/// Bytes that are kept of tables whose handles were closed.
const CLOSED_BYTES: u64 = 64 * 1024 * 1024;

/// What each handle of a table remembers.
type OpenHandles = HashMap<TableKey, Vec<Weak<TableCache>>>;

/// What handles remember whose tables are open.
static OPEN: LazyLock<Mutex<OpenHandles>> = LazyLock::new(Mutex::default);

/// What handles remembered that were closed, where no handle that is open has looked since.
static CLOSED: LazyLock<Cache<TableKey, Arc<TableCache>>> = LazyLock::new(|| Cache::new(CLOSED_BYTES));

/// A table and its store, with all that decides what a handle sees of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct TableKey {
    root: Url,
    shape: FileSet,
    format: TableFormat,
    store: Option<String>,
    /// Credentials among them, so that they are never shown.
    settings: [StorageSettings; 2],
}

impl TableKey {
    /// The key of a table whose files are reached so. None if another handle cannot see the same: each has its own storage in memory.
    pub(crate) fn of(
        location: &Location,
        format: TableFormat,
        store: Option<&StorePlace>,
        options: &TableOptions,
    ) -> Option<Self> {
        let access = options.access_of_store();
        let of_store = store.map_or_else(|| Some(StorageSettings::default()), |store| store.settings(access));
        let settings = [location.settings(&options.storage)?, of_store?];
        Some(Self {
            root: location.root.clone(),
            shape: location.shape.clone(),
            format,
            store: store.map(|store| store.text.clone()),
            settings,
        })
    }
}

/// A table that a handle has open.
pub(super) struct OpenTable {
    key: TableKey,
    cache: Arc<TableCache>,
}

impl OpenTable {
    /// From now on others find what the handle remembers.
    pub(super) fn new(key: TableKey, cache: &Arc<TableCache>) -> Self {
        open_tables().entry(key.clone()).or_default().push(Arc::downgrade(cache));
        Self { key, cache: Arc::clone(cache) }
    }
}

impl Drop for OpenTable {
    fn drop(&mut self) {
        let others: Vec<Arc<TableCache>> = {
            let mut open = open_tables();
            let Some(handles) = open.get_mut(&self.key) else { return };
            handles.retain(|handle| !std::ptr::eq(handle.as_ptr(), Arc::as_ptr(&self.cache)));
            let others = handles.iter().filter_map(Weak::upgrade).collect();
            if handles.is_empty() {
                open.remove(&self.key);
            }
            others
        };
        // Whoever opens the table next sees nothing older than what this handle has seen.
        let newest = others.into_iter().chain(CLOSED.get(&self.key)).map(|cache| cache.last_look()).max().flatten();
        if self.cache.last_look() > newest
            && let Ok(closed) = self.cache.closed()
        {
            let bytes = closed.bytes();
            CLOSED.insert(self.key.clone(), Arc::new(closed), bytes);
        }
    }
}

impl fmt::Debug for OpenTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTable").field("root", &self.key.root.as_str()).finish_non_exhaustive()
    }
}

/// What the handle of this table remembers that looked last.
pub(super) fn known(key: &TableKey) -> Option<Arc<TableCache>> {
    let open: Vec<Arc<TableCache>> = open_tables().get(key).into_iter().flatten().filter_map(Weak::upgrade).collect();
    let caches = open.into_iter().chain(CLOSED.get(key)).filter(|cache| cache.last_look().is_some());
    caches.max_by_key(|cache| cache.last_look())
}

fn open_tables() -> MutexGuard<'static, OpenHandles> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use object_store::ObjectStore;

    use super::*;
    use crate::error::{Error, Result};
    use crate::storage::access::StorageAccess;
    use crate::storage::credentials::{CredentialSource, TemporaryCredential};
    use crate::storage::secret::Secret;

    async fn key(
        address: &str,
        store: Option<&str>,
        options: &[(&str, &str)],
        format: TableFormat,
    ) -> Option<TableKey> {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        keyed(address, store, TableOptions { storage: StorageAccess::of(options), ..TableOptions::default() }, format)
            .await
    }

    async fn keyed(address: &str, store: Option<&str>, options: TableOptions, format: TableFormat) -> Option<TableKey> {
        let layer = |store: Arc<dyn ObjectStore>| store;
        let location = Location::parse(address, &options.storage, &layer).await.unwrap();
        let place = location.locate_store(store, options.access_of_store(), &layer).unwrap();
        TableKey::of(&location, format, place.as_ref(), &options)
    }

    /// A source of credentials that is never asked.
    #[derive(Debug)]
    struct Of(&'static str);

    impl CredentialSource for Of {
        fn identity(&self) -> Secret {
            Secret::new(self.0)
        }

        fn renew(&self) -> BoxFuture<'_, Result<TemporaryCredential>> {
            Box::pin(async { Err(Error::io("nobody gives any")) })
        }
    }

    fn given_by(source: &'static str, of_store: Option<&'static str>) -> TableOptions {
        let by = |source| StorageAccess { credentials: Some(Arc::new(Of(source))), ..StorageAccess::default() };
        TableOptions { storage: by(source), store_storage: of_store.map(by), ..TableOptions::default() }
    }

    #[tokio::test]
    async fn handles_share_if_the_same_source_gives_their_credentials() {
        let of = |options| keyed("s3://b/t", None, options, TableFormat::Parquet);
        let first = of(given_by("one", None)).await.unwrap();
        assert!(of(given_by("one", None)).await.unwrap() == first);
        assert!(of(given_by("two", None)).await.unwrap() != first);
        assert!(of(TableOptions::default()).await.unwrap() != first);
        let elsewhere = |options| keyed("s3://b/t", Some("s3://i/s"), options, TableFormat::Parquet);
        let same = elsewhere(given_by("one", None)).await.unwrap();
        assert!(elsewhere(given_by("one", Some("one"))).await.unwrap() == same);
        assert!(elsewhere(given_by("one", Some("two"))).await.unwrap() != same);
    }

    #[tokio::test]
    async fn handles_with_other_credentials_another_store_or_format_have_another_key() {
        let given = [("aws_access_key_id", "one"), ("aws_secret_access_key", "s")];
        let first = key("s3://b/t", None, &given, TableFormat::Parquet).await.unwrap();
        assert!(key("s3://b/t", None, &given, TableFormat::Parquet).await.unwrap() == first);
        let others = [
            key("s3://b/t", None, &[("aws_access_key_id", "two"), given[1]], TableFormat::Parquet).await,
            key("s3://b/t", None, &[given[0], given[1], ("aws_session_token", "t")], TableFormat::Parquet).await,
            key("s3://b/t", Some("s3://b/s"), &given, TableFormat::Parquet).await,
            key("s3://b/t", None, &given, TableFormat::Delta).await,
            key("s3://b/u", None, &given, TableFormat::Parquet).await,
            key("s3://b/t/*.parquet", None, &given, TableFormat::Parquet).await,
        ];
        assert!(others.into_iter().all(|other| other.unwrap() != first));
    }

    #[tokio::test]
    async fn what_is_in_the_memory_of_one_handle_has_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let local = folder.path().to_str().unwrap();
        assert!(key("memory:///t", None, &[], TableFormat::Parquet).await.is_none());
        assert!(key(local, Some("memory:///s"), &[], TableFormat::Parquet).await.is_none());
        assert!(key(local, None, &[], TableFormat::Parquet).await.is_some());
    }
}

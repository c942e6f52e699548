//! The locks of writers, of merges and of migrations.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::errors::not_local;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::disk;
use crate::store::Store;
use crate::store::locks::FileLock;

/// Does something with a file of the store that blocks.
async fn with_file<T: Send + 'static>(
    store: &Store,
    file: &str,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>> {
    let Some(path) = store.local_path(file) else { return Err(not_local(store)) };
    disk::on_a_thread(move || work(&path)).await.map_err(|error| Error::task(&error))
}

/// The lock of writers.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _held: FileLock,
}

impl WriterLock {
    /// Waits for the lock.
    pub(crate) async fn take(store: &Store) -> Result<Self> {
        Self::with(store, FileLock::take).await.map(|held| Self { _held: held })
    }

    /// The lock, unless somebody writes.
    pub(crate) async fn try_take(store: &Store) -> Result<Option<Self>> {
        Ok(Self::with(store, FileLock::try_take).await?.map(|held| Self { _held: held }))
    }

    async fn with<T: Send + 'static>(store: &Store, take: fn(&Path) -> io::Result<T>) -> Result<T> {
        let taken = with_file(store, "updates/lock", move |path| {
            path.parent().map_or(Ok(()), disk::make_folder)?;
            take(path)
        });
        taken.await?.map_err(|error| {
            Error::io(format!(
                "the lock of writers in {} cannot be taken (disk full, or no permission?); mend that, and try again",
                store.text()
            ))
            .with_source(error)
        })
    }
}

/// The lock of merges: whoever has it writes a run that is merged of others, while writers go on. It is taken before that of writers.
#[derive(Debug)]
pub(crate) struct MergeLock {
    _held: FileLock,
}

impl MergeLock {
    /// The lock, unless somebody merges.
    pub(crate) async fn try_take(store: &Store) -> Result<Option<Self>> {
        let taken = with_file(store, "updates/merge.lock", FileLock::try_take).await?;
        let held = taken.map_err(|error| {
            Error::io(format!("the lock of merges in {} cannot be taken (no permission?)", store.text()))
                .with_source(error)
        })?;
        Ok(held.map(|held| Self { _held: held }))
    }
}

/// The lock of migrations: only one runs at a time. Whatever the migration has begun that may still take effect has a clone, also if the
/// caller goes away. Where the lock is free, nothing of a migration comes any more.
#[derive(Clone, Debug)]
pub(crate) struct MigrationLock {
    held: Arc<FileLock>,
}

impl MigrationLock {
    pub(super) async fn take(store: &Store) -> Result<Self> {
        let busy = || Error::new(ErrorKind::Conflict, "another migration of the table is running; let it finish");
        Self::try_take(store).await?.ok_or_else(busy)
    }

    /// The lock itself.
    pub(super) fn guard(&self) -> Arc<FileLock> {
        Arc::clone(&self.held)
    }

    /// The lock, unless a migration is running.
    pub(crate) async fn try_take(store: &Store) -> Result<Option<Self>> {
        match with_file(store, "updates/migration.lock", FileLock::try_take).await? {
            Ok(held) => Ok(held.map(|held| Self { held: Arc::new(held) })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::invalid("the table has no key and so nothing buffered: there is nothing to migrate"))
            }
            Err(error) => Err(Error::io("the lock of migrations cannot be taken (no permission?)").with_source(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Table, TableOptions};

    /// A child that is forked has the same open file, as a clone of it has.
    #[tokio::test]
    async fn a_lock_is_let_go_though_somebody_has_its_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::open_alone(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
        let store = table.base().writable_store().unwrap();
        let writer = WriterLock::take(store).await.unwrap();
        let of_child = writer._held.file().try_clone().unwrap();
        drop(writer);
        assert!(WriterLock::try_take(store).await.unwrap().is_some());
        drop(of_child);
        let migration = MigrationLock::take(store).await.unwrap();
        let of_child = migration.held.file().try_clone().unwrap();
        drop(migration);
        assert!(MigrationLock::try_take(store).await.unwrap().is_some());
        drop(of_child);
    }
}

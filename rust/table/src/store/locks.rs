//! The locks of a local store. They are of the operating system, and die with their process.
//!
//! Writers of changes and migrations have theirs ([`updates`](crate::updates)). Builds and compactions share one. No manifest names what
//! they wrote until they commit, and a vacuum that removes it must have the lock alone.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::storage::disk;
use crate::storage::local::open_with;
use crate::store::Store;

/// The name of the lock of builds in the store.
const BUILDS: &str = "build.lock";

/// The lock of a file, held as long as this lives.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the file open as well, and would keep the lock.
        drop(self.0.unlock());
    }
}

impl FileLock {
    fn open(path: &Path) -> io::Result<File> {
        open_with(File::options().create(true).truncate(false).write(true), path).map(|opened| opened.file)
    }

    /// Waits for the lock.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        disk::lock(&file, path).map(|()| Self(file))
    }

    /// Waits until nobody has the lock alone, and shares it.
    fn share(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        disk::lock_shared(&file, path).map(|()| Self(file))
    }

    /// The lock, unless somebody has it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = Self::open(path)?;
        match disk::try_lock(&file, path) {
            Ok(()) => Ok(Some(Self(file))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file that is locked is still the one of this path: whoever had the lock before may have removed it.
    pub(crate) fn is_of(&self, path: &Path) -> bool {
        let same = |(own, there): (Metadata, Metadata)| (own.dev(), own.ino()) == (there.dev(), there.ino());
        self.0.metadata().ok().zip(std::fs::metadata(path).ok()).is_some_and(same)
    }

    /// Writes into the file who has the lock. Nobody needs that after a crash, so that it is no step of the disk.
    pub(crate) fn sign(&self, holder: &[u8]) -> io::Result<()> {
        (&self.0).write_all(holder)
    }

    /// The file that is locked.
    #[cfg(test)]
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

/// Does something as a task of its own, which goes on if its caller goes away, and holds a lock until it is done.
pub(crate) async fn holding<T: Send + 'static>(
    lock: impl Send + 'static,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(async move {
        let _lock = lock;
        work.await
    });
    done.await.map_err(|error| Error::task(&error))
}

/// The lock of builds. There is none on object stores: there the age of segments has to do.
#[derive(Debug)]
pub(crate) struct BuildLock {
    _held: Option<FileLock>,
}

impl BuildLock {
    /// Shares the lock with other builds; waits until no vacuum has it.
    pub(crate) async fn share(store: &Store) -> Result<Self> {
        let Some(path) = store.local_path(BUILDS) else { return Ok(Self { _held: None }) };
        let taken = disk::on_a_thread(move || {
            path.parent().map_or(Ok(()), disk::make_folder)?;
            FileLock::share(&path)
        });
        let held = taken.await.map_err(|error| Error::task(&error))?.map_err(|error| untaken(store, error))?;
        Ok(Self { _held: Some(held) })
    }

    /// The lock for oneself, unless somebody builds.
    pub(crate) async fn try_take(store: &Store) -> Result<Option<Self>> {
        let Some(path) = store.local_path(BUILDS) else { return Ok(Some(Self { _held: None })) };
        let taken = disk::on_a_thread(move || FileLock::try_take(&path));
        match taken.await.map_err(|error| Error::task(&error))? {
            Ok(held) => Ok(held.map(|held| Self { _held: Some(held) })),
            // There is no store yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Self { _held: None })),
            Err(error) => Err(untaken(store, error)),
        }
    }
}

fn untaken(store: &Store, error: io::Error) -> Error {
    Error::io(format!(
        "the lock of builds in {} cannot be taken (disk full, no permission, or a file system without locks?); mend that, and try again",
        store.text()
    ))
    .with_source(error)
}

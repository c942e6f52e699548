//! Changing files of the local file system. Every write, sync, rename, link and removal of ours is a step that goes through here. So tests
//! can end the process at it, let it fail, and find out what a power cut would leave behind.

#[cfg(feature = "failpoints")]
pub mod faults;
#[cfg(feature = "failpoints")]
pub mod gate;

use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::Path;

use tokio::task::JoinHandle;

use crate::storage::failpoint::reach;

/// What is about to be done.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "failpoints"), expect(dead_code, reason = "only tests look at steps"))]
pub(crate) enum DiskStep<'a> {
    MakeFolder(&'a Path),
    Create(&'a Path),
    Write {
        path: &'a Path,
        at: u64,
        bytes: &'a [u8],
    },
    Cut {
        path: &'a Path,
        length: u64,
    },
    Sync(&'a Path),
    Rename {
        from: &'a Path,
        to: &'a Path,
    },
    Link {
        from: &'a Path,
        to: &'a Path,
    },
    Remove(&'a Path),
    SyncFolder(&'a Path),
    /// A file that somebody else wrote for us, whole and not synced.
    Stored(&'a Path),
    /// A file is read that others may be writing to.
    Read(&'a Path),
    /// A lock is taken as soon as it is free.
    Lock(&'a Path),
    /// The same, to share it.
    LockShared(&'a Path),
    /// A lock is taken if it is free now.
    TryLock(&'a Path),
}

/// Fails if a test lets the step fail.
#[cfg(feature = "failpoints")]
pub(crate) fn attempt(step: DiskStep<'_>) -> Result<()> {
    gate::before(step)?;
    faults::attempt(step)
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "tests let it fail")]
pub(crate) fn attempt(_step: DiskStep<'_>) -> Result<()> {
    Ok(())
}

/// Fails if a test lets a step fail after it was made, as a network may answer.
#[cfg(feature = "failpoints")]
fn settle(step: DiskStep<'_>) -> Result<()> {
    if matches!(step, DiskStep::Link { .. }) {
        faults::answer(step)?;
    }
    gate::after(step)
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "tests let it fail")]
fn settle(_step: DiskStep<'_>) -> Result<()> {
    Ok(())
}

/// Work that blocks, on a thread of its own. Under a test that chooses who goes next the work is done before this returns: there an actor
/// does one thing after the other.
pub(crate) fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    #[cfg(feature = "failpoints")]
    if gate::is_here() {
        let done = tokio::task::block_in_place(work);
        return tokio::spawn(async move { done });
    }
    tokio::task::spawn_blocking(work)
}

/// Waits for the lock of a file.
pub(crate) fn lock(file: &File, path: &Path) -> Result<()> {
    attempt(DiskStep::Lock(path))?;
    file.lock()
}

/// Waits until nobody has the lock of a file alone, and shares it.
pub(crate) fn lock_shared(file: &File, path: &Path) -> Result<()> {
    attempt(DiskStep::LockShared(path))?;
    file.lock_shared()
}

/// Takes the lock of a file, or fails (`WouldBlock`).
pub(crate) fn try_lock(file: &File, path: &Path) -> Result<()> {
    attempt(DiskStep::TryLock(path))?;
    file.try_lock().map_err(std::io::Error::from)
}

/// Says that somebody is going to try once more to take a lock that others have. Tests that choose who goes next go on with these.
pub(crate) fn before_retry(path: &Path) -> Result<()> {
    attempt(DiskStep::Lock(path))
}

/// Creates a folder, and those above it, so that it survives a crash: its name is synced in its parent, and that of its parent.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), make_folder)?;
    attempt(DiskStep::MakeFolder(folder))?;
    fs::create_dir_all(folder)?;
    reach("folder-made");
    folder.ancestors().skip(1).take(2).filter(|parent| parent.is_dir()).try_for_each(sync_folder)
}

/// A new file, to be read and written.
pub(crate) fn create(path: &Path) -> Result<File> {
    attempt(DiskStep::Create(path))?;
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    reach("created");
    Ok(file)
}

/// Writes bytes where the file stands, which is at the offset `at`.
pub(crate) fn write(mut file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    reach("write");
    if let Err(error) = attempt(DiskStep::Write { path, at, bytes }) {
        // A full disk takes what it has room for.
        if is_there() {
            file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
        }
        return Err(error);
    }
    #[cfg(feature = "failpoints")]
    let bytes = {
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(first)?;
        reach("half-written");
        gate::between(path)?;
        rest
    };
    file.write_all(bytes)?;
    reach("written");
    Ok(())
}

/// Whether the writer lives: a test may have stopped it.
fn is_there() -> bool {
    #[cfg(feature = "failpoints")]
    return !gate::is_gone();
    #[cfg(not(feature = "failpoints"))]
    true
}

/// Cuts a file off.
pub(crate) fn cut(file: &File, path: &Path, length: u64) -> Result<()> {
    reach("cut");
    attempt(DiskStep::Cut { path, length })?;
    file.set_len(length)?;
    reach("cut-off");
    settle(DiskStep::Cut { path, length })
}

/// Sees to it that a file survives a crash, but for its name.
pub(crate) fn sync(file: &File, path: &Path) -> Result<()> {
    reach("sync");
    attempt(DiskStep::Sync(path))?;
    file.sync_all()?;
    reach("synced");
    settle(DiskStep::Sync(path))
}

/// [`sync`] for a file of which nobody needs to know when it was changed.
pub(crate) fn sync_bytes(file: &File, path: &Path) -> Result<()> {
    reach("bytes-sync");
    attempt(DiskStep::Sync(path))?;
    file.sync_data()?;
    reach("bytes-synced");
    settle(DiskStep::Sync(path))
}

/// Gives a file another name.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    reach("rename");
    attempt(DiskStep::Rename { from, to })?;
    fs::rename(from, to)?;
    reach("renamed");
    settle(DiskStep::Rename { from, to })
}

/// Gives a file one more name, if that is free.
pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    reach("link");
    attempt(DiskStep::Link { from, to })?;
    fs::hard_link(from, to)?;
    reach("linked");
    settle(DiskStep::Link { from, to })
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<()> {
    reach("remove");
    attempt(DiskStep::Remove(path))?;
    fs::remove_file(path)?;
    reach("removed");
    settle(DiskStep::Remove(path))
}

/// Makes the names in a folder survive a crash.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    reach("folder-sync");
    attempt(DiskStep::SyncFolder(folder))?;
    File::open(folder)?.sync_all()?;
    reach("folder-synced");
    settle(DiskStep::SyncFolder(folder))
}

//! Changing files of the local file system: every write, sync, rename, link and removal of ours is a step that goes through here, so
//! that tests can end the process at it, let it fail, and tell what a power cut would leave behind.

#[cfg(feature = "failpoints")]
pub mod faults;

use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::Path;

use crate::failpoint::reach;

/// What is about to be done.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "failpoints"), expect(dead_code, reason = "only tests look at steps"))]
pub(crate) enum Step<'a> {
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
}

/// Fails if a test wants the step to.
#[cfg(feature = "failpoints")]
pub(crate) fn attempt(step: Step<'_>) -> Result<()> {
    faults::attempt(step)
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "tests let it fail")]
pub(crate) fn attempt(_step: Step<'_>) -> Result<()> {
    Ok(())
}

/// Fails if a test wants a step that was made to be answered with an error, as a network may.
#[cfg(feature = "failpoints")]
fn answer(step: Step<'_>) -> Result<()> {
    faults::answer(step)
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unnecessary_wraps, reason = "tests let it fail")]
fn answer(_step: Step<'_>) -> Result<()> {
    Ok(())
}

/// Creates a folder, and those above it, so that it survives a crash: its name is synced in its parent, and that of its parent.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), make_folder)?;
    attempt(Step::MakeFolder(folder))?;
    fs::create_dir_all(folder)?;
    reach("folder-made");
    folder.ancestors().skip(1).take(2).filter(|parent| parent.is_dir()).try_for_each(sync_folder)
}

/// A new file, to be read and written.
pub(crate) fn create(path: &Path) -> Result<File> {
    attempt(Step::Create(path))?;
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    reach("created");
    Ok(file)
}

/// Writes bytes where the file stands, which is at the offset `at`.
pub(crate) fn write(mut file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    reach("write");
    if let Err(error) = attempt(Step::Write { path, at, bytes }) {
        // A full disk takes what it has room for.
        file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
        return Err(error);
    }
    #[cfg(feature = "failpoints")]
    let bytes = {
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(first)?;
        reach("half-written");
        rest
    };
    file.write_all(bytes)?;
    reach("written");
    Ok(())
}

/// Cuts a file off.
pub(crate) fn cut(file: &File, path: &Path, length: u64) -> Result<()> {
    reach("cut");
    attempt(Step::Cut { path, length })?;
    file.set_len(length)?;
    reach("cut-off");
    Ok(())
}

/// Sees to it that a file survives a crash, but for its name.
pub(crate) fn sync(file: &File, path: &Path) -> Result<()> {
    reach("sync");
    attempt(Step::Sync(path))?;
    file.sync_all()?;
    reach("synced");
    Ok(())
}

/// [`sync`] for a file of which nobody needs to know when it was changed.
pub(crate) fn sync_bytes(file: &File, path: &Path) -> Result<()> {
    reach("bytes-sync");
    attempt(Step::Sync(path))?;
    file.sync_data()?;
    reach("bytes-synced");
    Ok(())
}

/// Gives a file another name.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    reach("rename");
    attempt(Step::Rename { from, to })?;
    fs::rename(from, to)?;
    reach("renamed");
    Ok(())
}

/// Gives a file one more name, if that is free.
pub(crate) fn link(from: &Path, to: &Path) -> Result<()> {
    reach("link");
    attempt(Step::Link { from, to })?;
    fs::hard_link(from, to)?;
    reach("linked");
    answer(Step::Link { from, to })
}

/// Removes a file.
pub(crate) fn remove(path: &Path) -> Result<()> {
    reach("remove");
    attempt(Step::Remove(path))?;
    fs::remove_file(path)?;
    reach("removed");
    Ok(())
}

/// Makes the names in a folder survive a crash.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    reach("folder-sync");
    attempt(Step::SyncFolder(folder))?;
    File::open(folder)?.sync_all()?;
    reach("folder-synced");
    Ok(())
}

//! Files that are being written, under names of their own until they are whole.

use std::fs::File;
use std::io::Write;
use std::path::{Path as FsPath, PathBuf};

use crate::storage::disk::{self, make_folder, sync_folder};
use crate::storage::ids::new_id;

/// How their names begin.
pub(crate) const UNFINISHED_PREFIX: &str = ".tmp-";

/// A file that is being written; removed when it is dropped unpublished.
#[derive(Debug)]
pub(crate) struct TempFile {
    path: PathBuf,
    file: Option<File>,
    /// Bytes written.
    pub length: u64,
}

impl TempFile {
    /// Starts a file with a name of its own in `folder`.
    pub(crate) fn create(folder: &FsPath) -> std::io::Result<Self> {
        make_folder(folder)?;
        let path = folder.join(format!("{UNFINISHED_PREFIX}{}", new_id()));
        let file = disk::create(&path)?;
        Ok(Self { path, file: Some(file), length: 0 })
    }

    /// A file with these bytes, which are on the disk.
    pub(crate) fn synced(folder: &FsPath, bytes: &[u8]) -> std::io::Result<Self> {
        let mut temp = Self::create(folder)?;
        temp.write_all(bytes)?;
        if let Some(file) = &temp.file {
            disk::sync(file, &temp.path)?;
        }
        Ok(temp)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &FsPath {
        &self.path
    }

    /// The open file.
    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Sees to it that the bytes are on the disk, then moves the file to its final place.
    pub(crate) fn rename(&mut self, target: &FsPath) -> std::io::Result<()> {
        if let Some(file) = self.file.take() {
            disk::sync(&file, &self.path)?;
        }
        let Some(folder) = target.parent() else { return Err(std::io::ErrorKind::InvalidInput.into()) };
        make_folder(folder)?;
        disk::rename(&self.path, target)?;
        sync_folder(folder)
    }
}

/// Appends bytes.
impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(file) = &self.file else { return Err(std::io::ErrorKind::NotFound.into()) };
        disk::write(file, &self.path, self.length, bytes)?;
        self.length += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // After a rename there is nothing under this name any more.
        let _ = disk::remove(&self.path);
    }
}

//! Where the bytes of a new file go. A file that is not finished leaves nothing behind.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use object_store::buffered::BufWriter;
use tokio::io::AsyncWriteExt;

use crate::error::{Error, Result};
use crate::rewrite::target::{FileTarget, unwritable};
use crate::storage::disk::on_a_thread;
use crate::storage::location::place_of;

pub(super) enum Output {
    Local(LocalFile),
    Object(Box<BufWriter>),
}

impl Output {
    /// The file of this path below the target's root. It is there with its first bytes.
    pub(super) fn new(target: &FileTarget<'_>, path: &str) -> Result<Self> {
        let place = place_of(&target.prefix, path)?;
        Ok(match &target.local {
            Some(root) => Self::Local(LocalFile { path: root.join(path), file: None, is_begun: false }),
            None => Self::Object(Box::new(BufWriter::new(Arc::clone(&target.object_store), place))),
        })
    }

    /// Writes bytes. Memory that is not needed any more is given back, to be filled again. New memory costs more than what is written into
    /// it.
    pub(super) async fn put(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        match self {
            Self::Local(file) => file.put(bytes).await,
            Self::Object(object) => {
                object.put(bytes.into()).await.map_err(unwritable)?;
                Ok(Vec::new())
            }
        }
    }

    pub(super) async fn finish(self) -> Result<()> {
        match self {
            Self::Local(mut file) => {
                file.is_begun = false;
                Ok(())
            }
            Self::Object(mut object) => object.shutdown().await.map_err(unwritable),
        }
    }
}

/// A file of the local file system: nobody looks for its name before it is finished.
pub(super) struct LocalFile {
    path: PathBuf,
    file: Option<Arc<File>>,
    /// Whether the file may be there and is not finished.
    is_begun: bool,
}

impl LocalFile {
    async fn put(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.is_begun = true;
        let (path, file) = (self.path.clone(), self.file.clone());
        let write = move || -> io::Result<(Arc<File>, Vec<u8>)> {
            let file = match file {
                Some(file) => file,
                None => {
                    path.parent().map_or(Ok(()), fs::create_dir_all)?;
                    Arc::new(File::options().write(true).create_new(true).open(&path)?)
                }
            };
            file.as_ref().write_all(&bytes)?;
            Ok((file, bytes))
        };
        let (file, bytes) = on_a_thread(write).await.map_err(|error| Error::task(&error))?.map_err(unwritable)?;
        self.file = Some(file);
        Ok(bytes)
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if self.is_begun {
            // Failing is harmless: the file is only waste.
            drop(fs::remove_file(&self.path));
        }
    }
}

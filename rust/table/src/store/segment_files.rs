//! Publishing segments under names that others may write, too, and keeping those that are taken over.
//!
//! Two files of one name have the same bytes, unless one is damaged. Which of the two is there at the end does not matter, then. Nobody but
//! a vacuum removes a segment that was built: somebody else may be about to name it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use object_store::{ObjectStoreExt, PutPayload};

use super::Store;
use crate::error::{Error, Result};
use crate::storage::clock;
use crate::storage::disk::on_a_thread;
use crate::storage::temp_file::TempFile;

/// So much of the end of two files is compared: most directories, with the hashes of the data, and the trailer.
const COMPARED_BYTES: u64 = 64 * 1024;
/// A file of an object store that is younger is not written again to be young. It is well below the least age of a vacuum.
const FRESH: Duration = Duration::from_secs(30 * 60);

impl Store {
    /// Makes a finished file the segment at `relative`, unless it is there already: then it is taken over. Says whether it was. Nobody sees
    /// it before a manifest names it.
    pub(crate) async fn publish_segment(&self, temp: TempFile, relative: &str) -> Result<bool> {
        if self.has_same(&temp, relative).await && self.keep(relative).await.is_ok() {
            return Ok(true);
        }
        // A damaged one is replaced.
        self.publish(temp, relative).await.map(|()| false)
    }

    /// Whether a file is there that has the same length and the same end. What cannot be looked at is not.
    async fn has_same(&self, temp: &TempFile, relative: &str) -> bool {
        let (length, path) = (temp.length, self.object_path(relative));
        if length == 0 || !matches!(self.length_of(relative).await, Ok(Some(have)) if have == length) {
            return false;
        }
        let start = length.saturating_sub(COMPARED_BYTES);
        let Some(Ok(file)) = temp.file().map(File::try_clone) else { return false };
        let own = on_a_thread(move || end_of(&file, start, length));
        let (Ok(have), Ok(Ok(own))) = (self.object_store().get_range(&path, start..length).await, own.await) else {
            return false;
        };
        *have == *own
    }

    /// Makes a segment that is taken over young, so that no vacuum takes it before a commit names it.
    ///
    /// # Errors
    /// It is gone, or cannot be written.
    pub(crate) async fn keep(&self, relative: &str) -> Result<()> {
        if let Some(path) = self.local_path(relative) {
            let kept = on_a_thread(move || File::open(&path)?.set_modified(clock::now()));
            return kept.await.map_err(|error| Error::task(&error))?.map_err(|error| self.unwritable(error));
        }
        let path = self.object_path(relative);
        let have = self.object_store().head(&path).await.map_err(|error| self.unreadable(error))?;
        let age = clock::utc().signed_duration_since(have.last_modified).to_std();
        if age.is_ok_and(|age| age < FRESH) {
            return Ok(());
        }
        // Object stores do not copy a file onto itself.
        let read = self.object_store().get(&path).await.map_err(|error| self.unreadable(error))?;
        let bytes = read.bytes().await.map_err(|error| self.unreadable(error))?;
        let put = self.object_store().put(&path, PutPayload::from(bytes)).await;
        put.map(drop).map_err(|error| self.unwritable(error))
    }
}

/// The bytes of a file from a place to its end.
fn end_of(file: &File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

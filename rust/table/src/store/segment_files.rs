//! Publishing segments under names that others may write, too, and keeping those that are taken over.
//!
//! Two files of one name have the same bytes, unless one is damaged. A builder of another version, or of a file that changed unseen, may
//! write others. A sound file that is found is never replaced by other bytes. Pages are checked by the id of the segment alone. So whoever
//! remembers the directory of the one would take pages of the other for its own. Nobody but a vacuum removes a segment that was built:
//! somebody else may be about to name it.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bytes::Bytes;
use lakemark_format::container::HEADER_BYTES;
use lakemark_format::{ContainerWriter, Trailer, open_tail, physical_range, read_logical};
use object_store::{ObjectStoreExt, PutPayload};
use tokio::sync::Mutex;

use super::Store;
use super::segments::TAIL_BYTES;
use crate::error::{Error, Result};
use crate::storage::clock;
use crate::storage::disk::on_a_thread;
use crate::storage::ids::new_id;
use crate::storage::temp_file::TempFile;

/// So much is copied at a time where a segment gets another id.
const COPIED_BYTES: u64 = 1 << 20;
/// A file of an object store that is younger is not written again to be young. It is well below the least age of a vacuum.
const FRESH: Duration = Duration::from_secs(30 * 60);

/// Held by whoever writes a segment again: one at a time is in memory as a whole.
static REWRITING: Mutex<()> = Mutex::const_new(());

/// What became of a file that was to be a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The id that the segment has.
    pub id: [u8; 16],
    /// Whether somebody else had written the very same.
    pub is_taken_over: bool,
}

/// What is under the name that a segment is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupant {
    /// Nothing.
    None,
    /// A file that cannot be opened.
    Damaged,
    /// A file with the same directory, which has hashes of the data.
    Same,
    /// Another one that is sound, as far as anybody knows.
    Other,
}

impl Store {
    /// Makes a finished file the segment of the id that is in it. If it is there already, it is taken over. If a sound file with other bytes
    /// has the name, the segment gets another id. Nobody sees it before a manifest names it.
    pub(crate) async fn publish_segment(&self, temp: TempFile, id: [u8; 16]) -> Result<Published> {
        let path = Self::segment_path(id);
        match self.occupant(&temp, &path).await? {
            // Its pages may be damaged. The same bytes in its place do no harm, and make it young.
            Occupant::Same if self.is_local() => {
                self.publish(temp, &path).await?;
                return Ok(Published { id, is_taken_over: true });
            }
            Occupant::Same if self.keep(&path).await.is_ok() => return Ok(Published { id, is_taken_over: true }),
            Occupant::Other => {
                tracing::warn!(segment = path, "a segment with other bytes has the name; this one gets another");
                return self.publish_renamed(temp).await;
            }
            // Object stores replace files, unless a policy says that each is written once.
            Occupant::Same | Occupant::Damaged if !self.is_local() => {
                if let Err(error) = self.upload(&temp, &path).await {
                    tracing::warn!(segment = path, %error, "a segment cannot be written again; it gets another name");
                    return self.publish_renamed(temp).await;
                }
            }
            Occupant::Same | Occupant::Damaged | Occupant::None => self.publish(temp, &path).await?,
        }
        Ok(Published { id, is_taken_over: false })
    }

    async fn publish_renamed(&self, temp: TempFile) -> Result<Published> {
        let id = new_id().into_bytes();
        let mut renamed = self.start_file().await?;
        let copy = move || copy_as(id, &temp, &mut renamed).map(|()| renamed);
        let copied = on_a_thread(copy).await.map_err(|error| Error::task(&error))?;
        self.publish(copied.map_err(|error| self.unwritable(error))?, &Self::segment_path(id)).await?;
        Ok(Published { id, is_taken_over: false })
    }

    async fn occupant(&self, temp: &TempFile, relative: &str) -> Result<Occupant> {
        let Some(length) = self.length_of(relative).await? else { return Ok(Occupant::None) };
        let end = match self.read_end(relative, length).await {
            Ok(Some(end)) => end,
            Ok(None) => return Ok(Occupant::Damaged),
            Err(object_store::Error::NotFound { .. }) => return Ok(Occupant::None),
            // Nobody knows whether it is sound.
            Err(_) => return Ok(Occupant::Other),
        };
        let Some(start) = length.checked_sub(end.len() as u64).filter(|_| temp.length == length) else {
            return Ok(Occupant::Other);
        };
        let file = temp.file().map(File::try_clone).transpose().map_err(|error| self.unwritable(error))?;
        let file = file.ok_or_else(|| Error::internal("a segment is published twice"))?;
        let own = on_a_thread(move || read_range(&file, start..length)).await.map_err(|error| Error::task(&error))?;
        let own = own.map_err(|error| self.unwritable(error))?;
        Ok(if own == *end { Occupant::Same } else { Occupant::Other })
    }

    /// The directory of a segment and all behind it; none if trailer or directory are damaged.
    async fn read_end(&self, relative: &str, length: u64) -> object_store::Result<Option<Bytes>> {
        if length == 0 {
            return Ok(None);
        }
        let (path, tail_start) = (self.object_path(relative), length.saturating_sub(TAIL_BYTES));
        let tail = self.object_store().get_range(&path, tail_start..length).await?;
        let Ok(opened) = open_tail(&tail, length) else { return Ok(None) };
        let range = opened.trailer.directory_range();
        if opened.directory.is_some() {
            let start = usize::try_from(range.start.saturating_sub(tail_start)).unwrap_or_default();
            return Ok((start <= tail.len()).then(|| tail.slice(start..)));
        }
        let end = self.object_store().get_range(&path, range.start..length).await?;
        let directory = usize::try_from(range.end - range.start).ok().and_then(|bytes| end.get(..bytes));
        let is_sound = directory.is_some_and(|bytes| opened.trailer.check_directory(bytes).is_ok());
        Ok(is_sound.then_some(end))
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
        // By a clock that goes before ours its age is negative.
        let age = clock::utc().signed_duration_since(have.last_modified).to_std();
        if !age.is_ok_and(|age| age >= FRESH) {
            return Ok(());
        }
        let _turn = REWRITING.lock().await;
        // Object stores do not copy a file onto itself.
        let read = self.object_store().get(&path).await.map_err(|error| self.unreadable(error))?;
        let bytes = read.bytes().await.map_err(|error| self.unreadable(error))?;
        let put = self.object_store().put(&path, PutPayload::from(bytes)).await;
        put.map(drop).map_err(|error| self.unwritable(error))
    }
}

/// Writes the segment of a file under another id, which is in its header, its trailer and every checksum.
fn copy_as(id: [u8; 16], from: &TempFile, into: &mut TempFile) -> io::Result<()> {
    let (file, length) = (from.file().ok_or(io::ErrorKind::NotFound)?, from.length);
    let tail = read_range(file, length.saturating_sub(TAIL_BYTES)..length)?;
    let trailer = Trailer::decode(&tail, length).map_err(io::Error::other)?;
    let directory = read_range(file, trailer.directory_range())?;
    let mut writer = ContainerWriter::new(trailer.kind, id);
    let mut at = HEADER_BYTES;
    while at < trailer.stream_length {
        let range = at..trailer.stream_length.min(at + COPIED_BYTES);
        let pages = read_range(file, physical_range(range.clone(), &trailer))?;
        at = range.end;
        writer.push(&read_logical(&pages, range, &trailer).map_err(io::Error::other)?);
        into.write_all(&writer.take_output())?;
    }
    into.write_all(&writer.finish(&directory).map_err(io::Error::other)?)
}

fn read_range(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use lakemark_format::ContentKind;
    use object_store::local::LocalFileSystem;
    use object_store::path::Path;

    use super::*;
    use crate::storage::location::StorePlace;

    const ID: [u8; 16] = [7; 16];

    fn store(folder: &std::path::Path) -> Store {
        let prefix = Path::from_absolute_path(folder).unwrap();
        let (text, local) = (folder.display().to_string(), Some(folder.to_owned()));
        Store::new(StorePlace { text, prefix, local, object_store: Arc::new(LocalFileSystem::new()) }, Arc::default())
    }

    /// A segment of several pages, as far as this module looks into one.
    fn content(id: [u8; 16], payload: u8, directory: &[u8]) -> Vec<u8> {
        let mut writer = ContainerWriter::new(ContentKind::Segment, id);
        writer.push(&vec![payload; 3 << 20]);
        let mut bytes = writer.take_output();
        bytes.extend(writer.finish(directory).unwrap());
        bytes
    }

    async fn publish(store: &Store, bytes: &[u8]) -> Published {
        let mut temp = store.start_file().await.unwrap();
        temp.write_all(bytes).unwrap();
        store.publish_segment(temp, ID).await.unwrap()
    }

    #[tokio::test]
    async fn a_sound_segment_is_never_replaced_by_other_bytes() {
        // A directory that one read of the end gives, and one that it does not.
        for long in [10, 100_000] {
            let (one, other) = (vec![1; long], vec![2; long]);
            let folder = tempfile::tempdir().unwrap();
            let store = store(folder.path());
            let path = folder.path().join(Store::segment_path(ID));
            let first = content(ID, 1, &one);
            assert_eq!(publish(&store, &first).await, Published { id: ID, is_taken_over: false });
            assert_eq!(publish(&store, &first).await, Published { id: ID, is_taken_over: true });
            for directory in [&other[..], &other[1..]] {
                let renamed = publish(&store, &content(ID, 2, directory)).await;
                assert!(renamed.id != ID && !renamed.is_taken_over);
                assert!(fs::read(&path).unwrap() == first);
                let written = fs::read(folder.path().join(Store::segment_path(renamed.id))).unwrap();
                assert!(written == content(renamed.id, 2, directory), "its id is in every checksum");
            }
            // Of damaged pages the directory says nothing.
            let mut rotten = first.clone();
            rotten[90] ^= 1;
            fs::write(&path, &rotten).unwrap();
            assert_eq!(publish(&store, &first).await, Published { id: ID, is_taken_over: true });
            assert!(fs::read(&path).unwrap() == first);
            // What cannot be opened is of no use to anybody.
            for damaged in [&first[..0], &first[..100], &first[1..], &[first.as_slice(), &[0]].concat()] {
                fs::write(&path, damaged).unwrap();
                let second = content(ID, 2, &other);
                assert_eq!(publish(&store, &second).await, Published { id: ID, is_taken_over: false });
                assert!(fs::read(&path).unwrap() == second);
            }
        }
    }
}

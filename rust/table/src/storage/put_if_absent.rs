//! Putting a file of which there must be none yet: what makes a manifest or a version of a Delta log a commit.
//!
//! ```text
//! put ─┬─ done ───────────────────────────────────────────────▶ Made
//!      ├─ there is one ─┐                ┌─ the same bytes ───▶ Made
//!      └─ an error ─────┴─ read the name ┼─ others ───────────▶ Taken    ours never will be there
//!                                        ├─ none ─────────────▶ Refused, or Missing where it may still arrive
//!                                        └─ unreadable ───────▶ Unknown
//! ```
//!
//! An answer proves nothing but that it came. A put that acted may be answered with an error, and clients of object stores then repeat it
//! by themselves and find a file there: their own. So the bytes decide. Two commits with the same bytes are the same change of the same
//! state. Whatever is new in one (an index, a run, a log) has a random id in it. A segment has the same name where it is the same, and to drop
//! something twice is to drop it.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::storage::disk::{self, on_a_thread, sync_folder};
use crate::storage::temp_file::TempFile;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The name that a file is put under.
pub(crate) struct PutTarget<'a> {
    pub object_store: &'a Arc<dyn ObjectStore>,
    /// Its place in the object store.
    pub path: Path,
    /// The same on a local file system.
    pub local: Option<PathBuf>,
}

/// What became of a put.
#[derive(Debug)]
pub(crate) enum PutOutcome {
    /// The file is there with these bytes, and stays.
    Made,
    /// A file with these other bytes is there.
    Taken(Bytes),
    /// There is no file, and none will come of this put.
    Refused(Cause),
    /// There is no file now. The put may be under way all the same, so that nothing that the file names may be deleted.
    Missing(Cause),
    /// Nobody knows whether the file is there, or whether it stays: nothing that the file names may be deleted.
    Unknown(Cause),
}

/// What a store answered.
enum PutResponse {
    Done,
    Exists,
    /// Nothing was tried.
    Refused(Cause),
    Failed(Cause),
    /// The name is there, and its folder could not be synced.
    Unsynced(Cause),
}

impl PutTarget<'_> {
    /// Puts the file if there is none of its name.
    pub(crate) async fn put(&self, bytes: Vec<u8>) -> PutOutcome {
        let bytes = Bytes::from(bytes);
        let answer = match self.local.clone() {
            Some(target) => {
                let bytes = bytes.clone();
                on_a_thread(move || link_new(&target, &bytes))
                    .await
                    .unwrap_or_else(|lost| PutResponse::Failed(lost.into()))
            }
            None => self.upload(&bytes).await,
        };
        let failed = match answer {
            PutResponse::Done => return PutOutcome::Made,
            PutResponse::Refused(cause) => return PutOutcome::Refused(cause),
            PutResponse::Unsynced(cause) => return PutOutcome::Unknown(cause),
            PutResponse::Exists => None,
            PutResponse::Failed(cause) => Some(cause),
        };
        match (self.read().await, failed) {
            (Ok(Some(found)), _) if found == bytes => self.sync().await,
            (Ok(Some(found)), _) => PutOutcome::Taken(found),
            (Ok(None), Some(cause)) if self.local.is_some() => PutOutcome::Refused(cause),
            (Ok(None), Some(cause)) => PutOutcome::Missing(cause),
            // The file was there just before.
            (Ok(None), None) => PutOutcome::Unknown("the file that was there is gone".into()),
            (Err(error), None) => PutOutcome::Unknown(error.into()),
            (Err(_), Some(cause)) => PutOutcome::Unknown(cause),
        }
    }

    async fn upload(&self, bytes: &Bytes) -> PutResponse {
        let payload = PutPayload::from(bytes.clone());
        match self.object_store.put_opts(&self.path, payload, PutMode::Create.into()).await {
            Ok(_) => PutResponse::Done,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                PutResponse::Exists
            }
            Err(error) => PutResponse::Failed(error.into()),
        }
    }

    /// The bytes that are there; none if nothing is.
    async fn read(&self) -> object_store::Result<Option<Bytes>> {
        match self.object_store.get(&self.path).await {
            Ok(found) => found.bytes().await.map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A name that was found may be one that nobody has synced.
    async fn sync(&self) -> PutOutcome {
        let Some(folder) = self.local.as_deref().and_then(FsPath::parent).map(FsPath::to_owned) else {
            return PutOutcome::Made;
        };
        match on_a_thread(move || sync_twice(&folder)).await {
            Ok(Ok(())) => PutOutcome::Made,
            Ok(Err(cause)) => PutOutcome::Unknown(cause),
            Err(lost) => PutOutcome::Unknown(lost.into()),
        }
    }
}

/// Gives a synced temporary file the name, unless there is one of that name.
fn link_new(target: &FsPath, bytes: &[u8]) -> PutResponse {
    let Some(folder) = target.parent() else { return PutResponse::Refused("the name has no folder".into()) };
    let temp = match TempFile::synced(folder, bytes) {
        Ok(temp) => temp,
        Err(error) => return PutResponse::Refused(error.into()),
    };
    match disk::link(temp.path(), target) {
        Ok(()) => sync_twice(folder).map_or_else(PutResponse::Unsynced, |()| PutResponse::Done),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => PutResponse::Exists,
        Err(error) => PutResponse::Failed(error.into()),
    }
}

/// The name is seen from now on, so that an error would not be the whole truth: the sync is tried twice.
fn sync_twice(folder: &FsPath) -> Result<(), Cause> {
    sync_folder(folder)
        .or_else(|_| sync_folder(folder))
        .map_err(|error| format!("it is made all the same, and may be lost if the machine stops: {error}").into())
}

//! The time at the storage of a store, by a file that is written there and removed again.

use chrono::{DateTime, Utc};
use object_store::{ObjectStoreExt, PutPayload};

use super::Store;
use super::layout::time_path;
use crate::error::{Error, Result};
use crate::storage::disk::on_a_thread;
use crate::storage::ids::new_id;
use crate::storage::temp_file::TempFile;

impl Store {
    /// What the time is at the storage.
    ///
    /// # Errors
    /// The store cannot be written (`Io`).
    pub(crate) async fn storage_time(&self) -> Result<DateTime<Utc>> {
        if self.is_local() {
            let folder = self.temp_folder();
            let written = move || {
                let temp = TempFile::create(&folder)?;
                temp.file().ok_or(std::io::ErrorKind::NotFound)?.metadata()?.modified()
            };
            let time = on_a_thread(written).await.map_err(|error| Error::task(&error))?;
            return Ok(time.map_err(|error| self.unwritable(error))?.into());
        }
        let (object_store, path) = (self.object_store(), self.object_path(&time_path(new_id())));
        object_store.put(&path, PutPayload::default()).await.map_err(|error| self.unwritable(error))?;
        let written = object_store.head(&path).await;
        // One that stays is waste.
        let _ = object_store.delete(&path).await;
        Ok(written.map_err(|error| self.unreadable(error))?.last_modified)
    }
}

//! Listing a folder again, beside what it had the last time.
//!
//! The request goes through the layers around an object store as any listing does, and what is known of the folder goes along with the task.
//! Local files answer there. A store that knows nothing of it answers as always.

use std::path::Path as FsPath;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path;
use object_store::{ListResult, ObjectStore, Result};

use super::folder_contents::KnownFolder;
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
use super::folder_walk;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use super::known_folder::relist;

/// What a listing gave.
pub(crate) enum Relisted {
    /// What the folder has; that of the last listing if it is the same.
    Compared(Arc<KnownFolder>),
    /// The store does not compare.
    Plain(ListResult),
}

/// What is known of the folder that a task lists, and what the listing found.
pub(super) struct Comparison {
    known: Option<Arc<KnownFolder>>,
    found: Mutex<Option<Arc<KnownFolder>>>,
}

tokio::task_local! {
    static COMPARISON: Arc<Comparison>;
}

/// Lists a folder of an object store beside what is known of it.
pub(crate) async fn relisted(
    store: &dyn ObjectStore,
    prefix: &Path,
    known: Option<Arc<KnownFolder>>,
) -> Result<Relisted> {
    let comparison = Arc::new(Comparison { known, found: Mutex::default() });
    let folder = (!prefix.as_ref().is_empty()).then_some(prefix);
    let plain = COMPARISON.scope(Arc::clone(&comparison), store.list_with_delimiter(folder)).await?;
    let found = comparison.found.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(found.map_or(Relisted::Plain(plain), Relisted::Compared))
}

/// What the listing that this task is about is to be compared with.
pub(super) fn comparison() -> Option<Arc<Comparison>> {
    COMPARISON.try_with(Arc::clone).ok()
}

impl Comparison {
    /// Lists a local folder. Whoever asked finds its files with the comparison.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn list(&self, prefix: &Path, folder: &FsPath) -> Result<ListResult> {
        let found = relist(prefix, folder, self.known.as_ref())?;
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(ListResult { common_prefixes: Vec::new(), objects: Vec::new() })
    }

    /// Lists a local folder. This system has no calls that are quicker.
    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    pub(super) fn list(&self, prefix: &Path, folder: &FsPath) -> Result<ListResult> {
        folder_walk::folder(prefix, folder)
    }
}

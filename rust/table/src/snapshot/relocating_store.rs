//! Data files that are read where a publication has put them, by readers whose snapshot names the old place.
//!
//! ```text
//! reader        snapshot: a.parquet ─────────────────────────────────▶ reads a.parquet: not there ─▶ reads originals/…/a.parquet
//! publication                        a.parquet leaves the folder;
//!                                    it has a second name in the store, which a manifest named before
//! ```
//!
//! A query may take longer than the time between two publications, so that it must not depend on when it opens which file. In the other
//! place only the version of the reader's snapshot is read: size and time are compared.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::storage::local::{is_listed_version, of_any};
use crate::storage::location::{FileSet, Location};
use crate::store::Store;

/// The files of a folder, and those of its store that were files of the folder.
#[derive(Debug)]
struct RelocatingStore {
    folder: Arc<dyn ObjectStore>,
    prefix: Path,
    store: Arc<Store>,
}

/// What reads the data files of a table.
pub(super) fn followed(location: &Location, store: Option<&Arc<Store>>) -> Arc<dyn ObjectStore> {
    let folder = Arc::clone(&location.object_store);
    match store {
        // Nothing else can be published.
        Some(store) if location.local.is_some() && matches!(location.shape, FileSet::Folder) => {
            Arc::new(RelocatingStore { folder, prefix: location.prefix.clone(), store: Arc::clone(store) })
        }
        _ => folder,
    }
}

impl RelocatingStore {
    /// Where the version of a file that is to be read is now, if a publication took it out of the folder.
    async fn moved(&self, location: &Path, error: &object_store::Error) -> Option<Path> {
        // Somebody may have put another file in its place since.
        if !matches!(error, object_store::Error::NotFound { .. } | object_store::Error::Precondition { .. }) {
            return None;
        }
        let parts: Vec<String> = location.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
        let path = parts.join("/");
        // The version to be read is known for the data file alone, so that it does not apply to reads of the store's manifests.
        let manifest = of_any(self.store.newest()).await.ok()?.manifest?;
        let publications = manifest.updates()?.publications.iter().rev();
        let mut originals = publications.flat_map(|publication| &publication.originals);
        let moved = originals.find(|file| file.path == path && is_listed_version(file.size, file.modified_ns))?;
        Some(self.store.data_path(&moved.stored))
    }
}

impl fmt::Display for RelocatingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for RelocatingStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let error = match self.folder.get_opts(location, options.clone()).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        match self.moved(location, &error).await {
            Some(place) => {
                let mut found = of_any(self.store.object_store().get_opts(&place, options)).await?;
                found.meta.location = location.clone();
                Ok(found)
            }
            None => Err(error),
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let error = match self.folder.get_ranges(location, ranges).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        match self.moved(location, &error).await {
            Some(place) => of_any(self.store.object_store().get_ranges(&place, ranges)).await,
            None => Err(error),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.folder.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.folder.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.folder.list_with_delimiter(prefix).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.folder.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.folder.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.folder.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.folder.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.folder.rename_opts(from, to, options).await
    }
}

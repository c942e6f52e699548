//! Local files: as `object_store` has them, but for three things.
//!
//! Of ranges that lie far apart those that the system has in memory are read first. All others are on their way before the first of them is
//! waited for:
//!
//! ```text
//! one after the other   ──read──▶ ──read──▶ ──read──▶        the disk has one page of one column to fetch at a time
//! announced             ──read──▶▶▶                          it has all of them at once
//! ```
//!
//! A scan of few rows reads a page of each column, and these lie far apart: announced, an SSD reads them in a third of the time. A scan of
//! all rows is left to the system, which reads ahead. Nor is memory cleared that the read fills.
//!
//! The entity tag of a file says when the system last saw it change ([`files::tag`]), so that nobody rewrites it unseen. And whatever is no
//! file, or leads in a circle, is left alone ([`folder_walk`]): nothing here waits for somebody who never comes.

mod files;
mod folder_contents;
mod folder_walk;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod known_folder;
mod ranges;
mod relisting;

use std::collections::VecDeque;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

pub use files::of_listed;
pub(crate) use files::{OpenedFile, changed_ns, is_listed_version, of_any, open, open_with, tag};
pub(crate) use folder_contents::{FolderInside, KnownFolder};
pub(crate) use folder_walk::{MOST_LINKED_FOLDERS, too_many};
pub(crate) use relisting::{Relisted, relisted};

/// Files of a listing that are waited for at a time.
const LISTED_AT_ONCE: usize = 1024;

/// The local file system.
#[derive(Debug, Default)]
pub(crate) struct LocalFiles(LocalFileSystem);

impl fmt::Display for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl LocalFiles {
    fn folder_of(&self, prefix: Option<&Path>) -> Result<PathBuf> {
        match prefix.filter(|prefix| !prefix.as_ref().is_empty()) {
            // A folder may be called as no file may.
            Some(prefix) => Ok(self.0.path_to_filesystem(&prefix.clone().join("x"))?.with_file_name("")),
            None => Ok(PathBuf::from("/")),
        }
    }

    fn walk(&self, prefix: Option<&Path>, after: Option<Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let walk = match self.folder_of(prefix) {
            Ok(folder) => folder_walk::FolderWalk::of(folder, after),
            Err(error) => return stream::once(async { Err(error) }).boxed(),
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return stream::iter(walk).boxed();
        }
        let state = WalkInParts { walk, found: VecDeque::new() };
        stream::try_unfold(state, |mut state: WalkInParts| async move {
            if state.found.is_empty() {
                state = tokio::task::spawn_blocking(move || {
                    state.found.extend(state.walk.by_ref().take(LISTED_AT_ONCE));
                    state
                })
                .await?;
            }
            state.found.pop_front().transpose().map(|next| next.map(|meta| (meta, state)))
        })
        .boxed()
    }
}

/// A walk whose files are waited for some at a time.
struct WalkInParts {
    walk: folder_walk::FolderWalk,
    /// Files that the walk found and nobody has taken yet.
    found: VecDeque<Result<ObjectMeta>>,
}

/// Runs what may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await?,
        Err(_) => work(),
    }
}

fn unopened(location: &Path, error: io::Error) -> object_store::Error {
    match error.kind() {
        ErrorKind::NotFound => object_store::Error::NotFound { path: location.to_string(), source: error.into() },
        _ => unread(location, error),
    }
}

fn unread(location: &Path, error: io::Error) -> object_store::Error {
    let text = match error.kind() {
        ErrorKind::UnexpectedEof => format!("{location} ends before what is to be read of it"),
        ErrorKind::OutOfMemory => format!("there is not enough memory for what is to be read of {location}"),
        _ => format!("{location} cannot be read: {error}"),
    };
    object_store::Error::Generic { store: "LocalFiles", source: io::Error::new(error.kind(), text).into() }
}

/// An error if the file is another version than the one that is to be read.
fn check(location: &Path, metadata: &Metadata, listed: Option<&str>) -> Result<()> {
    if !files::is_another(metadata, listed) {
        return Ok(());
    }
    let source = "somebody has written into the file, or replaced it, since it was listed".into();
    Err(object_store::Error::Precondition { path: location.to_string(), source })
}

fn get(path: PathBuf, location: Path, options: &GetOptions, listed: Option<&str>) -> Result<GetResult> {
    let OpenedFile { file, metadata } = open(&path).map_err(|error| unopened(&location, error))?;
    check(&location, &metadata, listed)?;
    let last_modified = metadata.modified().map_err(|error| unread(&location, error))?.into();
    let (size, e_tag) = (metadata.len(), Some(tag(&metadata)));
    let meta = ObjectMeta { location, last_modified, size, e_tag, version: None };
    options.check_preconditions(&meta)?;
    let range = match &options.range {
        None => 0..size,
        Some(range) => range.as_range(size).map_err(|_| unread(&meta.location, ErrorKind::UnexpectedEof.into()))?,
    };
    let payload = match listed {
        // Nobody gets the bytes before it is known whether somebody has written into the file meanwhile.
        Some(_) if !options.head => {
            let bytes = checked(&file, &meta.location, std::slice::from_ref(&range), listed)?;
            GetResultPayload::Stream(stream::iter(bytes.into_iter().map(Ok)).boxed())
        }
        _ => GetResultPayload::File(file, path),
    };
    Ok(GetResult { payload, meta, range, attributes: object_store::Attributes::default() })
}

/// The bytes of these ranges, all of one version.
fn checked(file: &File, location: &Path, wanted: &[Range<u64>], listed: Option<&str>) -> Result<Vec<Bytes>> {
    let read = ranges::read(file, wanted);
    // A file that is cut short is another version first of all.
    let metadata = file.metadata().map_err(|error| unread(location, error))?;
    check(location, &metadata, listed)?;
    read.map_err(|error| unread(location, error))
}

fn get_all(path: &FsPath, location: &Path, wanted: &[Range<u64>], listed: Option<&str>) -> Result<Vec<Bytes>> {
    let OpenedFile { file, .. } = open(path).map_err(|error| unopened(location, error))?;
    checked(&file, location, wanted, listed)
}

#[async_trait::async_trait]
impl ObjectStore for LocalFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (path, location, listed) = (self.0.path_to_filesystem(location)?, location.clone(), files::listed());
        blocking(move || get(path, location, &options, listed.as_deref())).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (path, location, listed) = (self.0.path_to_filesystem(location)?, location.clone(), files::listed());
        let wanted = ranges.to_vec();
        blocking(move || get_all(&path, &location, &wanted, listed.as_deref())).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, None)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.walk(prefix, Some(offset.clone()))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let (folder, prefix) = (self.folder_of(prefix)?, prefix.cloned().unwrap_or_default());
        let comparison = relisting::comparison();
        blocking(move || match comparison {
            Some(comparison) => comparison.list(&prefix, &folder),
            None => folder_walk::folder(&prefix, &folder),
        })
        .await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    const BYTES: u64 = 300_000;

    async fn read(ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a file of 100 %");
        std::fs::write(&path, (0..BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>()).unwrap();
        LocalFiles::default().get_ranges(&Path::from_absolute_path(&path).unwrap(), ranges).await
    }

    #[tokio::test]
    async fn ranges_are_read_in_the_order_in_which_they_are_requested() {
        let ranges = [200_000..290_001, 0..1, 17..17, 100..90_000, 50..150, 0..BYTES, BYTES..BYTES];
        let found = read(&ranges).await.unwrap();
        assert_eq!(found.len(), ranges.len());
        for (range, bytes) in ranges.iter().zip(found) {
            assert!(bytes.iter().copied().eq(range.clone().map(|at| (at % 251) as u8)), "{range:?}");
        }
        assert!(read(&[]).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_not_there_is_an_error() {
        for beyond in [10..BYTES + 1, 0..u64::MAX] {
            let error = read(&[0..10, beyond]).await.unwrap_err();
            assert!(error.to_string().contains("ends before what is to be read of it"), "{error}");
        }
        let nowhere = Path::from("nowhere/at/all");
        let error = LocalFiles::default().get_ranges(&nowhere, &[0..1, 2..3]).await.unwrap_err();
        assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
    }

    #[test]
    fn ranges_are_scattered_where_more_lies_between_them_than_in_them() {
        let pages: Vec<_> = (0..13).map(|column| column * 40_000..column * 40_000 + 16_384).collect();
        assert!(ranges::are_scattered(&pages));
        let chunks: Vec<_> = (0..13).map(|column| column * 40_000..column * 40_000 + 39_000).collect();
        assert!(!ranges::are_scattered(&chunks));
        let one = 5..100;
        assert!(!ranges::are_scattered(std::slice::from_ref(&one)) && !ranges::are_scattered(&[]));
    }

    /// A range that a damaged file names takes no memory.
    #[test]
    fn law_5_no_memory_is_taken_for_what_is_beyond_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [1, 2, 3]).unwrap();
        for range in [0..u64::MAX, u64::MAX - 1..u64::MAX, 5..9, Range { start: 3, end: 1 }] {
            let error = ranges::read(&File::open(&path).unwrap(), std::slice::from_ref(&range)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{range:?}");
        }
    }
}

//! Local files: as `object_store` has them, but that all ranges of a read are on their way before the first is waited for.
//!
//! ```text
//! one after the other   ──read──▶ ──read──▶ ──read──▶        the disk has one page of one column to fetch at a time
//! announced             ──read──▶▶▶                          it has all of them at once
//! ```
//!
//! A scan of few rows reads a page of each column, which lie far apart: from an SSD that takes a third of the time so. A scan of all rows
//! is left to the system, which reads ahead. Nor is memory cleared that the read fills.

use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;

use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

/// The local file system.
#[derive(Debug, Default)]
pub(crate) struct LocalFiles(LocalFileSystem);

impl fmt::Display for LocalFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for LocalFiles {
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        #[cfg(unix)]
        if let (Ok(path), Ok(runtime)) = (self.0.path_to_filesystem(location), tokio::runtime::Handle::try_current()) {
            let wanted = ranges.to_vec();
            match runtime.spawn_blocking(move || ranges::read(&path, &wanted)).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                // Whoever tried again would take memory for it first.
                Ok(Err(error)) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::OutOfMemory) => {
                    let text = match error.kind() {
                        ErrorKind::UnexpectedEof => format!("{location} ends before what is to be read of it"),
                        _ => format!("there is not enough memory for what is to be read of {location}"),
                    };
                    let source = io::Error::new(error.kind(), text);
                    return Err(object_store::Error::Generic { store: "LocalFiles", source: source.into() });
                }
                _ => {}
            }
        }
        // Without a runtime; and what else goes wrong is told in the words of the store.
        self.0.get_ranges(location, ranges).await
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

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

/// Reads of several ranges of a file.
#[cfg(unix)]
mod ranges {
    use std::fs::File;
    use std::io;
    use std::ops::Range;
    use std::path::Path;

    use bytes::Bytes;
    use rustix::buffer::spare_capacity;
    use rustix::io::{Errno, pread};

    /// The bytes of these ranges.
    ///
    /// # Errors
    /// One of them is beyond the end of the file (`UnexpectedEof`), before memory is taken for it; or the file cannot be read.
    pub(super) fn read(path: &Path, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        let file = File::open(path)?;
        let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
        if end > file.metadata()?.len() || ranges.iter().any(|range| range.start > range.end) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if are_scattered(ranges) {
            ranges.iter().for_each(|range| announce(&file, range));
        }
        ranges.iter().map(|range| read_one(&file, range)).collect()
    }

    /// Whether more is left out between the ranges than they have. Where nearly everything is read, the system reads ahead by itself, and
    /// farther than to the end of these ranges.
    pub(super) fn are_scattered(ranges: &[Range<u64>]) -> bool {
        let (first, end) = (ranges.iter().map(|range| range.start).min(), ranges.iter().map(|range| range.end).max());
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
        let (Some(first), Some(end)) = (first, end) else { return false };
        bytes <= (end - first) / 2
    }

    /// Tells the system that a range will be read. It may not listen.
    #[cfg(target_os = "linux")]
    fn announce(file: &File, range: &Range<u64>) {
        use rustix::fs::{Advice, fadvise};
        if let Some(length) = std::num::NonZeroU64::new(range.end - range.start) {
            let _may_be_ignored = fadvise(file, range.start, Some(length), Advice::WillNeed);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn announce(_file: &File, _range: &Range<u64>) {}

    fn read_one(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
        let length = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        while bytes.len() < length {
            let start = range.start + bytes.len() as u64;
            match pread(file, spare_capacity(&mut bytes), start) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Memory may have been given for more.
        bytes.truncate(length);
        Ok(bytes.into())
    }
}

#[cfg(all(test, unix))]
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
    async fn ranges_are_read_in_the_order_in_which_they_are_asked_for() {
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
            let error = ranges::read(&path, std::slice::from_ref(&range)).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{range:?}");
        }
    }
}

//! The one place where requests to storage are counted: an object store that hands each request on.
//!
//! What is written to a local disk is no request, as it goes past object stores. A request that a client repeats by itself counts once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use crate::metrics::{Metrics, RequestCounters};

/// Ranges that are no further apart than this become one request, as object stores read them.
const COALESCED_BYTES: u64 = 1024 * 1024;

/// An object store whose requests are counted.
#[derive(Debug)]
pub(crate) struct CountingStore {
    inner: Arc<dyn ObjectStore>,
    metrics: Arc<Metrics>,
}

/// The object store, with its requests counted.
pub(crate) fn counted(inner: Arc<dyn ObjectStore>, metrics: &Arc<Metrics>) -> Arc<dyn ObjectStore> {
    Arc::new(CountingStore { inner, metrics: Arc::clone(metrics) })
}

/// Counts a request that was answered, and gives the answer on.
fn answered<T>(counters: &RequestCounters, answer: Result<T>, bytes_of: impl FnOnce(&T) -> u64) -> Result<T> {
    counters.requests.add(1);
    match &answer {
        Ok(answer) => counters.bytes.add(bytes_of(answer)),
        Err(error) if is_failure(error) => counters.failures.add(1),
        Err(_) => {}
    }
    answer
}

/// Whether an error is more than an answer to a question.
fn is_failure(error: &Error) -> bool {
    !matches!(
        error,
        Error::NotFound { .. } | Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }
    )
}

/// How many requests it takes to read these ranges.
fn requests_for(ranges: &[Range<u64>]) -> u64 {
    let mut sorted: Vec<&Range<u64>> = ranges.iter().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let (mut requests, mut end) = (0, None);
    for range in sorted {
        if end.is_none_or(|end: u64| range.start > end.saturating_add(COALESCED_BYTES)) {
            requests += 1;
        }
        end = Some(end.map_or(range.end, |end| end.max(range.end)));
    }
    requests
}

impl fmt::Display for CountingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for CountingStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (counters, is_read) = if options.head { (&self.metrics.head, false) } else { (&self.metrics.get, true) };
        let answer = self.inner.get_opts(location, options).await;
        answered(counters, answer, |found| if is_read { found.range.end - found.range.start } else { 0 })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let answer = self.inner.get_ranges(location, ranges).await;
        self.metrics.get.requests.add(requests_for(ranges).saturating_sub(1));
        answered(&self.metrics.get, answer, |parts| parts.iter().map(|part| part.len() as u64).sum())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listing(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let answer = self.inner.list_with_delimiter(prefix).await;
        answered(&self.metrics.list, answer, |_| 0)
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        answered(&self.metrics.put, self.inner.put_opts(location, payload, options).await, |_| bytes)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let answer = self.inner.put_multipart_opts(location, options).await;
        let inner = answered(&self.metrics.put, answer, |_| 0)?;
        Ok(Box::new(CountingUpload { inner, metrics: Arc::clone(&self.metrics) }))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let metrics = Arc::clone(&self.metrics);
        self.inner.delete_stream(locations).map(move |answer| answered(&metrics.delete, answer, |_| 0)).boxed()
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        answered(&self.metrics.copy, self.inner.copy_opts(from, to, options).await, |()| 0)
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        answered(&self.metrics.copy, self.inner.rename_opts(from, to, options).await, |()| 0)
    }
}

impl CountingStore {
    /// A listing is one request, however long it is: its pages are not seen from here.
    fn listing(&self, inner: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let metrics = Arc::clone(&self.metrics);
        metrics.list.requests.add(1);
        let failures = move |found: &Result<ObjectMeta>| {
            if found.as_ref().is_err_and(is_failure) {
                metrics.list.failures.add(1);
            }
        };
        inner.inspect(failures).boxed()
    }
}

/// An upload whose parts are counted.
#[derive(Debug)]
struct CountingUpload {
    inner: Box<dyn MultipartUpload>,
    metrics: Arc<Metrics>,
}

#[async_trait::async_trait]
impl MultipartUpload for CountingUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (bytes, metrics) = (data.content_length() as u64, Arc::clone(&self.metrics));
        let part = self.inner.put_part(data);
        Box::pin(async move { answered(&metrics.put, part.await, |()| bytes) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        answered(&self.metrics.put, self.inner.complete().await, |_| 0)
    }

    async fn abort(&mut self) -> Result<()> {
        answered(&self.metrics.delete, self.inner.abort().await, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn ranges_that_are_close_to_each_other_are_one_request() {
        let far = 10 * COALESCED_BYTES;
        assert_eq!(requests_for(&[]), 0);
        assert_eq!(requests_for(&[0..4, 9..12]), 1);
        assert_eq!(requests_for(&[far..far + 1, 0..4]), 2);
        // One that ends within another one does not move its end back.
        assert_eq!(requests_for(&[0..far, 2..3, far + COALESCED_BYTES..far + COALESCED_BYTES + 1]), 1);
    }

    #[tokio::test]
    async fn each_request_counts_by_its_kind_with_the_bytes_that_it_moved() {
        let metrics = Arc::new(Metrics::default());
        let store = counted(Arc::new(InMemory::new()), &metrics);
        let path = Path::from("a/b");
        store.put(&path, PutPayload::from_static(b"0123456789")).await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap().len(), 10);
        assert_eq!(store.get_range(&path, 2..5).await.unwrap().as_ref(), b"234");
        store.get_ranges(&path, &[0..1, 8..10]).await.unwrap();
        assert_eq!(store.head(&path).await.unwrap().size, 10);
        assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 1);
        store.list_with_delimiter(None).await.unwrap();
        store.copy(&path, &Path::from("c")).await.unwrap();
        store.delete(&path).await.unwrap();
        let said =
            |counters: &RequestCounters| (counters.requests.get(), counters.bytes.get(), counters.failures.get());
        assert_eq!(said(&metrics.get), (3, 16, 0));
        assert_eq!(said(&metrics.put), (1, 10, 0));
        assert_eq!(said(&metrics.head), (1, 0, 0));
        assert_eq!(said(&metrics.list), (2, 0, 0));
        assert_eq!(said(&metrics.copy), (1, 0, 0));
        assert_eq!(said(&metrics.delete), (1, 0, 0));
    }

    #[tokio::test]
    async fn parts_of_an_upload_count_with_their_bytes() {
        let metrics = Arc::new(Metrics::default());
        let store = counted(Arc::new(InMemory::new()), &metrics);
        let mut upload = store.put_multipart(&Path::from("large")).await.unwrap();
        upload.put_part(PutPayload::from_static(b"01234")).await.unwrap();
        upload.put_part(PutPayload::from_static(b"567")).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!((metrics.put.requests.get(), metrics.put.bytes.get()), (4, 8));
    }

    #[tokio::test]
    async fn what_is_not_there_is_an_answer_and_no_failure() {
        let metrics = Arc::new(Metrics::default());
        let store = counted(Arc::new(InMemory::new()), &metrics);
        assert!(store.get(&Path::from("missing")).await.is_err());
        assert!(store.head(&Path::from("missing")).await.is_err());
        assert_eq!((metrics.get.requests.get(), metrics.get.failures.get()), (1, 0));
        assert_eq!((metrics.head.requests.get(), metrics.head.failures.get()), (1, 0));
        // A range beyond the end is a mistake.
        store.put(&Path::from("a"), PutPayload::from_static(b"0")).await.unwrap();
        assert!(store.get_range(&Path::from("a"), 5..9).await.is_err());
        assert_eq!(metrics.get.failures.get(), 1);
    }
}

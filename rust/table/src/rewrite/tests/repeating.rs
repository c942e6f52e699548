//! A store whose answers to puts of new files are lost.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result as StoreResult,
};

/// What comes in the place of the answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Instead {
    /// The store repeats the request by itself and learns that the file exists.
    Exists,
    /// An error.
    Error,
    /// An error, and every later request ends with one.
    Silence,
}

/// Puts files that are to be new, and loses the answer.
#[derive(Debug)]
pub(super) struct Repeating {
    pub store: InMemory,
    pub instead: Instead,
    pub is_silent: AtomicBool,
}

impl Repeating {
    pub(super) fn new(instead: Instead) -> Self {
        Self { store: InMemory::new(), instead, is_silent: AtomicBool::new(false) }
    }
}

fn lost() -> object_store::Error {
    object_store::Error::Generic { store: "Repeating", source: "the answer was lost".into() }
}

impl std::fmt::Display for Repeating {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Repeating")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Repeating {
    async fn put_opts(&self, path: &StorePath, payload: PutPayload, options: PutOptions) -> StoreResult<PutResult> {
        if options.mode != PutMode::Create {
            return self.store.put_opts(path, payload, options).await;
        }
        self.store.put_opts(path, payload.clone(), options.clone()).await?;
        self.is_silent.store(self.instead == Instead::Silence, Ordering::SeqCst);
        match self.instead {
            Instead::Exists => self.store.put_opts(path, payload, options).await,
            Instead::Error | Instead::Silence => Err(lost()),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &StorePath,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &StorePath, options: GetOptions) -> StoreResult<GetResult> {
        if self.is_silent.load(Ordering::SeqCst) {
            return Err(lost());
        }
        self.store.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<StorePath>>,
    ) -> BoxStream<'static, StoreResult<StorePath>> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&StorePath>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&StorePath>) -> StoreResult<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &StorePath, to: &StorePath, options: CopyOptions) -> StoreResult<()> {
        self.store.copy_opts(from, to, options).await
    }
}

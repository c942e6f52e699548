//! An object store of a cloud, which renews the credentials that it refuses, and says what to do where none serve.
//!
//! A request that is refused is made once more with new credentials, if somebody gives such. So are listings that have given nothing yet.
//! Parts of uploads and removals are not: they come right after requests that were not refused.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Future, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::error::refusal::AccessProblem;
use crate::storage::credentials::{Renewal, through_storage};

/// An object store of a cloud. What it is made with is not printed.
pub(super) struct RemoteStore {
    inner: Arc<dyn ObjectStore>,
    access: Arc<Access>,
}

/// How a place is reached.
struct Access {
    /// The place: scheme and bucket.
    place: String,
    renewal: Option<Arc<Renewal>>,
}

impl RemoteStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, place: &str, renewal: Option<Arc<Renewal>>) -> Self {
        Self { inner, access: Arc::new(Access { place: place.to_owned(), renewal }) }
    }

    /// A listing that begins again if its beginning is refused.
    fn listing<F>(&self, list: F) -> BoxStream<'static, Result<ObjectMeta>>
    where
        F: Fn(&Arc<dyn ObjectStore>) -> BoxStream<'static, Result<ObjectMeta>> + Send + 'static,
    {
        let (access, inner) = (Arc::clone(&self.access), Arc::clone(&self.inner));
        let begun = async move {
            let renewals = access.renewals();
            let mut listed = list(&inner);
            match listed.next().await {
                None => stream::empty().boxed(),
                Some(Ok(first)) => stream::once(async { Ok(first) }).chain(access.explained(listed)).boxed(),
                Some(Err(error)) => match access.is_renewed(&error, renewals).await {
                    Ok(true) => access.explained(list(&inner)),
                    Ok(false) => access.explained(stream::once(async { Err(error) }).chain(listed).boxed()),
                    Err(failed) => stream::once(async { Err(failed) }).boxed(),
                },
            }
        };
        stream::once(begun).flatten().boxed()
    }
}

impl Access {
    /// How often there were new credentials until now.
    fn renewals(&self) -> u64 {
        self.renewal.as_ref().map_or(0, |renewal| renewal.renewals())
    }

    /// Makes a request, and makes it once more with new credentials if those that it had are refused.
    async fn request<T, F>(&self, make: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let renewals = self.renewals();
        let error = match make().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if self.is_renewed(&error, renewals).await? {
            return make().await.map_err(|error| self.explain(error));
        }
        Err(self.explain(error))
    }

    /// Whether there are new credentials for a request that failed with this error.
    async fn is_renewed(&self, error: &Error, renewals: u64) -> Result<bool> {
        let Some(renewal) = &self.renewal else { return Ok(false) };
        if AccessProblem::of(error, &self.place).is_none() {
            return Ok(false);
        }
        renewal.after_refusal(renewals).await.map_err(through_storage)?;
        Ok(true)
    }

    /// What an error means for somebody who has to do something about it.
    fn explain(&self, error: Error) -> Error {
        AccessProblem::of(&error, &self.place).map_or(error, AccessProblem::into_storage)
    }

    fn explained<T: 'static>(
        self: &Arc<Self>,
        answers: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let access = Arc::clone(self);
        answers.map(move |answer| answer.map_err(|error| access.explain(error))).boxed()
    }
}

impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.access.place)
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteStore").field(&self.access.place).finish()
    }
}

#[async_trait::async_trait]
impl ObjectStore for RemoteStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.access.request(|| self.inner.get_opts(location, options.clone())).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.access.request(|| self.inner.get_ranges(location, ranges)).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned();
        self.listing(move |inner| inner.list(prefix.as_ref()))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        self.listing(move |inner| inner.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.access.request(|| self.inner.list_with_delimiter(prefix)).await
    }

    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.access.request(|| self.inner.put_opts(location, payload.clone(), options.clone())).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.access.request(|| self.inner.put_multipart_opts(location, options.clone())).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.access.explained(self.inner.delete_stream(locations))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.access.request(|| self.inner.copy_opts(from, to, options.clone())).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.access.request(|| self.inner.rename_opts(from, to, options.clone())).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::BoxFuture;
    use futures::{FutureExt, TryStreamExt};
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::storage::credentials::{Credential, CredentialSource, TemporaryCredential};
    use crate::storage::secret::Secret;

    /// How often credentials were renewed, and requests made.
    #[derive(Debug, Default)]
    struct Counts {
        renewals: AtomicU64,
        requests: AtomicU64,
    }

    /// Refuses requests until credentials were renewed so often.
    #[derive(Debug)]
    struct Refusing {
        inner: Arc<InMemory>,
        counts: Arc<Counts>,
        wanted: u64,
    }

    impl Refusing {
        fn check(&self) -> Result<()> {
            self.counts.requests.fetch_add(1, Ordering::SeqCst);
            if self.counts.renewals.load(Ordering::SeqCst) >= self.wanted {
                return Ok(());
            }
            Err(Error::PermissionDenied { path: "p".to_owned(), source: "<Code>ExpiredToken</Code>".into() })
        }
    }

    impl fmt::Display for Refusing {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("refusing")
        }
    }

    #[async_trait::async_trait]
    impl ObjectStore for Refusing {
        async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
            self.check()?;
            self.inner.get_opts(location, options).await
        }

        fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
            match self.check() {
                Ok(()) => self.inner.list(prefix),
                Err(error) => stream::once(async { Err(error) }).boxed(),
            }
        }

        async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
            self.check()?;
            self.inner.list_with_delimiter(prefix).await
        }

        async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
            self.check()?;
            self.inner.put_opts(location, payload, options).await
        }

        async fn put_multipart_opts(
            &self,
            location: &Path,
            options: PutMultipartOptions,
        ) -> Result<Box<dyn MultipartUpload>> {
            self.check()?;
            self.inner.put_multipart_opts(location, options).await
        }

        fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
            self.inner.delete_stream(locations)
        }

        async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
            self.check()?;
            self.inner.copy_opts(from, to, options).await
        }
    }

    #[derive(Debug)]
    struct Counted(Arc<Counts>);

    impl CredentialSource for Counted {
        fn identity(&self) -> Secret {
            Secret::new("counted")
        }

        fn renew(&self) -> BoxFuture<'_, crate::error::Result<TemporaryCredential>> {
            self.0.renewals.fetch_add(1, Ordering::SeqCst);
            let credential = Credential::Bearer(Secret::new("b"));
            async move { Ok(TemporaryCredential { credential, expires: None }) }.boxed()
        }
    }

    struct Tried {
        store: RemoteStore,
        counts: Arc<Counts>,
    }

    impl Tried {
        /// A store with one file, `a`, which refuses until its credentials were renewed so often.
        async fn new(wanted: u64, is_renewed: bool) -> Self {
            let (inner, counts) = (Arc::new(InMemory::new()), Arc::new(Counts::default()));
            inner.put(&Path::from("a"), PutPayload::from_static(b"0123")).await.unwrap();
            let renewal = is_renewed.then(|| Arc::new(Renewal::new(Arc::new(Counted(Arc::clone(&counts))))));
            let refusing = Refusing { inner, counts: Arc::clone(&counts), wanted };
            Self { store: RemoteStore::new(Arc::new(refusing), "s3://lake", renewal), counts }
        }

        fn counted(&self) -> (u64, u64) {
            (self.counts.renewals.load(Ordering::SeqCst), self.counts.requests.load(Ordering::SeqCst))
        }
    }

    #[tokio::test]
    async fn a_request_that_is_refused_is_made_once_more_with_new_credentials() {
        let tried = Tried::new(1, true).await;
        assert_eq!(tried.store.get(&Path::from("a")).await.unwrap().bytes().await.unwrap().len(), 4);
        assert_eq!(tried.counted(), (1, 2));
        tried.store.head(&Path::from("a")).await.unwrap();
        assert_eq!(tried.counted(), (1, 3));
    }

    #[tokio::test]
    async fn listings_and_puts_are_made_once_more_too() {
        let tried = Tried::new(1, true).await;
        let listed: Vec<ObjectMeta> = tried.store.list(None).try_collect().await.unwrap();
        assert_eq!((listed.len(), tried.counted()), (1, (1, 2)));
        let tried = Tried::new(1, true).await;
        tried.store.put(&Path::from("b"), PutPayload::from_static(b"4")).await.unwrap();
        assert_eq!((tried.store.list_with_delimiter(None).await.unwrap().objects.len(), tried.counted()), (2, (1, 3)));
    }

    #[tokio::test]
    async fn who_is_refused_for_good_learns_what_to_do() {
        for (is_renewed, counted) in [(true, (1, 2)), (false, (0, 1))] {
            let tried = Tried::new(u64::MAX, is_renewed).await;
            let error = tried.store.get(&Path::from("a")).await.unwrap_err();
            assert!(
                crate::error::Error::from(error).to_string().starts_with("the credentials for s3://lake have expired")
            );
            assert_eq!(tried.counted(), counted);
            let listed: Result<Vec<ObjectMeta>> = tried.store.list(None).try_collect().await;
            assert!(listed.unwrap_err().to_string().contains("have expired"));
        }
    }

    #[tokio::test]
    async fn what_is_not_there_is_no_refusal() {
        let tried = Tried::new(0, true).await;
        assert!(matches!(tried.store.head(&Path::from("none")).await, Err(Error::NotFound { .. })));
        assert_eq!(tried.counted(), (0, 1));
    }
}

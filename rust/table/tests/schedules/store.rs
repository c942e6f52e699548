//! An object store whose every request waits for its turn, and is done at once then.

use std::fmt;
use std::ops::Range;
use std::path::Path as FsPath;
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::scheduler::{Actor, Doing};

type Work = Box<dyn FnOnce() + Send>;

/// A thread outside any runtime: what is done there is done when the call returns.
#[derive(Clone)]
pub struct Outside(Arc<Mutex<mpsc::Sender<Work>>>);

impl Outside {
    pub fn start() -> Self {
        let (sender, receiver) = mpsc::channel::<Work>();
        std::thread::spawn(move || receiver.into_iter().for_each(|work| work()));
        Self(Arc::new(Mutex::new(sender)))
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::sync_channel(1);
        self.0.lock().unwrap().send(Box::new(move || answer.send(work()).unwrap())).unwrap();
        answered.recv().unwrap()
    }
}

pub struct GatedStore {
    pub inner: Arc<dyn ObjectStore>,
    pub actor: Actor,
    pub outside: Outside,
    /// Files that are older by two hours than they say, for the actor that waited so long.
    pub aged: Option<Arc<Mutex<Vec<Path>>>>,
}

impl fmt::Debug for GatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gated {}", self.inner)
    }
}

impl fmt::Display for GatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gated {}", self.inner)
    }
}

fn generic(source: std::io::Error) -> Error {
    Error::Generic { store: "gated", source: Box::new(source) }
}

impl GatedStore {
    /// Waits for the turn, does it, and fails if that was decided.
    fn act<T: Send + 'static>(
        &self,
        doing: Doing,
        path: &Path,
        work: impl FnOnce(Arc<dyn ObjectStore>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let fails = self.actor.pass(doing, FsPath::new(path.as_ref())).map_err(generic)?;
        let inner = Arc::clone(&self.inner);
        let done = self.outside.run(move || work(inner))?;
        if fails { Err(generic(std::io::Error::from_raw_os_error(5))) } else { Ok(done) }
    }

    fn listed(&self, prefix: Option<&Path>, offset: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let (folder, after) = (prefix.cloned(), offset.cloned());
        let list = move |inner: Arc<dyn ObjectStore>| {
            block_on(async {
                match &after {
                    Some(after) => inner.list_with_offset(folder.as_ref(), after),
                    None => inner.list(folder.as_ref()),
                }
                .try_collect::<Vec<_>>()
                .await
            })
        };
        let place = prefix.cloned().unwrap_or_default();
        let mut first = self.act(Doing::List, &place, list.clone())?;
        let begun = self.actor.scheduler.now();
        self.actor.pass(Doing::ListEnd, FsPath::new(place.as_ref())).map_err(generic)?;
        if self.actor.scheduler.others_ran(self.actor.number, begun) {
            let inner = Arc::clone(&self.inner);
            let second = self.outside.run(move || list(inner))?;
            first = torn(first, second, begun.is_multiple_of(2));
        }
        first.sort_by(|a, b| a.location.cmp(&b.location));
        if let Some(aged) = &self.aged {
            let aged = aged.lock().unwrap();
            for meta in first.iter_mut().filter(|meta| aged.contains(&meta.location)) {
                meta.last_modified -= chrono::Duration::hours(2);
            }
        }
        Ok(first)
    }
}

/// A listing is not made at one instant: each name is looked for before or after what happened meanwhile.
fn torn(first: Vec<ObjectMeta>, second: Vec<ObjectMeta>, low_names_first: bool) -> Vec<ObjectMeta> {
    let mut names: Vec<Path> = first.iter().chain(&second).map(|meta| meta.location.clone()).collect();
    names.sort();
    names.dedup();
    let Some(middle) = names.get(names.len() / 2).cloned() else { return Vec::new() };
    let is_low = |meta: &ObjectMeta| meta.location < middle;
    let (early, late): (Vec<_>, Vec<_>) = (
        first.into_iter().filter(|meta| is_low(meta) == low_names_first).collect(),
        second.into_iter().filter(|meta| is_low(meta) != low_names_first).collect(),
    );
    early.into_iter().chain(late).collect()
}

#[async_trait::async_trait]
impl ObjectStore for GatedStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let place = path.clone();
        self.act(Doing::Put, path, move |inner| block_on(inner.put_opts(&place, payload, options)))
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let place = path.clone();
        self.act(Doing::Put, path, move |inner| block_on(inner.put_multipart_opts(&place, options)))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let (place, is_head) = (path.clone(), options.head);
        self.act(if is_head { Doing::Head } else { Doing::Get }, path, move |inner| {
            block_on(async {
                let found = inner.get_opts(&place, options).await?;
                let (meta, range, attributes) = (found.meta.clone(), found.range.clone(), found.attributes.clone());
                let bytes = if is_head { Bytes::new() } else { found.bytes().await? };
                let payload = GetResultPayload::Stream(stream::once(async { Ok(bytes) }).boxed());
                Ok(GetResult { payload, meta, range, attributes })
            })
        })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (place, ranges) = (path.clone(), ranges.to_vec());
        self.act(Doing::Get, path, move |inner| block_on(inner.get_ranges(&place, &ranges)))
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, actor, outside) = (Arc::clone(&self.inner), self.actor.clone(), self.outside.clone());
        let delete = move |path: Result<Path>| {
            let store = Self { inner: Arc::clone(&inner), actor: actor.clone(), outside: outside.clone(), aged: None };
            async move {
                let path = path?;
                let place = path.clone();
                store.act(Doing::Delete, &path, move |inner| block_on(inner.delete(&place)))?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        all(self.listed(prefix, None))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        all(self.listed(prefix, Some(offset)))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let folder = prefix.cloned();
        let place = folder.clone().unwrap_or_default();
        self.act(Doing::List, &place, move |inner| block_on(inner.list_with_delimiter(folder.as_ref())))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (from, place) = (from.clone(), to.clone());
        self.act(Doing::Put, to, move |inner| block_on(inner.copy_opts(&from, &place, options)))
    }
}

fn all(listed: Result<Vec<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
    match listed {
        Ok(listed) => stream::iter(listed.into_iter().map(Ok)).boxed(),
        Err(error) => stream::once(async { Err(error) }).boxed(),
    }
}

//! An object store that counts its operations, fails from a chosen one on, and loses the answer of a chosen put.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures::stream::{BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// How often others have their turn during a slow read.
const TURNS: usize = 20;

#[derive(Debug)]
pub struct Layer {
    inner: Arc<dyn ObjectStore>,
    log: Arc<Log>,
}

/// Operations so far, and which one fails.
#[derive(Debug)]
pub struct Log {
    pub operations: Mutex<Vec<String>>,
    count: AtomicU64,
    /// The operation of this number, from 1, and all later ones fail,
    pub fail_from: AtomicU64,
    /// up to this one, which does not.
    pub fail_until: AtomicU64,
    /// The operation of this number, from 1, fails.
    pub fail_at: AtomicU64,
    /// The next put of a file whose path has this part loses its answer.
    pub lose: Mutex<Option<(&'static str, Lost)>>,
    /// So many puts of such files are answered before.
    pub answered_before: AtomicU64,
    /// Puts that are still under way.
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
    /// Files have no entity tags.
    pub hide_tags: AtomicBool,
    /// All files were written then.
    pub time: Mutex<Option<DateTime<Utc>>>,
    /// Files whose path has this part were written so much earlier: claims, if nothing else is said, so that nobody waits for those that a
    /// failing storage left.
    pub aged: Mutex<Option<(&'static str, TimeDelta)>>,
    /// So many of the next listings of Delta logs leave out files whose path has this part, as one that is made while others commit.
    pub gaps: Mutex<(&'static str, u32)>,
    /// Reads of files whose path has this part fail, as on a disk with a bad sector. What there is of them is said all the same.
    pub unreadable: Mutex<Option<&'static str>>,
    /// Files whose path has this part cannot be deleted, as in a bucket that is written once.
    pub undeletable: Mutex<Option<&'static str>>,
    /// No file is written in the place of the version that somebody has seen, as where a policy or the storage allows it to nobody.
    pub fixed: AtomicBool,
    /// Files whose path has this part are written once: no put takes the place of one.
    pub written_once: Mutex<Option<&'static str>>,
    /// Reads of files whose path has this part wait until something is so.
    pub held: OnceLock<Hold>,
    /// Each read of ranges lets others begin before it is answered.
    pub is_slow: AtomicBool,
    /// How often such a read began while no other was under way: reads that wait for none of each other are one round.
    pub rounds: AtomicU64,
    /// Such reads that are under way.
    flying: AtomicU64,
    /// Called before each operation.
    pub hook: OnceLock<Hook>,
}

pub struct Hook(pub Box<dyn Fn() + Send + Sync>);

/// A part of paths, and what their reads wait for.
pub struct Hold(pub &'static str, pub Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold {}", self.0)
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// What becomes of a put whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It is done; an error comes back.
    Answered,
    /// It is done, the client asks once more by itself, and that is what is answered.
    Repeated,
    /// It is done; an error comes back, and whatever is asked for from then on fails.
    Silent,
    /// An error comes back; it is done when [`Log::arrive`] is called.
    Late,
}

impl Log {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            operations: Mutex::default(),
            count: AtomicU64::new(0),
            fail_from: AtomicU64::new(u64::MAX),
            fail_until: AtomicU64::new(u64::MAX),
            fail_at: AtomicU64::new(u64::MAX),
            lose: Mutex::default(),
            answered_before: AtomicU64::new(0),
            late: Mutex::default(),
            hide_tags: AtomicBool::new(false),
            time: Mutex::default(),
            aged: Mutex::new(Some((".claim", TimeDelta::minutes(5)))),
            gaps: Mutex::default(),
            unreadable: Mutex::default(),
            undeletable: Mutex::default(),
            fixed: AtomicBool::new(false),
            written_once: Mutex::default(),
            held: OnceLock::new(),
            is_slow: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            flying: AtomicU64::new(0),
            hook: OnceLock::new(),
        })
    }

    pub fn matching(&self, part: &str) -> Vec<String> {
        self.operations.lock().unwrap().iter().filter(|operation| operation.contains(part)).cloned().collect()
    }

    pub fn clear(&self) {
        self.operations.lock().unwrap().clear();
        self.count.store(0, Ordering::SeqCst);
        self.rounds.store(0, Ordering::SeqCst);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Lets puts arrive that are under way; says how many were done.
    pub async fn arrive(&self, at: &Arc<dyn ObjectStore>) -> usize {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        let mut done = 0;
        for (path, payload, options) in late {
            done += usize::from(at.put_opts(&path, payload, options).await.is_ok());
        }
        done
    }

    /// How the answer of this put is lost, if it is.
    fn loses(&self, path: &Path) -> Option<Lost> {
        let is_next = || {
            let counted = |left: u64| left.checked_sub(1);
            self.answered_before.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).is_err()
        };
        let mut lose = self.lose.lock().unwrap();
        lose.take_if(|(part, _)| path.as_ref().contains(*part) && is_next()).map(|(_, lost)| lost)
    }

    /// What this listing of a Delta log leaves out.
    fn gap(&self, prefix: &str) -> Option<&'static str> {
        let mut gaps = self.gaps.lock().unwrap();
        let (part, left) = *gaps;
        if !prefix.ends_with("_delta_log") {
            return None;
        }
        gaps.1 = left.saturating_sub(1);
        (left > 0).then_some(part)
    }

    /// What becomes of a read: it may have to wait, and fails where the file cannot be read.
    async fn read(&self, path: &Path) -> Result<()> {
        if let Some(Hold(part, is_free)) = self.held.get().filter(|Hold(part, _)| path.as_ref().contains(part)) {
            let start = Instant::now();
            while !is_free() {
                assert!(start.elapsed() < Duration::from_secs(60), "{part} is never read");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        match *self.unreadable.lock().unwrap() {
            Some(part) if path.as_ref().contains(part) => {
                Err(Error::Generic { store: "layer", source: "a bad sector".into() })
            }
            _ => Ok(()),
        }
    }

    /// Whether this read is a slow one: it is under way until it has landed.
    async fn take_off(&self) -> bool {
        if !self.is_slow.load(Ordering::SeqCst) {
            return false;
        }
        if self.flying.fetch_add(1, Ordering::SeqCst) == 0 {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        true
    }

    fn shown(&self, meta: ObjectMeta) -> ObjectMeta {
        let e_tag = meta.e_tag.clone().filter(|_| !self.hide_tags.load(Ordering::SeqCst));
        let written = self.time.lock().unwrap().unwrap_or(meta.last_modified);
        let last_modified = match *self.aged.lock().unwrap() {
            Some((part, age)) if meta.location.as_ref().contains(part) => written - age,
            _ => written,
        };
        ObjectMeta { e_tag, last_modified, ..meta }
    }

    fn note(&self, operation: &str, path: &str) -> Result<()> {
        self.operations.lock().unwrap().push(format!("{operation} {path}"));
        if let Some(Hook(hook)) = self.hook.get() {
            hook();
        }
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let failing = self.fail_from.load(Ordering::SeqCst)..self.fail_until.load(Ordering::SeqCst);
        if failing.contains(&number) || number == self.fail_at.load(Ordering::SeqCst) {
            let source = std::io::Error::new(std::io::ErrorKind::StorageFull, "No space left on device");
            return Err(Error::Generic { store: "layer", source: Box::new(source) });
        }
        Ok(())
    }
}

impl Layer {
    pub fn over(inner: Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<dyn ObjectStore> {
        Arc::new(Self { inner, log: Arc::clone(log) })
    }
}

impl Layer {
    /// Fails where a put takes the place of a file that nobody may replace.
    async fn refuse(&self, path: &Path, options: &PutOptions) -> Result<()> {
        let is_fixed = matches!(options.mode, PutMode::Update(_)) && self.log.fixed.load(Ordering::SeqCst);
        let is_once = self.log.written_once.lock().unwrap().is_some_and(|part| path.as_ref().contains(part));
        if is_fixed || (is_once && self.inner.head(path).await.is_ok()) {
            let source = "nobody may write it again".into();
            return Err(Error::PermissionDenied { path: path.to_string(), source });
        }
        Ok(())
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer over {}", self.inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Layer {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.log.note("put", path.as_ref())?;
        self.refuse(path, &options).await?;
        let Some(lost) = self.log.loses(path) else { return self.inner.put_opts(path, payload, options).await };
        if lost == Lost::Late {
            self.log.late.lock().unwrap().push((path.clone(), payload, options));
            return Err(Error::Generic { store: "layer", source: "the answer was lost".into() });
        }
        self.inner.put_opts(path, payload.clone(), options.clone()).await?;
        if lost == Lost::Repeated {
            return self.inner.put_opts(path, payload, options).await;
        }
        if lost == Lost::Silent {
            self.log.fail_from.store(0, Ordering::SeqCst);
        }
        Err(Error::Generic { store: "layer", source: "the answer was lost".into() })
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.log.note("put_multipart", path.as_ref())?;
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.log.note(if options.head { "head" } else { "get" }, path.as_ref())?;
        if !options.head {
            self.log.read(path).await?;
        }
        let got = self.inner.get_opts(path, options).await?;
        Ok(GetResult { meta: self.log.shown(got.meta.clone()), ..got })
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.log.note("get_ranges", path.as_ref())?;
        self.log.read(path).await?;
        let is_flying = self.log.take_off().await;
        let got = self.inner.get_ranges(path, ranges).await;
        if is_flying {
            self.log.flying.fetch_sub(1, Ordering::SeqCst);
        }
        got
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let (inner, log) = (Arc::clone(&self.inner), Arc::clone(&self.log));
        let delete = move |path: Result<Path>| {
            let (inner, log) = (Arc::clone(&inner), Arc::clone(&log));
            async move {
                let path = path?;
                log.note("delete", path.as_ref())?;
                if log.undeletable.lock().unwrap().is_some_and(|part| path.as_ref().contains(part)) {
                    return Err(Error::Generic { store: "layer", source: "nobody may delete".into() });
                }
                inner.delete(&path).await.map(|()| path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.log.note("list", prefix.map_or("", |prefix| prefix.as_ref())) {
            Ok(()) => {
                let log = Arc::clone(&self.log);
                let gap = log.gap(prefix.map_or("", |prefix| prefix.as_ref()));
                let is_seen = move |meta: &Result<ObjectMeta>| {
                    let has_gap = |part| meta.as_ref().is_ok_and(|meta| meta.location.as_ref().contains(part));
                    futures::future::ready(!gap.is_some_and(has_gap))
                };
                self.inner.list(prefix).filter(is_seen).map(move |meta| meta.map(|meta| log.shown(meta))).boxed()
            }
            Err(error) => futures::stream::once(async move { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.log.note("list_with_delimiter", prefix.map_or("", |prefix| prefix.as_ref()))?;
        let listed = self.inner.list_with_delimiter(prefix).await?;
        let objects = listed.objects.into_iter().map(|meta| self.log.shown(meta)).collect();
        Ok(ListResult { objects, ..listed })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.log.note("copy", from.as_ref())?;
        self.inner.copy_opts(from, to, options).await
    }
}

//! What scans read that share pages, of files that count as written a moment ago: nobody remembers their footers from one scan to the next.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path as FsPath;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::{fmt, mem};

use async_trait::async_trait;
use chrono::DateTime;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::SessionConfig;
use futures::stream::BoxStream;
use futures::{StreamExt, poll};
use lakemark_datafusion::{LakemarkSession, PlanSharing};
use lakemark_table::{Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Notify;

use crate::fixture::{folder, rows, scans, text};
use crate::sharing::{sorted, taken};

/// What is read of files.
#[derive(Debug, Default)]
struct Reads {
    /// Where the ranges end that were read, by the name of the file.
    ends: Mutex<Vec<(String, u64)>>,
    is_held: AtomicBool,
    freed: Notify,
}

impl Reads {
    /// Reads wait from now on.
    fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    fn free(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        self.freed.notify_waiters();
    }

    async fn wait(&self) {
        loop {
            let freed = self.freed.notified();
            if !self.is_held.load(Ordering::SeqCst) {
                return;
            }
            freed.await;
        }
    }

    /// How often the footer of each file of a folder was read since this was asked last.
    fn footers(&self, folder: &FsPath) -> BTreeMap<String, usize> {
        let mut found = BTreeMap::new();
        for (name, end) in mem::take(&mut *self.ends.lock().unwrap()) {
            if end == fs::metadata(folder.join(&name)).unwrap().len() {
                *found.entry(name).or_default() += 1;
            }
        }
        found
    }
}

/// A store without tags whose files were written just now, whenever that is.
#[derive(Debug)]
struct YoungStore {
    inner: Arc<dyn ObjectStore>,
    reads: Arc<Reads>,
}

fn young(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta { last_modified: DateTime::from_timestamp(4_102_444_800, 0).unwrap(), e_tag: None, ..meta }
}

impl fmt::Display for YoungStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for YoungStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let range = options.range.clone();
        if range.is_some() {
            self.reads.wait().await;
        }
        let got = self.inner.get_opts(path, options).await?;
        if let Some(range) = range {
            let (name, end) = (path.filename().unwrap_or_default(), range.as_range(got.meta.size).unwrap().end);
            self.reads.ends.lock().unwrap().push((name.to_owned(), end));
        }
        Ok(GetResult { meta: young(got.meta.clone()), ..got })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix).map(|meta| meta.map(young)).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.inner.list_with_delimiter(prefix).await?;
        Ok(ListResult { objects: listed.objects.into_iter().map(young).collect(), ..listed })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A session that shares pages of a copy of a folder with young files, which it knows as `t`. How old local files are is asked of the system.
async fn session_of(folder: &FsPath, reads: &Arc<Reads>, partitions: usize) -> LakemarkSession {
    let files = InMemory::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        files.put(&Path::from_iter(["t", name]), fs::read(&path).unwrap().into()).await.unwrap();
    }
    let young: Arc<dyn ObjectStore> = Arc::new(YoungStore { inner: Arc::new(files), reads: Arc::clone(reads) });
    let layer = |_: Arc<dyn ObjectStore>| Arc::clone(&young);
    let table = Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap();
    let config = SessionConfig::new()
        .with_batch_size(50)
        .with_target_partitions(partitions)
        .with_extension(Arc::new(PlanSharing::sharing_always()));
    let session = LakemarkSession::with_config(config);
    session.register("t", table).await.unwrap();
    rows(&session, "SET lakemark.share = pages").await;
    session
}

#[tokio::test]
async fn a_scan_reads_the_footer_of_each_file_once() {
    let (folder, reads) = (folder(3), Arc::new(Reads::default()));
    let session = session_of(folder.path(), &reads, 1).await;
    let begin = async |sql: &str| session.sql(sql).await.unwrap().execute_stream().await.unwrap();
    let each = |times: usize| (0..3).map(|file| (format!("part-{file}.parquet"), times)).collect::<BTreeMap<_, _>>();
    let alone = begin("SELECT id, k, s FROM t WHERE abs(id) % 7 = 1").await;
    reads.footers(folder.path());
    taken(alone).await;
    assert_eq!(reads.footers(folder.path()), each(1));
    let mut one = begin("SELECT id, k, s FROM t WHERE abs(id) % 7 = 1").await;
    let other = begin("SELECT id, s, f FROM t WHERE abs(id) % 11 = 2").await;
    reads.footers(folder.path());
    one.next().await.unwrap().unwrap();
    taken(other).await;
    taken(one).await;
    assert_eq!(reads.footers(folder.path()), each(2));
}

/// Whoever polls a scan first begins it for all of its partitions.
#[tokio::test]
async fn a_partition_that_goes_while_its_scan_begins_leaves_that_to_the_others() {
    let (folder, reads) = (folder(2), Arc::new(Reads::default()));
    let session = session_of(folder.path(), &reads, 2).await;
    let sql = "SELECT id, k, s FROM t WHERE abs(id) % 7 = 1";
    let expected = sorted(rows(&session, sql).await);
    let frame = session.sql(sql).await.unwrap();
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.unwrap();
    let scan = Arc::clone(&scans(&plan)[0]);
    let mut partitions: Vec<_> = (0..scan.output_partitioning().partition_count())
        .map(|partition| scan.execute(partition, Arc::clone(&context)).unwrap())
        .collect();
    assert!(partitions.len() > 1);
    reads.hold();
    for partition in &mut partitions {
        assert!(poll!(partition.next()).is_pending());
    }
    drop(partitions.remove(0));
    reads.free();
    let mut found = Vec::new();
    for partition in &mut partitions {
        while let Some(batch) = partition.next().await {
            found.extend(text(&batch.unwrap()));
        }
    }
    assert_eq!(sorted(found), expected);
}

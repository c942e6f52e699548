//! What walks over links read, as JSON; `benchmarks/links.py` runs it.
//!
//! `link-reads walks FOLDER STORE out|in VIA START...`: what is reached from each start over links of a predicate, one start after the other.
//!
//! `link-reads paths FOLDER STORE TASKS QUERIES LENGTH NODES`: each of so many tasks makes so many queries, one after the other. A query begins
//! at a random node, and goes over a random link of it to the next one, until it has as many nodes as its length says.
//!
//! A read begins a new round if no other read is under way. For that walks read as slowly as from a disk, so that the reads of a round are under
//! way together, whatever the machine has in memory.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{Int64Type, UInt32Type};
use bytes::Bytes;
use futures::stream::BoxStream;
use lakemark_table::{LinkDirection, LinkMemoryLimit, Links, Table, TableOptions, WalkOptions};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

const MEMORY: u64 = 1 << 30;
const PAGE: u64 = 4096;
/// How long a slow read takes at least. Some take longer, as on a disk: the next one has begun when the last of 32 has ended.
const LATENCY: Duration = Duration::from_millis(4);
const LATENCIES: u64 = 8;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let found = match words.as_slice() {
        ["walks", folder, store, direction, via, starts @ ..] => {
            let direction = LinkDirection::from_name(direction).unwrap();
            let starts: Vec<i64> = starts.iter().map(|start| number(start)).collect();
            runtime.block_on(walks([folder, store], direction, number(via), &starts))
        }
        ["paths", folder, store, tasks, queries, length, nodes] => {
            let paths = Paths { queries: number(queries), length: number(length), nodes: number(nodes) };
            runtime.block_on(paths.followed([folder, store], number(tasks)))
        }
        _ => panic!("walks FOLDER STORE out|in VIA START..., or paths FOLDER STORE TASKS QUERIES LENGTH NODES"),
    };
    println!("{found}");
}

fn number(text: &str) -> i64 {
    text.parse().unwrap()
}

/// What is reached from each start.
async fn walks(place: [&str; 2], direction: LinkDirection, via: i64, starts: &[i64]) -> Value {
    let reads = Arc::new(Reads { is_slow: true, ..Reads::default() });
    let links = open(place, &["s", "p", "o"], &reads).await;
    let options = WalkOptions { via: Some(numbers([via])), direction, ..WalkOptions::default() };
    let mut walks = Vec::with_capacity(starts.len());
    for start in starts {
        reads.forget();
        let found = links.reach(&numbers([*start]), &options, &LinkMemoryLimit::new(MEMORY)).await.unwrap();
        let depths = found.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().values();
        walks.push(json!({
            "nodes": found.num_rows(),
            "depth": depths.last().copied().unwrap_or(0),
            "rounds": reads.rounds.load(Ordering::SeqCst),
            "reads": reads.reads.load(Ordering::SeqCst),
            "pages": reads.pages.load(Ordering::SeqCst),
            "pages_again": reads.pages_again.load(Ordering::SeqCst),
        }));
    }
    Value::Array(walks)
}

/// What each task does.
#[derive(Clone, Copy)]
struct Paths {
    queries: i64,
    length: i64,
    /// Nodes of the graph are numbers below this.
    nodes: i64,
}

impl Paths {
    /// What so many tasks read at once, and how long they take.
    async fn followed(self, place: [&str; 2], tasks: i64) -> Value {
        let reads = Arc::new(Reads::default());
        let links = open(place, &["s", "o"], &reads).await;
        reads.forget();
        let start = Instant::now();
        let running: Vec<_> =
            (0..tasks).map(|task| tokio::spawn(self.follow(Arc::clone(&links), task as u64))).collect();
        let mut visited = 0;
        for task in running {
            visited += task.await.unwrap();
        }
        json!({
            "visited": visited,
            "reads": reads.reads.load(Ordering::SeqCst),
            "wall_seconds": start.elapsed().as_secs_f64(),
        })
    }

    /// Makes the queries of a task; gives the number of nodes whose links were looked for.
    async fn follow(self, links: Arc<Links>, seed: u64) -> u64 {
        let (mut random, mut visited) = (StdRng::seed_from_u64(seed), 0);
        let options = WalkOptions::default();
        for _ in 0..self.queries {
            let mut node = random.random_range(0..self.nodes);
            for _ in 0..self.length {
                let memory = LinkMemoryLimit::new(MEMORY);
                let found = links.neighbours(&numbers([node]), &options, &memory).await.unwrap();
                visited += 1;
                let linked = found.column_by_name("node").unwrap().as_primitive::<Int64Type>().values();
                if linked.is_empty() {
                    break;
                }
                node = linked[random.random_range(0..linked.len())];
            }
        }
        visited
    }
}

fn numbers(numbers: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(numbers))
}

/// The links of a table, whose indexes are open.
async fn open([folder, store]: [&str; 2], columns: &[&str], reads: &Arc<Reads>) -> Arc<Links> {
    let layer = |inner: Arc<dyn ObjectStore>| -> Arc<dyn ObjectStore> {
        Arc::new(CountedStore { inner, reads: Arc::clone(reads) })
    };
    let options = TableOptions { store: Some(store.to_owned()), ..TableOptions::default() };
    let table = Table::open_layered(folder, options, &layer).await.unwrap();
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    Links::of(table.snapshot().await.unwrap(), &columns, MEMORY).await.unwrap()
}

/// Reads of ranges.
#[derive(Debug, Default)]
struct Reads {
    is_slow: bool,
    reads: AtomicU64,
    pages: AtomicU64,
    /// Pages that were read before, since the process began.
    pages_again: AtomicU64,
    rounds: AtomicU64,
    under_way: AtomicU64,
    seen: Mutex<HashSet<(String, u64)>>,
}

impl Reads {
    /// Counts from the beginning.
    fn forget(&self) {
        for counter in [&self.reads, &self.pages, &self.pages_again, &self.rounds] {
            counter.store(0, Ordering::SeqCst);
        }
    }

    async fn begin(&self, path: &Path, ranges: &[Range<u64>]) {
        let number = self.reads.fetch_add(ranges.len() as u64, Ordering::SeqCst);
        if self.under_way.fetch_add(1, Ordering::SeqCst) == 0 {
            self.rounds.fetch_add(1, Ordering::SeqCst);
        }
        if !self.is_slow {
            return;
        }
        {
            let mut seen = self.seen.lock().unwrap();
            for page in ranges.iter().flat_map(|range| range.start / PAGE..range.end.div_ceil(PAGE)) {
                let is_new = seen.insert((path.to_string(), page));
                let counter = if is_new { &self.pages } else { &self.pages_again };
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
        tokio::time::sleep(LATENCY + Duration::from_millis(number % LATENCIES)).await;
    }

    fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A store whose reads of ranges are counted.
#[derive(Debug)]
struct CountedStore {
    inner: Arc<dyn ObjectStore>,
    reads: Arc<Reads>,
}

impl fmt::Display for CountedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "counted {}", self.inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for CountedStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.reads.begin(path, ranges).await;
        let read = self.inner.get_ranges(path, ranges).await;
        self.reads.end();
        read
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

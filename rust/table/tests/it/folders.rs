//! Which folders are listed to find the data files, by how many requests, and that the files are the same in any case.

use std::collections::BTreeSet;
use std::sync::Arc;

use lakemark_table::{Snapshot, Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{batch, folder, write};
use crate::layer::{Layer, Log};

/// Folders of one level that are listed one by one at most.
const MOST: usize = 128;

struct Remote {
    memory: Arc<dyn ObjectStore>,
    log: Arc<Log>,
    bytes: Vec<u8>,
}

impl Remote {
    fn new() -> Self {
        let folder = folder(1);
        let bytes = std::fs::read(folder.path().join("f0000.parquet")).unwrap();
        Self { memory: Arc::new(InMemory::new()), log: Log::new(), bytes }
    }

    async fn put(&self, path: &str) {
        self.memory.put(&Path::from(format!("t/{path}")), self.bytes.clone().into()).await.unwrap();
    }

    async fn open(&self) -> Arc<Table> {
        let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(&self.memory), &self.log);
        Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
    }

    /// The listings of data since the last time, in order.
    fn listings(&self) -> Vec<String> {
        let listings = listings(&self.log);
        self.log.clear();
        listings
    }
}

fn listings(log: &Log) -> Vec<String> {
    let mut found = log.matching("list");
    found.retain(|operation| operation.starts_with("list") && !operation.contains("/_lakemark"));
    found.sort();
    found
}

fn paths(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.files().iter().map(|file| file.path.as_str()).collect()
}

#[tokio::test]
async fn hidden_folders_of_an_object_store_are_not_entered() {
    let remote = Remote::new();
    for path in [
        "a.parquet",
        "deep/er/b.parquet",
        "deep/_temporary/0/c.parquet",
        ".hidden/d.parquet",
        "_lakemark/indexes/e.parquet",
        "_SUCCESS",
    ] {
        remote.put(path).await;
    }
    let table = remote.open().await;
    remote.log.clear();
    assert_eq!(paths(&table.snapshot().await.unwrap()), ["a.parquet", "deep/er/b.parquet"]);
    let expected = ["list_with_delimiter t", "list_with_delimiter t/deep", "list_with_delimiter t/deep/er"];
    assert_eq!(remote.listings(), expected);
    // A partition may be called as hidden folders are.
    let remote = Remote::new();
    remote.put("_p=1/a.parquet").await;
    remote.put("_p=2/b.parquet").await;
    assert_eq!(paths(&remote.open().await.snapshot().await.unwrap()), ["_p=1/a.parquet", "_p=2/b.parquet"]);
}

#[tokio::test]
async fn many_folders_of_an_object_store_are_listed_by_one_request() {
    let remote = Remote::new();
    for part in 0..MOST {
        remote.put(&format!("p={part:03}/f.parquet")).await;
    }
    let table = remote.open().await;
    remote.log.clear();
    assert_eq!(table.snapshot().await.unwrap().files().len(), MOST);
    assert_eq!(remote.listings().len(), MOST + 1);
    // One more.
    remote.put(&format!("p={MOST}/f.parquet")).await;
    let snapshot = table.snapshot().await.unwrap();
    let last = format!("p={MOST}/f.parquet");
    assert_eq!((snapshot.files().len(), paths(&snapshot).last()), (MOST + 1, Some(&last.as_str())));
    assert_eq!(remote.listings(), ["list t", "list_with_delimiter t"]);
    assert!(table.snapshot().await.unwrap().files().is_same_list(table.snapshot().await.unwrap().files()));
    // Where a level below has many, what is above is listed folder by folder.
    let remote = Remote::new();
    remote.put("_lakemark/indexes/x.parquet").await;
    for part in 0..=MOST {
        remote.put(&format!("year={}/day={part}/f.parquet", part % 2)).await;
    }
    let table = remote.open().await;
    remote.log.clear();
    assert_eq!(table.snapshot().await.unwrap().files().len(), MOST + 1);
    let each = ["list t/year=0", "list t/year=1", "list_with_delimiter t"];
    let levels = ["list_with_delimiter t/year=0", "list_with_delimiter t/year=1"];
    assert_eq!(remote.listings(), [&each[..], &levels[..]].concat());
}

#[tokio::test]
async fn files_of_an_object_store_are_those_of_a_plain_listing() {
    let mut random = StdRng::seed_from_u64(11);
    for round in 0..20 {
        let remote = Remote::new();
        let mut wanted = BTreeSet::new();
        let width = if round % 2 == 0 { 3 } else { 200 };
        for _ in 0..120 {
            let names = ["a", "b-c", "b", "_h", ".h", "x y", "50%"];
            let depth = random.random_range(0..4);
            let mut parts: Vec<String> = (0..depth)
                .map(|_| format!("{}{}", names[random.random_range(0..names.len())], random.random_range(0..width)))
                .collect();
            parts.push(["f.parquet", "g.PARQUET", "h.txt", "_i.parquet"][random.random_range(0..4)].to_owned());
            let place = parts.iter().fold(Path::from("t"), |path, part| path.join(part.as_str()));
            remote.memory.put(&place, remote.bytes.clone().into()).await.unwrap();
            let is_hidden = parts.iter().any(|part| part.starts_with(['_', '.']));
            if !is_hidden && parts.last().unwrap().to_ascii_lowercase().ends_with(".parquet") {
                wanted.insert(place.as_ref().strip_prefix("t/").unwrap().to_owned());
            }
        }
        let table = remote.open().await;
        for _ in 0..2 {
            let snapshot = table.snapshot().await.unwrap();
            assert!(paths(&snapshot).into_iter().eq(wanted.iter().map(String::as_str)), "round {round}");
        }
    }
}

/// The layers around an object store see each request: what is known of a folder goes along with it.
#[tokio::test]
async fn each_local_folder_is_one_request_however_much_is_known_of_it() {
    let folder = folder(3);
    write(&folder.path().join("deep/f.parquet"), &batch(0, 10));
    write(&folder.path().join("_hidden/f.parquet"), &batch(0, 10));
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let root = folder.path().to_str().unwrap();
    let table = Table::open_layered(root, TableOptions::default(), &layer).await.unwrap();
    for _ in 0..3 {
        log.clear();
        assert_eq!(table.snapshot().await.unwrap().files().len(), 4);
        let root = root.trim_start_matches('/');
        let each = [format!("list_with_delimiter {root}"), format!("list_with_delimiter {root}/deep")];
        assert_eq!(listings(&log), each);
    }
}

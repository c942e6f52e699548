//! Which pieces are read for what, counted in requests and bytes, and what becomes of a damaged one.

use std::cell::Cell;
use std::sync::Arc;

use lakemark_format::{AddedFiles, AddedSchemas, ManifestChanges, ManifestEdit, ManifestFile, ManifestSegment};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::*;
use crate::metrics::Metrics;
use crate::storage::counting_store::counted;
use crate::storage::location::StorePlace;
use crate::storage::put_if_absent::PutOutcome;
use crate::store::transaction::tests::index;
use crate::store::transaction::{BuiltSegments, Edit, Replacement, commit};

/// Twenty parts of files, and 32 pages of paths.
const FILES: u32 = 20_000;
const PARTS: u64 = 20;
const PAGES: u64 = 32;

/// A store in memory.
struct Stored {
    memory: Arc<dyn ObjectStore>,
    /// The replay of its edits.
    newest: Manifest,
}

/// A process that uses the store, and counts its requests.
struct Process {
    store: Store,
    metrics: Arc<Metrics>,
    /// Reads and bytes that were looked at.
    seen: Cell<(u64, u64)>,
}

fn path(number: u32) -> String {
    format!("day={:03}/part-{number:08}-c000.snappy.parquet", number % 365)
}

fn file(number: u32) -> ManifestFile {
    ManifestFile {
        path: path(number),
        size: 1 << 20,
        modified_ns: 1,
        etag: Some(format!("{number:034x}")),
        footer_hash: 7,
        schema: 0,
        row_groups: vec![5],
        false_statistics: Vec::new(),
    }
}

fn segment(id: u8, files: impl IntoIterator<Item = u32>) -> ManifestSegment {
    let path = format!("indexes/{id}");
    ManifestSegment { id: [id; 16], index_id: [1; 16], path, length: 1, files: files.into_iter().collect() }
}

/// All files enter, with an index and a segment.
fn all_files() -> ManifestChanges {
    ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![vec![7]] },
        files_added: AddedFiles { first: 0, files: (0..FILES).map(file).collect() },
        indexes_added: vec![index(1)],
        segments_added: vec![segment(1, 0..FILES)],
        ..ManifestChanges::default()
    }
}

impl Stored {
    /// One edit with all files, and its checkpoint.
    async fn new() -> Self {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let mut stored = Self { memory, newest: Manifest::new([9; 16]) };
        stored.put(all_files()).await;
        let written = stored.process().store.put_checkpoint(stored.newest.to_checkpoint().unwrap()).await.unwrap();
        assert_eq!(written.pieces().len() as u64, PARTS + PAGES);
        stored
    }

    async fn put(&mut self, changes: ManifestChanges) {
        let (store_id, number) = (self.newest.store_id(), self.newest.number() + 1);
        let edit = ManifestEdit { store_id, number, created_ms: 1, checkpoint: 0, changes };
        assert!(matches!(self.process().store.put_edit(&edit).await.unwrap(), PutOutcome::Made));
        self.newest = self.newest.apply(&edit).unwrap();
    }

    /// A process that knows nothing yet.
    fn process(&self) -> Process {
        let metrics = Arc::new(Metrics::default());
        let object_store = counted(Arc::clone(&self.memory), &metrics);
        let place = StorePlace { text: "memory".to_owned(), prefix: Path::from("t"), local: None, object_store };
        Process { store: Store::new(place, Arc::clone(&metrics)), metrics, seen: Cell::default() }
    }

    fn place(&self, relative: &str) -> Path {
        self.process().store.object_path(relative)
    }

    /// Another byte in the middle of a piece.
    async fn flip(&self, id: PieceId) {
        let path = self.place(&piece_path(id));
        let mut bytes = self.memory.get(&path).await.unwrap().bytes().await.unwrap().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        self.memory.put(&path, PutPayload::from(bytes)).await.unwrap();
    }

    async fn remove(&self, relative: &str) {
        self.memory.delete(&self.place(relative)).await.unwrap();
    }
}

impl Process {
    async fn newest(&self) -> Arc<Manifest> {
        self.store.newest().await.unwrap().manifest.unwrap()
    }

    /// Reads and their bytes since the last time.
    fn read(&self) -> (u64, u64) {
        let all = (self.metrics.get.requests.get(), self.metrics.get.bytes.get());
        let seen = self.seen.replace(all);
        (all.0 - seen.0, all.1 - seen.1)
    }
}

fn paths(paths: &[String]) -> ManifestNeeds<'_> {
    ManifestNeeds::Paths(paths.iter().map(String::as_str).collect())
}

/// The pieces that tell a path: its page and its part.
async fn pieces_of(stored: &Stored, number: u32) -> [PieceId; 2] {
    let reader = stored.process();
    let manifest = reader.newest().await;
    let path = path(number);
    let page = manifest.missing_of_paths([path.as_str()]).remove(0).id();
    let files = [number].into_iter().collect();
    [page, manifest.missing_of_files(&files).remove(0).id()]
}

#[tokio::test]
async fn a_store_of_many_files_opens_by_its_root_and_one_file_takes_its_page_and_its_part() {
    let mut stored = Stored::new().await;
    let reader = stored.process();
    let manifest = reader.newest().await;
    let (requests, bytes) = reader.read();
    assert_eq!(requests, 1, "the root");
    assert!(bytes < 2_000, "{bytes} bytes of the root");
    assert_eq!((manifest.file_count(), manifest.is_live(FILES - 1)), (u64::from(FILES), true));
    let one = [path(7_000)];
    let manifest = reader.store.loaded(&manifest, &paths(&one)).await.unwrap();
    let (requests, bytes) = reader.read();
    assert_eq!(requests, 2, "the page and the part");
    assert!(bytes < 200_000, "{bytes} bytes of {FILES} files");
    assert_eq!(manifest.number_of(&one[0]), Ok(Some(7_000)));
    // Whoever comes later has what was read, with the edits that came meanwhile.
    stored.put(ManifestChanges { files_removed: [3].into_iter().collect(), ..ManifestChanges::default() }).await;
    let later = reader.store.newest_with(&paths(&one)).await.unwrap().manifest.unwrap();
    assert_eq!((later.number(), later.number_of(&one[0])), (2, Ok(Some(7_000))));
    assert_eq!(reader.read().0, 1, "the edit");

    reader.store.loaded(&later, &ManifestNeeds::Files(Vec::new())).await.unwrap();
    let (requests, bytes) = reader.read();
    assert_eq!(requests, PARTS - 1, "all other parts, and no page");
    assert!(bytes > 1_500_000, "{bytes} bytes of {FILES} files");
    assert_eq!(later.files().map(Result::unwrap).count() as u32, FILES - 1);
}

#[tokio::test]
async fn a_damaged_piece_is_an_error_to_those_alone_who_ask_for_it() {
    for is_missing in [false, true] {
        let stored = Stored::new().await;
        let [page, part] = pieces_of(&stored, 7_000).await;
        let problem = match is_missing {
            true => {
                stored.remove(&piece_path(page)).await;
                format!("its piece checkpoint/{page}.lmp is missing")
            }
            false => {
                stored.flip(part).await;
                format!("its piece checkpoint/{part}.lmp is damaged")
            }
        };
        // Nothing else tells the state.
        stored.remove("manifest/00000000000000000001.lmm").await;
        let reader = stored.process();
        let manifest = reader.newest().await;
        let is_elsewhere = |path: &String| manifest.missing_of_paths([path.as_str()])[0].id() != page;
        let sound = [(0..1_000).map(path).find(is_elsewhere).unwrap()];
        reader.store.loaded(&manifest, &paths(&sound)).await.unwrap();
        let damaged = [path(7_000)];
        for needs in [paths(&damaged), ManifestNeeds::Everything] {
            let error = reader.store.loaded(&manifest, &needs).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("the checkpoint 1 in memory is damaged"), "{error}");
            assert!(error.to_string().contains(&problem), "{error}");
        }
        assert_eq!(reader.newest().await.number(), 1);
    }
}

#[tokio::test]
async fn a_damaged_piece_costs_reads_where_older_files_tell_the_same() {
    let stored = Stored::new().await;
    let [_, part] = pieces_of(&stored, 7_000).await;
    stored.flip(part).await;
    let reader = stored.process();
    let manifest = reader.newest().await;
    let again = reader.store.loaded(&manifest, &ManifestNeeds::Files(Vec::new())).await.unwrap();
    assert_eq!((again.number(), again.checkpoint()), (1, 0), "told from the edit");
    assert_eq!(again.file(7_000).unwrap().unwrap().path, path(7_000));
    // It is remembered in place of the other one.
    assert!(Arc::ptr_eq(&reader.newest().await, &again));
}

#[tokio::test]
async fn a_manifest_is_not_told_from_the_files_of_another_store() {
    let mut stored = Stored::new().await;
    let reader = stored.process();
    let manifest = reader.newest().await;
    // The store is deleted and begun again, and comes to the same number.
    let all: Vec<_> = stored.memory.list(None).try_collect().await.unwrap();
    for object in all {
        stored.memory.delete(&object.location).await.unwrap();
    }
    stored.newest = Manifest::new([8; 16]);
    stored.put(all_files()).await;
    let error = reader.store.loaded(&manifest, &ManifestNeeds::Files(Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let newest = reader.newest().await;
    assert_eq!((newest.number(), newest.store_id()), (manifest.number(), [8; 16]));
}

/// What the writer of a checkpoint reads and writes is what changed.
#[tokio::test]
async fn a_checkpoint_shares_pieces_that_nobody_read() {
    let mut stored = Stored::new().await;
    let touched = ManifestFile { modified_ns: 2, ..file(7_000) };
    stored.put(ManifestChanges { files_changed: vec![(7_000, touched)], ..ManifestChanges::default() }).await;
    let writer = stored.process();
    let manifest = writer.newest().await;
    assert_eq!(writer.read().0, 2, "the root and the edit");
    let written = writer.store.write_checkpoint(&manifest, 1).await.unwrap();
    assert_eq!(writer.read().0, 1, "the part of the file");
    assert_eq!(writer.metrics.put.requests.get(), 2, "the part and the root");
    let replayed = stored.newest.to_checkpoint().unwrap();
    assert_eq!(written.pieces(), replayed.manifest.pieces());
    let root = stored.memory.get(&stored.place("manifest/00000000000000000002.lmk")).await.unwrap();
    assert_eq!(root.bytes().await.unwrap(), replayed.root);
}

#[tokio::test]
async fn a_checkpoint_has_no_piece_that_is_gone() {
    let mut stored = Stored::new().await;
    let [page, part] = pieces_of(&stored, 7_000).await;
    stored.put(ManifestChanges::default()).await;
    for gone in [page, part] {
        stored.remove(&piece_path(gone)).await;
        let writer = stored.process();
        let manifest = writer.newest().await;
        writer.store.write_checkpoint(&manifest, 1).await.unwrap();
        let reader = stored.process();
        let manifest = reader.newest().await;
        assert_eq!(manifest.checkpoint(), 2);
        assert!(Arc::ptr_eq(&manifest, &reader.store.loaded(&manifest, &ManifestNeeds::Everything).await.unwrap()));
        stored.remove("manifest/00000000000000000002.lmk").await;
    }
}

/// A segment over the file 7,000, as it is built.
fn built(id: u8) -> BuiltSegments {
    BuiltSegments {
        schemas: vec![vec![7]],
        files: vec![file(7_000)],
        segments: vec![ManifestSegment { index_id: [2; 16], ..segment(id, [0]) }],
        ..BuiltSegments::default()
    }
}

#[tokio::test]
async fn a_commit_reads_the_pieces_of_its_paths_and_all_files_where_some_leave() {
    let stored = Stored::new().await;
    for id in [8, 9] {
        let path = stored.place(&format!("indexes/{id}"));
        stored.memory.put(&path, PutPayload::from_static(b"9")).await.unwrap();
    }
    let drop_index = |name: &str| Edit::DropIndex { name: name.to_owned(), if_exists: false };
    let replacement = Replacement { replaced: vec![[9; 16]], built: built(8) };
    let writer = stored.process();
    for (edit, reads, what) in [
        (Edit::CreateIndex { index: index(2), if_not_exists: false }, 1, "the root"),
        (Edit::AddSegments(built(9)), 1 + 2, "the edit before, a page and a part"),
        (Edit::ReplaceSegments(vec![replacement]), 1, "the edit before"),
        // Another segment has the file, so that it stays.
        (drop_index("i2"), 1, "the edit before"),
        (drop_index("i1"), 1 + PARTS - 1, "the edit before, and all other parts"),
    ] {
        assert!(commit(&writer.store, &edit).await.unwrap().changed, "{edit:?}");
        assert_eq!(writer.read().0, reads, "{what}");
    }
    let left = writer.newest().await;
    assert_eq!((left.number(), left.file_count(), left.schemas().len()), (6, 0, 0));
}

//! A table in an object store in memory, which every test has for itself.

use std::sync::Arc;

use lakemark_table::{Table, TableOptions};
use object_store::memory::InMemory;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use crate::fixture::folder;
use crate::layer::{Layer, Log};

/// So many files of [`folder`] in memory.
pub async fn in_memory(files: usize) -> Arc<dyn ObjectStore> {
    let folder = folder(files);
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for file in 0..files {
        let name = format!("f{file:04}.parquet");
        let bytes = std::fs::read(folder.path().join(&name)).unwrap();
        memory.put(&StorePath::from(format!("t/{name}")), PutPayload::from(bytes)).await.unwrap();
    }
    memory
}

/// The table, through a layer of its own.
pub async fn open_in(memory: &Arc<dyn ObjectStore>, log: &Arc<Log>) -> Arc<Table> {
    let layer = |_: Arc<dyn ObjectStore>| Layer::over(Arc::clone(memory), log);
    Table::open_layered("memory:///t", TableOptions::default(), &layer).await.unwrap()
}

/// How many segments were put.
pub fn segment_puts(log: &Log) -> usize {
    log.matching("/indexes/").iter().filter(|operation| operation.starts_with("put ")).count()
}

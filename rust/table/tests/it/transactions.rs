//! Several builders and declarations at once: none is lost, and edits are written once.

use std::sync::Arc;

use lakemark_table::{BuildOptions, ErrorKind, ProbeOptions, Table, TableOptions};
use object_store::ObjectStore;

use crate::fixture::{create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, spec};
use crate::layer::{Layer, Log};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_builders_at_once_both_succeed_and_nothing_is_lost() {
    let folder = folder(4);
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    one.create_index(spec("k"), false).await.unwrap();
    one.create_index(spec("s"), false).await.unwrap();
    let only = |name: &str| BuildOptions { index: Some(name.to_owned()), ..BuildOptions::default() };
    let (a, b, c) = tokio::join!(one.build(only("k_bitmap")), two.build(only("s_bitmap")), two.build(only("k_bitmap")));
    a.unwrap();
    b.unwrap();
    c.unwrap();
    let snapshot = one.snapshot().await.unwrap();
    assert_eq!(snapshot.indexes().iter().map(|index| index.coverage).collect::<Vec<_>>(), [1.0, 1.0]);
    // The slower builder of the same index found its files covered; its segment is not kept.
    assert_eq!(snapshot.indexes()[0].segments, 1);
    assert_eq!(std::fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().count(), 2);
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[2]), rows_of(&k_values(500, 250), 3));
    assert!(one.verify().await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_declarations_at_once_all_count_and_one_name_is_given_once() {
    let folder = folder(1);
    let mut tasks = tokio::task::JoinSet::new();
    for place in 0..12 {
        let table = open(folder.path()).await;
        let name = format!("i{}", place % 6);
        tasks.spawn(async move {
            let spec = lakemark_table::IndexSpec { name: Some(name), ..spec("k") };
            table.create_index(spec, false).await.map_err(|error| error.kind())
        });
    }
    let done = tasks.join_all().await;
    assert_eq!(done.iter().filter(|result| **result == Ok(true)).count(), 6);
    assert_eq!(done.iter().filter(|result| **result == Err(ErrorKind::AlreadyExists)).count(), 6);
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    assert_eq!((snapshot.indexes().len(), snapshot.manifest_number()), (6, Some(6)));
}

#[tokio::test]
async fn law_4_edits_are_written_once_and_their_number_grows() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let manifests = folder.path().join("_lakemark/manifest");
    let read = || {
        let mut files: Vec<_> = std::fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
            .into_iter()
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
            .collect::<Vec<_>>()
    };
    let before = read();
    assert_eq!(
        before.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["00000000000000000001.lmm", "00000000000000000002.lmm"]
    );
    table.create_index(spec("s"), false).await.unwrap();
    let after = read();
    assert_eq!(after[..2], before[..]);
    assert_eq!(after[2].0, "00000000000000000003.lmm");
}

#[tokio::test]
async fn an_index_dropped_while_it_is_built_leaves_nothing_behind() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    table.drop_index("k_bitmap", false).await.unwrap();
    // A reader of the older snapshot loses its indexes, not its answer.
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(found.files.len(), 2);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn opening_an_indexed_table_of_1000_files_reads_its_edits_at_once() {
    let folder = tempfile::tempdir().unwrap();
    crate::fixture::write(&folder.path().join("f0000.parquet"), &crate::fixture::batch(0, 10));
    for file in 1..1000 {
        std::fs::copy(folder.path().join("f0000.parquet"), folder.path().join(format!("f{file:04}.parquet"))).unwrap();
    }
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let table = Table::open_layered(folder.path().to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!(snapshot.files().len(), 1000);
    assert_eq!(snapshot.indexes()[0].coverage, 1.0);
    // One listing and two edits; no data file is opened, its schema is in the manifest.
    assert_eq!(log.matching("_lakemark").len(), 3, "{:?}", log.matching("_lakemark"));
    assert_eq!(log.matching("parquet"), Vec::<String>::new());
    assert_eq!(log.count(), 4);
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[999]), [3]);
    assert_eq!(found.report.files_pruned, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_can_run_in_a_task_of_its_own() {
    let folder = folder(2);
    let path = folder.path().to_str().unwrap().to_owned();
    let count = tokio::spawn(async move {
        let table = Table::open_alone(&path, TableOptions::default()).await?;
        table.create_index(spec("k"), false).await?;
        table.build(BuildOptions::default()).await?;
        assert!(table.verify().await?.is_ok());
        let options = ProbeOptions { count_only: true, ..ProbeOptions::default() };
        let found = table.snapshot().await?.probe(&equals("k", 3), &options).await?;
        Ok::<_, lakemark_table::Error>(found.report.rows_exact)
    });
    assert_eq!(count.await.unwrap().unwrap(), rows_of(&k_values(0, 500), 3).len() as u64);
}

//! What a snapshot costs after a change: what was there before is laid once.

use lakemark_table::Operation;

use super::{batch, folder, keyed, keys, make, numbers, row, rows};
use crate::fixture::open;

/// The rows of the buffer that were there before are the same arrays, and not merged anew; a buffer that has grown by a part is.
#[tokio::test]
async fn a_snapshot_after_a_change_takes_the_buffer_as_it_was() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let many: Vec<_> = (1000..6000).map(|key| (key, Some(1), Some("many"))).collect();
    make(&table, Operation::Upsert, batch(&many)).await.unwrap();
    let before = table.snapshot().await.unwrap();
    let first = |snapshot: &lakemark_table::Snapshot| snapshot.buffered_rows().unwrap().batches[0].column(2).to_data();
    make(&table, Operation::Upsert, batch(&[(7, Some(7), Some("new"))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[8])).await.unwrap();
    let after = table.snapshot().await.unwrap();
    assert!(first(&after).ptr_eq(&first(&before)));
    let counts = |snapshot: &lakemark_table::Snapshot| {
        let buffered = snapshot.buffered_rows().unwrap();
        (buffered.batches.len(), buffered.row_count(), snapshot.deleted_rows())
    };
    assert_eq!((counts(&before), counts(&after)), ((1, 5000, 0), (2, 5001, 1)));
    // More than a quarter of it is new.
    let more: Vec<_> = (6000..8000).map(|key| (key, Some(1), Some("more"))).collect();
    make(&table, Operation::Upsert, batch(&more)).await.unwrap();
    let grown = table.snapshot().await.unwrap();
    assert_eq!(counts(&grown).1, 7001);
    assert!(!first(&grown).ptr_eq(&first(&before)));
}

/// Changes that are laid over the buffer: of keys that it has, in parts of a row, and taken back.
#[tokio::test]
async fn changes_over_the_buffer_win() {
    let folder = folder();
    let table = keyed(folder.path()).await;
    let many: Vec<_> = (1000..1200).map(|key| (key, Some(1), Some("many"))).collect();
    make(&table, Operation::Upsert, batch(&many)).await.unwrap();
    make(&table, Operation::Update, numbers(&[(2, Some(20)), (3, Some(30))])).await.unwrap();
    assert_eq!(rows(&table).await.len(), 500);
    make(&table, Operation::Update, numbers(&[(1000, Some(2)), (2, Some(21)), (3, Some(31)), (4, Some(40))]))
        .await
        .unwrap();
    make(&table, Operation::Delete, keys(&[1001, 6])).await.unwrap();
    rows(&table).await;
    make(&table, Operation::Upsert, batch(&[(1001, Some(3), Some("again"))])).await.unwrap();
    make(&table, Operation::Update, numbers(&[(6, Some(60)), (1002, Some(4))])).await.unwrap();
    make(&table, Operation::Delete, keys(&[1002, 3])).await.unwrap();
    for _ in 0..2 {
        for table in [&table, &open(folder.path()).await] {
            let now = rows(table).await;
            let of = |key: i64| now.get(&key).cloned();
            assert_eq!((of(1000), of(1001), of(1002)), (Some(row(2, "many")), Some(row(3, "again")), None));
            assert_eq!((of(2), of(3), of(4), of(6)), (Some(row(21, "base")), None, Some(row(40, "base")), None));
            assert_eq!(now.len(), 498);
        }
        table.flush().await.unwrap();
    }
}

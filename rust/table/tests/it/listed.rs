//! Snapshots of a table whose listing and manifest are the same share what follows from them; any difference in either is seen.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use lakemark_table::{FileProbe, Snapshot};

use crate::fixture::{batch, create_indexes, equals, exact_rows, folder, k_values, open, probe, rows_of, write};

fn are_shared(one: &Snapshot, other: &Snapshot) -> bool {
    one.files().is_same_list(other.files())
}

fn known(snapshot: &Snapshot) -> Vec<bool> {
    snapshot.files().iter().map(|file| file.row_groups.is_some()).collect()
}

async fn found(snapshot: &Snapshot, value: i64) -> Vec<Vec<u32>> {
    let files = probe(snapshot, &equals("k", value)).await.files;
    let rows = |file: &FileProbe| if matches!(file, FileProbe::Unknown) { vec![u32::MAX] } else { exact_rows(file) };
    files.iter().map(rows).collect()
}

/// What was changed within a tick of the clock is not remembered.
async fn a_tick_later() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn snapshots_share_the_files_until_something_changes() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    a_tick_later().await;
    let (first, second) = (table.snapshot().await.unwrap(), table.snapshot().await.unwrap());
    assert!(are_shared(&first, &second));
    // A manifest: the same files with indexes.
    create_indexes(&table).await;
    let indexed = table.snapshot().await.unwrap();
    assert!(!are_shared(&first, &indexed));
    assert!(are_shared(&indexed, &table.snapshot().await.unwrap()));
    let expected = |file: usize| rows_of(&k_values(file * 250, 250), 3);
    assert_eq!(found(&indexed, 3).await, [expected(0), expected(1), expected(2)]);
    // Other rows under a name that was there: seen, and scanned.
    let path = folder.path().join("f0001.parquet");
    write(&path, &batch(7, 200));
    let replaced = table.snapshot().await.unwrap();
    assert_eq!(found(&replaced, 3).await, [expected(0), vec![u32::MAX], expected(2)]);
    // The old snapshot keeps what it had.
    assert_eq!(found(&indexed, 3).await, [expected(0), expected(1), expected(2)]);
    // A new time alone, a file more, a file less.
    let untouched = folder.path().join("f0002.parquet");
    let later = SystemTime::now() + Duration::from_secs(10);
    File::options().write(true).open(&untouched).unwrap().set_modified(later).unwrap();
    let touched = table.snapshot().await.unwrap();
    assert!(!are_shared(&replaced, &touched));
    assert_eq!(touched.files().get(2).unwrap().meta.last_modified, chrono_of(later));
    write(&folder.path().join("f0009.parquet"), &batch(0, 10));
    assert_eq!(table.snapshot().await.unwrap().files().len(), 4);
    fs::remove_file(&path).unwrap();
    a_tick_later().await;
    let last = table.snapshot().await.unwrap();
    let paths: Vec<&str> = last.files().iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["f0000.parquet", "f0002.parquet", "f0009.parquet"]);
    assert_eq!(known(&last), [true, true, true]);
    assert!(are_shared(&last, &table.snapshot().await.unwrap()));
}

fn chrono_of(time: SystemTime) -> chrono::DateTime<chrono::Utc> {
    time.into()
}

//! How long a migration takes beside a plain scan: `LAKEMARK_SPEED_ROWS=10000000 cargo test -p lakemark-table --release --test it
//! updates::speed -- --ignored --nocapture`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{BuildOptions, MigrateOptions, Operation};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::make;
use crate::fixture::open;

const VALUES: usize = 12;
const FILES: i64 = 4;

fn drawn(seed: u64) -> impl Iterator<Item = i64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as i64
    })
}

/// Records of about 100 bytes.
fn records(keys: Vec<i64>, seed: u64) -> RecordBatch {
    let rows = keys.len();
    let mut columns: Vec<(String, ArrayRef, bool)> = vec![("k".to_owned(), Arc::new(Int64Array::from(keys)), true)];
    let mut values = drawn(seed);
    for number in 0..VALUES {
        let column: Int64Array = values.by_ref().take(rows).collect::<Vec<_>>().into();
        columns.push((format!("v{number}"), Arc::new(column), true));
    }
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn write_table(root: &Path, rows: i64) {
    for file in 0..FILES {
        let keys = (file * rows / FILES..(file + 1) * rows / FILES).map(|key| key * 2).collect();
        let batch = records(keys, file as u64 + 1);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(1 << 20))
            .build();
        let path = root.join(format!("part-{file}.parquet"));
        let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// Seconds to decode every column of every file, files and row groups in turn on all cores.
fn scan(paths: &[std::path::PathBuf]) -> f64 {
    let started = Instant::now();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let tasks: Vec<(usize, usize)> = paths
        .iter()
        .enumerate()
        .flat_map(|(place, path)| {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
            (0..reader.metadata().num_row_groups()).map(move |group| (place, group))
        })
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, Into::into) {
            scope.spawn(|| {
                while let Some((place, group)) = tasks.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
                    let file = File::open(&paths[*place]).unwrap();
                    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                    let rows: usize = reader
                        .with_row_groups(vec![*group])
                        .build()
                        .unwrap()
                        .map(|batch| batch.unwrap().num_rows())
                        .sum();
                    assert!(rows > 0);
                }
            });
        }
    });
    started.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures; in a release build"]
async fn a_migration_beside_a_plain_scan() {
    let rows: i64 = std::env::var("LAKEMARK_SPEED_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    for clustered in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write_table(folder.path(), rows);
        let paths: Vec<_> = (0..FILES).map(|file| folder.path().join(format!("part-{file}.parquet"))).collect();
        let table = open(folder.path()).await;
        table.declare_key(&["k".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        // A third each is inserted, deleted and replaced: anywhere, or in the middle of the first row groups.
        let third = rows / 300;
        let places: Vec<i64> = match clustered {
            true => (1000..1000 + 2 * third).collect(),
            false => {
                let mut places: Vec<i64> =
                    drawn(7).map(|place| place.rem_euclid(rows)).take(2 * third as usize).collect();
                places.sort_unstable();
                places.dedup();
                places
            }
        };
        let (deleted, replaced): (Vec<i64>, Vec<i64>) = places.iter().copied().partition(|place: &i64| *place % 2 == 0);
        let delete = records(deleted.iter().map(|place| *place * 2).collect(), 1).project(&[0]).unwrap();
        make(&table, Operation::Delete, delete).await.unwrap();
        make(&table, Operation::Upsert, records(replaced.iter().map(|place| *place * 2).collect(), 8)).await.unwrap();
        make(&table, Operation::Upsert, records(places.iter().map(|place| place * 2 + 1).collect(), 9)).await.unwrap();
        table.flush().await.unwrap();
        scan(&paths);
        let plain = scan(&paths);
        let report = table.migrate(MigrateOptions::default()).await.unwrap();
        println!(
            "{rows} rows, {}: scan {plain:.3} s, migration {:.3} s, {:.1} times; {} files, {} bytes",
            if clustered { "clustered" } else { "random" },
            report.seconds,
            report.seconds / plain,
            report.files_written,
            report.bytes_written
        );
        assert_eq!(report.rows_replaced, places.len() as u64);
    }
}

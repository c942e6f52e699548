//! How often an update is written: bytes of the files that were written, counted while a cache is filled; and how.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use lakemark_table::{BuildOptions, ErrorKind, Operation, Table};
use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{batch, make};
use crate::fixture::{open, write};

/// Rows with keys all over, whose texts can be compressed.
fn drawn(random: &mut StdRng, count: usize) -> RecordBatch {
    let mut drawn: Vec<i64> = (0..count).map(|_| random.random_range(0..1 << 40)).collect();
    drawn.sort_unstable();
    drawn.dedup();
    let texts = drawn.iter().map(|key| format!("{:016x}{key:016x}", random.random::<u64>()));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let a: ArrayRef = Arc::new(drawn.iter().map(|key| (*key % 1000) as i32).collect::<Int32Array>());
    let k: ArrayRef = Arc::new(Int64Array::from(drawn));
    RecordBatch::try_from_iter([("k", k), ("a", a), ("s", s)]).unwrap()
}

/// The bytes of all runs that were ever written: runs that were merged stay until a vacuum.
fn run_bytes(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder.join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap());
    let runs = files.filter(|file| file.path().extension().is_some_and(|end| end == "lmr"));
    runs.map(|run| run.metadata().unwrap().len()).sum()
}

/// A table with a cache of M² pages of 512 bytes.
async fn with_cache(folder: &Path, m: u64, alpha: f64) -> Arc<Table> {
    write(&folder.join("f.parquet"), &batch(&[(-1, None, None)]));
    let table = open(folder).await;
    let options = [("page_bytes", "512".to_owned()), ("cache_bytes", (m * m * 512).to_string())];
    let mut options: BTreeMap<String, String> = options.map(|(name, value)| (name.to_owned(), value)).into();
    options.insert("alpha".to_owned(), alpha.to_string());
    table.declare_key(&["k".to_owned()], &options, BuildOptions::default()).await.unwrap();
    table
}

/// Theorem 3.2, in bytes, after each run of a cache that is filled until it takes no more.
#[tokio::test]
async fn a_byte_is_written_no_more_often_than_the_theorem_says() {
    const M: u64 = 40;
    for (alpha, calls_of) in [(1.0, 150), (1.25, 250), (1.5, 100), (2.0, 500)] {
        let folder = tempfile::tempdir().unwrap();
        let table = with_cache(folder.path(), M, alpha).await;
        let bound = 2.0 - 0.25 * alpha * alpha;
        let (mut random, mut known, mut filled) = (StdRng::seed_from_u64(7), 0, 0.0);
        let mut ratios = Vec::new();
        loop {
            if let Err(error) = make(&table, Operation::Upsert, drawn(&mut random, calls_of)).await {
                assert_eq!(error.kind(), ErrorKind::CacheFull);
                break;
            }
            let bytes = run_bytes(folder.path());
            if bytes == known {
                continue;
            }
            known = bytes;
            let info = table.updates_info().await.unwrap().unwrap();
            assert_eq!(bytes, info.flushed_bytes + info.merged_bytes);
            let writes = bytes as f64 / info.flushed_bytes as f64;
            assert!(writes <= bound, "alpha {alpha}, {:.0}% full: {writes}", info.cache_share * 100.0);
            let (runs, limit) = (info.runs.len() as u64, info.runs_limit);
            assert!(runs <= limit, "alpha {alpha}: {runs} runs of {limit}");
            // Pages of runs: nothing is counted that is not on the disk.
            let small = info.runs.iter().filter(|run| (run.bytes as f64) < 0.9 * 0.5 * alpha * M as f64 * 512.0);
            assert!(small.count() <= 1, "alpha {alpha}: {:?}", info.runs);
            filled = info.cache_share;
            ratios.push(writes);
        }
        assert!(filled > 0.95, "alpha {alpha}: {filled}");
        assert_eq!(alpha < 1.75, ratios.last().is_some_and(|writes| *writes > 1.0), "alpha {alpha}: {ratios:?}");
    }
}

/// A buffer is measured by the run that it becomes, and not by its log.
#[tokio::test]
async fn the_newest_run_tells_how_large_the_next_log_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let table = with_cache(folder.path(), 64, 1.0).await;
    let zeros = |first: i64| {
        let rows: Vec<_> = (first..first + 400).map(|key| (key, Some(0), Some("the same in every row"))).collect();
        batch(&rows)
    };
    let before = table.updates_info().await.unwrap().unwrap();
    assert_eq!((before.buffer_bytes, before.buffer_limit), (0, 64 * 512));
    let mut first = 0;
    while table.updates_info().await.unwrap().unwrap().runs.is_empty() {
        make(&table, Operation::Upsert, zeros(first)).await.unwrap();
        first += 400;
    }
    let info = table.updates_info().await.unwrap().unwrap();
    assert!(info.runs[0].bytes < 32 * 512, "{}", info.runs[0].bytes);
    assert!(info.buffer_limit > 2 * 63 * 512, "{}", info.buffer_limit);
    let limit = info.buffer_limit;
    // Others see the same.
    let other = open(folder.path()).await;
    assert_eq!(other.updates_info().await.unwrap().unwrap().buffer_limit, limit);
    while table.updates_info().await.unwrap().unwrap().runs.len() == 1 {
        make(&table, Operation::Upsert, zeros(first)).await.unwrap();
        first += 400;
    }
    let runs = table.updates_info().await.unwrap().unwrap().runs;
    assert!(runs[1].bytes > 2 * runs[0].bytes, "{runs:?}");
}

/// Every scan decodes a run: what would make that dear is not there.
#[tokio::test]
async fn a_run_has_dictionaries_of_values_that_repeat_and_of_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let table = with_cache(folder.path(), 4096, 1.0).await;
    let count = 5000;
    let k: ArrayRef = Arc::new((0..count).map(i64::from).collect::<Int64Array>());
    let a: ArrayRef = Arc::new((0..count).map(|key| key % 7).collect::<Int32Array>());
    let s: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|key| format!("text {key}"))));
    let changes = RecordBatch::try_from_iter([("k", k), ("a", a), ("s", s)]).unwrap();
    make(&table, Operation::Upsert, changes).await.unwrap();
    table.flush().await.unwrap();

    let files = std::fs::read_dir(folder.path().join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap().path());
    let runs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "lmr")).collect();
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    let reader = SerializedFileReader::new(File::open(run).unwrap()).unwrap();
    let mut with_dictionary = BTreeMap::new();
    for chunk in reader.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns) {
        assert_eq!(chunk.compression(), Compression::LZ4_RAW);
        let has = with_dictionary.entry(chunk.column_path().string()).or_insert(false);
        *has |= chunk.dictionary_page_offset().is_some();
    }
    assert_eq!(["k", "a", "s"].map(|column| with_dictionary[column]), [false, true, false]);
}

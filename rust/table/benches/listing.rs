//! What it takes to list a table beside a bare loop over names and files: `cargo bench -p lakemark-table --bench listing -- [FILES] [FOLDERS]`.
//!
//! ```text
//! bare          getdents, and fstatat for each name: nobody learns with less what changed
//! unchanged     a snapshot of a table that is what it was: the newest manifest and the listing
//! one more      a snapshot after a file more
//! ```
//!
//! Bare loops and snapshots take turns in one process. Times are medians of the rounds, in milliseconds.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::fs::{self, File};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_table::{Table, TableOptions};
use parquet::arrow::ArrowWriter;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, open, statat};

const ROUNDS: usize = 21;
/// No file counts as one that somebody may still be writing.
const SETTLED: Duration = Duration::from_millis(50);

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let files = numbers.first().copied().unwrap_or(50_000);
    let folders = numbers.get(1).copied().unwrap_or(1);
    let root = tempfile::tempdir().unwrap();
    let parts = write(root.path(), files, folders);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let table = Table::open_alone(root.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
        let first = time(async || snapshot(&table, files).await).await;
        std::thread::sleep(SETTLED);
        snapshot(&table, files).await;
        let (mut bare, mut unchanged, mut one_more) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(time(async || assert_eq!(bare_loop(&parts), files)).await);
            unchanged.push(time(async || snapshot(&table, files).await).await);
        }
        for round in 0..ROUNDS {
            fs::copy(parts[0].join("part-0.parquet"), parts[0].join(format!("more-{round}.parquet"))).unwrap();
            std::thread::sleep(SETTLED);
            one_more.push(time(async || snapshot(&table, files + round + 1).await).await);
        }
        let (bare, unchanged, one_more) = (median(bare), median(unchanged), median(one_more));
        println!("{files} files in {folders} folders, ms");
        println!("bare {bare:.2}, unchanged {unchanged:.2} ({:.2} times), one more {one_more:.2}", unchanged / bare);
        println!("the first snapshot, which reads all footers: {first:.0}");
    });
}

/// Writes so many equal files into so many partitions; one of them is the root itself.
fn write(root: &Path, files: usize, folders: usize) -> Vec<PathBuf> {
    let part = |folder: usize| if folders == 1 { root.to_owned() } else { root.join(format!("p={folder}")) };
    let parts: Vec<PathBuf> = (0..folders).map(part).collect();
    let model = root.join("_model");
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("k", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(&model).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for file in 0..files {
        let folder = &parts[file % folders];
        fs::create_dir_all(folder).unwrap();
        fs::copy(&model, folder.join(format!("part-{}.parquet", file / folders))).unwrap();
    }
    fs::remove_file(model).unwrap();
    parts
}

async fn snapshot(table: &Table, files: usize) {
    assert_eq!(black_box(table.snapshot().await.unwrap()).files().len(), files);
}

fn bare_loop(folders: &[PathBuf]) -> usize {
    let mut files = 0;
    for folder in folders {
        let opened = open(folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut buffer = Vec::with_capacity(64 * 1024);
        let mut names = RawDir::new(&opened, buffer.spare_capacity_mut());
        while let Some(entry) = names.next() {
            let stat = statat(&opened, entry.unwrap().file_name(), AtFlags::SYMLINK_NOFOLLOW).unwrap();
            files += usize::from(black_box(stat.st_mode) & 0o170_000 == 0o100_000);
        }
    }
    files
}

async fn time(work: impl AsyncFnOnce()) -> f64 {
    let start = Instant::now();
    work().await;
    start.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

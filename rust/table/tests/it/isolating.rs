//! Data files that cannot be read: a build names them with the reason and indexes the others, with which they share segments.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lakemark_table::{
    BuildOptions, BuildReport, ErrorKind, FileProbe, IndexKind, IndexSpec, Progress, Report, Table, TableOptions,
};
use object_store::ObjectStore;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::fixture::{
    batch, equals, exact_rows, folder, k_values, open, probe, rows_of, segments, spec, spec_with, write,
};
use crate::layer::{Layer, Log};
use crate::updates::lake::Lake;

const FILES: usize = 5;

fn path_of(folder: &Path, file: usize) -> PathBuf {
    folder.join(format!("f{file:04}.parquet"))
}

/// Writes over the pages of a column in one row group. The footer stays as it is.
fn corrupt(path: &Path, column: usize) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let (start, length) = reader.metadata().row_group(1).column(column).byte_range();
    let mut bytes = fs::read(path).unwrap();
    bytes[start as usize..(start + length) as usize].fill(0xff);
    fs::write(path, bytes).unwrap();
}

fn failed(report: &BuildReport) -> Vec<&str> {
    report.failed.iter().map(|finding| finding.path.as_str()).collect()
}

/// Of all files but these the index knows every row.
async fn check(table: &Table, left_out: &[usize]) {
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..FILES {
        if left_out.contains(&file) {
            assert_eq!(found.files[file], FileProbe::Unknown, "file {file}");
        } else {
            assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
        }
    }
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_corrupt_file_is_named_and_the_rest_of_its_group_is_indexed() {
    for (threads, memory_bytes) in [(Some(1), None), (None, None), (Some(2), Some(1))] {
        let folder = folder(FILES);
        corrupt(&path_of(folder.path(), 2), 0);
        let table = open(folder.path()).await;
        table.create_index(spec_with("k", "encoding", "equality"), false).await.unwrap();
        let options = BuildOptions { threads, memory_bytes, ..BuildOptions::default() };
        let report = table.build(options.clone()).await.unwrap();
        assert_eq!((report.files, report.rows, report.segments), (4, 1000, 1));
        assert_eq!(failed(&report), ["f0002.parquet"]);
        let problem = &report.failed[0].problem;
        assert!(problem.contains("the column k of the data file f0002.parquet cannot be read"), "{problem}");
        assert!(report.describe().to_string().contains("failed: f0002.parquet: "), "{}", report.describe());
        assert_eq!(segments(folder.path()).len(), 1, "no temporary file is left");
        check(&table, &[2]).await;
        // It is tried again, and alone.
        let report = table.build(options.clone()).await.unwrap();
        assert_eq!((report.files, report.segments, failed(&report)), (0, 0, vec!["f0002.parquet"]));
        assert!(report.describe().to_string().starts_with("built nothing"), "{}", report.describe());
        write(&path_of(folder.path(), 2), &batch(500, 250));
        let report = table.build(options).await.unwrap();
        assert_eq!((report.files, failed(&report)), (1, vec![]));
        check(&table, &[]).await;
    }
}

#[tokio::test]
async fn a_column_that_is_corrupt_costs_the_indexes_on_other_columns_nothing_where_each_has_its_task() {
    let folder = folder(FILES);
    corrupt(&path_of(folder.path(), 2), 1);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "encoding", "equality"), false).await.unwrap();
    table.create_index(spec_with("s", "encoding", "equality"), false).await.unwrap();
    let plan = table.plan_build(&BuildOptions::default(), 2).await.unwrap();
    let mut running = table.begin_build(plan, &BuildOptions::default()).unwrap();
    for (number, task) in running.tasks().to_vec().iter().enumerate() {
        let part = table.run_build_task(task, &BuildOptions::default()).await.unwrap();
        running.add(number, part).await.unwrap();
    }
    let report = running.finish().await.unwrap();
    assert_eq!((failed(&report), report.segments), (vec!["f0002.parquet"], 2));
    let covered: Vec<u64> = table.snapshot().await.unwrap().indexes().iter().map(|index| index.files_covered).collect();
    assert_eq!(covered, [5, 4]);
}

#[tokio::test]
async fn a_file_without_a_footer_is_named_and_the_others_are_indexed() {
    let folder = folder(FILES);
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    let path = path_of(folder.path(), 4);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(folder.path().join("g.parquet"), "no").unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.segments, failed(&report)), (4, 1, vec!["f0004.parquet", "g.parquet"]));
    let error = table.build(BuildOptions { max_failures: Some(1), ..BuildOptions::default() }).await.unwrap_err();
    assert!(error.to_string().contains("2 files cannot be indexed"), "{error}");
    // Queries need every file.
    assert_eq!(table.snapshot().await.unwrap_err().kind(), ErrorKind::Corrupt);
    fs::remove_file(folder.path().join("g.parquet")).unwrap();
    fs::write(&path, bytes).unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 1);
    check(&table, &[]).await;
}

/// A log says which columns there are, so that a snapshot needs no footer.
#[tokio::test]
async fn a_file_of_a_delta_table_without_a_footer_is_named_and_the_others_are_indexed() {
    let mut lake = Lake::new(&[("k", "k", "integer"), ("s", "s", "string")], false);
    let files = [0, 1, 2].map(|file| {
        write(&path_of(lake.root(), file), &batch(file * 250, 250));
        lake.adds(&format!("f{file:04}.parquet"))
    });
    lake.commit(&files);
    let table = open(lake.root()).await;
    table.create_index(spec_with("k", "encoding", "equality"), false).await.unwrap();
    let path = path_of(lake.root(), 1);
    let whole = fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    let end = bytes.len() - 4;
    bytes[end..].fill(0);
    fs::write(&path, bytes).unwrap();
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.segments, failed(&report)), (2, 1, vec!["f0001.parquet"]));
    assert!(report.failed[0].problem.contains("does not end as Parquet does"), "{:?}", report.failed);
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(found.files[1], FileProbe::Unknown);
    assert_eq!(exact_rows(&found.files[2]), rows_of(&k_values(500, 250), 3));
    fs::write(&path, whole).unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 1);
}

/// Does something when the build begins to read.
struct Meanwhile(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Progress for Meanwhile {
    fn start(&self, _total_rows: u64) {
        if let Some(act) = self.0.lock().unwrap().take() {
            act();
        }
    }
    fn advance(&self, _rows: u64) {}
    fn finish(&self) {}
}

#[tokio::test]
async fn files_that_vanish_or_change_are_named_and_the_others_are_indexed() {
    let folder = folder(FILES);
    let table = open(folder.path()).await;
    table.create_index(spec("k"), false).await.unwrap();
    let root = folder.path().to_owned();
    let act = move || {
        fs::remove_file(path_of(&root, 1)).unwrap();
        write(&path_of(&root, 3), &batch(9, 70));
    };
    let progress: Arc<dyn Progress> = Arc::new(Meanwhile(Mutex::new(Some(Box::new(act)))));
    let report = table.build(BuildOptions { progress: Some(progress), ..BuildOptions::default() }).await.unwrap();
    assert_eq!((report.files, report.segments, failed(&report)), (3, 1, vec!["f0001.parquet", "f0003.parquet"]));
    assert!(report.failed.iter().all(|finding| finding.problem.contains("changed or vanished")), "{report:?}");
    // Of what is gone nothing is left to do.
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.rows, failed(&report)), (1, 70, vec![]));
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].coverage, 1.0);
}

#[tokio::test]
async fn a_file_that_the_disk_cannot_read_is_named_and_the_others_are_indexed() {
    let folder = folder(FILES);
    open(folder.path()).await.create_index(spec("k"), false).await.unwrap();
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let location = folder.path().to_str().unwrap();
    let table = Table::open_layered(location, TableOptions::default(), &layer).await.unwrap();
    *log.unreadable.lock().unwrap() = Some("f0000.parquet");
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.segments, failed(&report)), (4, 1, vec!["f0000.parquet"]));
    assert!(report.failed[0].problem.contains("a bad sector"), "{:?}", report.failed);
    *log.unreadable.lock().unwrap() = None;
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().files, 1);
    check(&table, &[]).await;
}

#[tokio::test]
async fn more_failures_than_may_be_stop_the_build_and_what_is_finished_is_committed() {
    for commit_every in [Some(Duration::ZERO), None] {
        let folder = folder(FILES);
        for file in [1, 3] {
            corrupt(&path_of(folder.path(), file), 0);
        }
        let table = open(folder.path()).await;
        let one_each = IndexSpec {
            options: [("encoding", "equality"), ("files_per_segment", "1")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..spec("k")
        };
        table.create_index(one_each, false).await.unwrap();
        let build = |most| {
            let options = BuildOptions { max_failures: Some(most), commit_every, ..BuildOptions::default() };
            table.build(options)
        };
        let error = build(0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("1 files cannot be indexed, and no more than 0 may"), "{error}");
        assert!(error.to_string().contains("f0001.parquet"), "{error}");
        assert!(error.to_string().contains("2 of 5 tasks of the build are committed"), "{error}");
        assert_eq!(table.snapshot().await.unwrap().indexes()[0].files_covered, 1);
        let error = build(1).await.unwrap_err();
        assert!(error.to_string().contains("2 files cannot be indexed"), "{error}");
        assert_eq!(table.snapshot().await.unwrap().indexes()[0].files_covered, 2);
        let report = build(2).await.unwrap();
        assert_eq!((report.files, failed(&report)), (1, vec!["f0001.parquet", "f0003.parquet"]));
        check(&table, &[1, 3]).await;
    }
}

/// Filters of other densities are made from the column once more: a merge needs every file of its segments then.
#[tokio::test]
async fn a_merge_that_cannot_read_a_file_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    write(&path_of(folder.path(), 0), &batch(0, 250));
    let table = open(folder.path()).await;
    let kind = IndexKind::from_name("bloom_tree");
    table.create_index(IndexSpec { kind, ..spec("k") }, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    // The values are in each zone, and six zones are probed where three were.
    for file in 1..3 {
        write(&path_of(folder.path(), file), &batch(file * 250, 250));
    }
    table.build(BuildOptions::default()).await.unwrap();
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let location = folder.path().to_str().unwrap();
    let table = Table::open_layered(location, TableOptions::default(), &layer).await.unwrap();
    *log.unreadable.lock().unwrap() = Some("f0001.parquet");
    let error = table.compact(BuildOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("the data file f0001.parquet cannot be read"), "{error}");
    *log.unreadable.lock().unwrap() = None;
    assert_eq!(table.compact(BuildOptions::default()).await.unwrap().segments_written, 1);
}

/// One bad file among many costs what it would take alone: no other file is read again for it.
#[tokio::test]
async fn a_corrupt_file_among_many_is_named_and_costs_the_others_nothing() {
    const MANY: usize = 1_200;
    let mut requests = Vec::new();
    for bad in [None, Some(1_100)] {
        let folder = tempfile::tempdir().unwrap();
        write(&path_of(folder.path(), 0), &batch(0, 250));
        for file in 1..MANY {
            fs::copy(path_of(folder.path(), 0), path_of(folder.path(), file)).unwrap();
        }
        if let Some(bad) = bad {
            corrupt(&path_of(folder.path(), bad), 0);
        }
        open(folder.path()).await.create_index(spec_with("k", "encoding", "equality"), false).await.unwrap();
        let log = Log::new();
        let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
        let location = folder.path().to_str().unwrap();
        let table = Table::open_layered(location, TableOptions::default(), &layer).await.unwrap();
        let report = table.build(BuildOptions::default()).await.unwrap();
        let named: Vec<String> = bad.iter().map(|bad| format!("f{bad:04}.parquet")).collect();
        assert_eq!(failed(&report), named);
        assert_eq!(report.files, (MANY - named.len()) as u64);
        requests.push(log.matching(".parquet").iter().filter(|operation| operation.starts_with("get")).count());
        let snapshot = table.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("k", 3)).await;
        let wanted = rows_of(&k_values(0, 250), 3);
        for (file, found) in found.files.iter().enumerate() {
            match bad == Some(file) {
                true => assert_eq!(*found, FileProbe::Unknown),
                false => assert_eq!(exact_rows(found), wanted, "file {file}"),
            }
        }
    }
    assert!(requests[1] <= requests[0] + 8, "{requests:?}");
}

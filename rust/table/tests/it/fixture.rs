//! Small tables, and the rows of a predicate found by looking at every value.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use lakemark_format::Key;
use lakemark_format::key::key_of_i64;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test};
use lakemark_table::{
    BuildOptions, BuildReport, CoverRequest, CoveredValues, FileProbe, GroupCounts, IndexSpec, Probe, ProbeOptions,
    RowSet, RowsOfFile, Snapshot, Table, TableOptions,
};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

pub const ROW_GROUP_ROWS: usize = 100;

/// Values of `k`: every seventh is NULL, the rest cycle through 0..10.
pub fn k_values(first: usize, rows: usize) -> Vec<Option<i32>> {
    (first..first + rows).map(|row| (row % 7 != 0).then_some((row % 10) as i32)).collect()
}

pub fn batch(first: usize, rows: usize) -> RecordBatch {
    let names: StringArray = (first..first + rows).map(|row| Some(format!("name{}", row % 13))).collect();
    let k: ArrayRef = Arc::new(Int32Array::from(k_values(first, rows)));
    RecordBatch::try_from_iter([("k", k), ("s", Arc::new(names) as ArrayRef)]).unwrap()
}

/// What an index gives of columns for the exact rows of a probe; none if it does not have all of them.
pub async fn covered_values(
    snapshot: &Snapshot,
    predicate: &Predicate,
    found: &Probe,
    columns: &[&str],
) -> Option<CoveredValues> {
    let exact: Vec<(usize, RowSet)> = found
        .files
        .listed()
        .filter_map(|(file, known)| match known {
            FileProbe::Known { exact, .. } if !exact.is_empty() => Some((file, exact.clone())),
            _ => None,
        })
        .collect();
    let rows = exact.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect();
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    snapshot.covered_rows(&CoverRequest { predicate, columns, rows }).await
}

pub fn write(path: &Path, batch: &RecordBatch) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROW_GROUP_ROWS)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    // By row groups: the writer goes one call deeper for each of a batch, which takes a test's stack where there are a thousand.
    for first in (0..batch.num_rows()).step_by(ROW_GROUP_ROWS) {
        writer.write(&batch.slice(first, ROW_GROUP_ROWS.min(batch.num_rows() - first))).unwrap();
    }
    writer.close().unwrap();
}

/// A folder with `files` files of 250 rows in three row groups.
pub fn folder(files: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..files {
        write(&folder.path().join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
    }
    folder
}

pub async fn open(path: &Path) -> Arc<Table> {
    Table::open_alone(path.to_str().unwrap(), TableOptions::default()).await.unwrap()
}

pub fn spec(column: &str) -> IndexSpec {
    IndexSpec { columns: vec![column.to_owned()], ..IndexSpec::default() }
}

pub fn spec_with(column: &str, key: &str, value: &str) -> IndexSpec {
    IndexSpec { options: BTreeMap::from([(key.to_owned(), value.to_owned())]), ..spec(column) }
}

/// Declares an index on `k` and builds it.
pub async fn create_indexes(table: &Table) -> BuildReport {
    table.create_index(spec("k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap()
}

pub fn leaf(column: &str, ranges: KeyRanges) -> Predicate {
    Predicate::Leaf(Leaf { column: column.to_owned(), test: Test::Ranges(ranges), text: format!("{column} in ranges") })
}

pub fn int_key(value: i64) -> Key {
    Key::Fixed(key_of_i64(value))
}

pub fn equals(column: &str, value: i64) -> Predicate {
    leaf(column, KeyRanges::point(int_key(value)))
}

pub fn is_null(column: &str) -> Predicate {
    Predicate::Leaf(Leaf { column: column.to_owned(), test: Test::IsNull, text: format!("{column} IS NULL") })
}

pub async fn probe(snapshot: &Snapshot, predicate: &Predicate) -> lakemark_table::Probe {
    snapshot.probe(predicate, &ProbeOptions { selection_cache: false, ..ProbeOptions::default() }).await.unwrap()
}

/// The exact rows of a file's probe; panics where the file is unknown or rows are to be rechecked.
pub fn exact_rows(file: &FileProbe) -> Vec<u32> {
    match file {
        FileProbe::Known { exact, recheck, .. } => {
            assert!(recheck.is_empty(), "{recheck:?}");
            exact.iter().collect()
        }
        other => panic!("expected known rows, got {other:?}"),
    }
}

/// For each file whether its rows are in the counts.
pub fn answered(found: &GroupCounts) -> Vec<bool> {
    found.answered.each().collect()
}

/// Rows of `values` equal to `value`.
pub fn rows_of(values: &[Option<i32>], value: i32) -> Vec<u32> {
    (0..).zip(values).filter(|(_, have)| **have == Some(value)).map(|(row, _)| row).collect()
}

/// The files of the table's segments, by name; none where no segment was written yet.
pub fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("_lakemark/indexes")).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Logs that are there already are older than those that come, also where the clock of the file system has not ticked since.
pub fn age_logs(folder: &Path) {
    for path in std::fs::read_dir(folder.join("_lakemark/updates")).unwrap().map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|end| end == "lml") {
            File::options().append(true).open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
    }
}

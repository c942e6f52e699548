//! Row groups of one row each, which has a megabyte: every kind of index takes them, with little memory, too.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use lakemark_format::Key;
use lakemark_index::KeyRanges;
use lakemark_table::{BuildOptions, FileProbe, IndexKind, IndexSpec, Merging, Snapshot, Table};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::fixture::{equals, exact_rows, leaf, open, probe, spec};

const ROWS: usize = 6;
const FILES: usize = 2;
const MEGABYTE: usize = 1 << 20;

fn text(row: usize) -> String {
    format!("{row:03}{}", "x".repeat(MEGABYTE))
}

fn write(path: &Path, file: usize) {
    let rows = file * ROWS..(file + 1) * ROWS;
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64)));
    let s: ArrayRef = Arc::new(StringArray::from_iter_values(rows.map(text)));
    let batch = RecordBatch::try_from_iter([("k", k), ("s", s)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    (0..ROWS).for_each(|row| writer.write(&batch.slice(row, 1)).unwrap());
    writer.close().unwrap();
    let groups = SerializedFileReader::new(File::open(path).unwrap()).unwrap().metadata().num_row_groups();
    assert_eq!(groups, ROWS);
}

/// Rows of all files, numbered from the first, that a condition on `s` may be true of.
async fn may_be(snapshot: &Snapshot, ranges: KeyRanges) -> Vec<usize> {
    let found = probe(snapshot, &leaf("s", ranges)).await;
    let mut rows = Vec::new();
    for (file, found) in found.files.iter().enumerate() {
        let is_kept = |row: &usize| match found {
            FileProbe::Known { exact, recheck, .. } => exact.contains(*row as u32) || recheck.contains(*row as u32),
            _ => true,
        };
        rows.extend((0..ROWS).filter(is_kept).map(|row| file * ROWS + row));
    }
    rows
}

async fn check(table: &Table, at: &str) {
    let snapshot = table.snapshot().await.unwrap();
    assert!(snapshot.indexes().iter().all(|index| index.coverage == 1.0), "{at}");
    let found = probe(&snapshot, &equals("k", 8)).await;
    let rows: Vec<Vec<u32>> = found.files.iter().map(exact_rows).collect();
    assert_eq!(rows, [vec![], vec![2]], "{at}");
    let key = |text: &str| Key::Bytes(text.as_bytes().to_vec());
    // Values that are too long to be keys are looked at.
    let above = may_be(&snapshot, KeyRanges::greater_than(key("004"), true)).await;
    assert!((4..FILES * ROWS).all(|row| above.contains(&row)), "{at}: {above:?}");
    let below = may_be(&snapshot, KeyRanges::less_than(key("004"), true)).await;
    assert!((0..4).all(|row| below.contains(&row)), "{at}: {below:?}");
    let report = table.verify().await.unwrap();
    assert!(report.is_ok(), "{at}: {report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_groups_of_one_row_of_a_megabyte_are_indexed_merged_and_found() {
    for (kind, memory_bytes) in
        [("key", None), ("bitmap", Some(1)), ("key", Some(1)), ("bloom_tree", Some(1)), ("summary", Some(128))]
    {
        let at = format!("{kind}, {memory_bytes:?}");
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join("f0.parquet"), 0);
        let table = open(folder.path()).await;
        let options =
            BuildOptions { threads: Some(1), memory_bytes, merging: Merging::Never, ..BuildOptions::default() };
        for file in 0..FILES {
            if file > 0 {
                write(&folder.path().join(format!("f{file}.parquet")), file);
            } else {
                table.create_index(IndexSpec { kind: IndexKind::from_name("key"), ..spec("k") }, false).await.unwrap();
                let (name, kind) = (Some("long".to_owned()), IndexKind::from_name(kind));
                table.create_index(IndexSpec { name, kind, ..spec("s") }, false).await.unwrap();
            }
            let report = table.build(options.clone()).await.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!((report.files, report.failed.len()), (1, 0), "{at}: {report:?}");
        }
        check(&table, &at).await;
        let all = BuildOptions { merging: Merging::All, ..options };
        let report = table.compact(all).await.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!((report.segments_merged, report.segments_written), (4, 2), "{at}");
        check(&table, &at).await;
    }
}

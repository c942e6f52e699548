//! A lookup looks at the files that have its key and at those that no index knows, however many others a table has.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_index::Predicate;
use lakemark_table::{
    BuildOptions, FileProbe, GroupCountRequest, IndexKind, IndexSpec, Probe, ProbeOptions, Snapshot, Table,
};

use crate::fixture::{answered, equals, open, probe, segments, spec_with, write};

/// Rows of each file.
const ROWS: usize = 3;

fn numbers(values: [i64; ROWS]) -> RecordBatch {
    let column = |of: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values(values.map(of))) as ArrayRef;
    let columns = [("k", column(|k| k)), ("twice", column(|k| 2 * k)), ("same", column(|_| 5))];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// So many equal files, and one that has the keys 70 to 72, with an index of a kind.
async fn table_of(root: &Path, files: usize, kind: &str, files_per_segment: usize) -> Arc<Table> {
    let model = root.join("f00000.parquet");
    write(&model, &numbers([1, 2, 3]));
    for file in 1..files {
        fs::copy(&model, root.join(format!("f{file:05}.parquet"))).unwrap();
    }
    write(&root.join("f00017-other.parquet"), &numbers([70, 71, 72]));
    let table = open(root).await;
    let spec = spec_with("k", "files_per_segment", &files_per_segment.to_string());
    table.create_index(IndexSpec { kind: IndexKind::from_name(kind), ..spec }, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

/// The files that a probe says something of, by their paths.
fn listed<'a>(snapshot: &'a Snapshot, found: &Probe) -> Vec<&'a str> {
    found.files.listed().map(|(file, _)| snapshot.files().get(file).unwrap().path.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_is_about_as_many_files_in_a_hundred_as_in_two_thousand() {
    for (files, kind) in [(100, "key"), (2000, "key"), (100, "bitmap"), (2000, "bitmap")] {
        let root = tempfile::tempdir().unwrap();
        let table = table_of(root.path(), files, kind, 100).await;
        let snapshot = table.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("k", 71)).await;
        assert_eq!(listed(&snapshot, &found), ["f00017-other.parquet"], "{kind}, {files} files");
        let all = files as u64 + 1;
        let report = &found.report;
        assert_eq!((report.files_total, report.files_pruned, report.files_scanned), (all, files as u64, 0), "{kind}");
        assert_eq!((report.row_groups_total, report.rows_total, report.coverage), (all, all * ROWS as u64, 1.0));
        assert_eq!((found.files.len(), found.files.iter().len()), (files + 1, files + 1));
        // A key that no file has.
        let none = probe(&snapshot, &equals("k", 99)).await;
        assert_eq!((none.files.listed().len(), none.exact_row_count(), none.report.coverage), (0, Some(0), 1.0));
        assert_eq!(none.report.leaves[0].rows, Some(0), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn zones_rule_files_out_as_well() {
    for files in [100, 2000] {
        let root = tempfile::tempdir().unwrap();
        let table = table_of(root.path(), files, "bloom_tree", 1000).await;
        let snapshot = table.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("k", 71)).await;
        assert_eq!(listed(&snapshot, &found), ["f00017-other.parquet"], "{files} files");
        assert_eq!((found.report.files_pruned, found.report.coverage), (files as u64, 1.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_by_key_is_about_as_few_files() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "key", 30).await;
    let snapshot = table.snapshot().await.unwrap();
    let options = ProbeOptions { count_only: true, selection_cache: false, ..ProbeOptions::default() };
    let count = async |key| snapshot.probe(&equals("k", key), &options).await.unwrap();
    let found = count(71).await;
    assert_eq!((found.exact_row_count(), listed(&snapshot, &found)), (Some(1), vec!["f00017-other.parquet"]));
    // Of a key that all files have, each file is counted.
    assert_eq!(count(2).await.exact_row_count(), Some(100));
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_segments_are_counted_by_one_number_each_and_the_other_files_one_by_one() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "bitmap", 10).await;
    let options = ProbeOptions { count_only: true, selection_cache: false, ..ProbeOptions::default() };
    let counted = async |key| {
        let snapshot = table.snapshot().await.unwrap();
        let found = snapshot.probe(&equals("k", key), &options).await.unwrap();
        let report = &found.report;
        assert_eq!((report.files_total, report.rows_total), (snapshot.files().len() as u64, 303));
        (found.exact_row_count(), found.files.listed().len(), report.rows_exact, report.leaves[0].rows)
    };
    // Eleven segments have the 101 files.
    assert_eq!(counted(2).await, (Some(100), 11, 100, Some(100)));
    assert_eq!(counted(71).await, (Some(1), 11, 1, Some(1)));
    // A file in doubt is looked at, and so are the others of its segment.
    let touched = File::options().write(true).open(root.path().join("f00050.parquet")).unwrap();
    touched.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let found = snapshot.probe(&equals("k", 2), &options).await.unwrap();
    assert_eq!((found.exact_row_count(), found.files.listed().len()), (Some(100), 10 + 10));
    // So are those of one that cannot be read.
    for segment in segments(root.path()) {
        fs::remove_file(segment).unwrap();
    }
    let snapshot = open(root.path()).await.snapshot().await.unwrap();
    assert_eq!(snapshot.probe(&equals("k", 2), &options).await.unwrap().exact_row_count(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn law_2_files_in_doubt_are_candidates_whatever_was_found() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "key", 30).await;
    let new = root.path().join("f00050-new.parquet");
    write(&new, &numbers([71, 5, 6]));
    write(&root.path().join("f00060.parquet"), &numbers([71, 8, 9]));
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 71)).await;
    let names = ["f00017-other.parquet", "f00050-new.parquet", "f00060.parquet"];
    assert_eq!(listed(&snapshot, &found), names);
    let states = found.files.listed().map(|(_, file)| *file == FileProbe::Unknown).collect::<Vec<_>>();
    assert_eq!((states, found.report.files_scanned), (vec![false, true, true], 2));
    // A segment that cannot be read rules nothing out. The process remembers directories, so that other segments are not read.
    for segment in segments(root.path()) {
        fs::remove_file(segment).unwrap();
    }
    let snapshot = open(root.path()).await.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 71)).await;
    let unknown = found.files.listed().filter(|(_, file)| **file == FileProbe::Unknown).map(|(file, _)| file);
    let unknown: Vec<&str> = unknown.map(|file| snapshot.files().get(file).unwrap().path.as_str()).collect();
    assert!(names.iter().all(|name| unknown.contains(name)) && unknown.len() > names.len(), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_conditions_are_tested_in_the_files_of_the_key_alone() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "key", 10).await;
    table.create_index(spec_with("twice", "files_per_segment", "10"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = open(root.path()).await.snapshot().await.unwrap();
    let both = |twice| Predicate::And(vec![equals("k", 71), equals("twice", twice)]);
    let found = probe(&snapshot, &both(142)).await;
    assert_eq!((found.exact_row_count(), listed(&snapshot, &found)), (Some(1), vec!["f00017-other.parquet"]));
    assert_eq!(probe(&snapshot, &both(140)).await.exact_row_count(), Some(0));
    // Any file may meet one of two conditions.
    let either = probe(&snapshot, &Predicate::Or(vec![equals("k", 71), equals("twice", 2)])).await;
    assert_eq!((either.files.listed().len(), either.exact_row_count()), (101, Some(101)));
    // What a later filter leaves of a plan stays about the planned files.
    let planned = probe(&snapshot, &equals("k", 71)).await;
    let later = probe(&snapshot, &equals("twice", 4)).await;
    let left = snapshot.with_runtime_filter(&planned, &later);
    assert_eq!((left.files.listed().len(), left.exact_row_count(), left.report.files_pruned), (1, Some(0), 101));
    assert_eq!(left.report.rows_total, 101 * ROWS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_ruled_out_by_the_key_whatever_is_named_before_it() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "key", 10).await;
    table.create_index(spec_with("same", "files_per_segment", "10"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    // Every row meets the first condition, so that it rules nothing out.
    let found = probe(&snapshot, &Predicate::And(vec![equals("same", 5), equals("k", 71)])).await;
    assert_eq!((found.exact_row_count(), listed(&snapshot, &found)), (Some(1), vec!["f00017-other.parquet"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_counted_by_the_index_where_most_files_of_a_segment_are_ruled_out() {
    for kind in ["key", "bitmap"] {
        let root = tempfile::tempdir().unwrap();
        let table = table_of(root.path(), 40, kind, 10).await;
        let snapshot = table.snapshot().await.unwrap();
        let predicate = equals("k", 71);
        let found = probe(&snapshot, &predicate).await;
        assert_eq!(listed(&snapshot, &found), ["f00017-other.parquet"], "{kind}");
        let columns = ["k".to_owned()];
        let request = GroupCountRequest {
            columns: &columns,
            predicate: &predicate,
            files: &found.files,
            sum_column: None,
            only_few_values: false,
        };
        let counts = snapshot.group_counts(&request).await.unwrap();
        assert_eq!(answered(&counts), [true; 41], "{kind}");
        let parts: Vec<_> = counts.parts.iter().map(|part| (part.values[0].clone(), part.rows.clone())).collect();
        assert_eq!(parts, [(Arc::new(Int64Array::from(vec![71])) as ArrayRef, vec![1])], "{kind}");
        // The values of the one segment with the key, and no posting.
        assert_eq!(counts.index_reads, 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_segment_is_read_once_by_a_probe() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 100, "key", 10).await;
    let snapshot = table.snapshot().await.unwrap();
    let healthy = probe(&snapshot, &equals("k", 71)).await;
    assert_eq!(listed(&snapshot, &healthy), ["f00017-other.parquet"]);
    for segment in segments(root.path()) {
        let bytes = fs::metadata(&segment).unwrap().len();
        fs::write(&segment, vec![0xff; usize::try_from(bytes).unwrap()]).unwrap();
    }
    // The process remembers the directories, by which no other segment has the key.
    let found = probe(&snapshot, &equals("k", 71)).await;
    let names = listed(&snapshot, &found);
    assert!(names.len() > 1 && names.contains(&"f00017-other.parquet"), "{names:?}");
    assert!(found.files.listed().all(|(_, file)| *file == FileProbe::Unknown), "{:?}", found.files);
    assert_eq!(found.report.index_reads, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_few_files_are_looked_at_file_by_file_unless_a_test_asks_for_less() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 5, "key", 2).await;
    let snapshot = table.snapshot().await.unwrap();
    let plain = probe(&snapshot, &equals("k", 71)).await;
    table.narrow_always();
    let narrowed = probe(&snapshot, &equals("k", 71)).await;
    assert_eq!((plain.files.listed().len(), listed(&snapshot, &narrowed)), (6, vec!["f00017-other.parquet"]));
    assert_eq!((plain.exact_row_count(), narrowed.exact_row_count()), (Some(1), Some(1)));
    assert_eq!((plain.report.files_pruned, narrowed.report.files_pruned), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_held_sees_what_it_saw_after_a_file_is_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let table = table_of(root.path(), 40, "key", 10).await;
    let name = "f00017-other.parquet";
    let touched = File::options().write(true).open(root.path().join(name)).unwrap();
    touched.set_modified(SystemTime::now() + Duration::from_secs(10)).unwrap();
    let held = table.snapshot().await.unwrap();
    let look = async |snapshot: &Snapshot| {
        let mut seen = Vec::new();
        for key in [71, 99] {
            let found = probe(snapshot, &equals("k", key)).await;
            let names: Vec<String> = listed(snapshot, &found).into_iter().map(str::to_owned).collect();
            seen.push((found.exact_row_count(), names, found.report.coverage));
        }
        seen
    };
    // The manifest knows another file of this name, so that it is looked at whatever the key.
    let listed_anyway = [(Some(1), vec![name.to_owned()], 1.0), (Some(0), vec![name.to_owned()], 1.0)];
    assert_eq!(look(&held).await, listed_anyway);
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().adopted, 1);
    let now = table.snapshot().await.unwrap();
    assert_eq!(look(&now).await, [(Some(1), vec![name.to_owned()], 1.0), (Some(0), Vec::new(), 1.0)]);
    assert_eq!(look(&held).await, listed_anyway);
}

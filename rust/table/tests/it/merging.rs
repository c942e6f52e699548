//! Builds that merge segments of which there are too many, and what a search reads before and after.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lakemark_table::{
    BuildOptions, BuildReport, CancelFlag, ErrorKind, IndexKind, IndexSpec, Merging, Table, TableOptions,
};

use crate::fixture::{batch, equals, exact_rows, k_values, open, probe, rows_of, write};

/// Builds of one file each.
const BUILDS: usize = 40;

fn named(name: &str, kind: &str, column: &str) -> IndexSpec {
    let kind = IndexKind::from_name(kind);
    IndexSpec { name: Some(name.to_owned()), columns: vec![column.to_owned()], kind, ..IndexSpec::default() }
}

/// Adds a file to a table with a `key` index of `k`, and builds.
async fn append(folder: &Path, table: &Table, file: usize, merging: Merging) -> BuildReport {
    write(&folder.join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
    table.build(BuildOptions { merging, ..BuildOptions::default() }).await.unwrap()
}

async fn begun(specs: &[IndexSpec]) -> (tempfile::TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f0000.parquet"), &batch(0, 250));
    let table = open(folder.path()).await;
    for spec in specs {
        table.create_index(spec.clone(), false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    (folder, table)
}

async fn segments_of(table: &Table) -> Vec<u64> {
    table.snapshot().await.unwrap().indexes().iter().map(|index| index.segments).collect()
}

fn edits(folder: &Path) -> usize {
    fs::read_dir(folder.join("_lakemark/manifest")).unwrap().count()
}

async fn check(table: &Table, files: usize) {
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("k", 3)).await;
    for file in 0..files {
        assert_eq!(exact_rows(&found.files[file]), rows_of(&k_values(file * 250, 250), 3), "file {file}");
    }
    assert!(snapshot.indexes().iter().all(|index| index.coverage == 1.0));
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_builds_of_one_file_each_leave_a_handful_of_segments() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    let (mut merged, mut into) = (0, 0);
    for file in 1..BUILDS {
        let report = append(folder.path(), &table, file, Merging::Due).await;
        assert_eq!((report.files, report.segments), (1, 1), "the build counts what it built");
        assert_eq!(report.segments_merged > 0, report.bytes_merged > 0);
        (merged, into) = (merged + report.segments_merged, into + report.merged_into);
        let now = segments_of(&table).await[0];
        assert_eq!(now, 1 + file as u64 + into - merged, "{report:?}");
        // Three, and one for each tier of factor 4: the smallest has 250 rows and the largest 10,000.
        assert!(now <= 6, "{now} segments after {file} builds");
    }
    assert!(into > 5, "{into} merges");
    check(&table, BUILDS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_told_not_to_merge_leaves_every_segment() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..8 {
        let report = append(folder.path(), &table, file, Merging::Never).await;
        assert_eq!((report.segments_merged, report.merged_into, report.bytes_merged), (0, 0, 0));
    }
    assert_eq!(segments_of(&table).await, [8]);
    // The next build catches up, although it finds nothing to build.
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.segments_merged, report.merged_into), (0, 8, 1));
    assert_eq!(segments_of(&table).await, [1]);
    check(&table, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_of_several_indexes_are_merged_in_one_commit() {
    let specs = [named("a", "key", "k"), named("b", "bitmap", "k"), named("c", "bitmap", "s")];
    let (folder, table) = begun(&specs).await;
    for file in 1..4 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let before = edits(folder.path());
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.indexes.len(), report.segments_merged, report.segments_written), (3, 12, 3));
    assert_eq!((edits(folder.path()) - before, segments_of(&table).await), (1, vec![1, 1, 1]));
    check(&table, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn merges_that_take_long_are_committed_one_by_one() {
    let (folder, table) = begun(&[named("a", "key", "k"), named("b", "key", "s")]).await;
    append(folder.path(), &table, 1, Merging::Never).await;
    let before = edits(folder.path());
    let at_once = BuildOptions { commit_every: Some(Duration::ZERO), ..BuildOptions::default() };
    assert_eq!(table.compact(at_once).await.unwrap().segments_written, 2);
    assert_eq!(edits(folder.path()) - before, 2);
}

/// A large segment is not written again for a small one, unless somebody asks for all.
#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_far_larger_stays_until_everything_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f0000.parquet"), &batch(0, 100_000));
    let table = open(folder.path()).await;
    table.create_index(named("kept", "key", "k"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    for file in 1..3 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let report = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written), (2, 1));
    let again = table.compact(BuildOptions::default()).await.unwrap();
    assert_eq!(again.segments_written, 0);
    let all = BuildOptions { merging: Merging::All, ..BuildOptions::default() };
    let report = table.compact(all).await.unwrap();
    assert_eq!((report.segments_merged, report.segments_written, segments_of(&table).await), (2, 1, vec![1]));
    let never = BuildOptions { merging: Merging::Never, ..BuildOptions::default() };
    assert_eq!(table.compact(never).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A segment whose files fill half of what one may have is never merged by tiers: each file is rewritten a few times at most.
#[tokio::test(flavor = "multi_thread")]
async fn full_segments_are_left_alone() {
    let options = [("files_per_segment".to_owned(), "4".to_owned())].into();
    let (folder, table) = begun(&[IndexSpec { options, ..named("kept", "key", "k") }]).await;
    let mut into = 0;
    for file in 1..24 {
        into += append(folder.path(), &table, file, Merging::Due).await.merged_into;
    }
    let left = segments_of(&table).await[0];
    assert!((6..=12).contains(&left) && into >= 4, "{left} segments, {into} merges");
    check(&table, 24).await;
}

/// A damaged segment is no reason for a build to fail: what it was to build is built.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_is_done_where_a_segment_that_is_to_be_merged_is_damaged() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..4 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let path = crate::fixture::segments(folder.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let report = append(folder.path(), &table, 4, Merging::Due).await;
    assert_eq!((report.files, report.segments, report.segments_merged), (1, 1, 0));
    assert_eq!(segments_of(&table).await, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_stopped_while_it_merges_keeps_what_it_built() {
    let (folder, table) = begun(&[named("kept", "key", "k")]).await;
    for file in 1..5 {
        append(folder.path(), &table, file, Merging::Never).await;
    }
    let flag = CancelFlag::new();
    flag.cancel();
    // Nothing is to be built, so that the flag is met by the merge.
    let error = table.build(BuildOptions { cancel: Some(flag), ..BuildOptions::default() }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.to_string().contains("what was built is committed"), "{error}");
    assert_eq!(segments_of(&table).await, [5]);
    check(&table, 5).await;
}

/// Two handles build and merge what the other one has just built and merged.
#[tokio::test(flavor = "multi_thread")]
async fn two_builders_that_merge_at_once_leave_each_file_covered() {
    let (folder, one) = begun(&[named("kept", "key", "k")]).await;
    let other = Table::open(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    for file in 1..16 {
        write(&folder.path().join(format!("f{file:04}.parquet")), &batch(file * 250, 250));
        let (first, second) = tokio::join!(one.build(BuildOptions::default()), other.build(BuildOptions::default()));
        first.unwrap();
        second.unwrap();
    }
    assert!(segments_of(&one).await[0] <= 7);
    check(&one, 16).await;
}

//! From a predicate to rows: every test finds just its rows, and whatever is wrong with an index costs a scan and no row.

use std::fs;

use lakemark_index::{KeyRanges, Predicate, Reason, Truth};
use lakemark_table::{BuildOptions, FileProbe, ProbeOptions, Snapshot};

use crate::fixture::{
    batch, create_indexes, equals, exact_rows, folder, int_key, is_null, k_values, leaf, open, probe, rows_of,
    segments, spec, spec_with, write,
};

const COUNT: ProbeOptions =
    ProbeOptions { use_index: true, count_only: true, selection_cache: false, reading: None, physical_rows: false };

async fn counted(snapshot: &Snapshot, predicate: &Predicate) -> u64 {
    let found = snapshot.probe(predicate, &COUNT).await.unwrap();
    found
        .files
        .iter()
        .map(|file| match file {
            FileProbe::Counted { rows } => *rows,
            other => panic!("expected a count, got {other:?}"),
        })
        .sum()
}

/// Exact rows are all true, and true rows are exact, to be rechecked or in a file that is scanned.
fn check_narrowing(files: &[FileProbe], truth: &[Vec<u32>]) {
    for (file, truth) in files.iter().zip(truth) {
        if let FileProbe::Known { exact, recheck, .. } = file {
            assert!(exact.iter().all(|row| truth.contains(&row)));
            assert!(truth.iter().all(|row| exact.contains(*row) || recheck.contains(*row)));
        }
    }
}

#[tokio::test]
async fn every_test_finds_just_its_rows() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    let report = create_indexes(&table).await;
    assert_eq!((report.files, report.rows, report.segments), (3, 750, 1));
    let snapshot = table.snapshot().await.unwrap();
    for file in 0..3 {
        let values = k_values(file * 250, 250);
        let rows = |chosen: &dyn Fn(Option<i32>) -> bool| -> Vec<u32> {
            (0..).zip(&values).filter(|(_, value)| chosen(**value)).map(|(row, _)| row).collect()
        };
        let cases: Vec<(Predicate, Vec<u32>)> = vec![
            (equals("k", 3), rows(&|v| v == Some(3))),
            (Predicate::Not(Box::new(equals("k", 3))), rows(&|v| v.is_some_and(|v| v != 3))),
            (leaf("k", KeyRanges::less_than(int_key(4), true)), rows(&|v| v.is_some_and(|v| v <= 4))),
            (leaf("k", KeyRanges::greater_than(int_key(8), false)), rows(&|v| v.is_some_and(|v| v > 8))),
            (is_null("k"), rows(&|v| v.is_none())),
            (Predicate::Not(Box::new(is_null("k"))), rows(&|v| v.is_some())),
            (Predicate::Or(vec![equals("k", 1), is_null("k")]), rows(&|v| v.is_none_or(|v| v == 1))),
            (Predicate::And(vec![equals("k", 1), equals("k", 2)]), vec![]),
            (Predicate::Or(vec![equals("k", 1), Predicate::Const(Truth::Null)]), rows(&|v| v == Some(1))),
            (equals("k", 99), vec![]),
        ];
        for (predicate, expected) in cases {
            let found = probe(&snapshot, &predicate).await;
            assert_eq!(exact_rows(&found.files[file]), expected, "{predicate} in file {file}");
            assert_eq!(found.report.coverage, 1.0);
        }
    }
}

#[tokio::test]
async fn counts_come_from_the_directory_alone() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let all: Vec<Option<i32>> = k_values(0, 750);
    let count = |value| all.iter().filter(|have| **have == Some(value)).count() as u64;
    assert_eq!(counted(&snapshot, &equals("k", 3)).await, count(3));
    let nulls = all.iter().filter(|value| value.is_none()).count() as u64;
    assert_eq!(counted(&snapshot, &is_null("k")).await, nulls);
    assert_eq!(counted(&snapshot, &Predicate::Not(Box::new(is_null("k")))).await, 750 - nulls);
    assert_eq!(counted(&snapshot, &Predicate::Const(Truth::True)).await, 750);
    let report = snapshot.probe(&equals("k", 3), &COUNT).await.unwrap().report;
    assert_eq!((report.leaves[0].reason, report.leaves[0].rows, report.coverage), (None, Some(count(3)), 1.0));
    let both = Predicate::Or(vec![equals("k", 3), is_null("k")]);
    assert_eq!(counted(&snapshot, &both).await, count(3) + nulls);
}

#[tokio::test]
async fn the_report_tells_indexes_reasons_and_reads() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: "f(k) > 1".to_owned() };
    let predicate = Predicate::And(vec![equals("k", 3), equals("s", 1), unknown]);
    let found = probe(&snapshot, &predicate).await;
    let leaves = &found.report.leaves;
    assert_eq!((leaves[0].index.as_ref().map(|by| by.name()), leaves[0].reason), (Some("k_bitmap"), None));
    assert_eq!(leaves[0].rows, Some(rows_of(&k_values(0, 500), 3).len() as u64));
    assert_eq!((leaves[1].index.as_ref().map(|by| by.name()), leaves[1].reason), (None, Some(Reason::NoIndex)));
    assert_eq!(leaves[2].reason, Some(Reason::ExpressionNotSupported));
    assert_eq!(found.report.rows_rechecked, leaves[0].rows.unwrap());
    assert_eq!(found.report.rows_exact, 0);
    assert!(found.report.index_reads >= 2 && found.report.index_bytes_read > 0);
    let json = serde_json::to_value(&found.report).unwrap();
    assert_eq!(json["leaves"][1]["reason"], "no_index");
    assert!(found.report.to_string().contains("index k_bitmap"));
}

#[tokio::test]
async fn a_switched_off_index_is_not_read() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let snapshot = table.snapshot().await.unwrap();
    let off = ProbeOptions { use_index: false, ..ProbeOptions::default() };
    let found = snapshot.probe(&equals("k", 3), &off).await.unwrap();
    assert_eq!(found.files[..], [FileProbe::Unknown, FileProbe::Unknown]);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::IndexDisabled));
    assert_eq!(found.report.index_reads, 0);
}

#[tokio::test]
async fn law_1_the_index_only_narrows() {
    let folder = folder(3);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "files_per_segment", "1"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let predicate = equals("k", 3);
    let truth: Vec<Vec<u32>> = (0..3).map(|file| rows_of(&k_values(file * 250, 250), 3)).collect();
    let found = probe(&table.snapshot().await.unwrap(), &predicate).await;
    assert_eq!(found.files.iter().map(exact_rows).collect::<Vec<_>>(), truth);

    // Half-built: a file that came later is scanned.
    write(&folder.path().join("f0003.parquet"), &batch(750, 250));
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &predicate).await;
    assert_eq!(found.files[3], FileProbe::Unknown);
    assert_eq!(found.report.coverage, 0.75);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::FileNotCovered));
    assert_eq!((snapshot.indexes()[0].files_covered, snapshot.indexes()[0].files_total), (3, 4));
    check_narrowing(&found.files, &truth);

    // Stale: a file that was replaced is scanned; one that vanished is gone.
    write(&folder.path().join("f0001.parquet"), &batch(5, 111));
    fs::remove_file(folder.path().join("f0002.parquet")).unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &predicate).await;
    assert_eq!(found.files.len(), 3);
    assert_eq!(exact_rows(&found.files[0]), truth[0]);
    assert_eq!(found.files[1], FileProbe::Unknown);

    // Built again, everything is covered again.
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.files, report.rows), (2, 361));
    let found = probe(&table.snapshot().await.unwrap(), &predicate).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(5, 111), 3));
    assert_eq!(found.report.coverage, 1.0);

    // Deleted index files: all is scanned, but for what the process remembers of them.
    let remembering = ProbeOptions { selection_cache: true, ..ProbeOptions::default() };
    let first = table.snapshot().await.unwrap().probe(&predicate, &remembering).await.unwrap();
    assert!(first.report.index_reads > 0);
    for segment in segments(folder.path()) {
        fs::remove_file(segment).unwrap();
    }
    let found = probe(&open(folder.path()).await.snapshot().await.unwrap(), &predicate).await;
    assert_eq!(found.files[..], vec![FileProbe::Unknown; 3]);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::SegmentMissing));
    let again = open(folder.path()).await.snapshot().await.unwrap().probe(&predicate, &remembering).await.unwrap();
    assert_eq!(again.files, first.files);
    assert_eq!(again.report.index_reads, 0);
    // What is remembered is of the indexes, not of the data: a file that is replaced now is scanned.
    write(&folder.path().join("f0001.parquet"), &batch(7, 113));
    let again = table.snapshot().await.unwrap().probe(&predicate, &remembering).await.unwrap();
    assert_eq!((&again.files[0], &again.files[1]), (&first.files[0], &FileProbe::Unknown));
}

#[tokio::test]
async fn law_1_same_size_other_content_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.parquet");
    write(&path, &batch(0, 250));
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    // A touched file proves itself by its fingerprints.
    let bytes = fs::read(&path).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, &bytes).unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[0]), rows_of(&k_values(0, 250), 3));
    // Other bytes of the same length do not.
    let mut other = bytes.clone();
    other[10] ^= 1;
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, &other).unwrap();
    let found = probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(found.files[..], [FileProbe::Unknown]);
    assert_eq!(found.report.leaves[0].reason, Some(Reason::FileChanged));
}

#[tokio::test]
async fn law_5_no_byte_is_believed_unchecked() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let segment = segments(folder.path()).remove(0);
    let good = fs::read(&segment).unwrap();
    let truth: Vec<Vec<u32>> = (0..2).map(|file| rows_of(&k_values(file * 250, 250), 3)).collect();
    let mut scanned = 0;
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 0x40;
        // Another name, so that no directory that was cached from good bytes helps.
        let copy = tempfile::tempdir().unwrap();
        if position % 37 != 0 && position + 200 < good.len() {
            continue;
        }
        copy_tree(folder.path(), copy.path());
        fs::write(&segments(copy.path())[0], &bad).unwrap();
        let found = probe(&open(copy.path()).await.snapshot().await.unwrap(), &equals("k", 3)).await;
        check_narrowing(&found.files, &truth);
        scanned += usize::from(found.files[0] == FileProbe::Unknown);
    }
    assert!(scanned > 100, "{scanned}");
}

#[tokio::test]
async fn law_5_a_damaged_manifest_gives_a_scan_and_stops_builds() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let manifests = fs::read_dir(folder.path().join("_lakemark/manifest")).unwrap();
    let newest = manifests.map(|entry| entry.unwrap().path()).max().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let table = open(folder.path()).await;
    let snapshot = table.snapshot().await.unwrap();
    assert_eq!((snapshot.indexes().len(), snapshot.manifest_number()), (0, None));
    let found = probe(&snapshot, &equals("k", 3)).await;
    assert_eq!(found.files[..], [FileProbe::Unknown, FileProbe::Unknown]);
    for error in [
        table.build(BuildOptions::default()).await.unwrap_err(),
        table.create_index(spec("s"), false).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), lakemark_table::ErrorKind::Corrupt);
        assert!(error.to_string().contains("delete the store folder"), "{error}");
    }
    fs::remove_dir_all(folder.path().join("_lakemark")).unwrap();
    create_indexes(&table).await;
    assert_eq!(probe(&table.snapshot().await.unwrap(), &equals("k", 3)).await.report.coverage, 1.0);
}

pub fn copy_tree(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_copied_table_brings_its_indexes() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    create_indexes(&table).await;
    let copy = tempfile::tempdir().unwrap();
    copy_tree(folder.path(), copy.path());
    let found = probe(&open(copy.path()).await.snapshot().await.unwrap(), &equals("k", 3)).await;
    assert_eq!(exact_rows(&found.files[1]), rows_of(&k_values(250, 250), 3));
    assert_eq!(found.report.coverage, 1.0);
}

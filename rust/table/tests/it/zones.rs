//! The kinds `bloom_tree` and `summary` through declaration, build, probe, report and verification.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use lakemark_index::KeyRanges;
use lakemark_table::{
    BuildOptions, ErrorKind, FileProbe, IndexKind, IndexSpec, ProbeOptions, Reason, Snapshot, Table, kind_or_auto,
};
use tempfile::TempDir;

use crate::fixture::{equals, exact_rows, folder, int_key, is_null, k_values, leaf, open, probe, write};

const KINDS: [&str; 2] = ["bloom_tree", "summary"];

fn spec(kind: &str, column: &str, options: &[(&str, &str)]) -> IndexSpec {
    IndexSpec {
        kind: IndexKind::from_name(kind),
        columns: vec![column.to_owned()],
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..IndexSpec::default()
    }
}

/// Files of three row groups with 100, 100 and 50 even numbers: in order, or each 250 mixed.
async fn table_of_ids(files: usize, in_order: bool) -> (TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    for file in 0..files {
        let id = |row: usize| (file * 250 + if in_order { row } else { row * 101 % 250 }) as i64 * 2;
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..250).map(id)));
        let path = folder.path().join(format!("f{file:04}.parquet"));
        write(&path, &RecordBatch::try_from_iter([("id", ids)]).unwrap());
    }
    let table = open(folder.path()).await;
    (folder, table)
}

async fn built(table: &Table, spec: IndexSpec) -> Arc<Snapshot> {
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table.snapshot().await.unwrap()
}

fn recheck_rows(file: &FileProbe) -> Vec<u32> {
    match file {
        FileProbe::Known { exact, recheck, .. } => {
            assert!(exact.is_empty(), "{exact:?}");
            recheck.iter().collect()
        }
        other => panic!("expected known rows, got {other:?}"),
    }
}

#[tokio::test]
async fn a_key_leaves_its_zone_and_a_missing_one_leaves_nothing() {
    for kind in KINDS {
        let (_folder, table) = table_of_ids(4, true).await;
        let options = [("zone_rows", "10"), ("fpp", "1e-9")];
        let snapshot = built(&table, spec(kind, "id", &options)).await;
        let info = &snapshot.indexes()[0];
        assert_eq!((info.name.as_str(), info.kind.as_str(), info.segments), (format!("id_{kind}").as_str(), kind, 1));
        let found = probe(&snapshot, &equals("id", 2 * 613)).await;
        assert_eq!(recheck_rows(&found.files[2]), (110..120).collect::<Vec<u32>>(), "{kind}");
        for file in [0, 1, 3] {
            assert_eq!(recheck_rows(&found.files[file]), Vec::<u32>::new(), "{kind}");
        }
        let report = &found.report;
        assert_eq!((report.files_pruned, report.row_groups_pruned, report.rows_rechecked), (3, 11, 10), "{kind}");
        assert_eq!(report.leaves[0].index.as_ref().map(|by| by.name()), Some(info.name.as_str()));
        // One read opens the segment, one answers.
        assert_eq!((report.index_reads, report.coverage), (2, 1.0), "{kind}");
        let missing = probe(&snapshot, &equals("id", 2 * 613 + 1)).await;
        assert_eq!((missing.report.files_pruned, missing.exact_row_count()), (4, Some(0)), "{kind}");
        assert!(table.verify().await.unwrap().is_ok(), "{kind}");
    }
}

#[tokio::test]
async fn ranges_are_exact_inside_of_fences_and_a_summary_cannot_tell_them() {
    let (_folder, table) = table_of_ids(2, true).await;
    let range = KeyRanges::greater_than(int_key(99), true).intersect(&KeyRanges::less_than(int_key(409), true));
    let snapshot = built(&table, spec("bloom_tree", "id", &[("zone_rows", "10")])).await;
    let found = probe(&snapshot, &leaf("id", range.clone())).await;
    let FileProbe::Known { exact, recheck, .. } = &found.files[0] else { panic!("{:?}", found.files[0]) };
    // Rows 50 to 199 are whole zones, 200 to 204 are half of one.
    assert_eq!(exact.iter().collect::<Vec<_>>(), (50..200).collect::<Vec<u32>>());
    assert_eq!(recheck.iter().collect::<Vec<_>>(), (200..210).collect::<Vec<u32>>());
    table.drop_index("id_bloom_tree", false).await.unwrap();
    let snapshot = built(&table, spec("summary", "id", &[])).await;
    let found = probe(&snapshot, &leaf("id", range)).await;
    assert_eq!(found.report.files_scanned, 2);
}

#[tokio::test]
async fn nulls_are_exact_and_negations_keep_what_may_differ() {
    for kind in KINDS {
        let folder = folder(2);
        let table = open(folder.path()).await;
        let snapshot = built(&table, spec(kind, "k", &[("fpp", "1e-6")])).await;
        let null_rows = |first: usize| -> Vec<u32> {
            (0..).zip(k_values(first, 250)).filter(|(_, value)| value.is_none()).map(|(row, _)| row).collect()
        };
        let found = probe(&snapshot, &is_null("k")).await;
        assert_eq!(exact_rows(&found.files[1]), null_rows(250), "{kind}");
        let found = probe(&snapshot, &leaf("k", KeyRanges::point(int_key(77)).complement())).await;
        let FileProbe::Known { exact, recheck, .. } = &found.files[0] else { panic!("{:?}", found.files[0]) };
        let all: Vec<u32> = exact.or(recheck).iter().collect();
        let valued: Vec<u32> = (0..250).filter(|row| !null_rows(0).contains(row)).collect();
        assert_eq!(all, valued, "{kind}: NULL is not chosen, everything else may be");
    }
}

/// The kinds compose: who knows every row is probed where it covers the file, then the smaller zones.
#[tokio::test]
async fn the_index_that_knows_most_answers_for_each_file() {
    let (folder, table) = table_of_ids(2, true).await;
    built(&table, spec("summary", "id", &[])).await;
    built(&table, spec("key", "id", &[])).await;
    let file = folder.path().join("f0002.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..250).map(|row| 5000 + row)));
    write(&file, &RecordBatch::try_from_iter([("id", ids)]).unwrap());
    let build = |index: &str| BuildOptions { index: Some(index.to_owned()), ..BuildOptions::default() };
    table.build(build("id_summary")).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &equals("id", 400)).await;
    assert_eq!(exact_rows(&found.files[0]), [200]);
    assert_eq!(found.report.leaves[0].index.as_ref().map(|by| by.name()), Some("id_key"));
    let found = probe(&snapshot, &equals("id", 5007)).await;
    assert_eq!(recheck_rows(&found.files[2]), (0..100).collect::<Vec<u32>>());
    assert_eq!((found.report.files_pruned, found.report.row_groups_pruned), (2, 8));
}

#[tokio::test]
async fn bad_options_are_worded_errors() {
    let (_folder, table) = table_of_ids(1, true).await;
    for (kind, option, value, text) in [
        ("bloom_tree", "fpp", "1", "below 1"),
        ("bloom_tree", "fpp", "0", "1e-15"),
        ("summary", "fpp", "NaN", "such as 0.01"),
        ("summary", "fpp", "often", "a probability"),
        ("bloom_tree", "zone_rows", "0", "1 or more"),
        ("summary", "zone_rows", "-3", "a number of rows"),
        ("summary", "encoding", "equality", "a summary index has fpp, zone_rows, files_per_segment"),
        ("bitmap", "fpp", "0.1", "a bitmap index has encoding, precision, files_per_segment"),
    ] {
        let error = table.create_index(spec(kind, "id", &[(option, value)]), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{kind} {option} {value}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = kind_or_auto("bloom_filter").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("this release has auto, bitmap, key, bloom_tree, summary"), "{error}");
    table.create_index(spec("bloom_tree", "id", &[("zone_rows", "1")]), false).await.unwrap();
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().segments, 1);
}

/// Laws 1 and 5: damage and loss are reported and the files are scanned.
#[tokio::test]
async fn law_5_a_damaged_or_missing_filter_is_named_and_its_files_are_scanned() {
    for kind in KINDS {
        let (folder, table) = table_of_ids(2, false).await;
        built(&table, spec(kind, "id", &[])).await;
        let index_files = folder.path().join("_lakemark/indexes");
        let path = std::fs::read_dir(&index_files).unwrap().next().unwrap().unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        let found = probe(&snapshot, &equals("id", 100)).await;
        assert_eq!(found.report.leaves[0].reason, Some(Reason::SegmentCorrupt), "{kind}");
        assert_eq!(found.report.files_scanned, 2);
        assert!(!table.verify().await.unwrap().is_ok());
        std::fs::remove_file(&path).unwrap();
        let options = ProbeOptions { selection_cache: false, ..ProbeOptions::default() };
        let found =
            open(folder.path()).await.snapshot().await.unwrap().probe(&equals("id", 102), &options).await.unwrap();
        assert_eq!(found.report.files_scanned, 2, "{kind}");
    }
}

/// Appended files get a segment of their own: no page that is there is written again.
#[tokio::test]
async fn appending_leaves_the_segments_that_are_there() {
    for kind in KINDS {
        let (folder, table) = table_of_ids(2, false).await;
        built(&table, spec(kind, "id", &[("fpp", "1e-9")])).await;
        let index_files = folder.path().join("_lakemark/indexes");
        let listed = || {
            let mut files: Vec<_> =
                std::fs::read_dir(&index_files).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files.into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect::<Vec<_>>()
        };
        let before = listed();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..250).map(|row| 9000 + row)));
        write(&folder.path().join("later.parquet"), &RecordBatch::try_from_iter([("id", ids)]).unwrap());
        let report = table.build(BuildOptions::default()).await.unwrap();
        assert_eq!((report.files, report.segments), (1, 1), "{kind}");
        let after = listed();
        assert_eq!(after.len(), 2);
        assert!(before.iter().all(|file| after.contains(file)), "{kind}: a segment was written again");
        let found = probe(&table.snapshot().await.unwrap(), &equals("id", 9007)).await;
        assert_eq!((found.report.files_pruned, found.report.row_groups_pruned), (2, 8), "{kind}");
    }
}

/// A summary of many files leaves one of many segments of keys to probe.
#[tokio::test]
async fn a_summary_is_probed_before_many_segments_of_keys() {
    let (folder, table) = table_of_ids(20, false).await;
    built(&table, spec("key", "id", &[("files_per_segment", "1")])).await;
    let reads = async |key: i64| {
        let snapshot = open(folder.path()).await.snapshot().await.unwrap();
        // Directories are remembered by then.
        probe(&snapshot, &equals("id", 1_000_001)).await;
        let found = probe(&snapshot, &equals("id", key)).await;
        (exact_rows(&found.files[7]), found.report.index_reads, found.report.rows_exact)
    };
    // Every segment says that its list of NULL is empty without a read; a leaf is read where the key lies between the first keys.
    let alone = reads(2 * (7 * 250 + 123)).await;
    let row = (0..250).find(|row| row * 101 % 250 == 123).unwrap();
    assert_eq!(alone.0, [row]);
    built(&table, spec("summary", "id", &[("fpp", "1e-9")])).await;
    let both = reads(2 * (7 * 250 + 123)).await;
    assert_eq!((both.0, both.2), (vec![row], 1));
    // The slices, and the leaf of the file that may hold the key.
    assert_eq!(both.1, 2, "{} reads without a summary", alone.1);
    let missing = reads(2 * (7 * 250 + 123) + 1).await;
    assert_eq!((missing.0, missing.1, missing.2), (vec![], 1, 0));
}

//! Every encoding through declaration, build, probe, report and verification.

use std::fs;

use lakemark_format::Encoding;
use lakemark_index::KeyRanges;
use lakemark_table::{BuildOptions, ErrorKind, IndexKind, IndexSpec};

use crate::fixture::{exact_rows, folder, int_key, k_values, leaf, open, probe, spec_with, write};

/// The rows of a file whose `k` passes.
fn rows(first: usize, pass: impl Fn(i32) -> bool) -> Vec<u32> {
    (0..).zip(k_values(first, 250)).filter(|(_, value)| value.is_some_and(&pass)).map(|(row, _)| row).collect()
}

/// The declaration of an index with an encoding; bins are cut at one digit.
pub fn spec_as(column: &str, encoding: Encoding) -> IndexSpec {
    match encoding {
        Encoding::Binned => spec_with(column, "precision", "1"),
        Encoding::Packed => {
            IndexSpec { kind: Some(IndexKind::Key), columns: vec![column.into()], ..IndexSpec::default() }
        }
        Encoding::Filtered => IndexSpec { kind: Some(IndexKind::BloomTree), ..spec_with(column, "zone_rows", "32") },
        Encoding::Sliced => IndexSpec { kind: Some(IndexKind::Summary), ..spec_with(column, "zone_rows", "32") },
        encoding => spec_with(column, "encoding", encoding.name()),
    }
}

#[tokio::test]
async fn every_encoding_is_built_probed_shown_and_verified() {
    for encoding in Encoding::EXACT {
        let folder = folder(3);
        let table = open(folder.path()).await;
        table.create_index(spec_as("k", encoding), false).await.unwrap();
        // Strings have no bins.
        let other = if encoding == Encoding::Binned { Encoding::Equality } else { encoding };
        table.create_index(spec_as("s", other), false).await.unwrap();
        table.build(BuildOptions::default()).await.unwrap();
        let snapshot = table.snapshot().await.unwrap();
        let info = snapshot.indexes();
        assert_eq!((info[0].encoding.as_str(), info[0].coverage), (encoding.name(), 1.0));
        // The encoding is a column of the list, not one more option.
        assert!(info[0].options.iter().all(|(name, _)| name != "encoding"), "{:?}", info[0].options);
        let between = KeyRanges::greater_than(int_key(2), true).intersect(&KeyRanges::less_than(int_key(6), true));
        let found = probe(&snapshot, &leaf("k", between.clone())).await;
        for (file, found) in found.files.iter().enumerate() {
            assert_eq!(exact_rows(found), rows(file * 250, |value| (2..=6).contains(&value)), "{encoding:?}");
        }
        assert_eq!(found.report.leaves[0].encoding.as_ref().map(|name| name.as_str()), Some(encoding.name()));
        assert!(found.report.to_string().contains(&format!("index {} ({})", info[0].name, encoding.name())));
        let found = probe(&snapshot, &leaf("k", between.complement())).await;
        assert_eq!(exact_rows(&found.files[1]), rows(250, |value| !(2..=6).contains(&value)), "{encoding:?}");
        let report = table.verify().await.unwrap();
        assert_eq!(report.indexes.iter().map(|index| index.files_ok).collect::<Vec<_>>(), [3, 3], "{encoding:?}");
        assert!(report.is_ok(), "{encoding:?}: {report:?}");
    }
}

/// A lookup probes every segment: keys of many files share one.
#[tokio::test]
async fn keys_of_many_files_share_a_segment_unless_told_otherwise() {
    let folder = folder(20);
    let table = open(folder.path()).await;
    let key = |name: &str, options: &[(&str, &str)]| IndexSpec {
        name: Some(name.to_owned()),
        kind: Some(IndexKind::Key),
        columns: vec!["k".to_owned()],
        options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    table.create_index(key("shared", &[]), false).await.unwrap();
    table.create_index(key("apart", &[("files_per_segment", "8")]), false).await.unwrap();
    table.create_index(spec_as("s", Encoding::Equality), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let segments: Vec<u64> = table.snapshot().await.unwrap().indexes().iter().map(|index| index.segments).collect();
    // Of apart, s and shared: indexes are in the order of their names.
    assert_eq!(segments, [3, 2, 1]);
}

/// Files come and go: what is stored has other ranks than what is derived again.
#[tokio::test]
async fn verification_compares_the_files_that_are_left() {
    for encoding in Encoding::ALL {
        let folder = folder(3);
        let other: Vec<Option<i32>> = (0..250).map(|row| Some(row * 3 - 100)).collect();
        let other = arrow::array::RecordBatch::try_from_iter([(
            "k",
            std::sync::Arc::new(arrow::array::Int32Array::from(other)) as arrow::array::ArrayRef,
        )])
        .unwrap();
        write(&folder.path().join("f0001.parquet"), &other);
        let table = open(folder.path()).await;
        table.create_index(spec_as("k", encoding), false).await.unwrap();
        table.build(BuildOptions::default()).await.unwrap();
        fs::remove_file(folder.path().join("f0001.parquet")).unwrap();
        let report = table.verify().await.unwrap();
        assert!(report.is_ok(), "{encoding:?}: {report:?}");
        assert_eq!((report.indexes[0].files_ok, report.indexes[0].stale.len()), (2, 1), "{encoding:?}");
    }
}

#[tokio::test]
async fn an_unknown_encoding_is_an_error_that_names_them_all() {
    let folder = folder(1);
    let table = open(folder.path()).await;
    let error = table.create_index(spec_with("k", "encoding", "bitsliced"), false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    for encoding in Encoding::BITMAP {
        assert!(error.to_string().contains(encoding.name()), "{error}");
    }
}

#[tokio::test]
async fn a_build_without_memory_for_the_coarse_level_says_how_much_it_takes() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "encoding", "binary"), false).await.unwrap();
    // Two files of 250 rows, each at a multiple of 64: 512 rows of 4 bytes.
    let build = |memory_bytes| BuildOptions { memory_bytes: Some(memory_bytes), ..BuildOptions::default() };
    let error = table.build(build(2047)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("2048 bytes of memory"), "{error}");
    // With room for that alone every chunk is spilled.
    let report = table.build(build(2048)).await.unwrap();
    assert!(report.spilled > 0, "{report:?}");
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn too_many_values_for_an_encoding_leave_the_table_as_it_was() {
    let folder = folder(1);
    let values: Vec<i32> = (0..5000).collect();
    let batch = arrow::array::RecordBatch::try_from_iter([(
        "k",
        std::sync::Arc::new(arrow::array::Int32Array::from(values)) as arrow::array::ArrayRef,
    )])
    .unwrap();
    write(&folder.path().join("f0001.parquet"), &batch);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "encoding", "range"), false).await.unwrap();
    let error = table.build(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("use range-equality"), "{error}");
    assert_eq!(table.snapshot().await.unwrap().indexes()[0].segments, 0);
}

#[tokio::test]
async fn a_precision_is_kept_with_the_index_and_wrong_ones_say_what_there_is() {
    let folder = folder(2);
    let table = open(folder.path()).await;
    for (column, options, expected) in [
        ("s", vec![("precision", "2")], "s: there is no precision on strings"),
        ("k", vec![("precision", "0")], "precision is 0; it must be 1 to 15 significant digits"),
        ("k", vec![("precision", "20")], "precision is 20; it must be 1 to 15 significant digits"),
        ("k", vec![("precision", "week")], "year, month, day, hour, minute or second"),
        ("k", vec![("precision", "month")], "k: precision is month, and numbers have one of 1 to 15 digits"),
        ("k", vec![("precision", "2"), ("encoding", "range")], "the encoding given is range"),
        ("k", vec![("encoding", "binned")], "needs a precision, such as precision=2"),
    ] {
        let options = options.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let spec = IndexSpec { columns: vec![column.to_owned()], options, ..IndexSpec::default() };
        let error = table.create_index(spec, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    table.create_index(spec_with("k", "precision", "1"), false).await.unwrap();
    let info = table.snapshot().await.unwrap().indexes();
    assert_eq!(info.len(), 1);
    assert_eq!(info[0].encoding.as_str(), "binned");
    assert!(info[0].options.contains(&("precision".to_owned(), "1".to_owned())), "{:?}", info[0].options);
}

/// Bounds that cut bins, and a byte of an order that is not the one written: the page's checksum finds it.
#[tokio::test]
async fn cut_bins_are_counted_exactly_and_damaged_ones_are_named() {
    let folder = folder(1);
    let values: Vec<i32> = (0..20_000).map(|row: i32| row.wrapping_mul(7919) % 100_003).collect();
    let batch = arrow::array::RecordBatch::try_from_iter([(
        "k",
        std::sync::Arc::new(arrow::array::Int32Array::from(values.clone())) as arrow::array::ArrayRef,
    )])
    .unwrap();
    write(&folder.path().join("f0000.parquet"), &batch);
    let table = open(folder.path()).await;
    table.create_index(spec_with("k", "precision", "1"), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let pass = |value: &i32| (12_345..=67_890).contains(value);
    let ranges = KeyRanges::greater_than(int_key(12_345), true).intersect(&KeyRanges::less_than(int_key(67_890), true));
    let expected: Vec<u32> = (0..).zip(&values).filter(|(_, value)| pass(value)).map(|(row, _)| row).collect();
    assert_eq!(exact_rows(&probe(&snapshot, &leaf("k", ranges)).await.files[0]), expected);
    assert!(table.verify().await.unwrap().is_ok());
    let index_files = folder.path().join("_lakemark/indexes");
    let path = fs::read_dir(&index_files).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    fs::write(&path, bytes).unwrap();
    let report = table.verify().await.unwrap();
    assert_eq!(report.indexes[0].damaged.len(), 1, "{report:?}");
}

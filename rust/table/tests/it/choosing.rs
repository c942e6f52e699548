//! The encoding that `auto` takes, and predictions against what is built.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use lakemark_index::KeyRanges;
use lakemark_table::{BuildOptions, ChosenBy, ErrorKind, IndexInfo, IndexKind, IndexSpec, Table, TableOptions};
use object_store::ObjectStore;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{equals, exact_rows, int_key, leaf, open, probe, spec, spec_with};
use crate::layer::{Hold, Layer, Log};

const FILE_ROWS: usize = 250_000;

/// Two files: few values, some text, a float with NULLs, unique numbers in no order, numbers that ascend.
fn write_files(folder: &Path) {
    let mut rng = StdRng::seed_from_u64(3);
    for file in 0..2 {
        let rows = file * FILE_ROWS..(file + 1) * FILE_ROWS;
        let few: Int32Array = rows.clone().map(|_| Some(rng.random_range(0..10))).collect();
        let text = rows.clone().map(|_| Some(format!("city-{:03}", rng.random_range(0..700))));
        let text: StringArray = text.collect();
        let price = rows.clone().map(|_| rng.random_bool(0.9).then(|| f64::from(rng.random_range(0..3000)) / 4.0));
        let price: Float64Array = price.collect();
        let unique = rows.clone().map(|row| {
            let mixed = (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 24) as i64
        });
        let columns: [(&str, ArrayRef); 6] = [
            ("few", Arc::new(few)),
            ("city", Arc::new(text)),
            ("price", Arc::new(price)),
            ("unique", Arc::new(Int64Array::from_iter_values(unique))),
            ("ordered", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64 / 3)))),
            ("id", Arc::new(Int64Array::from_iter_values(rows.map(|row| row as i64)))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100_000)).build();
        let path = std::fs::File::create(folder.join(format!("{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(path, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

async fn index_of(table: &Table, name: &str) -> IndexInfo {
    let indexes = table.snapshot().await.unwrap().indexes();
    indexes.into_iter().find(|index| index.name == name).unwrap()
}

#[tokio::test]
async fn auto_chooses_by_the_column_and_predicts_what_is_built() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let table = open(folder.path()).await;
    for column in ["few", "city", "price", "ordered", "unique", "id"] {
        table.create_index(spec(column), false).await.unwrap();
    }
    let declared = index_of(&table, "few_bitmap").await;
    assert!(declared.predicted_bytes.is_some_and(|bytes| bytes > 300_000), "{declared:?}");
    table.build(BuildOptions::default()).await.unwrap();
    for (column, encoding, values) in [
        ("few", "equality", "500000 of 500000 rows have about 10 values"),
        ("city", "equality", "about 700 values"),
        ("price", "equality", "about 3000 values"),
        ("ordered", "range-equality", "values; searches cost"),
        ("unique", "packed", "about 500000 values; nearly every row has its own"),
        ("id", "packed", "about 500000 values; nearly every row has its own"),
    ] {
        let kind = if encoding == "packed" { "key" } else { "bitmap" };
        let index = index_of(&table, &format!("{column}_{kind}")).await;
        assert_eq!(index.kind.as_str(), kind);
        let reason = index.reason.as_deref().unwrap();
        assert_eq!((index.encoding.as_str(), index.chosen_by), (encoding, ChosenBy::Auto), "{column}: {reason}");
        assert!(reason.contains(values), "{reason}");
        let ratio = index.predicted_bytes.unwrap() as f64 / index.bytes as f64;
        assert!((0.85..=1.15).contains(&ratio), "{column}: {} for {}", index.predicted_bytes.unwrap(), index.bytes);
        // What is recorded is not an option that the user gave.
        assert_eq!(index.options, []);
    }
    let snapshot = table.snapshot().await.unwrap();
    let found = probe(&snapshot, &leaf("ordered", KeyRanges::less_than(int_key(100_000), false))).await;
    assert_eq!((exact_rows(&found.files[0]).len(), exact_rows(&found.files[1]).len()), (FILE_ROWS, 50_000));
    let text = found.report.to_string();
    assert!(text.contains("    auto chose range-equality: 500000 of 500000 rows have about 166"), "{text}");
    assert!(table.verify().await.unwrap().is_ok());
}

/// Many small files: of bitmaps, a segment has sixteen of them; of keys, it has all.
#[tokio::test]
async fn auto_chooses_by_all_rows_of_a_table_of_many_files() {
    const FILES: i64 = 40;
    const ROWS: i64 = 5000;
    for files in [FILES, 1] {
        let folder = tempfile::tempdir().unwrap();
        let rows = ROWS * FILES / files;
        for file in 0..files {
            let rows = file * rows..(file + 1) * rows;
            // Each key in one file, in no order; in all files; twelve rows in neighbouring files; few values.
            let mixed = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).rotate_left(29) >> 20;
            let columns: [(&str, ArrayRef); 5] = [
                ("id", Arc::new(Int64Array::from_iter_values(rows.clone()))),
                ("unique", Arc::new(Int64Array::from_iter_values(rows.clone().map(mixed)))),
                (
                    "spread",
                    Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| mixed(row % (ROWS * FILES / 12))))),
                ),
                ("local", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row / 12)))),
                ("few", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| mixed(row) & 31)))),
            ];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let path = std::fs::File::create(folder.path().join(format!("{file:02}.parquet"))).unwrap();
            let mut writer = ArrowWriter::try_new(path, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        let table = open(folder.path()).await;
        for column in ["id", "unique", "spread", "local", "few"] {
            table.create_index(spec(column), false).await.unwrap();
        }
        table.build(BuildOptions::default()).await.unwrap();
        let indexes = table.snapshot().await.unwrap().indexes();
        for (index, kind) in indexes.iter().zip(["bitmap", "key", "key", "key", "key"]) {
            let at = format!("{files} files: {index:?}");
            // Of one file twelve rows a value are a bitmap, as each kind is probed in one segment.
            let kind = if files == 1 && ["spread", "local"].contains(&index.column.as_str()) { "bitmap" } else { kind };
            assert_eq!((index.kind.as_str(), index.chosen_by), (kind, ChosenBy::Auto), "{at}");
            // Of all rows of the table, not of those of a segment.
            let is_unique = index.reason.as_deref().unwrap().contains("nearly every row has its own");
            assert_eq!(is_unique, ["id", "unique"].contains(&index.column.as_str()), "{at}");
            let expected = if kind == "bitmap" && files > 1 { 3 } else { 1 };
            assert_eq!(index.segments, expected, "{at}");
            // What a border between files takes is not predicted, and shows where all else takes next to nothing.
            let ratio = index.predicted_bytes.unwrap() as f64 / index.bytes as f64;
            let is_tiny = index.column == "local" || index.bytes * 10 < index.rows;
            assert!(is_tiny || (0.8..=1.2).contains(&ratio), "{ratio}: {at}");
        }
        if files > 1 {
            let reason = indexes[3].reason.as_deref().unwrap();
            assert!(
                reason.contains("a value has about 12 rows, which the kind key finds in one segment instead of 3"),
                "{reason}"
            );
        }
        assert!(table.verify().await.unwrap().is_ok());
    }
}

/// A footer and a column chunk of each row group of the sample, and nothing of the other files.
#[tokio::test(flavor = "multi_thread")]
async fn a_declaration_over_thousands_of_tiny_files_reads_some_of_them_at_the_same_time() {
    const FILES: i64 = 3000;
    const SAMPLED: usize = 256;
    let folder = tempfile::tempdir().unwrap();
    for file in 0..FILES {
        let batch = RecordBatch::try_from_iter([("v", Arc::new(Int64Array::from(vec![file])) as ArrayRef)]).unwrap();
        crate::fixture::write(&folder.path().join(format!("f{file:04}.parquet")), &batch);
    }
    let log = Log::new();
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, &log);
    let path = folder.path().to_str().unwrap();
    let table = Table::open_layered(path, TableOptions::default(), &layer).await.unwrap();
    let reads = |log: &Log| log.matching(".parquet").iter().filter(|operation| operation.starts_with("get")).count();
    // Footers are remembered once nobody can write the files unseen.
    table.snapshot().await.unwrap();
    log.clear();
    table.snapshot().await.unwrap();
    let footers = reads(&log);
    log.clear();
    // No data file is read before eight are asked for.
    let asked = Arc::clone(&log);
    let is_free = move || reads(&asked) >= 8;
    log.held.set(Hold(".parquet", Box::new(is_free))).unwrap();
    table.create_index(IndexSpec { kind: Some(IndexKind::Key), ..spec("v") }, false).await.unwrap();
    let read = reads(&log);
    assert!((SAMPLED..=2 * SAMPLED + footers).contains(&read), "{read} reads, {footers} of footers without a sample");
    let index = index_of(&table, "v_key").await;
    assert!(index.predicted_bytes.is_some(), "{index:?}");
}

/// Long keys of their own: filters take a few bytes of each.
#[tokio::test]
async fn auto_keeps_filters_of_long_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(9);
    for file in 0..2u64 {
        let rows = file * 60_000..(file + 1) * 60_000;
        let token: Vec<String> = rows.clone().map(|_| format!("{:032x}", rng.random::<u128>())).collect();
        let logged = rows.zip(&token).map(|(row, token)| Some(format!("{row:08}-{token}")));
        let logged: StringArray = logged.collect();
        let columns: [(&str, ArrayRef); 2] =
            [("token", Arc::new(StringArray::from_iter_values(&token))), ("logged", Arc::new(logged))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10_000)).build();
        let path = std::fs::File::create(folder.path().join(format!("{file}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(path, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    let table = open(folder.path()).await;
    for column in ["token", "logged"] {
        table.create_index(spec(column), false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    for (name, encoding, because, most) in [
        ("token_summary", "sliced", "the rows are in no order", 5),
        ("logged_bloom_tree", "filtered", "the rows are in their order", 2),
    ] {
        let index = index_of(&table, name).await;
        assert_eq!((index.encoding.as_str(), index.chosen_by), (encoding, ChosenBy::Auto));
        let reason = index.reason.unwrap();
        assert!(reason.contains("keys would take") && reason.contains(because), "{reason}");
        let ratio = index.predicted_bytes.unwrap() as f64 / index.bytes as f64;
        assert!((0.85..=1.15).contains(&ratio), "{name}: {} for {}", index.predicted_bytes.unwrap(), index.bytes);
        assert!(index.bytes < 120_000 * most, "{name}: {}", index.bytes);
    }
}

#[tokio::test]
async fn what_is_named_is_taken_and_predicted() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let table = open(folder.path()).await;
    table.create_index(spec_with("id", "encoding", "binary"), false).await.unwrap();
    table.create_index(IndexSpec { kind: Some(IndexKind::Bitmap), ..spec("city") }, false).await.unwrap();
    let bins = IndexSpec { name: Some("id_bins".into()), ..spec_with("id", "precision", "3") };
    table.create_index(bins, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    for (name, encoding) in [("id_bitmap", "binary"), ("city_bitmap", "equality"), ("id_bins", "binned")] {
        let index = index_of(&table, name).await;
        assert_eq!((index.encoding.as_str(), index.chosen_by), (encoding, ChosenBy::User));
        assert_eq!(index.reason, None);
        let ratio = index.predicted_bytes.unwrap() as f64 / index.bytes as f64;
        assert!((0.85..=1.15).contains(&ratio), "{name}: {ratio}");
    }
    // More rows than an encoding can have values: it is declared as requested, and the build says why not.
    table
        .create_index(IndexSpec { name: Some("r".into()), ..spec_with("id", "encoding", "range") }, false)
        .await
        .unwrap();
    assert_eq!(index_of(&table, "r").await.predicted_bytes, None);
    let error = table.build(BuildOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn an_encoding_that_auto_chose_gives_way_to_a_small_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let table = open(folder.path()).await;
    // An option that says nothing of encodings leaves the choice open.
    table.create_index(spec_with("ordered", "files_per_segment", "2"), false).await.unwrap();
    let declared = index_of(&table, "ordered_bitmap").await;
    assert_eq!(declared.encoding.as_str(), "range-equality");
    assert_eq!(declared.options, [("files_per_segment".to_owned(), "2".to_owned())]);
    // 500,000 rows of 4 bytes do not fit.
    let build = BuildOptions { memory_bytes: Some(1 << 20), ..BuildOptions::default() };
    table.build(build).await.unwrap();
    let index = index_of(&table, "ordered_bitmap").await;
    assert_eq!((index.coverage, index.segments), (1.0, 1));
    let found = probe(&table.snapshot().await.unwrap(), &equals("ordered", 120_000)).await;
    assert_eq!(exact_rows(&found.files[1]), [110_000, 110_001, 110_002]);
    assert!(table.verify().await.unwrap().is_ok());
}

#[tokio::test]
async fn data_that_cannot_be_read_is_no_reason_not_to_declare() {
    let folder = crate::fixture::folder(1);
    let table = open(folder.path()).await;
    let path = folder.path().join("f0000.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    // The column chunks are damaged, the footer is not.
    bytes[4..200].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    assert!(table.create_index(spec("k"), false).await.unwrap());
    let index = index_of(&table, "k_bitmap").await;
    assert_eq!(
        (index.encoding.as_str(), index.reason.as_deref()),
        ("equality", Some("no sample of the data could be read"))
    );
    assert_eq!(index.predicted_bytes, None);
}

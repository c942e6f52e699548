//! Data files that are not what they say, or not what they were: an answer is right, or an error that names the file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, Error, ErrorKind, IndexSpec};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::{Statistics, ValueStatistics};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::fixture::{create_indexes, rows, session};

/// Puts another footer at the end of a file.
fn forge(path: &Path, change: impl FnOnce(ParquetMetaData) -> ParquetMetaData) {
    let bytes = fs::read(path).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(path).unwrap()).unwrap();
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let mut forged = bytes[..bytes.len() - 8 - length].to_vec();
    let mut footer = Vec::new();
    ParquetMetaDataWriter::new(&mut footer, &change(metadata)).finish().unwrap();
    forged.extend(footer);
    fs::write(path, forged).unwrap();
}

/// A data file, which lasts as long as its folder.
struct Written {
    folder: TempDir,
    path: PathBuf,
}

fn written(batch: &RecordBatch, properties: WriterProperties) -> Written {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("part.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    Written { folder, path }
}

/// The same file without its page index, which readers would go by first.
fn without_page_index() -> WriterProperties {
    WriterProperties::builder()
        .set_statistics_enabled(parquet::file::properties::EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build()
}

async fn count(session: &LakemarkSession, condition: &str) -> String {
    rows(session, &format!("SELECT count(*) FROM t WHERE {condition}")).await.remove(0)
}

/// As parquet-mr 1.8.2 wrote decimals of many bytes: their bounds are those of bytes with a sign.
#[tokio::test]
async fn law_1_old_bounds_of_decimals_are_not_believed() {
    let values = Decimal128Array::from(vec![100, 200, 2400, -5]).with_precision_and_scale(25, 2).unwrap();
    let batch = RecordBatch::try_from_iter([("value", Arc::new(values) as ArrayRef)]).unwrap();
    let Written { folder, path } = written(&batch, without_page_index());
    forge(&path, |metadata| {
        let file = metadata.file_metadata();
        let created_by = Some("parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)".to_owned());
        let schema = file.schema_descr_ptr();
        let file = FileMetaData::new(1, file.num_rows(), created_by, None, schema, None);
        let mut rest = metadata.into_builder();
        let groups = rest.take_row_groups().into_iter().map(|group| {
            let Some(Statistics::FixedLenByteArray(said)) = group.column(0).statistics().cloned() else { panic!() };
            let min = Some(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200].into());
            let statistics = ValueStatistics::new(min, said.max_opt().cloned(), None, Some(0), true);
            let chunk = group.column(0).clone().into_builder();
            let chunk = chunk.set_statistics(Statistics::FixedLenByteArray(statistics)).build().unwrap();
            group.into_builder().set_column_metadata(vec![chunk]).build().unwrap()
        });
        ParquetMetaDataBuilder::new(file).set_row_groups(groups.collect()).build()
    });
    let session = session(folder.path()).await;
    assert_eq!(count(&session, "value = 1.00").await, "1");
    assert_eq!(count(&session, "value < 0").await, "1");
    create_indexes(folder.path(), &["value"]).await;
    assert_eq!(count(&session, "value = 1.00").await, "1");
    session.sql("SET lakemark.use_index = false").await.unwrap();
    assert_eq!(count(&session, "value = 1.00").await, "1");
}

#[tokio::test]
async fn law_1_a_file_has_the_rows_that_its_row_groups_have() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5, 6]));
    let Written { folder, path } =
        written(&RecordBatch::try_from_iter([("a", values)]).unwrap(), WriterProperties::new());
    forge(&path, |metadata| {
        let file = metadata.file_metadata();
        let (entries, orders) = (file.key_value_metadata().cloned(), file.column_orders().cloned());
        let file = FileMetaData::new(1, 0, None, entries, file.schema_descr_ptr(), orders);
        let mut rest = metadata.into_builder();
        ParquetMetaDataBuilder::new(file).set_row_groups(rest.take_row_groups()).build()
    });
    let session = session(folder.path()).await;
    for use_index in [true, false] {
        session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap();
        assert_eq!(rows(&session, "SELECT count(*) FROM t").await, ["6"]);
        assert_eq!(rows(&session, "SELECT a FROM t WHERE a > 4 ORDER BY a").await, ["5", "6"]);
        assert_eq!(rows(&session, "SELECT count(*), sum(a) FROM t WHERE a > 0").await, ["6|21"]);
        assert_eq!(rows(&session, "SELECT * FROM t ORDER BY a").await.len(), 6);
    }
    create_indexes(folder.path(), &["a"]).await;
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE a > 4").await, ["2"]);
}

/// As writers do for which statistics with long values are optional: bounds, and no number of NULLs.
#[tokio::test]
async fn law_1_nulls_that_nobody_counted_are_found() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), None]));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", values, true)]).unwrap();
    let Written { folder, path } = written(&batch, without_page_index());
    forge(&path, |metadata| {
        let file = metadata.file_metadata();
        let created_by = Some("parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)".to_owned());
        let orders = file.column_orders().cloned();
        let file = FileMetaData::new(1, file.num_rows(), created_by, None, file.schema_descr_ptr(), orders);
        let mut rest = metadata.into_builder();
        let groups = rest.take_row_groups().into_iter().map(|group| {
            let said = Statistics::int64(Some(1), Some(3), None, None, false);
            let chunk = group.column(0).clone().into_builder().set_statistics(said).build().unwrap();
            group.into_builder().set_column_metadata(vec![chunk]).build().unwrap()
        });
        ParquetMetaDataBuilder::new(file).set_row_groups(groups.collect()).build()
    });
    let session = session(folder.path()).await;
    let right = async |when: &str| {
        assert_eq!(count(&session, "a IS NULL").await, "2", "{when}");
        assert_eq!(count(&session, "a IS NOT NULL").await, "2", "{when}");
        assert_eq!(rows(&session, "SELECT count(*), count(a) FROM t").await, ["4|2"], "{when}");
    };
    right("without an index").await;
    create_indexes(folder.path(), &["a"]).await;
    right("with an index").await;
    session.sql("SET lakemark.use_index = false").await.unwrap();
    right("with an index that is not used").await;
}

/// What a session remembers of a file goes by its tag, too.
#[tokio::test]
async fn law_1_a_file_that_is_written_over_with_its_size_and_time_is_read_anew() {
    let of = |value: i32| {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![value; 100]));
        written(&RecordBatch::try_from_iter([("k", values)]).unwrap(), WriterProperties::new())
    };
    let Written { folder, path } = of(1);
    let Written { folder: _other_folder, path: other } = of(5);
    create_indexes(folder.path(), &["k"]).await;
    let session = session(folder.path()).await;
    let counts = async |session: &LakemarkSession| [count(session, "k = 1").await, count(session, "k = 5").await];
    for use_index in [true, false] {
        session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap();
        assert_eq!(counts(&session).await, ["100", "0"]);
    }
    let before = fs::metadata(&path).unwrap();
    let mut file = File::options().write(true).open(&path).unwrap();
    file.write_all(&fs::read(other).unwrap()).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), before.len());
    for use_index in [true, false] {
        session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap();
        assert_eq!(counts(&session).await, ["0", "100"], "{use_index}");
        assert_eq!(rows(&session, "SELECT min(k), max(k) FROM t").await, ["5|5"], "{use_index}");
    }
}

/// A footer whose bounds of `a` say 1 to 5, whatever there is.
fn with_false_bounds(path: &Path) {
    forge(path, |metadata| {
        let mut rest = metadata.into_builder();
        let groups = rest.take_row_groups().into_iter().map(|group| {
            let mut columns = group.columns().to_vec();
            let said = Statistics::int64(Some(1), Some(5), None, Some(0), false);
            columns[0] = columns[0].clone().into_builder().set_statistics(said).build().unwrap();
            group.into_builder().set_column_metadata(columns).build().unwrap()
        });
        let groups = groups.collect();
        rest.set_row_groups(groups).build()
    });
}

/// Nothing about the writer tells that these bounds are false. A build reads every value.
#[tokio::test]
async fn law_1_bounds_that_a_build_has_seen_to_be_false_are_used_by_nobody() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 900]));
    let b: ArrayRef = Arc::new(Int64Array::from(vec![1, 1, 2, 2]));
    let batch = RecordBatch::try_from_iter([("a", a), ("b", b)]).unwrap();
    let Written { folder, path } = written(&batch, without_page_index());
    with_false_bounds(&path);
    let session = session(folder.path()).await;
    // As any reader, it goes by the footer: nobody has read the values.
    assert_eq!(count(&session, "a > 100").await, "0");
    let table = crate::fixture::open(folder.path()).await;
    for column in ["b", "a"] {
        let spec = IndexSpec { columns: vec![column.to_owned()], ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    let build = async |index: &str| {
        let options = BuildOptions { index: Some(index.to_owned()), ..BuildOptions::default() };
        table.build(options).await.unwrap().false_statistics
    };
    let names: Vec<String> = table.snapshot().await.unwrap().indexes().iter().map(|index| index.name.clone()).collect();
    let [a, b] = names.as_slice() else { panic!("{names:?}") };
    assert_eq!(build(b).await, []);
    let found = build(a).await;
    let [finding] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(finding.path, "part.parquet");
    assert!(finding.problem.contains("statistics of a in its footer"), "{}", finding.problem);
    let verified = table.verify().await.unwrap();
    assert!(verified.is_ok());
    assert_eq!(verified.false_statistics, found);
    // The index on `b` is still there, and neither index is probed for `a * 1`.
    assert_eq!(table.snapshot().await.unwrap().indexes().iter().map(|index| index.files_covered).sum::<u64>(), 2);
    let check = async || {
        for use_index in [true, false] {
            session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap();
            assert_eq!(count(&session, "a > 100").await, "1", "{use_index}");
            assert_eq!(rows(&session, "SELECT a FROM t WHERE a > 100").await, ["900"], "{use_index}");
            assert_eq!(rows(&session, "SELECT b FROM t WHERE a > 100 AND b > 1").await, ["2"], "{use_index}");
        }
    };
    check().await;
    // The fact outlives the index that told it.
    table.drop_index(a, false).await.unwrap();
    check().await;
    table.drop_index(b, false).await.unwrap();
    check().await;
    // Another file of that name is another matter.
    with_false_bounds(&path);
    assert_eq!(count(&session, "a > 100").await, "1", "the bytes are the same, and in doubt");
    let Written { folder: _other, path: other } = written(&batch, WriterProperties::new());
    fs::copy(other, &path).unwrap();
    check().await;
}

/// The build that saw it was killed, and its segment is left.
#[tokio::test]
async fn law_1_no_build_takes_over_a_segment_and_goes_on_to_believe_false_bounds() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 900]));
    let Written { folder, path } = written(&RecordBatch::try_from_iter([("a", a)]).unwrap(), without_page_index());
    with_false_bounds(&path);
    let table = crate::fixture::open(folder.path()).await;
    let spec = IndexSpec { columns: vec!["a".to_owned()], ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    let plan = table.plan_build(&BuildOptions::default(), 1).await.unwrap();
    for task in plan.tasks() {
        table.run_build_task(task, &BuildOptions::default()).await.unwrap();
    }
    drop(plan);
    let report = table.build(BuildOptions::default()).await.unwrap();
    assert_eq!((report.segments + report.taken_over, report.false_statistics.len()), (1, 1), "{report:?}");
    assert_eq!(fs::read_dir(folder.path().join("_lakemark/indexes")).unwrap().count(), 1);
    let session = session(folder.path()).await;
    assert_eq!(count(&session, "a > 100").await, "1");
}

#[tokio::test]
async fn statistics_that_are_so_are_not_called_false() {
    let batch = random_bytes(11).batch;
    for round in 0..4 {
        let folder = written(&batch, encoded(round)).folder;
        let table = crate::fixture::open(folder.path()).await;
        for column in ["i", "l", "f", "d", "s", "b"] {
            let spec = IndexSpec { columns: vec![column.to_owned()], ..IndexSpec::default() };
            table.create_index(spec, false).await.unwrap();
        }
        assert_eq!(table.build(BuildOptions::default()).await.unwrap().false_statistics, []);
    }
}

/// Rows of random values.
struct RandomBytes {
    batch: RecordBatch,
    /// What goes on with the same seed.
    random: StdRng,
}

fn random_bytes(seed: u64) -> RandomBytes {
    let mut random = StdRng::seed_from_u64(seed);
    let texts: Vec<String> = (0..400).map(|row| format!("text {} {}", row / 7, random.random_range(0..50))).collect();
    let blobs: Vec<[u8; 5]> = (0..400).map(|_| random.random()).collect();
    let columns: [(&str, ArrayRef); 6] = [
        (
            "i",
            Arc::new((0..400).map(|row| (row % 9 != 0).then(|| random.random_range(0..1000))).collect::<Int32Array>()),
        ),
        ("l", Arc::new(Int64Array::from_iter_values((0..400).map(|_| random.random_range(0..1_000_000))))),
        ("f", Arc::new(Float32Array::from_iter_values((0..400).map(|_| random.random())))),
        ("d", Arc::new(Float64Array::from_iter_values((0..400).map(|_| random.random())))),
        ("s", Arc::new(StringArray::from_iter_values(&texts))),
        ("b", Arc::new(FixedSizeBinaryArray::try_from_iter(blobs.iter()).unwrap())),
    ];
    let columns = columns.map(|(name, column)| (name, column, true));
    RandomBytes { batch: RecordBatch::try_from_iter_with_nullable(columns).unwrap(), random }
}

fn encoded(round: u64) -> WriterProperties {
    let builder = WriterProperties::builder().set_max_row_group_row_count(Some(150)).set_write_batch_size(50);
    let builder = builder.set_data_page_row_count_limit(50);
    let of = |column: &str| parquet::schema::types::ColumnPath::from(column);
    match round % 4 {
        0 => builder.build(),
        1 => builder.set_dictionary_enabled(false).set_compression(Compression::SNAPPY).build(),
        2 => builder
            .set_dictionary_enabled(false)
            .set_column_encoding(of("i"), Encoding::DELTA_BINARY_PACKED)
            .set_column_encoding(of("l"), Encoding::BYTE_STREAM_SPLIT)
            .set_column_encoding(of("f"), Encoding::BYTE_STREAM_SPLIT)
            .set_column_encoding(of("d"), Encoding::BYTE_STREAM_SPLIT)
            .set_column_encoding(of("s"), Encoding::DELTA_BYTE_ARRAY)
            .set_column_encoding(of("b"), Encoding::BYTE_STREAM_SPLIT)
            .build(),
        _ => builder
            .set_dictionary_enabled(false)
            .set_column_encoding(of("s"), Encoding::DELTA_LENGTH_BYTE_ARRAY)
            .set_column_encoding(of("l"), Encoding::DELTA_BINARY_PACKED)
            .set_writer_version(parquet::file::properties::WriterVersion::PARQUET_2_0)
            .build(),
    }
}

async fn answer(folder: &Path, sql: &str) -> Result<usize, Error> {
    let session = session_of(folder).await?;
    let batches = session.sql(sql).await?.collect().await.map_err(lakemark_datafusion::from_engine)?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

async fn session_of(folder: &Path) -> Result<LakemarkSession, Error> {
    let session = LakemarkSession::new();
    let sql = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.display());
    session.sql(&sql).await?;
    Ok(session)
}

/// Bytes that somebody flipped, anywhere: an answer (pages have no checksums), or an error that names the file. More rounds by
/// `LAKEMARK_FLIPS`.
#[tokio::test]
async fn damaged_files_are_answers_or_errors_that_name_them() {
    let rounds = std::env::var("LAKEMARK_FLIPS").map_or(80, |rounds| rounds.parse().unwrap());
    let mut errors = 0;
    for round in 0..rounds {
        let RandomBytes { batch, mut random } = random_bytes(round);
        let Written { folder, path } = written(&batch, encoded(round));
        fs::copy(&path, folder.path().join("good.parquet")).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(4..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        fs::write(&path, bytes).unwrap();
        for sql in ["SELECT * FROM t", "SELECT s FROM t WHERE i < 500 AND l > 3"] {
            let Err(error) = answer(folder.path(), sql).await else { continue };
            errors += 1;
            let is_reported =
                matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::SchemaMismatch);
            assert!(
                is_reported && error.to_string().contains("part.parquet"),
                "round {round}, {sql}: {:?} {error}",
                error.kind()
            );
        }
    }
    assert!(errors > rounds / 8, "{errors} errors in {rounds} rounds");
}

/// Pages on which Parquet's reader panics.
#[tokio::test]
async fn a_panic_of_the_parquet_reader_is_a_damaged_file() {
    let mut panics = 0;
    for round in [2_u64, 6, 10] {
        let RandomBytes { batch, mut random } = random_bytes(round);
        let Written { folder, path } = written(&batch, encoded(round));
        let good = fs::read(&path).unwrap();
        for _ in 0..30 {
            let mut bytes = good.clone();
            let end = bytes.len() / 2;
            for _ in 0..4 {
                let at = random.random_range(4..end);
                bytes[at] = random.random();
            }
            fs::write(&path, bytes).unwrap();
            if let Err(error) = answer(folder.path(), "SELECT * FROM t").await {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                panics += u32::from(error.to_string().contains("the Parquet reader gave up"));
            }
        }
    }
    assert!(panics > 0);
}

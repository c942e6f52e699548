//! The predicate corpus (`tests/corpus`), asked of [`LakemarkSession`] with the index files on, absent, half-built, stale and
//! corrupted: the rows are those of the session that has the indexes switched off, and as many as the corpus says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use lakemark_datafusion::LakemarkSession;
use lakemark_format::Encoding;
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table, TableOptions};
use tempfile::TempDir;
use tokio::sync::OnceCell;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::differential::precisions_of;
use crate::fixture::text;

const FILES: [&str; 4] = ["part-0.parquet", "part-1.parquet", "part-2.parquet", "part-3.parquet"];

/// One predicate of the corpus.
struct Case {
    id: String,
    sql: String,
    /// The number of rows, unless DataFusion's answer is known to be another one.
    rows: Option<usize>,
}

fn corpus_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus")
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(corpus_folder().join("predicates.toml")).unwrap();
    let document = DeValue::Table(DeTable::parse(&text).unwrap().into_inner());
    let entries = document["predicate"].get_ref().as_array().unwrap();
    assert!(entries.len() >= 300, "the corpus has {} predicates", entries.len());
    let case = |entry: &Spanned<DeValue<'_>>| Case {
        id: entry.get_ref()["id"].get_ref().as_str().unwrap().to_owned(),
        sql: entry.get_ref()["sql"].get_ref().as_str().unwrap().to_owned(),
        rows: match entry.get_ref().get("differs").and_then(|differs| differs.get_ref().get("datafusion")) {
            Some(_) => None,
            None => {
                entry.get_ref().get("rows").map(|rows| rows.get_ref().as_integer().unwrap().as_str().parse().unwrap())
            }
        },
    };
    entries.iter().map(case).collect()
}

fn copy_files(folder: &Path, names: &[&str]) {
    for name in names {
        fs::copy(corpus_folder().join("table").join(name), folder.join(name)).unwrap();
    }
}

/// Indexes every `step`-th column of the folder's table.
async fn create_indexes(folder: &Path, step: usize) {
    create_indexes_as(folder, step, &[Encoding::Equality]).await;
}

/// The same with these encodings in turn.
async fn create_indexes_as(folder: &Path, step: usize, encodings: &[Encoding]) {
    let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
    let schema = table.snapshot().await.unwrap().schema();
    for (field, encoding) in schema.fields().iter().step_by(step).zip(encodings.iter().cycle()) {
        // Elements of lists have the encoding equality, whatever values have.
        let encoding = if field.data_type().is_nested() { &Encoding::Equality } else { encoding };
        let spec = IndexSpec {
            columns: vec![field.name().clone()],
            kind: Some(IndexKind::of_encoding(*encoding)),
            options: option(field.data_type(), *encoding).into_iter().collect(),
            ..IndexSpec::default()
        };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
}

/// The option for an encoding; a type that has no bins has equality in their place.
fn option(data_type: &DataType, encoding: Encoding) -> Option<(String, String)> {
    let (name, value) = match (encoding, precisions_of(data_type).first()) {
        (Encoding::Binned, Some(precision)) => ("precision", *precision),
        (Encoding::Binned, None) => ("encoding", Encoding::Equality.name()),
        // Small zones, so that there are several and the files are not only whole ones.
        (Encoding::Filtered, _) => ("zone_rows", "7"),
        // The other kinds have no option for their encoding.
        (Encoding::Packed | Encoding::Sliced, _) => return None,
        (encoding, _) => ("encoding", encoding.name()),
    };
    Some((name.to_owned(), value.to_owned()))
}

async fn session(folder: &Path, use_index: bool) -> LakemarkSession {
    let session = LakemarkSession::new();
    let create = format!("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '{}'", folder.display());
    for statement in [format!("SET lakemark.use_index = {use_index}"), create] {
        session.sql(&statement).await.unwrap().collect().await.unwrap();
    }
    session
}

/// The ids of the rows, or None if the predicate is an error.
async fn ids(session: &LakemarkSession, predicate: &str) -> Option<Vec<i64>> {
    let frame = session.sql(&format!("SELECT id FROM t WHERE {predicate}")).await.ok()?;
    let batches = frame.collect().await.ok()?;
    let columns = batches.iter().map(|batch| batch.column(0).as_primitive::<Int64Type>());
    let mut found: Vec<i64> = columns.flat_map(|column| column.values().iter().copied()).collect();
    found.sort_unstable();
    Some(found)
}

async fn counted(session: &LakemarkSession, predicate: &str) -> Option<i64> {
    let frame = session.sql(&format!("SELECT count(*) FROM t WHERE {predicate}")).await.ok()?;
    let batches = frame.collect().await.ok()?;
    let batch = batches.iter().find(|batch| batch.num_rows() == 1)?;
    Some(batch.column(0).as_primitive::<Int64Type>().value(0))
}

/// The columns whose values can be grouped, as SQL names them.
async fn columns(session: &LakemarkSession) -> Vec<String> {
    let frame = session.sql("SELECT * FROM t LIMIT 0").await.unwrap();
    let fields = frame.schema().fields().iter().filter(|field| !field.data_type().is_nested());
    fields.map(|field| format!("\"{}\"", field.name())).collect()
}

/// A column by value among the rows of a predicate, as text; None if the statement is an error.
async fn grouped(session: &LakemarkSession, column: &str, predicate: &str) -> Option<Vec<String>> {
    let sql = format!("SELECT {column}, count(*), count({column}) FROM t WHERE {predicate} GROUP BY {column}");
    let batches = session.sql(&sql).await.ok()?.collect().await.ok()?;
    let mut found: Vec<String> = batches.iter().flat_map(text).collect();
    found.sort_unstable();
    Some(found)
}

/// The answers without indexes.
struct Expected {
    case: Case,
    ids: Option<Vec<i64>>,
    /// One column by value. Every third is enough for the states of indexes, of which each costs a run.
    by_value: Option<ByValue>,
}

/// A column by value.
struct ByValue {
    column: String,
    /// As [`grouped`] gives them.
    rows: Option<Vec<String>>,
}

/// What the untouched files answer with the indexes switched off: asked once, as every state of indexes has to answer the same.
async fn expected() -> &'static [Expected] {
    static EXPECTED: OnceCell<Vec<Expected>> = OnceCell::const_new();
    let ask = || async {
        let plain = TempDir::new().unwrap();
        copy_files(plain.path(), &FILES);
        let unindexed = session(plain.path(), false).await;
        let columns = columns(&unindexed).await;
        let mut answers = Vec::new();
        for (number, case) in cases().into_iter().enumerate() {
            let column = &columns[number % columns.len()];
            let by_value = match number % 3 {
                0 => {
                    let rows = grouped(&unindexed, column, &case.sql).await;
                    Some(ByValue { column: column.clone(), rows })
                }
                _ => None,
            };
            let ids = ids(&unindexed, &case.sql).await;
            answers.push(Expected { case, ids, by_value });
        }
        answers
    };
    EXPECTED.get_or_init(ask).await
}

/// Asks the whole corpus of the folder's table.
async fn check(folder: &Path) {
    let indexed = session(folder, true).await;
    let mut wrong = BTreeMap::new();
    for Expected { case, ids: expected, by_value } in expected().await {
        if let Some(ByValue { column, rows }) = by_value {
            let found = grouped(&indexed, column, &case.sql).await;
            if found != *rows {
                wrong.insert(format!("{} by {column}", case.id), format!("{found:?}"));
            }
        }
        let found = ids(&indexed, &case.sql).await;
        let count = counted(&indexed, &case.sql).await;
        let rows = expected.as_ref().map(Vec::len);
        let as_recorded = case.rows.is_none() || rows == case.rows;
        if found != *expected || count != rows.map(|rows| i64::try_from(rows).unwrap()) || !as_recorded {
            let sizes = (found.map(|found| found.len()), count, rows, case.rows);
            wrong.insert(case.id.clone(), format!("{sizes:?} rows, counted, without indexes, recorded: {}", case.sql));
        }
    }
    assert!(wrong.is_empty(), "{} predicates: {wrong:#?}", wrong.len());
}

/// Flips a byte in the middle of every file below the folder whose number `chosen` picks; returns how many.
fn corrupt(folder: &Path, chosen: impl Fn(usize) -> bool) -> usize {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let mut flipped = 0;
    for (_, path) in paths.iter().enumerate().filter(|(number, _)| chosen(*number)) {
        let mut held = fs::read(path).unwrap();
        let middle = held.len() / 2;
        held[middle] ^= 0x20;
        fs::write(path, held).unwrap();
        flipped += 1;
    }
    flipped
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_every_column_marked() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes(folder.path(), 1).await;
    check(folder.path()).await;
}

/// Every column with one of the encodings that have a coarse level.
#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_every_encoding() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes_as(folder.path(), 1, &Encoding::ALL[1..]).await;
    check(folder.path()).await;
}

/// Every column with a tree of Bloom filters, or with a summary.
#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_zones_of_every_type() {
    for encoding in [Encoding::Filtered, Encoding::Sliced] {
        let folder = TempDir::new().unwrap();
        copy_files(folder.path(), &FILES);
        create_indexes_as(folder.path(), 1, &[encoding]).await;
        check(folder.path()).await;
    }
}

/// Every column with an index of the kind `key`.
#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_keys_of_every_type() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes_as(folder.path(), 1, &[Encoding::Packed]).await;
    check(folder.path()).await;
}

/// Every column with an index of the kind `key` that includes the ids, so that these are in no need of the data. Links over some of the
/// columns answer no condition, and are in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_keys_that_include_what_is_asked_for() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    let table = Table::open(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    let schema = table.snapshot().await.unwrap().schema();
    for field in schema.fields().iter().filter(|field| !field.data_type().is_nested() && field.name() != "id") {
        let spec = IndexSpec {
            columns: vec![field.name().clone()],
            options: BTreeMap::from([("include".to_owned(), "id".to_owned())]),
            ..IndexSpec::default()
        };
        table.create_index(spec, false).await.unwrap();
    }
    for columns in [["sorted", "low_s", "low_i"].as_slice(), &["s", "low_s"], &["low_i", "late"]] {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        let spec = IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() };
        table.create_index(spec, false).await.unwrap();
    }
    table.build(BuildOptions::default()).await.unwrap();
    check(folder.path()).await;
    let flipped = corrupt(&folder.path().join("_lakemark/indexes"), |number| number % 2 == 0);
    assert!(flipped > 10, "{flipped} segments were corrupted");
    check(folder.path()).await;
}

/// Every column in bins of the coarsest precision that its type has.
#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_bins_of_every_type() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes_as(folder.path(), 1, &[Encoding::Binned]).await;
    let table = Table::open(folder.path().to_str().unwrap(), TableOptions::default()).await.unwrap();
    let indexes = table.snapshot().await.unwrap().indexes();
    assert!(indexes.iter().filter(|index| index.encoding.as_str() == "binned").count() > 10, "{}", indexes.len());
    check(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_the_store_removed() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes(folder.path(), 1).await;
    fs::remove_dir_all(folder.path().join("_lakemark")).unwrap();
    check(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_half_of_columns_and_files_marked() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &[FILES[0], FILES[2]]);
    create_indexes(folder.path(), 2).await;
    copy_files(folder.path(), &FILES);
    check(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_1_corpus_with_a_replaced_and_a_vanished_file() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    fs::copy(folder.path().join(FILES[3]), folder.path().join(FILES[1])).unwrap();
    fs::copy(folder.path().join(FILES[0]), folder.path().join("part-9.parquet")).unwrap();
    create_indexes(folder.path(), 1).await;
    copy_files(folder.path(), &[FILES[1]]);
    fs::remove_file(folder.path().join("part-9.parquet")).unwrap();
    check(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_5_corpus_with_corrupted_segments() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes_as(folder.path(), 1, &Encoding::ALL).await;
    let flipped = corrupt(&folder.path().join("_lakemark/indexes"), |number| number % 2 == 0);
    assert!(flipped > 10, "{flipped} segments were corrupted");
    check(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn law_5_corpus_with_corrupted_manifests() {
    let folder = TempDir::new().unwrap();
    copy_files(folder.path(), &FILES);
    create_indexes(folder.path(), 1).await;
    let flipped = corrupt(&folder.path().join("_lakemark/manifest"), |_| true);
    assert!(flipped > 0, "no manifest was there");
    check(folder.path()).await;
}

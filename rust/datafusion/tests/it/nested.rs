//! Conditions and aggregates over fields of structs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int16Array, Int64Array, Int64Builder, MapBuilder, RecordBatch, StringArray,
    StringBuilder, StructArray, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::ParquetReadOptions;
use lakemark_datafusion::{LakemarkSession, QueryOptions, count, count_distinct, explain, group_count, min_max, scan};
use lakemark_table::{BuildOptions, Change, Operation, WriteOptions};
use tempfile::TempDir;

use crate::fixture::{
    FILE_ROWS, Opened, Ran, both, create_indexes, metric, open, ran, rows, scans, session, text, write,
};

fn structure(fields: Vec<(&str, ArrayRef)>, valid: Vec<bool>) -> ArrayRef {
    let named = |(name, values): &(&str, ArrayRef)| Field::new(*name, values.data_type().clone(), true);
    let names: Fields = fields.iter().map(named).collect();
    let values = fields.into_iter().map(|(_, values)| values).collect();
    Arc::new(StructArray::new(names, values, Some(NullBuffer::from(valid))))
}

/// Rows `first..first + FILE_ROWS`: `id` is the row's number; `p` is NULL in every eleventh row and holds `n` (0 to 9, NULL in every
/// seventh row), `b`, and `q`, which is NULL in every fifth row and holds `city` and the float `x` with NaN; `p.n` is a column.
fn batch(first: usize) -> RecordBatch {
    let rows = || first..first + FILE_ROWS;
    let id = Int64Array::from_iter_values(rows().map(|row| row as i64));
    let n: Int16Array = rows().map(|row| (row % 7 != 3).then_some((row % 10) as i16)).collect();
    let b: BooleanArray = rows().map(|row| (row % 3 != 0).then_some(row % 2 == 0)).collect();
    let city: StringArray = rows().map(|row| (row % 4 != 0).then(|| format!("city {}", row % 9))).collect();
    let x: Float64Array =
        rows().map(|row| Some(if row % 50 == 0 { f64::NAN } else { (row % 20) as f64 / 2.0 })).collect();
    let q = structure(vec![("city", Arc::new(city)), ("x", Arc::new(x))], rows().map(|row| row % 5 != 0).collect());
    let fields: Vec<(&str, ArrayRef)> = vec![("n", Arc::new(n)), ("b", Arc::new(b)), ("q", q)];
    let p = structure(fields, rows().map(|row| row % 11 != 0).collect());
    let dotted = Int64Array::from_iter_values(rows().map(|row| (row % 2) as i64));
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(id) as ArrayRef, true),
        ("p", p, true),
        ("p.n", Arc::new(dotted) as ArrayRef, true),
    ])
    .unwrap()
}

/// Three files in two folders of a Hive-partitioned table.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in 0..3 {
        let path = format!("day={}/part-{file}.parquet", file % 2);
        write(&folder.path().join(path), &batch(file * FILE_ROWS));
    }
    folder
}

async fn indexed(columns: &[&str]) -> Opened {
    let folder = folder();
    create_indexes(folder.path(), columns).await;
    let session = session(folder.path()).await;
    Opened { folder, session }
}

const FIELDS: [&str; 4] = ["\"p\".n", "p.b", "p.q.city", "p.q.x"];

/// Whether the city of a row is not NULL.
fn has_city(row: usize) -> bool {
    ![4, 5, 11].iter().any(|step| row.is_multiple_of(*step))
}

/// How many of the rows have a value of `n`.
fn with_n(value: usize) -> usize {
    (0..3 * FILE_ROWS).filter(|row| row % 10 == value && row % 7 != 3 && row % 11 != 0).count()
}

#[tokio::test]
async fn conditions_on_fields_are_answered_by_indexes() {
    let Opened { folder: _folder, session } = indexed(&FIELDS).await;
    for condition in [
        "p['n'] = 5",
        "t.p.n = 5",
        "5 = p['n']",
        "p['n'] <> 5",
        "p['n'] BETWEEN 3 AND 6",
        "p['n'] IN (1, 2, NULL)",
        "p['n'] NOT IN (1, 2)",
        "p['n'] > 40000",
        "CAST(p['n'] AS BIGINT) < 3",
        "p['n'] IS NULL",
        "p['n'] IS NOT NULL",
        "p['n'] IS DISTINCT FROM 3",
        "p['b']",
        "NOT p['b']",
        "p['b'] IS NOT TRUE",
        "p['q']['city'] = 'city 3'",
        "p['q']['city'] LIKE 'city%'",
        "starts_with(p['q']['city'], 'city 1')",
        "p['q']['city'] IS NULL AND p['n'] = 2",
        "get_field(p['q'], 'city') >= 'city 5' OR p['b']",
        "NOT (p['n'] = 5 AND p['q']['city'] = 'city 5') AND day = 1",
        "p['q']['x'] < 2.5",
        "p['q']['x'] >= 9",
    ] {
        let sql = format!("SELECT id, p FROM t WHERE {condition}");
        let plan = ran(&session, &sql).await.plan;
        assert_eq!(metric(&plan, "files_scanned"), 0, "{condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{condition}");
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let (with, without) = both(&session, &sql).await;
        assert_eq!(with, without, "{condition}");
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE p['n'] = 5").await, [with_n(5).to_string()]);
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE \"p.n\" = 1").await, ["1500"], "the column");
    let Ran { plan, rows: count } = ran(&session, "SELECT id FROM t WHERE p['n'] = 5 AND p['b']").await;
    assert_eq!((metric(&plan, "rows_exact"), metric(&plan, "rows_rechecked")), (count, 0));
}

#[tokio::test]
async fn counts_of_fields_read_no_data() {
    let Opened { folder, session } = indexed(&FIELDS).await;
    for condition in ["p['n'] = 5", "p['n'] IS NULL", "p['n'] < 4 AND p['q']['city'] <> 'city 3' OR NOT p['b']"] {
        let plan = ran(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await.plan;
        assert!(scans(&plan).is_empty() || metric(&plan, "bytes_scanned") == 0, "{condition}");
    }
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    assert_eq!(count(&table, Some("p.n = 5"), &options).await.unwrap(), with_n(5) as u64);
    assert_eq!(count(&table, Some("p['q']['city'] = 'city 3'"), &options).await.unwrap(), {
        let is = |row: &usize| row % 9 == 3 && has_city(*row);
        (0..3 * FILE_ROWS).filter(is).count() as u64
    });
    let report = explain(&table, Some("p.n = 5"), &options).await.unwrap();
    let leaf = &report.leaves[0];
    assert_eq!(
        (leaf.column.as_deref(), leaf.index.as_ref().map(|by| by.name())),
        (Some("\"p\".\"n\""), Some("\"p\".\"n\"_bitmap"))
    );
    assert_eq!(leaf.text, "p['n'] = 5");
    assert_eq!((leaf.rows, report.rows_rechecked, report.coverage), (Some(with_n(5) as u64), 0, 1.0));
}

#[tokio::test]
async fn what_indexes_do_not_know_of_fields_is_read() {
    let Opened { folder: _folder, session } = indexed(&FIELDS[..1]).await;
    for condition in [
        "p['n'] = 5 AND p['q']['city'] = 'city 5'",
        "p['n'] + 1 = 6",
        "p['q']['city'] = 'city 5' OR p['n'] = 5",
        "p IS NULL",
        "p IS NOT NULL AND p['n'] IS NULL",
        "p['q'] IS NULL",
        "p['n'] = id",
        "CAST(p['n'] AS TINYINT) = 5",
        "p['n'] = 5.5",
    ] {
        let (with, without) = both(&session, &format!("SELECT id, p['n'], \"p.n\" FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
    }
    let Ran { plan, rows: found } =
        ran(&session, "SELECT id FROM t WHERE p['n'] = 5 AND p['q']['city'] = 'city 5'").await;
    assert_eq!((metric(&plan, "rows_exact"), metric(&plan, "rows_rechecked")), (0, with_n(5)));
    let is = |row: &usize| row % 10 == 5 && row % 7 != 3 && row % 9 == 5 && has_city(*row);
    assert_eq!(found, (0..3 * FILE_ROWS).filter(is).count());
}

/// Runs a statement that the index has to answer on its own, and checks it against a scan.
async fn from_the_index_alone(session: &LakemarkSession, sql: &str) {
    let plan = ran(session, sql).await.plan;
    let text = displayable(plan.as_ref()).indent(false).to_string();
    assert!(text.contains("IndexAggregateExec: columns=["), "{sql}: {text}");
    assert_eq!(metric(&plan, "bytes_scanned"), 0, "{sql}");
    let (with, without) = both(session, sql).await;
    assert_eq!(with, without, "{sql}");
    assert!(!with.is_empty(), "{sql}");
}

#[tokio::test]
async fn aggregates_of_fields_come_from_the_index_alone() {
    let Opened { folder: _folder, session } = indexed(&FIELDS).await;
    for sql in [
        "SELECT p['n'], count(*) FROM t GROUP BY p['n']",
        "SELECT p['n'] AS n, count(*), count(p['n']) FROM t WHERE p['b'] GROUP BY n",
        "SELECT p['q']['city'], count(*) FROM t WHERE p['n'] IN (1, 2) GROUP BY p['q']['city']",
        "SELECT p['n'] % 2 AS odd, count(*), sum(p['n']), avg(p['n']) FROM t GROUP BY odd",
        "SELECT p['n'], p['b'], count(*) FROM t GROUP BY p['n'], p['b']",
        "SELECT day, p['n'], count(*) FROM t WHERE p['n'] > 4 GROUP BY day, p['n']",
        "SELECT min(p['n']), max(p['n']), count(p['n']), count(*) FROM t",
        "SELECT min(p['q']['city']), count(p['b']) FROM t WHERE p['n'] < 3",
        "SELECT count(DISTINCT p['q']['city']) FROM t",
        "SELECT sum(p['n']), avg(p['n']), count(DISTINCT p['b']) FROM t WHERE day = 0",
    ] {
        from_the_index_alone(&session, sql).await;
    }
    for sql in [
        "SELECT p, count(*) FROM t GROUP BY p",
        "SELECT p['q'], count(*) FROM t WHERE p['n'] = 5 GROUP BY p['q']",
        "SELECT count(p), count(p['q']) FROM t WHERE p['n'] = 5",
        "SELECT count(p), count(p['n']) FROM t",
        "SELECT \"p.n\", p['n'], count(*) FROM t GROUP BY \"p.n\", p['n']",
        "SELECT p['q']['x'], count(*) FROM t GROUP BY p['q']['x']",
        "SELECT max(p['q']['x']) FROM t WHERE p['n'] = 5",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        assert!(!with.is_empty(), "{sql}");
    }
}

#[tokio::test]
async fn uncovered_files_are_read_for_the_rest_of_an_aggregate() {
    let folder = folder();
    create_indexes(folder.path(), &FIELDS[..1]).await;
    write(&folder.path().join("day=1/part-3.parquet"), &batch(3 * FILE_ROWS));
    let session = session(folder.path()).await;
    let sql = "SELECT p['n'], count(*) FROM t GROUP BY p['n']";
    let plan = ran(&session, sql).await.plan;
    assert_eq!(scans(&plan)[0].metrics().unwrap().output_rows(), Some(FILE_ROWS), "the new file alone");
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
}

#[tokio::test]
async fn fields_are_named_in_sql_as_in_queries() {
    let folder = folder();
    let session = session(folder.path()).await;
    for (statement, column) in [
        ("CREATE INDEX one ON t (p.n)", "\"p\".\"n\""),
        ("CREATE INDEX two ON t (p['b']) WITH (encoding = binary)", "p.b"),
        ("CREATE INDEX three ON t (\"p\"['q'].city)", "p.q.city"),
        ("CREATE INDEX four ON t (\"p.n\")", "p.n"),
    ] {
        let done = session.sql(statement).await.unwrap().collect().await.unwrap();
        assert_eq!(done[0].num_rows(), 1);
        let name = statement.split(' ').nth(2).unwrap();
        let listed = rows(&session, "SHOW INDEXES FROM t").await;
        let listed = listed.iter().find(|row| row.starts_with(&format!("{name}|"))).unwrap();
        assert_eq!(listed.split('|').nth(4), Some(column), "{listed}");
    }
    for (statement, problem) in [
        ("CREATE INDEX ON t (p['x'])", "there is no column p.x; the table has id, p, p.n, day; inside of them are"),
        ("CREATE INDEX ON t (p[n])", "the name of a field in single quotes"),
        ("CREATE INDEX ON t (p['n')", "']' after the name of a field"),
        ("CREATE INDEX ON t (p.q)", "index a field of it: p.q.city, p.q.x"),
    ] {
        let error = session.sql(statement).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE p['n'] = 5").await, [with_n(5).to_string()]);
}

#[tokio::test]
async fn summaries_take_fields_by_their_names() {
    let folder = indexed(&FIELDS[1..3]).await.folder;
    let table = open(folder.path()).await;
    let options = QueryOptions::default();
    let found = async |frame: datafusion::dataframe::DataFrame| -> Vec<String> {
        let mut found: Vec<String> = frame.collect().await.unwrap().iter().flat_map(text).collect();
        found.sort();
        found
    };
    let groups = group_count(&table, &["p.b".to_owned()], None, &options).await.unwrap();
    assert_eq!(groups.schema().field(0).name(), "p.b");
    let count_of = |value: Option<bool>| {
        let b = |row: usize| (![3, 11].iter().any(|step| row.is_multiple_of(*step))).then_some(row.is_multiple_of(2));
        (0..3 * FILE_ROWS).filter(|row| b(*row) == value).count()
    };
    let expected = [("NULL", None), ("false", Some(false)), ("true", Some(true))];
    assert_eq!(found(groups).await, expected.map(|(shown, value)| format!("{shown}|{}", count_of(value))));
    let extremes = min_max(&table, "p.q.city", None, &options).await.unwrap();
    assert_eq!(found(extremes).await, ["city 0|city 8"]);
    assert_eq!(count_distinct(&table, "p.q.city", Some("p['b']"), &options).await.unwrap(), 6);
    let columns = ["id".to_owned(), "p.q.city".to_owned(), "p.n".to_owned()];
    let few = scan(&table, Some("id < 3"), Some(&columns), None, &options).await.unwrap();
    assert_eq!(found(few).await, ["0|NULL|0", "1|city 1|1", "2|city 2|0"]);
}

#[tokio::test]
async fn joins_narrow_a_scan_by_a_field() {
    let Opened { folder: _folder, session } = indexed(&["p.q.city"]).await;
    let keys = StringArray::from(vec!["city 3", "nowhere"]);
    let batch = RecordBatch::try_from_iter([("key", Arc::new(keys) as ArrayRef)]).unwrap();
    let dimension = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    session.context().register_table("d", Arc::new(dimension)).unwrap();
    let sql = "SELECT t.id FROM d JOIN t ON t.p['q']['city'] = d.key";
    let (with, without) = both(&session, sql).await;
    assert_eq!(with, without);
    let Ran { plan, rows: found } = ran(&session, sql).await;
    assert_eq!(found, with.len());
    assert_eq!(metric(&plan, "rows_pruned_dynamic_filter"), 3 * FILE_ROWS - found);
}

/// Engines see a value where the struct is NULL; so it must stay with indexes.
#[tokio::test]
async fn a_required_field_of_an_optional_struct_is_what_the_engine_says() {
    let folder = TempDir::new().unwrap();
    let fields = Fields::from(vec![Field::new("f", DataType::Int64, false)]);
    let values: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 0]));
    let valid = NullBuffer::from(vec![true, false, true, true]);
    let s: ArrayRef = Arc::new(StructArray::new(fields, vec![values], Some(valid)));
    let batch = RecordBatch::try_from_iter_with_nullable([("s", s, true)]).unwrap();
    write(&folder.path().join("a.parquet"), &batch);
    create_indexes(folder.path(), &["s.f"]).await;
    let session = session(folder.path()).await;
    for condition in ["s['f'] = 0", "s['f'] IS NULL", "s['f'] <> 3", "s['f'] IS NOT NULL"] {
        let (with, without) = both(&session, &format!("SELECT * FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
    }
    let (with, without) = both(&session, "SELECT s['f'], count(*) FROM t GROUP BY s['f']").await;
    assert_eq!(with, without);
}

fn delta_log(folder: &Path, sizes: &[u64]) {
    let field = |name: &str, kind: &str| {
        format!(r#"{{\"name\":\"{name}\",\"type\":{kind},\"nullable\":true,\"metadata\":{{}}}}"#)
    };
    let of_struct = |fields: &[String]| format!(r#"{{\"type\":\"struct\",\"fields\":[{}]}}"#, fields.join(","));
    let quoted = |kind: &str| format!(r#"\"{kind}\""#);
    let q = of_struct(&[field("city", &quoted("string")), field("x", &quoted("double"))]);
    let p = of_struct(&[field("n", &quoted("short")), field("b", &quoted("boolean")), field("q", &q)]);
    let schema = of_struct(&[field("id", &quoted("long")), field("p", &p), field("p.n", &quoted("long"))]);
    let mut actions = vec![
        r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}"#.to_owned(),
        format!(
            r#"{{"metaData":{{"id":"5fba94ed-9794-4965-ba6e-6ee3c0d22af9","format":{{"provider":"parquet","options":{{}}}},"schemaString":"{schema}","partitionColumns":[],"configuration":{{"delta.enableDeletionVectors":"true"}},"createdTime":1700000000000}}}}"#
        ),
    ];
    for (file, size) in sizes.iter().enumerate() {
        let vector = if file == 0 {
            format!(r#","deletionVector":{}"#, crate::differential::vector(&[5, 15, 16, 999]))
        } else {
            String::new()
        };
        actions.push(format!(
            r#"{{"add":{{"path":"{file}.parquet","partitionValues":{{}},"size":{size},"modificationTime":1700000000000,"dataChange":true{vector}}}}}"#
        ));
    }
    let log = folder.join("_delta_log");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(log.join(format!("{:020}.json", 0)), actions.join("\n")).unwrap();
}

#[tokio::test]
async fn law_3_deleted_rows_are_gone_from_fields_too() {
    let folder = TempDir::new().unwrap();
    let sizes: Vec<u64> =
        (0..2).map(|file| write(&folder.path().join(format!("{file}.parquet")), &batch(file * FILE_ROWS))).collect();
    delta_log(folder.path(), &sizes);
    let table = open(folder.path()).await;
    for column in ["\"p\".n", "p.q.city"] {
        let spec = lakemark_table::IndexSpec { columns: vec![column.to_owned()], ..Default::default() };
        table.create_index(spec, false).await.unwrap();
    }
    assert_eq!(table.build(BuildOptions::default()).await.unwrap().rows, 2 * FILE_ROWS as u64);
    let session = session(folder.path()).await;
    // Rows 5 and 15 have 5 in `n`.
    let all = (0..2 * FILE_ROWS).filter(|row| row % 10 == 5 && row % 7 != 3 && row % 11 != 0).count();
    assert_eq!(rows(&session, "SELECT count(*) FROM t WHERE p['n'] = 5").await, [(all - 2).to_string()]);
    for sql in [
        "SELECT id, p FROM t WHERE p['n'] = 5",
        "SELECT p['n'], count(*) FROM t GROUP BY p['n']",
        "SELECT p['q']['city'], count(*) FROM t WHERE p['n'] < 6 GROUP BY p['q']['city']",
        "SELECT count(*), count(p['n']), min(p['n']) FROM t",
        "SELECT id FROM t WHERE p['q']['city'] IS NULL OR abs(id) < 20",
    ] {
        let (with, without) = both(&session, sql).await;
        assert_eq!(with, without, "{sql}");
        assert!(!with.is_empty(), "{sql}");
    }
}

/// Rows with maps: NULL in every eleventh row, without entries in every fifth; `n` is 0 to 9, NULL in every seventh row and missing in
/// every third, and comes after `other`; `s` holds the same maps, and is NULL in every second row.
fn maps(first: usize) -> RecordBatch {
    let rows = || first..first + FILE_ROWS;
    let mut m = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in rows() {
        if !row.is_multiple_of(5) && !row.is_multiple_of(11) {
            m.keys().append_value("other");
            m.values().append_value(7);
            if !row.is_multiple_of(3) {
                m.keys().append_value("n");
                m.values().append_option((row % 7 != 3).then_some((row % 10) as i64));
            }
        }
        m.append(!row.is_multiple_of(11)).unwrap();
    }
    let id = Int64Array::from_iter_values(rows().map(|row| row as i64));
    let m: ArrayRef = Arc::new(m.finish());
    let s = structure(vec![("m", Arc::clone(&m))], rows().map(|row| !row.is_multiple_of(2)).collect());
    RecordBatch::try_from_iter_with_nullable([("id", Arc::new(id) as ArrayRef, true), ("m", m, true), ("s", s, true)])
        .unwrap()
}

#[tokio::test]
async fn values_of_maps_are_searched_like_fields() {
    let folder = TempDir::new().unwrap();
    for file in 0..2 {
        write(&folder.path().join(format!("{file}.parquet")), &maps(file * FILE_ROWS));
    }
    create_indexes(folder.path(), &["m.n", "s.m.n", "m.nowhere"]).await;
    let session = session(folder.path()).await;
    let has = |row: &usize| ![3, 5, 11].iter().any(|step| row.is_multiple_of(*step)) && row % 7 != 3;
    let of_n = |value: usize| (0..2 * FILE_ROWS).filter(has).filter(move |row| row % 10 == value);
    for (condition, rows) in [
        ("m['n'] = 4", of_n(4).count()),
        ("m['n'] IN (1, 2)", of_n(1).count() + of_n(2).count()),
        ("m['n'] > 7", of_n(8).count() + of_n(9).count()),
        ("m['n'] IS NULL", 2 * FILE_ROWS - (0..2 * FILE_ROWS).filter(has).count()),
        ("m['nowhere'] IS NULL AND m['n'] = 1", of_n(1).count()),
        ("s['m']['n'] = 9", of_n(9).count()),
        ("s['m']['n'] = 8", 0),
    ] {
        let Ran { plan, rows: found } = ran(&session, &format!("SELECT id, m FROM t WHERE {condition}")).await;
        assert_eq!(
            (found, metric(&plan, "files_scanned"), metric(&plan, "rows_rechecked")),
            (rows, 0, 0),
            "{condition}"
        );
        let (with, without) = both(&session, &format!("SELECT id FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
        let (with, without) = both(&session, &format!("SELECT count(*) FROM t WHERE {condition}")).await;
        assert_eq!(with, without, "{condition}");
    }
    from_the_index_alone(&session, "SELECT m['n'], count(*) FROM t GROUP BY m['n']").await;
    from_the_index_alone(&session, "SELECT min(m['n']), max(s['m']['n']), count(m['nowhere']) FROM t").await;
    for sql in [
        "SELECT id FROM t WHERE m['other'] = 7",
        "SELECT id FROM t WHERE m[arrow_cast('n', 'LargeUtf8')] = 4",
        "SELECT id FROM t WHERE element_at(m, 'n') = [4]",
        "SELECT m['other'], count(*) FROM t WHERE m['n'] = 4 GROUP BY m['other']",
    ] {
        let mut answers = Vec::new();
        for use_index in [true, false] {
            session.sql(&format!("SET lakemark.use_index = {use_index}")).await.unwrap().collect().await.unwrap();
            let found = match session.sql(sql).await {
                Ok(frame) => frame.collect().await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            let mut found = found.map(|batches| batches.iter().flat_map(text).collect::<Vec<_>>());
            found.iter_mut().for_each(|rows| rows.sort());
            answers.push(found);
        }
        assert_eq!(answers[0], answers[1], "{sql}");
    }
}

/// A map that has a key twice, which Arrow's reader takes as it is, gives the first value to engines.
#[tokio::test]
async fn of_a_key_that_comes_twice_the_first_value_counts() {
    let folder = TempDir::new().unwrap();
    let mut m = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for (key, value) in [("k", Some(1)), ("k", Some(2)), ("x", None)] {
        m.keys().append_value(key);
        m.values().append_option(value);
    }
    m.append(true).unwrap();
    m.keys().append_value("k");
    m.values().append_null();
    m.keys().append_value("k");
    m.values().append_value(2);
    m.append(true).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable([("m", Arc::new(m.finish()) as ArrayRef, true)]).unwrap();
    write(&folder.path().join("a.parquet"), &batch);
    create_indexes(folder.path(), &["m.k"]).await;
    let session = session(folder.path()).await;
    for (condition, rows) in [("m['k'] = 1", 1), ("m['k'] = 2", 0), ("m['k'] IS NULL", 1)] {
        let (with, without) = both(&session, &format!("SELECT m FROM t WHERE {condition}")).await;
        assert_eq!((with.len(), &with), (rows, &without), "{condition}");
    }
}

/// The same files as a table of the engine's own.
async fn by_the_engine(session: &LakemarkSession, name: &str, folder: &TempDir) {
    let path = folder.path().to_str().unwrap();
    session.context().register_parquet(name, path, ParquetReadOptions::default()).await.unwrap();
}

/// That a statement over `t` gives with indexes and without what it gives over `e`.
async fn as_the_engine(session: &LakemarkSession, sql: &str) {
    let mut expected = rows(session, &sql.replace("FROM t", "FROM e").replace("t.id", "e.id")).await;
    expected.sort();
    let (with, without) = both(session, sql).await;
    for (found, how) in [(with, "with"), (without, "without")] {
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!((differs, found.len()), (None, expected.len()), "{how} indexes: {sql}");
    }
}

/// Bytes that the only scan of files in a plan reads, of whichever kind it is.
async fn bytes_read(session: &LakemarkSession, sql: &str) -> usize {
    fn summed(plan: &Arc<dyn ExecutionPlan>) -> usize {
        let own = plan.metrics().and_then(|metrics| metrics.sum_by_name("bytes_scanned"));
        own.map_or(0, |value| value.as_usize()) + plan.children().into_iter().map(summed).sum::<usize>()
    }
    summed(&ran(session, sql).await.plan)
}

#[tokio::test]
async fn fields_of_structs_are_read_alone() {
    let folder = folder();
    let session = session(folder.path()).await;
    by_the_engine(&session, "own", &folder).await;
    for sql in [
        "SELECT p['n'] FROM t",
        "SELECT p['n'] + 1, p['q']['city'] FROM t",
        "SELECT id FROM t WHERE p['q']['city'] = 'city 3'",
        "SELECT p['b'] AS id FROM t WHERE id % 3 = 1 AND p['n'] > 4",
        "SELECT sum(p['n']), p['q']['city'] FROM t GROUP BY p['q']['city']",
        "SELECT p['n'] FROM t ORDER BY p['q']['x'], id LIMIT 5",
        "SELECT p FROM t WHERE p['n'] = 5",
    ] {
        let ours = bytes_read(&session, sql).await;
        let engine = bytes_read(&session, &sql.replace("FROM t", "FROM own")).await;
        assert_eq!(ours, engine, "{sql}");
    }
    let whole = bytes_read(&session, "SELECT p FROM t").await;
    assert!(bytes_read(&session, "SELECT p['n'] FROM t").await * 2 < whole);
}

#[tokio::test]
async fn fields_that_are_read_alone_are_what_they_are_in_whole_structs() {
    for columns in [&[][..], &["id"], &FIELDS, &["id", "\"p\".n", "p.q.city"]] {
        let folder = folder();
        if !columns.is_empty() {
            create_indexes(folder.path(), columns).await;
        }
        let session = session(folder.path()).await;
        by_the_engine(&session, "e", &folder).await;
        // `id` and `n` of the other table have values that the columns of these names have, too: what is read is told apart by more than names.
        session.sql("CREATE TABLE d AS SELECT value AS n, value AS k FROM range(3, 6)").await.unwrap();
        for sql in [
            "SELECT p['n'] FROM t",
            "SELECT p['n'], p['n'] AS again, id, p['b'] FROM t",
            "SELECT p['q']['city'], p['q'] FROM t",
            "SELECT p['n'], p FROM t",
            "SELECT p['n'] AS id FROM t WHERE id > 2990",
            "SELECT p['n'] AS id, id AS n FROM t WHERE p['n'] > 3 AND p['b']",
            "SELECT id FROM t WHERE p['q']['city'] = 'city 3' AND p['n'] < 5",
            "SELECT p['q']['x'] FROM t WHERE p['q']['x'] > 9",
            "SELECT p['q']['x'] * 2, id FROM t WHERE id BETWEEN 100 AND 120",
            "SELECT \"p.n\", p['n'] FROM t WHERE \"p.n\" = 1",
            "SELECT count(*), sum(a), min(c) FROM (SELECT p['n'] AS a, p['q']['city'] AS c FROM t WHERE id % 5 < 3)",
            "SELECT p['q']['city'], count(*) FROM t GROUP BY p['q']['city']",
            "SELECT t.id, n FROM t JOIN d ON p['n'] = d.n",
            "SELECT id, k FROM (SELECT p['n'] AS id, p['q']['city'] AS city FROM t) JOIN d ON id = k",
            "SELECT city, k FROM (SELECT p['n'] AS id, p['q']['city'] AS city FROM t) JOIN d ON id = k WHERE city > 'city 2'",
            "SELECT id FROM t WHERE p['n'] IN (SELECT n FROM d)",
            "SELECT count(*) FROM t WHERE p['n'] NOT IN (SELECT n FROM d)",
            "SELECT a, b FROM (SELECT p['n'] AS a, id AS b FROM t) ORDER BY a DESC NULLS LAST, b LIMIT 7",
            "SELECT id FROM (SELECT p['n'] AS id FROM t) WHERE id IS NOT NULL ORDER BY id LIMIT 3",
            "SELECT x.id FROM (SELECT p['n'] AS id FROM t) x LEFT JOIN (SELECT p['n'] AS id FROM t WHERE id < 50) y ON x.id = y.id",
        ] {
            as_the_engine(&session, sql).await;
        }
        // A field of a field that the scan gives already.
        for setting in ["optimizer.enable_leaf_expression_pushdown = false", "execution.target_partitions = 1"] {
            session.sql(&format!("SET datafusion.{setting}")).await.unwrap().collect().await.unwrap();
        }
        let sql = "SELECT s['city'] FROM (SELECT p['q'] AS s FROM t LIMIT 5) q";
        assert_eq!(rows(&session, sql).await.len(), 5, "{columns:?}");
    }
}

#[tokio::test]
async fn fields_of_buffered_rows_are_read_alone() {
    let folder = TempDir::new().unwrap();
    for file in 0..3 {
        write(&folder.path().join(format!("part-{file}.parquet")), &batch(file * FILE_ROWS));
    }
    let table = open(folder.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    // Some of the second file is hidden in stretches, and nearly all of the third one row by row.
    for (first, step) in [(FILE_ROWS, 1), (2 * FILE_ROWS, 3)] {
        let rows = batch(first).slice(0, 400);
        let chosen: Vec<u32> = (0..400).filter(|row| row % step == 0).collect();
        let rows = take_record_batch(&rows, &UInt32Array::from(chosen)).unwrap();
        let change = Change { operation: Operation::Delete, rows: rows.project(&[0]).unwrap() };
        table.write(vec![change], WriteOptions::default()).await.unwrap();
    }
    let more = Change { operation: Operation::Upsert, rows: batch(5 * FILE_ROWS) };
    table.write(vec![more], WriteOptions::default()).await.unwrap();
    table.flush().await.unwrap();
    let more = Change { operation: Operation::Upsert, rows: batch(7 * FILE_ROWS).slice(0, 100) };
    table.write(vec![more], WriteOptions::default()).await.unwrap();
    let session = session(folder.path()).await;
    session.sql("CREATE TABLE e AS SELECT * FROM t").await.unwrap();
    // What callers leave in a struct that is NULL is not to be seen, as if it came from a file.
    let seen = "SELECT count(*) FROM t WHERE p IS NULL AND (p['n'] IS NOT NULL OR p['q']['x'] IS NOT NULL)";
    assert_eq!(both(&session, seen).await, (vec!["0".to_owned()], vec!["0".to_owned()]));
    assert_eq!(rows(&session, "SELECT count(*) FROM e").await, ["3566"]);
    session.sql("CREATE TABLE d AS SELECT value AS n FROM range(3, 6)").await.unwrap();
    for sql in [
        "SELECT p['n'] FROM t",
        "SELECT p['n'] AS id, id AS n FROM t WHERE p['b']",
        "SELECT p['q']['x'] * 2, id FROM t WHERE id % 100 < 7 AND p['q']['city'] <> 'city 3'",
        "SELECT p['n'], p FROM t WHERE p['n'] > 7",
        "SELECT count(*) FROM (SELECT p['n'] AS id FROM t) JOIN d ON id = n",
        "SELECT id FROM (SELECT p['n'] AS id FROM t) WHERE id IS NOT NULL ORDER BY id DESC LIMIT 4",
    ] {
        as_the_engine(&session, sql).await;
    }
}

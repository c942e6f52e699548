//! Star joins with dimensions and keys of every kind: which of them take part, and that each statement gives the rows that it gives alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, DictionaryArray, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StringViewArray, UInt32Array, UInt64Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Int32Type;
use datafusion::datasource::MemTable;
use futures::future::join_all;
use lakemark_datafusion::PlanSharing;
use lakemark_table::{Change, Operation, WriteOptions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tempfile::TempDir;

use crate::delta;
use crate::fixture::{rows, write};
use crate::sharing::{sorted, taken};
use crate::star_joins::{Stars, files};
use crate::together::{Running, interleave};

const EVENTS: i32 = 900;

/// Joins of events, and how many of them take part, where that is sure.
const JOINS: [(&str, Option<usize>); 33] = [
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN small ON e_i64 = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN whole ON e_i8 = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN whole ON e_u32 = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN small ON e_u32 = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN days ON e_day = k", Some(1)),
    // Of these types not all values are among those of 64-bit integers.
    ("SELECT e_id, label FROM events JOIN counts ON e_u32 = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN counts ON e_i64 = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN whole ON e_u64 = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN floats ON e_f = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN texts ON e_s = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN texts ON e_name = k", Some(0)),
    // Casts to a wider type give the same number, and others may fail or give another one.
    ("SELECT e_id, label FROM events JOIN whole ON CAST(e_i32 AS BIGINT) = k", Some(1)),
    ("SELECT e_id, label FROM events JOIN small ON CAST(e_i64 AS INT) = k", Some(0)),
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 + 1 = k", Some(0)),
    // NULL is equal to NULL.
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 IS NOT DISTINCT FROM k", Some(0)),
    ("SELECT e_id, label FROM events JOIN nothing ON e_i32 = k", None),
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 = k AND size > 90", Some(0)),
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 = k AND e_i64 > size", Some(1)),
    ("SELECT e_id, label FROM events JOIN whole ON e_i32 = k WHERE e_id % 3 = 1 AND abs(e_i64) < 20", Some(1)),
    ("SELECT label, count(*), sum(e_id) FROM events JOIN whole ON e_i32 = k GROUP BY label", Some(1)),
    // Rows without a match are needed here.
    ("SELECT e_id, label FROM events LEFT JOIN whole ON e_i32 = k", Some(0)),
    ("SELECT e_id, label FROM events FULL JOIN whole ON e_i32 = k", Some(0)),
    ("SELECT e_id FROM events WHERE NOT EXISTS (SELECT 1 FROM whole WHERE k = e_i32 AND size < 3)", Some(0)),
    ("SELECT e_id FROM events WHERE e_i32 NOT IN (SELECT k FROM whole WHERE k IS NOT NULL)", None),
    ("SELECT e_id, label FROM whole LEFT JOIN events ON e_i32 = k", None),
    ("SELECT e_id FROM events WHERE e_i32 IN (SELECT k FROM whole)", None),
    // A column under other names, and a dimension with two of them.
    ("SELECT b, label FROM (SELECT e_i32 AS a, e_id AS b FROM events) x JOIN whole ON a = k", Some(1)),
    (
        "SELECT e_id, p.label FROM (SELECT e_i32 AS a, e_i32 AS b, e_id FROM events) x JOIN whole p ON a = p.k \
      JOIN small q ON b = q.k",
        Some(2),
    ),
    ("SELECT e_id, p.label, q.label FROM events JOIN whole p ON e_i32 = p.k JOIN whole q ON e_i64 = q.k", Some(2)),
    ("SELECT e_id, m FROM events JOIN (SELECT k, max(label) AS m FROM whole GROUP BY k) g ON e_i32 = g.k", None),
    ("SELECT e_id FROM events JOIN (SELECT k FROM whole UNION SELECT k FROM small) u ON e_i64 = u.k", None),
    ("SELECT e_id, label FROM events JOIN (SELECT * FROM whole ORDER BY label LIMIT 9) l ON e_i32 = l.k", None),
];

/// Events with keys of several types, some of which are NULL, in no dimension, or not equal to themselves.
fn events() -> RecordBatch {
    let rows = || 0..EVENTS;
    let spread = |row: i32, step: i64, count: i64| i64::from(row) * step % 9_973 % count;
    let some_i32: Int32Array = rows().map(|row| (row % 11 != 4).then(|| spread(row, 7_919, 60) as i32)).collect();
    let some_i64: Int64Array = rows().map(|row| (row % 17 != 1).then(|| spread(row, 104_729, 50) - 10)).collect();
    let float = |row: i32| match row % 5 {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        _ => f64::from(row % 30),
    };
    let named: Vec<String> = rows().map(|row| format!("k{}", row % 40)).collect();
    let names: DictionaryArray<Int32Type> = named.iter().map(String::as_str).collect();
    let columns: [(&str, ArrayRef); 10] = [
        ("e_id", Arc::new(Int32Array::from_iter_values(rows()))),
        ("e_i32", Arc::new(some_i32)),
        ("e_i64", Arc::new(some_i64)),
        ("e_i8", Arc::new(Int8Array::from_iter_values(rows().map(|row| (row % 100 - 50) as i8)))),
        ("e_u32", Arc::new(UInt32Array::from_iter_values(rows().map(|row| spread(row, 611, 70) as u32)))),
        ("e_u64", Arc::new(UInt64Array::from_iter_values(rows().map(|row| row as u64 % 40)))),
        ("e_f", Arc::new(Float64Array::from_iter_values(rows().map(float)))),
        ("e_s", Arc::new(StringArray::from_iter_values(&named))),
        ("e_name", Arc::new(names)),
        ("e_day", Arc::new(Date32Array::from_iter_values(rows().map(|row| 10_000 + row % 90)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

/// A dimension of these keys, each with a label of its own.
fn dimension(keys: ArrayRef) -> RecordBatch {
    let count = keys.len() as i32;
    let labels = StringArray::from_iter_values((0..count).map(|row| format!("label {row}")));
    let sizes = Int32Array::from_iter_values((0..count).map(|row| row % 7));
    let columns: [(&str, ArrayRef); 3] = [("k", keys), ("label", Arc::new(labels)), ("size", Arc::new(sizes))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn put(stars: &Stars, name: &str, batch: RecordBatch) {
    let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
    stars.session.context().deregister_table(name).unwrap();
    stars.session.context().register_table(name, Arc::new(table)).unwrap();
}

fn event_files() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("part.parquet"), &events());
    folder
}

/// Events beside dimensions in memory, of which nobody knows a snapshot.
async fn of_events(folder: &Path) -> Stars {
    let mut stars = Stars::without_tables(PlanSharing::sharing_always(), 50).await;
    stars.add("events", folder).await;
    // Some keys twice, and some rows without one.
    let whole: Int64Array = (0..60_i64).map(|row| (row % 13 != 5).then_some(row % 37)).collect();
    let small: Int16Array = (0..40_i16).map(|row| (row != 7).then_some(row * 3 % 50 - 12)).collect();
    let floats = [f64::NAN, -0.0, 0.0].into_iter().chain((1..20_i32).map(f64::from));
    let keys: [(&str, ArrayRef); 7] = [
        ("whole", Arc::new(whole)),
        ("small", Arc::new(small)),
        ("counts", Arc::new(UInt64Array::from_iter_values(0..30))),
        ("floats", Arc::new(floats.map(Some).chain([None]).collect::<Float64Array>())),
        ("texts", Arc::new(StringViewArray::from_iter_values((0..20).map(|key| format!("k{key}"))))),
        ("days", Arc::new(Date32Array::from_iter_values((0..60).map(|day| 9_990 + day)))),
        ("nothing", Arc::new(Int64Array::new_null(5))),
    ];
    for (name, keys) in keys {
        put(&stars, name, dimension(keys));
    }
    stars
}

#[tokio::test]
async fn joins_take_part_whose_keys_are_numbers_of_a_column() {
    let folder = event_files();
    let stars = of_events(folder.path()).await;
    for (sql, joins) in JOINS {
        if let Some(joins) = joins {
            assert_eq!(stars.metric(sql, "star_joins").await, joins, "{sql}");
        }
    }
}

#[tokio::test]
async fn law_stars_are_as_off_whatever_is_joined_with_what() {
    let mut star_pages = 0;
    for seed in 0..4 {
        let folder = event_files();
        let stars = of_events(folder.path()).await;
        stars.set("datafusion.execution.target_partitions", ["1", "3"][seed as usize % 2]).await;
        let mut order = JOINS.map(|(sql, _)| sql);
        order.shuffle(&mut StdRng::seed_from_u64(seed));
        let mut running = Vec::new();
        for sql in order {
            running.push(Running::of(&stars, sql).await);
        }
        interleave(running, 100, seed).await;
        star_pages += stars.sharing.star_pages();
    }
    assert!(star_pages > 50, "{star_pages}");
}

/// Tables in memory have the same name one after the other, and nothing else that tells them apart.
#[tokio::test]
async fn law_a_table_in_memory_that_takes_the_place_of_another_one_has_keys_of_its_own() {
    let folder = event_files();
    let stars = of_events(folder.path()).await;
    let sql = "SELECT e_id, label FROM events JOIN changing ON e_i32 = k";
    let mut running = Vec::new();
    for first in [0, 5, 30, 90] {
        put(&stars, "changing", dimension(Arc::new(Int64Array::from_iter_values(first..first + 10))));
        let mut own = Running::of(&stars, sql).await;
        own.step().await;
        running.push(own);
    }
    let counts: BTreeSet<usize> = running.iter().map(|own| own.expected.len()).collect();
    assert!(counts.contains(&0) && counts.len() > 2, "{counts:?}");
    interleave(running, 100, 9).await;
    assert!(stars.sharing.star_pages() > 0);
}

/// What a dimension gives is drawn anew in each run. The keys that a query shares are those that its own join has.
#[tokio::test]
async fn law_a_dimension_that_is_drawn_is_joined_as_it_was_drawn() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let mut lines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in stars.alone("SELECT lo_custkey, lo_key FROM lineorder WHERE lo_custkey < 60").await {
        let (customer, line) = row.split_once('|').unwrap();
        lines.entry(customer.to_owned()).or_default().insert(line.to_owned());
    }
    let sql = "SELECT lo_custkey, lo_key FROM lineorder JOIN (SELECT c_custkey, random() AS drawn FROM customer) c \
      ON lo_custkey = c_custkey WHERE drawn < 0.5";
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(stars.begin(sql).await);
    }
    let mut drawn: BTreeSet<Vec<String>> = BTreeSet::new();
    for found in join_all(streams.into_iter().map(taken)).await {
        let mut given: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in &found {
            let (customer, line) = row.split_once('|').unwrap();
            assert!(given.entry(customer.to_owned()).or_default().insert(line.to_owned()), "{row} came twice");
        }
        assert!(given.iter().all(|(customer, own)| *own == lines[customer]), "a customer has all of its lines");
        drawn.insert(given.into_keys().collect());
    }
    assert!(drawn.len() > 1 && stars.sharing.star_pages() > 0);
}

/// A dimension that is joined itself: its own joins come first, and its keys are those that these left.
#[tokio::test]
async fn law_a_dimension_with_joins_of_its_own_gives_the_keys_that_are_left() {
    let folder = files();
    let ints = |values: Vec<i32>| Arc::new(Int32Array::from(values)) as ArrayRef;
    let clients = [("k_custkey", ints((0..60).collect())), ("k_nation", ints((0..60).map(|row| row % 6).collect()))];
    let names = Arc::new(StringArray::from_iter_values((0..6).map(|nation| format!("N{nation}")))) as ArrayRef;
    let nations = [("n_key", ints((0..6).collect())), ("n_name", names)];
    write(&folder.path().join("clients").join("part.parquet"), &RecordBatch::try_from_iter(clients).unwrap());
    write(&folder.path().join("nations").join("part.parquet"), &RecordBatch::try_from_iter(nations).unwrap());
    let mut stars = Stars::of(folder.path()).await;
    stars.add("clients", &folder.path().join("clients")).await;
    stars.add("nations", &folder.path().join("nations")).await;
    let flakes = [
        "SELECT lo_key, n_name FROM lineorder JOIN (SELECT k_custkey, n_name FROM clients JOIN nations \
      ON k_nation = n_key WHERE n_name <> 'N2') c ON lo_custkey = k_custkey",
        "SELECT lo_key, k_custkey FROM lineorder, clients, nations WHERE lo_custkey = k_custkey AND k_nation = n_key \
      AND n_name IN ('N1', 'N4')",
        "SELECT lo_key, n_name, s_nation FROM lineorder, clients, nations, supplier WHERE lo_custkey = k_custkey \
      AND k_nation = n_key AND lo_suppkey = s_suppkey AND s_region = 'R1'",
    ];
    for (sql, joins) in flakes.into_iter().zip([1, 1, 2]) {
        assert_eq!(stars.metric(sql, "star_joins").await, joins, "{sql}");
        // Where it is joined, the dimension is the fact of a star of its own.
        let own = |column: &str| column.starts_with("k_") || column.starts_with("n_");
        assert_eq!(stars.metric_of(sql, "star_joins", own).await, 1, "{sql}");
    }
    let plain = "SELECT lo_key, c_nation FROM lineorder, customer WHERE lo_custkey = c_custkey AND c_region = 'R0'";
    let mut running = Vec::new();
    for sql in flakes.into_iter().chain([plain]) {
        running.push(Running::of(&stars, sql).await);
    }
    interleave(running, 100, 2).await;
    assert!(stars.sharing.star_pages() > 0);
}

/// The dimension is in memory, and the engine would rather build of the facts that other joins left.
#[tokio::test]
async fn dimensions_in_memory_are_recognised_where_the_engine_builds_of_the_facts() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let parts = stars.session.sql("SELECT * FROM part").await.unwrap().collect().await.unwrap();
    put(&stars, "parts", concat_batches(&parts[0].schema(), &parts).unwrap());
    let sql = "SELECT d_year, c_nation, sum(lo_revenue - lo_cost) FROM dates, customer, supplier, parts, lineorder \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey \
      AND c_region = 'R1' AND s_region IN ('R1', 'R2') AND p_category IN ('C1', 'C2') GROUP BY d_year, c_nation";
    assert_eq!(stars.metric(sql, "star_joins").await, 4);
    assert_eq!(sorted(rows(&stars.session, sql).await), stars.alone(sql).await);
}

#[tokio::test]
async fn law_rows_deleted_of_facts_and_dimensions_stay_with_their_snapshot() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    stars.declare_keys().await;
    let delete = async |table: &str, column: &str, keys: std::ops::Range<i32>| {
        let keys: ArrayRef = Arc::new(Int32Array::from_iter_values(keys));
        let rows = RecordBatch::try_from_iter([(column, keys)]).unwrap();
        let change = Change { operation: Operation::Delete, rows };
        stars.tables[table].write(vec![change], WriteOptions::default()).await.unwrap();
    };
    let sql = "SELECT lo_key, c_nation FROM lineorder, customer WHERE lo_custkey = c_custkey AND c_region <> 'R2'";
    let mut running = Vec::new();
    for change in 0..4 {
        let mut own = Running::of(&stars, sql).await;
        own.step().await;
        running.push(own);
        match change {
            0 => delete("customer", "c_custkey", 0..9).await,
            1 => delete("lineorder", "lo_key", 100..3_000).await,
            _ => stars.tables["lineorder"].flush().await.map(drop).unwrap(),
        }
    }
    let counts: Vec<usize> = running.iter().map(|own| own.expected.len()).collect();
    assert!(counts[0] > counts[1] && counts[1] > counts[2] && counts[2] == counts[3], "{counts:?}");
    interleave(running, 100, 4).await;
    assert!(stars.sharing.star_pages() > 0);
}

#[tokio::test]
async fn law_deletion_vectors_of_facts_and_dimensions_stay_with_their_table() {
    let (facts, dimension) = (delta::table(true), delta::table(true));
    let mut stars = Stars::without_tables(PlanSharing::sharing_always(), 50).await;
    stars.add("t", facts.path()).await;
    stars.add("d", dimension.path()).await;
    put(&stars, "small", self::dimension(Arc::new(Int64Array::from_iter_values([2, 5, 6, 40]))));
    let all = [
        "SELECT t.id, label FROM t JOIN small ON t.k = small.k",
        "SELECT t.id, d.day FROM t JOIN d ON t.id = d.id WHERE d.id < 40",
        "SELECT t.id, t.day FROM t JOIN small ON t.id = small.k",
        "SELECT t.id, d.s FROM t JOIN d ON t.id = d.id JOIN small ON t.k = small.k WHERE abs(d.id) % 5 <> 1",
    ];
    let mut running = Vec::new();
    for sql in all {
        running.push(Running::of(&stars, sql).await);
    }
    // Row 5 is deleted.
    assert_eq!(running[2].expected, ["2|2024-01-01", "40|2024-01-01", "6|2024-01-01"]);
    interleave(running, 100, 6).await;
    assert!(stars.sharing.star_pages() > 0);
}

//! Star queries at the same time whose joins are shared: each gives the rows that it gives alone, whatever the others join with.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::physical_plan::{ExecutionPlan, collect};
use futures::future::join_all;
use lakemark_datafusion::PlanSharing;
use lakemark_table::{BuildOptions, Change, MigrateOptions, Operation, Table, WriteOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::fixture::{create_indexes, open, rows, scans, write};
use crate::sharing::{clients_get_what_is_expected, sorted, taken};
use crate::together::{Running, Together, interleave};

const LINES: i32 = 6_000;
const LINES_OF_FILE: i32 = 2_000;
const TABLES: [&str; 5] = ["lineorder", "dates", "customer", "supplier", "part"];

/// The shapes of the Star Schema Benchmark, and how many joins with dimensions each has.
const SHAPES: [(&str, usize); 13] = [
    (
        "SELECT sum(lo_price * lo_discount) FROM lineorder, dates WHERE lo_orderdate = d_datekey AND d_year = 1993 \
      AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25",
        1,
    ),
    (
        "SELECT sum(lo_price * lo_discount) FROM lineorder, dates WHERE lo_orderdate = d_datekey AND d_month < 4 \
      AND lo_discount BETWEEN 4 AND 6 AND lo_quantity BETWEEN 26 AND 35",
        1,
    ),
    (
        "SELECT sum(lo_price * lo_discount) FROM lineorder, dates WHERE lo_orderdate = d_datekey AND d_month = 6 \
      AND d_year = 1994 AND lo_discount BETWEEN 5 AND 7",
        1,
    ),
    (
        "SELECT sum(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_orderdate = d_datekey \
      AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_category = 'C1' AND s_region = 'R2' \
      GROUP BY d_year, p_brand",
        3,
    ),
    (
        "SELECT sum(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_orderdate = d_datekey \
      AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand BETWEEN 'B2' AND 'B5' AND s_region = 'R1' \
      GROUP BY d_year, p_brand ORDER BY d_year, p_brand",
        3,
    ),
    (
        "SELECT sum(lo_revenue), d_year, p_brand FROM lineorder, dates, part, supplier WHERE lo_orderdate = d_datekey \
      AND lo_partkey = p_partkey AND lo_suppkey = s_suppkey AND p_brand = 'B3' AND s_region = 'R0' \
      GROUP BY d_year, p_brand",
        3,
    ),
    (
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) FROM customer, lineorder, supplier, dates \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_region = 'R1' \
      AND s_region = 'R1' AND d_year BETWEEN 1992 AND 1997 GROUP BY c_nation, s_nation, d_year",
        3,
    ),
    (
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) AS r FROM lineorder, customer, supplier, dates \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_nation IN ('N1', 'N2') \
      AND s_nation IN ('N1', 'N3') AND d_year >= 1994 GROUP BY c_nation, s_nation, d_year ORDER BY d_year, r DESC",
        3,
    ),
    (
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) FROM lineorder, customer, supplier, dates \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey \
      AND (c_nation = 'N1' OR c_nation = 'N5') AND (s_nation = 'N1' OR s_nation = 'N2') \
      GROUP BY c_nation, s_nation, d_year",
        3,
    ),
    (
        "SELECT c_nation, s_nation, d_year, sum(lo_revenue) FROM lineorder, customer, supplier, dates \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_orderdate = d_datekey AND c_region = 'R0' \
      AND s_region = 'R0' AND d_month = 12 GROUP BY c_nation, s_nation, d_year",
        3,
    ),
    (
        "SELECT d_year, c_nation, sum(lo_revenue - lo_cost) FROM dates, customer, supplier, part, lineorder \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey \
      AND c_region = 'R1' AND s_region IN ('R1', 'R2') AND p_category IN ('C1', 'C2') GROUP BY d_year, c_nation",
        4,
    ),
    (
        "SELECT d_year, s_nation, p_category, sum(lo_revenue - lo_cost) FROM lineorder, dates, customer, supplier, part \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey \
      AND c_region IN ('R1', 'R0') AND s_region IN ('R1', 'R0') AND d_year IN (1997, 1998) \
      GROUP BY d_year, s_nation, p_category",
        4,
    ),
    (
        "SELECT d_year, s_nation, p_brand, sum(lo_revenue - lo_cost) FROM lineorder, dates, customer, supplier, part \
      WHERE lo_custkey = c_custkey AND lo_suppkey = s_suppkey AND lo_partkey = p_partkey AND lo_orderdate = d_datekey \
      AND c_region <> 'R1' AND s_nation <> 'N2' AND p_category <> 'C0' GROUP BY d_year, s_nation, p_brand",
        4,
    ),
];

/// Statements that give rows while they read, with joins of several kinds.
pub const STREAMS: [&str; 10] = [
    "SELECT lo_key, d_year FROM lineorder, dates WHERE lo_orderdate = d_datekey AND d_month IN (2, 5)",
    "SELECT lo_key, c_nation, s_nation FROM lineorder, customer, supplier WHERE lo_custkey = c_custkey \
     AND lo_suppkey = s_suppkey AND c_region = 'R1' AND s_region <> 'R1'",
    "SELECT lo_key, lo_revenue, p_brand FROM lineorder, part WHERE lo_partkey = p_partkey AND p_category = 'C2'",
    "SELECT lo_key, p_brand, c_nation FROM lineorder, part, customer, dates, supplier WHERE lo_partkey = p_partkey \
     AND lo_custkey = c_custkey AND lo_orderdate = d_datekey AND lo_suppkey = s_suppkey AND d_year > 1993 \
     AND p_category <> 'C1' AND lo_quantity < 40",
    "SELECT lo_key, lo_suppkey FROM lineorder WHERE lo_custkey IN (SELECT c_custkey FROM customer WHERE c_nation = 'N3')",
    "SELECT lo_key, c_nation FROM lineorder LEFT JOIN customer ON lo_custkey = c_custkey AND c_region = 'R0'",
    "SELECT lo_key FROM lineorder WHERE NOT EXISTS (SELECT 1 FROM customer WHERE c_custkey = lo_custkey AND c_region = 'R1')",
    "SELECT lo_key, s_nation FROM lineorder, supplier WHERE lo_suppkey = s_suppkey AND lo_key > 1000 AND abs(lo_key) % 3 = 1",
    "SELECT a.lo_key, b.lo_revenue FROM lineorder a, lineorder b, supplier WHERE a.lo_key = b.lo_key + 1 \
     AND b.lo_suppkey = s_suppkey AND s_nation = 'N1'",
    "SELECT lo_key, lo_quantity FROM lineorder WHERE abs(lo_key) % 4 = 2",
];

fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn texts(letter: &str, values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values.into_iter().map(|value| format!("{letter}{value}"))))
}

/// Days of seven years: the first one of each month.
fn dates() -> RecordBatch {
    let months = || (1992..1999).flat_map(|year| (1..13).map(move |month| (year, month)));
    RecordBatch::try_from_iter([
        ("d_datekey", ints(months().map(|(year, month)| year * 10_000 + month * 100 + 1))),
        ("d_year", ints(months().map(|(year, _)| year))),
        ("d_month", ints(months().map(|(_, month)| month))),
    ])
    .unwrap()
}

/// Customers or suppliers of six nations in three regions. Keys of suppliers have another type than the column that they are joined with.
fn places(prefix: &str, count: i32, keys: ArrayRef) -> RecordBatch {
    let named = |name: &str| format!("{prefix}_{name}");
    RecordBatch::try_from_iter([
        (named(if prefix == "c" { "custkey" } else { "suppkey" }), keys),
        (named("nation"), texts("N", (0..count).map(|row| row % 6))),
        (named("region"), texts("R", (0..count).map(|row| row % 6 / 2))),
    ])
    .unwrap()
}

/// Parts, of which some are there twice.
fn parts() -> RecordBatch {
    RecordBatch::try_from_iter([
        ("p_partkey", ints((0..50).map(|row| row % 47))),
        ("p_brand", texts("B", (0..50).map(|row| row % 8))),
        ("p_category", texts("C", (0..50).map(|row| row % 4))),
    ])
    .unwrap()
}

/// Lines of which some have no customer, and some one that is not there.
fn lines(first: i32) -> RecordBatch {
    let rows = || first..first + LINES_OF_FILE;
    let spread = |row: i32, step: i64, count: i64| (i64::from(row) * step % 9_973 % count) as i32;
    let customers: Int32Array = rows().map(|row| (row % 17 != 3).then(|| spread(row, 7_919, 64))).collect();
    let day = |row: i32| (1992 + spread(row, 104_729, 7)) * 10_000 + (1 + spread(row, 611, 12)) * 100 + 1;
    RecordBatch::try_from_iter_with_nullable([
        ("lo_key", ints(rows()), true),
        ("lo_orderdate", ints(rows().map(day)), true),
        ("lo_custkey", Arc::new(customers) as ArrayRef, true),
        ("lo_suppkey", ints(rows().map(|row| spread(row, 1_299_709, 40))), true),
        ("lo_partkey", ints(rows().map(|row| spread(row, 15_485_863, 47))), true),
        ("lo_quantity", ints(rows().map(|row| 1 + row % 50)), true),
        ("lo_discount", ints(rows().map(|row| row % 11)), true),
        ("lo_price", ints(rows().map(|row| 100 + row % 997)), true),
        ("lo_revenue", ints(rows().map(|row| 50 + row % 991)), true),
        ("lo_cost", ints(rows().map(|row| row % 97)), true),
    ])
    .unwrap()
}

pub fn files() -> TempDir {
    let folder = TempDir::new().unwrap();
    let customers = places("c", 60, ints(0..60));
    let suppliers = places("s", 40, Arc::new(Int64Array::from_iter_values(0..40)));
    for (name, batch) in [("dates", dates()), ("customer", customers), ("supplier", suppliers), ("part", parts())] {
        write(&folder.path().join(name).join("part.parquet"), &batch);
    }
    for first in (0..LINES).step_by(LINES_OF_FILE as usize) {
        write(&folder.path().join("lineorder").join(format!("part-{first}.parquet")), &lines(first));
    }
    folder
}

/// A session that shares star joins, with a registry of its own.
pub struct Stars {
    together: Together,
    pub tables: BTreeMap<&'static str, Arc<Table>>,
}

impl Deref for Stars {
    type Target = Together;

    fn deref(&self) -> &Together {
        &self.together
    }
}

impl Stars {
    pub async fn of(folder: &Path) -> Self {
        Self::with(folder, PlanSharing::sharing_always(), 50).await
    }

    async fn with(folder: &Path, sharing: PlanSharing, batch_rows: usize) -> Self {
        let mut stars = Self::without_tables(sharing, batch_rows).await;
        for name in TABLES {
            stars.add(name, &folder.join(name)).await;
        }
        stars
    }

    pub async fn without_tables(sharing: PlanSharing, batch_rows: usize) -> Self {
        Self { together: Together::at("stars", sharing, batch_rows).await, tables: BTreeMap::new() }
    }

    pub async fn add(&mut self, name: &'static str, folder: &Path) {
        let table = open(folder).await;
        self.session.register(name, Arc::clone(&table)).await.unwrap();
        self.tables.insert(name, table);
    }

    /// A metric of the scans of lines or events of a statement that runs to its end.
    pub async fn metric(&self, sql: &str, name: &str) -> usize {
        self.metric_of(sql, name, |column| column.starts_with("lo_") || column.starts_with("e_")).await
    }

    /// The same of the scans that give such a column.
    pub async fn metric_of(&self, sql: &str, name: &str, is_own: impl Fn(&str) -> bool) -> usize {
        let plan = self.session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        collect(Arc::clone(&plan), self.session.context().task_ctx()).await.unwrap();
        let gives = |scan: &Arc<dyn ExecutionPlan>| scan.schema().fields().iter().any(|field| is_own(field.name()));
        let own = scans(&plan).into_iter().filter(gives);
        own.filter_map(|scan| scan.metrics()?.sum_by_name(name)).map(|value| value.as_usize()).sum()
    }

    /// Gives an existing row another value of a column.
    pub async fn upsert(&self, table: &str, columns: [&str; 2], key: i32, value: i32) {
        let value: ArrayRef = if table == "customer" { texts("N", [value]) } else { ints([value]) };
        let rows = RecordBatch::try_from_iter([(columns[0], ints([key])), (columns[1], value)]).unwrap();
        let change = Change { operation: Operation::Upsert, rows };
        self.tables[table].write(vec![change], WriteOptions::default()).await.unwrap();
    }

    pub async fn declare_keys(&self) {
        for (table, key) in [("lineorder", "lo_key"), ("customer", "c_custkey")] {
            let table = &self.tables[table];
            table.declare_key(&[key.to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn queries_of_the_benchmark_are_recognised_with_all_of_their_dimensions() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    for indexed in [false, true] {
        if indexed {
            create_indexes(&folder.path().join("lineorder"), &["lo_custkey", "lo_orderdate"]).await;
        }
        for (number, (sql, joins)) in SHAPES.into_iter().enumerate() {
            assert_eq!(stars.metric(sql, "star_joins").await, joins, "indexed {indexed}, shape {number}");
        }
    }
}

#[tokio::test]
async fn other_plans_are_left_alone() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    for sql in [
        "SELECT count(*) FROM lineorder WHERE abs(lo_key) % 2 = 0",
        "SELECT lo_key FROM lineorder ORDER BY lo_revenue DESC, lo_key LIMIT 5",
        "SELECT lo_key, c_nation FROM lineorder JOIN customer ON lo_custkey + 1 = c_custkey",
        "SELECT lo_key, c_nation FROM lineorder JOIN customer ON lo_custkey < c_custkey AND lo_key < 5",
        "SELECT lo_key, d_month FROM lineorder JOIN dates ON lo_orderdate = d_datekey AND lo_quantity = d_month",
        "SELECT c_nation, s_nation FROM customer JOIN supplier ON c_nation = s_nation",
    ] {
        assert_eq!(stars.metric(sql, "star_joins").await, 0, "{sql}");
    }
    stars.set("lakemark.share", "pages").await;
    assert_eq!(stars.metric(SHAPES[3].0, "star_joins").await, 0);
    stars.set("lakemark.share", "stars").await;
    stars.set("lakemark.use_join_keys", "false").await;
    assert_eq!(stars.metric(SHAPES[3].0, "star_joins").await, 0);
}

#[tokio::test]
async fn law_stars_are_as_off_for_every_pair_of_statements() {
    let folder = files();
    create_indexes(&folder.path().join("lineorder"), &["lo_suppkey"]).await;
    let stars = Stars::of(folder.path()).await;
    for (number, one) in STREAMS.into_iter().enumerate() {
        for other in STREAMS.into_iter().skip(number + 1) {
            let running = vec![Running::of(&stars, one).await, Running::of(&stars, other).await];
            interleave(running, 100, number as u64).await;
        }
    }
    assert!(stars.sharing.star_pages() > 100, "{}", stars.sharing.star_pages());
}

#[tokio::test]
async fn law_a_lone_statement_shares_no_join() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let shapes = SHAPES.map(|(sql, _)| sql);
    for sql in shapes.into_iter().chain(STREAMS).filter(|sql| !sql.contains("lineorder b")) {
        assert_eq!(sorted(rows(&stars.session, sql).await), stars.alone(sql).await, "{sql}");
    }
    assert_eq!(stars.sharing.star_pages(), 0);
}

/// Statements that come, take, stall and go in any order, with changes of facts and dimensions between them.
#[tokio::test]
async fn law_stars_are_as_off_under_any_interleaving() {
    let mut star_pages = 0;
    for seed in 0..4 {
        let mut rng = StdRng::seed_from_u64(seed);
        let folder = files();
        let stars = Stars::of(folder.path()).await;
        stars.declare_keys().await;
        let mut running: Vec<Running> = Vec::new();
        for step in 0..150 {
            let place = rng.random_range(0..8);
            match rng.random_range(0..12) {
                0..3 => running.push(Running::of(&stars, &random_star(&mut rng)).await),
                3 if place < running.len() => drop(running.remove(place)),
                4 if step % 3 == 0 => {
                    let (key, value) = (rng.random_range(0..LINES), rng.random_range(0..64));
                    stars.upsert("lineorder", ["lo_key", "lo_custkey"], key, value).await;
                }
                4 => {
                    let (key, value) = (rng.random_range(0..60), rng.random_range(0..6));
                    stars.upsert("customer", ["c_custkey", "c_nation"], key, value).await;
                }
                5 if step % 4 == 1 => stars.tables["lineorder"].flush().await.map(drop).unwrap(),
                5 if step % 4 == 3 => {
                    stars.tables["customer"].migrate(MigrateOptions::default()).await.map(drop).unwrap();
                }
                _ => {
                    if let Some(own) = running.get_mut(place) {
                        own.step().await;
                    }
                }
            }
        }
        for own in running {
            own.finish(seed).await;
        }
        star_pages += stars.sharing.star_pages();
    }
    assert!(star_pages > 50, "{star_pages}");
}

/// The same on several threads, with several partitions, and with aggregates above.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn law_stars_are_as_off_on_several_threads() {
    let folder = files();
    create_indexes(&folder.path().join("lineorder"), &["lo_custkey"]).await;
    let stars = Arc::new(Stars::of(folder.path()).await);
    let statements: Vec<&str> = SHAPES.iter().map(|(sql, _)| *sql).chain(STREAMS).collect();
    let mut expected = BTreeMap::new();
    for sql in &statements {
        expected.insert(*sql, stars.alone(sql).await);
    }
    stars.set("datafusion.execution.target_partitions", "3").await;
    clients_get_what_is_expected(&stars, |stars| &stars.session, expected, 12).await;
    assert!(stars.sharing.star_pages() > 0);
}

#[tokio::test]
async fn law_rows_of_one_snapshot_are_not_those_of_another() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    stars.declare_keys().await;
    let sql =
        "SELECT lo_key, lo_custkey, c_nation FROM lineorder, customer WHERE lo_custkey = c_custkey AND c_nation = 'N1'";
    let mut running = Vec::new();
    for change in 0..4 {
        let mut own = Running::of(&stars, sql).await;
        own.step().await;
        running.push(own);
        match change {
            0 => stars.upsert("customer", ["c_custkey", "c_nation"], 1, 5).await,
            1 => stars.upsert("customer", ["c_custkey", "c_nation"], 2, 1).await,
            _ => stars.upsert("lineorder", ["lo_key", "lo_custkey"], 4_321, 2 + change).await,
        }
    }
    let answers: Vec<&Vec<String>> = running.iter().map(|own| &own.expected).collect();
    assert!(answers[0] != answers[1] && answers[1] != answers[2], "changes are seen");
    interleave(running, 100, 3).await;
    assert!(stars.sharing.star_pages() > 0);
}

#[tokio::test]
async fn explain_analyze_tells_which_joins_were_shared() {
    let folder = files();
    let stars = Stars::of(folder.path()).await;
    let shown = async |sql: &str| rows(&stars.session, &format!("EXPLAIN ANALYZE {sql}")).await.join("\n");
    let alone = shown(STREAMS[1]).await;
    assert!(alone.contains("star_joins=2") && alone.contains("star_pages=0"), "{alone}");
    let mut other = Running::of(&stars, STREAMS[2]).await;
    other.step().await;
    let shared = shown(STREAMS[1]).await;
    let fact = shared.lines().find(|line| line.contains("star_joins=2")).unwrap_or_else(|| panic!("{shared}"));
    assert!(!fact.contains("star_pages=0") && !fact.contains("rows_left_out_stars=0"), "{fact}");
    other.finish(0).await;
}

fn number(rng: &mut StdRng, most: i32) -> i32 {
    rng.random_range(0..most)
}

/// A star query of random dimensions and conditions, which gives rows while it reads.
fn random_star(rng: &mut StdRng) -> String {
    let (mut tables, mut columns) = (vec!["lineorder".to_owned()], vec!["lo_key".to_owned()]);
    let mut conditions = Vec::new();
    for (table, join, column) in [
        ("dates", "lo_orderdate = d_datekey", "d_year"),
        ("customer", "c_custkey = lo_custkey", "c_nation"),
        ("supplier", "lo_suppkey = s_suppkey", "s_nation"),
        ("part", "lo_partkey = p_partkey", "p_brand"),
    ] {
        if rng.random_bool(0.4) {
            continue;
        }
        let condition = match table {
            "dates" => format!("d_year >= {} AND d_month <> {}", 1992 + number(rng, 7), number(rng, 13)),
            "part" => format!("p_category <> 'C{}'", number(rng, 4)),
            _ => format!("{column} IN ('N{}', 'N{}')", number(rng, 6), number(rng, 7)),
        };
        if rng.random_bool(0.2) {
            let (fact, key) = join.split_once(" = ").unwrap();
            let (fact, key) = if fact.starts_with("lo_") { (fact, key) } else { (key, fact) };
            conditions.push(format!("{fact} IN (SELECT {key} FROM {table} WHERE {condition})"));
            continue;
        }
        tables.push(table.to_owned());
        columns.push(column.to_owned());
        conditions.push(join.to_owned());
        if rng.random_bool(0.8) {
            conditions.push(condition);
        }
    }
    conditions.push(match number(rng, 4) {
        0 => format!("lo_quantity < {}", number(rng, 60)),
        1 => format!("abs(lo_key) % {} = 0", 1 + number(rng, 5)),
        2 => format!("lo_key BETWEEN {} AND {}", number(rng, LINES), LINES),
        _ => "lo_discount <> 3".to_owned(),
    });
    let place = rng.random_range(0..tables.len());
    tables.swap(0, place);
    format!("SELECT {} FROM {} WHERE {}", columns.join(", "), tables.join(", "), conditions.join(" AND "))
}

/// Random star queries at once, judged by what each gives alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_random_star_queries_at_once_are_as_off() {
    let mut star_pages = 0;
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x57a5);
        let folder = files();
        if rng.random_bool(0.5) {
            create_indexes(&folder.path().join("lineorder"), &["lo_custkey", "lo_quantity"]).await;
        }
        let batch_rows = [7, 64, 8_192][rng.random_range(0..3)];
        let stars = Stars::with(folder.path(), PlanSharing::sharing_always(), batch_rows).await;
        stars.set("datafusion.execution.target_partitions", &rng.random_range(1..4_usize).to_string()).await;
        for round in 0..4 {
            let asked: Vec<String> = (0..rng.random_range(2..12)).map(|_| random_star(&mut rng)).collect();
            let mut expected = Vec::new();
            for sql in &asked {
                expected.push(stars.alone(sql).await);
            }
            let stars = &stars;
            let answers = asked.iter().map(|sql| async move { sorted(taken(stars.begin(sql).await).await) });
            let found = join_all(answers).await;
            for (sql, (found, expected)) in asked.iter().zip(found.into_iter().zip(expected)) {
                assert_eq!(found, expected, "seed {seed} round {round}: {sql}");
            }
        }
        star_pages += stars.sharing.star_pages();
    }
    assert!(star_pages > 50, "{star_pages}");
}

/// Without being told to share always, small tables are left alone.
#[tokio::test]
async fn joins_are_shared_only_where_it_is_predicted_to_pay() {
    let folder = files();
    let stars = Stars::with(folder.path(), PlanSharing::new(), 50).await;
    let running = vec![Running::of(&stars, STREAMS[1]).await, Running::of(&stars, STREAMS[2]).await];
    interleave(running, 100, 5).await;
    assert_eq!(stars.sharing.star_pages(), 0);
}

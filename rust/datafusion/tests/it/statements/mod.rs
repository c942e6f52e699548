//! Random statements that change a table, with flushes, migrations and sessions in between, judged by a map in memory.

mod condition;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, MigrateOptions, Table, TableFormat};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use self::condition::Condition;
use crate::fixture::{create_indexes, open, text, write};

/// A row without its key.
#[derive(Clone)]
pub struct Row {
    pub a: Option<i32>,
    pub s: Option<String>,
}

type Rows = BTreeMap<i64, Row>;

/// What a statement makes of the table.
struct Changed {
    /// How many rows it says to have changed.
    count: u64,
    rows: Rows,
}

/// What the table was at a version.
#[derive(Clone)]
struct Version {
    number: u64,
    rows: Rows,
}

/// A data file in a log.
struct LogFile {
    name: String,
    size: u64,
}

const KEYS: i64 = 120;
/// Statements of a trial.
const STEPS: u64 = 40;

struct Trial {
    random: StdRng,
    folder: tempfile::TempDir,
    table: Arc<Table>,
    session: LakemarkSession,
    rows: Rows,
    /// What the table was at versions that nothing was buffered at.
    versions: Vec<Version>,
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut rows = Rows::new();
        let is_delta = random.random_bool(0.5);
        let mut adds = Vec::new();
        for file in 0..random.random_range(1..4) {
            let keys = (0..KEYS).filter(|key| key % 4 == file);
            let of: Rows = keys.map(|key| (key, row(&mut random))).collect();
            let name = format!("part-{file}.parquet");
            let size = write(&folder.path().join(&name), &batch(&of));
            adds.push(LogFile { name, size });
            rows.extend(of);
        }
        if is_delta {
            write_log(folder.path(), &adds);
        }
        create_indexes(folder.path(), &["a", "s"]).await;
        let table = open(folder.path()).await;
        let pages = random.random_range(100..4000) * 512;
        let options = [("page_bytes", "512".to_owned()), ("cache_bytes", format!("{pages}"))];
        let options = options.map(|(name, value)| (name.to_owned(), value));
        table.declare_key(&["k".to_owned()], &BTreeMap::from(options), BuildOptions::default()).await.unwrap();
        let session = session(&table).await;
        Self { random, folder, table, session, rows, versions: Vec::new() }
    }

    async fn step(&mut self) -> String {
        match self.random.random_range(0..100) {
            0..18 => self.insert().await,
            18..30 => self.replace().await,
            30..50 => self.update().await,
            50..64 => self.delete().await,
            64..80 => self.merge().await,
            80..88 => {
                self.table.flush().await.unwrap();
                // Versions of Delta tables are those of their logs, which changes join when they are migrated.
                if self.table.format() == TableFormat::Parquet {
                    self.remember().await;
                }
                "flush".to_owned()
            }
            88..94 => {
                let fraction = if self.random.random_bool(0.5) { 1.0 } else { self.random.random_range(0.1..0.9) };
                self.table.migrate(MigrateOptions { fraction, ..MigrateOptions::default() }).await.unwrap();
                if fraction >= 1.0 {
                    self.remember().await;
                }
                format!("migrate {fraction}")
            }
            _ => {
                self.table = open(self.folder.path()).await;
                self.session = session(&self.table).await;
                "reopen".to_owned()
            }
        }
    }

    async fn remember(&mut self) {
        let newest = self.table.history(Some(1)).await.unwrap().first().map(|newest| newest.version);
        self.versions.push(Version { number: newest.unwrap(), rows: self.rows.clone() });
    }

    /// Makes a statement and compares how many rows it says to have changed, or that it is refused and changes nothing.
    async fn make(&mut self, sql: String, after: Option<Changed>) -> String {
        match (self.session.sql(&sql).await, after) {
            (Ok(frame), Some(Changed { count, rows })) => {
                let reported: Vec<String> = frame.collect().await.unwrap().iter().flat_map(text).collect();
                assert_eq!(reported, [count.to_string()], "{sql}");
                self.rows = rows;
            }
            (Err(error), None) => {
                let said = error.to_string();
                assert!(said.contains("there already") || said.contains("stands in rows"), "{sql}: {said}");
            }
            (Ok(_), None) => panic!("made, and should not be: {sql}"),
            (Err(error), Some(_)) => panic!("{sql}: {error}"),
        }
        sql
    }

    /// Rows under different keys.
    fn some(&mut self) -> Rows {
        let count = self.random.random_range(1..8);
        (0..count).map(|_| (self.random.random_range(0..KEYS + 40), row(&mut self.random))).collect()
    }

    fn condition(&mut self) -> Condition {
        Condition::random(&mut self.random, KEYS, 2)
    }

    fn chosen(&self, condition: &Condition) -> Rows {
        self.rows
            .iter()
            .filter(|(key, row)| condition.holds(**key, row))
            .map(|(key, row)| (*key, row.clone()))
            .collect()
    }

    async fn insert(&mut self) -> String {
        let (sql, new) = match self.random.random_range(0..3) {
            0 => {
                let new = self.some();
                (format!("INSERT INTO t (k, a, s) VALUES {}", values(&new, true)), new)
            }
            1 => {
                let new: Rows = self.some().into_iter().map(|(key, row)| (key, Row { s: None, ..row })).collect();
                (format!("INSERT INTO t (k, a) VALUES {}", values(&new, false)), new)
            }
            _ => {
                let (condition, far) = (self.condition(), self.random.random_range(1..300));
                let new = self.chosen(&condition).into_iter().map(|(key, row)| (key + far, row)).collect();
                (format!("INSERT INTO t SELECT k + {far}, a, s FROM t WHERE {condition}"), new)
            }
        };
        let is_free = new.keys().all(|key| !self.rows.contains_key(key));
        let mut after = self.rows.clone();
        let count = new.len() as u64;
        after.extend(new);
        self.make(sql, is_free.then_some(Changed { count, rows: after })).await
    }

    async fn replace(&mut self) -> String {
        let whole = self.random.random_bool(0.5);
        let kept = |Row { a, s }: Row| Row { a, s: s.filter(|_| whole) };
        let new: Rows = self.some().into_iter().map(|(key, row)| (key, kept(row))).collect();
        let columns = if whole { "k, a, s" } else { "k, a" };
        let sql = format!("REPLACE INTO t ({columns}) VALUES {}", values(&new, whole));
        let mut after = self.rows.clone();
        let count = new.len() as u64;
        after.extend(new);
        self.make(sql, Some(Changed { count, rows: after })).await
    }

    async fn update(&mut self) -> String {
        let condition = self.condition();
        let chosen = self.chosen(&condition);
        let (count, mut after) = (chosen.len() as u64, self.rows.clone());
        let number = self.random.random_range(0..30);
        let sets = match self.random.random_range(0..5) {
            0 => {
                after
                    .iter_mut()
                    .filter(|(key, _)| chosen.contains_key(key))
                    .for_each(|(_, row)| row.a = row.a.map(|a| a + 1));
                "a = a + 1".to_owned()
            }
            1 => {
                let text = Some(format!("s{number}"));
                after
                    .iter_mut()
                    .filter(|(key, _)| chosen.contains_key(key))
                    .for_each(|(_, row)| row.s.clone_from(&text));
                format!("s = 's{number}'")
            }
            2 => {
                let changed = after.iter_mut().filter(|(key, _)| chosen.contains_key(key));
                changed.for_each(|(_, row)| *row = Row { a: Some(number), s: None });
                format!("a = {number}, s = NULL")
            }
            3 => {
                let changed = after.iter_mut().filter(|(key, _)| chosen.contains_key(key));
                changed.for_each(|(key, row)| row.a = Some(i32::try_from(*key % 30).unwrap()));
                "a = k % 30".to_owned()
            }
            _ => {
                // Keys change: those that are given up are free for others of the same statement.
                let far = self.random.random_range(1..300);
                chosen.keys().for_each(|key| drop(after.remove(key)));
                let is_free = chosen.keys().all(|key| !after.contains_key(&(key + far)));
                after.extend(chosen.into_iter().map(|(key, row)| (key + far, row)));
                let sql = format!("UPDATE t SET k = k + {far} WHERE {condition}");
                return self.make(sql, is_free.then_some(Changed { count, rows: after })).await;
            }
        };
        self.make(format!("UPDATE t SET {sets} WHERE {condition}"), Some(Changed { count, rows: after })).await
    }

    async fn delete(&mut self) -> String {
        let condition = self.condition();
        let mut chosen = self.chosen(&condition);
        // Not everything at once all the time.
        let mut sql = format!("DELETE FROM t WHERE {condition}");
        if chosen.len() > 40 || self.random.random_bool(0.3) {
            let (first, far) = (self.random.random_range(0..KEYS), self.random.random_range(0..3));
            let of: Rows = chosen.into_iter().filter(|(key, _)| (first..first + 20).contains(key)).collect();
            chosen = self
                .rows
                .iter()
                .filter(|(key, _)| of.contains_key(&(**key - far)))
                .map(|(key, row)| (*key, row.clone()))
                .collect();
            sql = format!(
                "DELETE FROM t WHERE k IN (SELECT k + {far} FROM t WHERE k >= {first} AND k < {} AND {condition})",
                first + 20
            );
        }
        let mut after = self.rows.clone();
        chosen.keys().for_each(|key| drop(after.remove(key)));
        self.make(sql, Some(Changed { count: chosen.len() as u64, rows: after })).await
    }

    async fn merge(&mut self) -> String {
        let (new, limit) = (self.some(), self.random.random_range(0..30));
        let (mut count, mut after) = (0, self.rows.clone());
        for (key, new) in &new {
            let is_small = new.a.is_some_and(|a| a < limit);
            match after.get_mut(key) {
                Some(_) if is_small => drop(after.remove(key)),
                Some(row) => row.a = new.a,
                None if is_small => drop(after.insert(*key, new.clone())),
                None => continue,
            }
            count += 1;
        }
        let sql = format!(
            "MERGE INTO t USING (VALUES {}) AS n(k, a, s) ON t.k = n.k WHEN MATCHED AND n.a < {limit} THEN DELETE \
             WHEN MATCHED THEN UPDATE SET a = n.a WHEN NOT MATCHED AND n.a < {limit} THEN INSERT (k, a, s) VALUES (n.k, n.a, n.s)",
            values(&new, true)
        );
        self.make(sql, Some(Changed { count, rows: after })).await
    }

    async fn check(&mut self, after: &str) {
        let condition = self.condition();
        let chosen = self.chosen(&condition);
        let shown: Vec<String> = chosen.iter().map(|(key, row)| shown(*key, row)).collect();
        let sum: i64 = chosen.values().filter_map(|row| row.a).map(i64::from).sum();
        let numbers = chosen.values().filter(|row| row.a.is_some()).count();
        let mut groups = BTreeMap::<Option<i32>, u64>::new();
        chosen.values().for_each(|row| *groups.entry(row.a).or_default() += 1);
        let groups: Vec<String> = groups.iter().map(|(a, count)| format!("{}|{count}", number(*a))).collect();
        let least = chosen.keys().min().map_or("NULL".to_owned(), ToString::to_string);
        for (sql, expected) in [
            (format!("SELECT k, a, s FROM t WHERE {condition} ORDER BY k"), shown),
            (format!("SELECT count(*) FROM t WHERE {condition}"), vec![chosen.len().to_string()]),
            (
                format!("SELECT count(a), coalesce(sum(a), 0), min(k) FROM t WHERE {condition}"),
                vec![format!("{numbers}|{sum}|{least}")],
            ),
            (format!("SELECT a, count(*) FROM t WHERE {condition} GROUP BY a ORDER BY a NULLS FIRST"), groups),
        ] {
            assert_eq!(ask(&self.session, &sql).await, expected, "{sql}, after {after}");
        }
    }

    /// An older version, which no later change is in.
    async fn check_version(&mut self, after: &str) {
        if self.versions.is_empty() {
            return;
        }
        let Version { number, rows } = self.versions[self.random.random_range(0..self.versions.len())].clone();
        let condition = self.condition();
        let chosen = rows.iter().filter(|(key, row)| condition.holds(**key, row));
        let expected: Vec<String> = chosen.map(|(key, row)| shown(*key, row)).collect();
        let sql = format!("SELECT k, a, s FROM t VERSION AS OF {number} WHERE {condition} ORDER BY k");
        assert_eq!(ask(&self.session, &sql).await, expected, "{sql}, after {after}");
        let both = format!("SELECT count(*) FROM t VERSION AS OF {number} JOIN t AS now ON t.k = now.k");
        let kept = rows.keys().filter(|key| self.rows.contains_key(key)).count();
        assert_eq!(ask(&self.session, &both).await, [kept.to_string()], "{both}, after {after}");
    }

    async fn check_all(&self, after: &str) {
        let expected: Vec<String> = self.rows.iter().map(|(key, row)| shown(*key, row)).collect();
        assert_eq!(ask(&self.session, "SELECT k, a, s FROM t ORDER BY k").await, expected, "after {after}");
        assert_eq!(ask(&self.session, "SELECT count(*) FROM t").await, [self.rows.len().to_string()], "after {after}");
    }
}

async fn session(table: &Arc<Table>) -> LakemarkSession {
    let session = LakemarkSession::new();
    session.register("t", Arc::clone(table)).await.unwrap();
    session
}

async fn ask(session: &LakemarkSession, sql: &str) -> Vec<String> {
    session.sql(sql).await.unwrap().collect().await.unwrap().iter().flat_map(text).collect()
}

fn row(random: &mut StdRng) -> Row {
    let a = random.random_bool(0.8).then(|| random.random_range(0..30));
    Row { a, s: random.random_bool(0.8).then(|| format!("s{}", random.random_range(0..20))) }
}

fn batch(rows: &Rows) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.keys().copied()));
    let a: ArrayRef = Arc::new(rows.values().map(|row| row.a).collect::<Int32Array>());
    let s: ArrayRef = Arc::new(rows.values().map(|row| row.s.clone()).collect::<StringArray>());
    RecordBatch::try_from_iter_with_nullable([("k", k, true), ("a", a, true), ("s", s, true)]).unwrap()
}

fn number(a: Option<i32>) -> String {
    a.map_or("NULL".to_owned(), |a| a.to_string())
}

fn shown(key: i64, row: &Row) -> String {
    format!("{key}|{}|{}", number(row.a), row.s.as_deref().unwrap_or("NULL"))
}

fn values(rows: &Rows, with_text: bool) -> String {
    let value = |(key, Row { a, s }): (&i64, &Row)| {
        let text = s.as_ref().map_or("NULL".to_owned(), |s| format!("'{s}'"));
        let a = a.map_or("CAST(NULL AS INT)".to_owned(), |a| a.to_string());
        if with_text { format!("({key}, {a}, CAST({text} AS VARCHAR))") } else { format!("({key}, {a})") }
    };
    rows.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// The log of a Delta table with these files.
fn write_log(root: &Path, files: &[LogFile]) {
    let schema = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"k\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"a\",\"type\":\"integer\",\"nullable\":true,\"metadata\":{}},{\"name\":\"s\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;
    let mut log = format!(
        "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"4f1c9e53-6ba7-4c1f-9a3e-7a7f6b2f8b11\",\"format\":{{\"provider\":\"parquet\",\"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{}},\"createdTime\":0}}}}"
    );
    for LogFile { name, size } in files {
        log += &format!(
            "\n{{\"add\":{{\"path\":\"{name}\",\"partitionValues\":{{}},\"size\":{size},\"modificationTime\":1,\"dataChange\":true}}}}"
        );
    }
    std::fs::create_dir(root.join("_delta_log")).unwrap();
    std::fs::write(root.join("_delta_log/00000000000000000000.json"), log).unwrap();
}

/// `LAKEMARK_MODEL_STATEMENTS` and `LAKEMARK_MODEL_SEED` make more of them.
#[tokio::test]
async fn random_statements_agree_with_a_map() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let wanted = number("LAKEMARK_MODEL_STATEMENTS", 160);
    let (mut seed, mut done) = (number("LAKEMARK_MODEL_SEED", 7), 0);
    while done < wanted {
        let mut trial = Trial::new(seed).await;
        for step in 0..STEPS {
            let what = format!("seed {seed}, step {step}: {}", trial.step().await);
            trial.check(&what).await;
            if step % 5 == 4 {
                trial.check_all(&what).await;
                trial.check_version(&what).await;
            }
        }
        done += STEPS;
        seed += 1;
    }
    println!("{done} statements agree with the map");
}

//! Walks over the links of a random table, by statements, against a closure over its rows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write as _};
use std::path::Path;

use arrow::array::Array as _;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lakemark_datafusion::LakemarkSession;
use lakemark_table::{BuildOptions, IndexKind, IndexSpec, Table, TableOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::column::{Column, Home, pick};
use super::table::RandomTable;
use super::{Pair, Summary};

/// Walks that one random table serves.
const WALKS_PER_TABLE: u64 = 12;

/// The columns that the links of a random table are made of.
#[derive(Clone, Debug)]
pub struct LinkColumns {
    near: Column,
    via: Option<Column>,
    /// In a table that is walked this is a column for its links alone, with the values of the near ends.
    pub far: Column,
}

impl LinkColumns {
    /// Some columns of a table, and one more; none where no column has values that can be linked.
    pub fn random(dice: &mut StdRng, columns: &[Column]) -> Option<Self> {
        let linked = linked(columns);
        if linked.is_empty() {
            return None;
        }
        let near = *pick(dice, &linked);
        let via = via(dice, &linked, [near, near]);
        Some(Self { near: near.clone(), via, far: near.like(dice, "far") })
    }

    /// Some columns of a table, whose ends are of one type; none where no two are.
    pub fn between(dice: &mut StdRng, columns: &[Column]) -> Option<Self> {
        let linked = linked(columns);
        let of_one_type = |(near, far): &(&Column, &Column)| near.name != far.name && near.data_type == far.data_type;
        let pairs = linked.iter().flat_map(|near| linked.iter().map(move |far| (*near, *far)));
        let pairs: Vec<(&Column, &Column)> = pairs.filter(of_one_type).collect();
        if pairs.is_empty() {
            return None;
        }
        let (near, far) = *pick(dice, &pairs);
        Some(Self { near: near.clone(), via: via(dice, &linked, [near, far]), far: far.clone() })
    }

    fn columns(&self) -> Vec<&Column> {
        [Some(&self.near), self.via.as_ref(), Some(&self.far)].into_iter().flatten().collect()
    }

    /// Declares and builds an index of them; gives its description.
    pub async fn create_index(&self, dice: &mut StdRng, folder: &Path) -> String {
        let table = Table::open(folder.to_str().unwrap(), TableOptions::default()).await.unwrap();
        let spec = IndexSpec {
            columns: self.columns().into_iter().map(Column::path).collect(),
            kind: Some(IndexKind::Links),
            options: [("files_per_segment".to_owned(), pick(dice, &["1", "2", "16"]).to_string())].into(),
            ..IndexSpec::default()
        };
        table.create_index(spec, false).await.unwrap();
        table.build(BuildOptions { threads: Some(1), ..BuildOptions::default() }).await.unwrap();
        let names: Vec<&str> = self.columns().into_iter().map(|column| column.name.as_str()).collect();
        format!("({}) by links, of {}", names.join(", "), self.near.data_type)
    }
}

/// Columns that links may be made of.
fn linked(columns: &[Column]) -> Vec<&Column> {
    let is_linked = |of: &DataType| {
        of.is_integer()
            || matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..) | DataType::Binary)
    };
    columns.iter().filter(|column| column.home == Home::Flat && is_linked(&column.data_type)).collect()
}

/// Mostly a column for the predicates of links between these ends, if there is one.
fn via(dice: &mut StdRng, linked: &[&Column], ends: [&Column; 2]) -> Option<Column> {
    let others: Vec<&Column> =
        linked.iter().filter(|other| ends.iter().all(|end| end.name != other.name)).copied().collect();
    (!others.is_empty() && dice.random_bool(0.7)).then(|| (*pick(dice, &others)).clone())
}

/// A value as text; none where it is NULL.
type Cell = Option<String>;

/// What the rows of a table link: subject, predicate and object.
struct Graph(BTreeSet<(String, Cell, String)>);

/// What a walk follows.
#[derive(Clone, Debug)]
struct Way {
    via: Cell,
    goes_out: bool,
    goes_in: bool,
}

impl Graph {
    /// The links of the rows that a table shows without any index.
    async fn of(session: &LakemarkSession, of: &LinkColumns) -> Self {
        let names: Vec<&str> = of.columns().into_iter().map(|column| column.name.as_str()).collect();
        let rows = cells(session, &format!("SELECT {} FROM t", names.join(", "))).await.unwrap();
        let links = rows.into_iter().filter_map(|mut row| {
            let object = row.pop().flatten()?;
            let predicate = if of.via.is_some() { row.pop().flatten() } else { None };
            Some((row.pop().flatten()?, predicate, object))
        });
        Self(links.collect())
    }

    /// The links of a node: the predicate and the other end.
    fn links(&self, node: &str, way: &Way) -> BTreeSet<(Cell, String)> {
        let followed = self.0.iter().filter(|(_, predicate, _)| way.via.is_none() || *predicate == way.via);
        let mut found = BTreeSet::new();
        for (subject, predicate, object) in followed {
            if way.goes_out && subject == node {
                found.insert((predicate.clone(), object.clone()));
            }
            if way.goes_in && object == node {
                found.insert((predicate.clone(), subject.clone()));
            }
        }
        found
    }

    /// The nodes that links lead to, and how many links the shortest way to each has.
    fn depths(&self, start: &str, way: &Way) -> BTreeMap<String, u32> {
        let (mut depths, mut waiting) = (BTreeMap::new(), VecDeque::from([(start.to_owned(), 0)]));
        while let Some((node, depth)) = waiting.pop_front() {
            for (_, next) in self.links(&node, way) {
                if !depths.contains_key(&next) {
                    depths.insert(next.clone(), depth + 1);
                    waiting.push_back((next, depth + 1));
                }
            }
        }
        depths
    }
}

/// What one statement asks.
#[derive(Clone, Debug)]
enum Asked {
    Links,
    Reach { least: Option<u32>, most: Option<u32> },
    Path { to: usize, most: Option<u32> },
}

/// A random walk, as a statement.
struct Walk<'a> {
    of: &'a LinkColumns,
    from: usize,
    way: Way,
    /// The predicate and the direction, as arguments.
    arguments: String,
    asked: Asked,
    limit: Option<usize>,
}

impl<'a> Walk<'a> {
    fn random(rng: &mut StdRng, of: &'a LinkColumns) -> Self {
        let (mut via, mut given) = (None, "NULL".to_owned());
        if let Some(column) = of.via.as_ref().filter(|_| rng.random_bool(0.5)) {
            let place = column.place(rng);
            (via, given) = (Some(column.text_at(place)), column.literal_at(place));
        }
        let direction = *pick(rng, &["out", "in", "both"]);
        let way = Way { via, goes_out: direction != "in", goes_in: direction != "out" };
        let mut depth = |share| rng.random_bool(share).then(|| rng.random_range(0..4_u32));
        let (least, most) = (depth(0.3), depth(0.3));
        let asked = match rng.random_range(0..5) {
            0 => Asked::Links,
            // A largest depth below the least one is an error.
            1..=3 => Asked::Reach { least, most: most.filter(|most| *most >= least.unwrap_or(1)) },
            _ => Asked::Path { to: of.far.place(rng), most },
        };
        let may_stop = !matches!(asked, Asked::Path { .. });
        let limit = (may_stop && rng.random_bool(0.2)).then(|| rng.random_range(1..6));
        Self { of, from: of.near.place(rng), way, arguments: format!("{given}, '{direction}'"), asked, limit }
    }

    /// The rows that the graph has for it, each as text, and in order if it is a path.
    fn expected(&self, graph: &Graph) -> Vec<Vec<Cell>> {
        let from = self.of.near.text_at(self.from);
        match self.asked {
            Asked::Links => {
                let row = |(predicate, node): (Cell, String)| self.row(Some(node), predicate);
                graph.links(&from, &self.way).into_iter().map(row).collect()
            }
            Asked::Reach { least, most } => {
                let (least, most) = (least.unwrap_or(1), most.unwrap_or(u32::MAX));
                let mut depths = graph.depths(&from, &self.way);
                if least == 0 {
                    depths.insert(from, 0);
                }
                let within = depths.into_iter().filter(|(_, depth)| (least..=most).contains(depth));
                within.map(|(node, depth)| vec![Some(node), Some(depth.to_string())]).collect()
            }
            // Which of the shortest ways it is, is not said.
            Asked::Path { .. } => Vec::new(),
        }
    }

    fn row(&self, node: Cell, predicate: Cell) -> Vec<Cell> {
        if self.of.via.is_some() { vec![node, predicate] } else { vec![node] }
    }

    /// What is wrong with rows that were found; none if nothing is.
    fn problem(&self, graph: &Graph, mut found: Vec<Vec<Cell>>) -> Option<String> {
        if let Asked::Path { to, most } = self.asked {
            return self.problem_of_path(graph, (self.of.far.text_at(to).as_str(), most), &found);
        }
        let mut expected = self.expected(graph);
        found.sort_unstable();
        expected.sort_unstable();
        let is_right = match self.limit {
            None => found == expected,
            Some(limit) => {
                let once: BTreeSet<&Vec<Cell>> = found.iter().collect();
                let is_part = once.iter().all(|row| expected.contains(row));
                is_part && once.len() == found.len() && found.len() == limit.min(expected.len())
            }
        };
        (!is_right).then(|| format!("found {found:?}\n  expected {expected:?}"))
    }

    fn problem_of_path(&self, graph: &Graph, (to, most): (&str, Option<u32>), found: &[Vec<Cell>]) -> Option<String> {
        let from = self.of.near.text_at(self.from);
        let shortest = if to == from { Some(0) } else { graph.depths(&from, &self.way).get(to).copied() };
        let shortest = shortest.filter(|depth| most.is_none_or(|most| *depth <= most));
        let is_long = found.len() == shortest.map_or(0, |depth| depth as usize + 1);
        let node = |row: &Vec<Cell>| row[0].clone().unwrap_or_default();
        let ends = found.first().zip(found.last()).is_none_or(|(first, last)| node(first) == from && node(last) == to);
        let is_linked = found.windows(2).all(|two| {
            let links = graph.links(&node(&two[0]), &self.way);
            links.into_iter().any(|(predicate, next)| self.row(Some(next), predicate) == two[1])
        });
        let is_right = is_long && ends && is_linked;
        (!is_right).then(|| format!("found {found:?}\n  the shortest way has {shortest:?} links"))
    }
}

impl fmt::Display for Walk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, arguments) = (self.of.near.literal_at(self.from), &self.arguments);
        let depth = |depth: Option<u32>| depth.map_or("NULL".to_owned(), |depth| depth.to_string());
        let predicate = if self.of.via.is_some() { ", predicate" } else { "" };
        match &self.asked {
            Asked::Links => write!(f, "SELECT node{predicate} FROM links('t', {from}, {arguments})")?,
            Asked::Reach { least, most } => {
                let (least, most) = (depth(*least), depth(*most));
                write!(f, "SELECT node, depth FROM reach('t', {from}, {arguments}, {least}, {most})")?;
            }
            Asked::Path { to, most } => {
                let (to, most) = (self.of.far.literal_at(*to), depth(*most));
                let columns = format!("node{predicate}, step");
                write!(f, "SELECT {columns} FROM path('t', {from}, {to}, {arguments}, {most}) ORDER BY step")?;
            }
        }
        self.limit.map_or(Ok(()), |limit| write!(f, " LIMIT {limit}"))
    }
}

/// Walks over the links of a table, if it has some.
pub async fn run(pair: &Pair, table: &RandomTable, seed: u64) -> Summary {
    let mut summary = Summary::default();
    let Some(of) = &table.links else { return summary };
    let graph = Graph::of(&pair.unindexed, of).await;
    let mut rng = StdRng::seed_from_u64(seed ^ 0x3a1c);
    for _ in 0..WALKS_PER_TABLE {
        let walk = Walk::random(&mut rng, of);
        let sql = walk.to_string();
        let problem = match cells(&pair.indexed, &sql).await {
            Ok(mut found) => {
                if let Asked::Path { .. } = walk.asked {
                    // The step is there to order by.
                    found.iter_mut().for_each(|row| row.truncate(row.len() - 1));
                }
                walk.problem(&graph, found)
            }
            Err(error) => Some(format!("error: {error}")),
        };
        match problem {
            None => summary.walks += 1,
            Some(problem) => {
                summary.failed += 1;
                let mut text = format!("DIFFERENCE seed {seed}\n  table: {}\n  asked: {sql}", table.description);
                write!(
                    text,
                    "\n  {problem}\n  again: make fuzz NAME=queries SEED={seed} N={}",
                    super::TRIALS_PER_TABLE
                )
                .unwrap();
                println!("{text}");
            }
        }
    }
    summary
}

/// The values of an answer.
async fn cells(session: &LakemarkSession, sql: &str) -> Result<Vec<Vec<Cell>>, String> {
    let frame = session.sql(sql).await.map_err(|error| error.to_string())?;
    let batches = frame.collect().await.map_err(|error| error.to_string())?;
    Ok(batches.iter().flat_map(cells_of).collect())
}

fn cells_of(batch: &RecordBatch) -> Vec<Vec<Cell>> {
    let options = FormatOptions::default();
    let columns: Vec<ArrayFormatter<'_>> =
        batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let cell =
        |row: usize, place: usize| batch.column(place).is_valid(row).then(|| columns[place].value(row).to_string());
    (0..batch.num_rows()).map(|row| (0..columns.len()).map(|place| cell(row, place)).collect()).collect()
}

//! Walks over random graphs of whole numbers, texts and bytes, with circles, a hub, long names and damaged segments, against plain sets.
//!
//! `LAKEMARK_LINK_GRAPHS` is how many graphs there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, UInt16Array, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{UInt32Type, UInt64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lakemark_format::MAX_KEY_LENGTH;
use lakemark_table::{
    BuildOptions, ErrorKind, IndexKind, IndexSpec, LinkDirection, LinkMemoryLimit, Links, Merging, Table, WalkOptions,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::fixture::{open, segments, write};

const MEMORY: u64 = 256 << 20;
/// Nodes that a hub is linked with: more than its leaves of 32 KiB have room for.
const OF_HUB: usize = 8_000;

/// What nodes and predicates are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Whole,
    Small,
    Text,
    /// Texts of which a page holds two or three, and which begin alike.
    Long,
    Bytes,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Whole, Self::Small, Self::Text, Self::Long, Self::Bytes];

    /// Different values in their order, about so many.
    fn values(self, dice: &mut StdRng, count: usize) -> ArrayRef {
        let range = 0..count;
        match self {
            Self::Whole => {
                let number = |_| match dice.random_range(0..12) {
                    0 => i64::MIN,
                    1 => i64::MAX,
                    2 => dice.random_range(-9..9),
                    _ => dice.random(),
                };
                Arc::new(Int64Array::from_iter_values(range.map(number).collect::<BTreeSet<i64>>()))
            }
            Self::Small => {
                let number = |_| if dice.random_bool(0.1) { u16::MAX } else { dice.random_range(0..300) };
                Arc::new(UInt16Array::from_iter_values(range.map(number).collect::<BTreeSet<u16>>()))
            }
            Self::Text | Self::Long => {
                let text = |_| {
                    let shared = if self == Self::Text { 0 } else { dice.random_range(100..1_400) };
                    let length = dice.random_range(0..4);
                    let letters = (0..length).map(|_| ['a', 'b', 'é', '日', '\0'][dice.random_range(0..5)]);
                    format!("{}{}", "long ".repeat(shared / 5), letters.collect::<String>())
                };
                Arc::new(StringArray::from_iter_values(range.map(text).collect::<BTreeSet<String>>()))
            }
            Self::Bytes => {
                let bytes = |_| {
                    let length = dice.random_range(0..4);
                    (0..length).map(|_| [0, 1, 0x7f, 0xff][dice.random_range(0..4)]).collect::<Vec<u8>>()
                };
                Arc::new(BinaryArray::from_iter_values(range.map(bytes).collect::<BTreeSet<Vec<u8>>>()))
            }
        }
    }
}

/// A row: the places of its subject, predicate and object among all values. None where it is NULL.
type Row = [Option<u32>; 3];

/// Of each node its links: the predicate and the other end.
type Linked = BTreeMap<u32, BTreeSet<(Option<u32>, u32)>>;

/// A table on the disk, and its rows.
struct Graph {
    dice: StdRng,
    nodes: ArrayRef,
    predicates: Option<ArrayRef>,
    /// The rows of each file.
    files: BTreeMap<String, Vec<Row>>,
    folder: tempfile::TempDir,
}

/// What a walk follows.
struct Way {
    via: Option<u32>,
    direction: LinkDirection,
}

impl Graph {
    fn random(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let kind = Kind::ALL[dice.random_range(0..5)];
        let hub = kind == Kind::Whole && dice.random_bool(0.5);
        let count = if hub { OF_HUB } else { dice.random_range(2..60) };
        let nodes = kind.values(&mut dice, count);
        let of_predicates = Kind::ALL[dice.random_range(0..5)];
        let few = dice.random_range(1..6);
        let predicates = dice.random_bool(0.7).then(|| of_predicates.values(&mut dice, few));
        let folder = tempfile::tempdir().unwrap();
        let mut graph = Self { dice, nodes, predicates, files: BTreeMap::new(), folder };
        (0..graph.dice.random_range(1..5)).for_each(|file| graph.add(&format!("f{file}.parquet")));
        if hub {
            let predicate = graph.predicates.is_some().then_some(0);
            let of_hub = (0..graph.count()).map(|node| [Some(1), predicate, Some(node)]).collect();
            graph.write("hub.parquet", of_hub);
        }
        graph
    }

    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap()
    }

    /// Writes a file of random rows, whatever was there.
    fn add(&mut self, name: &str) {
        let (count, dice) = (self.count(), &mut self.dice);
        let predicates = self.predicates.as_ref().map_or(1, |predicates| u32::try_from(predicates.len()).unwrap());
        // Some graphs are a few nodes with many links, and some are mostly circles.
        let (rows, within) = (dice.random_range(1..400), dice.random_range(1..=count.min(80)));
        let lacks = [0.0, 0.05, 0.5][dice.random_range(0..3)];
        let rows = (0..rows).map(|_| {
            let subject = dice.random_range(0..within);
            let object = match dice.random_range(0..10) {
                0 => subject,
                1..=4 => (subject + 1) % within,
                _ => dice.random_range(0..count),
            };
            let predicate = dice.random_range(0..predicates);
            [subject, predicate, object].map(|place| (!dice.random_bool(lacks)).then_some(place))
        });
        let rows: Vec<Row> = rows.collect();
        // The same link in several rows.
        let again = rows.iter().step_by(7).copied();
        let rows: Vec<Row> = rows.iter().copied().chain(again).collect();
        self.write(name, rows);
    }

    fn write(&mut self, name: &str, rows: Vec<Row>) {
        let column = |of: &ArrayRef, place: usize| {
            let places: UInt32Array = rows.iter().map(|row| row[place]).collect();
            take(of, &places, None).unwrap()
        };
        let mut columns = vec![("s", column(&self.nodes, 0), true), ("o", column(&self.nodes, 2), true)];
        columns.extend(self.predicates.as_ref().map(|predicates| ("p", column(predicates, 1), true)));
        write(&self.path().join(name), &RecordBatch::try_from_iter_with_nullable(columns).unwrap());
        self.files.insert(name.to_owned(), rows);
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn columns(&self) -> Vec<String> {
        let names: &[&str] = if self.predicates.is_some() { &["s", "p", "o"] } else { &["s", "o"] };
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// The links of all rows, as a way has them.
    fn linked(&self, way: &Way) -> Linked {
        let mut linked = Linked::new();
        let mut add = |near, predicate, far| _ = linked.entry(near).or_default().insert((predicate, far));
        for [subject, predicate, object] in self.files.values().flatten() {
            let (Some(subject), Some(object)) = (*subject, *object) else { continue };
            let predicate = predicate.filter(|_| self.predicates.is_some());
            if way.via.is_some() && predicate != way.via {
                continue;
            }
            if way.direction != LinkDirection::In {
                add(subject, predicate, object);
            }
            if way.direction != LinkDirection::Out {
                add(object, predicate, subject);
            }
        }
        linked
    }

    fn ways(&self) -> Vec<Way> {
        let via = if self.predicates.is_some() { vec![None, Some(0)] } else { vec![None] };
        let directions = LinkDirection::ALL.into_iter();
        directions.flat_map(|direction| via.iter().map(move |via| Way { via: *via, direction })).collect()
    }

    /// Declares the index and builds it, of so many files a segment.
    async fn indexed(&self, files_per_segment: &str) -> Arc<Table> {
        let table = open(self.path()).await;
        let options = [("files_per_segment".to_owned(), files_per_segment.to_owned())].into();
        let spec = IndexSpec { columns: self.columns(), kind: Some(IndexKind::Links), options, ..IndexSpec::default() };
        assert!(table.create_index(spec, false).await.unwrap());
        table.build(BuildOptions::default()).await.unwrap();
        table
    }
}

fn of(values: &ArrayRef, places: &[u32]) -> ArrayRef {
    take(values, &UInt32Array::from(places.to_vec()), None).unwrap()
}

/// The places of a column's values among those of a graph.
fn places(values: &ArrayRef, found: &RecordBatch, column: &str) -> Vec<Option<u32>> {
    let options = FormatOptions::default();
    let texts = |values: &ArrayRef| {
        let formatter = ArrayFormatter::try_new(values, &options).unwrap();
        (0..values.len()).map(|row| values.is_valid(row).then(|| formatter.value(row).to_string())).collect::<Vec<_>>()
    };
    let known: HashMap<Option<String>, u32> = texts(values).into_iter().zip(0..).collect();
    let column = found.column_by_name(column).unwrap();
    assert_eq!(column.data_type(), values.data_type());
    texts(column).iter().map(|text| text.is_some().then(|| known[text])).collect()
}

fn nodes(graph: &Graph, found: &RecordBatch, column: &str) -> Vec<u32> {
    places(&graph.nodes, found, column).into_iter().map(Option::unwrap).collect()
}

/// How many links the shortest ways to all nodes have, a round for each depth.
fn depths(linked: &Linked, starts: &[u32]) -> BTreeMap<u32, u32> {
    let (mut depths, mut last, mut depth) = (BTreeMap::new(), BTreeSet::from_iter(starts.iter().copied()), 0);
    while !last.is_empty() {
        depth += 1;
        let next: BTreeSet<u32> =
            last.iter().filter_map(|node| linked.get(node)).flatten().map(|link| link.1).collect();
        last = next.into_iter().filter(|node| !depths.contains_key(node)).collect();
        depths.extend(last.iter().map(|node| (*node, depth)));
    }
    depths
}

/// Compares walks from a few nodes with those of plain sets.
async fn check(table: &Table, graph: &mut Graph, what: &str) {
    let links = Links::of(table.snapshot().await.unwrap(), &graph.columns(), MEMORY).await.unwrap();
    let count = graph.count();
    let (start, other, end) =
        (graph.dice.random_range(0..count), graph.dice.random_range(0..count), graph.dice.random_range(0..count));
    let memory = || LinkMemoryLimit::new(MEMORY);
    for way in graph.ways() {
        let via = way.via.map(|via| of(graph.predicates.as_ref().unwrap(), &[via]));
        let options = WalkOptions { via, direction: way.direction, ..WalkOptions::default() };
        let what = format!("{what}: {:?} along {:?} from {start} and {other} to {end}", way.direction, way.via);
        let linked = graph.linked(&way);
        // The second node of all is the hub where there is one.
        for starts in [vec![start], vec![other, start], vec![1 % count, end]] {
            let from = of(&graph.nodes, &starts);
            let starts: BTreeSet<u32> = starts.into_iter().collect();
            let starts: Vec<u32> = starts.into_iter().collect();
            let all = depths(&linked, &starts);
            for most in [None, Some(2)] {
                let options = WalkOptions { max_depth: most, ..options.clone() };
                let found = links.reach(&from, &options, &memory()).await.unwrap();
                let found_depths = found.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().values().iter();
                let found: Vec<(u32, u32)> = found_depths.copied().zip(nodes(graph, &found, "node")).collect();
                let near = all.iter().filter(|(_, depth)| most.is_none_or(|most| **depth <= most));
                let expected: BTreeSet<(u32, u32)> = near.map(|(node, depth)| (*depth, *node)).collect();
                assert_eq!(found, Vec::from_iter(expected), "{what}: reached at most {most:?} from {starts:?}");
            }
            let found = links.neighbours(&from, &options, &memory()).await.unwrap();
            let predicates = match &graph.predicates {
                Some(predicates) => places(predicates, &found, "predicate"),
                None => vec![None; found.num_rows()],
            };
            let near = nodes(graph, &found, "from").into_iter().zip(predicates).zip(nodes(graph, &found, "node"));
            let found: Vec<(u32, (Option<u32>, u32))> =
                near.map(|((from, predicate), node)| (from, (predicate, node))).collect();
            let of_start = |start: &u32| linked.get(start).into_iter().flatten().copied().collect::<Vec<_>>();
            let expected: Vec<_> =
                starts.iter().flat_map(|start| of_start(start).into_iter().map(move |link| (*start, link))).collect();
            assert_eq!(found, expected, "{what}: neighbours of {starts:?}");
            let found = links.common(&from, &options, &memory()).await.unwrap();
            let ends = |start: &u32| of_start(start).into_iter().map(|link| link.1).collect::<BTreeSet<u32>>();
            let of_each = starts.iter().map(ends);
            let expected = of_each.reduce(|one, other| one.intersection(&other).copied().collect()).unwrap();
            assert_eq!(nodes(graph, &found, "node"), Vec::from_iter(expected), "{what}: common of {starts:?}");
        }
        check_degrees(&links, graph, &way, start).await;
        let [from, to] = [start, end].map(|node| of(&graph.nodes, &[node]));
        let found = links.path(&from, &to, &options, &memory()).await.unwrap();
        check_path(graph, &found, &linked, [start, end], &what);
    }
}

async fn check_degrees(links: &Links, graph: &Graph, way: &Way, node: u32) {
    let via = way.via.map(|via| of(graph.predicates.as_ref().unwrap(), &[via]));
    let options = WalkOptions { via, ..WalkOptions::default() };
    let memory = LinkMemoryLimit::new(MEMORY);
    let found = links.degrees(&of(&graph.nodes, &[node]), &options, &memory).await.unwrap();
    for (name, direction) in [("out", LinkDirection::Out), ("in", LinkDirection::In)] {
        let counts = found.column_by_name(name).unwrap().as_primitive::<UInt64Type>().values().to_vec();
        let linked = graph.linked(&Way { direction, ..*way });
        assert_eq!(counts, [linked.get(&node).map_or(0, BTreeSet::len) as u64], "{name} of {node}");
    }
}

/// A path has links that are there, and as few as any.
fn check_path(graph: &Graph, path: &RecordBatch, linked: &Linked, [start, end]: [u32; 2], what: &str) {
    let steps = nodes(graph, path, "node");
    let shortest = if start == end { Some(0) } else { depths(linked, &[start]).get(&end).copied() };
    assert_eq!(steps.len(), shortest.map_or(0, |depth| depth as usize + 1), "{what}: {steps:?}");
    let predicates = match &graph.predicates {
        Some(predicates) => places(predicates, path, "predicate"),
        None => vec![None; steps.len()],
    };
    assert!(
        steps.first().is_none_or(|first| *first == start) && steps.last().is_none_or(|last| *last == end),
        "{what}"
    );
    for place in 1..steps.len() {
        let link = (predicates[place], steps[place]);
        assert!(linked[&steps[place - 1]].contains(&link), "{what}: step {place} of {steps:?}");
    }
}

/// What happened to a table since its index was built.
async fn change(graph: &mut Graph, state: u64, table: &Table) -> &'static str {
    let first = "f0.parquet";
    match state {
        0 => "covered",
        1 => {
            graph.add("late.parquet");
            "partly covered"
        }
        2 => {
            graph.add(first);
            "with other rows in a file"
        }
        3 => {
            graph.add("late.parquet");
            table.build(BuildOptions::default()).await.unwrap();
            table.compact(BuildOptions { merging: Merging::All, ..BuildOptions::default() }).await.unwrap();
            "merged"
        }
        4 => {
            let paths = segments(graph.path());
            let path = &paths[graph.dice.random_range(0..paths.len())];
            let mut bytes = fs::read(path).unwrap();
            let at = graph.dice.random_range(0..bytes.len());
            bytes[at] ^= 1 << graph.dice.random_range(0..8);
            fs::write(path, bytes).unwrap();
            "with a bit of a segment flipped"
        }
        _ => {
            let paths = segments(graph.path());
            let path = &paths[graph.dice.random_range(0..paths.len())];
            let bytes = fs::read(path).unwrap();
            let length = graph.dice.random_range(0..bytes.len());
            fs::write(path, &bytes[..length]).unwrap();
            "with a truncated segment"
        }
    }
}

#[tokio::test]
async fn law_1_walks_of_random_graphs_are_those_of_plain_sets() {
    let graphs = std::env::var("LAKEMARK_LINK_GRAPHS").map_or(36, |text| text.parse().unwrap());
    for seed in 0..graphs {
        let mut graph = Graph::random(seed);
        check(&*open(graph.path()).await, &mut graph, &format!("graph {seed} without an index")).await;
        let files_per_segment = ["1", "2", "16"][graph.dice.random_range(0..3)];
        let table = graph.indexed(files_per_segment).await;
        let state = change(&mut graph, seed % 6, &table).await;
        // Another process, which remembers nothing of the index.
        let table = open(graph.path()).await;
        check(&table, &mut graph, &format!("graph {seed} {state}")).await;
    }
}

#[tokio::test]
async fn an_end_that_is_too_long_is_an_error_with_an_index_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let texts = |texts: [String; 2]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let long = "x".repeat(MAX_KEY_LENGTH + 1);
    let (s, o) = (texts(["a", "b"].map(String::from)), texts(["b".to_owned(), long]));
    write(&folder.path().join("f.parquet"), &RecordBatch::try_from_iter([("s", s), ("o", o)]).unwrap());
    let table = open(folder.path()).await;
    let columns = ["s", "o"].map(String::from);
    for is_indexed in [false, true] {
        if is_indexed {
            let spec = IndexSpec { columns: columns.to_vec(), kind: Some(IndexKind::Links), ..IndexSpec::default() };
            table.create_index(spec, false).await.unwrap();
            table.build(BuildOptions::default()).await.unwrap();
        }
        let error = Links::of(table.snapshot().await.unwrap(), &columns, MEMORY).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.message().contains("o has a value of more than 4096 bytes"), "{error}");
    }
}

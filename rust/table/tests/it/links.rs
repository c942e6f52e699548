//! Walks over links, against a closure that is computed from the rows: with the index and without, partly covered, changed and damaged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, UInt32Type, UInt64Type};
use lakemark_table::{
    BuildOptions, Change, ErrorKind, IndexKind, IndexSpec, LinkDirection, LinkMemoryLimit, Links, Merging, Operation,
    Table, WalkOptions, WriteOptions,
};
use parquet::arrow::ArrowWriter;

use crate::fixture::{open, segments, write};

/// Bytes that are more than any of these walks takes.
const MEMORY: u64 = 64 << 20;
/// Rows of a file.
const ROWS: i64 = 250;
/// Nodes of the graph.
const NODES: i64 = 60;

/// A row of the table: its key, subject, predicate and object.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: i64,
    s: Option<i64>,
    p: Option<String>,
    o: Option<i64>,
}

/// The row of a key: a graph with circles, nodes that are linked with themselves, links that are there twice, a hub, and ends that are NULL.
fn row(id: i64) -> Row {
    // Multiplied, the low bits of which are in no order.
    let mixed = (id.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33) & 0xffff;
    let s = match id % 17 {
        0 => None,
        1 | 2 => Some(7),
        _ => Some(mixed % NODES),
    };
    let o = match id % 13 {
        0 => None,
        1 => s,
        _ => Some(mixed / NODES % NODES),
    };
    let p = (id % 11 != 0).then(|| format!("p{}", mixed % 3));
    Row { id, s, p, o }
}

fn batch(rows: &[Row]) -> RecordBatch {
    let numbers = |of: fn(&Row) -> Option<i64>| Arc::new(rows.iter().map(of).collect::<Int64Array>()) as ArrayRef;
    let p: ArrayRef = Arc::new(rows.iter().map(|row| row.p.clone()).collect::<StringArray>());
    RecordBatch::try_from_iter_with_nullable([
        ("id", numbers(|row| Some(row.id)), false),
        ("s", numbers(|row| row.s), true),
        ("p", p, true),
        ("o", numbers(|row| row.o), true),
    ])
    .unwrap()
}

/// A table on the disk, and its rows.
struct Edges {
    folder: tempfile::TempDir,
    rows: BTreeMap<i64, Row>,
}

impl Edges {
    fn new(files: i64) -> Self {
        let mut edges = Self { folder: tempfile::tempdir().unwrap(), rows: BTreeMap::new() };
        (0..files).for_each(|file| edges.add(file));
        edges
    }

    fn add(&mut self, file: i64) {
        let rows: Vec<Row> = (file * ROWS..(file + 1) * ROWS).map(row).collect();
        write(&self.path().join(format!("f{file}.parquet")), &batch(&rows));
        self.rows.extend(rows.into_iter().map(|row| (row.id, row)));
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The links that the rows are.
    fn links(&self) -> BTreeSet<(i64, Option<String>, i64)> {
        self.rows.values().filter_map(|row| Some((row.s?, row.p.clone(), row.o?))).collect()
    }
}

fn spec(columns: &[&str]) -> IndexSpec {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() }
}

async fn indexed(path: &Path) -> Arc<Table> {
    let table = open(path).await;
    assert!(table.create_index(spec(&["s", "p", "o"]), false).await.unwrap());
    table.build(BuildOptions::default()).await.unwrap();
    table
}

async fn links_of(table: &Table) -> Arc<Links> {
    let columns = ["s", "p", "o"].map(String::from);
    Links::of(table.snapshot().await.unwrap(), &columns, MEMORY).await.unwrap()
}

fn nodes(nodes: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(nodes.to_vec()))
}

fn texts(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn numbers(rows: &RecordBatch, column: &str) -> Vec<i64> {
    rows.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

/// What a walk follows.
#[derive(Clone, Debug)]
struct Way {
    via: Option<&'static str>,
    direction: LinkDirection,
}

impl Way {
    fn all() -> Vec<Self> {
        let directions = LinkDirection::ALL.into_iter();
        directions.flat_map(|direction| [None, Some("p1"), Some("none")].map(|via| Self { via, direction })).collect()
    }

    fn options(&self) -> WalkOptions {
        WalkOptions { via: self.via.map(|via| texts(&[via])), direction: self.direction, ..WalkOptions::default() }
    }

    /// The links of a node.
    fn of(&self, links: &BTreeSet<(i64, Option<String>, i64)>, node: i64) -> BTreeSet<(Option<String>, i64)> {
        let taken = links.iter().filter(|(_, p, _)| self.via.is_none_or(|via| p.as_deref() == Some(via)));
        let mut found = BTreeSet::new();
        for (s, p, o) in taken {
            if self.direction != LinkDirection::In && *s == node {
                found.insert((p.clone(), *o));
            }
            if self.direction != LinkDirection::Out && *o == node {
                found.insert((p.clone(), *s));
            }
        }
        found
    }
}

/// The nodes that are reached from one, with the fewest links to each.
fn closure(links: &BTreeSet<(i64, Option<String>, i64)>, way: &Way, start: i64) -> BTreeSet<(u32, i64)> {
    let (mut depths, mut waiting) = (BTreeMap::new(), VecDeque::from([(start, 0)]));
    while let Some((node, depth)) = waiting.pop_front() {
        for (_, next) in way.of(links, node) {
            if let std::collections::btree_map::Entry::Vacant(slot) = depths.entry(next) {
                slot.insert(depth + 1);
                waiting.push_back((next, depth + 1));
            }
        }
    }
    depths.into_iter().map(|(node, depth)| (depth, node)).collect()
}

/// Compares all walks of a table with those of its rows.
async fn check(table: &Table, edges: &Edges, what: &str) {
    let (links, expected) = (links_of(table).await, edges.links());
    for way in Way::all() {
        let options = way.options();
        let what = format!("{what}, {way:?}");
        let memory = || LinkMemoryLimit::new(MEMORY);
        for start in [0, 7, 13, NODES - 1, NODES + 5] {
            let found = links.reach(&nodes(&[start]), &options, &memory()).await.unwrap();
            let depths = found.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().values().to_vec();
            let reached: Vec<(u32, i64)> = depths.into_iter().zip(numbers(&found, "node")).collect();
            let all = closure(&expected, &way, start);
            assert_eq!(reached, all.iter().copied().collect::<Vec<_>>(), "{what}: from {start}");
            let found = links.neighbours(&nodes(&[start]), &options, &memory()).await.unwrap();
            assert_eq!(neighbours(&found), way.of(&expected, start), "{what}: of {start}");
            for end in [3, 20, NODES + 5] {
                let found = links.path(&nodes(&[start]), &nodes(&[end]), &options, &memory()).await.unwrap();
                check_path(&found, &expected, &way, (start, end), &what);
            }
        }
        let found = links.common(&nodes(&[7, 13]), &options, &memory()).await.unwrap();
        let ends = |node| way.of(&expected, node).into_iter().map(|(_, node)| node).collect::<BTreeSet<_>>();
        let common: Vec<i64> = ends(7).intersection(&ends(13)).copied().collect();
        assert_eq!(numbers(&found, "node"), common, "{what}");
        let found = links.degrees(&nodes(&[7, 13]), &options, &memory()).await.unwrap();
        for (name, direction) in [("out", LinkDirection::Out), ("in", LinkDirection::In)] {
            let counts = found.column_by_name(name).unwrap().as_primitive::<UInt64Type>().values().to_vec();
            let way = Way { direction, ..way.clone() };
            let degrees = [7, 13].map(|node| way.of(&expected, node).len() as u64);
            assert_eq!(counts, degrees, "{what}: {name}");
        }
    }
}

fn neighbours(rows: &RecordBatch) -> BTreeSet<(Option<String>, i64)> {
    let predicates = rows.column_by_name("predicate").unwrap().as_string::<i32>();
    let predicates = (0..rows.num_rows()).map(|row| predicates.is_valid(row).then(|| predicates.value(row).to_owned()));
    let found: BTreeSet<_> = predicates.zip(numbers(rows, "node")).collect();
    assert_eq!(found.len(), rows.num_rows(), "a link that is there twice");
    found
}

/// A path leads from one end to the other over links that are there, and is as short as any.
fn check_path(
    path: &RecordBatch,
    links: &BTreeSet<(i64, Option<String>, i64)>,
    way: &Way,
    (start, end): (i64, i64),
    what: &str,
) {
    let all = closure(links, way, start);
    let shortest =
        if start == end { Some(0) } else { all.iter().find(|(_, node)| *node == end).map(|(depth, _)| *depth) };
    let steps = numbers(path, "node");
    assert_eq!(steps.len().checked_sub(1), shortest.map(|depth| depth as usize), "{what}: from {start} to {end}");
    if steps.is_empty() {
        return;
    }
    assert_eq!((steps[0], steps[steps.len() - 1]), (start, end), "{what}");
    let predicates = path.column_by_name("predicate").unwrap().as_string::<i32>();
    for place in 1..steps.len() {
        let predicate = predicates.is_valid(place).then(|| predicates.value(place).to_owned());
        assert!(way.of(links, steps[place - 1]).contains(&(predicate, steps[place])), "{what}: step {place}");
    }
}

#[tokio::test]
async fn law_1_walks_are_those_of_the_rows_with_the_index_and_without() {
    let mut edges = Edges::new(3);
    let plain = open(edges.path()).await;
    check(&plain, &edges, "without an index").await;
    let table = indexed(edges.path()).await;
    let names: Vec<String> = table.snapshot().await.unwrap().indexes().into_iter().map(|index| index.name).collect();
    assert_eq!(names, ["s_p_o_links", "s_p_o_links_back"]);
    check(&table, &edges, "with an index").await;
    edges.add(3);
    check(&table, &edges, "with a file that no index covers").await;
    table.build(BuildOptions::default()).await.unwrap();
    table.compact(BuildOptions { merging: Merging::All, ..BuildOptions::default() }).await.unwrap();
    assert_eq!(
        table.snapshot().await.unwrap().indexes().iter().map(|index| index.segments).collect::<Vec<_>>(),
        [1, 1]
    );
    check(&table, &edges, "compacted").await;
    let report = table.verify().await.unwrap();
    assert!(report.indexes.iter().all(|index| index.damaged.is_empty()), "{report:?}");
    fs::remove_file(edges.path().join("f1.parquet")).unwrap();
    edges.rows.retain(|id, _| !(ROWS..2 * ROWS).contains(id));
    check(&table, &edges, "without a file that was indexed").await;
}

#[tokio::test]
async fn law_3_links_of_rows_that_are_replaced_are_none() {
    let mut edges = Edges::new(2);
    let table = indexed(edges.path()).await;
    table.declare_key(&["id".to_owned()], &BTreeMap::new(), BuildOptions::default()).await.unwrap();
    let make = |operation, rows| {
        let table = Arc::clone(&table);
        async move { table.write(vec![Change { operation, rows }], WriteOptions::default()).await.unwrap() }
    };
    // The only links of a node and its neighbours leave, others come, and some move.
    let deleted: Vec<i64> = (0..2 * ROWS).filter(|id| id % 5 == 0).collect();
    let ids = RecordBatch::try_from_iter([("id", nodes(&deleted))]).unwrap();
    make(Operation::Delete, ids).await;
    deleted.iter().for_each(|id| drop(edges.rows.remove(id)));
    let moved: Vec<Row> = (0..40).map(|id| Row { s: Some(NODES + id % 3), o: Some(id), ..row(id * 3 + 1) }).collect();
    make(Operation::Upsert, batch(&moved)).await;
    edges.rows.extend(moved.into_iter().map(|row| (row.id, row)));
    check(&table, &edges, "with changes in memory").await;
    table.flush().await.unwrap();
    check(&table, &edges, "with changes in a run").await;
    table.migrate(lakemark_table::MigrateOptions::default()).await.unwrap();
    check(&table, &edges, "migrated").await;
}

#[tokio::test]
async fn law_5_a_damaged_segment_counts_as_none() {
    for column in 0..2 {
        let edges = Edges::new(2);
        let table = indexed(edges.path()).await;
        let paths = segments(edges.path());
        assert_eq!(paths.len(), 2);
        let mut bytes = fs::read(&paths[column]).unwrap();
        // In the first leaf, right behind the header.
        bytes[100] ^= 1;
        fs::write(&paths[column], bytes).unwrap();
        check(&table, &edges, "damaged").await;
    }
    let edges = Edges::new(2);
    let table = indexed(edges.path()).await;
    segments(edges.path()).into_iter().for_each(|path| fs::remove_file(path).unwrap());
    check(&table, &edges, "without a segment").await;
}

#[tokio::test]
async fn walks_stop_at_their_depth_and_limit() {
    let edges = Edges::new(3);
    let table = indexed(edges.path()).await;
    let links = links_of(&table).await;
    let all = closure(&edges.links(), &Way { via: None, direction: LinkDirection::Out }, 7);
    let reach = async |options: &WalkOptions| {
        let memory = LinkMemoryLimit::new(MEMORY);
        numbers(&links.reach(&nodes(&[7]), options, &memory).await.unwrap(), "node")
    };
    let near: Vec<i64> = all.iter().filter(|(depth, _)| *depth == 1).map(|(_, node)| *node).collect();
    assert_eq!(reach(&WalkOptions { max_depth: Some(1), ..WalkOptions::default() }).await, near);
    let far: Vec<i64> = all.iter().filter(|(depth, _)| *depth >= 2).map(|(_, node)| *node).collect();
    assert_eq!(reach(&WalkOptions { min_depth: 2, ..WalkOptions::default() }).await, far);
    assert_eq!(reach(&WalkOptions { min_depth: 0, max_depth: Some(0), ..WalkOptions::default() }).await, [7]);
    for limit in [0, 1, 2, near.len(), near.len() + 1] {
        let found = reach(&WalkOptions { limit: Some(limit), ..WalkOptions::default() }).await;
        assert_eq!(found.len(), limit.min(all.len()));
        assert!(found.iter().take(near.len()).all(|node| near.contains(node)), "{limit}: {found:?}");
    }
    let options = WalkOptions { limit: Some(2), ..WalkOptions::default() };
    let found = links.neighbours(&nodes(&[7]), &options, &LinkMemoryLimit::new(MEMORY)).await.unwrap();
    assert_eq!(found.num_rows(), 2);
}

#[tokio::test]
async fn what_makes_no_sense_is_an_error_and_never_a_smaller_answer() {
    let edges = Edges::new(2);
    let table = indexed(edges.path()).await;
    let links = links_of(&table).await;
    let kind = async |node: ArrayRef, options: WalkOptions, memory: u64| {
        let memory = LinkMemoryLimit::new(memory);
        links.reach(&node, &options, &memory).await.map(|_| ()).map_err(|error| error.kind())
    };
    let plain = WalkOptions::default;
    assert_eq!(kind(nodes(&[7]), plain(), MEMORY).await, Ok(()));
    // A text that is a number is one; another text is no node.
    assert_eq!(kind(texts(&["7"]), plain(), MEMORY).await, Ok(()));
    assert_eq!(kind(texts(&["seven"]), plain(), MEMORY).await, Err(ErrorKind::InvalidInput));
    assert_eq!(kind(nodes(&[7]), plain(), 1000).await, Err(ErrorKind::Unsupported));
    let above = WalkOptions { min_depth: 3, max_depth: Some(2), ..plain() };
    assert_eq!(kind(nodes(&[7]), above, MEMORY).await, Err(ErrorKind::InvalidInput));
    let none = WalkOptions { max_depth: Some(0), ..plain() };
    assert_eq!(kind(nodes(&[7]), none, MEMORY).await, Err(ErrorKind::InvalidInput));
    let several = links.path(&nodes(&[1, 2]), &nodes(&[3]), &plain(), &LinkMemoryLimit::new(MEMORY)).await;
    assert_eq!(several.unwrap_err().kind(), ErrorKind::InvalidInput);
    // Without an index there is no room for the links of all rows.
    let plain_edges = Edges::new(1);
    let snapshot = open(plain_edges.path()).await.snapshot().await.unwrap();
    let error = Links::of(snapshot, &["s", "p", "o"].map(String::from), 1000).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("index of the kind links"), "{error}");
    assert_eq!(LinkDirection::from_name("up").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn columns_that_are_no_links_are_refused() {
    let edges = Edges::new(1);
    let table = open(edges.path()).await;
    for (columns, kind, text) in [
        (vec!["s"], ErrorKind::InvalidInput, "(subject, predicate, object)"),
        (vec!["s", "p", "o", "id"], ErrorKind::InvalidInput, "4 columns"),
        (vec!["s", "p"], ErrorKind::Unsupported, "different types"),
        (vec!["s", "p", "s"], ErrorKind::InvalidInput, "twice"),
        (vec!["s", "p", "nothing"], ErrorKind::NotFound, "nothing"),
    ] {
        let error = table.create_index(spec(&columns), false).await.unwrap_err();
        assert!(error.kind() == kind && error.message().contains(text), "{columns:?}: {error}");
    }
    let options = BTreeMap::from([("include".to_owned(), "id".to_owned())]);
    let error = table.create_index(IndexSpec { options, ..spec(&["s", "o"]) }, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(!table.snapshot().await.unwrap().has_indexes());
    // NaN is no node, and two zeros would be one: floats are refused without an index as well.
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, 0.0]));
    let batch = RecordBatch::try_from_iter([("a", Arc::clone(&floats)), ("b", floats)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("f.parquet"), &batch);
    let snapshot = open(folder.path()).await.snapshot().await.unwrap();
    let error = Links::of(snapshot, &["a", "b"].map(String::from), MEMORY).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains("whole numbers"), "{error}");
}

/// A file of links with these predicates, in one row group.
fn write_predicates(path: &Path, predicates: std::ops::Range<i64>) {
    let column =
        |of: fn(i64) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(predicates.clone().map(of))) };
    let columns = [("s", column(|_| 1)), ("p", column(|row| row)), ("o", column(|row| row % 7))];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

#[tokio::test]
async fn more_predicates_than_a_segment_has_places_for_are_refused_when_they_are_declared() {
    let folder = tempfile::tempdir().unwrap();
    write_predicates(&folder.path().join("a.parquet"), 0..40_000);
    write_predicates(&folder.path().join("b.parquet"), 40_000..65_536);
    let table = open(folder.path()).await;
    let error = table.create_index(spec(&["s", "p", "o"]), false).await.unwrap_err();
    let said = "the links over s, p, o have more than 65535 different predicates";
    assert!(error.kind() == ErrorKind::Unsupported && error.message().contains(said), "{error}");
    assert!(error.message().contains("smaller files_per_segment"), "{error}");
    assert!(!table.snapshot().await.unwrap().has_indexes());
    // Both ends alone, and fewer files of a segment, have places enough.
    assert!(table.create_index(spec(&["s", "o"]), false).await.unwrap());
    let options = BTreeMap::from([("files_per_segment".to_owned(), "1".to_owned())]);
    assert!(table.create_index(IndexSpec { options, ..spec(&["s", "p", "o"]) }, false).await.unwrap());
    // As many as there are places are no error.
    let folder = tempfile::tempdir().unwrap();
    write_predicates(&folder.path().join("a.parquet"), 0..65_535);
    assert!(open(folder.path()).await.create_index(spec(&["s", "p", "o"]), false).await.unwrap());
}

#[tokio::test]
async fn both_indexes_of_links_come_and_go_together() {
    let edges = Edges::new(1);
    let table = indexed(edges.path()).await;
    let names = async || {
        table
            .snapshot()
            .await
            .unwrap()
            .indexes()
            .into_iter()
            .map(|index| (index.name, index.coverage))
            .collect::<Vec<_>>()
    };
    assert_eq!(names().await, [("s_p_o_links".to_owned(), 1.0), ("s_p_o_links_back".to_owned(), 1.0)]);
    assert_eq!(table.snapshot().await.unwrap().link_columns(), [["s", "p", "o"]]);
    assert!(!table.create_index(spec(&["s", "p", "o"]), true).await.unwrap());
    let again = table.create_index(spec(&["s", "p", "o"]), false).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    // Whoever killed a declaration in between declares it again.
    assert!(table.drop_index("s_p_o_links_back", false).await.unwrap());
    assert!(table.create_index(spec(&["s", "p", "o"]), true).await.unwrap());
    table.build(BuildOptions { index: Some("s_p_o_links".to_owned()), ..BuildOptions::default() }).await.unwrap();
    assert_eq!(names().await.iter().map(|(_, coverage)| *coverage).collect::<Vec<_>>(), [1.0, 1.0]);
    assert!(table.drop_index("s_p_o_links", false).await.unwrap());
    assert!(names().await.is_empty());
    // Conditions on the columns are never asked of links.
    table.create_index(spec(&["s", "o"]), false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    assert!(!table.snapshot().await.unwrap().is_prunable("s"));
}

#[tokio::test]
async fn links_do_not_take_an_index_of_others_for_their_way_back() {
    let edges = Edges::new(1);
    let table = open(edges.path()).await;
    let named = |name: &str, columns: &[&str]| IndexSpec { name: Some(name.to_owned()), ..spec(columns) };
    assert!(table.create_index(named("e_back", &["s", "o"]), false).await.unwrap());
    let error = table.create_index(named("e", &["s", "p", "o"]), false).await.unwrap_err();
    assert!(error.kind() == ErrorKind::AlreadyExists && error.message().contains("e_back"), "{error}");
    // Whatever has the name already is left as it is.
    assert!(!table.create_index(named("e_back", &["s", "p", "o"]), true).await.unwrap());
    let indexes = table.snapshot().await.unwrap().indexes();
    let columns: BTreeMap<String, Vec<String>> = indexes.into_iter().map(|index| (index.name, index.columns)).collect();
    assert_eq!(columns["e_back"], ["s", "o"]);
    assert_eq!((columns["e_back_back"].as_slice(), columns.len()), (["o", "s"].map(String::from).as_slice(), 2));
}

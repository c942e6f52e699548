//! What walks over links read: each leaf once, and all leaves of a step at once.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::UInt32Type;
use lakemark_table::{
    BuildOptions, IndexKind, IndexSpec, LinkDirection, LinkMemoryLimit, Links, Table, TableOptions, WalkOptions,
};
use object_store::ObjectStore;

use crate::fixture::{segments, write};
use crate::layer::{Layer, Log};

const MEMORY: u64 = 64 << 20;
const PAGE: u64 = 4_096;
/// Nodes of a tree in which each node has so many children.
const NODES: i64 = 30_000;
const CHILDREN: i64 = 8;

/// The name of a node: those that are near each other in the tree are far from each other in the order of names.
fn name(node: i64) -> i64 {
    node.wrapping_mul(0x1234_5678_9abc_def1)
}

fn nodes(nodes: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(nodes.into_iter().map(name)))
}

/// A table of links from parents to children, read through a layer.
async fn tree(folder: &std::path::Path, log: &Arc<Log>) -> Arc<Table> {
    let columns = [("s", nodes((1..NODES).map(|node| (node - 1) / CHILDREN))), ("o", nodes(1..NODES))];
    write(&folder.join("f.parquet"), &RecordBatch::try_from_iter(columns).unwrap());
    let layer = |inner: Arc<dyn ObjectStore>| Layer::over(inner, log);
    let table = Table::open_layered(folder.to_str().unwrap(), TableOptions::default(), &layer).await.unwrap();
    let columns = ["s", "o"].map(String::from).to_vec();
    let spec = IndexSpec { columns, kind: Some(IndexKind::Links), ..IndexSpec::default() };
    table.create_index(spec, false).await.unwrap();
    table.build(BuildOptions::default()).await.unwrap();
    table
}

/// How many rounds of reads and how many bytes a walk took.
struct Reads<'a> {
    table: &'a Table,
    log: &'a Log,
    before: u64,
}

impl<'a> Reads<'a> {
    fn begin(table: &'a Table, log: &'a Log) -> Self {
        log.clear();
        log.is_slow.store(true, Ordering::SeqCst);
        Self { table, log, before: table.metrics().get.bytes.get() }
    }

    fn rounds(&self) -> u64 {
        self.log.rounds.load(Ordering::SeqCst)
    }

    fn bytes(&self) -> u64 {
        self.table.metrics().get.bytes.get() - self.before
    }
}

#[tokio::test]
async fn a_walk_reads_each_leaf_once_and_those_of_a_step_at_once() {
    let (folder, log) = (tempfile::tempdir().unwrap(), Log::new());
    let table = tree(folder.path(), &log).await;
    let columns = ["s", "o"].map(String::from);
    let links = Links::of(table.snapshot().await.unwrap(), &columns, MEMORY).await.unwrap();
    let memory = || LinkMemoryLimit::new(MEMORY);
    // One node: one page, or two if its links begin in one and end in the next.
    let reads = Reads::begin(&table, &log);
    let found = links.neighbours(&nodes([20]), &WalkOptions::default(), &memory()).await.unwrap();
    assert_eq!((found.num_rows(), reads.rounds()), (8, 1));
    assert!(reads.bytes() == PAGE || reads.bytes() == 2 * PAGE, "{}", reads.bytes());
    // Up to the root, such a page or two for each step.
    let reads = Reads::begin(&table, &log);
    let back = WalkOptions { direction: LinkDirection::In, ..WalkOptions::default() };
    let found = links.reach(&nodes([NODES - 1]), &back, &memory()).await.unwrap();
    let steps = found.num_rows() as u64;
    assert!(steps == 5 && reads.rounds() <= steps + 1 && reads.bytes() <= 2 * (steps + 1) * PAGE, "{steps}");
    assert!(reads.rounds() > 2, "{}", reads.rounds());
    // From both ends, and no leaf that was read before.
    let reads = Reads::begin(&table, &log);
    let found = links.path(&nodes([0]), &nodes([NODES - 2]), &WalkOptions::default(), &memory()).await.unwrap();
    assert!(found.num_rows() == 6 && reads.rounds() <= 5, "{}", reads.rounds());
    // The whole tree.
    let reads = Reads::begin(&table, &log);
    let found = links.reach(&nodes([0]), &WalkOptions::default(), &memory()).await.unwrap();
    let depths = found.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().values();
    let mut of_each: BTreeMap<u32, usize> = BTreeMap::new();
    depths.iter().for_each(|depth| *of_each.entry(*depth).or_default() += 1);
    assert_eq!(of_each.into_values().collect::<Vec<_>>(), [8, 64, 512, 4_096, 25_319]);
    let bytes: u64 = segments(folder.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    let is_each_once = reads.bytes() < bytes / 2 + 16 * PAGE;
    assert!(reads.rounds() <= 6 && is_each_once && reads.bytes() > bytes / 8, "{} {}", reads.rounds(), reads.bytes());
    // What was read is remembered.
    let reads = Reads::begin(&table, &log);
    links.reach(&nodes([0]), &WalkOptions::default(), &memory()).await.unwrap();
    assert_eq!((reads.rounds(), reads.bytes()), (0, 0));
}

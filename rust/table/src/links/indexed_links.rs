//! Rows of an edge table by one of their ends, for joins: from indexes of links alone.
//!
//! ```text
//! keys of a join ─▶ leaves that have them, read at once ─▶ links ─ × rows that each is in ─▶ near ends, predicates, far ends
//! ```
//!
//! A link that several rows are is given as often, also if its far end is NULL. Of files that no index covers nothing is known here, and
//! nothing is read.

use std::collections::{HashMap, HashSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::FieldRef;
use futures::future::BoxFuture;
use lakemark_format::Key;
use lakemark_format::links::{LinkEnd, LinkShape};
use lakemark_index::links::{FoundLink, visit_rows};
use lakemark_index::{KeyRange, LiteralKey, Predicate, RowSet, Test, decode_keys};
use tokio::sync::OnceCell;

use super::columns::LinkColumns;
use super::loading::LoadedLeaf;
use super::open::{IndexedSide, indexed};
use super::side::{Look, SegmentLooks, Side, chunks, leaves_of};
use super::unindexed::UnindexedLinks;
use crate::covering::conjuncts;
use crate::options::ReadCost;
use crate::probe::RowsToRead;
use crate::snapshot::{FileProbe, FileProbes, ProbedFile, Snapshot};
use crate::store::parts::CORES;
use crate::store::segments::{Damage, ReadCounter};

/// Of more rows, or of values of more bytes, the table is read.
const MOST_ROWS: usize = 1 << 16;
const MOST_BYTES: usize = 16 << 20;
/// Of more numbers that follow each other the table is read.
const MOST_RUN: u64 = 1 << 20;
/// Nanoseconds to read a byte of a leaf and to decode it, to find a node, and to give a row.
const LEAF_BYTE: f64 = 5.0;
const NODE: f64 = 500.0;
const ROW: f64 = 150.0;
/// A node whose links are in a leaf or two is thought to have so many.
const LINKS_OF_NODE: f64 = 8.0;
/// Nanoseconds to open a data file and to begin to read it.
const FILE: f64 = 100_000.0;

/// The links that the indexes of a table have. They are opened when a join asks for them.
#[derive(Debug)]
pub struct IndexedLinks {
    snapshot: Arc<Snapshot>,
    sides: Vec<JoinSide>,
}

/// Rows that a join wants of a table.
#[derive(Clone, Copy, Debug)]
pub struct LinkedRequest<'a> {
    /// Which keys the rows have. Of conditions that are joined by AND those on an end and on the predicate count, and rows may fail the others.
    pub keys: &'a Predicate,
    /// What else the rows have to meet. A condition on the predicate counts, and rows may fail the others.
    pub condition: &'a Predicate,
    /// The columns that are wanted, by the names that the table shows.
    pub columns: &'a [String],
    /// What it costs to read the table in place of that.
    pub reading: &'a ReadCost,
}

/// Rows that indexes of links gave.
#[derive(Debug)]
pub struct LinkedRows {
    /// For each wanted column the values of all rows.
    pub columns: Vec<ArrayRef>,
    /// How many rows there are.
    pub rows: usize,
    /// Of files that the indexes cover no other row has one of the keys, and of all others nothing is known.
    pub files: FileProbes,
    /// Reads of index files.
    pub index_reads: u64,
    /// The bytes of these reads.
    pub index_bytes_read: u64,
}

impl IndexedLinks {
    /// Those of a snapshot; none if it has no index of links.
    #[must_use]
    pub fn of(snapshot: &Arc<Snapshot>) -> Option<Self> {
        let mut sides = Vec::new();
        for names in snapshot.link_columns() {
            let Ok(columns) = LinkColumns::of(snapshot, &names) else { continue };
            let Ok(shape) = columns.shape() else { continue };
            for is_back in [false, true] {
                let (opened, is_damaged) = (OnceCell::new(), AtomicBool::new(false));
                sides.push(JoinSide { columns: columns.clone(), shape: shape.clone(), is_back, opened, is_damaged });
            }
        }
        (!sides.is_empty()).then(|| Self { snapshot: Arc::clone(snapshot), sides })
    }

    /// The rows that have some keys at one end. None if no index has the columns, if the rows are many, if reading the table is thought to be
    /// cheaper, or if an index file is damaged.
    pub fn rows<'a>(&'a self, request: &'a LinkedRequest<'a>) -> BoxFuture<'a, Option<LinkedRows>> {
        Box::pin(async move {
            for side in &self.sides {
                let nodes = points_of(request.keys, side.near().name());
                let Some(nodes) = nodes.filter(|_| side.has(request.columns)) else { continue };
                if let Some(found) = side.rows(&self.snapshot, &nodes, request).await {
                    return Some(found);
                }
            }
            None
        })
    }
}

/// The keys of a column, ascending, if a condition that all rows meet names them.
fn points_of(predicate: &Predicate, column: &str) -> Option<Vec<Key>> {
    conjuncts(predicate).into_iter().filter(|leaf| leaf.column == column).find_map(|leaf| {
        let Test::Ranges(ranges) = &leaf.test else { return None };
        let mut points = Vec::new();
        for KeyRange { low, high } in ranges.ranges() {
            match (low, high) {
                (Bound::Included(low), Bound::Included(high)) if low == high => points.push(low.clone()),
                // Keys that follow each other are a range.
                (Bound::Included(Key::Fixed(low)), Bound::Included(Key::Fixed(high))) if high - low < MOST_RUN => {
                    points.extend((*low..=*high).map(Key::Fixed));
                }
                _ => return None,
            }
        }
        Some(points)
    })
}

/// A part of a link, which is a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkPart {
    Near,
    Predicate,
    Far,
}

/// Links by one of their ends.
#[derive(Debug)]
struct JoinSide {
    columns: LinkColumns,
    shape: LinkShape,
    is_back: bool,
    opened: OnceCell<OpenedSide>,
    is_damaged: AtomicBool,
}

impl JoinSide {
    fn near(&self) -> &FieldRef {
        if self.is_back { &self.columns.object } else { &self.columns.subject }
    }

    fn far(&self) -> &FieldRef {
        if self.is_back { &self.columns.subject } else { &self.columns.object }
    }

    /// The part of links that a column is; none if it is no part.
    fn part(&self, column: &str) -> Option<LinkPart> {
        let predicate = self.columns.predicate.as_ref();
        match column {
            near if near == self.near().name() => Some(LinkPart::Near),
            far if far == self.far().name() => Some(LinkPart::Far),
            other => predicate.filter(|field| field.name() == other).map(|_| LinkPart::Predicate),
        }
    }

    fn has(&self, columns: &[String]) -> bool {
        columns.iter().all(|column| self.part(column).is_some())
    }

    /// The predicates that the rows may have, if a condition names them.
    fn via(&self, request: &LinkedRequest<'_>) -> Option<HashSet<Option<Key>>> {
        let predicate = self.columns.predicate.as_ref()?;
        let conditions = [request.keys, request.condition].into_iter();
        let named = conditions.filter_map(|condition| points_of(condition, predicate.name())).next()?;
        Some(named.into_iter().map(Some).collect())
    }

    async fn rows(&self, snapshot: &Snapshot, nodes: &[Key], request: &LinkedRequest<'_>) -> Option<LinkedRows> {
        if self.is_damaged.load(Ordering::Relaxed) {
            return None;
        }
        let opened = self.opened.get_or_init(|| OpenedSide::of(snapshot, self)).await;
        let plans = opened.side.plans(nodes, self.via(request).as_ref());
        if opened.covered == 0 || cost_of(&plans, nodes.len()) > opened.scan_cost(request.reading) {
            return None;
        }
        let counter = ReadCounter::default();
        let wants = |part: LinkPart| request.columns.iter().any(|column| self.part(column) == Some(part));
        let mut found = FoundRows::new(wants(LinkPart::Predicate), wants(LinkPart::Far));
        for plan in &plans {
            match take_rows(plan, nodes, &counter, &mut found).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return None,
                Err(damage) => {
                    self.is_damaged.store(true, Ordering::Relaxed);
                    let (segment, reason, problem) = (&plan.segment.path, damage.reason.code(), damage.problem);
                    tracing::warn!(
                        segment,
                        reason,
                        problem,
                        "an index file of links cannot be used; its rows are read"
                    );
                    return None;
                }
            }
        }
        let rows = found.near.len();
        let columns = request.columns.iter().map(|column| self.values(self.part(column)?, nodes, &found));
        let columns = columns.collect::<Option<Vec<ArrayRef>>>()?;
        let totals = counter.totals();
        let (index_reads, index_bytes_read) = (totals.reads, totals.bytes);
        Some(LinkedRows { columns, rows, files: opened.files.clone(), index_reads, index_bytes_read })
    }

    /// The values of a part of the links that were found.
    fn values(&self, part: LinkPart, nodes: &[Key], found: &FoundRows) -> Option<ArrayRef> {
        let (keys, field) = match part {
            LinkPart::Predicate => (&found.predicates, self.columns.predicate.as_ref()?),
            LinkPart::Far => (&found.far, self.far()),
            LinkPart::Near => {
                let nodes: Vec<LiteralKey> = nodes.iter().map(|node| LiteralKey::Key(node.clone())).collect();
                let nodes = decode_keys(&nodes, self.near().data_type()).ok()?;
                return take(nodes.as_ref(), &UInt32Array::from(found.near.clone()), None).ok();
            }
        };
        decode_keys(keys, field.data_type()).ok()
    }
}

/// What indexes have of a side.
#[derive(Debug)]
struct OpenedSide {
    side: Side,
    /// What is known of each file.
    files: FileProbes,
    /// How many files are covered.
    covered: usize,
}

impl OpenedSide {
    async fn of(snapshot: &Snapshot, JoinSide { columns, shape, is_back, .. }: &JoinSide) -> Self {
        let IndexedSide { segments, covered, row_groups } = indexed(snapshot, columns, *is_back, &HashSet::new()).await;
        let files = snapshot.files().len();
        let open = (0..files).filter(|place| !covered.contains(place));
        let mut listed: Vec<ProbedFile> = open.map(|file| ProbedFile { file, probe: FileProbe::Unknown }).collect();
        listed.extend(row_groups.into_iter().map(|(file, row_groups)| {
            let none = RowSet::empty(row_groups.iter().copied().fold(0, u32::saturating_add));
            ProbedFile { file, probe: FileProbe::Known { row_groups, exact: none.clone(), recheck: none } }
        }));
        listed.sort_unstable_by_key(|listed| listed.file);
        let side = Side { shape: shape.clone(), segments, unindexed: UnindexedLinks::default() };
        Self { side, files: FileProbes::of(files, listed), covered: covered.len() }
    }

    /// Nanoseconds to read the columns of all covered files, and to join their rows.
    fn scan_cost(&self, reading: &ReadCost) -> f64 {
        let rows = self.side.segments.iter().map(|segment| segment.segment.directory.rows()).sum::<u64>() as f64;
        let read = RowsToRead { rows, selected: rows, runs: 0.0, touched: rows }.cost(reading.output);
        self.covered as f64 * FILE + (read + rows * reading.parent_cost) / *CORES as f64
    }
}

/// What is thought of a node before its leaves are read.
#[derive(Clone, Copy, Default)]
struct NodeLooks {
    leaves: u32,
    /// Rows of all links of these leaves.
    rows: u64,
}

/// Nanoseconds to read leaves and to give the rows of so many nodes.
fn cost_of(plans: &[SegmentLooks<'_>], nodes: usize) -> f64 {
    let mut cost = nodes as f64 * NODE;
    for SegmentLooks { segment, looks, .. } in plans {
        let blocks = &segment.segment.directory.blocks;
        let mut of_nodes: HashMap<usize, NodeLooks> = HashMap::new();
        for Look { leaf, node } in looks {
            let of_node = of_nodes.entry(*node).or_default();
            of_node.leaves += 1;
            of_node.rows += blocks.get(*leaf).map_or(0, |block| block.rows);
        }
        let rows = of_nodes.values().map(|of_node| {
            // Of a node in several leaves nearly all links of these are.
            let all = of_node.rows as f64;
            if of_node.leaves > 2 { all } else { all.min(LINKS_OF_NODE) }
        });
        let leaves = leaves_of(looks).into_iter().filter_map(|leaf| blocks.get(leaf));
        let bytes = leaves.map(|block| {
            let is_counted = segment.live.is_some() || block.rows > u64::from(block.values);
            f64::from(block.length) + if is_counted { block.postings_length as f64 } else { 0.0 }
        });
        cost += bytes.sum::<f64>() * LEAF_BYTE + rows.sum::<f64>() * ROW;
    }
    cost
}

/// Takes the rows of nodes from the leaves of a segment, some leaves at a time, until there are too many.
async fn take_rows(
    SegmentLooks { segment, wanted, looks }: &SegmentLooks<'_>,
    nodes: &[Key],
    counter: &ReadCounter,
    found: &mut FoundRows,
) -> Result<ControlFlow<()>, Damage> {
    let predicates = &segment.segment.directory.predicates;
    for looks in chunks(looks) {
        let leaves = leaves_of(looks);
        let loaded: Vec<LoadedLeaf> = segment.load_counted(&leaves, counter).await?;
        for look in looks {
            let at = leaves.binary_search(&look.leaf).ok().and_then(|place| loaded.get(place));
            let (Some(counted), Some(node)) = (at, nodes.get(look.node)) else { continue };
            let flow = visit_rows(&counted.leaf, node.into(), wanted, |FoundLink { place, predicate, far }| {
                let predicate = predicates.get(predicate as usize).and_then(Option::as_ref);
                found.add(look.node, predicate, far, counted.rows_of(place))
            });
            if flow.is_break() {
                return Ok(flow);
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Rows that were found, by the parts of their links.
#[derive(Debug, Default)]
struct FoundRows {
    /// The places of their near ends among the nodes.
    near: Vec<u32>,
    wants_predicates: bool,
    predicates: Vec<LiteralKey>,
    wants_far: bool,
    far: Vec<LiteralKey>,
    bytes: usize,
}

impl FoundRows {
    fn new(wants_predicates: bool, wants_far: bool) -> Self {
        Self { wants_predicates, wants_far, ..Self::default() }
    }

    /// Adds a link that so many rows are, unless there are too many by then.
    fn add(&mut self, node: usize, predicate: Option<&Key>, far: LinkEnd<'_>, rows: u32) -> ControlFlow<()> {
        let rows = rows as usize;
        let predicate = literal(predicate.filter(|_| self.wants_predicates).cloned());
        let far = literal(far.to_key().filter(|_| self.wants_far));
        let bytes = bytes_of(&predicate) + bytes_of(&far);
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(rows));
        if self.near.len() + rows > MOST_ROWS || self.bytes > MOST_BYTES {
            return ControlFlow::Break(());
        }
        self.near.extend(std::iter::repeat_n(node as u32, rows));
        if self.wants_predicates {
            self.predicates.extend(std::iter::repeat_n(predicate, rows));
        }
        if self.wants_far {
            self.far.extend(std::iter::repeat_n(far, rows));
        }
        ControlFlow::Continue(())
    }
}

fn literal(key: Option<Key>) -> LiteralKey {
    key.map_or(LiteralKey::Null, LiteralKey::Key)
}

fn bytes_of(value: &LiteralKey) -> usize {
    match value {
        LiteralKey::Key(Key::Bytes(bytes)) => bytes.len(),
        _ => size_of::<u64>(),
    }
}

#[cfg(test)]
mod tests {
    use lakemark_index::{KeyRanges, Leaf};

    use super::*;

    fn leaf(column: &str, ranges: KeyRanges) -> Predicate {
        Predicate::Leaf(Leaf { column: column.to_owned(), test: Test::Ranges(ranges), text: String::new() })
    }

    #[test]
    fn keys_are_those_that_every_row_has_one_of() {
        let points = || KeyRanges::points(vec![Key::Fixed(3), Key::Fixed(9)]);
        let both = Predicate::And(vec![leaf("p", KeyRanges::all()), leaf("s", points())]);
        assert_eq!(points_of(&both, "s"), Some(vec![Key::Fixed(3), Key::Fixed(9)]));
        assert_eq!((points_of(&both, "p"), points_of(&both, "o")), (None, None));
        assert_eq!(points_of(&Predicate::Or(vec![leaf("s", points()), leaf("o", points())]), "s"), None);
        assert_eq!(points_of(&leaf("s", KeyRanges::none()), "s"), Some(Vec::new()));
        let run = KeyRanges::between(Bound::Included(Key::Fixed(4)), Bound::Included(Key::Fixed(6)));
        assert_eq!(points_of(&leaf("s", run), "s"), Some([4, 5, 6].map(Key::Fixed).to_vec()));
        let open = KeyRanges::between(Bound::Included(Key::Fixed(0)), Bound::Included(Key::Fixed(u64::MAX)));
        assert_eq!(points_of(&leaf("s", open), "s"), None);
    }

    #[test]
    fn a_link_is_given_as_often_as_it_has_rows_until_there_are_too_many() {
        let mut found = FoundRows::new(false, true);
        let mut add = |rows: u32| found.add(7, Some(&Key::Fixed(1)), LinkEnd::Number(5), rows);
        assert!(add(0).is_continue() && add(3).is_continue() && add(MOST_ROWS as u32).is_break());
        assert_eq!((found.near, found.predicates.len(), found.far.len()), (vec![7, 7, 7], 0, 3));
        let text = "x".repeat(4096);
        let mut long = FoundRows::new(false, true);
        assert!(long.add(0, None, LinkEnd::Bytes(text.as_bytes()), 4097).is_break());
        let mut short = FoundRows::new(false, false);
        assert!(short.add(0, None, LinkEnd::Bytes(text.as_bytes()), 4097).is_continue());
    }
}

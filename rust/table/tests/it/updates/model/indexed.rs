//! Indexes that give more than rows: a `key` index with columns that ride along, and links. Whatever happened to the table, what they give is
//! what the rows have.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, UInt32Type};
use lakemark_index::KeyRanges;
use lakemark_table::{
    CoverRequest, FileProbe, IndexKind, IndexSpec, LinkDirection, LinkMemoryLimit, Links, RowSet, RowsOfFile, Snapshot,
    WalkOptions, column_list,
};

use super::rows::{Column, G, Id, K, Kind, P, Row, Rows, Value, add_batch, group_of};
use super::{Trial, one_thread};
use crate::fixture::{int_key, leaf, probe};

/// More than any of these walks takes.
const MEMORY: u64 = 64 << 20;
/// Of so many operations one is followed by a look at what indexes give.
const OPERATIONS_PER_LOOK: u64 = 3;

/// A link: from the group of a row, over a number, to a text of the row.
type Link = (String, Option<i32>, String);

/// The columns that links are made of.
struct Ends {
    predicate: Column,
    object: Column,
}

impl Trial {
    /// Whether the table has such indexes. Half of the trials go on as without.
    fn is_indexed(&self) -> bool {
        self.seed.is_multiple_of(2)
    }

    /// Declares and builds the indexes of a table without any.
    pub async fn declare_indexes(&mut self) {
        if !self.is_indexed() {
            return;
        }
        let may_ride = |column: &&Column| column.id != K && column.id != P;
        let riding: Vec<Column> = self.others.columns.iter().filter(may_ride).cloned().collect();
        let names = column_list(riding.iter().map(|column| column.shown.as_str()));
        self.riding = riding.into_iter().map(|column| column.id).collect();
        let named = |name: &str, columns: Vec<String>, kind| IndexSpec {
            name: Some(name.to_owned()),
            columns,
            kind: Some(kind),
            ..IndexSpec::default()
        };
        let options = BTreeMap::from([("include".to_owned(), names)]);
        let rides = IndexSpec { options, ..named("rides", vec![self.shown(K)], IndexKind::Key) };
        self.table().create_index(rides, false).await.unwrap();
        if let Some(ends) = self.ends() {
            let walks = named("walks", self.names_of(&ends), IndexKind::Links);
            self.table().create_index(walks, false).await.unwrap();
        }
        self.table().build(one_thread()).await.unwrap();
    }

    /// The oldest columns that there are of these kinds.
    fn ends(&self) -> Option<Ends> {
        let oldest = |kind: Kind| {
            let of_kind = self.others.columns.iter().filter(|column| column.id > P && column.kind == kind);
            of_kind.min_by_key(|column| column.id).cloned()
        };
        Some(Ends { predicate: oldest(Kind::Int)?, object: oldest(Kind::Text)? })
    }

    fn names_of(&self, ends: &Ends) -> Vec<String> {
        vec![self.shown(G), ends.predicate.shown.clone(), ends.object.shown.clone()]
    }

    /// What indexes give, now and then.
    pub async fn check_indexes(&mut self, snapshot: &Arc<Snapshot>) {
        if !self.is_indexed() || !self.operations.is_multiple_of(OPERATIONS_PER_LOOK) {
            return;
        }
        let rows = self.expected.rows();
        let given = self.check_values(snapshot, &rows).await;
        *self.done.entry("rows from an index").or_default() += given;
        if let Some(ends) = self.ends() {
            let links = links_of(&rows, &ends);
            let names = self.names_of(&ends);
            let walks = Links::of(Arc::clone(snapshot), &names, MEMORY).await.unwrap();
            check_walks(&walks, &links, &format!("after {} operations", self.operations)).await;
        }
    }

    /// Compares values that ride along with those of the rows, and says of how many rows there were some.
    async fn check_values(&self, snapshot: &Snapshot, rows: &Rows) -> u64 {
        let place = self.operations as i64;
        let keys = (0..self.keys).filter(|key| (key + place) % 5 == 0).map(int_key);
        let predicate = leaf(&self.shown(K), KeyRanges::points(keys.collect()));
        let found = probe(snapshot, &predicate).await;
        let exact: Vec<(usize, RowSet)> = found.files.listed().filter_map(exact_rows).collect();
        let of_files = exact.iter().map(|(file, rows)| RowsOfFile { file: *file, rows }).collect();
        let rides = |column: &&Column| column.id == K || self.riding.contains(&column.id);
        let columns: Vec<&Column> = self.others.columns.iter().filter(rides).collect();
        let names: Vec<String> = columns.iter().map(|column| column.shown.clone()).collect();
        let request = CoverRequest { predicate: &predicate, columns: names.clone(), rows: of_files };
        let Some(values) = snapshot.covered_rows(&request).await else { return 0 };
        let arrays = names.into_iter().zip(values.columns);
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let called: HashMap<String, Id> = columns.iter().map(|column| (column.shown.clone(), column.id)).collect();
        let mut given: Vec<(i64, Row)> = Vec::new();
        add_batch(&batch, &called, &mut given);
        for (key, row) in &given {
            let want = rows.get(key).unwrap_or_else(|| panic!("the key {key} is gone, and an index gives it"));
            let want = want.iter().filter(|(id, _)| self.riding.contains(*id));
            let want: Row = want.map(|(id, value)| (*id, value.clone())).collect();
            assert_eq!(*row, want, "key {key} of an index, after {} operations", self.operations);
        }
        given.len() as u64
    }
}

fn exact_rows((file, found): (usize, &FileProbe)) -> Option<(usize, RowSet)> {
    match found {
        FileProbe::Known { exact, .. } if !exact.is_empty() => Some((file, exact.clone())),
        _ => None,
    }
}

fn links_of(rows: &Rows, ends: &Ends) -> BTreeSet<Link> {
    let link = |(key, row): (&i64, &Row)| {
        let Some(Value::Text(object)) = row.get(&ends.object.id) else { return None };
        let predicate = match row.get(&ends.predicate.id) {
            Some(Value::Int(predicate)) => Some(*predicate),
            _ => None,
        };
        Some((group_of(*key), predicate, object.clone()))
    };
    rows.iter().filter_map(link).collect()
}

/// The links of all groups, those of some texts, and what is reached over both ways.
async fn check_walks(walks: &Links, links: &BTreeSet<Link>, at: &str) {
    let memory = || LinkMemoryLimit::new(MEMORY);
    let groups = ["g0", "g1", "g2", "nothing"].map(str::to_owned);
    let out = WalkOptions::default();
    let found = walks.neighbours(&texts(&groups), &out, &memory()).await.unwrap();
    assert_eq!(neighbours(&found), *links, "links of all groups, {at}");
    let some: BTreeSet<String> = links.iter().map(|(_, _, object)| object.clone()).step_by(7).collect();
    let some: Vec<String> = some.into_iter().chain(["s-".to_owned()]).collect();
    let back = WalkOptions { direction: LinkDirection::In, ..WalkOptions::default() };
    let found = walks.neighbours(&texts(&some), &back, &memory()).await.unwrap();
    let turned = links.iter().filter(|(_, _, object)| some.contains(object));
    let turned: BTreeSet<Link> =
        turned.map(|(subject, predicate, object)| (object.clone(), *predicate, subject.clone())).collect();
    assert_eq!(neighbours(&found), turned, "links of some texts, {at}");
    let both = WalkOptions { direction: LinkDirection::Both, max_depth: Some(3), ..WalkOptions::default() };
    let found = walks.reach(&texts(&groups[..1]), &both, &memory()).await.unwrap();
    let depths = found.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().values().to_vec();
    let reached: BTreeMap<String, u32> = texts_of(&found, "node").into_iter().zip(depths).collect();
    assert_eq!(reached, closure(links, &groups[0], 3), "what a group reaches, {at}");
}

/// The fewest links to each node, either way.
fn closure(links: &BTreeSet<Link>, start: &str, most: u32) -> BTreeMap<String, u32> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (subject, _, object) in links {
        next.entry(subject).or_default().insert(object);
        next.entry(object).or_default().insert(subject);
    }
    let (mut depths, mut waiting) = (BTreeMap::new(), VecDeque::from([(start, 0)]));
    while let Some((node, depth)) = waiting.pop_front() {
        for other in next.get(node).into_iter().flatten().filter(|_| depth < most) {
            if !depths.contains_key(*other) {
                depths.insert((*other).to_owned(), depth + 1);
                waiting.push_back((*other, depth + 1));
            }
        }
    }
    depths
}

fn texts(texts: &[String]) -> ArrayRef {
    Arc::new(texts.iter().map(|text| Some(text.as_str())).collect::<StringArray>())
}

fn texts_of(rows: &RecordBatch, column: &str) -> Vec<String> {
    rows.column_by_name(column).unwrap().as_string::<i32>().iter().flatten().map(str::to_owned).collect()
}

fn neighbours(rows: &RecordBatch) -> BTreeSet<Link> {
    let predicates = rows.column_by_name("predicate").unwrap().as_primitive::<Int32Type>();
    let predicates: Vec<Option<i32>> =
        (0..rows.num_rows()).map(|row| predicates.is_valid(row).then(|| predicates.value(row))).collect();
    let each = texts_of(rows, "from").into_iter().zip(predicates).zip(texts_of(rows, "node"));
    let found: BTreeSet<Link> = each.map(|((from, predicate), node)| (from, predicate, node)).collect();
    assert_eq!(found.len(), rows.num_rows(), "a link that is there twice");
    found
}

//! Queries whose chains are one: scans that read the same columns of the same files in the same way.
//!
//! ```text
//! scan begins ─▶ keys wait ─▶ a page that two queries want is taken ─▶ a bit, and the keys go into the tables ─▶ chains of pages
//!                                                                      scan ends, and its bit is free ◀─────────┘
//! ```
//!
//! So a lone query fills no table. Chains read under the lock of the group; who comes and who goes writes.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arrow::array::ArrayRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use lakemark_table::RowSet;

use super::chain::{LiveRows, RoutedRows, Start, TakerId};
use super::dimension::{Dimension, QueryBit};
use super::keys::{StarKeys, numbers};
use super::prediction::{StarRows, are_few, of_page};
use crate::share::prediction::Terms;

/// Bytes of the tables of a group.
const MOST_BYTES: usize = 64 << 20;
/// A chain is for so many queries or more: one by itself has its joins.
const LEAST_QUERIES: usize = 2;

/// Tells queries of a group apart, also those that had the same bit one after the other.
type QueryId = u64;

/// Queries whose chains are one.
#[derive(Debug)]
pub(crate) struct StarGroup {
    /// What the queries have in common.
    key: Arc<dyn Any + Send + Sync>,
    state: RwLock<GroupState>,
    next_query: AtomicU64,
}

#[derive(Debug)]
struct GroupState {
    /// Those that have a bit.
    queries: BTreeMap<QueryId, QueryBit>,
    /// Tables by the places of their columns.
    dimensions: BTreeMap<usize, Dimension>,
    /// What the tables take.
    memory: MemoryReservation,
}

/// A query of a group. Its bit goes with it.
#[derive(Debug)]
pub(crate) struct StarQuery {
    group: Arc<StarGroup>,
    id: QueryId,
    /// The columns in which it has keys.
    columns: Vec<usize>,
    /// Keys that are in no table.
    waiting: Mutex<Option<Vec<StarKeys>>>,
    /// Rows that it wanted of pages with a chain, and those that were left.
    wanted: AtomicU64,
    left: AtomicU64,
}

/// A page whose chain is asked for.
pub(crate) struct StarPage<'a> {
    pub(crate) rows: u32,
    /// The values of a column, by its place.
    pub(crate) column: &'a dyn Fn(usize) -> Option<ArrayRef>,
}

/// The rows of a page that a query wants.
#[derive(Debug)]
pub(crate) struct StarWanted {
    pub(crate) taker: TakerId,
    pub(crate) query: Arc<StarQuery>,
    /// None for all of them.
    pub(crate) rows: Option<RowSet>,
}

impl StarWanted {
    fn count_of(&self, page: &StarPage<'_>) -> u32 {
        self.rows.as_ref().map_or(page.rows, RowSet::len)
    }
}

impl StarGroup {
    /// A group without queries, whose tables are in this memory.
    pub(crate) fn new(key: Arc<dyn Any + Send + Sync>, memory: &Arc<dyn MemoryPool>) -> Self {
        let memory = MemoryConsumer::new("shared joins").register(memory);
        let state = GroupState { queries: BTreeMap::new(), dimensions: BTreeMap::new(), memory };
        Self { key, state: RwLock::new(state), next_query: AtomicU64::new(0) }
    }

    /// What the queries have in common.
    pub(crate) fn key<K: 'static>(&self) -> Option<&K> {
        self.key.downcast_ref()
    }

    /// A query that wants so many rows, and of these the ones with keys. None if it has too many keys for that in every column.
    pub(crate) fn query(self: &Arc<Self>, keys: Vec<StarKeys>, rows: u64, terms: Terms) -> Option<Arc<StarQuery>> {
        let is_worth = |keys: &[i64]| !keys.is_empty() && are_few(keys.len(), rows, terms);
        let keys: Vec<StarKeys> = keys.into_iter().filter(|own| is_worth(own.keys.values())).collect();
        if keys.is_empty() {
            return None;
        }
        Some(Arc::new(StarQuery {
            group: Arc::clone(self),
            id: self.next_query.fetch_add(1, Ordering::Relaxed),
            columns: keys.iter().map(|own| own.column).collect(),
            waiting: Mutex::new(Some(keys)),
            wanted: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }))
    }

    /// Gives bits to the queries that have none, as far as there are some. Those who wait for one hold no chain up.
    fn admit(&self, wanted: &[&StarWanted]) {
        let is_full = self.read().queries.len() >= QueryBit::MOST as usize;
        if !is_full && wanted.iter().any(|own| own.query.is_waiting()) {
            let mut state = self.write();
            wanted.iter().for_each(|own| state.admit(&own.query));
        }
    }

    fn routed(&self, page: &StarPage<'_>, wanted: &[&StarWanted]) -> RoutedRows {
        let state = self.read();
        let admitted = wanted.iter().filter_map(|own| Some((*own, *state.queries.get(&own.query.id)?)));
        let admitted: Vec<(&StarWanted, QueryBit)> = admitted.collect();
        if admitted.len() < LEAST_QUERIES {
            return RoutedRows::default();
        }
        let memory = state.memory.new_empty();
        if memory.try_grow(LiveRows::bytes_of(page.rows)).is_err() {
            return RoutedRows::default();
        }
        let starts = admitted.iter().map(|(own, bit)| Start { taker: own.taker, bit: *bit, rows: own.rows.as_ref() });
        let starts: Vec<Start<'_>> = starts.collect();
        let bits = starts.iter().fold(0, |bits, start| bits | start.bit.mask());
        let mut live = LiveRows::starting(page.rows, &starts);
        let tables = state.dimensions.iter().filter(|(_, table)| table.users() & bits != 0);
        // Chains of other pages count at the same time, and a share that changes has no place in an order.
        let mut chain: Vec<(f64, usize, &Dimension)> =
            tables.map(|(place, table)| (table.share_left(), *place, table)).collect();
        chain.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        for (_, place, table) in chain {
            // Of a column that is not there no row is left out.
            if let Some(keys) = (page.column)(place).as_ref().and_then(numbers) {
                live.pass(&keys, table);
            }
        }
        if memory.try_grow(live.routed_bytes()).is_err() {
            return RoutedRows::default();
        }
        let routed = live.routed(&starts, memory);
        for (own, _) in &admitted {
            own.query.count(own.count_of(page), routed.of(own.taker).map_or(0, |rows| rows.len()));
        }
        routed
    }

    fn leave(&self, query: QueryId) {
        let gone = self.write().remove(query);
        drop(gone);
    }

    fn read(&self) -> RwLockReadGuard<'_, GroupState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, GroupState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GroupState {
    /// Gives a bit to a query and puts its keys into the tables. One for whose keys there is no memory never gets a bit.
    fn admit(&mut self, query: &StarQuery) {
        let mut waiting = query.waiting();
        let Some(keys) = waiting.as_ref() else { return };
        let taken = self.queries.values().fold(0, |bits, bit| bits | bit.mask());
        let Some(bit) = QueryBit::first_free(taken) else { return };
        let bytes = self.bytes_with(keys);
        if bytes <= MOST_BYTES && self.memory.try_resize(bytes).is_ok() {
            for StarKeys { column, keys } in keys {
                self.dimensions.entry(*column).or_default().add(keys.values(), bit);
            }
            self.queries.insert(query.id, bit);
            self.charge();
        }
        *waiting = None;
    }

    /// Takes the keys of a query out of the tables. Gives the tables that nobody needs any more.
    fn remove(&mut self, query: QueryId) -> Vec<Dimension> {
        let Some(bit) = self.queries.remove(&query) else { return Vec::new() };
        let own = self.dimensions.iter_mut().filter(|(_, table)| table.users() & bit.mask() != 0);
        let unused = own.filter_map(|(place, table)| {
            table.remove(bit);
            (table.users() == 0).then_some(*place)
        });
        let unused: Vec<usize> = unused.collect();
        let gone = unused.iter().filter_map(|place| self.dimensions.remove(place)).collect();
        self.charge();
        gone
    }

    /// What the tables take at most with these keys as well.
    fn bytes_with(&self, keys: &[StarKeys]) -> usize {
        let of_others = self.dimensions.iter().filter(|(place, _)| keys.iter().all(|own| own.column != **place));
        let of_own = |own: &StarKeys| match self.dimensions.get(&own.column) {
            Some(table) => table.bytes_with(own.keys.values()),
            None => Dimension::default().bytes_with(own.keys.values()),
        };
        of_others.map(|(_, table)| table.bytes()).chain(keys.iter().map(of_own)).sum()
    }

    /// Counts what the tables take, which is no more than before.
    fn charge(&self) {
        let bytes: usize = self.dimensions.values().map(Dimension::bytes).sum();
        self.memory.shrink(self.memory.size().saturating_sub(bytes));
    }
}

impl StarQuery {
    /// It takes no page any more.
    pub(crate) fn leave(&self) {
        let waiting = self.waiting().take();
        drop(waiting);
        self.group.leave(self.id);
    }

    fn is_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    fn count(&self, wanted: u32, left: usize) {
        self.wanted.fetch_add(u64::from(wanted), Ordering::Relaxed);
        self.left.fetch_add(left as u64, Ordering::Relaxed);
    }

    /// The share of its rows that chains left so far; 0 before there was one.
    fn share_left(&self) -> f64 {
        self.left.load(Ordering::Relaxed) as f64 / (self.wanted.load(Ordering::Relaxed) as f64).max(1.0)
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Vec<StarKeys>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StarQuery {
    fn drop(&mut self) {
        self.group.leave(self.id);
    }
}

/// What a chain leaves of a page to each of the queries that want rows of it, if that is worth it. All are of one group. A query that takes
/// the page twice has one bit for both, and takes it as it is.
pub(crate) fn routed(page: &StarPage<'_>, wanted: &[StarWanted], terms: Terms) -> RoutedRows {
    let Some(group) = wanted.first().map(|own| &own.query.group) else { return RoutedRows::default() };
    let takes = |query: &Arc<StarQuery>| wanted.iter().filter(|own| Arc::ptr_eq(&own.query, query)).count();
    let same = wanted.iter().filter(|own| Arc::ptr_eq(&own.query.group, group) && takes(&own.query) == 1);
    let wanted: Vec<&StarWanted> = same.collect();
    let mut columns: Vec<usize> = wanted.iter().flat_map(|own| own.query.columns.iter().copied()).collect();
    columns.sort_unstable();
    columns.dedup();
    let rows =
        wanted.iter().map(|own| StarRows { rows: f64::from(own.count_of(page)), share_left: own.query.share_left() });
    let rows: Vec<StarRows> = rows.collect();
    if wanted.len() < LEAST_QUERIES || !of_page(page.rows, columns.len(), &rows).wins(terms) {
        return RoutedRows::default();
    }
    group.admit(&wanted);
    group.routed(page, &wanted)
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;

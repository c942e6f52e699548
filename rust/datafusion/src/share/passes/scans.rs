//! The scans of a process that may share passes, and what the partitions of a scan get from them.
//!
//! A partition has one piece at a time: a place in a pass, or rows that it reads alone. Registry and passes have a lock each, and nobody
//! holds both.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::compute::{filter_record_batch, take_record_batch};
use datafusion::common::internal_datafusion_err;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use lakemark_table::RowSet;

use super::arrivals::{Arrival, Arrivals, MOST_WAIT, Place};
use super::budget::PageBudget;
use super::page_list::{PassPages, Taken};
use super::pass::{OpensDecoder, PageMemory, Pass, PassPage};
use super::pass_metrics::PassMetrics;
use super::ranks::TakenRows;
use super::unit_pieces::{PassId, ScanId};
use super::wanted::{BegunPass, Next, PassPlan, RunningPass, Ticket, WantedPieces};
use crate::share::pages::ConsumerId;
use crate::share::prediction::{Piece, PieceGroup, Terms, of_entry};
use crate::share::stars::group::StarQuery;

/// Makes what decodes the rows and the columns of a group, these in the order of their places.
pub(crate) type MakesDecoder<K> = Arc<dyn Fn(&K, &PieceGroup) -> OpensDecoder + Send + Sync>;

/// Others get the registry after so many pieces of a scan that comes.
const PIECES_AT_ONCE: usize = 512;

/// What became of the only wait of a scan.
const WAIT_TO_COME: u8 = 0;
const HAS_WAITED: u8 = 1;
const WAITS_NO_MORE: u8 = 2;

/// What scans share, and how much is kept for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassLimits {
    /// Bytes of pages of a pass that are kept.
    pub(crate) window: usize,
    /// Of all passes together.
    pub(crate) all: usize,
    /// Rows that a partition reads alone at a time, or more. To open files for fewer takes a share of the time that reading them takes.
    pub(crate) least_alone: u32,
    /// Rows that a scan reads which finds nobody, or more, so that others may enter: as few as a turn has that opens files for itself anyway.
    pub(crate) least_lone: u32,
    pub(crate) terms: Terms,
}

impl Default for PassLimits {
    fn default() -> Self {
        let (least_alone, least_lone) = (1 << 15, 1 << 15);
        Self { window: 32 << 20, all: 256 << 20, least_alone, least_lone, terms: Terms::default() }
    }
}

/// A scan that is to take part.
pub(crate) struct ScanRequest<'a, K> {
    /// Among how many partitions its pieces are shared.
    pub(crate) partitions: usize,
    /// How passes that it begins are decoded.
    pub(crate) decoder: MakesDecoder<K>,
    /// Where these passes keep pages.
    pub(crate) memory: &'a Arc<dyn MemoryPool>,
    pub(crate) metrics: PassMetrics,
    /// The scan as a star query, if it is one.
    pub(crate) star: Option<Arc<StarQuery>>,
    /// Where it waits for others; it does not without.
    pub(crate) place: Option<Place>,
    /// That it was on the way.
    pub(crate) arrival: Option<Arrival>,
}

/// The scans that may share passes.
#[derive(Debug)]
pub(crate) struct SharedScans<K> {
    registry: Mutex<Registry<K>>,
    arrivals: Arc<Arrivals>,
    budget: Arc<PageBudget>,
    window: usize,
    terms: Terms,
    pages_shared: AtomicU64,
    star_pages: AtomicU64,
}

#[derive(Debug)]
struct Registry<K> {
    wanted: WantedPieces<K, Arc<Pass>>,
    /// The scans of consumers, by passes from the oldest on.
    owners: BTreeMap<(PassId, ConsumerId), Owner>,
    /// The scans that are star queries.
    stars: HashMap<ScanId, Arc<StarQuery>>,
}

/// Whose a consumer is, and of what.
#[derive(Debug)]
struct Owner {
    scan: ScanId,
    pass: Arc<Pass>,
}

impl<K: Clone + Eq + Hash> SharedScans<K> {
    pub(crate) fn new(limits: PassLimits) -> Arc<Self> {
        let wanted = WantedPieces::new(limits.least_alone, limits.terms).with_least_lone(limits.least_lone);
        let registry = Mutex::new(Registry { wanted, owners: BTreeMap::new(), stars: HashMap::new() });
        let (pages_shared, star_pages) = (AtomicU64::new(0), AtomicU64::new(0));
        let PassLimits { window, all, terms, .. } = limits;
        let arrivals = Arc::default();
        Arc::new(Self { registry, arrivals, budget: PageBudget::new(all), window, terms, pages_shared, star_pages })
    }

    /// Pages that one scan took and another one took as well, so far.
    pub(crate) fn pages_shared(&self) -> u64 {
        self.pages_shared.load(Ordering::Relaxed)
    }

    /// Pages of which a scan took what a chain of star joins left, so far.
    pub(crate) fn star_pages(&self) -> u64 {
        self.star_pages.load(Ordering::Relaxed)
    }

    /// The scans that are on the way.
    pub(crate) fn arrivals(&self) -> &Arc<Arrivals> {
        &self.arrivals
    }

    /// When scans share.
    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// A scan of these pieces.
    pub(crate) fn scan(
        self: &Arc<Self>,
        pieces: impl IntoIterator<Item = (K, Piece)>,
        request: ScanRequest<'_, K>,
    ) -> Arc<SharedScan<K>> {
        let ScanRequest { partitions, decoder, memory, metrics, star, place, arrival } = request;
        let id = {
            let mut registry = self.lock();
            let id = registry.wanted.add_scan(partitions as u64);
            registry.stars.extend(star.iter().map(|star| (id, Arc::clone(star))));
            id
        };
        let mut pieces = pieces.into_iter().peekable();
        while pieces.peek().is_some() {
            let mut registry = self.lock();
            for (unit, piece) in pieces.by_ref().take(PIECES_AT_ONCE) {
                registry.wanted.want(id, unit, piece, None);
            }
        }
        let contested = self.lock().wanted.contested(id);
        // Whoever looked at them for the first time while the registry is locked would hold all others up.
        for piece in &contested {
            piece.rows();
        }
        drop(arrival);
        let (scans, memory, running) = (Arc::clone(self), Arc::clone(memory), AtomicUsize::new(0));
        let wait = AtomicU8::new(WAIT_TO_COME);
        Arc::new(SharedScan { scans, id, decoder, memory, metrics, star, place, wait, running })
    }

    /// Whether no scan wants anything and no pass runs.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let registry = self.lock();
        registry.wanted.is_empty() && registry.owners.is_empty() && registry.stars.is_empty()
    }

    /// Tells the registry what became of a pass.
    fn look_after(&self, id: PassId, pass: &Pass) {
        let (away, is_over) = (pass.take_away(), pass.is_over());
        if away.is_empty() && !is_over {
            return;
        }
        let mut registry = self.lock();
        let Registry { wanted, owners, .. } = &mut *registry;
        for owner in away.iter().filter_map(|consumer| owners.get(&(id, *consumer))) {
            wanted.set_away(owner.scan);
        }
        if is_over {
            wanted.end_pass(id);
        }
    }

    /// Lets other passes than this one give up what they keep, the oldest first, if all passes together keep much. Otherwise pages of those
    /// who stall would leave no room for those who read.
    fn make_room(&self, own: PassId) {
        if !self.budget.is_tight() {
            return;
        }
        let owned = |((id, _), owner): (&(PassId, ConsumerId), &Owner)| (*id, Arc::clone(&owner.pass));
        let passes: BTreeMap<PassId, Arc<Pass>> = self.lock().owners.iter().map(owned).collect();
        for (id, pass) in passes.iter().filter(|(id, _)| **id != own) {
            if self.budget.is_easy() {
                return;
            }
            pass.give_up();
            self.look_after(*id, pass);
        }
    }

    /// A consumer goes.
    fn leave(&self, ticket: &Ticket<K, Arc<Pass>>) {
        let Ticket { pass: RunningPass { id, pass, .. }, consumer, .. } = ticket;
        pass.leave(*consumer);
        let owner = self.lock().owners.remove(&(*id, *consumer));
        drop(owner);
        self.look_after(*id, pass);
    }

    fn lock(&self) -> MutexGuard<'_, Registry<K>> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A scan that may share passes. Its pieces go with it.
pub(crate) struct SharedScan<K: Clone + Eq + Hash> {
    scans: Arc<SharedScans<K>>,
    id: ScanId,
    decoder: MakesDecoder<K>,
    memory: Arc<dyn MemoryPool>,
    metrics: PassMetrics,
    star: Option<Arc<StarQuery>>,
    place: Option<Place>,
    wait: AtomicU8,
    /// Its partitions that are there just now.
    running: AtomicUsize,
}

/// What a partition does next.
enum Turn<K> {
    Take(Ticket<K, Arc<Pass>>),
    /// A pass that began for it alone.
    Drive(Ticket<K, Arc<Pass>>),
    ReadAlone(Vec<(K, Piece)>),
    /// The pass that it might have entered gives nothing, or rows are known now.
    Again,
    End,
}

impl<K: Clone + Eq + Hash> SharedScan<K> {
    /// One of its partitions.
    pub(crate) fn partition(self: &Arc<Self>) -> ScanPartition<K> {
        self.running.fetch_add(1, Ordering::SeqCst);
        ScanPartition { scan: Arc::clone(self), ticket: None }
    }

    /// Whether it waits for others that are on the way, as it would begin a decode without them. It does so once.
    fn waits(&self, cx: &Context<'_>) -> bool {
        let Self { scans, id, place, wait, .. } = self;
        let Some(place) = place.as_ref().filter(|place| scans.arrivals.has_any(place, *id)) else { return false };
        let (begins, cost) = {
            let mut registry = scans.lock();
            let begins = registry.wanted.would_begin(*id);
            let is_first = begins && wait.load(Ordering::SeqCst) == WAIT_TO_COME;
            (begins, is_first.then(|| registry.wanted.cost(*id, MOST_WAIT.as_nanos() as f64)))
        };
        if !begins {
            return false;
        }
        let waits = scans.arrivals.waits(place, *id, cx, cost.map(|cost| Duration::from_nanos(cost as u64)));
        let became = if waits { HAS_WAITED } else { WAITS_NO_MORE };
        // Another partition may have waited for it.
        let _ = wait.compare_exchange(WAIT_TO_COME, became, Ordering::SeqCst, Ordering::SeqCst);
        // A decode that began for it before it was known to wait did not wake it.
        if waits && !scans.lock().wanted.would_begin(*id) {
            scans.arrivals.stop(place, *id);
            return false;
        }
        waits
    }

    /// A decode began, for it alone or for others as well.
    fn began(&self, is_shared: bool) {
        let Some(place) = &self.place else { return };
        let judged = self.wait.compare_exchange(HAS_WAITED, WAITS_NO_MORE, Ordering::SeqCst, Ordering::SeqCst);
        if is_shared || judged.is_ok() {
            self.scans.arrivals.began(place, judged.is_ok(), is_shared);
        }
    }

    /// What it reads next, and for how many scans a decode began.
    fn next(&self) -> (Next<K, Arc<Pass>>, usize) {
        let mut members = 0;
        let mut registry = self.scans.lock();
        let Registry { wanted, owners, stars } = &mut *registry;
        let next = wanted.next(self.id, |plan| {
            members = plan.scans.len();
            let begun = self.begin(&plan, stars);
            let owner = |scan: &ScanId| Owner { scan: *scan, pass: Arc::clone(&begun.pass) };
            owners.extend(begun.consumers.iter().zip(plan.scans).map(|(id, scan)| ((plan.id, *id), owner(scan))));
            begun
        });
        let members = if matches!(next, Next::Alone(_)) { 1 } else { members };
        (next, members)
    }

    fn turn(&self) -> Turn<K> {
        let (next, members) = self.next();
        if members > 0 {
            self.began(members > 1);
        }
        match next {
            Next::Joined(ticket) => Turn::Take(ticket),
            Next::Alone(pieces) => Turn::ReadAlone(pieces),
            Next::Enter { pass, unit, piece } => self.enter(pass, unit, piece),
            Next::Lone(ticket) => Turn::Drive(ticket),
            Next::Look(pieces) => {
                for piece in &pieces {
                    piece.rows();
                }
                Turn::Again
            }
            Next::Nothing => Turn::End,
        }
    }

    fn begin(&self, plan: &PassPlan<'_, K>, stars: &HashMap<ScanId, Arc<StarQuery>>) -> BegunPass<Arc<Pass>> {
        tracing::trace!(predicted = ?plan.group.prediction, scans = plan.scans.len(), "a shared scan begins");
        let mut pages = PassPages::new(plan.group.rows.clone(), self.scans.window);
        let consumers: Vec<ConsumerId> = plan.pieces.iter().map(|piece| pages.begin(piece.rows())).collect();
        let queries = consumers.iter().zip(plan.scans);
        let queries = queries.filter_map(|(consumer, scan)| Some((*consumer, Arc::clone(stars.get(scan)?))));
        let queries: BTreeMap<ConsumerId, Arc<StarQuery>> = queries.collect();
        let session = MemoryConsumer::new("shared pages").register(&self.memory);
        let memory = PageMemory { session, budget: self.scans.budget.share() };
        let decoder = (self.decoder)(plan.unit, plan.group);
        BegunPass { pass: Pass::with_queries(pages, decoder, memory, queries), consumers }
    }

    /// Enters a pass, if that is worth it. What it does not give is wanted again.
    fn enter(&self, pass: RunningPass<Arc<Pass>>, unit: K, piece: Piece) -> Turn<K> {
        let entered = pass.pass.enter(piece.rows(), |entry| {
            of_entry(&piece, &entry.rest, &entry.taken, &entry.left).wins(self.scans.terms)
        });
        if let (Some((consumer, _)), Some(star)) = (&entered, &self.star) {
            pass.pass.set_query(*consumer, star);
        }
        let mut registry = self.scans.lock();
        let Some((consumer, left)) = entered else {
            registry.wanted.want(self.id, unit, piece, Some(pass.id));
            return Turn::Again;
        };
        registry.wanted.want(self.id, unit.clone(), piece.with_rows(left), Some(pass.id));
        let owner = Owner { scan: self.id, pass: Arc::clone(&pass.pass) };
        registry.owners.insert((pass.id, consumer), owner);
        Turn::Take(Ticket { pass, consumer, unit, piece })
    }

    fn want_again(&self, ticket: &Ticket<K, Arc<Pass>>, rows: RowSet) {
        let piece = ticket.piece.with_rows(rows);
        self.scans.lock().wanted.want(self.id, ticket.unit.clone(), piece, Some(ticket.pass.id));
    }

    /// Nobody asks for its rows just now: it leaves the passes that began for it, and wants their rows again.
    fn suspend(&self) {
        self.waits_no_more();
        let tickets = self.scans.lock().wanted.suspend(self.id);
        tickets.iter().for_each(|ticket| self.scans.leave(ticket));
        if let Some(star) = &self.star {
            star.leave();
        }
    }
}

impl<K: Clone + Eq + Hash> SharedScan<K> {
    fn waits_no_more(&self) {
        if let Some(place) = &self.place {
            self.scans.arrivals.stop(place, self.id);
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for SharedScan<K> {
    fn drop(&mut self) {
        self.waits_no_more();
        let mut registry = self.scans.lock();
        let (tickets, star) = (registry.wanted.remove_scan(self.id), registry.stars.remove(&self.id));
        drop(registry);
        tickets.iter().for_each(|ticket| self.scans.leave(ticket));
        drop(star);
    }
}

/// A partition of a scan.
pub(crate) struct ScanPartition<K: Clone + Eq + Hash> {
    scan: Arc<SharedScan<K>>,
    ticket: Option<Ticket<K, Arc<Pass>>>,
}

/// What a partition gets.
#[derive(Debug)]
pub(crate) enum Given<K> {
    /// Rows of a pass.
    Rows { unit: K, batch: RecordBatch },
    /// Pieces that it reads alone, one after the other.
    Alone(Vec<(K, Piece)>),
}

impl<K: Clone + Eq + Hash> ScanPartition<K> {
    /// The next rows; none if the scan has no piece left.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Given<K>>>> {
        loop {
            let Some(ticket) = &self.ticket else {
                if self.scan.waits(cx) {
                    return Poll::Pending;
                }
                match self.scan.turn() {
                    Turn::Take(ticket) => {
                        self.scan.metrics.joined();
                        self.ticket = Some(ticket);
                    }
                    Turn::Drive(ticket) => self.ticket = Some(ticket),
                    Turn::ReadAlone(pieces) => return Poll::Ready(Some(Ok(Given::Alone(pieces)))),
                    Turn::Again => {}
                    Turn::End => return Poll::Ready(None),
                }
                continue;
            };
            match ready!(ticket.pass.pass.poll_take(ticket.consumer, cx)) {
                Taken::Page { item, stretch, rows, is_shared } => {
                    self.scan.scans.look_after(ticket.pass.id, &ticket.pass.pass);
                    self.scan.scans.make_room(ticket.pass.id);
                    self.count_page(is_shared);
                    let (unit, batch) = (ticket.unit.clone(), self.own_rows(ticket, &item, &stretch, &rows));
                    return Poll::Ready(Some(batch.map(|batch| Given::Rows { unit, batch })));
                }
                Taken::Missed(rows) => {
                    self.scan.metrics.missed.add(rows.len() as usize);
                    self.scan.want_again(ticket, rows);
                }
                Taken::Left { rows, is_detached } => {
                    self.scan.metrics.detached.add(usize::from(is_detached));
                    let left = (ticket.unit.clone(), ticket.piece.with_rows(rows));
                    self.leave();
                    return Poll::Ready(Some(Ok(Given::Alone(vec![left]))));
                }
                Taken::Done => self.leave(),
                Taken::Lacks | Taken::Miscounted => {
                    self.leave();
                    let error = internal_datafusion_err!(
                        "a data file gave other rows than were selected, and queries shared them; \
                         SET lakemark.share = plans and ask again"
                    );
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }

    /// The rows and columns of a page that are the consumer's, without rows that a chain of star joins leaves out.
    fn own_rows(
        &self,
        ticket: &Ticket<K, Arc<Pass>>,
        page: &PassPage,
        stretch: &Range<u32>,
        rows: &TakenRows,
    ) -> Result<RecordBatch> {
        let own = own_columns(&page.batch, ticket)?;
        let SharedScan { scans, star, metrics, .. } = self.scan.as_ref();
        let (pass, columns) = (&ticket.pass.pass, &ticket.pass.columns);
        let routed = |_: &Arc<StarQuery>| pass.routed(page, stretch, columns, ticket.consumer, scans.terms);
        let Some(left) = star.as_ref().and_then(routed) else { return selected(own, rows) };
        let wanted = match rows {
            TakenRows::All => own.num_rows(),
            TakenRows::Some(rows) => rows.len() as usize,
        };
        scans.star_pages.fetch_add(1, Ordering::Relaxed);
        metrics.routed(wanted.saturating_sub(left.len()));
        Ok(if left.len() == wanted { selected(own, rows)? } else { take_record_batch(&own, left)? })
    }

    fn count_page(&self, is_shared: bool) {
        if is_shared {
            self.scan.metrics.joined();
            self.scan.metrics.pages_shared.add(1);
            self.scan.scans.pages_shared.fetch_add(1, Ordering::Relaxed);
        }
        self.count_decoded();
    }

    fn count_decoded(&self) {
        let Some(ticket) = &self.ticket else { return };
        if let Some(for_others) = ticket.pass.pass.take_decoded_for_others(ticket.consumer) {
            self.scan.metrics.decoded(for_others);
        }
    }

    fn leave(&mut self) {
        self.count_decoded();
        if let Some(ticket) = self.ticket.take() {
            self.scan.scans.leave(&ticket);
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for ScanPartition<K> {
    fn drop(&mut self) {
        self.leave();
        if self.scan.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.scan.suspend();
        }
    }
}

/// The columns of a page that are the consumer's. They are among those that are decoded: as many are all of them.
fn own_columns<K>(page: &RecordBatch, ticket: &Ticket<K, Arc<Pass>>) -> Result<RecordBatch> {
    if ticket.piece.columns().len() == ticket.pass.columns.len() {
        return Ok(page.clone());
    }
    let is_own = |(_, column): &(usize, &usize)| ticket.piece.columns().contains_key(*column);
    let places: Vec<usize> = ticket.pass.columns.keys().enumerate().filter(is_own).map(|(place, _)| place).collect();
    Ok(page.project(&places)?)
}

/// The rows of a page that are the consumer's.
fn selected(own: RecordBatch, rows: &TakenRows) -> Result<RecordBatch> {
    let TakenRows::Some(rows) = rows else { return Ok(own) };
    let mut ranges = rows.iter_ranges();
    // A slice keeps the whole page in memory, as long as an operator keeps its rows.
    if let (Some(only), None) = (ranges.next(), ranges.next())
        && rows.len() as usize >= own.num_rows() / 2
    {
        return Ok(own.slice(only.start as usize, rows.len() as usize));
    }
    let mut mask = BooleanBufferBuilder::new(own.num_rows());
    for range in rows.iter_ranges() {
        mask.append_n(range.start as usize - mask.len(), false);
        mask.append_n((range.end - range.start) as usize, true);
    }
    mask.append_n(own.num_rows() - mask.len(), false);
    Ok(filter_record_batch(&own, &BooleanArray::new(mask.finish(), None))?)
}

#[cfg(test)]
#[path = "scans_tests.rs"]
mod tests;

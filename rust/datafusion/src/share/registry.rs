//! The plans in flight, by their keys, the statements in flight, and the scans that share pages.
//!
//! A registry serves a process; a session may have one of its own. It keeps no flight alive: that is up to the consumers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use datafusion::execution::TaskContext;
use datafusion::physical_plan::PlanProperties;
use datafusion::prelude::SessionConfig;
use tokio::runtime::{self, Handle};

use super::consumer::Consumer;
use super::flight::{Flight, HostPlan};
use super::key::PlanKey;
use super::passes::scans::{PassLimits, SharedScans};
use super::passes::unit::UnitKey;
use super::prediction::Terms;
use super::sightings::Sightings;
use super::stars::groups::StarGroups;
use super::statements::{PlanningCounts, Statements};

/// The registry of sessions that have none of their own.
static OF_PROCESS: LazyLock<Arc<PlanSharing>> = LazyLock::new(|| Arc::new(PlanSharing::new()));

/// The plans in flight that queries may share. Sessions take part in that of the process, unless their configuration has another one
/// (`SessionConfig::with_extension`).
#[derive(Debug)]
pub struct PlanSharing {
    flights: Flights,
    parts: Sightings,
    statements: Statements,
    counters: Counters,
    /// Scans that share pages.
    scans: Arc<SharedScans<UnitKey>>,
    /// Scans that share star joins.
    stars: StarGroups,
}

impl Default for PlanSharing {
    fn default() -> Self {
        Self {
            flights: Flights::default(),
            parts: Sightings::default(),
            statements: Statements::default(),
            counters: Counters::default(),
            scans: SharedScans::new(PassLimits::default()),
            stars: StarGroups::default(),
        }
    }
}

/// Flights by the hashes of their keys.
type Flights = Arc<Mutex<HashMap<u64, Vec<Weak<Flight>>>>>;

#[derive(Debug, Default)]
struct Counters {
    hosts: AtomicU64,
    guests: AtomicU64,
    detached: AtomicU64,
}

/// What was shared so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounts {
    /// Plans that ran, and that others could share.
    pub hosts: u64,
    /// Plans that did not have to run, as another one ran for them.
    pub guests: u64,
    /// Of these guests those that had to run their own plan in the end.
    pub detached: u64,
}

/// A consumer that is to take part.
pub(crate) struct JoinRequest<'a> {
    pub(crate) key: &'a Arc<PlanKey>,
    /// The plans of a flight run on one runtime, which all consumers need to be alive.
    pub(crate) runtime: Handle,
    pub(crate) context: &'a Arc<TaskContext>,
    /// Its own plan, to be run if nobody runs an equal one.
    pub(crate) host: Option<HostPlan>,
    /// Whether it may take the batches of another one.
    pub(crate) attaches: bool,
}

impl PlanSharing {
    /// A registry without plans.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry in which scans share whatever pages they have in common, also where reading alone is cheaper, and queries whatever parts of
    /// their plans, however long ago the other one began. For tests.
    #[must_use]
    pub fn sharing_always() -> Self {
        // Small row groups are passes of one, and rests of them are still read alone.
        let limits = PassLimits { least_alone: 1, least_lone: 32, terms: Terms::Always, ..PassLimits::default() };
        Self { scans: SharedScans::new(limits), parts: Sightings::within(f64::INFINITY), ..Self::default() }
    }

    /// The registry of a session.
    pub(crate) fn of(config: &SessionConfig) -> Arc<Self> {
        config.get_extension::<Self>().unwrap_or_else(|| Arc::clone(&OF_PROCESS))
    }

    /// What was shared so far.
    #[must_use]
    pub fn counts(&self) -> SharingCounts {
        let Counters { hosts, guests, detached } = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SharingCounts { hosts: of(hosts), guests: of(guests), detached: of(detached) }
    }

    /// What was planned so far of statements that others could ask, too.
    #[must_use]
    pub fn planning_counts(&self) -> PlanningCounts {
        self.statements.counts()
    }

    /// The statements in flight.
    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Pages of data files that the scan of one query took and that of another one as well, so far.
    #[must_use]
    pub fn pages_shared(&self) -> u64 {
        self.scans.pages_shared()
    }

    /// Pages of data files of which a query took what was left of them by the joins of several queries, so far.
    #[must_use]
    pub fn star_pages(&self) -> u64 {
        self.scans.star_pages()
    }

    /// The scans that share star joins.
    pub(crate) fn stars(&self) -> &StarGroups {
        &self.stars
    }

    /// The scans that share pages.
    pub(crate) fn scans(&self) -> &Arc<SharedScans<UnitKey>> {
        &self.scans
    }

    /// Whether another query than this one, which began a moment ago, has the part of a plan, by the hash of its key.
    pub(crate) fn is_part_of_another(&self, part: u64, query: &Arc<PlanKey>) -> bool {
        self.parts.has_another(part, query)
    }

    /// Whether a plan may run just now whose key has this hash.
    pub(crate) fn has_flights(&self, hash: u64) -> bool {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    /// How the output of the plan looks that runs for a key just now.
    pub(crate) fn in_flight(&self, key: &PlanKey, runtime: runtime::Id) -> Option<Arc<PlanProperties>> {
        self.open_flight(key, runtime).map(|flight| Arc::clone(flight.properties()))
    }

    /// Whether a plan runs for a key just now whose guests take its output however large it becomes.
    pub(crate) fn streams(&self, key: &PlanKey, runtime: runtime::Id) -> bool {
        self.open_flight(key, runtime).is_some_and(|flight| flight.streams())
    }

    fn open_flight(&self, key: &PlanKey, runtime: runtime::Id) -> Option<Arc<Flight>> {
        let flights = self.flights_of(key.hash_code());
        flights.into_iter().find(|flight| flight.is_for(key, runtime) && flight.is_open())
    }

    /// A consumer of the plan in flight for a key, or of the host's own plan. None if there is neither, or if the consumer may not
    /// take what there is.
    pub(crate) fn join(&self, request: JoinRequest<'_>) -> Option<Consumer> {
        let JoinRequest { key, runtime, context, mut host, attaches } = request;
        let mut own = None;
        loop {
            let known = self.flights_of(key.hash_code());
            for flight in known.iter().filter(|flight| flight.is_for(key, runtime.id()) && flight.is_open()) {
                if !attaches {
                    return None;
                }
                if let Some(consumer) = Consumer::attach(flight, context) {
                    self.counters.guests.fetch_add(1, Ordering::Relaxed);
                    return Some(consumer);
                }
            }
            let (flight, consumer) = match own.take() {
                Some(made) => made,
                None => self.flight_of(host.take()?, key, runtime.clone(), context)?,
            };
            if self.enter(&flight, key.hash_code(), &known) {
                self.counters.hosts.fetch_add(1, Ordering::Relaxed);
                return Some(consumer);
            }
            own = Some((flight, consumer));
        }
    }

    /// The plan of a host as one that is about to fly, with the host as its first consumer.
    fn flight_of(
        &self,
        host: HostPlan,
        key: &Arc<PlanKey>,
        runtime: Handle,
        context: &Arc<TaskContext>,
    ) -> Option<(Arc<Flight>, Consumer)> {
        let entry = Box::new(Entry { flights: Arc::clone(&self.flights), hash: key.hash_code() });
        let flight = Arc::new(Flight::new(Arc::clone(key), runtime, host, context, entry));
        let consumer = Consumer::attach(&flight, context)?;
        Some((flight, consumer))
    }

    /// Makes a flight known, unless one came that is not among the `known`. So neither are keys compared nor flights locked while the
    /// registry is.
    fn enter(&self, flight: &Arc<Flight>, hash: u64, known: &[Arc<Flight>]) -> bool {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let there = flights.entry(hash).or_default();
        let is_known = |other: &Weak<Flight>| {
            other.strong_count() == 0 || known.iter().any(|flight| std::ptr::eq(other.as_ptr(), Arc::as_ptr(flight)))
        };
        if !there.iter().all(is_known) {
            return false;
        }
        there.push(Arc::downgrade(flight));
        true
    }

    /// A guest runs its own plan in the end.
    pub(crate) fn count_detached(&self) {
        self.counters.detached.fetch_add(1, Ordering::Relaxed);
    }

    fn flights_of(&self, hash: u64) -> Vec<Arc<Flight>> {
        let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.get(&hash).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

/// The entry of a flight, which goes with it.
#[derive(Debug)]
struct Entry {
    flights: Flights,
    hash: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = flights.get_mut(&self.hash) else { return };
        own.retain(|flight| flight.strong_count() > 0);
        if own.is_empty() {
            flights.remove(&self.hash);
        }
    }
}

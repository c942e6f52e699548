//! Scans that are on the way: their queries run, and have yet to say what they read.
//!
//! ```text
//! query A   builds its joins ─────▶ its scan begins                waits ─▶ one decode for A, B and C
//! query B   builds its joins ──────────────▶ its scan begins       waits ─▶
//! query C   builds its joins ─────────────────────▶ its scan begins ───────▶
//! ```
//!
//! A decode is shared by those who want it when it begins. So a scan that would begin one waits for others that are on the way to its table,
//! but for those that came after it began to wait. It waits at most as long as all of them together take to read by themselves: in a crowd
//! nobody would have its rows earlier. Who comes too late for somebody is not waited for again. Waits that nobody gained by make the next
//! ones shorter.
//!
//! Invariant: whoever waits is woken when the last one comes or goes that it waits for, or when its time is over.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use datafusion::execution::TaskContext;
use object_store::ObjectStore;
use tokio::runtime::Handle;

use super::unit_pieces::ScanId;
use crate::share::key::Principal;

/// Nobody waits for less: that is what it takes to sleep and to be woken.
const LEAST_WAIT: Duration = Duration::from_micros(200);
/// Nobody waits for more, however large the crowd is.
pub(crate) const MOST_WAIT: Duration = Duration::from_millis(250);
/// So often waits may be halved in a row.
const MOST_HALVINGS: u32 = 6;
/// Tables that are remembered without anybody on the way to them.
const MOST_REMEMBERED: usize = 1_024;

/// What scans have to have in common to share, but for the files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Addresses tell things apart that are alive; one that is taken anew makes somebody wait in vain.
    store: usize,
    runtime: usize,
    principal: Option<Arc<Principal>>,
}

impl Place {
    /// A table by the handle of its files, for who runs a query.
    pub(crate) fn of(store: &Arc<dyn ObjectStore>, context: &TaskContext) -> Self {
        Self {
            store: Arc::as_ptr(store).addr(),
            runtime: Arc::as_ptr(&context.runtime_env()).addr(),
            principal: context.session_config().get_extension::<Principal>(),
        }
    }
}

#[cfg(test)]
impl Place {
    /// One without a table.
    pub(crate) fn of_number(store: usize) -> Self {
        Self { store, runtime: 0, principal: None }
    }
}

/// Tells queries apart that are alive.
pub(crate) type QueryId = usize;

/// The scans that are on the way, by where they go.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    places: Mutex<HashMap<Place, Coming>>,
}

/// Who is on the way to a place, and who waits there.
#[derive(Debug, Default)]
struct Coming {
    next: u64,
    /// The queries of those whom others wait for, in the order in which they set out.
    awaited: BTreeMap<u64, QueryId>,
    waiting: HashMap<ScanId, Waiting>,
    /// How many waits in a row nobody gained by.
    in_vain: u32,
}

#[derive(Debug)]
struct Waiting {
    /// It waits for those who set out before this one.
    until: u64,
    /// Of its partitions.
    wakers: Vec<Waker>,
    timer: Arc<Timer>,
}

impl Coming {
    /// Takes those out whose wait is over.
    fn take_ready(&mut self) -> Vec<Waiting> {
        let first = self.awaited.keys().next().copied().unwrap_or(u64::MAX);
        let ready = self.waiting.extract_if(|_, waiting| waiting.until <= first);
        ready.map(|(_, waiting)| waiting).collect()
    }

    /// How long somebody waits at most who takes so long alone, where so many threads read.
    fn limit(&self, alone: Duration, threads: usize) -> Duration {
        let crowd = (self.awaited.len() + 1) / threads.max(1);
        let all = alone.saturating_mul(u32::try_from(crowd).unwrap_or(u32::MAX).max(1));
        all.min(MOST_WAIT) / (1 << self.in_vain.min(MOST_HALVINGS))
    }

    fn is_forgotten(&self) -> bool {
        self.awaited.is_empty() && self.waiting.is_empty() && self.in_vain == 0
    }
}

/// Ends the wait of a thread.
#[derive(Debug, Default)]
struct Timer {
    is_over: Mutex<bool>,
    ended: Condvar,
}

impl Timer {
    /// Sleeps so long, or until it is ended; whether that was not before.
    fn sleep(&self, limit: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.ended.wait_timeout_while(is_over, limit, |is_over| !*is_over);
        slept.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_one();
    }
}

/// Lets waits go on.
fn go_on(waits: impl IntoIterator<Item = Waiting>) {
    for Waiting { wakers, timer, .. } in waits {
        timer.end();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Arrivals {
    /// A scan of a query is on the way, until what this gives is dropped.
    pub(crate) fn set_out(self: &Arc<Self>, place: Place, query: QueryId) -> Arrival {
        let mut places = self.lock();
        if places.len() >= MOST_REMEMBERED {
            places.retain(|_, coming| !coming.awaited.is_empty() || !coming.waiting.is_empty());
        }
        let coming = places.entry(place.clone()).or_default();
        let id = coming.next;
        coming.next += 1;
        coming.awaited.insert(id, query);
        Arrival { arrivals: Arc::clone(self), place, id, query }
    }

    /// Whether a scan that is about to begin a decode waits for others. It is woken when it may go on. `alone` is what it takes to read by
    /// itself; without that it does not begin to wait.
    pub(crate) fn waits(
        self: &Arc<Self>,
        place: &Place,
        scan: ScanId,
        cx: &Context<'_>,
        alone: Option<Duration>,
    ) -> bool {
        let mut places = self.lock();
        let Some(coming) = places.get_mut(place) else { return false };
        if let Some(waiting) = coming.waiting.get_mut(&scan) {
            if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.wakers.push(cx.waker().clone());
            }
            return true;
        }
        if coming.awaited.is_empty() {
            return false;
        }
        // Without a runtime nobody would end the wait.
        let (Some(alone), Ok(runtime)) = (alone, Handle::try_current()) else { return false };
        let limit = coming.limit(alone, runtime.metrics().num_workers());
        if limit < LEAST_WAIT {
            return false;
        }
        let timer = Arc::new(Timer::default());
        let waiting = Waiting { until: coming.next, wakers: vec![cx.waker().clone()], timer: Arc::clone(&timer) };
        coming.waiting.insert(scan, waiting);
        drop(places);
        let (arrivals, place) = (Arc::clone(self), place.clone());
        runtime.spawn_blocking(move || {
            if timer.sleep(limit) {
                arrivals.expire(&place, scan, &timer);
            }
        });
        true
    }

    /// The time of a wait is over. Whom it was for comes too late for everybody.
    fn expire(&self, place: &Place, scan: ScanId, timer: &Arc<Timer>) {
        let mut places = self.lock();
        let Some(coming) = places.get_mut(place) else { return };
        let Some(until) = coming.waiting.get(&scan).filter(|own| Arc::ptr_eq(&own.timer, timer)).map(|own| own.until)
        else {
            return;
        };
        coming.awaited.retain(|id, _| *id >= until);
        let ready = coming.take_ready();
        drop(places);
        go_on(ready);
    }

    /// Whether somebody is on the way to a place, or this scan waits there already.
    pub(crate) fn has_any(&self, place: &Place, scan: ScanId) -> bool {
        let places = self.lock();
        places.get(place).is_some_and(|coming| !coming.awaited.is_empty() || coming.waiting.contains_key(&scan))
    }

    /// A decode began, for the scan that waited or for others as well: whoever waits looks for its part of it.
    pub(crate) fn began(&self, place: &Place, has_waited: bool, is_shared: bool) {
        let mut places = self.lock();
        let Some(coming) = places.get_mut(place) else { return };
        match (is_shared, has_waited) {
            (true, _) => coming.in_vain = 0,
            (false, true) => coming.in_vain = coming.in_vain.saturating_add(1),
            (false, false) => {}
        }
        let woken: Vec<Waker> = match is_shared {
            true => coming.waiting.values().flat_map(|waiting| &waiting.wakers).cloned().collect(),
            false => Vec::new(),
        };
        drop(places);
        woken.into_iter().for_each(Waker::wake);
    }

    /// A scan waits no more.
    pub(crate) fn stop(&self, place: &Place, scan: ScanId) {
        let mut places = self.lock();
        let stopped = places.get_mut(place).and_then(|coming| coming.waiting.remove(&scan));
        drop(places);
        go_on(stopped);
    }

    /// A scan is there, or does not come. No other scan of its query is waited for: it may come only after this one has given its rows.
    fn arrive(&self, place: &Place, id: u64, query: QueryId) {
        let mut places = self.lock();
        let Some(coming) = places.get_mut(place) else { return };
        coming.awaited.retain(|other, of| *other != id && *of != query);
        let ready = coming.take_ready();
        if coming.is_forgotten() {
            places.remove(place);
        }
        drop(places);
        go_on(ready);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Coming>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A scan that is on the way.
#[derive(Debug)]
pub(crate) struct Arrival {
    arrivals: Arc<Arrivals>,
    place: Place,
    id: u64,
    query: QueryId,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.arrivals.arrive(&self.place, self.id, self.query);
    }
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;

//! The statements in flight, by their texts: those that somebody plans or whose rows somebody takes.
//!
//! A registry keeps no statement alive: that is up to whoever asked it.
//!
//! The clock of a registry says what came first. It ticks as a statement comes, and as its planning begins. So a planning with a later time
//! than a statement has looked its tables up after the statement came.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::future::BoxFuture;
use tokio::runtime;
use tokio::sync::Notify;

use super::alike::{plan_alike, run_alike};
use super::asked::Asked;
use super::bound_query::BoundQuery;
use super::joint_work::JointWork;
use super::key::PlanKey;

/// What is known of a statement once it is planned; none if nobody else may have it.
pub(crate) type Planned = Option<Arc<BoundQuery>>;

/// Statements by the hashes of what was asked.
type Known = Arc<Mutex<HashMap<u64, Vec<Weak<StatementFlight>>>>>;

/// The statements in flight.
#[derive(Debug, Default)]
pub(crate) struct Statements {
    known: Known,
    clock: AtomicU64,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    planned: AtomicU64,
    taken: AtomicU64,
    made: AtomicU64,
}

/// How often statements were planned that others could have asked, too, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanningCounts {
    /// Statements whose text was planned, each for all who asked it and for all runs of one that is prepared.
    pub planned: u64,
    /// Statements that did not have to be planned, as another one was for them.
    pub taken: u64,
    /// Physical plans that were made of these, each for all who could take its rows.
    pub made: u64,
}

/// Who asks a statement.
pub(crate) struct StatementRequest<'a> {
    pub(crate) asked: &'a Arc<Asked>,
    pub(crate) context: &'a SessionContext,
    pub(crate) runtime: runtime::Id,
}

impl Statements {
    /// The time, which is another one each time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// The statement in flight that is equal to one, or that one, which `plans` plans in the session as it is now. Nobody else copies that.
    pub(crate) fn join(
        &self,
        request: &StatementRequest<'_>,
        plans: impl FnOnce(Arc<SessionState>) -> BoxFuture<'static, Planned>,
    ) -> Arc<StatementFlight> {
        let (mut own, mut plans) = (None, Some(plans));
        loop {
            let known = self.of(request.asked.hash_code());
            if let Some(found) = known.iter().find(|flight| flight.is_for(request)) {
                return Arc::clone(found);
            }
            let made = own.take().or_else(|| plans.take().map(|plans| self.flight_of(request, plans)));
            let Some(made) = made else { continue };
            if self.enter(&made, &known) {
                return made;
            }
            own = Some(made);
        }
    }

    fn flight_of(
        &self,
        request: &StatementRequest<'_>,
        plans: impl FnOnce(Arc<SessionState>) -> BoxFuture<'static, Planned>,
    ) -> Arc<StatementFlight> {
        let session = Arc::new(request.context.state());
        Arc::new(StatementFlight {
            asked: Arc::clone(request.asked),
            context: request.context.clone(),
            planning: JointWork::new(plans(Arc::clone(&session))),
            session,
            task: OnceLock::new(),
            runtime: request.runtime,
            key: Arc::default(),
            looking: Mutex::default(),
            begun: Notify::new(),
            beginning: Mutex::default(),
            known: Arc::clone(&self.known),
        })
    }

    /// Makes a statement known, unless one came that is not among the `known`. So nothing is compared while the registry is locked.
    fn enter(&self, flight: &Arc<StatementFlight>, known: &[Arc<StatementFlight>]) -> bool {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let there = all.entry(flight.asked.hash_code()).or_default();
        let is_known = |other: &Weak<StatementFlight>| {
            other.strong_count() == 0 || known.iter().any(|flight| std::ptr::eq(other.as_ptr(), Arc::as_ptr(flight)))
        };
        if !there.iter().all(is_known) {
            return false;
        }
        there.push(Arc::downgrade(flight));
        true
    }

    /// Nobody joins a statement any more: its tables have changed, or nobody else may have it.
    pub(crate) fn forget(&self, flight: &Arc<StatementFlight>) {
        leave(&self.known, flight.asked.hash_code(), Arc::as_ptr(flight));
    }

    fn of(&self, hash: u64) -> Vec<Arc<StatementFlight>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&hash).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// What was planned so far.
    pub(crate) fn counts(&self) -> PlanningCounts {
        let Counters { planned, taken, made } = &self.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PlanningCounts { planned: of(planned), taken: of(taken), made: of(made) }
    }

    /// The text of a statement is planned.
    pub(crate) fn count_planned(&self) {
        self.counters.planned.fetch_add(1, Ordering::Relaxed);
    }

    /// A statement was planned by another one.
    pub(crate) fn count_taken(&self) {
        self.counters.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// A physical plan is made.
    pub(crate) fn count_made(&self) {
        self.counters.made.fetch_add(1, Ordering::Relaxed);
    }
}

/// Takes a statement out of a registry, if it is there.
fn leave(known: &Known, hash: u64, own: *const StatementFlight) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(there) = known.get_mut(&hash) else { return };
    there.retain(|flight| !std::ptr::eq(flight.as_ptr(), own));
    if there.is_empty() {
        known.remove(&hash);
    }
}

/// Which statement in flight a query is of: equal for queries of one statement, as long as one of these is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatementId(usize);

/// A statement that somebody plans, or whose rows somebody takes.
pub(crate) struct StatementFlight {
    asked: Arc<Asked>,
    context: SessionContext,
    /// What the session was as the first one came.
    session: Arc<SessionState>,
    /// What its rows are computed in, for all who take them.
    task: OnceLock<Arc<TaskContext>>,
    /// All who share it need it to be alive.
    runtime: runtime::Id,
    planning: Arc<JointWork<Planned>>,
    /// Who looks at its names and tables just now.
    looking: Mutex<Weak<JointWork<Look>>>,
    /// Tells those who wait for its rows that somebody began it.
    begun: Notify,
    /// That of the optimized plan, once it is known.
    key: Arc<OnceLock<Arc<PlanKey>>>,
    /// What makes a physical plan just now, and begins it. It goes with those who wait for it, as the statement may be there for longer.
    beginning: Mutex<Weak<JointWork<Arc<Begun>>>>,
    /// Where its entry is, which goes with it.
    known: Known,
}

/// What came of a look at the names and tables of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// When it began, on the clock of the statements in flight.
    pub(crate) since: u64,
    /// Whether they are what they were as the statement was planned.
    pub(crate) holds: bool,
}

/// What makes a physical plan and begins it, for one of those who wait for it.
pub(crate) struct Beginning {
    work: Arc<JointWork<Arc<Begun>>>,
    /// Whether it was made for this one.
    is_own: bool,
}

impl Beginning {
    /// The execution, if nobody else has it. Whoever has none takes part in it, or runs its own plan.
    pub(crate) async fn execution(&self) -> Option<Result<Execution>> {
        self.work.wait().await?.take(self.is_own)
    }
}

/// A plan that runs, and its rows.
pub(crate) struct Execution {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) rows: SendableRecordBatchStream,
}

impl Execution {
    /// Begins a plan.
    pub(crate) fn begin(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Self> {
        let rows = execute_stream(Arc::clone(&plan), context)?;
        Ok(Self { plan, rows })
    }
}

/// The execution of a plan that somebody began, for the first who comes for its rows.
pub(crate) struct Begun(Mutex<Option<Result<Execution>>>);

impl Begun {
    pub(crate) fn new(execution: Result<Execution>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(execution))))
    }

    /// The execution, if nobody has it. An error is for the one that it was begun for: with another one all may go well by now.
    fn take(&self, is_own: bool) -> Option<Result<Execution>> {
        let mut execution = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        execution.take_if(|execution| is_own || execution.is_ok())
    }
}

impl StatementFlight {
    fn is_for(&self, request: &StatementRequest<'_>) -> bool {
        self.runtime == request.runtime
            && *self.asked == **request.asked
            && Arc::ptr_eq(&self.context.state_ref(), &request.context.state_ref())
            && plan_alike(&self.session, &request.context.state_ref().read())
    }

    /// Whether a query that runs like this may take part.
    pub(crate) fn serves(&self, context: &TaskContext, runtime: runtime::Id) -> bool {
        self.is_on(runtime) && run_alike(context, &self.session)
    }

    /// Whether it runs on a runtime.
    pub(crate) fn is_on(&self, runtime: runtime::Id) -> bool {
        self.runtime == runtime
    }

    /// What the session was as the first one came.
    pub(crate) fn session(&self) -> &Arc<SessionState> {
        &self.session
    }

    /// What its rows are computed in. A session has hundreds of functions, of which this is one more copy.
    pub(crate) fn task(&self) -> Arc<TaskContext> {
        Arc::clone(self.task.get_or_init(|| self.session.task_ctx()))
    }

    /// Whether its names and tables are still what they were, by a look that begins after a time. All who wait for it share one: whoever came
    /// while somebody looked looks once more, with all others who did.
    pub(crate) async fn holds_after(&self, came: u64, looks: impl Fn() -> BoxFuture<'static, Look> + Send) -> bool {
        loop {
            let looking = self.looking(&looks);
            let found = looking.wait().await;
            self.has_looked(&looking);
            match found {
                Some(look) if look.since <= came => {}
                found => return found.is_some_and(|look| look.holds),
            }
        }
    }

    /// The look of now, or else one that begins.
    fn looking(&self, looks: impl FnOnce() -> BoxFuture<'static, Look>) -> Arc<JointWork<Look>> {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = looking.upgrade() {
            return work;
        }
        let work = JointWork::new(looks());
        *looking = Arc::downgrade(&work);
        work
    }

    /// A look is over: who comes from now on begins another one.
    fn has_looked(&self, done: &Arc<JointWork<Look>>) {
        let mut looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        if std::ptr::eq(looking.as_ptr(), Arc::as_ptr(done)) {
            *looking = Weak::new();
        }
    }

    /// What is known of it once it is planned, by whoever waits for that.
    pub(crate) async fn planned(&self) -> Planned {
        self.planning.wait().await.flatten()
    }

    /// The key of its optimized plan.
    pub(crate) fn key(&self) -> &Arc<OnceLock<Arc<PlanKey>>> {
        &self.key
    }

    /// What begins it just now, or else what will.
    pub(crate) fn beginning(&self, begins: impl FnOnce() -> BoxFuture<'static, Arc<Begun>>) -> Beginning {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = beginning.upgrade() {
            return Beginning { work, is_own: false };
        }
        let work = JointWork::new(begins());
        *beginning = Arc::downgrade(&work);
        Beginning { work, is_own: true }
    }

    /// It was begun: who comes from now on takes part in what runs, or begins it anew.
    pub(crate) fn has_begun(&self, done: &Beginning) {
        let mut beginning = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        if std::ptr::eq(beginning.as_ptr(), Arc::as_ptr(&done.work)) {
            *beginning = Weak::new();
        }
        drop(beginning);
        self.begun.notify_waiters();
    }

    /// What `takes` gives, which is tried now and each time that somebody began the statement.
    pub(crate) async fn as_it_begins<T: Send>(&self, takes: impl Fn() -> Option<T> + Send) -> T {
        loop {
            // It knows of all beginnings from here on, so that none is missed.
            let begun = self.begun.notified();
            if let Some(taken) = takes() {
                return taken;
            }
            begun.await;
        }
    }

    /// Which one it is.
    pub(crate) fn id(&self) -> StatementId {
        StatementId(std::ptr::from_ref(self).addr())
    }
}

impl Drop for StatementFlight {
    fn drop(&mut self) {
        leave(&self.known, self.asked.hash_code(), std::ptr::from_ref(self));
    }
}

impl fmt::Debug for StatementFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatementFlight").field("asked", &self.asked).finish_non_exhaustive()
    }
}

/// What a query knows of its statement in flight. A program's query has it as an extension of the configuration of its session.
#[derive(Debug)]
pub(crate) struct QueryInFlight {
    pub(crate) flight: Arc<StatementFlight>,
    pub(crate) bound: Arc<BoundQuery>,
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::task::Poll;

    use arrow::datatypes::Schema;
    use datafusion::common::plan_datafusion_err;
    use datafusion::physical_plan::empty::EmptyExec;
    use futures::{FutureExt, poll};
    use tokio::runtime::Handle;
    use tokio::sync::oneshot;

    use super::*;

    /// A statement that nobody plans.
    fn in_flight() -> Arc<StatementFlight> {
        let context = SessionContext::new();
        let asked = Arc::new(Asked::new("SELECT 1", None));
        let request = StatementRequest { asked: &asked, context: &context, runtime: Handle::current().id() };
        Statements::default().join(&request, |_| pending().boxed())
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_ends_though_the_statement_is_there() {
        let flight = in_flight();
        let held = Arc::new(());
        let weak = Arc::downgrade(&held);
        let work = async move {
            let _held = held;
            pending::<Arc<Begun>>().await
        };
        let first = flight.beginning(|| work.boxed());
        let second = flight.beginning(|| pending().boxed());
        assert!(first.execution().now_or_never().is_none() && second.execution().now_or_never().is_none());
        drop(first);
        assert!(weak.upgrade().is_some());
        drop(second);
        assert!(weak.upgrade().is_none());
        // Who comes now begins it anew.
        assert!(flight.beginning(|| pending().boxed()).is_own);
    }

    #[tokio::test]
    async fn a_look_is_for_all_who_came_before_it_began_and_for_nobody_who_came_later() {
        let flight = in_flight();
        let clock = Arc::new(AtomicU64::new(0));
        let begun = Arc::<Mutex<Vec<oneshot::Sender<bool>>>>::default();
        let looks = || {
            let (clock, begun) = (Arc::clone(&clock), Arc::clone(&begun));
            async move {
                let since = clock.fetch_add(1, Ordering::SeqCst);
                let (tell, told) = oneshot::channel();
                begun.lock().unwrap().push(tell);
                Look { since, holds: told.await.unwrap() }
            }
            .boxed()
        };
        let comes = || Box::pin(flight.holds_after(clock.fetch_add(1, Ordering::SeqCst), looks));
        let ends = |look: usize, holds: bool| begun.lock().unwrap().remove(look).send(holds).unwrap();
        let count = || begun.lock().unwrap().len();
        let mut first = comes();
        assert!(poll!(&mut first).is_pending());
        let (mut second, mut third) = (comes(), comes());
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        assert_eq!(count(), 1);
        ends(0, true);
        assert_eq!(poll!(&mut first), Poll::Ready(true));
        assert!(poll!(&mut second).is_pending() && poll!(&mut third).is_pending());
        assert_eq!(count(), 1);
        ends(0, false);
        assert_eq!((poll!(&mut third), poll!(&mut second)), (Poll::Ready(false), Poll::Ready(false)));
        assert_eq!(count(), 0);
        // The look of one who goes is the others'.
        let (mut stays, mut goes) = (comes(), comes());
        assert!(poll!(&mut goes).is_pending() && poll!(&mut stays).is_pending());
        drop(goes);
        ends(0, true);
        assert_eq!(poll!(&mut stays), Poll::Ready(true));
    }

    #[tokio::test]
    async fn rows_are_for_whoever_comes_first_and_an_error_is_for_the_one_who_began() {
        let flight = in_flight();
        let failed = Begun::new(Err(plan_datafusion_err!("nothing is there")));
        let first = flight.beginning(|| ready(failed).boxed());
        let second = flight.beginning(|| pending().boxed());
        assert!(second.execution().await.is_none());
        assert!(first.execution().await.is_some_and(|execution| execution.is_err()));
        flight.has_begun(&second);

        let empty = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let begun = Begun::new(Execution::begin(empty, flight.session().task_ctx()));
        let first = flight.beginning(|| ready(begun).boxed());
        let second = flight.beginning(|| pending().boxed());
        assert!(first.is_own && !second.is_own);
        assert!(second.execution().await.is_some_and(|execution| execution.is_ok()));
        assert!(first.execution().await.is_none());
    }
}

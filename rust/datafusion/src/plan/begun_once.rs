//! The rows of queries whose statement others ask, too: its plan is optimized once, its operators are made once, and one execution gives the
//! rows of all.
//!
//! ```text
//! an execution is in flight    ─▶ take part in it
//! somebody begins one          ─▶ help, then take part in it
//! neither                      ─▶ begin one
//! ```
//!
//! Whoever finds that what was begun is over or closed to it, or that it failed, makes operators for itself, of the optimized plan if there is
//! one. Operators are never run twice.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio::runtime::{self, Handle};

use crate::plan::late_plan::planned_later;
use crate::plan::share_key::{is_copy, key_of};
use crate::plan::slow_queries::{AskedQuery, Watch, watched};
use crate::share::key::PlanKey;
use crate::share::operator::{SharedExec, SharedParts};
use crate::share::registry::PlanSharing;
use crate::share::statements::{Begun, Execution, QueryInFlight};

/// The rows of a query, as [`DataFrame::execute_stream`] gives them. Queries of equal statements at the same time are planned once, if they
/// came from one [`LakemarkSession`](crate::LakemarkSession) by their texts and share plans.
///
/// # Errors
/// Those of planning the query.
pub async fn rows_of(query: &DataFrame) -> Result<SendableRecordBatchStream> {
    let context = Arc::new(query.task_ctx());
    let watch = Watch::begin(context.session_config().get_extension::<AskedQuery>());
    let execution = match asks(query.logical_plan(), &context) {
        Some(asks) => in_flight(asks, || context).await?,
        None => Execution::begin(query.create_physical_plan().await?, context)?,
    };
    Ok(watched(execution, watch))
}

/// The rows of a query that a session planned, and that runs in the state that it was planned in.
pub(crate) async fn rows_of_planned(
    state: &SessionState,
    plan: &LogicalPlan,
    known: Option<&Arc<QueryInFlight>>,
    asked: Option<&Arc<AskedQuery>>,
) -> Result<SendableRecordBatchStream> {
    let watch = Watch::begin(asked.map(Arc::clone));
    let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
    let asks = known.zip(runtime).map(|(known, runtime)| Asks { known: Arc::clone(known), runtime });
    let execution = match asks.filter(|asks| takes_part(plan, &asks.known, asks.runtime)) {
        Some(asks) => {
            let flight = Arc::clone(&asks.known.flight);
            in_flight(asks, move || flight.task()).await?
        }
        None => Execution::begin(state.create_physical_plan(plan).await?, state.task_ctx())?,
    };
    Ok(watched(execution, watch))
}

/// The rows of a query whose statement runs just now, if it has nothing to do but to take them. A plan that gives rows as it reads may leave it
/// to each query to run its own in the end, and has none here.
pub(crate) fn rows_of_others(
    plan: &LogicalPlan,
    known: &Arc<QueryInFlight>,
    asked: Option<&Arc<AskedQuery>>,
) -> Option<SendableRecordBatchStream> {
    let runtime = Handle::try_current().ok()?.id();
    if !takes_part(plan, known, runtime) {
        return None;
    }
    let watch = Watch::begin(asked.map(Arc::clone));
    let sharing = PlanSharing::of(known.flight.session().config());
    let guest = guest_of(known, &sharing, runtime).filter(|_| {
        // A guest has a key.
        known.flight.key().get().is_some_and(|key| sharing.streams(key, runtime))
    })?;
    let rows = guest.taken(&known.flight.task())?;
    let rows = Box::pin(RowsInFlight { rows, _known: Arc::clone(known) });
    Some(watched(Execution { plan: Arc::new(guest), rows }, watch))
}

/// Whether a query that a session planned is just what its statement asks. A plan that asks an index may stand in the place of the statement's
/// own.
fn takes_part(plan: &LogicalPlan, known: &QueryInFlight, runtime: runtime::Id) -> bool {
    known.flight.is_on(runtime) && is_copy(plan, &known.bound.plan)
}

/// The execution of a statement in flight, for one that runs in a context if it does not begin it.
async fn in_flight(asks: Asks, context: impl FnOnce() -> Arc<TaskContext> + Send) -> Result<Execution> {
    let Asks { known, runtime } = asks;
    let sharing = PlanSharing::of(known.flight.session().config());
    let Execution { plan, rows } = match guest_of(&known, &sharing, runtime) {
        Some(guest) => Execution::begin(Arc::new(guest), context())?,
        None => {
            let beginning = known.flight.beginning(|| begins(&known, &sharing));
            let begun = beginning.execution().await;
            known.flight.has_begun(&beginning);
            match begun {
                Some(first) => first?,
                None => taking_part(&known, &sharing, runtime, context()).await?,
            }
        }
    };
    Ok(Execution { plan, rows: Box::pin(RowsInFlight { rows, _known: known }) })
}

/// Who asks a statement in flight.
struct Asks {
    known: Arc<QueryInFlight>,
    runtime: runtime::Id,
}

/// The statement in flight of a query; none if it is not just what the statement asks, or runs otherwise.
fn asks(plan: &LogicalPlan, context: &TaskContext) -> Option<Asks> {
    let known = context.session_config().get_extension::<QueryInFlight>()?;
    let runtime = Handle::try_current().ok()?.id();
    let takes_part = known.flight.serves(context, runtime) && is_copy(plan, &known.bound.plan);
    takes_part.then_some(Asks { known, runtime })
}

/// A query that takes the rows of an execution in flight, if there is one.
fn guest_of(known: &QueryInFlight, sharing: &Arc<PlanSharing>, runtime: runtime::Id) -> Option<SharedExec> {
    let key = known.flight.key().get()?;
    let properties = sharing.in_flight(key, runtime)?;
    let (key, sharing, makes) = (Arc::clone(key), Arc::clone(sharing), planned_later(key));
    let parts = SharedParts { key, sharing, attaches: true, streams: false, makes };
    Some(SharedExec::deferred(parts, properties))
}

/// The execution of a query that others began, and whose rows went to one of them.
async fn taking_part(
    known: &QueryInFlight,
    sharing: &Arc<PlanSharing>,
    runtime: runtime::Id,
    context: Arc<TaskContext>,
) -> Result<Execution> {
    let plan: Arc<dyn ExecutionPlan> = match guest_of(known, sharing, runtime) {
        Some(guest) => Arc::new(guest),
        None => operators(known.flight.session(), &known.bound.plan, known.flight.key(), sharing).await?,
    };
    Execution::begin(plan, context)
}

/// Makes operators and begins them. It knows the statement by parts, which do not keep it in flight.
fn begins(known: &QueryInFlight, sharing: &Arc<PlanSharing>) -> BoxFuture<'static, Arc<Begun>> {
    let (session, plan) = (Arc::clone(known.flight.session()), known.bound.plan.clone());
    let (key, task, sharing) = (Arc::clone(known.flight.key()), known.flight.task(), Arc::clone(sharing));
    async move {
        let made = operators(&session, &plan, &key, &sharing).await;
        Begun::new(made.and_then(|plan| Execution::begin(plan, task)))
    }
    .boxed()
}

/// The operators of a plan, which is optimized unless it was before.
async fn operators(
    session: &SessionState,
    plan: &LogicalPlan,
    key: &OnceLock<Arc<PlanKey>>,
    sharing: &PlanSharing,
) -> Result<Arc<dyn ExecutionPlan>> {
    sharing.statements().count_made();
    let optimized = match key.get() {
        Some(key) => key.plan().clone(),
        None => session.optimize(plan)?,
    };
    if let Some(made) = key_of(&optimized, session) {
        key.get_or_init(|| made);
    }
    session.query_planner().create_physical_plan(&optimized, session).await
}

/// Rows that keep their statement in flight.
struct RowsInFlight {
    rows: SendableRecordBatchStream,
    _known: Arc<QueryInFlight>,
}

impl Stream for RowsInFlight {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.rows.poll_next_unpin(cx)
    }
}

impl RecordBatchStream for RowsInFlight {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

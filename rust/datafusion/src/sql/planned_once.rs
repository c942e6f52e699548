//! Equal statements at the same time, which are planned once.
//!
//! ```text
//! a statement comes ─▶ an equal one is in flight?  no:  plan it, for whoever comes
//!                                                  yes: its tables were looked up after this one came, or are as they were then:
//!                                                         take its plan
//!                                                       otherwise: plan it anew, for whoever comes
//! ```
//!
//! So no statement sees a state of a table that was not the newest one at some time after the statement came. Names are looked up again as
//! tables are: what a name stood for is compared by its place in memory.
//!
//! A statement is in flight as long as somebody plans it, has it, or takes its rows. Nothing of it is kept beyond that, but a plan without
//! states of tables as long as somebody has prepared it.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::Result;
use tokio::runtime::Handle;

use crate::config::{LakemarkOptions, Share};
use crate::plan::share_key::snapshots_of;
use crate::plan::statement_snapshots::{OfStatement, is_within_statement, of_one_statement};
use crate::share::asked::Asked;
use crate::share::bound_query::{BoundQuery, PinnedTable, StatementTables};
use crate::share::prepared_query::PreparedQuery;
use crate::share::registry::PlanSharing;
use crate::share::statements::{Look, Planned, QueryInFlight, StatementRequest, Statements};
use crate::sql::planned::{PlannedStatement, StatementKind};
use crate::sql::planned_again::{kept_of, planned_again};
use crate::sql::schema::is_still;

/// How often a statement looks for an equal one. Whatever it finds when it looks again was planned after it came, unless others that came
/// later took that one out, too.
const LOOKS: usize = 2;

/// A statement that is planned in a state of its session.
pub(super) type InPlanning = BoxFuture<'static, Result<OfStatement<PlannedStatement>>>;

/// What came of a planning, for the one who began it.
type OwnOutcome = Arc<Mutex<Option<Result<PlannedStatement>>>>;

/// How a statement is planned by whoever has to.
#[derive(Clone)]
struct Ways<F> {
    asked: Arc<Asked>,
    /// What is kept of the text, if somebody has prepared it.
    prepared: Option<Arc<PreparedQuery>>,
    /// From the text.
    plans: F,
}

impl<F: Fn(SessionState) -> InPlanning> Ways<F> {
    /// Plans it by the plan that is kept of its text, or else from the text, of which a plan is kept then.
    async fn plan(
        &self,
        session: &Arc<SessionState>,
        statements: &Statements,
    ) -> Result<OfStatement<PlannedStatement>> {
        let kept = self.prepared.as_ref().and_then(|prepared| prepared.plan_in(session));
        if let Some(kept) = kept
            && let Some(again) = planned_again(&kept, session, &self.asked).await
        {
            return Ok(again);
        }
        statements.count_planned();
        let made = (self.plans)(SessionState::clone(session)).await?;
        self.keep(made.planned.query_plan(), &made.tables, session);
        Ok(made)
    }

    /// Keeps the plan of a text that somebody has prepared, unless it was planned with values.
    fn keep(&self, plan: Option<&LogicalPlan>, tables: &StatementTables, session: &Arc<SessionState>) {
        if let Some(prepared) = self.prepared.as_ref().filter(|_| !self.asked.has_values()) {
            prepared.keep(plan.and_then(|plan| kept_of(plan, tables)), session);
        }
    }

    /// The same of a plan that another statement made, if none is kept.
    fn keep_taken(&self, taken: &BoundQuery, session: &Arc<SessionState>) {
        if self.prepared.as_ref().is_some_and(|prepared| prepared.plan_in(session).is_none()) {
            self.keep(Some(&taken.plan), &taken.tables, session);
        }
    }
}

/// A statement, planned by whoever asks it at the same time, or by what is kept of it, or else as `plans` says.
pub(super) async fn plan_once<F>(
    context: &SessionContext,
    asked: Asked,
    prepared: Option<Arc<PreparedQuery>>,
    plans: F,
) -> Result<PlannedStatement>
where
    F: Fn(SessionState) -> InPlanning + Clone + Send + Sync + 'static,
{
    let Some(runtime) = Handle::try_current().ok().filter(|_| may_be_joined(context, &asked)) else {
        return Ok(plans(context.state()).await?.planned);
    };
    let (asked, runtime) = (Arc::new(asked), runtime.id());
    let sharing = PlanSharing::of(context.state_ref().read().config());
    let statements = sharing.statements();
    let ways = Ways { asked: Arc::clone(&asked), prepared, plans };
    let came = statements.tick();
    for _ in 0..LOOKS {
        let own = OwnOutcome::default();
        let request = StatementRequest { asked: &asked, context, runtime };
        let flight = statements
            .join(&request, |session| planning(session, Arc::clone(&sharing), ways.clone(), Arc::clone(&own)));
        let bound = flight.planned().await;
        let outcome = own.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(bound) = bound else {
            statements.forget(&flight);
            match outcome {
                Some(outcome) => return outcome,
                None => break,
            }
        };
        if let Some(planned) = outcome {
            return Ok(planned?.in_flight(QueryInFlight { flight, bound }));
        }
        let session = flight.session();
        if bound.since > came || flight.holds_after(came, || look(&sharing, &bound, session)).await {
            statements.count_taken();
            ways.keep_taken(&bound, session);
            // The session is what it was then, so that nobody needs a copy of it as it is now.
            let planned = PlannedStatement::of_engine(StatementKind::Query, Arc::clone(session), bound.plan.clone());
            return Ok(planned.in_flight(QueryInFlight { flight, bound }));
        }
        statements.forget(&flight);
    }
    Ok(ways.plan(&Arc::new(context.state()), statements).await?.planned)
}

/// Whether others may take part in a statement, as far as that is known before it is planned. Within the planning of another one it would
/// wait for itself if that one is equal.
fn may_be_joined(context: &SessionContext, asked: &Asked) -> bool {
    let may_share = || LakemarkOptions::of(context.state_ref().read().config_options()).share != Share::Off;
    asked.may_be_query() && !is_within_statement() && may_share()
}

/// Plans a statement for all who ask it. Whoever comes first has its own, and what nobody else may have.
fn planning<F>(
    session: Arc<SessionState>,
    sharing: Arc<PlanSharing>,
    ways: Ways<F>,
    own: OwnOutcome,
) -> BoxFuture<'static, Planned>
where
    F: Fn(SessionState) -> InPlanning + Send + Sync + 'static,
{
    async move {
        let statements = sharing.statements();
        let since = statements.tick();
        let (outcome, bound) = match ways.plan(&session, statements).await {
            Ok(OfStatement { planned, tables }) => {
                let bound = bound(&planned, tables, since);
                (Ok(planned), bound)
            }
            Err(error) => (Err(error), None),
        };
        *own.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        bound.map(Arc::new)
    }
    .boxed()
}

/// A query whose rows follow from the states of its tables, all of which were found by their names and are the newest. Others are planned for
/// each who asks them: a function may give something else each time, and a version may be another one by its time.
fn bound(planned: &PlannedStatement, tables: StatementTables, since: u64) -> Option<BoundQuery> {
    let plan = planned.query_plan()?;
    let is_newest = tables.are_newest(&snapshots_of(plan)?);
    is_newest.then(|| BoundQuery { plan: plan.clone(), tables, since })
}

/// A look at what a statement was planned over, for all who came before it begins.
fn look(sharing: &Arc<PlanSharing>, bound: &Arc<BoundQuery>, session: &Arc<SessionState>) -> BoxFuture<'static, Look> {
    let (sharing, bound, session) = (Arc::clone(sharing), Arc::clone(bound), Arc::clone(session));
    async move {
        let since = sharing.statements().tick();
        // A schema of a program may ask for a statement meanwhile, which must not wait for this look.
        let OfStatement { planned: holds, .. } = of_one_statement(still_holds(&bound.tables, &session)).await;
        Look { since, holds }
    }
    .boxed()
}

/// Whether names and tables are now as a statement found them.
async fn still_holds(tables: &StatementTables, state: &SessionState) -> bool {
    for name in &tables.names {
        if !is_still(state, name, &tables.found).await {
            return false;
        }
    }
    for PinnedTable { table, snapshot } in &tables.pinned {
        match table.snapshot().await {
            Ok(newest) if newest.is_same_state(snapshot) => {}
            // Its own planning says what is wrong.
            _ => return false,
        }
    }
    true
}

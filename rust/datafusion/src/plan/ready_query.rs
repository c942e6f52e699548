//! Queries that are ready to run: a plan and the state of a session that it runs in, which many of them may have.
//!
//! A [`DataFrame`] has a copy of the session of its own, with its hundreds of functions. A server has thousands of queries whose clients come
//! for their rows in a moment, and none of them is changed before it runs.

use std::fmt;
use std::future::pending;
use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::dataframe::DataFrame;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;

use crate::erased::Erased;
use crate::plan::begun_once::{rows_of, rows_of_others, rows_of_planned};
use crate::plan::slow_queries::AskedQuery;
use crate::share::statements::{QueryInFlight, StatementId};

/// A query that was planned, and runs as soon as its rows are asked for. It may be run several times.
#[derive(Clone)]
pub struct ReadyQuery(Erased<Form>);

#[derive(Clone)]
enum Form {
    /// The report of what was done, or a query that was built.
    Frame(DataFrame),
    /// A plan as a session made it.
    Planned(PlannedQuery),
}

/// A query as a session planned it.
#[derive(Clone)]
pub(crate) struct PlannedQuery {
    /// What the session was.
    pub(crate) state: Arc<SessionState>,
    pub(crate) plan: LogicalPlan,
    /// The statement in flight, if others may ask it, too.
    pub(crate) in_flight: Option<Arc<QueryInFlight>>,
    /// What was asked, if the session logs slow queries.
    pub(crate) asked: Option<Arc<AskedQuery>>,
}

impl ReadyQuery {
    pub(crate) fn of_frame(frame: DataFrame) -> Self {
        Self(Erased::new(Form::Frame(frame)))
    }

    pub(crate) fn of_plan(query: PlannedQuery) -> Self {
        Self(Erased::new(Form::Planned(query)))
    }

    /// Its plan, in which an index may stand in the place of a part.
    #[must_use]
    pub fn plan(&self) -> &LogicalPlan {
        match &*self.0 {
            Form::Frame(frame) => frame.logical_plan(),
            Form::Planned(query) => &query.plan,
        }
    }

    /// The columns of its rows.
    #[must_use]
    pub fn schema(&self) -> &DFSchema {
        match &*self.0 {
            Form::Frame(frame) => frame.schema(),
            Form::Planned(query) => query.plan.schema(),
        }
    }

    /// Its rows, as [`rows_of`] gives those of a [`DataFrame`].
    ///
    /// # Errors
    /// Those of planning the query.
    pub async fn rows(&self) -> Result<SendableRecordBatchStream> {
        match &*self.0 {
            Form::Frame(frame) => rows_of(frame).await,
            Form::Planned(PlannedQuery { state, plan, in_flight, asked }) => {
                rows_of_planned(state, plan, in_flight.as_ref(), asked.as_ref()).await
            }
        }
    }

    /// Which statement in flight it is of; none of a query that nobody else asks.
    #[must_use]
    pub fn statement(&self) -> Option<StatementId> {
        match &*self.0 {
            Form::Planned(PlannedQuery { in_flight: Some(known), .. }) => Some(known.flight.id()),
            _ => None,
        }
    }

    /// Its rows as soon as others compute them and it has nothing to do but to take these, with what `may` gives for the statement. This does
    /// not end before they do, and before that gives something.
    ///
    /// A program that limits how many plans run at a time needs no limit for such a query. It runs its own plan in the end all the same if that
    /// of the others fails before it gave a row, or if neither memory nor disk keeps what it did not take in time.
    pub async fn rows_of_others<T: Send>(
        &self,
        may: impl Fn(StatementId) -> Option<T> + Send,
    ) -> (T, SendableRecordBatchStream) {
        let Form::Planned(PlannedQuery { plan, in_flight: Some(known), asked, .. }) = &*self.0 else {
            return pending().await;
        };
        let takes = move || {
            let given = may(known.flight.id())?;
            Some((given, rows_of_others(plan, known, asked.as_ref())?))
        };
        known.flight.as_it_begins(takes).await
    }

    /// The query with a copy of its session, which a program may change.
    #[must_use]
    pub fn into_frame(self) -> DataFrame {
        match self.0.into_inner() {
            Form::Frame(frame) => frame,
            Form::Planned(PlannedQuery { state, plan, in_flight, asked }) => {
                let mut state = Arc::unwrap_or_clone(state);
                if let Some(in_flight) = in_flight {
                    state.config_mut().set_extension(in_flight);
                }
                if let Some(asked) = asked {
                    state.config_mut().set_extension(asked);
                }
                DataFrame::new(state, plan)
            }
        }
    }
}

impl From<DataFrame> for ReadyQuery {
    fn from(frame: DataFrame) -> Self {
        Self::of_frame(frame)
    }
}

impl fmt::Debug for ReadyQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyQuery").field("schema", self.schema()).finish_non_exhaustive()
    }
}

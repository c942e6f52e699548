//! What a session keeps of the queries that are prepared, so that a run of one is not planned from its text.
//!
//! A registry keeps nothing alive: what is kept goes with the last one who prepared the text. It has no state of a table, so that a query that
//! nobody runs for hours costs no memory but that of its plan, and holds up nobody who removes old files.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;

use super::alike::plan_alike;
use super::bound_query::FoundTable;
use crate::erased::Erased;

/// The plan of a query, which each run has to bind.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    /// Not optimized. Tables have no state, and parameters no value.
    pub(crate) plan: LogicalPlan,
    /// How many parameters it has. They are called by numbers, from 1 on.
    pub(crate) parameters: usize,
    /// The names that the query has.
    pub(crate) names: Vec<TableReference>,
    /// What these and others were found to be.
    pub(crate) found: Vec<FoundTable>,
}

/// The queries that somebody has prepared in a session.
pub(crate) struct PreparedQueries(Registry);

type Registry = Erased<Arc<Mutex<Known>>>;

#[derive(Default)]
struct Known {
    queries: HashMap<Arc<str>, Weak<PreparedQuery>>,
    /// What the session was as a plan was kept last. Plans have one copy of it, as it is one of hundreds of functions.
    session: Weak<SessionState>,
}

/// A query that somebody has prepared. As long as this is there, its text is not planned again to run it.
///
/// It holds no state of a table: each run sees the newest ones.
pub struct PreparedQuery {
    text: Arc<str>,
    kept: Mutex<Option<Erased<Kept>>>,
    registry: Registry,
}

/// A plan, and what the session was as it was made.
#[derive(Clone)]
struct Kept {
    plan: Arc<KeptPlan>,
    session: Arc<SessionState>,
}

impl Default for PreparedQueries {
    fn default() -> Self {
        Self(Erased::new(Arc::default()))
    }
}

impl PreparedQueries {
    /// The query of a text, of which nothing may be kept yet.
    pub(crate) fn of(&self, text: &str) -> Arc<PreparedQuery> {
        let mut known = lock(&self.0);
        if let Some(query) = known.queries.get(text).and_then(Weak::upgrade) {
            return query;
        }
        let query = PreparedQuery { text: text.into(), kept: Mutex::default(), registry: self.0.clone() };
        let query = Arc::new(query);
        known.queries.insert(Arc::clone(&query.text), Arc::downgrade(&query));
        query
    }

    /// The same, if somebody has prepared it.
    pub(crate) fn known(&self, text: &str) -> Option<Arc<PreparedQuery>> {
        lock(&self.0).queries.get(text).and_then(Weak::upgrade)
    }
}

impl PreparedQuery {
    /// Whether a plan is kept: not of what changes something, nor of a query whose plan may be another one each time.
    #[must_use]
    pub fn has_plan(&self) -> bool {
        self.kept().is_some()
    }

    /// The plan that is kept, if it is what the session plans of the text now.
    pub(crate) fn plan_in(&self, session: &SessionState) -> Option<Arc<KeptPlan>> {
        let kept = self.kept().clone()?;
        plan_alike(&kept.session, session).then(|| Arc::clone(&kept.plan))
    }

    /// Keeps a plan that a session made, or nothing any more.
    pub(crate) fn keep(&self, plan: Option<KeptPlan>, session: &Arc<SessionState>) {
        let kept = plan.map(|plan| Erased::new(Kept { plan: Arc::new(plan), session: self.copy_of(session) }));
        let before = std::mem::replace(&mut *self.kept(), kept);
        // It goes where nothing is locked.
        drop(before);
    }

    fn kept(&self) -> MutexGuard<'_, Option<Erased<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The copy of a session that other plans have, if it is the same.
    fn copy_of(&self, session: &Arc<SessionState>) -> Arc<SessionState> {
        let last = lock(&self.registry).session.upgrade();
        if let Some(last) = last.filter(|last| plan_alike(last, session)) {
            return last;
        }
        lock(&self.registry).session = Arc::downgrade(session);
        Arc::clone(session)
    }
}

fn lock(registry: &Registry) -> MutexGuard<'_, Known> {
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for PreparedQuery {
    fn drop(&mut self) {
        let mut known = lock(&self.registry);
        // Somebody else may have prepared the text meanwhile.
        if known.queries.get(&self.text).is_some_and(|query| query.strong_count() == 0) {
            known.queries.remove(&self.text);
        }
    }
}

impl fmt::Debug for PreparedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQuery").field("text", &self.text).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    fn plan() -> Option<KeptPlan> {
        let plan = LogicalPlanBuilder::empty(true).build().unwrap();
        Some(KeptPlan { plan, parameters: 0, names: Vec::new(), found: Vec::new() })
    }

    #[test]
    fn all_who_prepare_a_text_have_one_query_and_with_the_last_of_them_it_goes() {
        let queries = PreparedQueries::default();
        let [one, same, other] = ["SELECT 1", "SELECT 1", "SELECT 2"].map(|text| queries.of(text));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop(one);
        assert!(queries.known("SELECT 1").is_some_and(|known| Arc::ptr_eq(&known, &same)));
        drop(same);
        assert!(queries.known("SELECT 1").is_none());
        assert_eq!(lock(&queries.0).queries.len(), 1);
        drop(other);
        assert!(lock(&queries.0).queries.is_empty());
    }

    #[test]
    fn a_plan_is_kept_for_a_session_that_is_the_same_and_all_plans_have_one_copy_of_it() {
        let queries = PreparedQueries::default();
        let [one, other] = ["SELECT 1", "SELECT 2"].map(|text| queries.of(text));
        let context = SessionContext::new();
        let [first, later] = [(); 2].map(|()| Arc::new(context.state()));
        assert!(one.plan_in(&first).is_none());
        one.keep(plan(), &first);
        other.keep(plan(), &later);
        assert!(one.plan_in(&later).is_some());
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&later)), (3, 1));
        let set = SessionContext::new_with_config(SessionConfig::new().with_batch_size(7));
        assert!(one.plan_in(&set.state()).is_none());
        one.keep(None, &first);
        assert!(one.plan_in(&first).is_none() && other.plan_in(&first).is_some());
    }
}

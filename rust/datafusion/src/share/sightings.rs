//! Which parts of plans are in different queries that run just now.
//!
//! A part that only ever comes in one and the same query gains nothing: that query is shared as a whole. Nor does one whose queries come
//! one after the other. So a part is shared if another query has it that began a moment ago, and a query alone stays as it was planned.
//! A query that began earlier has made the part for itself, and says nothing of who comes next.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::key::PlanKey;

/// Parts that are remembered. What is forgotten is shared later.
const MOST_PARTS: usize = 4096;

/// How long ago a query began at most that others share parts with.
const RECENT_SECONDS: f64 = 2.0;

/// Parts by the hashes of their keys, each with the last two different queries that had it. A query is there as long as its plan.
#[derive(Debug)]
pub(crate) struct Sightings {
    parts: Mutex<HashMap<u64, Vec<Weak<PlanKey>>>>,
    recent_seconds: f64,
}

impl Default for Sightings {
    fn default() -> Self {
        Self::within(RECENT_SECONDS)
    }
}

impl Sightings {
    /// None so far. Those of a query count for so long.
    pub(super) fn within(recent_seconds: f64) -> Self {
        Self { parts: Mutex::default(), recent_seconds }
    }

    /// Whether another query has the part that began a moment ago, of those that may share with this one. Remembers that this one has it.
    pub(crate) fn has_another(&self, part: u64, query: &Arc<PlanKey>) -> bool {
        // Plans that end meanwhile end here, where nothing is locked.
        let seen = self.see(part, query);
        let is_recent = |other: &Arc<PlanKey>| other.age_seconds() < self.recent_seconds;
        seen.iter().any(|other| !is_equal_query(other, query) && is_recent(other) && other.may_share_with(query))
    }

    /// The queries that had the part before, as far as they are there.
    fn see(&self, part: u64, query: &Arc<PlanKey>) -> Vec<Arc<PlanKey>> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() >= MOST_PARTS && !parts.contains_key(&part) {
            parts.retain(|_, queries| queries.iter().any(|query| query.strong_count() > 0));
            if parts.len() >= MOST_PARTS {
                return Vec::new();
            }
        }
        let queries = parts.entry(part).or_default();
        let seen: Vec<Arc<PlanKey>> = queries.iter().filter_map(Weak::upgrade).collect();
        let other = seen.iter().find(|other| !is_equal_query(other, query));
        *queries = std::iter::once(query).chain(other).map(Arc::downgrade).collect();
        seen
    }
}

/// Whether both are the same question, of whatever state of the tables.
fn is_equal_query(one: &Arc<PlanKey>, other: &Arc<PlanKey>) -> bool {
    one.hash_code() == other.hash_code()
}

#[cfg(test)]
mod tests {
    use datafusion::common::DFSchema;
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::logical_expr::{EmptyRelation, LogicalPlan};

    use super::*;

    fn query(produce_one_row: bool, runtime: &Arc<RuntimeEnv>) -> Arc<PlanKey> {
        let empty = EmptyRelation { produce_one_row, schema: Arc::new(DFSchema::empty()) };
        Arc::new(PlanKey::without_tables(LogicalPlan::EmptyRelation(empty), runtime))
    }

    #[test]
    fn a_part_is_one_of_another_query_as_long_as_that_has_a_plan() {
        let (sightings, runtime) = (Sightings::default(), Arc::new(RuntimeEnv::default()));
        let (one, same, other) = (query(true, &runtime), query(true, &runtime), query(false, &runtime));
        assert!(!sightings.has_another(1, &one));
        assert!(!sightings.has_another(1, &same));
        assert!(!sightings.has_another(2, &other));
        assert!(sightings.has_another(1, &other));
        assert!(sightings.has_another(1, &one));
        drop(other);
        assert!(!sightings.has_another(1, &one));
    }

    #[test]
    fn a_query_that_began_earlier_made_the_part_for_itself() {
        let (sightings, runtime) = (Sightings::within(0.0), Arc::new(RuntimeEnv::default()));
        let (one, other) = (query(true, &runtime), query(false, &runtime));
        assert!(!sightings.has_another(1, &one));
        assert!(!sightings.has_another(1, &other));
    }

    #[test]
    fn queries_of_different_runtimes_have_nothing_in_common() {
        let sightings = Sightings::default();
        let (one, other) = (query(true, &Arc::default()), query(false, &Arc::default()));
        assert!(!sightings.has_another(1, &one));
        assert!(!sightings.has_another(1, &other));
    }
}

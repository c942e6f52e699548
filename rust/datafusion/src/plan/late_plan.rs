//! Physical plans that are made when they are needed, if ever.

use std::sync::Arc;

use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use futures::FutureExt;

use crate::share::key::{PlanKey, PlanSession};
use crate::share::operator::MakesPlan;

/// Makes the physical plan of a key when it is needed.
pub(super) fn planned_later(key: &Arc<PlanKey>) -> MakesPlan {
    let key = Arc::clone(key);
    Arc::new(move || {
        let key = Arc::clone(&key);
        async move {
            let state = planning_state(key.session());
            DefaultPhysicalPlanner::default().create_physical_plan(key.plan(), &state).await
        }
        .boxed()
    })
}

/// A session that makes the physical plans which another one makes. It knows neither its tables nor its functions.
fn planning_state(session: &PlanSession) -> SessionState {
    let builder = SessionStateBuilder::new()
        .with_config(session.config.clone())
        .with_runtime_env(Arc::clone(&session.runtime))
        .with_physical_optimizer_rules(session.rules.clone())
        .with_execution_props(session.execution.clone());
    match session.statistics.clone() {
        Some(statistics) => builder.with_statistics_registry(statistics).build(),
        None => builder.build(),
    }
}

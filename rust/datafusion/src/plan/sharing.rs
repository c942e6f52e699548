//! The planner of queries: DataFusion's, with equal plans in flight in the place of their own.
//!
//! Whoever plans a query while an equal one runs takes its batches, and makes no physical plan. `EXPLAIN` shows plans as they are without
//! others. `EXPLAIN ANALYZE` runs its own plan, so that all operators tell what the query costs; others may take its batches.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::{ExecutionPlan, PlanProperties};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use tokio::runtime::Handle;

use crate::config::{LakemarkOptions, Share};
use crate::plan::late_plan::planned_later;
use crate::plan::pivots::{PivotPlanner, Pivots};
use crate::plan::share_key::key_of;
use crate::share::key::PlanKey;
use crate::share::operator::{SharedExec, SharedParts};
use crate::share::registry::PlanSharing;

/// Plans queries as DataFusion does, and lets equal ones share an execution.
#[derive(Debug)]
pub(crate) struct SharingPlanner;

#[async_trait]
impl QueryPlanner for SharingPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::default();
        let (query, attaches) = match plan {
            LogicalPlan::Analyze(analyze) => (analyze.input.as_ref(), false),
            query => (query, true),
        };
        let state = session.as_any().downcast_ref::<SessionState>();
        let Some((state, key)) = state.and_then(|state| Some((state, key_of(query, state)?))) else {
            return planner.create_physical_plan(plan, session).await;
        };
        let (sharing, makes) = (PlanSharing::of(state.config()), planned_later(&key));
        let parts = SharedParts { key, sharing, attaches, streams: false, makes };
        if let Some(properties) = in_flight(&parts.sharing, &parts.key).filter(|_| attaches) {
            return Ok(Arc::new(SharedExec::deferred(parts, properties)));
        }
        if !attaches {
            return analyzed(planner.create_physical_plan(plan, session).await?, parts);
        }
        let pivots = Pivots { sharing: &parts.sharing, query: &parts.key };
        let marked = pivots.marked(query)?;
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(PivotPlanner)]);
        let planned = planner.create_physical_plan(marked.as_ref().unwrap_or(query), session).await?;
        Ok(Arc::new(SharedExec::planned(parts, planned)))
    }
}

/// The state of a session for plans that are not to be shared: those whose rows go into a table.
pub(crate) fn unshared(mut state: SessionState) -> SessionState {
    if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<LakemarkOptions>() {
        options.share = Share::Off;
    }
    state
}

/// How the output of an equal plan looks that runs just now.
fn in_flight(sharing: &PlanSharing, key: &PlanKey) -> Option<Arc<PlanProperties>> {
    sharing.in_flight(key, Handle::try_current().ok()?.id())
}

/// The plan below `EXPLAIN ANALYZE` as one that others may share.
fn analyzed(plan: Arc<dyn ExecutionPlan>, parts: SharedParts) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(analyze) = plan.downcast_ref::<AnalyzeExec>() else { return Ok(plan) };
    let shared = SharedExec::planned(parts, Arc::clone(analyze.input()));
    replace_children_if_necessary(plan, vec![Arc::new(shared)])
}

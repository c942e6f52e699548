//! Where the plans of changes are made: by whoever runs them, or in a place that the session names.
//!
//! A query is planned when its rows are asked for, which its caller can do wherever it likes. A change is planned and made in one call.

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::Result;

use crate::error::from_engine;

/// A plan that is made as it is polled.
pub type PlanInTheMaking = BoxFuture<'static, Result<Arc<dyn ExecutionPlan>>>;

/// Where the plans of what changes read are made, as an extension of the configuration of a session (`SessionConfig::with_extension`). A
/// server has threads for this, and a limit of time. A change that gets an error in the place of a plan is not made.
pub struct PlanningPlace(Box<dyn Fn(PlanInTheMaking) -> PlanInTheMaking + Send + Sync>);

impl PlanningPlace {
    /// A place that has each plan made, or refuses it.
    #[must_use]
    pub fn new(make: impl Fn(PlanInTheMaking) -> PlanInTheMaking + Send + Sync + 'static) -> Self {
        Self(Box::new(make))
    }
}

/// The operators of a plan, made in the place that the session names.
pub(crate) async fn operators_of(state: &SessionState, plan: LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let place = state.config().get_extension::<PlanningPlace>();
    let state = state.clone();
    let made = async move { state.create_physical_plan(&plan).await.map_err(from_engine) }.boxed();
    match place {
        Some(place) => (place.0)(made).await,
        None => made.await,
    }
}

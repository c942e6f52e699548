//! What two queries must have in common to share an execution.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::operator_statistics::StatisticsRegistry;
use datafusion::prelude::SessionConfig;
use lakemark_table::{Snapshot, Stopwatch};

use super::settings::has_same_settings;

/// Who a session acts for, as an extension of its configuration (`SessionConfig::with_extension`). Queries of different principals, and
/// those of a principal and of a session without one, share nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal(pub Arc<str>);

/// What an execution depends on.
///
/// DataFusion compares scans without their tables, and functions may say of themselves that they are equal. So the snapshots are compared
/// beside the plan, and functions by their places in memory, where the plans keep them. Literals are equal for DataFusion whatever their
/// time zones. So their types are compared as well.
#[derive(Debug)]
pub(crate) struct PlanKey {
    parts: KeyParts,
    /// Who the session acts for.
    principal: Option<Arc<Principal>>,
    /// Runs since the plan was about to be made.
    planned: Stopwatch,
}

/// What a key is made of.
#[derive(Debug)]
pub(crate) struct KeyParts {
    /// The optimized plan, in which the time of day is a literal.
    pub(crate) plan: LogicalPlan,
    /// A hash that equal plans have, and few others.
    pub(crate) shape: u64,
    /// The snapshots of its scans, in the order in which the plan is walked.
    pub(crate) snapshots: Vec<Arc<Snapshot>>,
    /// Where its functions are, in the same order.
    pub(crate) functions: Vec<usize>,
    /// Types of its literals that say more than the values do, in the same order.
    pub(crate) types: Vec<DataType>,
    /// The session of the query.
    pub(crate) session: Arc<PlanSession>,
}

/// What of a session its physical plans are made of. It is all that planning needs besides the plan, which has its functions and tables. A
/// copy of the session itself would be one of hundreds of functions.
#[derive(Clone, Debug)]
pub(crate) struct PlanSession {
    /// Its settings, and what it was told besides.
    pub(crate) config: SessionConfig,
    /// Its memory, its disk and its object stores.
    pub(crate) runtime: Arc<RuntimeEnv>,
    /// What is done to a physical plan. A rule may do more than it should: leave out rows, or show others.
    pub(crate) rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
    /// When the statement began.
    pub(crate) execution: ExecutionProps,
    /// What is known of the rows of operators besides what they say.
    pub(crate) statistics: Option<StatisticsRegistry>,
}

impl PlanKey {
    pub(crate) fn new(parts: KeyParts) -> Self {
        let principal = parts.session.config.get_extension::<Principal>();
        Self { parts, principal, planned: Stopwatch::start() }
    }

    /// Equal keys have equal ones, and few others have.
    pub(crate) fn hash_code(&self) -> u64 {
        self.parts.shape
    }

    /// Whether a plan of this one's session may be equal to one of the other's, as far as their sessions go.
    pub(crate) fn may_share_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parts.session.runtime, &other.parts.session.runtime) && self.principal == other.principal
    }

    /// How long ago the plan was about to be made.
    pub(crate) fn age_seconds(&self) -> f64 {
        self.planned.seconds()
    }

    /// The plan.
    pub(crate) fn plan(&self) -> &LogicalPlan {
        &self.parts.plan
    }

    /// The session of the query.
    pub(crate) fn session(&self) -> &Arc<PlanSession> {
        &self.parts.session
    }
}

impl PartialEq for PlanKey {
    fn eq(&self, other: &Self) -> bool {
        let (one, other_parts) = (&self.parts, &other.parts);
        one.shape == other_parts.shape
            && self.may_share_with(other)
            && one.functions == other_parts.functions
            && one.types == other_parts.types
            && is_same_states(&one.snapshots, &other_parts.snapshots)
            && one.plan == other_parts.plan
            && plans_alike(&one.session, &other_parts.session)
    }
}

/// Whether two sessions make the same physical plan of a plan.
fn plans_alike(one: &PlanSession, other: &PlanSession) -> bool {
    let has_same_rules = one.rules.len() == other.rules.len()
        && one.rules.iter().zip(&other.rules).all(|(one, other)| Arc::ptr_eq(one, other));
    has_same_rules && has_same_settings(one.config.options(), other.config.options())
}

fn is_same_states(one: &[Arc<Snapshot>], other: &[Arc<Snapshot>]) -> bool {
    let is_same = |(one, other): (&Arc<Snapshot>, &Arc<Snapshot>)| Arc::ptr_eq(one, other) || one.is_same_state(other);
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

#[cfg(test)]
impl PlanKey {
    /// That of a plan without tables, in a session of this runtime.
    pub(crate) fn without_tables(plan: LogicalPlan, runtime: &Arc<RuntimeEnv>) -> Self {
        let session = Arc::new(PlanSession {
            config: SessionConfig::new(),
            runtime: Arc::clone(runtime),
            rules: Vec::new(),
            execution: ExecutionProps::new(),
            statistics: None,
        });
        let shape = u64::from(matches!(&plan, LogicalPlan::EmptyRelation(empty) if empty.produce_one_row));
        let (snapshots, functions, types) = (Vec::new(), Vec::new(), Vec::new());
        Self::new(KeyParts { plan, shape, snapshots, functions, types, session })
    }
}

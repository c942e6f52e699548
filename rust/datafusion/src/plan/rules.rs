//! The optimizer rules of our sessions: DataFusion's with ours among them.
//!
//! All of ours but [`IndexAggregates`], [`IndexJoins`], [`JoinKeys`], [`LastCasts`], [`NotIn`], [`OuterJoins`], [`StarJoins`], [`TopRows`]
//! and [`Views`] mend wrong answers of DataFusion 55, of any table. `docs/limits.md` has the statements. Tests that carry the statements
//! say when DataFusion answers them as it should.

mod barriers;
mod in_lists;
mod index_joins;
mod inexact;
mod join_keys;
mod last_casts;
mod normalize_comparisons;
mod not_in;
mod outer_joins;
mod pushdown;
mod sort_limits;
mod star_joins;
mod top_rows;
mod views;

use std::sync::{Arc, LazyLock};

use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::analyzer::{Analyzer, AnalyzerRule};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;

use crate::exec::index_aggregate::IndexAggregates;
use barriers::Barriers;
use in_lists::InLists;
use index_joins::IndexJoins;
use inexact::Inexact;
use join_keys::JoinKeys;
use last_casts::LastCasts;
use normalize_comparisons::NormalizeComparisons;
use not_in::NotIn;
use outer_joins::OuterJoins;
pub use pushdown::PositionalPushdown;
use sort_limits::SortLimits;
use star_joins::StarJoins;
use top_rows::TopRows;
use views::Views;

/// A physical plan, or a part of one.
type PlanRef = Arc<dyn ExecutionPlan>;

/// A rule for physical plans.
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Bytes of the build side of a join that every partition probes whole, unless `datafusion.optimizer.hash_join_single_partition_threshold`
/// is set. DataFusion's own limit of 1 MiB is for sides whose bytes it knows; where it knows rows alone, 128 Ki are few enough, and four
/// columns of these take 4 MiB. The bytes of our sides are known, so that the same side would be taken for large: TPC-DS at scale 1 takes
/// 3% less time with the larger limit.
pub(crate) const BUILD_SIDE_BYTES: usize = 4 << 20;

/// Rules for plans as they were written.
pub(crate) fn analyzer() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules = Analyzer::new().rules;
    // Behind the coercion of types.
    rules.push(Arc::new(Views));
    rules
}

/// Rules for logical plans.
pub(crate) fn logical() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    // `push_down_filter` chooses among bounds of a column.
    let place = rules.iter().position(|rule| rule.name() == "push_down_filter").unwrap_or(rules.len());
    rules.insert(place, Arc::new(NormalizeComparisons));
    rules.insert(0, Arc::new(InLists));
    rules
}

/// Rules for physical plans. All sessions have the same ones in memory, by which queries know that their sessions do the same to a plan.
pub(crate) fn physical() -> Vec<PhysicalRule> {
    static RULES: LazyLock<Vec<PhysicalRule>> = LazyLock::new(new_physical);
    RULES.clone()
}

fn new_physical() -> Vec<PhysicalRule> {
    let mut rules = PhysicalOptimizer::new().rules;
    PositionalPushdown::replace(&mut rules);
    let place_of = |rules: &[PhysicalRule], name: &str| rules.iter().position(|rule| rule.name() == name);
    let filters = place_of(&rules, "FilterPushdown(Post)");
    let behind = filters.map_or(rules.len(), |place| place + 1);
    rules.insert(behind, Arc::new(TopRows));
    // Joins that have no filter for a scan.
    rules.insert(behind, Arc::new(IndexJoins));
    rules.insert(behind, Arc::new(JoinKeys));
    let statistics = place_of(&rules, "aggregate_statistics");
    // What statistics answer is answered, and aggregates know after how many groups they may end. Partial and final ones still follow each
    // other.
    let limited = place_of(&rules, "LimitedDistinctAggregation").max(statistics);
    rules.insert(limited.map_or(rules.len(), |place| place + 1), Arc::new(IndexAggregates));
    rules.insert(statistics.unwrap_or(0), Arc::new(Inexact));
    let joins = place_of(&rules, "join_selection").unwrap_or(0);
    rules.insert((joins + 1).min(rules.len()), Arc::new(StarJoins));
    rules.insert((joins + 1).min(rules.len()), Arc::new(OuterJoins));
    rules.insert(joins, Arc::new(NotIn));
    // `EnsureRequirements` goes by what is known of rows, and moves limits.
    let requirements = place_of(&rules, "EnsureRequirements").unwrap_or(0);
    rules.insert(requirements, Arc::new(Barriers));
    rules.insert(requirements, Arc::new(SortLimits));
    rules.insert(requirements, Arc::new(LastCasts));
    rules
}

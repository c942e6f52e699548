//! Whether a session plans a statement now as it did a moment ago.
//!
//! All that a program can change of a session in place is compared: whoever plans goes by nothing else. Tables and views are not, as they are
//! looked up for each statement.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::execution::{SessionState, TaskContext};
use datafusion::prelude::SessionConfig;

use super::key::Principal;
use super::settings::has_same_settings;

/// Whether two states of one session make the same plan of a statement, if its names mean the same.
pub(super) fn plan_alike(one: &SessionState, other: &SessionState) -> bool {
    Arc::ptr_eq(one.runtime_env(), other.runtime_env())
        && Arc::ptr_eq(one.catalog_list(), other.catalog_list())
        && Arc::ptr_eq(one.query_planner(), other.query_planner())
        && have_same_rules(one, other)
        && know_same_functions(one, other)
        && say_the_same(one.config(), other.config())
}

/// Whether a query that runs like this runs as one of a session does.
pub(super) fn run_alike(context: &TaskContext, session: &SessionState) -> bool {
    Arc::ptr_eq(&context.runtime_env(), session.runtime_env())
        && say_the_same(context.session_config(), session.config())
}

fn say_the_same(one: &SessionConfig, other: &SessionConfig) -> bool {
    one.get_extension::<Principal>() == other.get_extension::<Principal>()
        && has_same_settings(one.options(), other.options())
}

fn have_same_rules(one: &SessionState, other: &SessionState) -> bool {
    are_same(one.expr_planners(), other.expr_planners())
        && are_same(one.relation_planners(), other.relation_planners())
        && are_same(&one.analyzer().function_rewrites, &other.analyzer().function_rewrites)
        && are_same(&one.analyzer().rules, &other.analyzer().rules)
        && are_same(one.optimizers(), other.optimizers())
        && are_same(one.physical_optimizers(), other.physical_optimizers())
}

fn know_same_functions(one: &SessionState, other: &SessionState) -> bool {
    name_same(one.scalar_functions(), other.scalar_functions())
        && name_same(one.higher_order_functions(), other.higher_order_functions())
        && name_same(one.aggregate_functions(), other.aggregate_functions())
        && name_same(one.window_functions(), other.window_functions())
        && name_same(one.table_functions(), other.table_functions())
}

/// Whether both are the same objects in memory.
fn are_same<T: ?Sized>(one: &[Arc<T>], other: &[Arc<T>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
}

fn name_same<T>(one: &HashMap<String, Arc<T>>, other: &HashMap<String, Arc<T>>) -> bool {
    let is_there = |(name, one): (&String, &Arc<T>)| other.get(name).is_some_and(|other| Arc::ptr_eq(one, other));
    one.len() == other.len() && one.iter().all(is_there)
}

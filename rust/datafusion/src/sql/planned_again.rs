//! Prepared queries that are run: the plan of the text is bound to what its names, tables and parameters are now.
//!
//! ```text
//! SELECT … FROM t WHERE k = $1    prepared ─▶ plan over t, without its state
//! run with 7                      t is what it was, and has these columns ─▶ plan over the newest state of t, with 7
//!                                 otherwise                               ─▶ none: the text is planned
//! ```
//!
//! What comes of it is what planning the text would give, and it is looked up as late. So it takes part in all that equal statements share.

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;

use crate::plan::share_key::snapshots_of_prepared;
use crate::plan::statement_snapshots::{OfStatement, of_one_statement};
use crate::plan::unpinned::{over_newest, unpinned};
use crate::share::asked::Asked;
use crate::share::bound_query::StatementTables;
use crate::share::prepared_query::KeptPlan;
use crate::sql::parameters::bound;
use crate::sql::planned::{PlannedStatement, StatementKind};
use crate::sql::schema::is_still;

/// What is kept of a query that was planned without values; none if it may be another plan the next time.
pub(super) fn kept_of(plan: &LogicalPlan, tables: &StatementTables) -> Option<KeptPlan> {
    if !tables.are_newest(&snapshots_of_prepared(plan)?) {
        return None;
    }
    let called = plan.get_parameter_names().ok()?;
    let parameters = called.len();
    if !(1..=parameters).all(|place| called.contains(&format!("${place}"))) {
        return None;
    }
    let plan = unpinned(plan.clone()).ok()?;
    Some(KeptPlan { plan, parameters, names: tables.names.clone(), found: tables.found.clone() })
}

/// A statement of whose text a plan is kept. None if the text has to be planned, which says what is wrong, too.
pub(super) async fn planned_again(
    kept: &KeptPlan,
    state: &Arc<SessionState>,
    asked: &Asked,
) -> Option<OfStatement<PlannedStatement>> {
    let values = match asked.has_values() {
        true => Some(asked.values_by_place().filter(|values| values.len() == kept.parameters)?),
        false => None,
    };
    // A schema of a program may ask for a statement meanwhile, which must not wait for this one.
    let OfStatement { planned, mut tables } = of_one_statement(async {
        for name in &kept.names {
            if !is_still(state, name, &kept.found).await {
                return None;
            }
        }
        over_newest(&kept.plan).await.ok().flatten()
    })
    .await;
    let plan = match values {
        Some(values) => bound(planned?, values).ok()?,
        None => planned?,
    };
    (tables.names, tables.found) = (kept.names.clone(), kept.found.clone());
    Some(OfStatement { planned: PlannedStatement::of_engine(StatementKind::Query, Arc::clone(state), plan), tables })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Weak;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use lakemark_table::{Snapshot, Table, TableOptions};
    use parquet::arrow::ArrowWriter;
    use tempfile::TempDir;

    use super::*;
    use crate::plan::ready_query::PlannedQuery;
    use crate::sql::planned::Work;
    use crate::sql::session::LakemarkSession;

    /// A session that knows a table of ten numbers as `t`.
    async fn session(folder: &TempDir) -> LakemarkSession {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let file = File::create(folder.path().join("part-0.parquet")).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let table = Table::open(&folder.path().display().to_string(), TableOptions::default()).await.unwrap();
        let session = LakemarkSession::new();
        session.register("t", table).await.unwrap();
        session
    }

    #[tokio::test]
    async fn what_is_kept_of_a_query_holds_no_state_of_its_tables() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder).await;
        let text = "SELECT sum(n) FROM t WHERE n > (SELECT min(n) FROM t)";
        let (planned, prepared) = session.prepare(text).await.unwrap();
        let states: Vec<Weak<Snapshot>> =
            snapshots_of_prepared(planned.query_plan().unwrap()).unwrap().iter().map(Arc::downgrade).collect();
        assert!(!states.is_empty() && states.iter().all(|state| state.strong_count() > 0));
        drop(planned);
        assert!(states.iter().all(|state| state.strong_count() == 0));
        assert!(prepared.plan_in(&session.context().state()).is_some());
    }

    #[tokio::test]
    async fn a_query_that_is_planned_again_has_no_copy_of_its_session_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder).await;
        let text = "SELECT sum(n) FROM t WHERE n > 3";
        let (_, _prepared) = session.prepare(text).await.unwrap();
        let planned = session.plan(text, None).await.unwrap();
        let Work::Engine(PlannedQuery { state, in_flight, .. }) = planned.into_work() else { panic!("it has a plan") };
        assert!(Arc::ptr_eq(&state, in_flight.unwrap().flight.session()));
    }

    #[tokio::test]
    async fn a_statement_that_takes_a_plan_has_no_copy_of_its_session_and_runs_as_all_who_took_it() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder).await;
        let text = "SELECT sum(n) FROM t WHERE n > 3";
        let [one, other] = [session.plan(text, None).await.unwrap(), session.plan(text, None).await.unwrap()];
        let [(_, first), (state, second)] = [one, other].map(|planned| {
            let Work::Engine(PlannedQuery { state, in_flight, .. }) = planned.into_work() else { panic!("no plan") };
            (state, in_flight.unwrap())
        });
        assert!(Arc::ptr_eq(&first.flight, &second.flight) && Arc::ptr_eq(&state, first.flight.session()));
        assert!(Arc::ptr_eq(&first.flight.task(), &second.flight.task()));
    }

    #[tokio::test]
    async fn queries_that_may_be_another_plan_the_next_time_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let session = session(&folder).await;
        for (text, is_kept) in [
            ("SELECT 1", true),
            ("SELECT n FROM t WHERE n > ? AND n < ?", true),
            ("WITH a AS (SELECT n FROM t) SELECT * FROM a, a AS b WHERE a.n IN (SELECT n FROM t WHERE n = $1)", true),
            ("SELECT n FROM t WHERE n = $2", false),
            ("SELECT n FROM t WHERE n = $name", false),
            ("SELECT n FROM t WHERE random() < 2", false),
            ("SELECT n, now() FROM t", false),
            ("SELECT value FROM generate_series(1, 3)", false),
            ("SELECT table_name FROM information_schema.tables", false),
            ("EXPLAIN SELECT n FROM t", false),
            ("SHOW INDEXES FROM t", false),
        ] {
            let (_, prepared) = session.prepare(text).await.unwrap();
            assert_eq!(prepared.plan_in(&session.context().state()).is_some(), is_kept, "{text}");
        }
    }
}

//! Prepared queries are planned once however often they are run, and each run is what it would be had its text been planned then.

use datafusion::common::ParamValues;
use datafusion::scalar::ScalarValue;
use futures::future::join_all;
use lakemark_datafusion::{LakemarkSession, PlanningCounts, Principal, SharingCounts, rows_of};
use lakemark_table::Result;

use crate::fixture::{FILE_ROWS, batch, create_indexes, folder, open, rows, write};
use crate::sharing::{SHARED, Shared, is_ordered, keyed, sorted, taken, upsert};

/// How many ask at once.
const CLIENTS: usize = 64;

/// The rows of a statement as a server has them.
async fn run(session: &LakemarkSession, text: &str, values: Option<Vec<ScalarValue>>) -> Result<Vec<String>> {
    let planned = session.plan(text, values.map(ParamValues::from)).await?;
    let query = session.query_of(planned).await?;
    Ok(taken(query.rows().await.unwrap()).await)
}

impl Shared {
    /// How often a text was planned so far.
    fn texts_planned(&self) -> u64 {
        self.sharing.planning_counts().planned
    }
}

#[tokio::test]
async fn law_prepared_is_as_planned_anew_and_sees_the_newest_rows() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k", "s"]).await;
    let table = open(folder.path()).await;
    let [shared, other] = [Shared::of(&table).await, Shared::of(&table).await];
    let mut prepared = Vec::new();
    for sql in SHARED {
        prepared.push(shared.session.prepare(sql).await.unwrap().1);
    }
    let texts = SHARED.len() as u64;
    assert_eq!(shared.texts_planned(), texts);
    for files in 1..4 {
        for sql in SHARED {
            let (found, expected) =
                (run(&shared.session, sql, None).await.unwrap(), run(&other.session, sql, None).await);
            let expected = expected.unwrap();
            if is_ordered(sql) {
                assert_eq!(found, expected, "{sql}");
            } else {
                assert_eq!(sorted(found), sorted(expected), "{sql}");
            }
        }
        assert_eq!((shared.texts_planned(), other.texts_planned()), (texts, files * texts));
        let files = files as usize;
        write(&folder.path().join(format!("part-{files}.parquet")), &batch(files * FILE_ROWS));
    }
    // Nobody has it any more: nothing is kept.
    drop(prepared);
    run(&shared.session, SHARED[0], None).await.unwrap();
    assert_eq!(shared.texts_planned(), texts + 1);
}

#[tokio::test]
async fn equal_prepared_queries_at_once_are_planned_once_and_run_once() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let text = "SELECT k, count(*), sum(id) FROM t GROUP BY k";
    let mut prepared = Vec::new();
    for (planned, kept) in join_all((0..CLIENTS).map(|_| async { shared.session.prepare(text).await.unwrap() })).await {
        drop(planned);
        prepared.push(kept);
    }
    // Whoever comes later has what is kept.
    prepared.push(shared.session.prepare(text).await.unwrap().1);
    assert_eq!(shared.texts_planned(), 1);
    let queries = join_all((0..CLIENTS).map(|_| async { shared.session.sql(text).await.unwrap() })).await;
    let streams = join_all(queries.iter().map(rows_of)).await;
    let others = CLIENTS as u64 - 1;
    // All take part in the statement in flight: its plan was bound once, optimized once, and run once.
    assert_eq!(shared.sharing.planning_counts(), PlanningCounts { planned: 1, taken: 2 * others, made: 1 });
    assert_eq!(shared.counts(), SharingCounts { hosts: 1, guests: others, detached: 0 });
    let mut answers = join_all(streams.into_iter().map(|stream| taken(stream.unwrap()))).await.into_iter().map(sorted);
    let first = answers.next().unwrap();
    assert!(first.len() > 5 && answers.all(|rows| rows == first));
}

#[tokio::test]
async fn law_no_run_of_a_prepared_query_sees_a_state_from_before_it() {
    let folder = folder(1);
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    let text = "SELECT count(*), sum(id) FROM t WHERE k = 77";
    let (planned, _kept) = shared.session.prepare(text).await.unwrap();
    for (changes, expected) in (0..4).zip(["0|NULL", "1|5000", "2|10001", "3|15003"]) {
        assert_eq!(run(&shared.session, text, None).await.unwrap(), [expected], "after {changes} changes");
        upsert(&table, 5000 + changes, 77).await;
        if changes == 1 {
            table.flush().await.unwrap();
        }
    }
    assert_eq!(shared.texts_planned(), 1);
    // It was planned before all of them.
    let before = shared.session.run_planned(planned).await.unwrap();
    assert_eq!(taken(rows_of(&before).await.unwrap()).await, ["0|NULL"]);
}

#[tokio::test]
async fn values_are_put_into_the_plan_that_is_kept() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let table = open(folder.path()).await;
    let [shared, other] = [Shared::of(&table).await, Shared::of(&table).await];
    let number = |value: i64| ScalarValue::from(value);
    for (texts, text) in (1..).zip([
        "SELECT id FROM t WHERE k = ? AND id < ? ORDER BY id",
        "SELECT count(*) FROM t WHERE k = $2 OR id IN (SELECT id FROM t WHERE id < $1)",
        "SELECT id + $2 FROM t ORDER BY id LIMIT $1",
        "SELECT * FROM (VALUES ($1), ($2), (3)) AS v",
    ]) {
        let (planned, _kept) = shared.session.prepare(text).await.unwrap();
        assert_eq!(planned.parameters().unwrap().len(), 2, "{text}");
        for values in [[3, 200], [5, 20], [3, 200]] {
            let values = Some(values.map(number).to_vec());
            let [found, expected] = [&shared, &other].map(|shared| run(&shared.session, text, values.clone()));
            assert_eq!(sorted(found.await.unwrap()), sorted(expected.await.unwrap()), "{text}");
        }
        assert_eq!(shared.texts_planned(), texts, "{text}");
    }
    // What is wrong is what it would be without what is kept.
    let text = "SELECT id FROM t WHERE k = ? AND id < ?";
    let _kept = shared.session.prepare(text).await.unwrap();
    for values in [vec![], vec![number(1)], vec![number(1), number(2), number(3)]] {
        let [found, expected] = [&shared, &other].map(|shared| run(&shared.session, text, Some(values.clone())));
        assert_eq!(found.await.unwrap_err().to_string(), expected.await.unwrap_err().to_string());
    }
}

#[tokio::test]
async fn a_query_whose_tables_have_other_columns_is_planned_again_once() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let text = "SELECT * FROM t WHERE id = 5";
    let _kept = shared.session.prepare(text).await.unwrap();
    let columns = async || run(&shared.session, text, None).await.unwrap().concat().split('|').count();
    assert_eq!((columns().await, shared.texts_planned()), (6, 1));
    std::fs::remove_file(folder.path().join("part-0.parquet")).unwrap();
    write(&folder.path().join("part-9.parquet"), &batch(0).project(&[0, 1]).unwrap());
    assert_eq!([columns().await, columns().await], [2, 2]);
    assert_eq!(shared.texts_planned(), 2);
    // The error is that of planning.
    std::fs::remove_file(folder.path().join("part-9.parquet")).unwrap();
    write(&folder.path().join("part-8.parquet"), &batch(0).project(&[1]).unwrap());
    let error = run(&shared.session, text, None).await.unwrap_err();
    assert!(error.to_string().contains("id"), "{error}");
}

#[tokio::test]
async fn a_query_whose_names_or_settings_are_others_is_planned_again() {
    let (one, other) = (folder(1), folder(2));
    let shared = Shared::of(&open(one.path()).await).await;
    let count = "SELECT count(*) FROM t WHERE abs(id) >= 0";
    let _kept = shared.session.prepare(count).await.unwrap();
    shared.session.context().deregister_table("t").unwrap();
    assert!(run(&shared.session, count, None).await.is_err());
    shared.session.register("t", open(other.path()).await).await.unwrap();
    let before = shared.texts_planned();
    for _ in 0..2 {
        assert_eq!(run(&shared.session, count, None).await.unwrap(), ["2000"]);
        assert_eq!(shared.texts_planned(), before + 1);
    }
    let view = "SELECT sum(n) FROM v";
    rows(&shared.session, "CREATE VIEW v AS SELECT abs(id) AS n FROM t WHERE id < 3").await;
    let _kept_too = shared.session.prepare(view).await.unwrap();
    let before = shared.texts_planned();
    assert_eq!(run(&shared.session, view, None).await.unwrap(), ["3"]);
    assert_eq!(shared.texts_planned(), before);
    rows(&shared.session, "CREATE OR REPLACE VIEW v AS SELECT abs(id) AS n FROM t WHERE id < 4").await;
    for _ in 0..2 {
        assert_eq!(run(&shared.session, view, None).await.unwrap(), ["6"]);
        assert_eq!(shared.texts_planned(), before + 1);
    }
    let before = shared.texts_planned();
    shared.set("datafusion.execution.batch_size", "100").await;
    for _ in 0..2 {
        assert_eq!(run(&shared.session, count, None).await.unwrap(), ["2000"]);
        assert_eq!(shared.texts_planned(), before + 1);
    }
    // Nobody has what another one has prepared.
    let ann = shared.session.acting_for(Principal("ann".into()));
    assert!(shared.session.has_prepared(count) && !ann.has_prepared(count));
}

#[tokio::test]
async fn a_query_that_is_prepared_while_an_equal_one_runs_is_not_planned_for_it() {
    let folder = folder(1);
    let shared = Shared::of(&open(folder.path()).await).await;
    let text = "SELECT k, sum(id) FROM t GROUP BY k";
    let first = shared.session.sql(text).await.unwrap();
    let (planned, _kept) = shared.session.prepare(text).await.unwrap();
    drop((first, planned));
    assert_eq!(run(&shared.session, text, None).await.unwrap().len(), 11);
    assert_eq!(shared.texts_planned(), 1);
}

#[tokio::test]
async fn queries_that_are_ready_give_the_rows_of_their_frames_and_may_run_again() {
    let folder = folder(1);
    create_indexes(folder.path(), &["k"]).await;
    let table = keyed(folder.path()).await;
    let shared = Shared::of(&table).await;
    for text in SHARED.into_iter().chain([
        "SELECT count(*) FROM t WHERE k = 4",
        "SELECT * FROM t WHERE id = 7",
        "SELECT 1",
        "SHOW INDEXES FROM t",
    ]) {
        let ready = shared.session.query_of(shared.session.plan(text, None).await.unwrap()).await.unwrap();
        let expected = sorted(taken(rows_of(&ready.clone().into_frame()).await.unwrap()).await);
        for _ in 0..2 {
            assert_eq!(sorted(taken(ready.rows().await.unwrap()).await), expected, "{text}");
        }
    }
    // A change is made at once, and once.
    let insert = shared.session.plan("INSERT INTO t (id) VALUES (5000)", None).await.unwrap();
    let report = shared.session.query_of(insert).await.unwrap();
    for _ in 0..2 {
        assert_eq!(taken(report.rows().await.unwrap()).await, ["1"]);
    }
    assert_eq!(run(&shared.session, "SELECT count(*) FROM t", None).await.unwrap(), [(FILE_ROWS + 1).to_string()]);
}

#[tokio::test]
async fn queries_that_are_ready_share_what_frames_of_the_same_statement_share() {
    let folder = folder(2);
    let shared = Shared::of(&open(folder.path()).await).await;
    let text = "SELECT k, sum(id) FROM t GROUP BY k";
    let planned = async || shared.session.plan(text, None).await.unwrap();
    let ready = shared.session.query_of(planned().await).await.unwrap();
    let frame = shared.session.run_planned(planned().await).await.unwrap();
    let other = shared.session.query_of(planned().await).await.unwrap();
    let streams = [ready.rows().await.unwrap(), rows_of(&frame).await.unwrap(), other.rows().await.unwrap()];
    assert_eq!(shared.sharing.planning_counts(), PlanningCounts { planned: 1, taken: 2, made: 1 });
    assert_eq!(shared.counts(), SharingCounts { hosts: 1, guests: 2, detached: 0 });
    let [first, second, third] = streams.map(taken);
    let first = sorted(first.await);
    assert_eq!([sorted(second.await), sorted(third.await)], [first.clone(), first]);
}

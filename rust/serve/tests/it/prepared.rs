//! Prepared statements: their columns and parameters are known before they run, and values are never taken for SQL.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use arrow_flight::sql::{ActionClosePreparedStatementRequest, CommandPreparedStatementQuery, ProstMessageExt};
use arrow_flight::{Action, FlightDescriptor};
use futures::future::join_all;
use lakemark_table::{Table, TableOptions};
use prost::Message;
use tonic::Code;

use crate::pages::{get, with_page};
use crate::served::{Served, flights_of, number, prepare, read, status, text, write};

fn row(columns: Vec<ArrayRef>) -> RecordBatch {
    let names = ["a", "b", "c"].into_iter();
    RecordBatch::try_from_iter(names.zip(columns)).unwrap()
}

fn numbers(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn texts(values: Vec<&str>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_with_parameters_runs_again_with_other_values() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    for statement in [
        "SELECT count(*) AS n FROM flights WHERE carrier = ? AND number < ?",
        "SELECT count(*) AS n FROM flights WHERE carrier = $1 AND number < $2",
    ] {
        let mut prepared = client.prepare(statement.to_owned(), None).await.unwrap();
        let types = prepared.parameter_schema().unwrap().fields().iter().map(|field| field.data_type().clone());
        assert_eq!(types.collect::<Vec<_>>(), [DataType::Utf8, DataType::Int64]);
        assert_eq!(prepared.dataset_schema().unwrap().field(0).name(), "n");
        for (carrier, most) in [("UA", 1000), ("DL", 100), ("it's none", 1000)] {
            prepared.set_parameters(row(vec![texts(vec![carrier]), numbers(vec![most])])).unwrap();
            let info = prepared.execute().await.unwrap();
            let expected = flights_of(carrier, most).to_string();
            assert_eq!(text(&read(&mut client, info).await.unwrap()), [expected]);
        }
        prepared.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_by_key_and_a_limit_take_parameters() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    for (statement, expected) in [
        ("SELECT number, carrier FROM flights WHERE number = ?", vec!["3|UA"]),
        ("SELECT number FROM flights ORDER BY number LIMIT ?", vec!["0", "1", "2"]),
    ] {
        let mut prepared = client.prepare(statement.to_owned(), None).await.unwrap();
        prepared.set_parameters(row(vec![numbers(vec![3])])).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(text(&read(&mut client, info).await.unwrap()), expected, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_made_for_each_row_of_values() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    table.declare_key(&["number".to_owned()], &Default::default(), Default::default()).await.unwrap();
    let mut insert = client.prepare("INSERT INTO flights VALUES (?, ?)".to_owned(), None).await.unwrap();
    assert!(insert.dataset_schema().unwrap().fields().is_empty());
    insert
        .set_parameters(row(vec![numbers(vec![5000, 5001, 5002]), texts(vec!["a", "'); DROP TABLE flights; --", "c"])]))
        .unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 3);
    let mut update = client.prepare("UPDATE flights SET carrier = ? WHERE number >= ?".to_owned(), None).await.unwrap();
    update.set_parameters(row(vec![texts(vec!["z"]), numbers(vec![5001])])).unwrap();
    assert_eq!(update.execute_update().await.unwrap(), 2);
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights WHERE carrier = 'z'").await, 2);
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, 1003);
    // A change without rows of values changes nothing, whatever was bound before.
    insert.set_parameters(row(vec![numbers(vec![]), texts(vec![])])).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 0);
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, 1003);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_in_the_middle_of_its_rows_says_how_many_were_made() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    table.declare_key(&["number".to_owned()], &Default::default(), Default::default()).await.unwrap();
    let mut insert = client.prepare("INSERT INTO flights VALUES (6000 + 10 / ?, 'a')".to_owned(), None).await.unwrap();
    insert.set_parameters(row(vec![numbers(vec![1, 2, 0, 5])])).unwrap();
    let failed = insert.execute_update().await.unwrap_err().to_string();
    assert!(failed.contains("the first 2 rows of parameters were made"), "{failed}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, 1002);
    insert.set_parameters(row(vec![numbers(vec![0, 1])])).unwrap();
    let failed = insert.execute_update().await.unwrap_err().to_string();
    assert!(!failed.contains("rows of parameters"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_for_a_statement_that_takes_none_are_refused() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let mut prepared = client.prepare("SELECT 1".to_owned(), None).await.unwrap();
    prepared.set_parameters(row(vec![numbers(vec![1])])).unwrap();
    let found = prepared.execute().await.unwrap_err().to_string();
    assert!(found.contains("takes no parameters"), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_query_sees_the_newest_rows_each_time() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let mut prepared = client.prepare("SELECT count(*) FROM flights".to_owned(), None).await.unwrap();
    for (rows, expected) in [(0, "1000"), (5, "1005")] {
        if rows > 0 {
            crate::served::write_flights(&served.flights(), 1000, rows);
        }
        let info = prepared.execute().await.unwrap();
        assert_eq!(text(&read(&mut client, info).await.unwrap()), [expected]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_and_closed_statements_are_errors_that_say_so() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let statement = "SELECT * FROM flights WHERE number = ? AND carrier = ?";
    let mut prepared = client.prepare(statement.to_owned(), None).await.unwrap();
    for (values, says) in [
        (None, "no value is given for $1"),
        (Some(vec![numbers(vec![1])]), "no value is given for $2"),
        (
            Some(vec![numbers(vec![1, 2]), texts(vec!["a", "b"])]),
            "a query takes one row of parameters, and 2 were given",
        ),
        (Some(vec![numbers(vec![1]), texts(vec!["a"]), numbers(vec![3])]), "a value is given for $3"),
    ] {
        if let Some(values) = values {
            prepared.set_parameters(row(values)).unwrap();
        }
        let found = prepared.execute().await.unwrap_err().to_string();
        assert!(found.contains(says), "{says}: {found}");
    }
    let mixed = client.prepare("SELECT ? + $1".to_owned(), None).await.err().unwrap().to_string();
    assert!(mixed.contains("write all parameters of a statement as ?"), "{mixed}");
    let unknown = client.prepare("SELECT nosuch FROM flights".to_owned(), None).await.err().unwrap().to_string();
    assert!(unknown.contains("nosuch"), "{unknown}");

    let mut again = client.prepare("SELECT 1".to_owned(), None).await.unwrap();
    client.prepare("SELECT 2".to_owned(), None).await.unwrap().close().await.unwrap();
    assert!(again.execute().await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_closed_twice_is_closed_and_another_one_is_not() {
    let served = Served::begin().await;
    let client = served.client().await;
    let mut raw = client.inner().clone();
    let (closed, open) = (prepare(&client, "SELECT 1").await, prepare(&client, "SELECT 2").await);
    for handle in [closed.clone(), closed.clone(), Vec::new(), vec![7; 1000]] {
        let close = ActionClosePreparedStatementRequest { prepared_statement_handle: handle.into() };
        raw.do_action(Action::new("ClosePreparedStatement", close.as_any().encode_to_vec())).await.unwrap();
    }
    let described = |handle: Vec<u8>| {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() };
        FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
    };
    let refused = raw.get_flight_info(described(closed)).await.unwrap_err();
    assert!(refused.code() == Code::NotFound && refused.message().contains("prepare it again"), "{refused:?}");
    assert!(raw.get_flight_info(described(open)).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_that_nobody_uses_is_forgotten() {
    let served = Served::with(|options| options.limits.prepared_life = std::time::Duration::ZERO).await;
    let mut client = served.client().await;
    let mut prepared = client.prepare("SELECT 1".to_owned(), None).await.unwrap();
    let found = status(prepared.execute().await);
    assert!(found.code() == Code::NotFound && found.message().contains("prepare it again"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_more_prepared_statements_fit_the_one_idle_longest_makes_room() {
    let served = Served::with(|options| options.limits.plans = 2).await;
    let mut client = served.client().await;
    let mut first = client.prepare("SELECT 1".to_owned(), None).await.unwrap();
    let mut second = client.prepare("SELECT 2".to_owned(), None).await.unwrap();
    first.execute().await.unwrap();
    let mut third = client.prepare("SELECT 3".to_owned(), None).await.unwrap();
    let found = status(second.execute().await);
    assert!(found.code() == Code::NotFound && found.message().contains("made room for others"), "{found:?}");
    let info = third.execute().await.unwrap();
    assert_eq!(text(&read(&mut client, info).await.unwrap()), ["3"]);
}

/// How often a text was planned so far.
async fn texts_planned(served: &Served) -> u64 {
    let answer = get(served, "/metrics").await;
    let counted = answer.lines().find_map(|line| line.strip_prefix("lakemark_statements_planned_total "));
    counted.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_a_driver_prepares_runs_and_closes_is_planned_once() {
    let served = with_page().await;
    let mut client = served.client().await;
    for (planned, statement) in
        (1..).zip(["SELECT count(*) + 0 FROM flights", "SELECT max(number) FROM flights WHERE carrier = 'UA'"])
    {
        let mut prepared = client.prepare(statement.to_owned(), None).await.unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(read(&mut client, info).await.unwrap().iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        prepared.close().await.unwrap();
        assert_eq!(texts_planned(&served).await, planned, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_after_a_statement_was_prepared_is_seen_without_planning_it_again() {
    let served = with_page().await;
    let mut client = served.client().await;
    let mut prepared = client.prepare("SELECT count(*) FROM flights WHERE number >= ?".to_owned(), None).await.unwrap();
    for (files, expected) in [(0, "1000"), (1, "1005"), (2, "1010")] {
        if files > 0 {
            crate::served::write_flights(&served.flights(), 995 + 5 * files, 5);
        }
        prepared.set_parameters(row(vec![numbers(vec![0])])).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(text(&read(&mut client, info).await.unwrap()), [expected]);
    }
    assert_eq!(texts_planned(&served).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_statements_that_are_prepared_by_many_clients_at_once_are_planned_once() {
    let served = with_page().await;
    let client = served.client().await;
    let statement = "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier ORDER BY n, carrier";
    let prepares = (0..64).map(|_| {
        let mut client = client.clone();
        async move { client.prepare(statement.to_owned(), None).await.unwrap() }
    });
    let prepared = join_all(prepares).await;
    assert_eq!(texts_planned(&served).await, 1);
    let runs = prepared.into_iter().map(|mut prepared| {
        let mut client = client.clone();
        async move {
            let info = prepared.execute().await.unwrap();
            (text(&read(&mut client, info).await.unwrap()), prepared)
        }
    });
    let answers = join_all(runs).await;
    assert_eq!(answers[0].0.len(), 6);
    assert!(answers.iter().all(|(rows, _)| *rows == answers[0].0));
    assert_eq!(texts_planned(&served).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_over_other_columns_is_planned_again_and_announces_them() {
    let served = with_page().await;
    let mut client = served.client().await;
    let mut prepared = client.prepare("SELECT * FROM flights".to_owned(), None).await.unwrap();
    assert_eq!(prepared.dataset_schema().unwrap().fields().len(), 2);
    std::fs::remove_file(served.flights().join("part-0.parquet")).unwrap();
    write(
        &served.flights().join("part-1.parquet"),
        &RecordBatch::try_from_iter([("other", numbers(vec![7]))]).unwrap(),
    );
    for _ in 0..2 {
        let info = prepared.execute().await.unwrap();
        let batches = read(&mut client, info).await.unwrap();
        assert_eq!((batches[0].schema().field(0).name().as_str(), text(&batches)), ("other", vec!["7".to_owned()]));
        assert_eq!(texts_planned(&served).await, 2);
    }
}

//! Statements through the wire: the same rows as in process, one state of a table for each, changes once and durable.

use std::path::Path;

use lakemark_datafusion::LakemarkSession;
use lakemark_serve::{Server, TableSource};
use lakemark_table::{Table, TableOptions};
use tonic::Code;

use crate::served::{ROWS, Served, flights_of, lines, number, query, read, refused, text, write_flights};

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_those_of_a_session_in_process() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let session = LakemarkSession::new();
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    session.register("flights", table).await.unwrap();
    for statement in [
        "SELECT * FROM flights ORDER BY number",
        "SELECT count(*) FROM flights WHERE carrier = 'UA'",
        "SELECT carrier, count(*), sum(number) FROM flights GROUP BY carrier ORDER BY carrier",
        "SELECT * FROM flights WHERE number = 77",
        "SELECT * FROM flights WHERE false",
        "SELECT upper(carrier) || '!', CAST(number AS VARCHAR) AS text FROM flights WHERE number < 5 ORDER BY number",
        "SELECT arrow_cast(carrier, 'Dictionary(Int32, Utf8)') FROM flights WHERE number < 5 ORDER BY number",
        "SELECT arrow_cast(carrier, 'Utf8View'), [number, number + 1] FROM flights WHERE number < 5 ORDER BY number",
        "SELECT a.number FROM flights AS a JOIN flights AS b ON a.number = b.number + 1 ORDER BY 1 LIMIT 3",
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9) SELECT sum(i) FROM n",
        "SHOW INDEXES FROM flights",
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'",
    ] {
        let expected = text(&session.sql(statement).await.unwrap().collect().await.unwrap());
        assert_eq!(lines(&mut client, statement).await, expected, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_created_used_and_dropped_through_the_wire() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let created = lines(&mut client, "CREATE INDEX c ON flights USING bitmap (carrier)").await;
    assert!(created[0].starts_with("true|1|1000|1|"), "{created:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights WHERE carrier = 'DL'").await, flights_of("DL", ROWS));
    let plan = lines(&mut client, "EXPLAIN ANALYZE SELECT number FROM flights WHERE carrier = 'DL'").await.concat();
    assert!(plan.contains("LakemarkScanExec"), "{plan}");
    assert_eq!(lines(&mut client, "DROP INDEX c ON flights").await, ["true"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_sees_the_state_that_it_was_planned_over() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let planned = client.execute("SELECT count(number), max(number) FROM flights".to_owned(), None).await.unwrap();
    write_flights(&served.flights(), ROWS, 10);
    assert_eq!(text(&read(&mut client, planned).await.unwrap()), ["1000|999"]);
    assert_eq!(lines(&mut client, "SELECT count(number), max(number) FROM flights").await, ["1010|1009"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_made_once_and_every_client_sees_them() {
    let served = Served::begin().await;
    let (mut one, mut other) = (served.client().await, served.client().await);
    declare_key(&served).await;
    assert_eq!(
        one.execute_update("INSERT INTO flights VALUES (5000, 'XX'), (5001, 'XX')".to_owned(), None).await.unwrap(),
        2
    );
    // A driver may send a change as a query. It is made when it is described, and reading its count changes nothing more.
    let info = one.execute("UPDATE flights SET carrier = 'YY' WHERE number = 5000".to_owned(), None).await.unwrap();
    assert_eq!(lines(&mut other, "SELECT carrier FROM flights WHERE number = 5000").await, ["YY"]);
    assert_eq!(text(&read(&mut one, info).await.unwrap()), ["1"]);
    assert_eq!(other.execute_update("DELETE FROM flights WHERE carrier = 'XX'".to_owned(), None).await.unwrap(), 1);
    assert_eq!(number(&mut one, "SELECT count(*) FROM flights WHERE number >= 5000").await, 1);
    // Another program sees them, too.
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    let rows = lakemark_datafusion::count(&table, None, &lakemark_datafusion::QueryOptions::default()).await.unwrap();
    assert_eq!(rows, 1001);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_versions_are_read_by_their_numbers() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let table = declare_key(&served).await;
    client.execute_update("DELETE FROM flights WHERE number < 100".to_owned(), None).await.unwrap();
    table.flush().await.unwrap();
    let newest = table.history(None).await.unwrap()[0].version;
    client.execute_update("DELETE FROM flights WHERE number < 300".to_owned(), None).await.unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, 700);
    let old = format!("SELECT count(*) FROM flights VERSION AS OF {newest}");
    assert_eq!(number(&mut client, &old).await, 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_change_the_session_of_all_clients_is_refused_by_name() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let target = served.folder.path().join("stolen.csv");
    let copy = format!("COPY flights TO '{}'", target.display());
    for (statement, says) in [
        ("SET lakemark.use_index = false", "settings are those of the server"),
        ("SET datafusion.execution.batch_size TO 1", "settings are those of the server"),
        ("RESET lakemark.use_index", "settings are those of the server"),
        ("CREATE EXTERNAL TABLE t STORED AS LAKEMARK LOCATION '/etc'", "add NAME=PATH there"),
        ("CREATE VIEW v AS SELECT 1", "add NAME=PATH there"),
        ("DROP TABLE flights", "add NAME=PATH there"),
        ("PREPARE p AS SELECT 1", "prepare statements by the driver"),
        ("DEALLOCATE p", "prepare statements by the driver"),
        ("BEGIN", "transactions of several statements"),
        ("COMMIT", "transactions of several statements"),
        (copy.as_str(), "COPY would write"),
        (format!("EXPLAIN ANALYZE {copy}").as_str(), "COPY would write"),
        ("EXPLAIN ANALYZE INSERT INTO flights VALUES (1, 'a')", "would make the change"),
    ] {
        refused(&mut client, statement, Code::Unimplemented, says).await;
    }
    assert!(!target.exists());
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_look_at_first_is_shown_as_a_query_and_as_a_prepared_one() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    for (statement, says) in [
        ("SHOW datafusion.execution.batch_size", "datafusion.execution.batch_size|8192"),
        ("SHOW lakemark.share", "lakemark.share|plans"),
        ("SHOW ALL", "\ndatafusion.execution.batch_size|8192\n"),
        ("SHOW ALL", "\nlakemark.use_index|true\n"),
        ("SHOW TABLES", "lakemark|public|flights|BASE TABLE"),
        ("SHOW COLUMNS FROM flights", "lakemark|public|flights|number|Int64|"),
        ("DESCRIBE flights", "number|Int64|"),
        ("EXPLAIN SELECT number FROM flights", "physical_plan|"),
        ("EXPLAIN VERBOSE SELECT number FROM flights", "initial_logical_plan|"),
        ("EXPLAIN ANALYZE SELECT number FROM flights WHERE carrier = 'UA'", "Plan with Metrics|"),
        ("EXPLAIN ANALYZE VERBOSE SELECT count(*) FROM flights", "Plan with Metrics|"),
    ] {
        let shown = lines(&mut client, statement).await.join("\n");
        assert!(shown.contains(says), "{statement}: {shown}");
        let mut prepared = client.prepare(statement.to_owned(), None).await.unwrap();
        assert!(!prepared.dataset_schema().unwrap().fields().is_empty(), "{statement}");
        let info = prepared.execute().await.unwrap();
        let shown = text(&read(&mut client, info).await.unwrap()).join("\n");
        assert!(shown.contains(says), "{statement}: {shown}");
    }
    refused(&mut client, "SHOW lakemark.nosuch", Code::InvalidArgument, "lakemark.nosuch").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_has_the_code_that_fits() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    declare_key(&served).await;
    for (statement, code, says) in [
        ("SELECT CAST('x' AS BIGINT)", Code::InvalidArgument, "x"),
        ("SELECT nosuch(number) FROM flights", Code::InvalidArgument, "nosuch"),
        ("SELECT 1 / 0", Code::InvalidArgument, "ivide by zero"),
        ("INSERT INTO flights VALUES (1, 'a')", Code::AlreadyExists, "1"),
        ("INSERT INTO flights VALUES ('x', 'a')", Code::FailedPrecondition, "cannot be written to number"),
        ("CREATE INDEX number ON flights USING bitmap (nosuch)", Code::NotFound, "nosuch"),
        ("DROP INDEX nosuch ON flights", Code::NotFound, "nosuch"),
        ("SHOW INDEXES FROM nosuch", Code::NotFound, "nosuch"),
        ("CREATE VIEW v AS SELECT 1", Code::Unimplemented, "NAME=PATH"),
    ] {
        refused(&mut client, statement, code, says).await;
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_changes_nothing() {
    let served = Served::with(|options| options.read_only = true).await;
    let mut client = served.client().await;
    for statement in
        ["DELETE FROM flights", "CREATE INDEX c ON flights (carrier)", "INSERT INTO flights VALUES (1, 'a')"]
    {
        refused(&mut client, statement, Code::PermissionDenied, "read-only").await;
        let update = client.execute_update(statement.to_owned(), None).await;
        assert!(update.unwrap_err().to_string().contains("read-only"), "{statement}");
    }
    assert!(!served.flights().join("_lakemark").exists());
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warehouse_serves_its_folders_and_those_that_come_later() {
    let warehouse = tempfile::tempdir().unwrap();
    write_flights(&warehouse.path().join("sales/orders"), 0, 10);
    let served = Served::with(|options| options.warehouse = Some(warehouse.path().to_owned())).await;
    let mut client = served.client().await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM sales.orders").await, 10);
    refused(&mut client, "SELECT count(*) FROM late", Code::InvalidArgument, "not found").await;
    write_flights(&warehouse.path().join("late"), 0, 7);
    assert_eq!(number(&mut client, "SELECT count(*) FROM late").await, 7);
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_served_under_one_name() {
    let folder = tempfile::tempdir().unwrap();
    write_flights(&folder.path().join("flights"), 0, 10);
    let mut twice = crate::served::options(folder.path());
    let again = TableSource { name: "again".to_owned(), ..twice.tables[0].clone() };
    twice.tables.push(again);
    let message = Server::bind(twice).await.err().unwrap().to_string();
    assert!(message.contains("again=") && message.contains("is served as flights already"), "{message}");

    let served = Served::with(|options| {
        options.warehouse = Path::new(&options.tables[0].path).parent().map(Path::to_owned);
        options.tables[0].name = "other".to_owned();
    })
    .await;
    let mut client = served.client().await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM other").await, ROWS);
    refused(&mut client, "SELECT count(*) FROM flights", Code::InvalidArgument, "flights").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_many_batches_comes_whole() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let batches =
        query(&mut client, "SELECT value, value::varchar AS text FROM generate_series(1, 200000)").await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 200_000);
    assert!(batches.len() > 1);
}

/// Declares the key of the flights, as another program.
async fn declare_key(served: &Served) -> std::sync::Arc<Table> {
    let table = Table::open(&served.flights().display().to_string(), TableOptions::default()).await.unwrap();
    let (none, build) = (Default::default(), Default::default());
    assert!(table.declare_key(&["number".to_owned()], &none, build).await.unwrap());
    table
}

//! What no client should send: a clear refusal, and nothing is lost for the others.

use std::time::Duration;

use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionCancelQueryRequest, Any, Command, CommandStatementQuery, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, Ticket};
use futures::StreamExt;
use prost::Message;
use tonic::Code;

use crate::pages::get;
use crate::served::{Client, ROWS, Served, busy, number, query, read, refused, status};

/// Longer than anything here takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn ticket_of(handle: &[u8]) -> Ticket {
    let ticket = TicketStatementQuery { statement_handle: handle.to_vec().into() };
    Ticket::new(ticket.as_any().encode_to_vec())
}

fn handle_of(info: &FlightInfo) -> Vec<u8> {
    let ticket = info.endpoint[0].ticket.as_ref().unwrap();
    match Command::try_from(Any::decode(ticket.ticket.as_ref()).unwrap()).unwrap() {
        Command::TicketStatementQuery(ticket) => ticket.statement_handle.to_vec(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_good_once_and_forged_ones_never() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let info = client.execute("SELECT 1".to_owned(), None).await.unwrap();
    let handle = handle_of(&info);
    let mut forged = handle.clone();
    forged[5] ^= 1;
    for wrong in [&forged[..], b"", b"short", &[0; 1000]] {
        let found = status(client.do_get(ticket_of(wrong)).await.map(|_| ()));
        assert!(found.code() == Code::NotFound && found.message().contains("run the statement again"), "{found:?}");
    }
    assert_eq!(read(&mut client, info.clone()).await.unwrap()[0].num_rows(), 1);
    assert_eq!(status(read(&mut client, info).await).code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_ends_with_its_time_and_there_are_so_many() {
    let served = Served::with(|options| options.limits.plan_life = Duration::ZERO).await;
    let mut client = served.client().await;
    assert_eq!(status(query(&mut client, "SELECT 1").await).code(), Code::NotFound);

    let served = Served::with(|options| options.limits.plans = 2).await;
    let mut client = served.client().await;
    let first = client.execute("SELECT 1".to_owned(), None).await.unwrap();
    client.execute("SELECT 2".to_owned(), None).await.unwrap();
    let found = status(client.execute("SELECT 3".to_owned(), None).await);
    assert!(found.code() == Code::ResourceExhausted && found.metadata().contains_key("retry-after"), "{found:?}");
    read(&mut client, first).await.unwrap();
    assert!(client.execute("SELECT 3".to_owned(), None).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_statements_are_refused_by_their_length() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let long = format!("SELECT '{}'", "x".repeat(16 << 20));
    refused(&mut client, &long, Code::InvalidArgument, "16777225 bytes, and 1048576 are allowed").await;
    let update = client.execute_update(long.clone(), None).await.unwrap_err().to_string();
    assert!(update.contains("are allowed"), "{update}");
    let prepared = client.prepare(long, None).await.err().unwrap().to_string();
    assert!(prepared.contains("are allowed"), "{prepared}");
    // Longer than any message may be.
    let found = status(query(&mut client, &"x".repeat(40 << 20)).await);
    assert_eq!(found.code(), Code::OutOfRange, "{found:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_are_none_say_what_is_wrong() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    for (statement, says) in [
        ("", "no SQL statement"),
        ("-- nothing", "no SQL statement"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("SELEC 1", "SELEC"),
        ("SELECT nosuch FROM flights", "nosuch"),
        ("SELECT * FROM nosuch", "nosuch"),
        ("SELECT '\u{0}' FROM", "Expected"),
    ] {
        refused(&mut client, statement, Code::InvalidArgument, says).await;
    }
    let nested = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(query(&mut client, &nested).await.is_err());
    for link in [" + 1", " OR true", " UNION ALL SELECT 1"] {
        let chained = format!("SELECT 1{}", link.repeat(50_000));
        refused(&mut client, &chained, Code::InvalidArgument, "a chain of more than 4000 operators").await;
    }
    let explained = format!("{}SELECT 1", "EXPLAIN ".repeat(130_000));
    refused(&mut client, &explained, Code::InvalidArgument, "more than 16 words EXPLAIN").await;
    let listed = format!("SELECT count(*) FROM flights{}", ", flights".repeat(1000));
    refused(&mut client, &listed, Code::InvalidArgument, "more than 300 relations").await;
    let named = |n: usize| format!("c{n} AS (SELECT a.number FROM c{0} a, c{0} b)", n - 1);
    let names: Vec<String> = (1..=18).map(named).collect();
    let doubled = format!("WITH c0 AS (SELECT number FROM flights), {} SELECT * FROM c18", names.join(", "));
    refused(&mut client, &doubled, Code::InvalidArgument, "each name of WITH stands for its query").await;
    let some = format!("SELECT count(*) FROM flights WHERE number = -1{}", " OR number = 3".repeat(500));
    assert_eq!(number(&mut client, &some).await, 1);
    // What fails while it runs fails alone, with the rows that came before it.
    let found = status(query(&mut client, "SELECT 1 / (number - 5) FROM flights").await);
    assert!(found.message().contains("Divide by zero"), "{found:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_no_change_and_a_change_without_a_key_says_how_to_declare_one() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let query = client.execute_update("SELECT 1".to_owned(), None).await.unwrap_err().to_string();
    assert!(query.contains("run it as a query"), "{query}");
    let keyless = client.execute_update("DELETE FROM flights".to_owned(), None).await.unwrap_err().to_string();
    assert!(keyless.contains("lakemark key"), "{keyless}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_refused_by_name_wherever_they_are_asked_for() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let mut found = vec![client.begin_transaction().await.unwrap_err().to_string()];
    let id = Some("tx".into());
    found.push(client.execute("SELECT 1".to_owned(), id.clone()).await.unwrap_err().to_string());
    found.push(client.execute_update("DELETE FROM flights".to_owned(), id.clone()).await.unwrap_err().to_string());
    found.push(client.prepare("SELECT 1".to_owned(), id).await.err().unwrap().to_string());
    for found in found {
        assert!(found.contains("transactions of several statements are not supported"), "{found}");
    }
    // An empty id is none.
    assert!(client.execute("SELECT 1".to_owned(), Some("".into())).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_ticket_of_the_server_has_a_code_that_says_so_and_a_short_message() {
    let served = Served::begin().await;
    let client = served.client().await;
    let mut raw = client.inner().clone();
    let long = Any { type_url: "x".repeat(1 << 20), value: Default::default() };
    let broken = Any { value: b"\xff\xff\xff".to_vec().into(), ..TicketStatementQuery::default().as_any() };
    let command = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: None };
    for (ticket, code) in [
        (b"\xff".to_vec(), Code::InvalidArgument),
        (Vec::new(), Code::InvalidArgument),
        (broken.encode_to_vec(), Code::InvalidArgument),
        (command.as_any().encode_to_vec(), Code::InvalidArgument),
        (long.encode_to_vec(), Code::InvalidArgument),
        (TicketStatementQuery::default().as_any().encode_to_vec(), Code::NotFound),
    ] {
        let refused = raw.do_get(Ticket::new(ticket)).await.unwrap_err();
        assert!(refused.code() == code && refused.message().len() < 1000, "{refused:?}");
    }
    let unknown = FlightDescriptor::new_cmd(long.encode_to_vec());
    let put = arrow_flight::FlightData::new().with_descriptor(unknown.clone());
    let described = raw.get_flight_info(unknown).await.unwrap_err();
    let sent = raw.do_put(futures::stream::iter([put])).await.unwrap_err();
    for refused in [described, sent] {
        assert!(refused.code() == Code::Unimplemented && refused.message().len() < 1000, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_commands_end_their_call_alone() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let mut raw: FlightServiceClient<_> = client.inner().clone();
    for bytes in [&b""[..], b"\xff\xff\xff", b"\x0a\x03abc", &[7; 5000]] {
        assert!(raw.get_flight_info(FlightDescriptor::new_cmd(bytes.to_vec())).await.is_err());
        assert!(raw.do_get(Ticket::new(bytes.to_vec())).await.is_err());
        assert!(raw.do_action(Action::new("CreatePreparedStatement", bytes.to_vec())).await.is_err());
        assert!(raw.do_action(Action::new("NoSuchAction", bytes.to_vec())).await.is_err());
        let put = arrow_flight::FlightData::new().with_descriptor(FlightDescriptor::new_cmd(bytes.to_vec()));
        assert!(raw.do_put(futures::stream::iter([put])).await.is_err());
    }
    assert!(raw.do_put(futures::stream::empty()).await.is_err());
    let unknown = raw.do_action(Action::new("CloseSession", "")).await.unwrap_err();
    assert!(unknown.code() == Code::Unimplemented && unknown.message().contains("\"CloseSession\""), "{unknown:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

async fn cancel(client: &Client, info: &FlightInfo) -> Result<(), tonic::Status> {
    let request = ActionCancelQueryRequest { info: info.encode_to_vec().into() };
    let action = Action::new("CancelQuery", request.as_any().encode_to_vec());
    client.inner().clone().do_action(action).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_cancelled_before_it_runs_and_while_it_does() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let many = "SELECT value, repeat('x', 1000) FROM generate_series(1, 1000000)";
    let waits = client.execute(many.to_owned(), None).await.unwrap();
    cancel(&client, &waits).await.unwrap();
    assert_eq!(status(read(&mut client, waits.clone()).await).code(), Code::NotFound);
    assert_eq!(cancel(&client, &waits).await.unwrap_err().code(), Code::NotFound);

    let runs = client.execute(many.to_owned(), None).await.unwrap();
    let mut stream = client.do_get(runs.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    cancel(&client, &runs).await.unwrap();
    let error = loop {
        match stream.next().await.expect("the stream ends with an error") {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("cancelled by its client"), "{error}");
}

/// Waits until so many statements wait for their turn, as the counters of the server say.
async fn until_waiting(served: &Served, count: usize) {
    let line = format!("\nlakemark_statements_waiting {count}\n");
    let counted = async {
        while !get(served, "/metrics").await.contains(&line) {
            // Each look is a connection, and the machine has so many ports for those that were closed.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_cancelled_while_it_waits_for_its_turn() {
    let served = Served::with(|options| {
        options.limits.running = 1;
        options.http = Some("127.0.0.1:0".parse().unwrap());
    })
    .await;
    let (mut client, mut other) = (served.client().await, served.client().await);
    let _running = busy(&mut client).await;
    let waits = other.execute("SELECT 1".to_owned(), None).await.unwrap();
    let info = waits.clone();
    let going = tokio::spawn(async move { read(&mut other, info).await });
    until_waiting(&served, 1).await;
    // Whoever goes away while the query waits may come again.
    going.abort();
    until_waiting(&served, 0).await;
    let (mut again, info) = (served.client().await, waits.clone());
    let waiting = tokio::spawn(async move {
        loop {
            match read(&mut again, info.clone()).await {
                // The handle is there again a little after the place in the queue is free.
                Err(FlightError::Tonic(status)) if status.code() == Code::NotFound => tokio::task::yield_now().await,
                other => break status(other),
            }
        }
    });
    until_waiting(&served, 1).await;
    cancel(&client, &waits).await.unwrap();
    let found = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(found.code() == Code::Cancelled && found.message().contains("cancelled by its client"), "{found:?}");
}

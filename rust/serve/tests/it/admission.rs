//! Who may come in, and how many run at a time.

use std::io::Write;
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use lakemark_serve::Server;
use tonic::Code;
use tonic::transport::Channel;

use crate::pages::get;
use crate::served::{Client, ROWS, Served, busy, lines, number, options, query, read, status, text};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Rows that a client does not read in one go.
const MANY: &str = "SELECT value, repeat('x', 1000) FROM generate_series(1, 1000000)";

async fn with_token() -> (Served, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "# who may come in\nann {TOKEN}").unwrap();
    let path = file.path().to_owned();
    (Served::with(|options| options.token_file = Some(path)).await, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_without_the_token() {
    let (served, _file) = with_token().await;
    let mut client = served.client().await;
    for token in [None, Some(""), Some("wrong"), Some(&TOKEN[1..]), Some("0123456789abcdef0123456789abcdeg")] {
        match token {
            Some(token) => client.set_token(token.to_owned()),
            None => client.clear_token(),
        }
        for call in ["SELECT 1", "DELETE FROM flights"] {
            let found = status(query(&mut client, call).await);
            assert!(found.code() == Code::Unauthenticated && found.message().contains("token is missing"), "{found:?}");
            assert!(!found.message().contains(TOKEN));
        }
        assert!(client.get_catalogs().await.is_err() && client.prepare("SELECT 1".to_owned(), None).await.is_err());
    }
    client.set_token(TOKEN.to_owned());
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_knows_passwords_alone_gives_the_token_as_one() {
    let (served, _file) = with_token().await;
    let mut client = served.client().await;
    assert!(client.handshake("whoever", "wrong").await.is_err());
    client.handshake("whoever", TOKEN).await.unwrap();
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test]
async fn a_server_that_others_reach_needs_a_token_and_encryption() {
    let folder = tempfile::tempdir().unwrap();
    crate::served::write_flights(&folder.path().join("flights"), 0, 10);
    let mut open = options(folder.path());
    open.listen = "0.0.0.0:0".parse().unwrap();
    let message = Server::bind(open.clone()).await.err().unwrap().to_string();
    assert!(message.contains("--token-file, --tls-cert and --tls-key"), "{message}");
    let mut page = options(folder.path());
    page.http = Some("0.0.0.0:0".parse().unwrap());
    let message = Server::bind(page).await.err().unwrap().to_string();
    assert!(message.contains("listen on 127.0.0.1"), "{message}");
}

/// Rows in their order, which are several batches, and less than a plan keeps for whoever comes.
const SORTED: &str = "SELECT a.number * 1000 + b.number AS n, repeat('x', 12) AS t FROM flights a, flights b \
                      WHERE b.number < 36 ORDER BY n";

/// A client that is sent little beyond what it takes.
async fn narrow_client(served: &Served) -> Client {
    let endpoint = Channel::from_shared(served.url.replace("grpc://", "http://")).unwrap();
    Client::new(endpoint.initial_stream_window_size(1 << 14).connect().await.unwrap())
}

/// A query of which the first rows were read, and the rest is waited for.
async fn begun(client: &mut Client) -> arrow_flight::decode::FlightRecordBatchStream {
    begun_of(client, MANY).await
}

async fn begun_of(client: &mut Client, statement: &str) -> arrow_flight::decode::FlightRecordBatchStream {
    let info = client.execute(statement.to_owned(), None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_may_wait_are_told_to_come_again() {
    let served = Served::with(|options| {
        options.limits.running = 1;
        options.limits.waiting = 0;
    })
    .await;
    let (mut one, mut other) = (served.client().await, served.client().await);
    let running = begun(&mut one).await;
    let info = other.execute("SELECT 1".to_owned(), None).await.unwrap();
    let ticket = info.endpoint[0].ticket.clone().unwrap();
    let found = status(other.do_get(ticket.clone()).await.map(|_| ()));
    assert!(found.code() == Code::ResourceExhausted && found.message().contains("the server is busy"), "{found:?}");
    let after: u64 = found.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
    assert!(after >= 1);
    // The same handle is good as soon as there is a turn: here as soon as a client went away.
    drop(running);
    let rows = loop {
        match other.do_get(ticket.clone()).await {
            Ok(mut stream) => break stream.next().await.unwrap().unwrap().num_rows(),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(rows, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_statements_have_one_turn_and_others_have_none() {
    let served = Served::with(|options| {
        options.limits.running = 1;
        options.limits.waiting = 0;
    })
    .await;
    let (mut one, mut other) = (narrow_client(&served).await, served.client().await);
    let running = begun_of(&mut one, SORTED).await;
    assert_eq!(status(query(&mut other, "SELECT 1").await).code(), Code::ResourceExhausted);
    let rows = query(&mut other, SORTED).await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 36 * ROWS as usize);
    // The first one has the turn still.
    assert_eq!(status(query(&mut other, "SELECT 1").await).code(), Code::ResourceExhausted);
    let rest: Vec<RecordBatch> = running.try_collect().await.unwrap();
    assert!(!rest.is_empty());
    while query(&mut other, "SELECT 1").await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_too_many_hears_when_to_come_again_and_finds_room_once_another_is_gone() {
    let served = Served::with(|options| options.limits.connections = 1).await;
    let mut one = served.client().await;
    assert_eq!(number(&mut one, "SELECT count(*) FROM flights").await, ROWS);
    let mut other = served.client().await;
    for statement in ["SELECT 1", "DELETE FROM flights"] {
        let found = status(query(&mut other, statement).await);
        assert!(
            found.code() == Code::ResourceExhausted && found.message().contains("there are 1 connections already"),
            "{found:?}"
        );
        assert!(found.metadata().contains_key("retry-after"), "{found:?}");
    }
    assert_eq!(number(&mut one, "SELECT count(*) FROM flights").await, ROWS);
    drop(one);
    let found = loop {
        match query(&mut served.client().await, "SELECT count(*) FROM flights").await {
            Ok(rows) => break text(&rows),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert_eq!(found, [ROWS.to_string()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_made_is_answered_however_busy_the_server_is() {
    let create = || "CREATE INDEX c ON flights USING bitmap (carrier)".to_owned();
    let served = Served::with(|options| options.limits.plans = 1).await;
    let mut client = served.client().await;
    client.execute("SELECT 1".to_owned(), None).await.unwrap();
    let made = client.execute(create(), None).await.unwrap();
    assert_eq!(status(client.execute("SELECT 2".to_owned(), None).await).code(), Code::ResourceExhausted);
    assert!(text(&read(&mut client, made).await.unwrap())[0].starts_with("true|"));

    let served = Served::with(|options| {
        options.limits.running = 1;
        options.limits.waiting = 0;
    })
    .await;
    let (mut one, mut other) = (served.client().await, served.client().await);
    let made = other.execute(create(), None).await.unwrap();
    let _running = begun(&mut one).await;
    assert_eq!(status(query(&mut other, "SELECT 1").await).code(), Code::ResourceExhausted);
    assert!(text(&read(&mut other, made).await.unwrap())[0].starts_with("true|"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_waits_for_its_turn_and_gets_it() {
    let served = Served::with(|options| options.limits.running = 1).await;
    let (mut one, mut other) = (served.client().await, served.client().await);
    let running = busy(&mut one).await;
    let waiting = tokio::spawn(async move { lines(&mut other, "SELECT 1").await });
    tokio::task::yield_now().await;
    drop(running);
    assert_eq!(waiting.await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_too_long_is_refused() {
    let served = Served::with(|options| {
        options.limits.running = 1;
        options.limits.wait = Duration::from_millis(1);
    })
    .await;
    let (mut one, mut other) = (served.client().await, served.client().await);
    let _running = busy(&mut one).await;
    let found = status(query(&mut other, "SELECT 1").await);
    assert!(found.code() == Code::ResourceExhausted && found.message().contains("no turn came within"), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_rows_loses_its_query_in_the_end() {
    let served = Served::with(|options| {
        options.limits.stalled = Duration::from_millis(1);
        options.http = Some("127.0.0.1:0".parse().unwrap());
    })
    .await;
    let mut one = served.client().await;
    let mut stalled = begun(&mut one).await;
    while !get(&served, "/").await.contains("Nothing runs.") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = loop {
        match stalled.next().await.expect("the stream ends with an error") {
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("nobody took its rows"), "{error}");
}

/// Rows of a query that a client leaves: more than all that is under way has room for.
const LEFT: usize = 200_000;

/// A query whose client takes the first rows of it, and how many these were.
async fn left(served: &Served) -> (Client, arrow_flight::decode::FlightRecordBatchStream, usize) {
    let mut client = served.client().await;
    let statement = format!("SELECT value, repeat('x', 100) FROM generate_series(1, {LEFT})");
    let info = client.execute(statement, None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let first = stream.next().await.unwrap().unwrap().num_rows();
    (client, stream, first)
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_no_rows_keep_nobody_waiting_and_get_their_rows_when_they_come() {
    let served = Served::with(|options| {
        options.limits.running = 2;
        // No query is stopped for being left, as long as anything takes here.
        options.limits.wait = Duration::from_secs(1200);
        options.limits.stalled = Duration::from_secs(1200);
    })
    .await;
    let all = futures::future::join_all((0..64).map(|_| left(&served)));
    let mut all = tokio::time::timeout(Duration::from_secs(300), all).await.expect("turns are lent");
    let mut quick = served.client().await;
    let found = tokio::time::timeout(Duration::from_secs(300), lines(&mut quick, "SELECT 1")).await;
    assert_eq!(found.expect("a turn is lent"), ["1"]);
    let (_client, stream, first) = all.swap_remove(0);
    let rest: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    assert_eq!(first + rest.iter().map(RecordBatch::num_rows).sum::<usize>(), LEFT);
    assert_eq!(all.len(), 63);
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_share_the_memory_spill_and_fail_alone_if_that_does_not_do() {
    // Each partition of a sort keeps 10 MB for its merge, and there is one for each core.
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let memory = (200 << 20).max(cores * (40 << 20));
    let served = Served::with(|options| options.limits.memory_bytes = memory).await;
    let mut client = served.client().await;
    let sorted = "SELECT repeat(value::varchar, 30) AS v FROM generate_series(1, 1000000) ORDER BY v";
    let batches = query(&mut client, sorted).await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1_000_000);
    // Each side has more than a kilobyte for each row.
    let side = format!("(SELECT repeat(value::varchar, 200) AS k FROM generate_series(1, {}))", memory / 700);
    let found = status(query(&mut client, &format!("SELECT count(*) FROM {side} a JOIN {side} b USING (k)")).await);
    assert_eq!(found.code(), Code::ResourceExhausted, "{found:?}");
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

//! Tickets, handles and commands that were made up, or changed on their way.
//!
//! `make fuzz NAME=handles` draws more of them.

use std::io::Write;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, Any, Command,
    CommandGetDbSchemas, CommandGetTables, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    CommandStatementQuery, CommandStatementUpdate, ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{Action, FlightData, FlightDescriptor, FlightInfo, Ticket};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use prost::Message;
use tokio::runtime::Runtime;
use tonic::Code;
use tonic::transport::Channel;

use crate::served::{Client, ROWS, Served, number, prepare, read, status};

/// Tokens of two clients.
const ANN: &str = "0123456789abcdef0123456789abcdea";
const BOB: &str = "0123456789abcdef0123456789abcdeb";

/// Longer than any run.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// What happens to bytes on their way.
#[derive(Clone, Debug)]
enum Change {
    /// One bit is another.
    Flip(Index, u8),
    /// They end here.
    Cut(Index),
    /// Others come in between.
    Insert(Index, Vec<u8>),
    /// Others stand in their place.
    Replace(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<Index>(), 0..8_u8).prop_map(|(place, bit)| Change::Flip(place, bit)),
        1 => any::<Index>().prop_map(Change::Cut),
        2 => (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(place, bytes)| Change::Insert(place, bytes)),
        1 => vec(any::<u8>(), 0..200).prop_map(Change::Replace),
    ]
}

fn changed(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        match change {
            Change::Flip(..) | Change::Cut(_) if bytes.is_empty() => {}
            Change::Flip(place, bit) => {
                let place = place.index(bytes.len());
                bytes[place] ^= 1 << *bit;
            }
            Change::Cut(place) => bytes.truncate(place.index(bytes.len())),
            Change::Insert(place, more) => {
                let place = place.index(bytes.len() + 1);
                bytes.splice(place..place, more.iter().copied());
            }
            Change::Replace(others) => bytes.clone_from(others),
        }
    }
    bytes
}

/// Draws as many cases as `PROPTEST_CASES` says, or 256.
fn each<S: Strategy, F: Future<Output = Result<(), TestCaseError>>>(
    runtime: &Runtime,
    drawn: &S,
    ask: impl Fn(S::Value) -> F,
) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    runner.run(drawn, |case| runtime.block_on(ask(case))).unwrap();
}

/// Another client over the same connection.
fn beside(client: &Client, token: Option<&str>) -> Client {
    let mut other = FlightSqlServiceClient::new_from_inner(client.inner().clone());
    if let Some(token) = token {
        other.set_token(token.to_owned());
    }
    other
}

/// The handle in a ticket; none if it is a ticket of something else, or of nothing.
fn handle_in(ticket: &[u8]) -> Option<Vec<u8>> {
    match Command::try_from(Any::decode(ticket).ok()?).ok()? {
        Command::TicketStatementQuery(ticket) => Some(ticket.statement_handle.to_vec()),
        _ => None,
    }
}

fn ticket_of(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().unwrap()
}

/// Sees to it that a call was answered, and that the client is to blame. A panic of the server breaks the call off, which clients hear as
/// one of these.
fn check_refusal(refusal: &tonic::Status) -> Result<(), TestCaseError> {
    let wrong = [Code::Unknown, Code::Cancelled, Code::Unavailable, Code::Aborted];
    // The engine may call a statement that was changed an internal error; bytes that are no command are none.
    let unblamed = ["Unable to decode", "could not be planned"].map(|says| refusal.message().contains(says));
    let is_broken = wrong.contains(&refusal.code())
        || refusal.message().contains("h2 protocol")
        || (refusal.code() == Code::Internal && unblamed.contains(&true));
    prop_assert!(!is_broken, "{refusal:?}");
    Ok(())
}

/// A call that may succeed or be refused.
fn check_answered<T>(outcome: Result<T, tonic::Status>) -> Result<(), TestCaseError> {
    outcome.err().map_or(Ok(()), |refusal| check_refusal(&refusal))
}

async fn ask_by_changed_ticket(mut client: Client, changes: Vec<Change>) -> Result<(), TestCaseError> {
    let info = client.execute("SELECT 1".to_owned(), None).await.unwrap();
    let ticket = ticket_of(&info).ticket;
    let forged = changed(&ticket, &changes);
    let is_same = handle_in(&forged) == handle_in(&ticket);
    let outcome = client.do_get(Ticket::new(forged)).await.map(|_| ());
    prop_assert_eq!(outcome.is_ok(), is_same);
    if !is_same {
        check_refusal(&status(outcome))?;
        // It is still there for its owner.
        prop_assert_eq!(read(&mut client, info).await.unwrap()[0].num_rows(), 1);
    }
    Ok(())
}

#[test]
fn a_ticket_that_was_changed_leads_to_its_rows_or_to_none() {
    let runtime = Runtime::new().unwrap();
    let served = runtime.block_on(Served::with(|options| options.limits.plan_life = LONG));
    let client = runtime.block_on(served.client());
    each(&runtime, &vec(change(), 1..4), |changes| ask_by_changed_ticket(beside(&client, None), changes));
}

async fn with_tokens() -> (Served, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "ann {ANN}\nbob {BOB}").unwrap();
    let path = file.path().to_owned();
    let served = Served::with(|options| {
        options.token_file = Some(path);
        options.limits.plan_life = LONG;
        options.limits.prepared_life = LONG;
    });
    (served.await, file)
}

async fn client_of(served: &Served, token: &str) -> Client {
    let mut client = served.client().await;
    client.set_token(token.to_owned());
    client
}

/// Reads and cancels a query that is another client's.
async fn reach_for(mut client: Client, info: &FlightInfo, changes: Vec<Change>) -> Result<(), TestCaseError> {
    let ticket = Ticket::new(changed(&ticket_of(info).ticket, &changes));
    let refused = client.do_get(ticket).await.map(|_| ());
    prop_assert!(refused.is_err(), "rows of another client");
    check_refusal(&status(refused))?;
    let request = ActionCancelQueryRequest { info: changed(&info.encode_to_vec(), &changes).into() };
    let mut call = tonic::Request::new(Action::new("CancelQuery", request.as_any().encode_to_vec()));
    call.metadata_mut().insert("authorization", format!("Bearer {ANN}").parse().unwrap());
    let refused = client.inner_mut().do_action(call).await.map(|_| ());
    prop_assert!(refused.is_err(), "a query of another client was cancelled");
    check_answered(refused)
}

#[test]
fn what_one_client_has_is_reached_by_no_other_whatever_it_sends() {
    let runtime = Runtime::new().unwrap();
    let (served, _file) = runtime.block_on(with_tokens());
    let ann = runtime.block_on(client_of(&served, ANN));
    let mut bob = runtime.block_on(client_of(&served, BOB));
    let info = runtime.block_on(bob.execute("SELECT count(*) FROM flights".to_owned(), None)).unwrap();
    // First of all as it is.
    let (mut ann_alone, foreign) = (beside(&ann, Some(ANN)), ticket_of(&info));
    let refused = status(runtime.block_on(ann_alone.do_get(foreign)).map(|_| ()));
    assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
    runtime.block_on(reach_for(beside(&ann, Some(ANN)), &info, Vec::new())).unwrap();
    each(&runtime, &vec(change(), 1..4), |changes| reach_for(beside(&ann, Some(ANN)), &info, changes));
    let rows = runtime.block_on(read(&mut bob, info)).unwrap();
    assert_eq!(rows.iter().map(|batch| batch.num_rows()).sum::<usize>(), 1);
}

/// Commands and tickets as drivers send them; the last ones name a prepared statement.
fn commands(prepared: &[u8]) -> Vec<Vec<u8>> {
    let handle = prepared.to_vec();
    let text = "SELECT carrier FROM flights LIMIT 3".to_owned();
    let messages = [
        CommandStatementQuery { query: text.clone(), transaction_id: None }.as_any(),
        CommandStatementUpdate { query: text, transaction_id: None }.as_any(),
        CommandGetDbSchemas { catalog: Some("lakemark".to_owned()), db_schema_filter_pattern: Some("p%".to_owned()) }
            .as_any(),
        CommandGetTables {
            table_name_filter_pattern: Some("fl_ghts".to_owned()),
            include_schema: true,
            ..CommandGetTables::default()
        }
        .as_any(),
        TicketStatementQuery { statement_handle: vec![7; 16].into() }.as_any(),
        CommandPreparedStatementQuery { prepared_statement_handle: handle.clone().into() }.as_any(),
        CommandPreparedStatementUpdate { prepared_statement_handle: handle.into() }.as_any(),
    ];
    messages.iter().map(Message::encode_to_vec).collect()
}

/// Actions as drivers send them.
fn actions() -> Vec<(&'static str, Vec<u8>)> {
    let create = ActionCreatePreparedStatementRequest { query: "SELECT ?".to_owned(), transaction_id: None };
    let close = ActionClosePreparedStatementRequest { prepared_statement_handle: vec![7; 16].into() };
    let cancel = ActionCancelQueryRequest { info: FlightInfo::new().encode_to_vec().into() };
    vec![
        ("CreatePreparedStatement", create.as_any().encode_to_vec()),
        ("ClosePreparedStatement", close.as_any().encode_to_vec()),
        ("CancelQuery", cancel.as_any().encode_to_vec()),
        ("BeginTransaction", Vec::new()),
    ]
}

/// Sends bytes in the place of a command to every call, and a message in the place of an action.
async fn send(
    mut raw: FlightServiceClient<Channel>,
    bytes: Vec<u8>,
    (name, body): (&str, Vec<u8>),
) -> Result<(), TestCaseError> {
    check_answered(raw.get_flight_info(FlightDescriptor::new_cmd(bytes.clone())).await)?;
    check_answered(raw.get_schema(FlightDescriptor::new_cmd(bytes.clone())).await)?;
    check_answered(raw.do_get(Ticket::new(bytes.clone())).await)?;
    check_answered(raw.do_action(Action::new(name, body)).await)?;
    let put = FlightData::new().with_descriptor(FlightDescriptor::new_cmd(bytes.clone()));
    // The bytes as they are in the place of a message of Arrow, too.
    let message = FlightData::new().with_data_header(bytes.clone()).with_data_body(bytes);
    check_answered(raw.do_put(futures::stream::iter([put, message])).await)
}

#[test]
fn every_command_is_answered_whatever_its_bytes_are() {
    let runtime = Runtime::new().unwrap();
    let served = runtime.block_on(Served::with(|options| options.limits.plans = 1_000_000));
    let mut client = runtime.block_on(served.client());
    let raw = client.inner().clone();
    let commands = commands(&runtime.block_on(prepare(&client, "SELECT 1")));
    let actions = actions();
    let drawn = (any::<Index>(), any::<Index>(), vec(change(), 0..4));
    each(&runtime, &drawn, |(command, action, changes)| {
        let (name, body) = action.get(&actions);
        send(raw.clone(), changed(command.get::<Vec<u8>>(&commands), &changes), (*name, changed(body, &changes)))
    });
    assert_eq!(runtime.block_on(number(&mut client, "SELECT count(*) FROM flights")), ROWS);
}

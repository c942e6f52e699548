//! The columns of a command before it is run: GetSchema says what GetFlightInfo announces, and nothing is run for it.

use arrow::datatypes::Schema;
use arrow_flight::sql::{
    Any, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables,
    CommandGetXdbcTypeInfo, CommandPreparedStatementQuery, CommandStatementQuery, CommandStatementUpdate,
    ProstMessageExt,
};
use arrow_flight::{Empty, FlightDescriptor, IpcMessage};
use futures::TryStreamExt;
use prost::Message;
use tonic::{Code, Status};

use crate::served::{Client, ROWS, Served, number, prepare};

/// The columns that GetSchema says.
async fn said(client: &Client, command: &Any) -> Result<Schema, Status> {
    let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
    let answer = client.inner().clone().get_schema(descriptor).await?.into_inner();
    Ok(Schema::try_from(answer).unwrap())
}

/// The columns that GetFlightInfo announces.
async fn announced(client: &Client, command: &Any) -> Schema {
    let descriptor = FlightDescriptor::new_cmd(command.encode_to_vec());
    let info = client.inner().clone().get_flight_info(descriptor).await.unwrap().into_inner();
    Schema::try_from(IpcMessage(info.schema)).unwrap()
}

fn statement(query: &str) -> Any {
    CommandStatementQuery { query: query.to_owned(), transaction_id: None }.as_any()
}

fn names(schema: &Schema) -> Vec<&str> {
    schema.fields().iter().map(|field| field.name().as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_say_their_columns_as_they_are_announced() {
    let served = Served::begin().await;
    let client = served.client().await;
    for query in [
        "SELECT * FROM flights",
        "SELECT carrier AS c, count(*) AS n, arrow_cast(carrier, 'Utf8View') AS v FROM flights GROUP BY carrier",
        "SHOW INDEXES FROM flights",
        "EXPLAIN ANALYZE SELECT * FROM flights",
    ] {
        let command = statement(query);
        assert_eq!(said(&client, &command).await.unwrap(), announced(&client, &command).await, "{query}");
    }
    let handle = prepare(&client, "SELECT number AS n FROM flights WHERE carrier = ?").await;
    let prepared = CommandPreparedStatementQuery { prepared_statement_handle: handle.into() }.as_any();
    assert_eq!(names(&said(&client, &prepared).await.unwrap()), ["n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tools_ask_says_its_columns_as_they_are_announced() {
    let served = Served::begin().await;
    let client = served.client().await;
    let table = || "flights".to_owned();
    for command in [
        CommandGetCatalogs {}.as_any(),
        CommandGetDbSchemas::default().as_any(),
        CommandGetTables::default().as_any(),
        CommandGetTables { include_schema: true, ..CommandGetTables::default() }.as_any(),
        CommandGetTableTypes {}.as_any(),
        CommandGetSqlInfo::default().as_any(),
        CommandGetXdbcTypeInfo::default().as_any(),
        CommandGetPrimaryKeys { table: table(), ..CommandGetPrimaryKeys::default() }.as_any(),
        CommandGetImportedKeys { table: table(), ..CommandGetImportedKeys::default() }.as_any(),
        CommandGetExportedKeys { table: table(), ..CommandGetExportedKeys::default() }.as_any(),
        CommandGetCrossReference::default().as_any(),
    ] {
        let columns = said(&client, &command).await.unwrap();
        assert!(!columns.fields().is_empty(), "{}", command.type_url);
        assert_eq!(columns, announced(&client, &command).await, "{}", command.type_url);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_not_made_to_say_its_columns_and_what_is_wrong_is_refused() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    let create = statement("CREATE INDEX c ON flights USING bitmap (carrier)");
    assert!(said(&client, &create).await.unwrap().fields().is_empty());
    assert!(!served.flights().join("_lakemark").exists());
    let update = CommandStatementUpdate { query: "DELETE FROM flights".to_owned(), transaction_id: None }.as_any();
    let broken = Any { value: b"\xff\xff\xff".to_vec().into(), ..statement("SELECT 1") };
    let unknown = CommandPreparedStatementQuery { prepared_statement_handle: vec![7; 16].into() }.as_any();
    let tied = CommandStatementQuery { query: "SELECT 1".to_owned(), transaction_id: Some("tx".into()) }.as_any();
    for (command, code) in [
        (statement("SELECT nosuch FROM flights"), Code::InvalidArgument),
        (statement("SET lakemark.use_index = false"), Code::Unimplemented),
        (tied, Code::Unimplemented),
        (update, Code::Unimplemented),
        (broken, Code::InvalidArgument),
        (unknown, Code::NotFound),
    ] {
        let refused = said(&client, &command).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused:?}");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_actions_are_listed_that_there_are() {
    let served = Served::begin().await;
    let client = served.client().await;
    let listed = client.inner().clone().list_actions(Empty {}).await.unwrap().into_inner();
    let listed: Vec<_> = listed.try_collect().await.unwrap();
    let names: Vec<&str> = listed.iter().map(|action| action.r#type.as_str()).collect();
    assert_eq!(names, ["CreatePreparedStatement", "ClosePreparedStatement", "CancelQuery"]);
}

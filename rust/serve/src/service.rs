//! Flight SQL: what each call of a client does.
//!
//! ```text
//! GetFlightInfo(statement) ─ plans it once ─▶ a plan under a handle ─▶ DoGet(handle) ─ takes a turn, runs it ─▶ rows
//!                          └ a change takes a turn and is made at once; its count is what the handle stands for
//! ```

mod answers;
mod calls;
mod shared;
mod statements;

use std::pin::Pin;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{DoPutError, FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionRequest,
    ActionBeginTransactionResult, ActionCancelQueryRequest, ActionCancelQueryResult,
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    ActionEndSavepointRequest, ActionEndTransactionRequest, Any, Command, CommandGetCatalogs, CommandGetCrossReference,
    CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetSqlInfo,
    CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket};
use bytes::Bytes;
use futures::Stream;
use lakemark_datafusion::{NO_TRANSACTIONS, StatementKind};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use self::answers::{GetStream, answer, encoded, info};
pub(crate) use self::calls::Calls;
use self::shared::{Client, Pinned, weight_of};
pub(crate) use self::shared::{Principal, Shared};
use self::statements::{Admitted, columns_of};
use crate::error::{arrow_status, flight_status, status};
use crate::handles::Handle;
use crate::metadata::{catalogs, keys, server_info};
use crate::prepared::{Prepared, Runs};
use crate::running::Rows;
use crate::tokens::secret_of;
use crate::wire;

/// The result of a statement that cancels another one, by the number that Flight SQL gives to it.
const CANCELLED: i32 = 1;

/// Letters of the name of an action or a command that are said.
const SHOWN_NAME: usize = 50;

/// The service; its clones are one.
#[derive(Clone)]
pub(crate) struct Service(pub(crate) Arc<Shared>);

fn cancelled() -> Status {
    Status::cancelled("the query was cancelled by its client")
}

fn refuse_transaction(id: Option<&Bytes>) -> Result<(), Status> {
    match id.filter(|id| !id.is_empty()) {
        None => Ok(()),
        Some(_) => Err(Status::unimplemented(NO_TRANSACTIONS)),
    }
}

/// A command that a call has no answer to. Its name is the client's, and may be as long as a message.
fn not_answered(call: &str, type_url: &str) -> Status {
    let name: String = type_url.rsplit('/').next().unwrap_or_default().chars().take(SHOWN_NAME).collect();
    Status::unimplemented(format!("{call} does not take {name:?}: give it a command of Flight SQL that it is for"))
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Self;

    /// A client that gives a user and a password goes on with that password as its token. Who has a wrong one does not come this far.
    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>>, Status> {
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok()).and_then(secret_of);
        let first = HandshakeResponse { protocol_version: 0, payload: Bytes::new() };
        let mut response: Response<Pin<Box<dyn Stream<Item = _> + Send>>> =
            Response::new(Box::pin(futures::stream::iter([Ok(first)])));
        if let Some(bearer) = given.and_then(|token| format!("Bearer {token}").parse().ok()) {
            response.metadata_mut().insert("authorization", bearer);
        }
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        refuse_transaction(query.transaction_id.as_ref())?;
        let client = Client::of(&request);
        self.announce(&query.query, None, client, request.into_inner()).await
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let client = Client::of(&request);
        let prepared = self.prepared(&query.prepared_statement_handle, &client)?;
        if prepared.is_query() {
            return self.announce(prepared.text(), prepared.only_run()?, client, request.into_inner()).await;
        }
        // The values of a change are taken when its turn has come: whoever is refused before may come again with them.
        let turn = self.turn(&client).await?;
        let parameters = prepared.only_run()?;
        self.announce_change(prepared.text(), parameters, client, request.into_inner(), &turn).await
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query.into_builder().schema(), &query, request.into_inner())
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query.clone().into_builder().schema(), &query, request.into_inner())
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query.clone().into_builder().schema(), &query, request.into_inner())
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&query.into_builder().schema(), &query, request.into_inner())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&self.0.server_info.schema(), &query, request.into_inner())
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&keys::PRIMARY_KEYS, &query, request.into_inner())
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&keys::REFERENCES, &query, request.into_inner())
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&keys::REFERENCES, &query, request.into_inner())
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&keys::REFERENCES, &query, request.into_inner())
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        info(&self.0.type_info.schema(), &query, request.into_inner())
    }

    async fn get_flight_info_fallback(
        &self,
        command: Command,
        _request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        Err(not_answered("GetFlightInfo", command.type_url()))
    }

    async fn do_get_fallback(&self, _request: Request<Ticket>, _message: Any) -> Result<Response<GetStream>, Status> {
        Err(Status::invalid_argument("the ticket is none of this server's: get one by GetFlightInfo"))
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        let client = Client::of(&request);
        let held = self.0.plans.hold(&ticket.statement_handle, &client.owner);
        // A client that goes away while it waits, or that is refused, may come again with the same handle.
        let mut held = held.ok_or_else(|| {
            let life = self.0.limits.plan_life.as_secs();
            Status::not_found(format!(
                "the handle is not known: its rows were read already, or not asked for within {life} s; run the statement again"
            ))
        })?;
        let Admitted { rows, turn } = self.admitted(&mut held, &client).await?;
        let handle = held.handle();
        let Pinned { query, schema, text, .. } = held.take().ok_or_else(cancelled)?;
        let stream = match rows {
            Some(rows) => rows,
            None => self.0.statements.rows(query).await?,
        };
        let rows = Rows { stream, schema: Arc::clone(&schema), turn };
        Ok(encoded(schema, self.0.running.query(&text, &client.name, handle, rows)))
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(catalogs::catalogs(query)?)
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(catalogs::schemas(&self.0.statements, query).await?)
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(catalogs::tables(&self.0.statements, query).await?)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(catalogs::table_types(query)?)
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(server_info::chosen(query, &self.0.server_info)?)
    }

    async fn do_get_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(keys::primary_keys(&self.0.statements, query).await?)
    }

    async fn do_get_exported_keys(
        &self,
        _query: CommandGetExportedKeys,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(keys::references())
    }

    async fn do_get_imported_keys(
        &self,
        _query: CommandGetImportedKeys,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(keys::references())
    }

    async fn do_get_cross_reference(
        &self,
        _query: CommandGetCrossReference,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(keys::references())
    }

    async fn do_get_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        _request: Request<Ticket>,
    ) -> Result<Response<GetStream>, Status> {
        answer(query.into_builder(&self.0.type_info).build().map_err(flight_status)?)
    }

    async fn do_put_fallback(
        &self,
        _request: Request<PeekableFlightDataStream>,
        message: Any,
    ) -> Result<Response<<Self as FlightService>::DoPutStream>, Status> {
        Err(not_answered("DoPut", &message.type_url))
    }

    async fn do_put_error_callback(
        &self,
        _request: Request<PeekableFlightDataStream>,
        error: DoPutError,
    ) -> Result<Response<<Self as FlightService>::DoPutStream>, Status> {
        Err(Status::invalid_argument(error.to_string()))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        refuse_transaction(command.transaction_id.as_ref())?;
        let once = || -> Result<Runs, Status> { Ok(Box::new(std::iter::once(Ok(None)))) };
        self.change(&command.query, once, &Client::of(&request)).await
    }

    async fn do_put_statement_ingest(
        &self,
        _command: CommandStatementIngest,
        _request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let message =
            "bulk ingestion is not supported: run INSERT INTO the table VALUES (?, …) with the rows as parameters";
        Err(Status::unimplemented(message))
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let prepared = self.prepared(&query.prepared_statement_handle, &Client::of(&request))?;
        let (values, room) = self.values(request.into_inner()).await?;
        prepared.bind(values, room);
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(query.prepared_statement_handle) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let client = Client::of(&request);
        let prepared = self.prepared(&query.prepared_statement_handle, &client)?;
        let (values, _room) = self.values(request.into_inner()).await?;
        self.change(prepared.text(), || prepared.runs(values), &client).await
    }

    /// Drivers try actions such as `SetSessionOptions` and `CloseSession`, and go on where they hear that there are none.
    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let name: String = request.get_ref().r#type.chars().take(SHOWN_NAME).collect();
        Err(Status::unimplemented(format!(
            "the action {name:?} is not supported: sessions have no options, and end with their connections"
        )))
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        refuse_transaction(query.transaction_id.as_ref())?;
        let client = Client::of(&request);
        let (planned, kept) = self.0.statements.prepare(&client.owner, &query.query).await?;
        let bytes = |schema: &SchemaRef| wire::schema_bytes(schema).map_err(arrow_status);
        // Columns tell a driver that there are rows to be read: a statement without any changes something.
        let dataset_schema = columns_of(&planned)?.map_or_else(|| Ok(Bytes::new()), |columns| bytes(&columns))?;
        let is_query = planned.kind() == StatementKind::Query;
        let weight = weight_of(&query.query, None);
        // A change is planned anew each time, as it needs the newest rows.
        let kept = kept.filter(|_| is_query);
        let prepared = Prepared::new(query.query, planned.parameters().map_err(status)?, is_query, kept);
        let parameters = prepared.parameter_schema();
        let parameter_schema = if parameters.fields().is_empty() { Bytes::new() } else { bytes(&parameters)? };
        let handle = self.0.prepared.put_for_idle_ones(client.owner, prepared, weight);
        let handle = handle.map_err(|_| {
            Status::resource_exhausted(
                "the statement is too long to be prepared; give long lists as parameters or as a table, or raise the limit memory_bytes",
            )
        })?;
        let prepared_statement_handle = Bytes::copy_from_slice(&handle);
        Ok(ActionCreatePreparedStatementResult { prepared_statement_handle, dataset_schema, parameter_schema })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        // One that is not known any more is closed.
        self.0.prepared.remove(&query.prepared_statement_handle, &Client::of(&request).owner);
        Ok(())
    }

    async fn do_action_begin_transaction(
        &self,
        _query: ActionBeginTransactionRequest,
        _request: Request<Action>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        Err(Status::unimplemented(NO_TRANSACTIONS))
    }

    async fn do_action_end_transaction(
        &self,
        _query: ActionEndTransactionRequest,
        _request: Request<Action>,
    ) -> Result<(), Status> {
        Err(Status::unimplemented(NO_TRANSACTIONS))
    }

    async fn do_action_begin_savepoint(
        &self,
        _query: ActionBeginSavepointRequest,
        _request: Request<Action>,
    ) -> Result<ActionBeginSavepointResult, Status> {
        Err(Status::unimplemented(NO_TRANSACTIONS))
    }

    async fn do_action_end_savepoint(
        &self,
        _query: ActionEndSavepointRequest,
        _request: Request<Action>,
    ) -> Result<(), Status> {
        Err(Status::unimplemented(NO_TRANSACTIONS))
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let client = Client::of(&request);
        let handle = handle_in(&query.info)?;
        let was_waiting = self.0.plans.remove(&handle, &client.owner).is_some();
        let was_running = Handle::try_from(handle.iter().as_slice())
            .is_ok_and(|handle| self.0.running.stop(&handle, &client.owner, &cancelled()));
        match was_waiting || was_running {
            true => Ok(ActionCancelQueryResult { result: CANCELLED }),
            false => Err(Status::not_found("the query is not known: its rows were read already")),
        }
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}

/// The handle that the description of a query leads to.
fn handle_in(info: &[u8]) -> Result<Bytes, Status> {
    let wrong = |error: prost::DecodeError| Status::invalid_argument(format!("the query cannot be read: {error}"));
    let info = FlightInfo::decode(info).map_err(wrong)?;
    let ticket = info.endpoint.first().and_then(|endpoint| endpoint.ticket.as_ref());
    let ticket = ticket.ok_or_else(|| Status::invalid_argument("the query has no ticket"))?;
    match Command::try_from(Any::decode(ticket.ticket.as_ref()).map_err(wrong)?).map_err(arrow_status)? {
        Command::TicketStatementQuery(ticket) => Ok(ticket.statement_handle),
        _ => Err(Status::invalid_argument("the ticket is not of a query")),
    }
}

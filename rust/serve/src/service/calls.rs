//! The calls of Flight as they come. Those of Flight SQL go on to the service; of the others some have an answer here.

use std::pin::Pin;
use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, Command};
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, HandshakeResponse,
    PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::Stream;
use prost::Message;
use tonic::{Code, Request, Response, Status, Streaming};

use super::shared::Client;
use super::statements::columns_of;
use super::{Service, refuse_transaction};
use crate::error::arrow_status;
use crate::wire;

/// What a call answers piece by piece.
type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The actions that there are, with what each does.
const ACTIONS: [(&str, &str); 3] = [
    ("CreatePreparedStatement", "prepares a statement, for parameters or for several runs"),
    ("ClosePreparedStatement", "forgets a prepared statement"),
    ("CancelQuery", "stops a query, whether its rows are read already or not"),
];

/// What the crate for Flight says of bytes that are no command.
const UNREADABLE: &str = "Unable to decode";

/// What the port answers.
pub(crate) struct Calls(pub(crate) Service);

impl Calls {
    /// The columns of the rows that a command gives, as Flight has them. A statement is planned for them, and not run. One that changes
    /// something has none before it is made.
    async fn columns(&self, request: Request<FlightDescriptor>) -> Result<SchemaResult, Status> {
        let wrong = |error: String| Status::invalid_argument(format!("the command cannot be read: {error}"));
        let message = Any::decode(&*request.get_ref().cmd).map_err(|error| wrong(error.to_string()))?;
        let Service(shared) = &self.0;
        let client = Client::of(&request);
        let planned = match Command::try_from(message).map_err(|error| wrong(error.to_string()))? {
            Command::CommandStatementQuery(query) => {
                refuse_transaction(query.transaction_id.as_ref())?;
                shared.statements.plan(&client.owner, &query.query, None).await?
            }
            Command::CommandPreparedStatementQuery(query) => {
                let prepared = self.0.prepared(&query.prepared_statement_handle, &client)?;
                shared.statements.plan(&client.owner, prepared.text(), None).await?
            }
            // Whoever asks what there is changes nothing by it, and is told the columns before the rows.
            _ => {
                let info = self.0.get_flight_info(request).await?.into_inner();
                return Ok(SchemaResult { schema: info.schema });
            }
        };
        let columns = columns_of(&planned)?.unwrap_or_else(|| Arc::new(Schema::empty()));
        Ok(SchemaResult { schema: wire::schema_bytes(&columns).map_err(arrow_status)? })
    }
}

/// Bytes that are no command are the fault of their client.
fn blamed(status: Status) -> Status {
    match status.code() {
        Code::Internal if status.message().contains(UNREADABLE) => {
            Status::invalid_argument(format!("the command cannot be read: {}", status.message()))
        }
        _ => status,
    }
}

#[tonic::async_trait]
impl FlightService for Calls {
    type HandshakeStream = Pieces<HandshakeResponse>;
    type ListFlightsStream = Pieces<FlightInfo>;
    type DoGetStream = Pieces<FlightData>;
    type DoPutStream = Pieces<PutResult>;
    type DoExchangeStream = Pieces<FlightData>;
    type DoActionStream = Pieces<arrow_flight::Result>;
    type ListActionsStream = Pieces<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.0.handshake(request).await
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented("there is no list of flights: ask for tables, as CommandGetTables of Flight SQL"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        self.0.get_flight_info(request).await.map_err(blamed)
    }

    async fn poll_flight_info(&self, _request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        Err(Status::unimplemented(
            "queries are not polled: ask for them by GetFlightInfo, and read their rows by DoGet",
        ))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        self.columns(request).await.map(Response::new).map_err(blamed)
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.0.do_get(request).await.map_err(blamed)
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        self.0.do_put(request).await.map_err(blamed)
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(Status::unimplemented("data is not exchanged: read rows by DoGet, and send parameters by DoPut"))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        self.0.do_action(request).await.map_err(blamed)
    }

    async fn list_actions(&self, _request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        let action = |(name, does): (&str, &str)| {
            Ok::<_, Status>(ActionType { r#type: name.to_owned(), description: does.to_owned() })
        };
        let actions: Self::ListActionsStream = Box::pin(futures::stream::iter(ACTIONS.map(action)));
        Ok(Response::new(actions))
    }
}

//! Answers as Flight has them: where rows are, and the rows.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{ProstMessageExt, TicketStatementQuery};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use prost::Message;
use tonic::{Response, Status};

use super::Service;
use crate::error::{arrow_status, flight_status};
use crate::handles::Handle;

pub(super) type GetStream = <Service as FlightService>::DoGetStream;

/// Where the rows of a statement are.
pub(super) fn rows_at(
    handle: &Handle,
    schema: &SchemaRef,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let ticket = TicketStatementQuery { statement_handle: Bytes::copy_from_slice(handle) };
    info(schema, &ticket, descriptor)
}

/// Where the rows of a command are.
pub(super) fn info(
    schema: &SchemaRef,
    ticket: &impl ProstMessageExt,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.as_any().encode_to_vec()));
    let info = FlightInfo::new().try_with_schema(schema).map_err(arrow_status)?;
    Ok(Response::new(info.with_descriptor(descriptor).with_endpoint(endpoint)))
}

/// Rows as a client reads them.
pub(super) fn encoded(
    schema: SchemaRef,
    rows: impl Stream<Item = Result<RecordBatch, FlightError>> + Send + 'static,
) -> Response<GetStream> {
    let encoder = FlightDataEncoderBuilder::new().with_schema(schema).build(rows);
    Response::new(Box::pin(encoder.map_err(flight_status)))
}

/// The rows of an answer that is known.
pub(super) fn answer(batch: RecordBatch) -> Result<Response<GetStream>, Status> {
    Ok(encoded(batch.schema(), futures::stream::iter([Ok(batch)])))
}

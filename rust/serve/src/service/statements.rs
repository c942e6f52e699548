//! Statements, from their text to what a client is told of them.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, UInt64Type};
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::{FlightDescriptor, FlightInfo};
use datafusion::common::ParamValues;
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use lakemark_datafusion::{PlannedStatement, ReadyQuery, StatementKind};
use tonic::{Response, Status};

use super::Service;
use super::answers::rows_at;
use super::cancelled;
use super::shared::{Client, LEAST_WEIGHT, Pinned, weight_of};
use crate::error::{come_again, engine_status, status};
use crate::handles::{Full, Held};
use crate::lending::Lendable;
use crate::prepared::{Prepared, Runs};
use crate::receiving::{Room, Values};
use crate::turns::{NoTurn, Turn};
use crate::wire;

/// A change that was made.
struct Made {
    kind: StatementKind,
    /// What it reports.
    report: ReadyQuery,
}

/// What a query has that may run.
#[derive(Default)]
pub(super) struct Admitted {
    /// Rows that others compute.
    pub(super) rows: Option<SendableRecordBatchStream>,
    /// None where nothing is left to be computed.
    pub(super) turn: Option<Lendable>,
}

impl Service {
    /// Waits until a query may run: until it has a turn, or until an equal one runs, whose rows it takes and whose turn it has as well.
    pub(super) async fn admitted(&self, held: &mut Held<'_, Pinned>, client: &Client) -> Result<Admitted, Status> {
        // What a change reports is told however busy the server is: whoever does not hear of it would make it again.
        let query = held.look(|plan| (!plan.is_made).then(|| plan.query.clone())).flatten();
        let Some(query) = query else { return Ok(Admitted::default()) };
        let lendable = |turn: Arc<Turn>| Some(Lendable::new(&self.0.turns, &client.name, turn));
        tokio::select! {
            biased;
            () = held.gone() => Err(cancelled()),
            (turn, rows) = query.rows_of_others(|statement| self.0.shared_turns.of(statement)) => {
                Ok(Admitted { rows: Some(rows), turn: lendable(turn) })
            }
            turn = self.turn(client) => {
                let turn = Arc::new(turn?);
                if let Some(statement) = query.statement() {
                    self.0.shared_turns.put(statement, &turn);
                }
                Ok(Admitted { rows: None, turn: lendable(turn) })
            }
        }
    }

    pub(super) async fn turn(&self, client: &Client) -> Result<Turn, Status> {
        self.0.turns.take(&client.name).await.map_err(|error| match error {
            NoTurn::TooManyWait(count) => come_again(
                format!("the server is busy: {count} statements wait already; try again, or raise the limits running and waiting"),
                self.0.limits.wait / 2,
            ),
            NoTurn::TooLong(wait) => come_again(
                format!("the server is busy: no turn came within {} s; try again, or raise the limits running and wait_seconds", wait.as_secs()),
                self.0.limits.wait / 2,
            ),
            NoTurn::Closed => Status::unavailable("the server ends, and the statement was not begun; run it again elsewhere or later"),
        })
    }

    /// What is said where no plan can be kept.
    pub(super) fn full(&self, full: Full) -> Status {
        let message = match full {
            Full::Count(limit) => format!(
                "the server keeps {limit} plans already whose rows nobody asked for; read them, or raise the limit plans"
            ),
            Full::Bytes(limit) => format!(
                "the plans whose rows nobody asked for have the {limit} bytes that they may have; read them, give long lists as parameters \
                 or as a table, or raise the limit memory_bytes"
            ),
        };
        come_again(message, self.0.limits.plan_life)
    }

    /// Makes a change whose turn has come. It is planned now, since others may have changed the same rows while it waited.
    async fn make(
        &self,
        text: &str,
        parameters: Option<ParamValues>,
        client: &Client,
        _turn: &Turn,
    ) -> Result<Made, Status> {
        let _entry = self.0.running.begin(text, &client.name);
        let planned = self.0.statements.plan(&client.owner, text, parameters).await?;
        let kind = planned.kind();
        if kind == StatementKind::Query {
            return Err(Status::invalid_argument("the statement gives rows and changes nothing: run it as a query"));
        }
        Ok(Made { kind, report: self.0.statements.run(planned).await? })
    }

    /// Keeps the plan of a query, and says where its rows are. A change is made at once, and its report is kept.
    pub(super) async fn announce(
        &self,
        text: &str,
        parameters: Option<ParamValues>,
        client: Client,
        descriptor: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let weight = weight_of(text, parameters.as_ref());
        let planned = self.0.statements.plan(&client.owner, text, parameters.clone()).await?;
        if planned.kind() != StatementKind::Query {
            let turn = self.turn(&client).await?;
            return self.announce_change(text, parameters, client, descriptor, &turn).await;
        }
        let query = self.0.statements.run(planned).await?;
        let pinned = Pinned::of(query, text, false);
        let schema = Arc::clone(&pinned.schema);
        let handle = self.0.plans.put(client.owner, pinned, weight).map_err(|full| self.full(full))?;
        rows_at(&handle, &schema, descriptor)
    }

    /// Makes a change, and says where its report is.
    pub(super) async fn announce_change(
        &self,
        text: &str,
        parameters: Option<ParamValues>,
        client: Client,
        descriptor: FlightDescriptor,
        turn: &Turn,
    ) -> Result<Response<FlightInfo>, Status> {
        let Made { report, .. } = self.make(text, parameters, &client, turn).await?;
        let pinned = Pinned::of(report, text, true);
        let schema = Arc::clone(&pinned.schema);
        let handle = self.0.plans.put_beyond_the_limit(client.owner, pinned, LEAST_WEIGHT);
        rows_at(&handle, &schema, descriptor)
    }

    /// Makes a change for each row of parameters; gives how many rows were changed. All of them have one turn, and the values are taken when
    /// it has come: whoever is refused before may come again with them.
    pub(super) async fn change(
        &self,
        text: &str,
        runs: impl FnOnce() -> Result<Runs, Status> + Send,
        client: &Client,
    ) -> Result<i64, Status> {
        let turn = self.turn(client).await?;
        let mut changed = 0;
        for (made, parameters) in (0_usize..).zip(runs()?) {
            let counted = self.change_once(text, parameters, client, &turn).await;
            changed += counted.map_err(|failed| after_rows(made, failed))?;
        }
        Ok(changed)
    }

    async fn change_once(
        &self,
        text: &str,
        parameters: Result<Option<ParamValues>, Status>,
        client: &Client,
        turn: &Turn,
    ) -> Result<i64, Status> {
        let Made { kind, report } = self.make(text, parameters?, client, turn).await?;
        if kind == StatementKind::Change { count_of(report).await } else { Ok(0) }
    }

    /// The values that a client sends. Prepared statements with values that nobody used for long make room for them.
    pub(super) async fn values(&self, stream: PeekableFlightDataStream) -> Result<(Values, Room), Status> {
        let forget = || self.0.prepared.forget_idlest(|prepared| prepared.has_values());
        self.0.receiving.values(stream, forget).await
    }

    pub(super) fn prepared(&self, handle: &[u8], client: &Client) -> Result<Arc<Prepared>, Status> {
        self.0.prepared.get(handle, &client.owner).ok_or_else(|| {
            Status::not_found(
                "the prepared statement is not known: it was closed, nobody used it for long, or it made room for others; prepare it again",
            )
        })
    }
}

/// The columns of the rows that a statement gives; none of one that changes something.
pub(super) fn columns_of(planned: &PlannedStatement) -> Result<Option<SchemaRef>, Status> {
    let columns = planned.query_schema().map_err(status)?;
    Ok(columns.map(|columns| wire::schema(&columns)))
}

/// A failure after some rows of parameters. It does not tell the client to come again: what was made would be made twice.
fn after_rows(made: usize, failed: Status) -> Status {
    match made {
        0 => failed,
        _ => Status::new(
            failed.code(),
            format!("{}; the first {made} rows of parameters were made, and the others were not", failed.message()),
        ),
    }
}

/// The number of rows that a change reports.
async fn count_of(report: ReadyQuery) -> Result<i64, Status> {
    let rows = report.rows().await.map_err(engine_status)?;
    let batches: Vec<RecordBatch> = rows.try_collect().await.map_err(engine_status)?;
    let count = batches.first().and_then(|batch| batch.columns().first());
    let count = count.and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let count = count.and_then(|counts| counts.values().first().copied()).unwrap_or_default();
    i64::try_from(count).map_err(|_| Status::internal("a count is too large"))
}

//! What all calls share, and who calls.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow_flight::sql::metadata::{SqlInfoData, XdbcTypeInfoData};
use datafusion::common::ParamValues;
use lakemark_datafusion::ReadyQuery;
use tonic::{Request, Status};

use crate::handles::{Handles, Most, Owner};
use crate::incoming::CameBy;
use crate::lending::SharedTurns;
use crate::metadata::{server_info, type_info};
use crate::options::Limits;
use crate::prepared::Prepared;
use crate::receiving::Receiving;
use crate::running::{Running, shown};
use crate::statements::Statements;
use crate::turns::Turns;
use crate::wire;

/// A plan whose rows have not been asked for.
pub(crate) struct Pinned {
    pub(super) query: ReadyQuery,
    /// The columns that were announced.
    pub(super) schema: SchemaRef,
    /// The beginning of the statement.
    pub(super) text: String,
    /// Whether it is what a change reports that was made.
    pub(super) is_made: bool,
}

/// What a plan weighs at least.
pub(super) const LEAST_WEIGHT: usize = 16 << 10;
/// What a plan weighs for each byte of its statement: a value of two letters in a list is an expression of some 70 bytes.
const WEIGHT_PER_BYTE: usize = 32;
/// The share of the memory of statements that plans whose rows nobody asked for may weigh, that prepared statements may, and that
/// values of parameters may.
const KEPT_SHARE: usize = 8;

impl Pinned {
    pub(super) fn of(query: ReadyQuery, text: &str, is_made: bool) -> Self {
        let schema = wire::schema(query.schema().as_arrow());
        Self { query, schema, text: shown(text), is_made }
    }
}

/// About what a plan takes in memory.
pub(super) fn weight_of(text: &str, parameters: Option<&ParamValues>) -> usize {
    let values: usize = match parameters {
        None => 0,
        Some(ParamValues::List(values)) => values.iter().map(|value| value.value.size()).sum(),
        Some(ParamValues::Map(values)) => values.values().map(|value| value.value.size()).sum(),
    };
    LEAST_WEIGHT.saturating_add(text.len().saturating_mul(WEIGHT_PER_BYTE)).saturating_add(values)
}

/// What all calls share.
pub(crate) struct Shared {
    pub(crate) statements: Arc<Statements>,
    pub(crate) running: Arc<Running>,
    pub(crate) turns: Arc<Turns>,
    pub(super) shared_turns: SharedTurns,
    pub(crate) plans: Handles<Pinned>,
    pub(crate) prepared: Handles<Arc<Prepared>>,
    pub(super) receiving: Receiving,
    pub(crate) limits: Limits,
    pub(super) server_info: SqlInfoData,
    pub(super) type_info: XdbcTypeInfoData,
}

impl Shared {
    /// Nothing runs yet.
    pub(crate) fn new(statements: Arc<Statements>, limits: Limits) -> Result<Self, Status> {
        let Limits { running, waiting, wait, plans, plan_life, prepared_life, .. } = limits;
        let most = Most { count: plans, bytes: limits.memory_bytes / KEPT_SHARE };
        Ok(Self {
            running: Arc::default(),
            turns: Turns::new(running, waiting, wait),
            shared_turns: SharedTurns::default(),
            plans: Handles::new(most, plan_life),
            prepared: Handles::new(most, prepared_life),
            receiving: Receiving::new(limits.parameter_bytes, most.bytes),
            server_info: server_info::server_info(statements.is_read_only(), &limits)?,
            type_info: type_info::type_info()?,
            statements,
            limits,
        })
    }
}

/// Who has the token that came with a call.
#[derive(Clone, Debug)]
pub(crate) struct Principal(pub(crate) Arc<str>);

/// Who calls.
pub(super) struct Client {
    /// Whose the handles are.
    pub(super) owner: Owner,
    /// Who waits in the queue: the owner of the token, or the connection.
    pub(super) name: Arc<str>,
}

impl Client {
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let owner = request.extensions().get::<Principal>().map(|Principal(name)| Arc::clone(name));
        let address = || request.extensions().get::<CameBy>().and_then(|came| came.address);
        let connection = || address().map_or_else(|| "unknown".into(), |address| address.to_string().into());
        let name = owner.clone().unwrap_or_else(connection);
        Self { owner, name }
    }
}

//! Walks over the links of a table, which `CALL lm.system.reach(…)`, `links(…)` and `path(…)` ask the driver for.
//!
//! Arguments and columns are those of the table functions of our own SQL. A call gives nodes in types of its own, and the columns that links
//! are made of say what they are. Rows have Spark's types.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Decimal128Array, Int64Array, RecordBatch, StringArray};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lakemark_table::{ErrorKind, LinkDirection, LinkMemoryLimit, Links, Snapshot, Table, WalkOptions, machine_memory};
use serde::Deserialize;

use crate::buffered::in_spark_types;
use crate::error::{NativeError, Result};
use crate::maintain::as_named;
use crate::types::spark_schema;

/// Of this part of the machine's memory a walk may take, and links that no index has as much again.
const MEMORY_SHARE: u64 = 4;
/// The memory of a machine that does not say how much it has.
const UNKNOWN_MEMORY: u64 = 4 << 30;
/// The digits of a decimal that holds every whole number of Spark's.
const PRECISION: u8 = 38;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WalkRequest {
    walk: WalkKind,
    /// Where it begins.
    start: GivenValues,
    /// Where a path ends.
    to: Option<GivenValues>,
    /// The predicates of the links; any if none are given.
    via: Option<GivenValues>,
    direction: Option<String>,
    min_depth: Option<u64>,
    max_depth: Option<u64>,
    limit: Option<u64>,
    /// Bytes that links without an index may take, and as many for what the walk has seen.
    memory: Option<u64>,
    /// What links are made of; the columns of the only index of links if none are given.
    columns: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WalkKind {
    Reach,
    Links,
    Path,
}

/// Nodes or predicates, as Spark has them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum GivenValues {
    Long(Vec<i64>),
    /// The digits of whole numbers.
    Decimal(Vec<String>),
    String(Vec<String>),
    /// As base64.
    Binary(Vec<String>),
}

impl GivenValues {
    fn array(self) -> Result<ArrayRef> {
        let array: ArrayRef = match self {
            Self::Long(values) => Arc::new(Int64Array::from(values)),
            Self::Decimal(digits) => {
                let values: std::result::Result<Vec<i128>, _> = digits.iter().map(|digits| digits.parse()).collect();
                let values = values.map_err(|error| NativeError::internal(format!("no whole number: {error}")))?;
                Arc::new(Decimal128Array::from(values).with_precision_and_scale(PRECISION, 0)?)
            }
            Self::String(values) => Arc::new(StringArray::from(values)),
            Self::Binary(values) => {
                let values: std::result::Result<Vec<Vec<u8>>, _> =
                    values.iter().map(|text| STANDARD.decode(text)).collect();
                let values = values.map_err(|error| NativeError::internal(format!("no base64: {error}")))?;
                Arc::new(BinaryArray::from_iter_values(values))
            }
        };
        Ok(array)
    }
}

/// The rows of a walk over the links that a table has now, with Spark's types.
pub(crate) async fn answer(table: &Arc<Table>, request: WalkRequest) -> Result<RecordBatch> {
    let WalkRequest { walk, start, to, via, direction, min_depth, max_depth, limit, memory, columns } = request;
    let snapshot = table.snapshot().await?;
    let columns = match columns {
        Some(columns) => as_named(&snapshot, columns),
        None => declared(&snapshot)?,
    };
    let usual = WalkOptions::default();
    let options = WalkOptions {
        via: via.map(GivenValues::array).transpose()?,
        direction: direction.map_or(Ok(usual.direction), |name| LinkDirection::from_name(&name))?,
        min_depth: min_depth.map_or(usual.min_depth, depth),
        max_depth: max_depth.map(depth),
        limit: limit.map(|rows| usize::try_from(rows).unwrap_or(usize::MAX)),
    };
    let memory = memory.unwrap_or_else(|| machine_memory().unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE);
    let links = Links::of(snapshot, &columns, memory).await?;
    let (start, memory) = (start.array()?, LinkMemoryLimit::new(memory));
    let rows = match (walk, to) {
        (WalkKind::Reach, None) => links.reach(&start, &options, &memory).await?,
        (WalkKind::Links, None) => links.neighbours(&start, &options, &memory).await?,
        (WalkKind::Path, Some(to)) => links.path(&start, &to.array()?, &options, &memory).await?,
        (walk, _) => return Err(NativeError::internal(format!("{walk:?} has other ends than it needs"))),
    };
    let schema = Arc::new(spark_schema(&rows.schema(), &[])?);
    in_spark_types(&rows, &schema, &[], "the rows of a walk")
}

/// A number of links. No way has more of them than a `u32` counts.
fn depth(links: u64) -> u32 {
    u32::try_from(links).unwrap_or(u32::MAX)
}

/// The columns of the only index of links.
fn declared(snapshot: &Snapshot) -> Result<Vec<String>> {
    let mut over = snapshot.link_columns();
    match (over.pop(), over.as_slice()) {
        (Some(columns), []) => Ok(columns),
        (None, _) => Err(NativeError::new(
            ErrorKind::NotFound,
            "the table has no index of the kind links: create one with CREATE INDEX … USING links (subject, predicate, object), or name \
             columns, as in columns => array('subject', 'predicate', 'object')",
        )),
        (Some(last), others) => {
            let shown = others.iter().chain([&last]).map(|columns| format!("({})", columns.join(", ")));
            let shown = shown.collect::<Vec<_>>().join(" and ");
            Err(NativeError::new(
                ErrorKind::InvalidInput,
                format!(
                    "there are links over {shown}; name the columns that are meant, as in columns => array('subject', 'object')"
                ),
            ))
        }
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;

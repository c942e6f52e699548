//! Tables that track their rows: each row has an id that stays, and the version that wrote its values.
//!
//! A row that never moved has both by its place: the id of the first row of its file and the rows before it, and the version that added
//! the file. A row that was written elsewhere has them in two more columns of its file, which the table's columns do not name.

use super::{DeltaState, WriterFeature};
use crate::error::{Error, Result};

/// The domain in which the log has the greatest id.
const DOMAIN: &str = "delta.rowTracking";

/// How a table tracks rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowTracking {
    /// Where rows that are written elsewhere keep what they are called; none if they need not keep it.
    pub columns: Option<RowIdColumns>,
}

/// The columns of files that have the ids and versions of rows that were elsewhere before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowIdColumns {
    pub row_id: String,
    pub commit_version: String,
}

/// What the rows of a file are called that have nothing in those columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowOrigin {
    /// The id of the first row.
    pub base_row_id: i64,
    /// The version that added the file.
    pub commit_version: i64,
}

impl DeltaState {
    /// How the table tracks rows; none if it does not, or not now.
    ///
    /// # Errors
    /// The table says that it does, and not how.
    pub(crate) fn row_tracking(&self) -> Result<Option<RowTracking>> {
        if !self.writer_features().contains(&WriterFeature::RowTracking) || self.is_on("delta.rowTrackingSuspended") {
            return Ok(None);
        }
        if !self.is_on("delta.enableRowTracking") {
            return Ok(Some(RowTracking { columns: None }));
        }
        let named = |column: &str| {
            let name = self.properties().get(&format!("delta.rowTracking.materialized{column}ColumnName")).cloned();
            name.ok_or_else(|| {
                Error::corrupt(format!(
                    "the Delta table tracks rows, and its log does not name the column that keeps the {column} of rows; restore the log"
                ))
            })
        };
        let columns = RowIdColumns { row_id: named("RowId")?, commit_version: named("RowCommitVersion")? };
        Ok(Some(RowTracking { columns: Some(columns) }))
    }

    /// The greatest id that a row of the table has or had; below 0 if no row has one. The log is read for that.
    pub(crate) async fn greatest_row_id(&self) -> Result<i64> {
        let Some(domain) = self.domain(DOMAIN).await? else { return Ok(-1) };
        greatest_of(&domain).ok_or_else(|| {
            Error::corrupt(format!("the Delta log has {domain} for the greatest id of a row; restore the log"))
        })
    }

    /// Whether a property of the table is true.
    pub(crate) fn is_on(&self, property: &str) -> bool {
        self.properties().get(property).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

impl RowTracking {
    /// The action that writes down the greatest id.
    pub(crate) fn domain(greatest: i64) -> serde_json::Value {
        let configuration = serde_json::json!({"rowIdHighWaterMark": greatest}).to_string();
        serde_json::json!({"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": false}})
    }

    /// The greatest id that the content of such an action writes down; none if it is that of another feature, or takes it back.
    pub(crate) fn greatest_in(content: &serde_json::Value) -> Option<i64> {
        let is_own = content["domain"] == DOMAIN && content["removed"] != true;
        is_own.then(|| greatest_of(content["configuration"].as_str()?)).flatten()
    }
}

fn greatest_of(configuration: &str) -> Option<i64> {
    let domain: serde_json::Value = serde_json::from_str(configuration).ok()?;
    domain["rowIdHighWaterMark"].as_i64()
}

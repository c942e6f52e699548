//! What a Delta table demands of every row that is written: CHECK constraints, invariants of columns, and values in columns that take no
//! NULL.
//!
//! The rows of a migration are looked at before any file is written. A row of which a constraint is not TRUE ends the migration: its key
//! stays buffered, like all others, until somebody gives it other values or deletes it. Rows that were in the table's files are not
//! looked at again.

mod bind;
mod evaluate;
mod expression;
mod literal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::util::display::array_value_to_string;
use serde_json::Value as Json;

use self::bind::bind;
use self::evaluate::Rows;
use self::expression::Condition;
use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::DeltaState;
use crate::rewrite::RewriteInput;
use crate::rewrite::row_block::columns_of;
use crate::snapshot::Snapshot;

/// How the names of properties begin that are CHECK constraints.
const CHECK: &str = "delta.constraints.";

/// The metadata of a column that has an invariant.
pub(super) const INVARIANTS: &str = "delta.invariants";

/// Rows that are looked at at a time.
const ROWS_AT_A_TIME: usize = 128 * 1024;

/// All that a table demands of its rows.
pub(super) struct Constraints {
    demands: Vec<Demand>,
}

/// A condition that must be TRUE of every row.
struct Demand {
    /// What people call it, such as `the CHECK constraint positive`.
    name: String,
    /// The condition as the table has it.
    text: String,
    condition: Condition,
}

impl Constraints {
    /// The constraints of a table.
    ///
    /// # Errors
    /// A constraint is in words that no release of ours evaluates (`Unsupported`).
    pub(super) fn of(state: &DeltaState) -> Result<Self> {
        let mut demands = Vec::new();
        for field in state.logged_schema.fields() {
            if let Some(text) = invariant_of(field)? {
                demands.push(Demand::new(format!("the invariant of the column {}", field.name()), &text, state)?);
            }
            if !field.is_nullable() {
                demands.push(Demand::not_null(field));
            }
        }
        let checks = state.properties().iter().filter_map(|(name, text)| Some((name.strip_prefix(CHECK)?, text)));
        for (name, text) in checks.collect::<BTreeMap<_, _>>() {
            demands.push(Demand::new(format!("the CHECK constraint {name}"), text, state)?);
        }
        Ok(Self { demands })
    }

    /// Looks at all new rows.
    ///
    /// # Errors
    /// A row does not meet a demand (`ConstraintViolation`): the message names both. A number does not fit its type.
    pub(super) async fn check(&self, snapshot: &Snapshot, input: &RewriteInput<'_>) -> Result<()> {
        if self.demands.is_empty() {
            return Ok(());
        }
        let schema = self.needed(&snapshot.schema(), input.key);
        for block in input.rows {
            let count = u32::try_from(block.row_count()).unwrap_or(u32::MAX);
            for start in (0..count).step_by(ROWS_AT_A_TIME) {
                let numbers: Vec<u32> = (start..count.min(start.saturating_add(ROWS_AT_A_TIME as u32))).collect();
                let batch = block.read(&schema, Some(&numbers)).await?;
                self.check_batch(&schema, &batch, input.key)?;
            }
        }
        Ok(())
    }

    /// The columns that the constraints and the key are about.
    fn needed(&self, table: &Schema, key: &[String]) -> SchemaRef {
        let mut names = Vec::new();
        self.demands.iter().for_each(|demand| names_in(&demand.condition, &mut names));
        let is_needed = |field: &&Arc<Field>| names.contains(field.name()) || key.contains(field.name());
        // Of a column that takes no NULL, a batch with one could not be made.
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        Arc::new(Schema::new(table.fields().iter().filter(is_needed).map(nullable).collect::<Vec<_>>()))
    }

    fn check_batch(&self, schema: &SchemaRef, batch: &RecordBatch, key: &[String]) -> Result<()> {
        let columns = columns_of(batch, schema.fields().iter().map(AsRef::<Field>::as_ref))?;
        let rows = Rows { schema, columns: &columns, count: batch.num_rows() };
        for demand in &self.demands {
            let truth = rows.truth(&demand.condition).map_err(|error| demand.incalculable().with_source(error))?;
            if let Some(row) = first_unmet(&truth) {
                return Err(demand.violated(&key_of(schema, &columns, key, row)));
            }
        }
        Ok(())
    }
}

impl Demand {
    fn new(name: String, text: &str, state: &DeltaState) -> Result<Self> {
        match bind(text, &state.schema) {
            Ok(condition) => Ok(Self { name, text: text.to_owned(), condition }),
            Err(why) => Err(Error::unsupported(format!(
                "the Delta table cannot be updated: {name} ({text}) {why}; drop it, or change the table with another writer"
            ))),
        }
    }

    fn not_null(field: &Field) -> Self {
        let column = expression::Value::Column {
            name: field.name().clone(),
            fields: Vec::new(),
            data_type: field.data_type().clone(),
        };
        let condition = Condition::Not(Box::new(Condition::IsNull(column)));
        Self { name: format!("the rule of the column {}", field.name()), text: "NOT NULL".to_owned(), condition }
    }

    fn violated(&self, key: &str) -> Error {
        Error::new(
            ErrorKind::ConstraintViolation,
            format!(
                "the row {key} does not meet {} ({}), so that nothing was migrated; upsert the row with other values or delete it, and \
                 migrate again",
                self.name, self.text
            ),
        )
    }

    /// The error of a row of which nobody can say whether it meets the demand.
    fn incalculable(&self) -> Error {
        Error::new(
            ErrorKind::ConstraintViolation,
            format!(
                "{} ({}) cannot be calculated of a buffered row, so that nothing was migrated; look for rows with numbers that are too \
                 large, or with a zero that something is divided by",
                self.name, self.text
            ),
        )
    }
}

/// The invariant of a column, as the log has it.
fn invariant_of(field: &Field) -> Result<Option<String>> {
    let Some(said) = field.metadata().get(INVARIANTS) else { return Ok(None) };
    let parsed: Option<Json> = serde_json::from_str(said).ok();
    let text = parsed.as_ref().and_then(|parsed| parsed.pointer("/expression/expression")?.as_str());
    text.map(|text| Some(text.to_owned())).ok_or_else(|| {
        Error::unsupported(format!(
            "the Delta table cannot be updated: its column {} has an invariant that cannot be read ({said})",
            field.name()
        ))
    })
}

/// The first row of which a condition is not TRUE.
fn first_unmet(truth: &BooleanArray) -> Option<usize> {
    if truth.null_count() == 0 && truth.true_count() == truth.len() {
        return None;
    }
    truth.iter().position(|truth| truth != Some(true))
}

/// The key of a row, for people.
fn key_of(schema: &Schema, columns: &[ArrayRef], key: &[String], row: usize) -> String {
    let value = |name: &String| {
        let column = schema.column_with_name(name).and_then(|(place, _)| columns.get(place));
        let value = column.and_then(|column| array_value_to_string(column, row).ok());
        format!("{name} = {}", value.unwrap_or_default())
    };
    key.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// The columns that a condition is about.
fn names_in(condition: &Condition, names: &mut Vec<String>) {
    match condition {
        Condition::Constant(_) => {}
        Condition::Compare { left, right, .. } => {
            names_of(left, names);
            names_of(right, names);
        }
        Condition::IsNull(value) | Condition::Like { text: value, .. } | Condition::Value(value) => {
            names_of(value, names);
        }
        Condition::Is { condition, .. } | Condition::Not(condition) => names_in(condition, names),
        Condition::And(left, right) | Condition::Or(left, right) => {
            names_in(left, names);
            names_in(right, names);
        }
    }
}

fn names_of(value: &expression::Value, names: &mut Vec<String>) {
    use expression::Value;
    match value {
        Value::Column { name, .. } => names.push(name.clone()),
        Value::Constant(_) => {}
        Value::Arithmetic { left, right, .. } => {
            names_of(left, names);
            names_of(right, names);
        }
        Value::Length(value) | Value::Cast { value, .. } => names_of(value, names),
        Value::Truth(condition) => names_in(condition, names),
    }
}

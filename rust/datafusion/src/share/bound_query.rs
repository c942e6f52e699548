//! What the names of a statement mean, and when that was found.

use std::sync::Arc;

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::logical_expr::LogicalPlan;
use lakemark_table::{Snapshot, Table};

/// A table with the state of it that a statement sees.
#[derive(Debug)]
pub(crate) struct PinnedTable {
    /// The table.
    pub(crate) table: Arc<Table>,
    /// Its state.
    pub(crate) snapshot: Arc<Snapshot>,
}

/// What a schema has under a name.
#[derive(Clone, Debug)]
pub(crate) struct FoundTable {
    /// The schema as it was registered.
    pub(crate) schema: Arc<dyn SchemaProvider>,
    pub(crate) name: String,
    /// The table or view as it was registered.
    pub(crate) provider: Arc<dyn TableProvider>,
}

/// What was looked up for a statement.
#[derive(Debug, Default)]
pub(crate) struct StatementTables {
    /// The names that it has.
    pub(crate) names: Vec<TableReference>,
    /// What these and others were found to be.
    pub(crate) found: Vec<FoundTable>,
    /// The tables that it reads, those of views among them.
    pub(crate) pinned: Vec<PinnedTable>,
}

impl StatementTables {
    /// Whether all names were found by a schema, and all states that a plan reads were pinned as the newest. Those of a version are neither.
    pub(crate) fn are_newest(&self, states: &[Arc<Snapshot>]) -> bool {
        let is_found = |name: &TableReference| self.found.iter().any(|found| found.name == name.table());
        let is_pinned = |state: &Arc<Snapshot>| self.pinned.iter().any(|pinned| Arc::ptr_eq(&pinned.snapshot, state));
        self.names.iter().all(is_found) && states.iter().all(is_pinned)
    }
}

/// A query whose names were looked up, and whose rows follow from the states of its tables.
#[derive(Debug)]
pub(crate) struct BoundQuery {
    /// Not optimized.
    pub(crate) plan: LogicalPlan,
    pub(crate) tables: StatementTables,
    /// When that began, on the clock of the statements in flight.
    pub(crate) since: u64,
}

//! The table provider: a Lakemark table as DataFusion sees one.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result as EngineResult};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use lakemark_table::{ColumnReadCost, Error, ErrorKind, ProbeOptions, ReadCost, Result, Snapshot, Table};

use crate::config::LakemarkOptions;
use crate::error::to_engine;
use crate::exec::dynamic_filters::DynamicProber;
use crate::exec::scan_probe::ScanProbe;
use crate::expr::translate::translate;
use crate::expr::types::TextTypes;
use crate::plan::scan::{ScanRequest, plan_scan};
use crate::plan::statement_snapshots::pinned_for_statement;
use crate::read::read_cost::reading;

/// Nanoseconds that a join takes to look up a row without a match, if no filter of the join rules the row out before.
const JOIN_ROW: f64 = 6.0;

/// A table whose scans use its indexes.
#[derive(Debug)]
pub struct LakemarkTable {
    table: Arc<Table>,
    snapshot: Arc<Snapshot>,
    /// Whether every scan takes this snapshot; otherwise each takes the newest.
    pinned: bool,
    types: TextTypes,
    /// Whether the table is joined with others. Its statistics are then worth opening files for which an index might answer everything.
    is_joined: bool,
}

impl LakemarkTable {
    /// A provider whose schema is fixed now and whose scans see the newest state of the table.
    pub async fn new(table: Arc<Table>) -> Result<Self> {
        let snapshot = table.snapshot().await?;
        Ok(Self::of(table, snapshot, false))
    }

    fn of(table: Arc<Table>, snapshot: Arc<Snapshot>, pinned: bool) -> Self {
        Self { table, snapshot, pinned, types: TextTypes::Declared, is_joined: false }
    }

    /// A provider whose scans all see the newest state as of now.
    pub async fn pin(&self) -> Result<Self> {
        Ok(Self::pinned_to(Arc::clone(&self.table), pinned_for_statement(&self.table).await?))
    }

    /// A provider whose scans all see `snapshot`.
    #[must_use]
    pub fn pinned_to(table: Arc<Table>, snapshot: Arc<Snapshot>) -> Self {
        Self::of(table, snapshot, true)
    }

    /// The same provider with columns of these types, in a statement that may join it with others.
    pub(crate) fn within(&self, types: TextTypes, is_joined: bool) -> Self {
        let declared = Self::of(Arc::clone(&self.table), Arc::clone(&self.snapshot), self.pinned);
        Self { types, is_joined, ..declared }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The snapshot that gave the schema.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The snapshot that every scan takes; none if each takes the newest.
    pub(crate) fn pinned_snapshot(&self) -> Option<&Arc<Snapshot>> {
        Some(&self.snapshot).filter(|_| self.pinned)
    }

    /// A provider of the same columns whose scans all see the newest state as of now. The columns were taken when something was `done`,
    /// which has to be done again if they are others by now.
    ///
    /// # Errors
    /// The columns are others by now (`SchemaMismatch`).
    pub(crate) async fn pin_anew(&self, done: &str) -> Result<Self> {
        Ok(Self::pinned_to(Arc::clone(&self.table), self.newest(done).await?))
    }

    /// The state that scans see.
    pub(crate) async fn current(&self) -> Result<Arc<Snapshot>> {
        if self.pinned { Ok(Arc::clone(&self.snapshot)) } else { self.newest("registered; register it").await }
    }

    /// The newest state, if its columns are those that were taken when something was `done`. Otherwise that is to be done again.
    async fn newest(&self, done: &str) -> Result<Arc<Snapshot>> {
        let newest = pinned_for_statement(&self.table).await?;
        if newest.schema() == self.snapshot.schema() {
            return Ok(newest);
        }
        Err(Error::new(
            ErrorKind::SchemaMismatch,
            format!("the columns of {} have changed since it was {done} again", self.table.location()),
        ))
    }
}

#[async_trait]
impl TableProvider for LakemarkTable {
    fn schema(&self) -> SchemaRef {
        self.types.of_table(&self.snapshot)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// The number of rows, if an index or a footer that was read gives it. A scan may see a newer state.
    fn statistics(&self) -> Option<Statistics> {
        let rows = usize::try_from(self.snapshot.rows()?).ok()?;
        Some(Statistics::new_unknown(&self.schema()).with_num_rows(Precision::Inexact(rows)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters.iter().map(|filter| pushdown(filter)).collect())
    }

    #[tracing::instrument(level = "debug", name = "plan_scan", skip_all, fields(table = self.table.location()))]
    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let snapshot = self.current().await.map_err(to_engine)?;
        let schema = self.types.of_table(&snapshot);
        let predicate = translate(filters, &schema);
        let reading = reading(&schema, projection, filters, limit);
        let options = ProbeOptions {
            count_only: projection.is_some_and(Vec::is_empty),
            reading: Some(reading),
            ..probe_options(state)
        };
        let probe = snapshot.probe(&predicate, &options).await.map_err(to_engine)?;
        let known = options.use_index.then(|| predicate.clone());
        let probed = options.use_index.then_some(&predicate);
        let scan_probe =
            known.clone().and_then(|known| ScanProbe::of_scan(&snapshot, &schema, known, &probe, projection, &options));
        let prober = options.reading.zip(known).filter(|_| snapshot.has_indexes()).map(|(reading, predicate)| {
            // The join itself tests the rows that find no match: no column is read for that alone.
            let reading = ReadCost { filter: ColumnReadCost::default(), limit: None, parent_cost: JOIN_ROW, ..reading };
            let (snapshot, schema, selection_cache) =
                (Arc::clone(&snapshot), Arc::clone(&schema), options.selection_cache);
            DynamicProber { snapshot, schema, reading, predicate, selection_cache, links: Arc::default() }
        });
        let location = self.table.location();
        let request = ScanRequest {
            location,
            snapshot: &snapshot,
            types: self.types,
            is_joined: self.is_joined,
            projection,
            filters,
            limit,
            predicate: probed,
            scan_probe,
            prober,
        };
        plan_scan(state, &request, probe).await
    }

    async fn insert_into(
        &self,
        _state: &dyn Session,
        _input: Arc<dyn ExecutionPlan>,
        _op: InsertOp,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Err(read_only("INSERT"))
    }

    async fn delete_from(&self, _state: &dyn Session, _filters: Vec<Expr>) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Err(read_only("DELETE"))
    }

    async fn update(
        &self,
        _state: &dyn Session,
        _assignments: Vec<(String, Expr)>,
        _filters: Vec<Expr>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Err(read_only("UPDATE"))
    }

    async fn truncate(&self, _state: &dyn Session) -> EngineResult<Arc<dyn ExecutionPlan>> {
        Err(read_only("TRUNCATE"))
    }
}

fn read_only(statement: &str) -> DataFusionError {
    to_engine(Error::new(
        ErrorKind::Unsupported,
        format!(
            "{statement} of a Lakemark table needs a session of Lakemark, which plans it itself: run it in the shell `lakemark` or in \
             `lakemark.connect()`, or use `Table.insert`, `upsert`, `update` and `delete`"
        ),
    ))
}

/// What the session's settings say of probes.
pub(crate) fn probe_options(state: &dyn Session) -> ProbeOptions {
    let options = LakemarkOptions::of(state.config_options());
    ProbeOptions { use_index: options.use_index, selection_cache: options.selection_cache, ..ProbeOptions::default() }
}

/// Our scan evaluates every filter that gives the same answer each time and needs no other plan.
pub(crate) fn pushdown(filter: &Expr) -> TableProviderFilterPushDown {
    let needs_plan = filter.contains_scalar_subquery() || filter.contains_outer() || has_subquery(filter);
    if filter.is_volatile() || needs_plan || calls_async(filter) {
        TableProviderFilterPushDown::Unsupported
    } else {
        TableProviderFilterPushDown::Exact
    }
}

/// Whether a function has to be awaited, which an operator of its own does.
fn calls_async(filter: &Expr) -> bool {
    let is_async = |expr: &Expr| Ok(matches!(expr, Expr::ScalarFunction(call) if call.func.as_async().is_some()));
    filter.exists(is_async).unwrap_or(true)
}

fn has_subquery(filter: &Expr) -> bool {
    filter
        .exists(|expr| {
            Ok(matches!(
                expr,
                Expr::Exists(_)
                    | Expr::InSubquery(_)
                    | Expr::ScalarSubquery(_)
                    | Expr::SetComparison(_)
                    | Expr::Placeholder(_)
            ))
        })
        .unwrap_or(true)
}

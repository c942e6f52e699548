//! The table provider for the `datafusion` package.

use std::future::poll_fn;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use lakemark_datafusion::{LakemarkTable, session_context};
use tokio::runtime::Handle;

use crate::runtime::forked_from;

/// A table whose scans are planned here, although another library's session requests them.
///
/// * That session's expressions cannot be looked into: a plan made with them would not know which columns it reads.
///   Ours makes them from the same logical ones.
/// * It polls on threads of its own, where our tokio finds no runtime.
///
/// Running the plan is no concern: the FFI layer does that on the runtime that it was given.
#[derive(Debug)]
pub(crate) struct ForeignProvider {
    table: LakemarkTable,
    state: SessionState,
    runtime: Handle,
    process: u32,
}

impl ForeignProvider {
    pub(crate) fn new(table: LakemarkTable, runtime: Handle) -> Self {
        let state = session_context(SessionConfig::new()).state();
        Self { table, state, runtime, process: std::process::id() }
    }
}

#[async_trait]
impl TableProvider for ForeignProvider {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        host: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(forked) = forked_from(self.process) {
            return Err(DataFusionError::External(Box::new(forked)));
        }
        let mut ours = self.state.clone();
        let execution = &mut ours.config_mut().options_mut().execution;
        let theirs = &host.config_options().execution;
        execution.target_partitions = theirs.target_partitions;
        execution.batch_size = theirs.batch_size;
        let mut planned = self.table.scan(&ours, projection, filters, limit);
        poll_fn(|context| {
            let _entered = self.runtime.enter();
            planned.as_mut().poll(context)
        })
        .await
    }
}

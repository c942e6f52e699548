//! The table provider for the `datafusion` package.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, FutureExt, poll_fn};
use lakemark_datafusion::LakemarkTable;
use tokio::runtime::Handle;

/// A table whose scans are planned on our runtime.
///
/// The package polls the planning of a scan on its own threads, and its tokio is not ours: reading marks would find no
/// runtime there. Running plans is no concern, the FFI layer does that on the runtime that it was given.
#[derive(Debug)]
pub(crate) struct OnRuntime {
    pub(crate) table: LakemarkTable,
    pub(crate) runtime: Handle,
}

impl TableProvider for OnRuntime {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.table.supports_filters_pushdown(filters)
    }

    fn scan<'a, 's, 'p, 'f, 'r>(
        &'a self,
        state: &'s dyn Session,
        projection: Option<&'p Vec<usize>>,
        filters: &'f [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'r, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'r,
        's: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        let mut planned = self.table.scan(state, projection, filters, limit);
        poll_fn(move |context| {
            let _entered = self.runtime.enter();
            planned.as_mut().poll(context)
        })
        .boxed()
    }
}

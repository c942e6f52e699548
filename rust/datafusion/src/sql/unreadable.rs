//! Tables and views whose newest state cannot be read: a folder that is gone, a view of columns that have changed.
//!
//! Their names stay known, so that they are listed, dropped and made again. A statement that reads them gets the error.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::TableReference;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::{TableType, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Query, Statement};

/// What stands for such a table or view.
#[derive(Debug)]
pub(crate) struct Unreadable {
    registered: Arc<dyn TableProvider>,
    error: Arc<DataFusionError>,
}

impl Unreadable {
    pub(crate) fn new(registered: Arc<dyn TableProvider>, error: DataFusionError) -> Self {
        Self { registered, error: Arc::new(error) }
    }

    /// Why it cannot be read.
    pub(crate) fn error(&self) -> DataFusionError {
        DataFusionError::Shared(Arc::clone(&self.error))
    }
}

#[async_trait]
impl TableProvider for Unreadable {
    fn schema(&self) -> SchemaRef {
        self.registered.schema()
    }

    fn table_type(&self) -> TableType {
        self.registered.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        self.registered.get_table_definition()
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(self.error())
    }
}

/// Refuses a plan that reads or changes what cannot be read.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        let source = match node {
            LogicalPlan::TableScan(scan) => &scan.source,
            LogicalPlan::Dml(change) => &change.target,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let table = source_as_provider(source).ok();
        match table.as_ref().and_then(|table| table.downcast_ref::<Unreadable>()) {
            Some(unreadable) => Err(unreadable.error()),
            None => Ok(TreeNodeRecursion::Continue),
        }
    })?;
    Ok(())
}

/// The names of what a statement reads or changes. What it makes or drops need not be readable.
pub(crate) fn read_by(state: &SessionState, statement: &EngineStatement) -> Result<Vec<TableReference>> {
    let of = |query: &Query| {
        let query = Statement::Query(Box::new(query.clone()));
        state.resolve_table_references(&EngineStatement::Statement(Box::new(query)))
    };
    match statement {
        EngineStatement::CreateExternalTable(_) => Ok(Vec::new()),
        EngineStatement::Statement(inner) => match inner.as_ref() {
            Statement::Drop { .. } => Ok(Vec::new()),
            Statement::CreateView(view) => of(&view.query),
            Statement::CreateTable(table) => table.query.as_deref().map_or(Ok(Vec::new()), of),
            _ => state.resolve_table_references(statement),
        },
        _ => state.resolve_table_references(statement),
    }
}

/// Why the first of these that cannot be read cannot be. A statement that does not fit its old columns fails for that.
pub(crate) async fn error_among(state: &SessionState, names: Vec<TableReference>) -> Option<DataFusionError> {
    for name in names {
        let Ok(schema) = state.schema_for_ref(name.clone()) else { continue };
        if let Ok(Some(table)) = schema.table(name.table()).await
            && let Some(unreadable) = table.downcast_ref::<Unreadable>()
        {
            return Some(unreadable.error());
        }
    }
    None
}

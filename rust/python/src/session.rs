//! `_internal.Session`.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::{ParamValues, ScalarValue, TableReference};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use lakemark_catalog::{Names, Setting};
use lakemark_datafusion::{LakemarkSession, LakemarkTable, ReadyQuery, Statement, advise_session, from_engine};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};

use crate::error;
use crate::rows::Rows;
use crate::runtime::{NOT_KNOWN, wait, with_outcome};
use crate::table::{Table, to_json};

/// A session with an engine of its own.
#[pyclass(frozen, module = "lakemark._internal")]
pub(crate) struct Session(Arc<LakemarkSession>);

#[pymethods]
impl Session {
    /// A session that knows the names and has the settings of the configuration.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let to_python = |cause: lakemark_table::Error| error::to_python(py, &cause);
        let (session, names) = (Arc::new(LakemarkSession::new()), Names::load().map_err(to_python)?);
        let settings: Vec<Setting> = names.config().settings().cloned().collect();
        session.know(Arc::new(names)).map_err(to_python)?;
        if !settings.is_empty() {
            let session = Arc::clone(&session);
            wait(py, move || async move { apply(&session, &settings).await })?;
        }
        Ok(Self(session))
    }

    /// Parameters are a batch of one row: positional ones are called 1, 2 and so on.
    #[pyo3(signature = (text, parameters=None))]
    fn sql(&self, py: Python<'_>, text: String, parameters: Option<PyRecordBatch>) -> PyResult<Rows> {
        let (session, statement) = (Arc::clone(&self.0), text.clone());
        let rows = wait(py, move || async move {
            let parameters = parameters.map(|row| values_of(row.into_inner())).transpose().map_err(from_engine)?;
            run(&session, &statement, parameters).await
        });
        let rows = rows.map(Rows::new);
        rows.map_err(|error| {
            let stopped = error.is_instance_of::<PyKeyboardInterrupt>(py);
            if stopped && changes_rows(&self.0, &text) { with_outcome(py, error, NOT_KNOWN) } else { error }
        })
    }

    /// By the name of each table that the queries use: advice as JSON and as text.
    fn advise(&self, py: Python<'_>, queries: String) -> PyResult<Vec<(String, String, String)>> {
        let session = Arc::clone(&self.0);
        let found = wait(py, move || async move { advise_session(&session, &queries).await })?;
        found.into_iter().map(|(name, advice)| Ok((name, to_json(py, &advice)?, advice.to_string()))).collect()
    }

    fn register_table(&self, py: Python<'_>, name: String, table: &Table) -> PyResult<()> {
        let (session, table) = (Arc::clone(&self.0), Arc::clone(&table.0));
        wait(py, move || async move {
            let table = LakemarkTable::new(table).await?;
            replace(&session, &name, Arc::new(table)).map_err(from_engine)
        })
    }

    /// Registers anything that is an Arrow C stream; its rows are read now and kept in memory.
    fn register_rows(&self, py: Python<'_>, name: String, rows: PyRecordBatchReader) -> PyResult<()> {
        let reader = rows.into_reader()?;
        let schema = reader.schema();
        let batches = py.detach(|| reader.collect::<Result<Vec<_>, _>>());
        let session = Arc::clone(&self.0);
        wait(py, move || async move {
            let batches = batches.map_err(|error| from_engine(error.into()))?;
            let table = MemTable::try_new(schema, vec![batches]).map_err(from_engine)?;
            replace(&session, &name, Arc::new(table)).map_err(from_engine)
        })
    }
}

/// Changes the settings of a session.
async fn apply(session: &LakemarkSession, settings: &[Setting]) -> lakemark_table::Result<()> {
    for setting in settings {
        let set = session.set(&setting.name, &setting.value).await;
        set.map_err(|cause| setting.place.wrong(cause.message()))?;
    }
    Ok(())
}

/// The values of a batch of one row.
fn values_of(row: RecordBatch) -> Result<ParamValues, DataFusionError> {
    let values = row.columns().iter().map(|column| ScalarValue::try_from_array(column, 0));
    let values = values.collect::<Result<Vec<_>, _>>()?;
    let names = row.schema();
    let is_positional = names.fields().iter().zip(1..).all(|(field, place)| *field.name() == format!("{place}"));
    Ok(match is_positional {
        true => ParamValues::from(values),
        false => names.fields().iter().map(|field| field.name().clone()).zip(values).collect::<Vec<_>>().into(),
    })
}

/// Whether a statement changes the rows of a table.
fn changes_rows(session: &LakemarkSession, text: &str) -> bool {
    session.parse(text).unwrap_or_default().iter().any(|statement| match statement {
        Statement::Engine(statement) => match statement.as_ref() {
            EngineStatement::Statement(statement) => matches!(
                statement.as_ref(),
                SqlStatement::Insert(_) | SqlStatement::Update(_) | SqlStatement::Delete(_) | SqlStatement::Merge(_)
            ),
            _ => false,
        },
        _ => false,
    })
}

/// Gives a table a name, as it is, and takes it from whatever had it.
fn replace(session: &LakemarkSession, name: &str, table: Arc<dyn TableProvider>) -> Result<(), DataFusionError> {
    let name = TableReference::bare(name);
    session.context().deregister_table(name.clone())?;
    session.context().register_table(name, table).map(drop)
}

/// Queries wait until they are read. A statement that does something, or whose plan cannot be part of another plan,
/// runs here and once: showing its result must not run it again.
async fn run(
    session: &LakemarkSession,
    text: &str,
    parameters: Option<ParamValues>,
) -> lakemark_table::Result<ReadyQuery> {
    let planned = session.plan(text, parameters).await?;
    let query = session.query_of(planned).await?;
    let once = matches!(
        query.plan(),
        LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
    );
    if !once {
        return Ok(query);
    }
    let schema = Arc::new(query.schema().as_arrow().clone());
    let batches = query.into_frame().collect().await.map_err(from_engine)?;
    let rows = MemTable::try_new(schema, vec![batches]).map_err(from_engine)?;
    session.context().read_table(Arc::new(rows)).map(ReadyQuery::from).map_err(from_engine)
}

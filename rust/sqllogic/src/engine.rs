//! A session as the runner of the suite wants one: statements in, rows as text out.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{LogicalPlan, UNNAMED_TABLE};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::{DFColumnType, DFOutput, convert_batches, convert_schema_to_types};
use futures::{FutureExt, TryStreamExt};
use lakemark_datafusion::{IndexAggregateExec, LakemarkScanExec, LakemarkSession, LakemarkTable};
use sqllogictest::{AsyncDB, DBOutput};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::statement::{Access, Work};
use crate::tables::{TableCounts, Tables};

/// No statement of the suite takes nearly as long.
const LONGEST: Duration = Duration::from_secs(300);

/// A session that statements are run in.
enum Session {
    /// The engine's, as the suite makes it.
    Engine(SessionContext),
    /// Ours, with tables of ours in the place of those that are made.
    Ours { session: LakemarkSession, tables: Mutex<Tables> },
}

/// What the last statement read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether it names a table.
    pub names_table: bool,
    /// Whether rows come out of a scan or an index of ours.
    pub reaches_ours: bool,
}

struct Inner {
    session: Session,
    /// Whether numbers are written as the files of Spark have them.
    is_spark: bool,
    names_table: AtomicBool,
    reaches_ours: AtomicBool,
}

/// A session for the runner. Copies are the same session.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

impl Engine {
    /// The engine by itself.
    pub fn alone(context: SessionContext, is_spark: bool) -> Self {
        Self::of(Session::Engine(context), is_spark)
    }

    /// A session of ours whose tables are written below a folder.
    pub fn ours(session: LakemarkSession, folder: PathBuf, is_spark: bool) -> Self {
        let tables = Mutex::new(Tables::new(session.context().clone(), folder));
        Self::of(Session::Ours { session, tables }, is_spark)
    }

    fn of(session: Session, is_spark: bool) -> Self {
        let (names_table, reaches_ours) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { inner: Arc::new(Inner { session, is_spark, names_table, reaches_ours }) }
    }

    /// Puts ours in the place of tables that were there at the start.
    pub async fn begin(&self) {
        if let Session::Ours { tables, .. } = &self.inner.session {
            tables.lock().await.settle().await;
        }
    }

    /// What became of the tables.
    pub async fn tables(&self) -> TableCounts {
        match &self.inner.session {
            Session::Engine(_) => TableCounts::default(),
            Session::Ours { tables, .. } => tables.lock().await.counts().clone(),
        }
    }

    /// What a statement would do.
    pub fn work(&self, sql: &str) -> Work {
        let context = match &self.inner.session {
            Session::Engine(context) => context,
            Session::Ours { session, .. } => session.context(),
        };
        let state = context.state_ref();
        let state = state.read();
        Work::of(&state, sql)
    }

    /// What the last statement read.
    pub fn seen(&self) -> Seen {
        Seen {
            names_table: self.inner.names_table.load(Ordering::Relaxed),
            reaches_ours: self.inner.reaches_ours.load(Ordering::Relaxed),
        }
    }

    async fn statement(&self, sql: &str) -> Result<DFOutput, Failure> {
        match &self.inner.session {
            Session::Engine(context) => self.rows(context.sql(sql).await?).await,
            Session::Ours { session, tables } => {
                let access = self.work(sql).access;
                let mut tables = tables.lock().await;
                tables.show(access);
                let rows = self.query(session, sql).await;
                if access != Access::Reads {
                    // Also after an error: part of a statement may have been done.
                    tables.settle().await;
                }
                rows
            }
        }
    }

    async fn query(&self, session: &LakemarkSession, sql: &str) -> Result<DFOutput, Failure> {
        let frame = session.sql(sql).await.map_err(|error| Failure::of_engine(&error))?;
        self.rows(frame).await
    }

    async fn rows(&self, frame: DataFrame) -> Result<DFOutput, Failure> {
        let logical = Scans::of_logical(frame.logical_plan())?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        // A count that the index answers is a plan without a scan.
        let reaches_ours = logical.answered || scans_ours(&plan);
        self.inner.names_table.store(logical.any, Ordering::Relaxed);
        self.inner.reaches_ours.store(reaches_ours, Ordering::Relaxed);

        let schema = plan.schema();
        let stream = execute_stream(plan, context)?;
        let types = convert_schema_to_types(stream.schema().fields());
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        let rows =
            convert_batches(&schema, batches, self.inner.is_spark).map_err(|error| Failure(error.to_string()))?;
        Ok(if rows.is_empty() && types.is_empty() {
            DBOutput::StatementComplete(0)
        } else {
            DBOutput::Rows { types, rows }
        })
    }
}

/// The tables that a logical plan scans.
#[derive(Default)]
struct Scans {
    any: bool,
    /// Whether one of them stands for a count of ours.
    answered: bool,
}

impl Scans {
    fn of_logical(plan: &LogicalPlan) -> Result<Self, DataFusionError> {
        let mut scans = Self::default();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                scans.any = true;
                // A statement can name no table so, and ours that are scanned under a name are found in the physical plan.
                let is_ours = source_as_provider(&scan.source).is_ok_and(|table| table.is::<LakemarkTable>());
                scans.answered |= !is_ours && scan.table_name.table() == UNNAMED_TABLE;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(scans)
    }
}

fn scans_ours(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_ours = plan.is::<LakemarkScanExec>() || plan.is::<IndexAggregateExec>();
    is_ours || plan.children().into_iter().any(scans_ours)
}

/// Why a statement failed, in the words that the suite expects.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    fn of_engine(text: &dyn fmt::Display) -> Self {
        Self(format!("DataFusion error: {text}"))
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::of_engine(&error.strip_backtrace())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

#[async_trait]
impl AsyncDB for Engine {
    type Error = Failure;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput, Failure> {
        self.inner.names_table.store(false, Ordering::Relaxed);
        self.inner.reaches_ours.store(false, Ordering::Relaxed);
        let running = AssertUnwindSafe(self.statement(sql)).catch_unwind();
        match timeout(LONGEST, running).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Failure("the statement panicked".to_owned())),
            Err(_) => Err(Failure(format!("the statement took longer than {} s", LONGEST.as_secs()))),
        }
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

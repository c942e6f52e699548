//! A SQL session that knows Lakemark's statements and tables.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float64Array, RecordBatch, UInt64Array};
use arrow::error::ArrowError;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::common::{ParamValues, ScalarValue, TableReference};
use datafusion::config::{ConfigOptions, OptimizerOptions};
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, Statement as Prepared};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::FutureExt;
use lakemark_table::{
    BuildOptions, BuildReport, Error, ErrorKind, IndexSpec, Result, Stopwatch, Table, TableNames, Transaction,
    index_rows, kind_or_auto,
};

use crate::config::LakemarkOptions;
use crate::erased::Erased;
use crate::error::from_engine;
use crate::plan::provider::LakemarkTable;
use crate::plan::ready_query::{PlannedQuery, ReadyQuery};
use crate::plan::rules;
use crate::plan::sharing::{SharingPlanner, unshared};
use crate::plan::statement_snapshots::{OfStatement, of_one_statement};
use crate::share::asked::Asked;
use crate::share::bound_query::StatementTables;
use crate::share::key::Principal;
use crate::share::prepared_query::{PreparedQueries, PreparedQuery};
use crate::sql::dml;
use crate::sql::factory::{FORMAT, LakemarkTableFactory};
use crate::sql::fast_path::with_fast_path;
use crate::sql::link_functions;
use crate::sql::parameters::{bound, numbered};
use crate::sql::planned::{PlannedStatement, StatementKind, Work};
use crate::sql::planned_once::plan_once;
use crate::sql::schema::{self, PinningCatalogs, pinned_anew, refresh};
use crate::sql::statement::{self, CreateIndex, NO_TRANSACTIONS, Statement};
use crate::sql::unreadable::Unreadable;

/// What `TIMESTAMP WITH TIME ZONE` means where the session does not say. DataFusion's own default is no zone at all, which
/// turns a cast to that type into one that drops the offset of its text.
const DEFAULT_TIME_ZONE: &str = "+00:00";

/// Bytes of footers that a session remembers, unless `datafusion.runtime.metadata_cache_limit` is set: those of some 25,000 row
/// groups of 15 columns. DataFusion's own 50 MB hold 5,000, and beyond that a lookup of a single row would decode a footer.
const FOOTER_BYTES: usize = 256 << 20;

/// Bytes of statistics of files that a session remembers: those of some 10,000 files of 20 columns. DataFusion's own 20 MB hold a third.
const STATISTICS_BYTES: usize = 64 << 20;

/// A DataFusion session with the `LAKEMARK` table format, the `lakemark` settings, and tables
/// that are pinned once per statement. Its time zone is UTC unless the configuration names one.
///
/// Our own statements need [`LakemarkSession::sql`]: DataFusion's parser does not know them. Tables below `datafusion.catalog.location`
/// need [`LakemarkSession::refresh_catalogs`].
#[must_use]
pub fn session_context(config: SessionConfig) -> SessionContext {
    session_in(config, runtime())
}

/// A runtime that remembers footers and statistics.
pub(crate) fn runtime() -> Arc<RuntimeEnv> {
    remembering(RuntimeEnv::default())
}

/// The same of a runtime that has settings of its own.
fn remembering(runtime: RuntimeEnv) -> Arc<RuntimeEnv> {
    runtime.cache_manager.get_file_metadata_cache().update_cache_limit(FOOTER_BYTES);
    if let Some(cache) = runtime.cache_manager.get_file_statistic_cache() {
        cache.update_cache_limit(STATISTICS_BYTES);
    }
    Arc::new(runtime)
}

/// The session of [`session_context`] in a runtime that others may share.
pub(crate) fn session_in(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionContext {
    let mut config = match config.options().extensions.get::<LakemarkOptions>() {
        Some(_) => config,
        None => config.with_option_extension(LakemarkOptions::default()),
    };
    config.options_mut().execution.time_zone.get_or_insert_with(|| DEFAULT_TIME_ZONE.to_owned());
    let build_side = &mut config.options_mut().optimizer.hash_join_single_partition_threshold;
    if *build_side == OptimizerOptions::default().hash_join_single_partition_threshold {
        *build_side = rules::BUILD_SIDE_BYTES;
    }
    let catalogs = PinningCatalogs::new(Arc::new(MemoryCatalogProviderList::new()));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_catalog_list(Arc::new(catalogs))
        .with_default_features()
        .with_query_planner(Arc::new(SharingPlanner))
        .with_analyzer_rules(rules::analyzer())
        .with_optimizer_rules(rules::logical())
        .with_physical_optimizer_rules(rules::physical())
        .with_table_factory(FORMAT.to_owned(), Arc::new(LakemarkTableFactory))
        .build();
    SessionContext::new_with_state(state)
}

/// What the session calls the next statement that changes a table.
fn transaction(state: &SessionState) -> Result<Option<Transaction>> {
    let options = state.config_options().extensions.get::<LakemarkOptions>();
    options.map(LakemarkOptions::transaction).transpose().map(Option::flatten)
}

/// Runs SQL, Lakemark's own statements included.
pub struct LakemarkSession {
    context: Erased<SessionContext>,
    prepared: PreparedQueries,
}

impl Default for LakemarkSession {
    fn default() -> Self {
        Self::new()
    }
}

impl LakemarkSession {
    /// A session with DataFusion's defaults and `information_schema`.
    #[must_use]
    pub fn new() -> Self {
        Self::with_config(SessionConfig::new().with_information_schema(true))
    }

    /// A session with the given settings.
    #[must_use]
    pub fn with_config(config: SessionConfig) -> Self {
        Self::from_context(session_context(config))
    }

    /// A session with the given settings whose queries share a runtime: its memory, and the place that they spill to.
    ///
    /// # Errors
    /// The place for spilled rows cannot be used.
    pub fn with_runtime(config: SessionConfig, runtime: RuntimeEnvBuilder) -> Result<Self> {
        let runtime = remembering(runtime.build().map_err(from_engine)?);
        Ok(Self::from_context(session_in(config, runtime)))
    }

    /// A session over a context of [`session_context`].
    #[must_use]
    pub fn from_context(context: SessionContext) -> Self {
        Self { context: Erased::new(context), prepared: PreparedQueries::default() }
    }

    /// Makes names known: a statement that reads one opens its table, unless the session has another table under that name. `CREATE EXTERNAL
    /// TABLE … LOCATION` takes such names as well.
    ///
    /// # Errors
    /// The session has no default schema.
    pub fn know(&self, names: Arc<dyn TableNames>) -> Result<()> {
        schema::know(&self.context, names).map_err(from_engine)
    }

    /// Changes a setting, as `SET` does.
    ///
    /// # Errors
    /// There is no such setting, or it has no such value (`InvalidInput`).
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        let set = format!("SET {name} = '{}'", value.replace('\'', "''"));
        self.sql(&set).await?.collect().await.map(drop).map_err(from_engine)
    }

    /// This session for somebody: it has the same catalogs, runtime and functions, and the settings that this one has now. Its queries
    /// share nothing with those of others.
    #[must_use]
    pub fn acting_for(&self, principal: Principal) -> Self {
        let mut state = self.context.state();
        state.config_mut().set_extension(Arc::new(principal));
        Self::from_context(SessionContext::new_with_state(state))
    }

    /// DataFusion's own session.
    #[must_use]
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Makes a table known by a name, taken as it is.
    pub async fn register(&self, name: &str, table: Arc<Table>) -> Result<()> {
        let provider = LakemarkTable::new(table).await?;
        self.context.register_table(TableReference::bare(name), Arc::new(provider)).map_err(from_engine)?;
        Ok(())
    }

    /// Makes the folders below `datafusion.catalog.location` known as tables of the schema `default`, in `datafusion.catalog.format`; those
    /// that came since the last call, too. `SessionContext::refresh_catalogs` does not find them in a session of Lakemark.
    ///
    /// # Errors
    /// A folder cannot be listed, or is no table of that format.
    pub async fn refresh_catalogs(&self) -> Result<()> {
        refresh(&self.context.state()).await.map_err(from_engine)
    }

    /// Runs one statement. Definitions and changes take effect at once, queries when their rows are requested.
    pub async fn sql(&self, text: &str) -> Result<DataFrame> {
        let planned = self.plan(text, None).await?;
        self.run_planned(planned).await
    }

    /// Runs one statement with values in the place of `$1`, `$2` and so on, of `?` in their order, or of `$name`.
    ///
    /// # Errors
    /// Those of the statement; a value that it needs and that is not there, or one that it has no place for (`InvalidInput`).
    pub async fn sql_with(&self, text: &str, parameters: ParamValues) -> Result<DataFrame> {
        let planned = self.plan(text, Some(parameters)).await?;
        self.run_planned(planned).await
    }

    /// Plans one statement as [`LakemarkSession::plan`] does without values, and keeps what this session needs to plan it again with values or
    /// over other states of its tables. It is kept as long as the [`PreparedQuery`] is there, which all who prepare the text share. A query
    /// whose plan may be another one each time is planned from its text all the same.
    ///
    /// # Errors
    /// As of [`LakemarkSession::sql`].
    pub async fn prepare(&self, text: &str) -> Result<(PlannedStatement, Arc<PreparedQuery>)> {
        let prepared = self.prepared.of(text);
        let planned = self.plan(text, None).await?;
        Ok((planned, prepared))
    }

    /// Whether somebody has prepared a statement in this session.
    #[must_use]
    pub fn has_prepared(&self, text: &str) -> bool {
        self.prepared.known(text).is_some()
    }

    /// Plans one statement, with values in the place of its parameters if they are given, and changes nothing. The plan has the state that
    /// its tables are in now. Equal queries at the same time are planned once, and those that are prepared are not planned again.
    ///
    /// # Errors
    /// As of [`LakemarkSession::sql_with`].
    pub async fn plan(&self, text: &str, parameters: Option<ParamValues>) -> Result<PlannedStatement> {
        let planning = Stopwatch::start();
        let (asked, prepared) = (Asked::new(text, parameters.as_ref()), self.prepared.known(text));
        let (context, owned) = (SessionContext::clone(&self.context), text.to_owned());
        let planned = plan_once(&self.context, asked, prepared, move |state| {
            let (session, text, parameters) = (Self::from_context(context.clone()), owned.clone(), parameters.clone());
            async move { session.plan_text(state, &text, parameters).await }.boxed()
        });
        Ok(planned.await?.asked(|| text.to_owned(), planning))
    }

    async fn plan_text(
        &self,
        state: SessionState,
        text: &str,
        parameters: Option<ParamValues>,
    ) -> Result<OfStatement<PlannedStatement>> {
        let mut statement = statement::parse_one(text, state.config_options()).map_err(from_engine)?;
        let values = parameters.map(|parameters| numbered(&mut statement, parameters)).transpose()?;
        self.plan_parsed(state, statement, values).await
    }

    /// Splits a text into statements, to be run one after the other.
    pub fn parse(&self, text: &str) -> Result<Vec<Statement>> {
        statement::parse(text, &self.options()).map_err(from_engine)
    }

    fn options(&self) -> Arc<ConfigOptions> {
        Arc::clone(self.context.state_ref().read().config_options())
    }

    /// Runs a parsed statement.
    pub async fn run(&self, statement: Statement) -> Result<DataFrame> {
        // A copy of the state has every function and setting: one serves to plan and to run a query.
        let (planning, state) = (Stopwatch::start(), self.context.state());
        let text = LakemarkOptions::of(state.config_options()).slow_query_ms.0.map(|_| match &statement {
            Statement::Engine(statement) => statement.to_string(),
            _ => String::new(),
        });
        let planned = self.plan_parsed(state, statement, None).await?.planned;
        self.run_planned(planned.asked(|| text.unwrap_or_default(), planning)).await
    }

    async fn plan_parsed(
        &self,
        mut state: SessionState,
        statement: Statement,
        parameters: Option<Vec<ScalarValue>>,
    ) -> Result<OfStatement<PlannedStatement>> {
        let mut statement = match statement {
            Statement::Engine(statement) if statement::is_of_transaction(&statement) => {
                return Err(Error::new(ErrorKind::Unsupported, NO_TRANSACTIONS));
            }
            Statement::Engine(statement) => *statement,
            ours => {
                let planned = PlannedStatement::of_index(ours);
                return Ok(OfStatement { planned, tables: StatementTables::default() });
            }
        };
        let planning = async {
            link_functions::prepare(&mut state, &mut statement).await?;
            dml::plan(&mut state, statement).await
        };
        let OfStatement { planned, tables } = of_one_statement(planning).await;
        let mut plan = planned.map_err(from_engine)?;
        if let Some(parameters) = parameters {
            plan = bound(plan, parameters)?;
        }
        if let LogicalPlan::Statement(Prepared::Prepare(prepare)) = &plan {
            refuse_change(&prepare.input)?;
        }
        let kind = StatementKind::of(&plan);
        if let LogicalPlan::Statement(Prepared::Execute(_)) = plan {
            let frame = self.context.execute_logical_plan(plan).await.map_err(from_engine)?;
            let done = "prepared; prepare the statement";
            let anew = of_one_statement(pinned_anew(frame.into_parts().1, done)).await;
            plan = anew.planned.map_err(from_engine)?;
        }
        Ok(OfStatement { planned: PlannedStatement::of_engine(kind, Arc::new(state), plan), tables })
    }

    /// Runs a statement that was planned. Definitions and changes take effect at once, queries when their rows are requested.
    pub async fn run_planned(&self, planned: PlannedStatement) -> Result<DataFrame> {
        Ok(self.query_of(planned).await?.into_frame())
    }

    /// The same for whoever changes nothing of the query before it runs, which needs no copy of the session then.
    pub async fn query_of(&self, planned: PlannedStatement) -> Result<ReadyQuery> {
        let PlannedQuery { state, plan, in_flight, asked } = match planned.into_work() {
            Work::Index(statement) => return Ok(ReadyQuery::of_frame(self.run_index(statement).await?)),
            Work::Engine(query) => query,
        };
        let done = match plan {
            // The table has as many partitions as the query, while queries that share have one.
            plan @ LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(_)) => {
                let context = SessionContext::new_with_state(unshared(Arc::unwrap_or_clone(state)));
                context.execute_logical_plan(plan).await.map_err(from_engine)?
            }
            plan @ (LogicalPlan::Ddl(_) | LogicalPlan::Statement(_)) => {
                schema::check_drop(&state, &plan).map_err(from_engine)?;
                self.context.execute_logical_plan(plan).await.map_err(from_engine)?
            }
            // At once, as definitions are: rows that are requested twice must not be changed twice.
            LogicalPlan::Dml(change) if dml::target(&change).is_some() => {
                let transaction = transaction(&state)?;
                let count = dml::run(Arc::unwrap_or_clone(state), change, transaction).await?;
                self.forget_transaction();
                self.rows(vec![("count", Arc::new(UInt64Array::from(vec![count])))])?
            }
            query => {
                let plan = with_fast_path(&state, query).map_err(from_engine)?;
                return Ok(ReadyQuery::of_plan(PlannedQuery { state, plan, in_flight, asked }));
            }
        };
        Ok(ReadyQuery::of_frame(done))
    }

    /// Runs a statement about indexes.
    async fn run_index(&self, statement: Statement) -> Result<DataFrame> {
        match statement {
            Statement::CreateIndex(create) => self.create_index(create).await,
            Statement::DropIndex { name, table, if_exists } => {
                let dropped = self.table(&table).await?.drop_index(&name, if_exists).await?;
                self.rows(vec![("dropped", Arc::new(BooleanArray::from(vec![dropped])))])
            }
            Statement::ShowIndexes { table } => {
                let indexes = self.table(&table).await?.snapshot().await?.checked_indexes().await?;
                self.read(index_rows(&indexes))
            }
            Statement::Engine(_) => Err(Error::new(ErrorKind::Internal, "a statement of the engine was not planned")),
        }
    }

    /// The next statement is another one, which must not be left out because this one was made.
    fn forget_transaction(&self) {
        let state = self.context.state_ref();
        let mut state = state.write();
        if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<LakemarkOptions>() {
            options.txn_app_id = None;
            options.txn_version = None;
        }
    }

    async fn create_index(&self, create: CreateIndex) -> Result<DataFrame> {
        let CreateIndex { name, table, columns, kind, mut options, if_not_exists } = create;
        let build = match options.remove("build") {
            None => true,
            Some(value) => value.to_ascii_lowercase().parse().map_err(|_| {
                Error::new(ErrorKind::InvalidInput, format!("option \"build\" is true or false, not {value:?}"))
            })?,
        };
        let table = self.table(&table).await?;
        let kind = kind_or_auto(&kind)?;
        let spec = IndexSpec { name: name.clone(), columns, kind, options };
        let created = table.create_index(spec, if_not_exists).await?;
        let report = if created && build {
            table.build(BuildOptions { index: name, ..BuildOptions::default() }).await?
        } else {
            BuildReport::default()
        };
        self.rows(vec![
            ("created", Arc::new(BooleanArray::from(vec![created]))),
            ("files", Arc::new(UInt64Array::from(vec![report.files]))),
            ("rows", Arc::new(UInt64Array::from(vec![report.rows]))),
            ("segments", Arc::new(UInt64Array::from(vec![report.segments]))),
            ("bytes_written", Arc::new(UInt64Array::from(vec![report.bytes_written]))),
            ("seconds", Arc::new(Float64Array::from(vec![report.seconds]))),
        ])
    }

    /// The Lakemark table of a name.
    pub async fn table(&self, name: &TableReference) -> Result<Arc<Table>> {
        let missing = |error: DataFusionError| {
            Error::new(ErrorKind::NotFound, format!("table {name} is not known to this session")).with_source(error)
        };
        let provider = self.context.table_provider(name.clone()).await.map_err(|error| match from_engine(error) {
            ours if ours.kind() != ErrorKind::InvalidInput => ours,
            other => missing(DataFusionError::Plan(other.message().to_owned())),
        })?;
        if let Some(unreadable) = provider.downcast_ref::<Unreadable>() {
            return Err(from_engine(unreadable.error()));
        }
        match provider.downcast_ref::<LakemarkTable>() {
            Some(table) => Ok(Arc::clone(table.table())),
            None => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("table {name} is not a Lakemark table; create it with STORED AS LAKEMARK"),
            )),
        }
    }

    fn rows(&self, columns: Vec<(&str, ArrayRef)>) -> Result<DataFrame> {
        self.read(RecordBatch::try_from_iter(columns))
    }

    fn read(&self, rows: std::result::Result<RecordBatch, ArrowError>) -> Result<DataFrame> {
        let batch =
            rows.map_err(|error| Error::new(ErrorKind::Internal, "a result could not be made").with_source(error))?;
        self.context.read_batch(batch).map_err(from_engine)
    }
}

/// Changes are made of plans that no optimizer has seen and of the newest state; a prepared one has neither.
fn refuse_change(prepared: &LogicalPlan) -> Result<()> {
    match prepared {
        LogicalPlan::Dml(change) if dml::target(change).is_some() => Err(Error::new(
            ErrorKind::Unsupported,
            "a statement that changes a table cannot be prepared; run it with its values each time, as parameters (`$1`) from Rust and Python",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(context: &SessionContext) -> usize {
        context.runtime_env().cache_manager.get_metadata_cache_limit()
    }

    #[tokio::test]
    async fn footers_have_a_limit_of_their_own_until_one_is_set() {
        let (one, other) = (LakemarkSession::new(), LakemarkSession::new());
        assert_eq!(limit(one.context()), 256 << 20);
        one.sql("SET datafusion.runtime.metadata_cache_limit = '1M'").await.unwrap().collect().await.unwrap();
        assert_eq!((limit(one.context()), limit(other.context())), (1 << 20, 256 << 20));
    }
}

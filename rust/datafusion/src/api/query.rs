//! Counts, reports and scans with a predicate in SQL and no statement around it.
//!
//! Columns in a predicate are named exactly (`Price`, not `"Price"`); a predicate that does not fit
//! the columns that way is read with SQL's own folding of unquoted names.

use std::sync::{Arc, LazyLock};

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Int64Type};
use chrono::Utc;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::dataframe::DataFrame;
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::functions_aggregate::expr_fn::count as count_rows;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, UNNAMED_TABLE, lit};
use datafusion::prelude::{SessionConfig, SessionContext};
use lakemark_format::column;
use lakemark_index::{Predicate, Reason, Truth};
use lakemark_table::{Error, ErrorKind, Probe, ProbeOptions, ProbeReport, Result, Snapshot, Table};

use crate::config::LakemarkOptions;
use crate::error::from_engine;
use crate::expr::fields::expression;
use crate::expr::simplify::simplified;
use crate::expr::text::text_of;
use crate::expr::translate::translate;
use crate::plan::buffered_count::{CountRequest, count_with_buffered};
use crate::plan::provider::LakemarkTable;
use crate::sql::session::{runtime, session_in};

/// How a query without SQL runs.
#[derive(Clone, Copy, Debug)]
pub struct QueryOptions {
    /// Whether indexes may be used.
    pub use_index: bool,
    /// Whether rows that an index found before may be taken from memory.
    pub selection_cache: bool,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { use_index: true, selection_cache: true }
    }
}

/// Counts the rows for which the predicate is true (all rows without one).
pub async fn count(table: &Arc<Table>, predicate: Option<&str>, options: &QueryOptions) -> Result<u64> {
    let query = Query::new(table, options).await?;
    let TranslatedFilter { predicate: translated, plain } = query.translated(predicate)?;
    let probed = query.probe(&translated, true).await?;
    if let Some(exact) = probed.exact_row_count() {
        return Ok(exact);
    }
    let runner = query.runner();
    let (location, snapshot) = (table.location(), &query.snapshot);
    let request = CountRequest { location, snapshot, predicate: &translated, filter: plain };
    let known = count_with_buffered(&runner.state, || Arc::clone(&runner.task), request, probed).await;
    if let Some(known) = known.map_err(from_engine)? {
        return Ok(known);
    }
    let rows = query.filtered(predicate)?;
    let counted = rows.aggregate(Vec::new(), vec![count_rows(lit(1))]).map_err(from_engine)?;
    let batches = counted.collect().await.map_err(from_engine)?;
    let number = batches
        .first()
        .and_then(|batch| batch.columns().first())
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .and_then(|values| values.values().first().copied());
    number
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a count gave no number"))
}

/// Says how the index answers the predicate, without reading data.
pub async fn explain(table: &Arc<Table>, predicate: Option<&str>, options: &QueryOptions) -> Result<ProbeReport> {
    let query = Query::new(table, options).await?;
    let translated = predicate_of(&query.filtered(predicate)?, &query.snapshot)?;
    Ok(query.probe(&translated, false).await?.report)
}

/// Says how [`count`] probes the index: only for the number of rows, which takes fewer bytes.
pub async fn explain_count(table: &Arc<Table>, predicate: Option<&str>, options: &QueryOptions) -> Result<ProbeReport> {
    let query = Query::new(table, options).await?;
    Ok(query.probe(&query.predicate(predicate)?, true).await?.report)
}

/// Rows for which the filter is true: the named columns, at most `limit` rows.
pub async fn scan(
    table: &Arc<Table>,
    filter: Option<&str>,
    columns: Option<&[String]>,
    limit: Option<usize>,
    options: &QueryOptions,
) -> Result<DataFrame> {
    let query = Query::new(table, options).await?;
    let mut rows = query.filtered(filter)?;
    if let Some(columns) = columns {
        rows = rows.select(query.columns(columns)?).map_err(from_engine)?;
    }
    match limit {
        Some(limit) => rows.limit(0, Some(limit)).map_err(from_engine),
        None => Ok(rows),
    }
}

/// The predicate of a filter over the columns of a snapshot, for callers that plan scans themselves.
pub fn filter_of(table: &Arc<Table>, snapshot: &Arc<Snapshot>, filter: &str) -> Result<Predicate> {
    let context = context(&QueryOptions::default());
    let provider = LakemarkTable::pinned_to(Arc::clone(table), Arc::clone(snapshot));
    let rows = context.read_table(Arc::new(provider)).map_err(from_engine)?;
    let schema = rows.schema().clone();
    let rows = rows.filter(parse(&context, filter, &schema)?).map_err(from_engine)?;
    predicate_of(&rows, snapshot)
}

/// A filter over a table, translated for its indexes.
struct TranslatedFilter {
    /// The condition that the indexes are probed with.
    predicate: Predicate,
    /// The filter in its plain form, if it has one.
    plain: Option<Expr>,
}

/// A table that is queried without a statement.
pub(crate) struct Query {
    context: SessionContext,
    table: Arc<Table>,
    snapshot: Arc<Snapshot>,
    options: QueryOptions,
}

impl Query {
    pub(crate) async fn new(table: &Arc<Table>, options: &QueryOptions) -> Result<Self> {
        let snapshot = table.snapshot().await?;
        Ok(Self { context: context(options), table: Arc::clone(table), snapshot, options: *options })
    }

    /// The rows for which a filter is true.
    pub(crate) fn filtered(&self, filter: Option<&str>) -> Result<DataFrame> {
        let provider = LakemarkTable::pinned_to(Arc::clone(&self.table), Arc::clone(&self.snapshot));
        let rows = self.context.read_table(Arc::new(provider)).map_err(from_engine)?;
        match filter {
            None => Ok(rows),
            Some(filter) => {
                let schema = rows.schema().clone();
                rows.filter(parse(&self.context, filter, &schema)?).map_err(from_engine)
            }
        }
    }

    /// The state that is queried.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What plans and runs scans without a statement.
    pub(crate) fn runner(&self) -> &'static Runner {
        if self.options.use_index { &RUNNERS.with_index } else { &RUNNERS.without_index }
    }

    /// Columns by their exact names, and fields of structs with dots between the names on the way to them.
    pub(crate) fn columns(&self, names: &[String]) -> Result<Vec<Expr>> {
        let column = |text: &String| match self.snapshot.resolve(text) {
            Some(name) if column::is_field(&name) => Ok(expression(&name).alias(text)),
            Some(name) => Ok(Expr::Column(Column::new_unqualified(name))),
            None => Err(self.unknown_column(text)),
        };
        names.iter().map(column).collect()
    }

    /// The places of columns in the table's schema, by their exact names.
    pub(crate) fn positions(&self, names: &[String]) -> Result<Vec<usize>> {
        let schema = self.snapshot.schema();
        names.iter().map(|name| schema.index_of(name).map_err(|_| self.unknown_column(name))).collect()
    }

    /// The error of a name that the table does not have.
    pub(crate) fn unknown_column(&self, name: &str) -> Error {
        let schema = self.snapshot.schema();
        let known: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::new(
            ErrorKind::NotFound,
            format!("the table has no column {name:?}; its columns are {}", known.join(", ")),
        )
    }

    /// The predicate of a filter over the columns. The engine's rules for expressions make the filter plain, as its optimizer would. No
    /// plan is made, which would take longer than most counts.
    fn predicate(&self, filter: Option<&str>) -> Result<Predicate> {
        self.translated(filter).map(|translated| translated.predicate)
    }

    /// The same with the filter in its plain form, if it has one.
    fn translated(&self, filter: Option<&str>) -> Result<TranslatedFilter> {
        let Some(filter) = filter else {
            return Ok(TranslatedFilter { predicate: Predicate::Const(Truth::True), plain: None });
        };
        let schema = self.snapshot.schema();
        let named = Arc::new(DFSchema::try_from_qualified_schema(UNNAMED_TABLE, &schema).map_err(from_engine)?);
        let expr = parse(&self.context, filter, &named)?;
        let state = self.context.state_ref();
        #[expect(clippy::disallowed_methods, reason = "what now() gives in SQL")]
        let now = Utc::now();
        let plain = simplified(&state.read(), expr, named, Some(now));
        match plain {
            Ok(plain) => {
                let predicate = translate(std::slice::from_ref(&plain), &schema);
                Ok(TranslatedFilter { predicate, plain: Some(plain) })
            }
            // The engine says what is wrong with the filter when it runs the filter.
            Err(_) => {
                let unknown = Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: filter.to_owned() };
                Ok(TranslatedFilter { predicate: unknown, plain: None })
            }
        }
    }

    pub(crate) async fn probe(&self, predicate: &Predicate, count_only: bool) -> Result<Probe> {
        let QueryOptions { use_index, selection_cache } = self.options;
        let options = ProbeOptions { use_index, selection_cache, count_only, ..ProbeOptions::default() };
        self.snapshot.probe(predicate, &options).await
    }
}

/// A session is costly to make and keeps nothing of these queries but footers. So one of each kind serves all queries, and all are in one
/// runtime: a footer is decoded once.
struct Contexts {
    with_index: SessionContext,
    without_index: SessionContext,
    without_cache: SessionContext,
    /// Folds names that are not quoted.
    folding: SessionContext,
}

static CONTEXTS: LazyLock<Contexts> = LazyLock::new(|| {
    let shared = runtime();
    let exact = |use_index: bool, selection_cache: bool| {
        let mut config = SessionConfig::new().with_option_extension(LakemarkOptions {
            use_index,
            selection_cache,
            ..LakemarkOptions::default()
        });
        config.options_mut().sql_parser.enable_ident_normalization = false;
        session_in(config, Arc::clone(&shared))
    };
    Contexts {
        with_index: exact(true, true),
        without_index: exact(false, true),
        without_cache: exact(true, false),
        folding: session_in(SessionConfig::new(), Arc::clone(&shared)),
    }
});

/// A session's state and the context of its tasks. Both have every function that there is, and copying them takes longer than a lookup.
pub(crate) struct Runner {
    pub(crate) state: SessionState,
    pub(crate) task: Arc<TaskContext>,
}

/// The runners of sessions with indexes and without.
struct Runners {
    /// Scans probe the indexes.
    with_index: Runner,
    /// Scans read all files.
    without_index: Runner,
}

static RUNNERS: LazyLock<Runners> = LazyLock::new(|| {
    let runner = |context: &SessionContext| Runner { state: context.state(), task: context.task_ctx() };
    Runners { with_index: runner(&CONTEXTS.with_index), without_index: runner(&CONTEXTS.without_index) }
});

fn context(options: &QueryOptions) -> SessionContext {
    let contexts = &*CONTEXTS;
    let chosen = match options {
        QueryOptions { use_index: false, .. } => &contexts.without_index,
        QueryOptions { selection_cache: false, .. } => &contexts.without_cache,
        QueryOptions { .. } => &contexts.with_index,
    };
    chosen.clone()
}

/// Reads a predicate, with names taken exactly or else folded.
fn parse(context: &SessionContext, text: &str, schema: &DFSchema) -> Result<Expr> {
    let exact = parse_as(context, text, schema);
    let expr = match exact {
        Ok(expr) => expr,
        Err(error) => parse_as(&CONTEXTS.folding, text, schema).map_err(|_| from_engine(error))?,
    };
    if let Some(part) = beyond_a_row(&expr)? {
        return Err(Error::new(ErrorKind::InvalidInput, format!("the filter {text:?} holds {part}")));
    }
    match expr.get_type(schema).map_err(from_engine)? {
        DataType::Boolean | DataType::Null => Ok(expr),
        other => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the filter {text:?} is of type {other}; it has to be true or false"),
        )),
    }
}

/// What a filter holds that no single row can answer, and what to do instead.
fn beyond_a_row(expr: &Expr) -> Result<Option<String>> {
    let mut found = None;
    expr.apply(|part| {
        found = match part {
            Expr::AggregateFunction(_) => {
                Some(format!("the aggregate {}: ask for it in SQL, with HAVING", part.human_display()))
            }
            Expr::WindowFunction(_) => {
                Some(format!("the window function {}: ask for it in SQL, with QUALIFY", part.human_display()))
            }
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_) => {
                Some("a subquery: ask for it in SQL, in a WHERE".to_owned())
            }
            _ => None,
        };
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .map_err(from_engine)?;
    Ok(found)
}

fn parse_as(context: &SessionContext, text: &str, schema: &DFSchema) -> EngineResult<Expr> {
    let expr = context.state_ref().read().create_logical_expr(text, schema)?;
    // Names are resolved now, so that a wrong one is an error of this reading.
    expr.get_type(schema)?;
    Ok(expr)
}

/// The predicate that a scan of these rows would probe with.
fn predicate_of(rows: &DataFrame, snapshot: &Snapshot) -> Result<Predicate> {
    let (state, plan) = rows.clone().into_parts();
    let optimized = state.optimize(&plan).map_err(from_engine)?;
    let (mut scanned, mut kept) = (None, Vec::new());
    optimized
        .apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) if scanned.is_none() => scanned = Some(scan.filters.clone()),
                LogicalPlan::Filter(filter) => kept.push(filter.predicate.clone()),
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .map_err(from_engine)?;
    // The optimizer leaves no scan behind if the predicate is false or NULL for every row.
    let Some(filters) = scanned else {
        return Ok(Predicate::Const(Truth::False));
    };
    let translated = translate(&filters, &snapshot.schema());
    if kept.is_empty() {
        return Ok(translated);
    }
    let mut parts = vec![translated];
    parts.extend(
        kept.iter().map(|expr| Predicate::Unknown { reason: Reason::ExpressionNotSupported, text: text_of(expr) }),
    );
    Ok(Predicate::And(parts).simplify())
}

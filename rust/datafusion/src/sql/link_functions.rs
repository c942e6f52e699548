//! Table functions that walk the links of a table: `reach`, `links` and `path`.
//!
//! ```text
//! reach('kb', start [, via [, direction [, min_depth [, max_depth]]]])      node, depth
//! links('kb', node [, via [, direction]])                                   from, predicate, node
//! path('kb', from, to [, via [, direction [, max_depth]]])                  step, node, predicate
//! ```
//!
//! The engine calls table functions while it plans, and waits for nothing then. So the tables that a statement names in such calls are looked up
//! before it is planned, in the state that the statement sees, and the functions are those of this statement alone.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, TableReference, plan_datafusion_err, plan_err};
use datafusion::datasource::TableType;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, FunctionArg, FunctionArgExpr, ObjectNamePart, Statement as SqlStatement, TableFactor, Value,
    ValueWithSpan, VisitorMut,
};
use futures::stream;
use lakemark_table::{
    Error, ErrorKind, LinkDirection, LinkMemory, Links, Result as TableResult, WalkOptions, machine_memory,
};

use crate::error::to_engine;
use crate::plan::provider::LakemarkTable;
use crate::sql::unreadable::Unreadable;
use crate::sql::versions::visit;

/// Of this part of the machine's memory links may take that no index has.
const MEMORY_SHARE: u64 = 4;
/// The memory of a machine that does not say how much it has.
const UNKNOWN_MEMORY: u64 = 4 << 30;

/// A function over links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkFunction {
    Reach,
    Links,
    Path,
}

impl LinkFunction {
    const ALL: [Self; 3] = [Self::Reach, Self::Links, Self::Path];

    fn name(self) -> &'static str {
        match self {
            Self::Reach => "reach",
            Self::Links => "links",
            Self::Path => "path",
        }
    }

    /// Its arguments behind the table, those that may be left out in brackets.
    fn arguments(self) -> &'static str {
        match self {
            Self::Reach => "start [, via [, direction [, min_depth [, max_depth]]]]",
            Self::Links => "node [, via [, direction]]",
            Self::Path => "from, to [, via [, direction [, max_depth]]]",
        }
    }
}

/// Makes the functions known that a statement calls.
///
/// # Errors
/// A table that is not known, is none of ours, or has no links; a view over such a call, which would show what was linked when it was made.
pub(crate) async fn prepare(state: &mut SessionState, statement: &mut EngineStatement) -> Result<()> {
    let mut calls = LinkCalls::default();
    let ControlFlow::Continue(()) = visit(statement, &mut calls);
    if calls.0.is_empty() {
        return Ok(());
    }
    let is_kept = |inner: &SqlStatement| matches!(inner, SqlStatement::CreateView(_) | SqlStatement::Prepare { .. });
    if matches!(&*statement, EngineStatement::Statement(inner) if is_kept(inner)) {
        return plan_err!(
            "a walk over links is of the state that a statement sees, and stands in no view or prepared statement"
        );
    }
    let mut tables = HashMap::with_capacity(calls.0.len());
    for name in calls.0 {
        let links = links_of(state, &name).await?;
        tables.insert(name, links);
    }
    let tables = Arc::new(tables);
    for function in LinkFunction::ALL {
        let calls = LinkTableFunction { function, tables: Arc::clone(&tables) };
        state.register_udtf(function.name(), Arc::new(calls));
    }
    Ok(())
}

/// The tables that are named in calls, as texts.
#[derive(Default)]
struct LinkCalls(BTreeSet<String>);

impl VisitorMut for LinkCalls {
    type Break = std::convert::Infallible;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        let TableFactor::Table { name, args: Some(args), .. } = factor else { return ControlFlow::Continue(()) };
        let called = match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => name.value.to_ascii_lowercase(),
            _ => return ControlFlow::Continue(()),
        };
        if LinkFunction::ALL.iter().any(|function| function.name() == called)
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(SqlExpr::Value(ValueWithSpan { value, .. })))) =
                args.args.first()
            && let Value::SingleQuotedString(table) = value
        {
            self.0.insert(table.clone());
        }
        ControlFlow::Continue(())
    }
}

/// The links of a table of the session.
async fn links_of(state: &SessionState, name: &str) -> Result<Arc<Links>> {
    let reference = TableReference::parse_str(name);
    let schema = state.schema_for_ref(reference.clone())?;
    let provider = schema.table(reference.table()).await?;
    let provider = provider.ok_or_else(|| plan_datafusion_err!("table {name} is not known to this session"))?;
    if let Some(unreadable) = provider.downcast_ref::<Unreadable>() {
        return Err(unreadable.error());
    }
    let Some(table) = provider.downcast_ref::<LakemarkTable>() else {
        return plan_err!("table {name} is not a Lakemark table; create it with STORED AS LAKEMARK");
    };
    let snapshot = table.snapshot();
    let mut over = snapshot.link_columns();
    let columns = match (over.pop(), over.is_empty()) {
        (Some(columns), true) => columns,
        (Some(_), false) => {
            return plan_err!("table {name} has several indexes of the kind links; drop all but one of them");
        }
        (None, _) => {
            return plan_err!(
                "table {name} has no index of the kind links; create one with CREATE INDEX … USING links (subject, predicate, object)"
            );
        }
    };
    let memory = machine_memory().unwrap_or(UNKNOWN_MEMORY) / MEMORY_SHARE;
    Links::of(Arc::clone(snapshot), &columns, memory).await.map_err(to_engine)
}

/// A function in the statement that calls it.
#[derive(Debug)]
struct LinkTableFunction {
    function: LinkFunction,
    tables: Arc<HashMap<String, Arc<Links>>>,
}

impl TableFunctionImpl for LinkTableFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let mut given = Arguments { function: self.function, exprs: args.exprs(), next: 0 };
        let table = given.needed()?;
        let links = table.try_as_str().flatten().and_then(|name| self.tables.get(name));
        let links = links.ok_or_else(|| given.wrong("the first is the name of a table, in quotes"))?;
        let call = LinkCall::of(self.function, Arc::clone(links), &mut given)?;
        let columns = match self.function {
            LinkFunction::Reach => links.reach_columns(),
            LinkFunction::Links => links.neighbour_columns(),
            LinkFunction::Path => links.path_columns(),
        };
        let schema = columns.map_err(to_engine)?.schema();
        Ok(Arc::new(LinkRows { call: Arc::new(call), schema }))
    }
}

/// The arguments of a call, one after the other.
struct Arguments<'a> {
    function: LinkFunction,
    exprs: &'a [Expr],
    next: usize,
}

impl Arguments<'_> {
    fn wrong(&self, why: &str) -> datafusion::error::DataFusionError {
        let (name, arguments) = (self.function.name(), self.function.arguments());
        plan_datafusion_err!("{name}(table, {arguments}): {why}")
    }

    /// The next argument; none if there is none, or if it is NULL.
    fn optional(&mut self) -> Result<Option<ScalarValue>> {
        let Some(expr) = self.exprs.get(self.next) else { return Ok(None) };
        self.next += 1;
        match expr {
            Expr::Literal(value, _) => Ok(Some(value.clone()).filter(|value| !value.is_null())),
            other => Err(self.wrong(&format!("{other} is no constant"))),
        }
    }

    fn needed(&mut self) -> Result<ScalarValue> {
        self.optional()?.ok_or_else(|| self.wrong("too few arguments, or NULL in the place of one that is needed"))
    }

    fn node(&mut self) -> Result<ArrayRef> {
        self.needed()?.to_array()
    }

    fn predicate(&mut self) -> Result<Option<ArrayRef>> {
        self.optional()?.map(|value| value.to_array()).transpose()
    }

    fn direction(&mut self) -> Result<LinkDirection> {
        let Some(value) = self.optional()? else { return Ok(LinkDirection::default()) };
        match value.try_as_str().flatten() {
            Some(name) => LinkDirection::from_name(name).map_err(to_engine),
            None => Err(self.wrong(&format!("{value} is no direction: out, in or both"))),
        }
    }

    fn depth(&mut self) -> Result<Option<u32>> {
        let Some(value) = self.optional()? else { return Ok(None) };
        let depth = match &value {
            ScalarValue::Int64(Some(depth)) => u32::try_from(*depth).ok(),
            _ => None,
        };
        depth.map(Some).ok_or_else(|| self.wrong(&format!("{value} is no depth: a whole number, 0 or more")))
    }

    fn end(&self) -> Result<()> {
        match self.next < self.exprs.len() {
            true => Err(self.wrong("too many arguments")),
            false => Ok(()),
        }
    }
}

/// A walk that a statement asks for.
#[derive(Clone, Debug)]
struct LinkCall {
    function: LinkFunction,
    links: Arc<Links>,
    node: ArrayRef,
    /// The other end of a path.
    to: Option<ArrayRef>,
    options: WalkOptions,
}

impl LinkCall {
    fn of(function: LinkFunction, links: Arc<Links>, given: &mut Arguments<'_>) -> Result<Self> {
        let node = given.node()?;
        let to = if function == LinkFunction::Path { Some(given.node()?) } else { None };
        let mut options =
            WalkOptions { via: given.predicate()?, direction: given.direction()?, ..WalkOptions::default() };
        if function == LinkFunction::Reach {
            options.min_depth = given.depth()?.unwrap_or(options.min_depth);
        }
        if function != LinkFunction::Links {
            options.max_depth = given.depth()?;
        }
        given.end()?;
        Ok(Self { function, links, node, to, options })
    }

    async fn rows(&self, memory: &dyn LinkMemory) -> TableResult<arrow::array::RecordBatch> {
        match (self.function, &self.to) {
            (LinkFunction::Reach, _) => self.links.reach(&self.node, &self.options, memory).await,
            (LinkFunction::Path, Some(to)) => self.links.path(&self.node, to, &self.options, memory).await,
            (LinkFunction::Links | LinkFunction::Path, _) => {
                self.links.neighbours(&self.node, &self.options, memory).await
            }
        }
    }
}

/// The rows of a walk.
#[derive(Debug)]
struct LinkRows {
    call: Arc<LinkCall>,
    schema: SchemaRef,
}

#[async_trait]
impl TableProvider for LinkRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut call = self.call.as_ref().clone();
        // The first nodes that are found are as good as any; a path has its own order.
        if call.function != LinkFunction::Path {
            call.options.limit = limit;
        }
        let rows: Arc<dyn PartitionStream> =
            Arc::new(LinkStream { call: Arc::new(call), schema: Arc::clone(&self.schema) });
        let schema = Arc::clone(&self.schema);
        let plan = StreamingTableExec::try_new(schema, vec![rows], projection, Vec::<LexOrdering>::new(), false, limit);
        Ok(Arc::new(plan?))
    }
}

/// The rows of a walk, which is made when they are asked for.
#[derive(Debug)]
struct LinkStream {
    call: Arc<LinkCall>,
    schema: SchemaRef,
}

impl PartitionStream for LinkStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let call = Arc::clone(&self.call);
        let memory = PoolMemory(MemoryConsumer::new("Links").register(context.memory_pool()));
        let rows = async move { call.rows(&memory).await.map_err(to_engine) };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream::once(rows)))
    }
}

/// Memory of the session for what a walk has seen.
#[derive(Debug)]
struct PoolMemory(MemoryReservation);

impl LinkMemory for PoolMemory {
    fn grow(&self, bytes: u64) -> TableResult<()> {
        self.0.try_grow(usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(|error| {
            let text = "the session has too little memory for the nodes that the walk has seen: allow more, or go less deep with max_depth or \
                        along fewer predicates";
            Error::new(ErrorKind::Unsupported, text).with_source(error)
        })
    }
}

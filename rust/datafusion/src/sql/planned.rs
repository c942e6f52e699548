//! Statements between their planning and their run, and what can be known of them there.
//!
//! A server looks at a statement before it runs it: whether it changes something, which columns its rows have, which parameters it takes.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as EngineStatement};
use lakemark_table::{Result, Stopwatch, index_rows};

use crate::erased::Erased;
use crate::error::from_engine;
use crate::plan::ready_query::PlannedQuery;
use crate::plan::slow_queries::AskedQuery;
use crate::share::statements::QueryInFlight;
use crate::sql::statement::Statement;

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// It gives rows, and changes nothing.
    Query,
    /// It changes the rows of a table.
    Change,
    /// It creates an index or drops one.
    Index,
    /// It defines or drops what the session knows: a table, a view, a schema, a function.
    Definition,
    /// It writes rows to files.
    Export,
    /// It sets a variable of the session.
    Setting,
    /// It prepares a statement, runs a prepared one, or forgets it.
    Prepared,
}

impl StatementKind {
    /// The kind of a plan.
    pub(crate) fn of(plan: &LogicalPlan) -> Self {
        match plan {
            LogicalPlan::Ddl(_) => Self::Definition,
            LogicalPlan::Dml(_) => Self::Change,
            LogicalPlan::Copy(_) => Self::Export,
            // It runs what it explains.
            LogicalPlan::Analyze(analyze) => Self::of(&analyze.input),
            LogicalPlan::Statement(statement) => match statement {
                EngineStatement::SetVariable(_) | EngineStatement::ResetVariable(_) => Self::Setting,
                EngineStatement::Prepare(_) | EngineStatement::Execute(_) | EngineStatement::Deallocate(_) => {
                    Self::Prepared
                }
                // Sessions refuse these before they plan them.
                EngineStatement::TransactionStart(_) | EngineStatement::TransactionEnd(_) => Self::Setting,
            },
            _ => Self::Query,
        }
    }
}

/// A parameter of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name: `$1`, or `$name`.
    pub name: String,
    /// The type that its place asks for, where the planner knows one.
    pub data_type: Option<DataType>,
}

/// A statement that was planned and has not been run.
pub struct PlannedStatement {
    kind: StatementKind,
    work: Erased<Work>,
}

/// What is left to be done.
#[derive(Clone)]
pub(crate) enum Work {
    /// A statement about indexes, which has no plan.
    Index(Statement),
    /// A plan of the engine's, with the state that it was planned in, and the statement in flight if there is one.
    Engine(PlannedQuery),
}

impl PlannedStatement {
    /// A statement about indexes.
    pub(crate) fn of_index(statement: Statement) -> Self {
        let kind = match statement {
            Statement::ShowIndexes { .. } => StatementKind::Query,
            _ => StatementKind::Index,
        };
        Self { kind, work: Erased::new(Work::Index(statement)) }
    }

    /// A statement that the engine planned.
    pub(crate) fn of_engine(kind: StatementKind, state: Arc<SessionState>, plan: LogicalPlan) -> Self {
        let query = PlannedQuery { state, plan, in_flight: None, asked: None };
        Self { kind, work: Erased::new(Work::Engine(query)) }
    }

    /// The same statement, as one that others ask, too.
    pub(crate) fn in_flight(self, query: QueryInFlight) -> Self {
        let mut work = self.work.into_inner();
        if let Work::Engine(planned) = &mut work {
            planned.in_flight = Some(Arc::new(query));
        }
        Self { kind: self.kind, work: Erased::new(work) }
    }

    /// The same statement with its text and what its planning took, if it is a query of a session that logs slow ones.
    pub(crate) fn asked(self, text: impl FnOnce() -> String, planning: Stopwatch) -> Self {
        let mut work = self.work.into_inner();
        if let Work::Engine(planned) = &mut work
            && self.kind == StatementKind::Query
        {
            planned.asked = AskedQuery::of(text, planned.state.config_options(), planning);
        }
        Self { kind: self.kind, work: Erased::new(work) }
    }

    /// The plan of a query of the engine's.
    pub(crate) fn query_plan(&self) -> Option<&LogicalPlan> {
        match &*self.work {
            Work::Engine(planned) if self.kind == StatementKind::Query => Some(&planned.plan),
            _ => None,
        }
    }

    pub(crate) fn into_work(self) -> Work {
        self.work.into_inner()
    }

    /// What it does.
    #[must_use]
    pub fn kind(&self) -> StatementKind {
        self.kind
    }

    /// The columns of the rows that a query gives.
    ///
    /// # Errors
    /// None, as the columns of a list of indexes are known.
    pub fn query_schema(&self) -> Result<Option<SchemaRef>> {
        match &*self.work {
            _ if self.kind != StatementKind::Query => Ok(None),
            Work::Index(_) => Ok(Some(index_rows(&[]).map_err(|error| from_engine(error.into()))?.schema())),
            Work::Engine(planned) => Ok(Some(SchemaRef::new(planned.plan.schema().as_arrow().clone()))),
        }
    }

    /// The parameters that have no value yet: those with numbers in the order of these, then those with names.
    ///
    /// # Errors
    /// A parameter stands where values of different types are asked for.
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let Work::Engine(planned) = &*self.work else { return Ok(Vec::new()) };
        let found = planned.plan.get_parameter_types().map_err(from_engine)?;
        let mut parameters: Vec<Parameter> =
            found.into_iter().map(|(name, data_type)| Parameter { name, data_type }).collect();
        let order = |parameter: &Parameter| {
            let number = parameter.name.trim_start_matches('$').parse::<usize>();
            (number.unwrap_or(usize::MAX), parameter.name.clone())
        };
        parameters.sort_by_cached_key(order);
        Ok(parameters)
    }
}

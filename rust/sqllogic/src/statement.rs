//! What a statement is about: whether it is a SELECT, and what it does to tables.

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement as EngineStatement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement as SqlStatement};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rows of a query.
    Select {
        /// Whether the statement says in which order.
        is_ordered: bool,
    },
    /// The plan of a statement.
    Explain,
    /// Anything else.
    Other,
}

/// What a statement does to tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads them at most.
    Reads,
    /// It may make some, drop some, or write files that some read.
    Defines,
    /// It changes rows of tables that are there.
    Changes,
}

/// A statement, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What is asked.
    pub kind: Kind,
    /// What it does to tables.
    pub access: Access,
}

impl Work {
    /// The work of a statement in a session. A text that is no statement reads nothing.
    pub fn of(state: &SessionState, sql: &str) -> Self {
        let dialect = state.config_options().sql_parser.dialect;
        state
            .sql_to_statement(sql, &dialect)
            .map_or(Self { kind: Kind::Other, access: Access::Reads }, |statement| Self::of_statement(&statement))
    }

    fn of_statement(statement: &EngineStatement) -> Self {
        match statement {
            EngineStatement::Explain(explain) => {
                Self { kind: Kind::Explain, access: Self::of_statement(&explain.statement).access }
            }
            EngineStatement::Reset(_) => Self { kind: Kind::Other, access: Access::Reads },
            EngineStatement::CreateExternalTable(_) | EngineStatement::CopyTo(_) => {
                Self { kind: Kind::Other, access: Access::Defines }
            }
            EngineStatement::Statement(statement) => Self::of_sql(statement),
        }
    }

    fn of_sql(statement: &SqlStatement) -> Self {
        match statement {
            SqlStatement::Query(query) if makes_table(query) => Self { kind: Kind::Other, access: Access::Defines },
            SqlStatement::Query(query) => {
                Self { kind: Kind::Select { is_ordered: query.order_by.is_some() }, access: Access::Reads }
            }
            SqlStatement::Insert(_)
            | SqlStatement::Update(_)
            | SqlStatement::Delete(_)
            | SqlStatement::Merge(_)
            | SqlStatement::Truncate(_) => Self { kind: Kind::Other, access: Access::Changes },
            SqlStatement::Prepare { statement, .. } => Self { kind: Kind::Other, ..Self::of_sql(statement) },
            SqlStatement::Set(_)
            | SqlStatement::ShowVariable { .. }
            | SqlStatement::ShowVariables { .. }
            | SqlStatement::ExplainTable { .. } => Self { kind: Kind::Other, access: Access::Reads },
            _ => Self { kind: Kind::Other, access: Access::Defines },
        }
    }
}

/// Whether a query is `SELECT … INTO`.
fn makes_table(query: &Query) -> bool {
    matches!(query.body.as_ref(), SetExpr::Select(select) if select.into.is_some())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;

    fn work(sql: &str) -> (Kind, Access) {
        let Work { kind, access } = Work::of(&SessionContext::new().state(), sql);
        (kind, access)
    }

    #[test]
    fn queries_are_told_from_plans_and_changes() {
        let select = |is_ordered| Kind::Select { is_ordered };
        assert_eq!(work("SELECT 1 ORDER BY 1"), (select(true), Access::Reads));
        assert_eq!(work("WITH t AS (SELECT 1 ORDER BY 1) SELECT * FROM t"), (select(false), Access::Reads));
        assert_eq!(work("SELECT * INTO u FROM t"), (Kind::Other, Access::Defines));
        assert_eq!(work("EXPLAIN SELECT 1"), (Kind::Explain, Access::Reads));
        assert_eq!(work("EXPLAIN ANALYZE INSERT INTO t VALUES (1)"), (Kind::Explain, Access::Changes));
        assert_eq!(work("CREATE TABLE t AS VALUES (1)"), (Kind::Other, Access::Defines));
        assert_eq!(work("INSERT INTO t VALUES (1)"), (Kind::Other, Access::Changes));
        assert_eq!(work("PREPARE p AS SELECT 1"), (Kind::Other, Access::Reads));
        assert_eq!(work("PREPARE p AS INSERT INTO t VALUES (1)"), (Kind::Other, Access::Changes));
        assert_eq!(work("EXECUTE p"), (Kind::Other, Access::Defines));
        assert_eq!(work("SET datafusion.execution.batch_size = 1"), (Kind::Other, Access::Reads));
        assert_eq!(work("this is nothing"), (Kind::Other, Access::Reads));
    }
}

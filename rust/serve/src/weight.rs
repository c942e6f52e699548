//! How much a statement is once each name of `WITH` stands for its query.
//!
//! ```text
//! WITH a AS (SELECT … FROM t, t), b AS (SELECT … FROM a, a), c AS (SELECT … FROM b, b) SELECT … FROM c
//!      a weighs 2                 b weighs 4                 c weighs 8
//! ```
//!
//! The engine plans such a query as often as it is named. So a short text can ask for more relations than any planner ends with.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement as EngineStatement};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Query, Visit, Visitor};
use lakemark_datafusion::{LakemarkSession, Statement};
use lakemark_table::Result;

use crate::options::invalid;

/// The most relations of a statement, each of them as often as it is planned.
const MOST_PLANNED: usize = 10_000;

/// Fails where a statement is too much to be planned. What cannot be parsed is not: the session refuses it.
pub(crate) fn check(session: &LakemarkSession, text: &str) -> Result<()> {
    // Without the word there is no name that stands for more than itself.
    let has_names = text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"with"));
    let statements = if has_names { session.parse(text).unwrap_or_default() } else { Vec::new() };
    match statements.iter().all(is_light) {
        true => Ok(()),
        false => Err(invalid(format!(
            "the statement has more than {MOST_PLANNED} relations once each name of WITH stands for its query: name such queries less often"
        ))),
    }
}

fn is_light(statement: &Statement) -> bool {
    match statement {
        Statement::Engine(statement) => is_light_to_plan(statement),
        _ => true,
    }
}

fn is_light_to_plan(statement: &EngineStatement) -> bool {
    let mut weights = Weights::default();
    let visited = match statement {
        EngineStatement::Statement(statement) => statement.visit(&mut weights),
        EngineStatement::Explain(explain) => return is_light_to_plan(&explain.statement),
        EngineStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(&mut weights),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        EngineStatement::CreateExternalTable(_) | EngineStatement::Reset(_) => ControlFlow::Continue(()),
    };
    visited.is_continue()
}

/// The queries around a place, the outermost first.
#[derive(Default)]
struct Weights(Vec<Scope>);

/// A query whose parts are visited.
#[derive(Default)]
struct Scope {
    weight: usize,
    /// The names of its `WITH`, each with the place of its query.
    names: Vec<(*const Query, String)>,
    /// What those weigh whose queries were visited.
    known: Vec<(String, usize)>,
}

impl Weights {
    fn weight_of(&self, relation: &ObjectName) -> usize {
        let [ObjectNamePart::Identifier(name)] = relation.0.as_slice() else { return 1 };
        let name = folded(name);
        let mut known = self.0.iter().rev().flat_map(|scope| scope.known.iter().rev());
        known.find(|(known, _)| *known == name).map_or(1, |(_, weight)| *weight)
    }

    /// Adds to the innermost query.
    fn add(&mut self, weight: usize) -> ControlFlow<()> {
        let Some(scope) = self.0.last_mut() else { return ControlFlow::Continue(()) };
        scope.weight = scope.weight.saturating_add(weight);
        if scope.weight > MOST_PLANNED { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Weights {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let named = query.with.iter().flat_map(|with| &with.cte_tables);
        let names = named.map(|named| (std::ptr::from_ref(&*named.query), folded(&named.alias.name))).collect();
        self.0.push(Scope { names, ..Scope::default() });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let weight = self.0.pop().map_or(0, |scope| scope.weight);
        let around = self.0.last_mut();
        let named = around.and_then(|scope| {
            let name =
                scope.names.iter().find(|(place, _)| std::ptr::eq(*place, query)).map(|(_, name)| name.clone())?;
            scope.known.push((name, weight.max(1)));
            Some(())
        });
        // A query that has no name is planned where it stands.
        if named.is_some() { ControlFlow::Continue(()) } else { self.add(weight) }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.add(self.weight_of(relation))
    }
}

/// A name as the engine compares it.
fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of which each is the one before it, twice.
    fn doubled(count: usize) -> String {
        let named = |n: usize| format!("C{n} AS (SELECT a.x FROM c{0} a, c{0} b)", n - 1);
        let names: Vec<String> = (1..=count).map(named).collect();
        format!("WITH c0 AS (SELECT 1 AS x), {} SELECT count(*) FROM c{count}", names.join(", "))
    }

    #[test]
    fn names_weigh_what_their_queries_weigh() {
        let session = LakemarkSession::new();
        for light in ["SELECT 1", "SELECT 'with' FROM", &doubled(3), &doubled(13), &format!("EXPLAIN {}", doubled(13))]
        {
            assert!(check(&session, light).is_ok(), "{light}");
        }
        let heavy = doubled(14);
        for heavy in [heavy.clone(), doubled(40), format!("EXPLAIN EXPLAIN {heavy}"), format!("SELECT 1 IN ({heavy})")]
        {
            let message = check(&session, &heavy).unwrap_err().to_string();
            assert!(message.contains("more than 10000 relations"), "{message}");
        }
        // An inner name stands for its own query.
        let inner = "FROM (WITH c13 AS (SELECT 1 AS x) SELECT a.x FROM c13 a, c13 b) y";
        assert!(check(&session, &doubled(13).replace("FROM c13", inner)).is_ok());
        assert!(check(&session, &doubled(13).replace("FROM c13", "FROM c13 a, c13 b")).is_err());
    }
}

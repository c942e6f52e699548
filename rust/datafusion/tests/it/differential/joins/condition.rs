//! What random statements say in `WHERE`: conditions on one table, on two of them, and with subqueries.

use rand::Rng;
use rand::rngs::StdRng;

use super::super::column::pick;
use super::source::{Member, Source, Tables, alike, key};

/// A condition, and whether a row can make it an error.
pub struct Condition {
    pub sql: String,
    pub may_raise: bool,
}

/// Random conditions, joined by AND.
pub fn random(rng: &mut StdRng, tables: &Tables, source: &Source<'_>) -> Vec<Condition> {
    let count = *pick(rng, &[0, 1, 1, 1, 2, 2, 3]);
    (0..count).map(|_| one(rng, tables, source)).collect()
}

fn one(rng: &mut StdRng, tables: &Tables, source: &Source<'_>) -> Condition {
    let (member, other) = (source.member(rng), source.member(rng));
    let depth = rng.random_range(0..3);
    let mut may_raise = false;
    let sql = match rng.random_range(0..20) {
        // Rows that an outer join made up are let through.
        0..=3 => format!("({} IS NULL OR {})", member.of(member.column(rng)), member.condition(rng, 0)),
        4 => format!("({} IS NULL OR {})", member.id(), other.condition(rng, 0)),
        5 => format!("({} OR {})", member.condition(rng, 0), other.condition(rng, 0)),
        6 => match alike(rng, &member, &other) {
            Some((a, b)) => format!("{} {} {}", member.of(a), pick(rng, &["<", "=", "<>", ">="]), other.of(b)),
            None => format!("{} <= {}", member.id(), other.id()),
        },
        7..=12 => subquery(rng, tables, &member),
        13 if rng.random_bool(0.3) => {
            may_raise = true;
            format!("10 / ({} - {}) < 3", member.id(), rng.random_range(0..400))
        }
        _ => member.condition(rng, depth),
    };
    Condition { sql, may_raise }
}

fn subquery(rng: &mut StdRng, tables: &Tables, outer: &Member<'_>) -> String {
    let inner = Member::random(rng, tables, "s");
    let negated = *pick(rng, &["", "", "NOT "]);
    let depth = rng.random_range(0..2);
    let condition = inner.condition(rng, depth);
    let from = format!("FROM {} AS s WHERE {condition}", inner.name);
    // The engine has no plan for a NOT IN that is correlated.
    let correlated = if negated.is_empty() && rng.random_bool(0.5) {
        format!(" AND {}", key(rng, &inner, outer))
    } else {
        String::new()
    };
    match (rng.random_range(0..8), alike(rng, outer, &inner)) {
        (0, Some((a, b))) => {
            let unequal = format!("{} <> {}", outer.of(a), inner.of(b));
            format!("{negated}EXISTS (SELECT 1 {from} AND {} AND {unequal})", key(rng, &inner, outer))
        }
        (0 | 1, _) => format!("{negated}EXISTS (SELECT 1 {from} AND {})", key(rng, &inner, outer)),
        (2, _) => format!("{negated}EXISTS (SELECT 1 {from})"),
        (3 | 4, Some((a, b))) => format!("{} {negated}IN (SELECT {} {from}{correlated})", outer.of(a), inner.of(b)),
        (3..=5, _) => {
            format!("{} {negated}IN (SELECT s.id + {} {from}{correlated})", outer.id(), rng.random_range(-2..30))
        }
        (6, _) => {
            let function = pick(rng, &["min(s.id)", "max(s.id)", "avg(s.id)", "count(*)"]);
            let comparison = pick(rng, &["<", ">=", "<>"]);
            format!("{} {comparison} (SELECT {function} {from})", outer.id())
        }
        _ => {
            let function = pick(rng, &["min(s.id)", "max(s.id)", "count(*)", "sum(s.id)"]);
            let comparison = pick(rng, &["<=", ">", "="]);
            format!("{} {comparison} (SELECT {function} {from} AND {})", outer.id(), equation(rng, &inner, outer))
        }
    }
}

/// An equation of two columns: by no other does the engine correlate scalar subqueries.
pub fn equation(rng: &mut StdRng, inner: &Member<'_>, outer: &Member<'_>) -> String {
    match alike(rng, inner, outer).filter(|_| rng.random_bool(0.6)) {
        Some((a, b)) => format!("{} = {}", inner.of(a), outer.of(b)),
        None => format!("{} = {}", inner.id(), outer.id()),
    }
}

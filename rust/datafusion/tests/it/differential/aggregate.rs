//! Random aggregates: groups, extremes and counts of values, with and without a predicate.

use arrow::datatypes::DataType;
use rand::Rng;
use rand::rngs::StdRng;

use super::column::{Column, pick};
use super::query::Tree;

/// Aggregates over the rows of a predicate; the last one is `count(*)`.
#[derive(Clone, Debug)]
pub struct Aggregate {
    groups: Vec<String>,
    functions: Vec<String>,
    /// Without, all rows of the table count.
    filtered: bool,
    having: Option<String>,
}

impl Aggregate {
    /// Random aggregates of random columns, most of them of one.
    pub fn random(rng: &mut StdRng, columns: &[Column]) -> Self {
        let main = pick(rng, columns);
        let other = pick(rng, columns);
        let groups = match rng.random_range(0..10) {
            0..=3 => Vec::new(),
            4..=6 => vec![main.name.clone()],
            7 => vec![expression(rng, main)],
            8 => vec![main.name.clone(), expression(rng, main)],
            _ => vec![main.name.clone(), other.name.clone()],
        };
        let functions = (0..rng.random_range(0..4)).map(|_| {
            let column = if rng.random_bool(0.7) { main } else { other };
            function(rng, column, !groups.is_empty())
        });
        let functions: Vec<String> = functions.collect();
        let having = rng.random_bool(0.1).then(|| format!("count(*) > {}", rng.random_range(0..20)));
        Self { groups, functions, filtered: rng.random_bool(0.8), having }
    }

    /// The statement for a predicate.
    pub fn sql(&self, tree: &Tree) -> String {
        let listed: Vec<&str> =
            self.groups.iter().chain(&self.functions).map(String::as_str).chain(["count(*)"]).collect();
        let mut sql = format!("SELECT {} FROM t", listed.join(", "));
        if self.filtered {
            sql.push_str(&format!(" WHERE {tree}"));
        }
        if !self.groups.is_empty() {
            sql.push_str(&format!(" GROUP BY {}", self.groups.join(", ")));
        }
        if let Some(having) = &self.having {
            sql.push_str(&format!(" HAVING {having}"));
        }
        sql
    }
}

/// DataFusion 55 forgets the least and greatest of a group when it meets a NaN: its answer depends on which batch comes first.
fn function(rng: &mut StdRng, column: &Column, grouped: bool) -> String {
    let Column { name, .. } = column;
    let extremes = if grouped && column.data_type.is_floating() { "id" } else { name };
    match rng.random_range(0..13) {
        0..=1 => format!("count({name})"),
        2..=3 => format!("min({extremes})"),
        4..=5 => format!("max({extremes})"),
        6 => format!("count(DISTINCT {name})"),
        7 => format!("count({})", expression(rng, column)),
        8 => format!("count({name}, 1)"),
        // Sums of floats depend on the order of their rows, and means of numbers beyond 2^53 are such sums.
        9..=11 if matches!(column.data_type, DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16) => {
            format!("{}({name})", pick(rng, &["sum", "avg"]))
        }
        9..=11 if column.data_type.is_integer() || column.data_type.is_decimal() => format!("sum({name})"),
        _ => (*pick(rng, &["count(1)", "count(NULL)", "min(id)", "count(id)"])).to_owned(),
    }
}

/// Something that is computed from a column.
fn expression(rng: &mut StdRng, column: &Column) -> String {
    let Column { name, .. } = column;
    match rng.random_range(0..3) {
        0 if column.is_text() => format!("length({name})"),
        1 => format!("CASE WHEN {name} = {} THEN NULL ELSE 'other' END", column.literal(rng)),
        _ => format!("{name} IS NULL"),
    }
}

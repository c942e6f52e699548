//! Random predicates and the statements around them.

use std::fmt;

use rand::Rng;
use rand::rngs::StdRng;

use super::aggregate::Aggregate;
use super::aim::Aim;
use super::column::{Column, pick};

/// A predicate, kept as a tree so that a difference can be cut down to the part that causes it.
#[derive(Clone, Debug)]
pub enum Tree {
    /// A comparison, as SQL.
    Leaf(String),
    /// The opposite.
    Not(Box<Self>),
    /// All of them.
    And(Vec<Self>),
    /// Any of them.
    Or(Vec<Self>),
    /// `(…) IS TRUE` and its relatives.
    Is(Box<Self>, &'static str),
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined =
            |parts: &[Self], word: &str| parts.iter().map(|part| format!("({part})")).collect::<Vec<_>>().join(word);
        match self {
            Self::Leaf(sql) => f.write_str(sql),
            Self::Not(inner) => write!(f, "NOT ({inner})"),
            Self::And(parts) => f.write_str(&joined(parts, " AND ")),
            Self::Or(parts) => f.write_str(&joined(parts, " OR ")),
            Self::Is(inner, truth) => write!(f, "({inner}) IS {truth}"),
        }
    }
}

impl Tree {
    /// A random predicate. What is joined by AND aims at one row; each part of an OR has a row of its own.
    pub fn random(rng: &mut StdRng, aim: Aim<'_>, depth: u32) -> Self {
        let kind = if depth == 0 { 0 } else { rng.random_range(0..10) };
        let parts = rng.random_range(2..5);
        match kind {
            0..=3 => Self::Leaf(aim.leaf(rng)),
            // What is true of a row is false of it below a NOT, so that aiming would empty the answer.
            4 => Self::Not(Box::new(Self::random(rng, aim.nowhere(), depth - 1))),
            5..=6 => Self::And((0..parts).map(|_| Self::random(rng, aim, depth - 1)).collect()),
            7..=8 => Self::Or(
                (0..parts)
                    .map(|_| {
                        let aim = aim.elsewhere(rng);
                        Self::random(rng, aim, depth - 1)
                    })
                    .collect(),
            ),
            _ => {
                let truth = *pick(rng, &["TRUE", "NOT TRUE", "FALSE", "NOT FALSE", "NULL", "NOT NULL"]);
                let aim = if matches!(truth, "TRUE" | "NOT FALSE" | "NOT NULL") { aim } else { aim.nowhere() };
                Self::Is(Box::new(Self::random(rng, aim, depth - 1)), truth)
            }
        }
    }

    /// Predicates that are a little smaller.
    pub fn smaller(&self) -> Vec<Self> {
        let with = |inner: &Self, make: &dyn Fn(Box<Self>) -> Self| {
            let mut found = vec![inner.clone()];
            found.extend(inner.smaller().into_iter().map(|part| make(Box::new(part))));
            found
        };
        match self {
            Self::Leaf(_) => Vec::new(),
            Self::Not(inner) => with(inner, &Self::Not),
            Self::Is(inner, truth) => with(inner, &|part| Self::Is(part, truth)),
            Self::And(parts) => smaller_parts(parts, &Self::And),
            Self::Or(parts) => smaller_parts(parts, &Self::Or),
        }
    }
}

fn smaller_parts(parts: &[Tree], make: &dyn Fn(Vec<Tree>) -> Tree) -> Vec<Tree> {
    let mut found = parts.to_vec();
    for at in 0..parts.len() {
        if parts.len() > 2 {
            let mut fewer = parts.to_vec();
            fewer.remove(at);
            found.push(make(fewer));
        }
        for part in parts[at].smaller() {
            let mut replaced = parts.to_vec();
            replaced[at] = part;
            found.push(make(replaced));
        }
    }
    found
}

/// A condition that aims at no row.
pub fn wild_leaf(rng: &mut StdRng, columns: &[Column]) -> String {
    let column = pick(rng, columns);
    let name = &column.name;
    let negated = *pick(rng, &["", "", "NOT "]);
    match rng.random_range(0..20) {
        0..=6 => {
            let operator = *pick(rng, &["=", "=", "=", "<>", "<", "<=", ">", ">="]);
            format!("{name} {operator} {}", column.literal(rng))
        }
        7..=8 => format!("{name} {negated}BETWEEN {} AND {}", column.literal(rng), column.literal(rng)),
        9..=11 => {
            let mut list: Vec<String> = (0..rng.random_range(1..7)).map(|_| column.literal(rng)).collect();
            if rng.random_bool(0.15) {
                list.push("NULL".into());
            }
            format!("{name} {negated}IN ({})", list.join(", "))
        }
        12 => format!("{name} IS {negated}NULL"),
        13 => format!("{name} {} NULL", pick(rng, &["=", "<>", "<"])),
        14 => format!("{name} IS {negated}DISTINCT FROM {}", column.literal(rng)),
        15 => format!("{} {} {name}", column.literal(rng), pick(rng, &["=", "<", ">="])),
        16 => format!("id {} {}", pick(rng, &["<", ">=", "="]), rng.random_range(0..1_500)),
        17 => (*pick(rng, &["true", "false", "NULL IS NULL", "id % 3 = 1"])).to_owned(),
        18 => format!("coalesce({name} = {}, false)", column.literal(rng)),
        _ => special_leaf(rng, column, negated, columns),
    }
}

/// A leaf that only some types have.
fn special_leaf(rng: &mut StdRng, column: &Column, negated: &str, columns: &[Column]) -> String {
    let name = &column.name;
    if column.is_text() {
        return match rng.random_range(0..3) {
            0 => format!("length({name}) > {}", rng.random_range(0..4)),
            1 => format!("{name} {negated}LIKE '%b%'"),
            _ => format!("{name} {negated}LIKE '{}%'", pick(rng, &["", "a", "ab", "é", "日", "a\\%", "_a"])),
        };
    }
    if matches!(column.data_type, arrow::datatypes::DataType::Boolean) {
        return format!("{negated}{name}");
    }
    let like = columns.iter().find(|other| other.name != *name && other.data_type == column.data_type);
    like.map_or_else(|| format!("{name} IS NOT NULL"), |other| format!("{name} <= {}", other.name))
}

/// DataFusion 55 orders -0.0 before 0.0 in a top-k, but the filter that the top-k sends to its scan takes them as equal: which
/// of them it keeps depends on which batch comes first. Adding 0.0 leaves one zero.
fn sort_key(column: &str, data_type: &arrow::datatypes::DataType) -> String {
    if data_type.is_floating() { format!("{column} + 0.0") } else { column.to_owned() }
}

/// What is asked about the rows of a predicate.
#[derive(Clone, Debug)]
pub enum Shape {
    /// The ids.
    Ids,
    /// How many.
    Count,
    /// Whole rows.
    Rows,
    /// What is computed from columns of the table under another name.
    Computed(String),
    /// The first rows by a column (by `key`, which is the column or a function of it); `id` breaks ties.
    Top { column: String, key: String, descending: bool, limit: usize },
    /// Any rows, so many at most.
    Limit(usize),
    /// How many of each value.
    Groups(String),
    /// Other aggregates.
    Aggregates(Aggregate),
}

impl Shape {
    /// A random shape.
    pub fn random(rng: &mut StdRng, columns: &[Column]) -> Self {
        let limit = *pick(rng, &[0, 1, 1, 3, 3, 3, 10, 10, 100, 100, 1_000]);
        let Column { name: column, data_type, .. } = pick(rng, columns).clone();
        match rng.random_range(0..20) {
            0..=4 => Self::Ids,
            5 => Self::Computed(column),
            6..=9 => Self::Count,
            10..=12 => Self::Aggregates(Aggregate::random(rng, columns)),
            13 => Self::Rows,
            14..=16 => {
                Self::Top { key: sort_key(&column, &data_type), column, descending: rng.random_bool(0.5), limit }
            }
            17 => Self::Limit(limit),
            18 => Self::Groups(column),
            _ => Self::Aggregates(Aggregate::random(rng, columns)),
        }
    }

    /// The statement for a predicate.
    pub fn sql(&self, tree: &Tree) -> String {
        match self {
            Self::Ids => format!("SELECT id FROM t WHERE {tree}"),
            Self::Count => format!("SELECT count(*) FROM t WHERE {tree}"),
            Self::Computed(column) => format!("SELECT {column} AS value, id + 1, 'x' FROM t AS other WHERE {tree}"),
            Self::Rows => format!("SELECT * FROM t WHERE {tree}"),
            Self::Top { column, key, descending, limit } => {
                let order = if *descending { "DESC" } else { "ASC" };
                format!("SELECT id, {column} FROM t WHERE {tree} ORDER BY {key} {order} NULLS LAST, id LIMIT {limit}")
            }
            Self::Limit(limit) => format!("SELECT * FROM t WHERE {tree} LIMIT {limit}"),
            Self::Aggregates(aggregate) => aggregate.sql(tree),
            Self::Groups(column) => format!("SELECT {column}, count(*) FROM t WHERE {tree} GROUP BY {column}"),
        }
    }
}

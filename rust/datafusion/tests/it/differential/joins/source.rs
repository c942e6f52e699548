//! What random statements read: tables, queries of tables and common table expressions, joined.

use arrow::datatypes::DataType;
use rand::Rng;
use rand::rngs::StdRng;

use super::super::aim::Aim;
use super::super::column::{Column, Home, pick};
use super::super::query::Tree;
use super::super::table::RandomTable;

/// Columns of few values give joins of too many rows without a second key.
const MANY_VALUES: usize = 12;

/// A table that statements are about.
pub struct NamedTable {
    pub name: &'static str,
    pub table: RandomTable,
}

/// All of them.
pub type Tables = [NamedTable];

/// One side of a join.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// What the table is called.
    pub name: &'static str,
    pub alias: &'static str,
    pub table: &'a RandomTable,
}

impl<'a> Member<'a> {
    /// A random table under an alias.
    pub fn random(rng: &mut StdRng, tables: &'a Tables, alias: &'static str) -> Self {
        let NamedTable { name, table } = pick(rng, tables);
        Self { name, alias, table }
    }

    pub fn id(&self) -> String {
        format!("{}.id", self.alias)
    }

    /// A column under the alias.
    pub fn of(&self, column: &Column) -> String {
        qualified(&column.name, self.alias)
    }

    /// A random column.
    pub fn column(&self, rng: &mut StdRng) -> &'a Column {
        pick(rng, &self.table.columns)
    }

    /// A random column of values that are one however they are computed: the zeros of floats are two.
    pub fn exact(&self, rng: &mut StdRng) -> Option<&'a Column> {
        let exact: Vec<&Column> = self.table.columns.iter().filter(|column| !column.data_type.is_floating()).collect();
        (!exact.is_empty()).then(|| *pick(rng, &exact))
    }

    /// A condition on its rows alone.
    pub fn condition(&self, rng: &mut StdRng, depth: u32) -> String {
        // What follows `IS DISTINCT FROM` goes on as far as it can.
        format!("({})", qualified(&tree(rng, self.table, depth), self.alias))
    }
}

/// A condition on a table's rows, without an alias.
pub fn tree(rng: &mut StdRng, table: &RandomTable, depth: u32) -> String {
    let aim = Aim::random(rng, table);
    Tree::random(rng, aim, depth).to_string()
}

/// A pair of columns of one type, if two tables have one.
pub fn alike<'a>(rng: &mut StdRng, one: &Member<'a>, other: &Member<'a>) -> Option<(&'a Column, &'a Column)> {
    let fits = |a: &Column, b: &Column| a.data_type == b.data_type && !a.data_type.is_floating();
    let pairs: Vec<(&Column, &Column)> = one
        .table
        .columns
        .iter()
        .flat_map(|a| other.table.columns.iter().filter(|b| fits(a, b)).map(move |b| (a, b)))
        .collect();
    (!pairs.is_empty()).then(|| *pick(rng, &pairs))
}

/// The same text with an alias before the names of columns.
pub fn qualified(text: &str, alias: &str) -> String {
    let mut sql = String::with_capacity(text.len() + 16);
    let (mut word, mut quoted) = (String::new(), false);
    for letter in text.chars().chain(['\n']) {
        if !quoted && (letter.is_ascii_alphanumeric() || letter == '_' || letter == '.') {
            word.push(letter);
            continue;
        }
        if is_column(&word) {
            sql.push_str(alias);
            sql.push('.');
        }
        sql.push_str(&word);
        word.clear();
        quoted ^= letter == '\'';
        sql.push(letter);
    }
    sql.pop();
    sql
}

fn is_column(word: &str) -> bool {
    let is_numbered = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    word == "id" || word == super::super::column::STRUCT || word.strip_prefix('c').is_some_and(is_numbered)
}

/// A `FROM` clause and what can be said of it.
pub struct Source<'a> {
    /// Common table expressions that it needs.
    pub with: Vec<String>,
    pub sql: String,
    /// Those whose columns can be named.
    pub members: Vec<Member<'a>>,
}

const ALIASES: [&str; 3] = ["a", "b", "c"];

impl<'a> Source<'a> {
    /// One table, or two or three that are joined.
    pub fn random(rng: &mut StdRng, tables: &'a Tables) -> Self {
        let count = *pick(rng, &[1, 2, 2, 2, 2, 2, 3, 3]);
        let mut with = Vec::new();
        let Side { member, mut sql } = side(rng, tables, ALIASES[0], &mut with);
        let mut members = vec![member];
        for alias in &ALIASES[1..count] {
            let kind = *pick(rng, &KINDS);
            if kind == "CROSS JOIN" {
                let right = Member::random(rng, tables, alias);
                sql = format!("{sql} CROSS JOIN (SELECT * FROM {} ORDER BY id LIMIT 3) AS {alias}", right.name);
                members.push(right);
                continue;
            }
            let Side { member: right, sql: joined } = side(rng, tables, alias, &mut with);
            let left = *pick(rng, &members);
            let on = clause(rng, &left, &right, members.len() == 1);
            sql = format!("{sql} {kind} {joined}{on}");
            match kind {
                "LEFT SEMI JOIN" | "LEFT ANTI JOIN" => {}
                "RIGHT SEMI JOIN" | "RIGHT ANTI JOIN" => members = vec![right],
                _ => members.push(right),
            }
        }
        Self { with, sql, members }
    }

    /// What tells its rows apart.
    pub fn ids(&self) -> Vec<String> {
        self.members.iter().map(Member::id).collect()
    }

    pub fn member(&self, rng: &mut StdRng) -> Member<'a> {
        *pick(rng, &self.members)
    }

    /// Something of a member to order by. Of a column that one value was chosen of below an outer join DataFusion 55 takes no notice, though
    /// it is NULL in some rows (`docs/limits.md`).
    pub fn order(&self, rng: &mut StdRng) -> String {
        let member = self.member(rng);
        let is_outer = ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"].iter().any(|kind| self.sql.contains(kind));
        member.exact(rng).filter(|_| !is_outer).map_or_else(|| member.id(), |column| member.of(column))
    }
}

const KINDS: [&str; 14] = [
    "JOIN",
    "JOIN",
    "JOIN",
    "LEFT JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "RIGHT SEMI JOIN",
    "LEFT ANTI JOIN",
    "RIGHT ANTI JOIN",
    "CROSS JOIN",
];

/// A side of a join.
struct Side<'a> {
    member: Member<'a>,
    /// As it stands in `FROM`.
    sql: String,
}

/// A table, or a query of one: their columns are the table's.
fn side<'a>(rng: &mut StdRng, tables: &'a Tables, alias: &'static str, with: &mut Vec<String>) -> Side<'a> {
    let member = Member::random(rng, tables, alias);
    let Member { name, table, .. } = member;
    let kind = rng.random_range(0..20);
    let depth = rng.random_range(0..2);
    let query = match (kind, member.exact(rng)) {
        (0..=11, _) => return Side { member, sql: format!("{name} AS {alias}") },
        (12, Some(column)) => {
            let of = &column.name;
            format!("SELECT DISTINCT ON ({of}) * FROM {name} WHERE {} ORDER BY {of}, id", tree(rng, table, depth))
        }
        (13, Some(column)) => {
            let (direction, limit, offset) = (direction(rng), rng.random_range(1..60), rng.random_range(0..5));
            format!("SELECT * FROM {name} ORDER BY {} {direction}, id LIMIT {limit} OFFSET {offset}", column.name)
        }
        (14, Some(column)) => {
            let of = &column.name;
            format!(
                "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {of} ORDER BY id) AS place FROM {name}) WHERE place <= 3"
            )
        }
        (15..=17, _) => {
            let query = format!("SELECT * FROM {name} WHERE {}", tree(rng, table, depth));
            let expression = format!("w{alias}");
            with.push(format!("{expression} AS ({query})"));
            return Side { member, sql: format!("{expression} AS {alias}") };
        }
        _ => format!("SELECT * FROM {name} WHERE {}", tree(rng, table, depth)),
    };
    Side { member, sql: format!("({query}) AS {alias}") }
}

/// An order, with the place of NULL.
pub fn direction(rng: &mut StdRng) -> &'static str {
    pick::<&str>(rng, &["ASC NULLS LAST", "ASC NULLS FIRST", "DESC NULLS LAST", "DESC NULLS FIRST"])
}

/// `ON …` or `USING …`.
fn clause(rng: &mut StdRng, left: &Member<'_>, right: &Member<'_>, is_first: bool) -> String {
    if is_first && rng.random_bool(0.15) {
        return " USING (id)".to_owned();
    }
    let mut on = vec![key(rng, left, right)];
    if rng.random_bool(0.35) {
        on.push(extra(rng, left, right));
    }
    if rng.random_bool(0.1) {
        on.push(extra(rng, left, right));
    }
    format!(" ON {}", on.join(" AND "))
}

/// An equation that keeps joins small.
pub fn key(rng: &mut StdRng, left: &Member<'_>, right: &Member<'_>) -> String {
    let (own, other) = (left.id(), right.id());
    let residues = format!("{own} % 37 = {other} % 37");
    match (rng.random_range(0..10), alike(rng, left, right)) {
        (0..=3, Some((a, b))) => {
            let equation = format!("{} = {}", left.of(a), right.of(b));
            let is_selective = a.used().min(b.used()) >= MANY_VALUES && rng.random_bool(0.5);
            if is_selective { equation } else { format!("{equation} AND {residues}") }
        }
        (0..=6, _) => format!("{own} = {other}"),
        (7, _) => format!("{own} = {other} + {}", rng.random_range(-3..40)),
        (8, _) => format!("({own} IS NOT DISTINCT FROM {other})"),
        _ => residues,
    }
}

/// What an `ON` clause says beside its keys.
fn extra(rng: &mut StdRng, left: &Member<'_>, right: &Member<'_>) -> String {
    match (rng.random_range(0..6), alike(rng, left, right)) {
        (0, Some((a, b))) => format!("{} {} {}", left.of(a), pick(rng, &["<=", "<>", ">", "="]), right.of(b)),
        (1, _) => format!("{} {} {}", left.id(), pick(rng, &["<", ">=", "<>"]), right.id()),
        (2 | 3, _) => left.condition(rng, 0),
        _ => right.condition(rng, 1),
    }
}

/// Whether a column may be listed, ordered by and grouped by.
pub fn is_plain(column: &Column) -> bool {
    column.home != Home::List && !matches!(column.data_type, DataType::Float32 | DataType::Float64)
}

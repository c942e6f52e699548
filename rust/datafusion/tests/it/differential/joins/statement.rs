//! Random statements over several tables, kept in parts so that a difference can be cut down.

use rand::Rng;
use rand::rngs::StdRng;

use super::super::column::{Column, pick};
use super::condition::{self, Condition};
use super::source::{Member, Source, Tables, direction, is_plain};

/// A statement.
#[derive(Clone)]
pub struct Statement {
    with: Vec<String>,
    queries: Vec<Query>,
    /// What stands between the queries.
    set: &'static str,
    order: String,
    limit: String,
    /// Whether a row can make it an error.
    pub may_raise: bool,
}

#[derive(Clone)]
struct Query {
    select: &'static str,
    items: Vec<String>,
    from: String,
    conditions: Vec<String>,
    group: String,
    having: String,
}

impl Query {
    fn sql(&self) -> String {
        let conditions = if self.conditions.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", self.conditions.join(" AND "))
        };
        let Self { select, items, from, group, having, .. } = self;
        format!("{select} {} FROM {from}{conditions}{group}{having}", items.join(", "))
    }
}

impl Statement {
    /// A random statement over some tables.
    pub fn random(rng: &mut StdRng, tables: &Tables) -> Self {
        let source = Source::random(rng, tables);
        let conditions = condition::random(rng, tables, &source);
        let may_raise = conditions.iter().any(|condition| condition.may_raise);
        let conditions = conditions.into_iter().map(|Condition { sql, .. }| sql).collect();
        let query = Query {
            select: "SELECT",
            items: Vec::new(),
            from: source.sql.clone(),
            conditions,
            group: String::new(),
            having: String::new(),
        };
        let statement = Self {
            with: source.with.clone(),
            queries: vec![query],
            set: "",
            order: String::new(),
            limit: String::new(),
            may_raise,
        };
        match rng.random_range(0..20) {
            0..=6 => statement.rows(rng, tables, &source),
            7..=11 => statement.groups(rng, &source),
            12..=14 => statement.windows(rng, &source),
            15 => statement.distinct(rng, &source),
            16 => statement.distinct_on(rng, &source),
            // The engine has no plan for one in the other, if their column is never NULL (`docs/limits.md`).
            _ if source.sql.contains("DISTINCT ON") => statement.rows(rng, tables, &source),
            _ => statement.set(rng, tables, &source),
        }
    }

    /// The statement as SQL.
    pub fn sql(&self) -> String {
        let with = if self.with.is_empty() { String::new() } else { format!("WITH {} ", self.with.join(", ")) };
        let queries: Vec<String> = self.queries.iter().map(Query::sql).collect();
        format!("{with}{}{}{}", queries.join(&format!(" {} ", self.set)), self.order, self.limit)
    }

    /// Whether the order of its rows is part of its answer.
    pub fn is_ordered(&self) -> bool {
        !self.order.is_empty()
    }

    /// Statements that are a little smaller.
    pub fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for (at, query) in self.queries.iter().enumerate() {
            let mut add = |change: &dyn Fn(&mut Query)| {
                let mut smaller = self.clone();
                change(&mut smaller.queries[at]);
                found.push(smaller);
            };
            for condition in 0..query.conditions.len() {
                add(&|query| drop(query.conditions.remove(condition)));
            }
            if !query.having.is_empty() {
                add(&|query| query.having.clear());
            }
            if self.queries.len() == 1 && self.order.is_empty() && query.items.len() > 1 {
                for item in 0..query.items.len() {
                    add(&|query| drop(query.items.remove(item)));
                }
            }
        }
        if !self.limit.is_empty() {
            found.push(Self { limit: String::new(), ..self.clone() });
        }
        if self.queries.len() > 1 {
            for query in &self.queries {
                found.push(Self { queries: vec![query.clone()], ..self.clone() });
            }
        }
        found
    }

    fn query(&mut self) -> &mut Query {
        &mut self.queries[0]
    }

    /// Mostly rows in the order of a column; the ids tell all of them apart.
    fn ordered(mut self, rng: &mut StdRng, source: &Source<'_>) -> Self {
        let mut keys = Vec::new();
        for _ in 0..rng.random_range(0..3) {
            keys.push(format!("{} {}", source.order(rng), direction(rng)));
        }
        keys.extend(source.ids().into_iter().map(|id| format!("{id} {}", direction(rng))));
        self.order = format!(" ORDER BY {}", keys.join(", "));
        self.limit = limit(rng);
        self
    }

    fn rows(mut self, rng: &mut StdRng, tables: &Tables, source: &Source<'_>) -> Self {
        let mut items = source.ids();
        for _ in 0..rng.random_range(0..3) {
            let member = source.member(rng);
            items.push(member.of(member.column(rng)));
        }
        if rng.random_bool(0.1) {
            let inner = Member::random(rng, tables, "s");
            let outer = source.member(rng);
            let function = pick(rng, &["min(s.id)", "max(s.id)", "count(*)"]);
            let condition = inner.condition(rng, 0);
            let equation = condition::equation(rng, &inner, &outer);
            let name = inner.name;
            items.push(format!("(SELECT {function} FROM {name} AS s WHERE {equation} AND {condition}) AS found"));
        }
        self.query().items = unique(items);
        if rng.random_bool(0.5) { self.ordered(rng, source) } else { self }
    }

    fn groups(mut self, rng: &mut StdRng, source: &Source<'_>) -> Self {
        let mut by = Vec::new();
        for _ in 0..*pick(rng, &[0, 1, 1, 2, 2, 3]) {
            let member = source.member(rng);
            by.push(match member.exact(rng) {
                Some(column) if rng.random_bool(0.8) => member.of(column),
                _ => format!("{} % 5", member.id()),
            });
        }
        let by = unique(by);
        let mut items = by.clone();
        for _ in 0..rng.random_range(0..3) {
            let member = source.member(rng);
            items.push(function(rng, &member));
        }
        let listed = by.join(", ");
        let query = self.query();
        query.group = match (by.len(), rng.random_range(0..6)) {
            (0, _) => String::new(),
            (_, 0) => format!(" GROUP BY ROLLUP ({listed})"),
            (_, 1) => format!(" GROUP BY CUBE ({listed})"),
            (2.., 2) => format!(" GROUP BY GROUPING SETS (({listed}), ({}), ())", by[0]),
            _ => format!(" GROUP BY {listed}"),
        };
        if query.group.contains('(') && !query.group.contains("id % 5") && rng.random_bool(0.5) {
            items.push(format!("grouping({})", by[0]));
        }
        items.push("count(*)".to_owned());
        query.items = unique(items);
        if rng.random_bool(0.2) {
            query.having = format!(" HAVING count(*) > {}", rng.random_range(0..6));
        }
        self
    }

    fn windows(mut self, rng: &mut StdRng, source: &Source<'_>) -> Self {
        let mut items = source.ids();
        let total = source.ids().join(", ");
        for _ in 0..rng.random_range(1..3) {
            let other = source.member(rng);
            let partition = match source.order(rng) {
                by if rng.random_bool(0.7) => format!("PARTITION BY {by} "),
                _ => String::new(),
            };
            let listed = source.order(rng);
            items.push(match rng.random_range(0..7) {
                0 => format!("row_number() OVER ({partition}ORDER BY {total})"),
                1 => format!("rank() OVER ({partition}ORDER BY {listed} NULLS FIRST)"),
                2 => format!("lag({listed}) OVER ({partition}ORDER BY {total})"),
                3 => format!(
                    "sum({}) OVER ({partition}ORDER BY {total} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
                    other.id()
                ),
                4 => format!("count({listed}) OVER ({partition})"),
                5 => format!("first_value({listed}) OVER ({partition}ORDER BY {total})"),
                _ => format!("max({}) OVER ({partition})", other.id()),
            });
        }
        self.query().items = unique(items);
        if rng.random_bool(0.4) { self.ordered(rng, source) } else { self }
    }

    fn distinct(mut self, rng: &mut StdRng, source: &Source<'_>) -> Self {
        let mut items = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            items.push(source.order(rng));
        }
        let query = self.query();
        query.select = "SELECT DISTINCT";
        query.items = unique(items);
        if rng.random_bool(0.4) {
            let keys: Vec<String> = query.items.iter().map(|item| format!("{item} {}", direction(rng))).collect();
            self.order = format!(" ORDER BY {}", keys.join(", "));
            self.limit = limit(rng);
        }
        self
    }

    fn distinct_on(mut self, rng: &mut StdRng, source: &Source<'_>) -> Self {
        let by = source.order(rng);
        let ids = source.ids();
        self.query().items = vec![format!("ON ({by}) {}", ids.join(", "))];
        self.query().select = "SELECT DISTINCT";
        // The engine panics where a key stands twice.
        let keys = [&by].into_iter().chain(ids.iter().filter(|id| **id != by));
        let keys: Vec<String> = keys.map(|key| format!("{key} {}", direction(rng))).collect();
        self.order = format!(" ORDER BY {}", keys.join(", "));
        self
    }

    fn set(mut self, rng: &mut StdRng, tables: &Tables, source: &Source<'_>) -> Self {
        let one = source.member(rng);
        let other = Member::random(rng, tables, "d");
        let pairs: Vec<(&Column, &Column)> = one
            .table
            .columns
            .iter()
            .flat_map(|a| other.table.columns.iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.data_type == b.data_type && is_plain(a))
            .collect();
        let (mut left, mut right) = (vec![format!("{} AS v0", one.id())], vec![format!("{} AS v0", other.id())]);
        if !pairs.is_empty() && rng.random_bool(0.7) {
            let (a, b) = pick(rng, &pairs);
            left.push(format!("{} AS v1", one.of(a)));
            right.push(format!("{} AS v1", other.of(b)));
        }
        let names = if left.len() > 1 { "v0, v1" } else { "v0" };
        let depth = rng.random_range(0..2);
        let second = Query {
            select: "SELECT",
            items: right,
            from: format!("{} AS d", other.name),
            conditions: vec![other.condition(rng, depth)],
            group: String::new(),
            having: String::new(),
        };
        self.query().items = left;
        self.queries.push(second);
        if rng.random_bool(0.3) {
            self.queries.swap(0, 1);
        }
        let sets = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"];
        self.set = *pick(rng, &sets);
        if rng.random_bool(0.4) {
            // Rows that are alike in all columns may change places.
            self.order = format!(" ORDER BY {names}");
            self.limit = limit(rng);
        }
        self
    }
}

fn limit(rng: &mut StdRng) -> String {
    let limit = *pick(rng, &[1, 2, 5, 5, 20, 100]);
    match rng.random_range(0..5) {
        0..=1 => String::new(),
        2 => format!(" LIMIT {limit} OFFSET {}", pick(rng, &[1, 3, 50])),
        _ => format!(" LIMIT {limit}"),
    }
}

/// Without what was there before.
fn unique(items: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Sums of floats depend on the order of rows, and extremes of groups forget what they know when they meet a NaN.
fn function(rng: &mut StdRng, member: &Member<'_>) -> String {
    let Some(column) = member.exact(rng) else { return format!("sum({})", member.id()) };
    let name = member.of(column);
    match rng.random_range(0..7) {
        0 => format!("count({name})"),
        1 => format!("count(DISTINCT {name})"),
        2 => format!("min({name})"),
        3 => format!("max({name})"),
        4 => format!("sum({})", member.id()),
        5 => format!("count({name}) FILTER (WHERE {})", member.condition(rng, 0)),
        _ => format!("min({})", member.id()),
    }
}

//! Queries as advice sees them: conditions with a column each, and the columns whose rows are read.

use lakemark_format::column;
use lakemark_index::bitmap::cost::{ColumnSample, QueryShape, WEIGHTS, WeightedShape};
use lakemark_index::{Leaf, Predicate, Test, Truth};

/// What a query reads and tests of one table, given by an engine.
#[derive(Clone, Debug, Default)]
pub struct QueryUse {
    /// Where the query is in the file of queries.
    pub line: usize,
    /// The query, in one line.
    pub text: String,
    /// Its conditions; all must be true.
    pub conditions: Vec<ConditionUse>,
    /// Columns whose values it needs.
    pub output: Vec<String>,
    /// Whether it only counts, groups or takes extremes, which indexes can answer.
    pub aggregated: bool,
    /// How much it counts.
    pub weight: f64,
}

impl QueryUse {
    /// Columns and fields that an index could answer something about.
    pub(super) fn indexed_columns(&self) -> Vec<String> {
        let conditions = self.conditions.iter().flat_map(|condition| &condition.columns);
        let leaves = self.conditions.iter().flat_map(|condition| condition.predicate.leaves());
        let tested = leaves.map(|leaf| &leaf.column);
        conditions.chain(tested).chain(self.output.iter().filter(|_| self.aggregated)).cloned().collect()
    }
}

/// A condition of a query.
#[derive(Clone, Debug)]
pub struct ConditionUse {
    /// The columns that are read to evaluate it.
    pub columns: Vec<String>,
    /// The condition as an index can answer it.
    pub predicate: Predicate,
    /// In place of a predicate: the column has one of the keys that a join's other side leaves.
    pub joined: Option<JoinedKeys>,
}

/// The keys of a join's other side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinedKeys {
    /// How many there are.
    pub keys: u64,
    /// Which part of all keys of the other side's table that is.
    pub share: f64,
}

/// A condition with its predicted part of the rows.
#[derive(Clone, Debug)]
pub(super) struct WeighedCondition {
    pub columns: Vec<String>,
    /// The part of the rows for which it is true.
    pub share: f64,
    /// The searches of the condition; none if no index can answer it.
    pub searches: Option<Vec<ColumnSearch>>,
}

/// A search of an index of a column.
#[derive(Clone, Debug)]
pub(super) struct ColumnSearch {
    pub column: String,
    pub shape: QueryShape,
}

/// A query with its conditions weighed.
pub(super) struct WeighedQuery {
    pub query: QueryUse,
    pub conditions: Vec<WeighedCondition>,
}

/// A part of the rows that is taken where nothing is known.
const UNKNOWN_SHARE: f64 = 1.0 / 3.0;

impl WeighedCondition {
    /// Weighs a condition by samples of its columns.
    pub(super) fn new<'a>(used: &ConditionUse, sample: &impl Fn(&str) -> Option<&'a ColumnSample>) -> Self {
        if let Some(joined) = &used.joined {
            return Self::joined(&used.columns, *joined, sample);
        }
        let mut searches = Some(Vec::new());
        let share = share_of(&used.predicate, sample, &mut searches);
        let searches = searches.filter(|searches| !searches.is_empty());
        Self { columns: used.columns.clone(), share: share.clamp(0.0, 1.0), searches }
    }

    /// A condition on the keys of a join, as if the rows had the keys of the other side evenly.
    fn joined<'a>(columns: &[String], joined: JoinedKeys, sample: &impl Fn(&str) -> Option<&'a ColumnSample>) -> Self {
        let known = columns.first().and_then(|column| Some((column, sample(column)?)));
        let share = known.map_or(1.0, |(_, sample)| sample.valued_share()) * joined.share;
        let shape = QueryShape::In(u32::try_from(joined.keys).unwrap_or(u32::MAX));
        let searches = known.map(|(column, _)| vec![ColumnSearch { column: column.clone(), shape }]);
        Self { columns: columns.to_vec(), share: share.clamp(0.0, 1.0), searches }
    }
}

fn share_of<'a>(
    predicate: &Predicate,
    sample: &impl Fn(&str) -> Option<&'a ColumnSample>,
    searches: &mut Option<Vec<ColumnSearch>>,
) -> f64 {
    match predicate {
        Predicate::Const(Truth::True) => 1.0,
        Predicate::Const(Truth::False | Truth::Null) => 0.0,
        Predicate::Unknown { .. } => {
            *searches = None;
            UNKNOWN_SHARE
        }
        Predicate::Leaf(leaf) => match sample(&leaf.column) {
            Some(sample) => {
                let LeafShare { share, shape } = leaf_share(leaf, sample);
                if let Some(searches) = searches {
                    searches.push(ColumnSearch { column: leaf.column.clone(), shape });
                }
                share
            }
            None => {
                *searches = None;
                UNKNOWN_SHARE
            }
        },
        Predicate::And(parts) => parts.iter().map(|part| share_of(part, sample, searches)).product(),
        Predicate::Or(parts) => 1.0 - parts.iter().map(|part| 1.0 - share_of(part, sample, searches)).product::<f64>(),
        Predicate::Not(inner) => 1.0 - share_of(inner, sample, searches),
    }
}

/// The part of the rows for which a leaf is true, and the shape of the search for them.
struct LeafShare {
    share: f64,
    shape: QueryShape,
}

fn leaf_share(leaf: &Leaf, sample: &ColumnSample) -> LeafShare {
    match &leaf.test {
        Test::IsNull => {
            LeafShare { share: 1.0 - sample.valued_share(), shape: QueryShape::Range { share: 0.0, one_sided: true } }
        }
        Test::Ranges(ranges) | Test::Elements(ranges) => {
            let share = sample.share(ranges);
            LeafShare { share, shape: QueryShape::of(ranges, share) }
        }
    }
}

/// The queries that stand for all where none are given: for every column each standard shape, once counting and once fetching rows.
pub(super) fn standard(column: &str, sample: &ColumnSample, all: &[String]) -> Vec<WeighedQuery> {
    let mut queries = Vec::new();
    // Engines read a struct as a whole.
    let read = column::names(column).next().unwrap_or(column);
    let shown = column::display(column);
    for WeightedShape { shape, weight } in WEIGHTS {
        let values = sample.values().max(1.0);
        let (text, share) = match shape {
            QueryShape::Value => (format!("{shown} = …"), sample.valued_share() / values),
            QueryShape::In(count) => {
                (format!("{shown} IN ({count})"), sample.valued_share() * (f64::from(count) / values).min(1.0))
            }
            QueryShape::Range { share, one_sided: true } => (format!("{shown} < …, {}%", share * 100.0), share),
            QueryShape::Range { share, one_sided: false } => (format!("{shown} BETWEEN, {}%", share * 100.0), share),
        };
        let columns = vec![read.to_owned()];
        for (verb, output) in [("count", Vec::new()), ("rows", all.to_vec())] {
            let query = QueryUse { text: format!("{verb} where {text}"), output, weight, ..QueryUse::default() };
            let searches = Some(vec![ColumnSearch { column: column.to_owned(), shape }]);
            let conditions = vec![WeighedCondition { columns: columns.clone(), share, searches }];
            queries.push(WeighedQuery { query, conditions });
        }
    }
    queries
}

//! Columns that lookups read beside their key: with an index that includes them no data is read.
//!
//! ```text
//! queries ─▶ lookups of few keys ─▶ the columns that each reads ─┬─ all together    ┐
//!                                                                └─ of one, or more ┴▶ measured on a sample ─▶ the set that saves most
//! ```

use std::collections::{BTreeMap, BTreeSet};

use lakemark_index::bitmap::cost::QueryShape;
use lakemark_index::{is_key_the_value, riding_type_of};

use super::queries::{QueryUse, WeighedCondition, WeighedQuery};
use super::sample::Sampler;
use crate::covering::MOST_COVERED_ROWS;
use crate::error::Result;
use crate::snapshot::Snapshot;

/// No more columns are proposed to ride along: whoever reads nearly all of a row is served by the data.
const MOST_COLUMNS: usize = 16;
/// So many sets of columns are measured for a key, beside all columns together.
const MOST_SETS: usize = 3;

/// Columns that ride along with the keys of an index.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RidingColumns {
    /// As the table shows them.
    pub columns: BTreeSet<String>,
    /// Bytes of a row that they take.
    pub row_bytes: f64,
}

impl RidingColumns {
    /// Bytes of the values of so many rows; none if a column is wanted that does not ride along.
    pub(super) fn bytes_of(&self, lookup: &Lookup<'_>) -> Option<f64> {
        let has = |column: &&String| self.columns.contains(*column);
        lookup.wanted.iter().all(has).then_some(lookup.rows * self.row_bytes)
    }
}

/// A query that looks a few keys of a column up.
pub(super) struct Lookup<'a> {
    /// The column of the keys.
    pub column: &'a String,
    /// All other columns that the query reads.
    pub wanted: BTreeSet<&'a String>,
    /// Rows that have one of the keys.
    pub rows: f64,
}

impl<'a> Lookup<'a> {
    /// The lookup that a query is by one of its conditions, if it is one. All conditions besides are tested on the values.
    pub(super) fn by(
        found: &'a WeighedCondition,
        query: &'a QueryUse,
        conditions: &'a [WeighedCondition],
        rows: f64,
    ) -> Option<Self> {
        let [search] = found.searches.as_deref()? else { return None };
        let rows = found.share * rows;
        let has_ends = !matches!(search.shape, QueryShape::Range { one_sided: true, .. });
        let read = query.output.iter().chain(conditions.iter().flat_map(|condition| &condition.columns));
        let wanted = read.filter(|column| **column != search.column).collect();
        (has_ends && rows <= MOST_COVERED_ROWS as f64).then_some(Self { column: &search.column, wanted, rows })
    }
}

/// Which columns could ride along with each of these keys, by what the queries read, and what they would take.
pub(super) async fn options(
    sampler: &Sampler<'_>,
    snapshot: &Snapshot,
    keys: &[&String],
    queries: &[WeighedQuery],
) -> Result<BTreeMap<String, Vec<RidingColumns>>> {
    let rows = sampler.rows() as f64;
    let mut options = BTreeMap::new();
    for &key in keys {
        let mut measured = Vec::new();
        for columns in sets_for(key, snapshot, queries, rows) {
            let stored: Vec<String> = columns.iter().map(|name| snapshot.physical_name(name).into_owned()).collect();
            let row_bytes = sampler.riding_row_bytes(&snapshot.physical_name(key), &stored).await?;
            measured.push(RidingColumns { columns, row_bytes });
        }
        if !measured.is_empty() {
            options.insert(key.clone(), measured);
        }
    }
    Ok(options)
}

/// The columns that all lookups of a key read, and those of the lookups that count most.
fn sets_for(key: &str, snapshot: &Snapshot, queries: &[WeighedQuery], rows: f64) -> Vec<BTreeSet<String>> {
    let mut weights: BTreeMap<BTreeSet<String>, f64> = BTreeMap::new();
    let key_type = snapshot.field(key).and_then(|field| riding_type_of(field.data_type()));
    // The key of a float does not give its value.
    if !key_type.is_some_and(|of| is_key_the_value(&of)) {
        return Vec::new();
    }
    for WeighedQuery { query, conditions } in queries {
        let lookups = conditions.iter().filter_map(|found| Lookup::by(found, query, conditions, rows));
        for Lookup { wanted, .. } in lookups.filter(|lookup| lookup.column == key) {
            let is_few = !wanted.is_empty() && wanted.len() <= MOST_COLUMNS;
            if is_few && wanted.iter().all(|name| snapshot.may_ride(name)) {
                *weights.entry(wanted.into_iter().cloned().collect()).or_default() += query.weight;
            }
        }
    }
    let all: BTreeSet<String> = weights.keys().flatten().cloned().collect();
    let mut each: Vec<(BTreeSet<String>, f64)> = weights.into_iter().collect();
    each.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let mut sets: Vec<BTreeSet<String>> = each.into_iter().map(|(columns, _)| columns).take(MOST_SETS).collect();
    if !all.is_empty() && all.len() <= MOST_COLUMNS && !sets.contains(&all) {
        sets.push(all);
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::super::queries::ColumnSearch;
    use super::*;

    fn condition(column: &str, shape: QueryShape, share: f64) -> WeighedCondition {
        let searches = Some(vec![ColumnSearch { column: column.to_owned(), shape }]);
        WeighedCondition { columns: vec![column.to_owned()], share, searches }
    }

    #[test]
    fn a_lookup_reads_its_output_and_whatever_it_tests() {
        let query = QueryUse { output: vec!["a".to_owned(), "key".to_owned()], ..QueryUse::default() };
        let key = condition("key", QueryShape::Value, 1e-6);
        let conditions = [key.clone(), condition("b", QueryShape::Range { share: 0.5, one_sided: true }, 0.5)];
        let lookup = Lookup::by(&conditions[0], &query, &conditions, 1e6).unwrap();
        assert_eq!((lookup.column.as_str(), lookup.rows), ("key", 1.0));
        assert_eq!(lookup.wanted.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let riding = |columns: &[&str]| RidingColumns {
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            row_bytes: 4.0,
        };
        assert_eq!(riding(&["a", "b", "c"]).bytes_of(&lookup), Some(4.0));
        assert_eq!(riding(&["a"]).bytes_of(&lookup), None);
        // A range without an end, and many rows, are no lookup.
        assert!(Lookup::by(&conditions[1], &query, &conditions, 1e6).is_none());
        let many = [condition("key", QueryShape::Range { share: 0.5, one_sided: false }, 0.5)];
        assert!(Lookup::by(&many[0], &query, &many, 1e6).is_none());
        assert!(Lookup::by(&many[0], &query, &many, 1e4).is_some());
    }
}

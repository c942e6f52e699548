//! Filters whose values are known when a query runs, probed in the index: what other operators learn, and what subqueries give.
//!
//! A hash join knows its build side before it asks for the first row of the other side. It knows the bounds of the keys, and the keys
//! themselves if they are few. When the first partition of a scan is polled for a row, the scan translates and probes the filters as they
//! are then. It cuts the planned rows down to those that may pass.
//!
//! Three things keep that right. The operators above go on applying their filters, so that any superset of the rows will do. What cannot be
//! translated is left out of an AND. Filters only get narrower, so that an old one gives a superset, too. And nothing waits for a filter to
//! be finished. A join whose other side is read ahead of time has no filter yet, and the scan then reads what was planned.

pub(crate) mod covering;
pub(crate) mod keyed_rows;
mod linked;
pub(crate) mod pruned_scan;
mod superset;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options, sort};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{self as physical, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use lakemark_format::column;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test, Truth, encode_literals};
use lakemark_table::{
    GroupCountRequest, GroupCounts, IndexedLinks, Probe, ProbeOptions, ProbeReport, ReadCost, SearchedColumn, Snapshot,
    TopKRequest,
};

use crate::error::to_engine;
use crate::exec::build_keys::{BuildKeys, KeySample, different, without_nulls};
use crate::expr::fields::type_of;
use crate::expr::translate::translate;

use covering::ScanColumns;
use pruned_scan::PrunedScan;
use superset::{lists_keys, superset};

/// If keys have this share of the values of a column, they leave out too few rows to be worth their search.
const NEARLY_ALL: f64 = 0.85;
/// Encoding and sorting so many keys takes longer than to estimate, by their number alone, what a search would save.
const MANY_KEYS: usize = 16_384;

/// Nanoseconds to read a row and to find that it has no match, measured with 100,000,000 rows.
const READ_ROW: f64 = 10.0;
/// Nanoseconds to search for a scattered key, measured with a packed tree of the keys of these rows.
const SEARCH_KEY: f64 = 10_000.0;

/// What a scan needs to probe the index while a query runs.
#[derive(Debug, Clone)]
pub(crate) struct DynamicProber {
    pub(crate) snapshot: Arc<Snapshot>,
    /// The table's columns as the scan gives them.
    pub(crate) schema: SchemaRef,
    /// What reading a row of the scan costs.
    pub(crate) reading: ReadCost,
    /// The condition that the scan probed already.
    pub(crate) predicate: Predicate,
    /// Whether answers may be taken from memory, and are kept there.
    pub(crate) selection_cache: bool,
    /// The indexes of links, once a join asks for them. They stay open from one round of a recursive query to the next.
    pub(crate) links: Arc<OnceLock<Option<IndexedLinks>>>,
}

/// What a scan requests from the index for the keys of a join.
enum KeyRequest {
    /// The rows that have one of the keys.
    Keys(Predicate),
    /// Nothing for the keys: they are not all there, the filter lists them, they leave nearly all rows, or no column has an index. What the
    /// filter says may be worth a probe. The same holds if `enough` joined rows are found by reading few.
    Filter { enough: Option<usize> },
}

/// One of the keys of a join's filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KeyOfFilter {
    /// The identity of the filter.
    filter: u64,
    /// The place of the key in it.
    place: usize,
}

/// The values of a key, by their number.
struct CountedKeys {
    key: KeyOfFilter,
    /// The column of the table.
    column: String,
    /// About how many are different.
    values: f64,
    /// Whether it takes longer to encode them than to judge them by their number.
    are_many: bool,
}

/// A column that has an index.
struct IndexedColumn<'a> {
    /// Its whole name.
    name: String,
    /// Its type in the table.
    data_type: &'a DataType,
}

impl DynamicProber {
    /// Probes with the filters as they are now, and with the keys of joins in place of the filters of these joins. None if the filters say
    /// nothing that an index knows. Index-only values may take so many bytes of memory.
    pub(crate) async fn prune(
        &self,
        filters: &[Arc<dyn PhysicalExpr>],
        keys: &HashMap<u64, Arc<BuildKeys>>,
        scan: &ScanColumns<'_>,
        most_bytes: u64,
    ) -> Result<Option<PrunedScan>> {
        let output = scan.table;
        let needless = self.needless(filters, keys, output).await?;
        let (mut keyed, mut known, mut enough) = (Vec::new(), Vec::new(), None);
        for filter in filters {
            let keys = filter.expression_id().and_then(|filter| keys.get(&filter));
            let request = match keys {
                Some(keys) => self.keyed(filter, keys, output, &needless).await?,
                None => KeyRequest::Filter { enough: None },
            };
            keys.iter().for_each(|keys| keys.remove_reader());
            match request {
                KeyRequest::Keys(predicate) => keyed.push(predicate),
                KeyRequest::Filter { enough: rows } => {
                    enough = enough.into_iter().chain(rows).min();
                    // Where reading finds the rows soon, bounds are not searched for: the reader itself goes by them.
                    if rows.is_none() || lists_keys(filter) {
                        known.extend(superset(filter, output));
                    }
                }
            }
        }
        let are_few = keyed.is_empty();
        keyed.push(translate(&known, &self.schema));
        let predicate = Predicate::And(keyed).simplify();
        if matches!(predicate, Predicate::Const(Truth::True)) || predicate.leaves().is_empty() {
            return Ok(None);
        }
        if let Some(pruned) = self.index_only_alone(&predicate, output, most_bytes).await? {
            return Ok(Some(pruned));
        }
        if enough.is_none()
            && let Some(pruned) = self.linked(&predicate, scan).await
        {
            return Ok(Some(pruned));
        }
        // No later query is likely to probe the same thousands of keys.
        let selection_cache = self.selection_cache && are_few;
        let reading = ReadCost { limit: enough.map(|rows| rows as f64), ..self.reading };
        let options = ProbeOptions { reading: Some(reading), selection_cache, ..ProbeOptions::default() };
        let probe = self.snapshot.probe(&predicate, &options).await.map_err(to_engine)?;
        let index_only = self.index_only_values(&predicate, &probe, output).await?;
        // Values with their numbers stand for the same rows.
        let given = if index_only.is_some() { None } else { self.covered(&predicate, &probe, scan).await };
        let pruned = PrunedScan::to(&self.snapshot, probe, index_only);
        Ok(match given {
            Some(given) => pruned.map(|pruned| pruned.with_given(given)),
            None => pruned,
        })
    }

    /// Whether a scan gives one column alone of all rows, so that its values may be index-only.
    fn is_index_only(&self, output: &Schema) -> bool {
        output.fields().len() == 1 && matches!(self.predicate, Predicate::Const(Truth::True))
    }

    /// The test of the only column that a scan gives, if its values may be index-only for the rows that have the keys of a join.
    fn index_only_test<'a>(&self, predicate: &'a Predicate, output: &Schema) -> Option<&'a Leaf> {
        let (Predicate::Leaf(leaf), [field]) = (predicate, output.fields().as_ref()) else { return None };
        (leaf.column == *field.name() && self.is_index_only(output)).then_some(leaf)
    }

    /// Index-only values of all rows, so that nothing is left to read; none where the index cannot give them.
    async fn index_only_alone(
        &self,
        predicate: &Predicate,
        output: &Schema,
        most_bytes: u64,
    ) -> Result<Option<PrunedScan>> {
        let Some(leaf) = self.index_only_test(predicate, output) else { return Ok(None) };
        let Some(nothing) = PrunedScan::to_nothing(&self.snapshot) else { return Ok(None) };
        let counts = self.snapshot.group_counts_alone(leaf, most_bytes).await.map_err(to_engine)?;
        Ok(counts.map(|GroupCounts { parts, index_reads, index_bytes_read, .. }| {
            let report = ProbeReport { index_reads, index_bytes_read, ..ProbeReport::default() };
            nothing.with_index_only(parts, report)
        }))
    }

    /// Index-only values of the rows that have the keys of a join, if a scan gives nothing but these keys. No data is read for these rows.
    async fn index_only_values(
        &self,
        predicate: &Predicate,
        probe: &Probe,
        output: &Schema,
    ) -> Result<Option<GroupCounts>> {
        let Some(leaf) = self.index_only_test(predicate, output) else { return Ok(None) };
        let columns = std::slice::from_ref(&leaf.column);
        let request =
            GroupCountRequest { columns, predicate, files: &probe.files, sum_column: None, only_few_values: false };
        self.snapshot.group_counts(&request).await.map(Some).map_err(to_engine)
    }

    /// What is left to read where only the first rows in some order are needed; none if the index cannot say.
    pub(crate) async fn first_rows(&self, request: &TopKRequest) -> Result<Option<PrunedScan>> {
        let options = ProbeOptions {
            reading: Some(self.reading),
            selection_cache: self.selection_cache,
            ..ProbeOptions::default()
        };
        let planned = self.snapshot.probe(&self.predicate, &options).await.map_err(to_engine)?;
        let cut = self.snapshot.top_k(&planned, request, &options).await.map_err(to_engine)?;
        Ok(cut.and_then(|cut| PrunedScan::to(&self.snapshot, cut, None)))
    }

    /// The keys that are so many that to sort and to search them would save nothing beside the keys of the other filters, by their number
    /// alone. Few keys are judged by the directories of segments when they are encoded.
    async fn needless(
        &self,
        filters: &[Arc<dyn PhysicalExpr>],
        keys: &HashMap<u64, Arc<BuildKeys>>,
        output: &Schema,
    ) -> Result<HashSet<KeyOfFilter>> {
        let of_filter = |filter: &Arc<dyn PhysicalExpr>| keys.get(&filter.expression_id()?);
        let are_many = |keys: &Arc<BuildKeys>| keys.rows().is_some_and(|rows| rows >= MANY_KEYS);
        // Index-only values are worth a search for any keys.
        if self.is_index_only(output) || !filters.iter().filter_map(of_filter).any(are_many) {
            return Ok(HashSet::new());
        }
        let mut known = Vec::new();
        for filter in filters {
            let (Some(filter_id), Some(keys)) = (filter.expression_id(), of_filter(filter)) else { continue };
            for (place, child) in filter.children().into_iter().enumerate() {
                let Some(IndexedColumn { name: column, .. }) = self.column(child, output) else { continue };
                let Some(KeySample { values, rows }) = keys.sample(place)? else { continue };
                let key = KeyOfFilter { filter: filter_id, place };
                known.push(CountedKeys { key, column, values: different(&values, rows)?, are_many: are_many(keys) });
            }
        }
        let columns = known.iter().map(|keys| SearchedColumn { column: &keys.column, values: keys.values });
        let columns: Vec<SearchedColumn<'_>> = columns.collect();
        // What is wrong with a segment the search will report.
        let Ok(worth) = self.snapshot.worth_searching(&columns, &self.reading).await else { return Ok(HashSet::new()) };
        let needless = known.into_iter().zip(worth).filter(|(keys, is_worth)| keys.are_many && !is_worth);
        Ok(needless.map(|(keys, _)| keys.key).collect())
    }

    /// The condition that the columns of a join's filter have one of the keys.
    async fn keyed(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        keys: &BuildKeys,
        output: &Schema,
        needless: &HashSet<KeyOfFilter>,
    ) -> Result<KeyRequest> {
        let enough = self.reads_little(filter, keys, output).await?;
        if enough.is_some() {
            return Ok(KeyRequest::Filter { enough });
        }
        let id = filter.expression_id().unwrap_or_default();
        let is_needless = |place: usize| needless.contains(&KeyOfFilter { filter: id, place });
        let columns: Vec<_> = filter.children().into_iter().map(|child| self.column(child, output)).collect();
        if columns.iter().enumerate().all(|(place, column)| column.is_none() || is_needless(place)) {
            return Ok(KeyRequest::Filter { enough });
        }
        let Some(all) = keys.all()? else { return Ok(KeyRequest::Filter { enough }) };
        let known = columns.into_iter().zip(&all).enumerate();
        let known = known.filter_map(|(place, (column, keys))| Some((place, column?, keys)));
        let (mut names, mut values, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (place, IndexedColumn { name, data_type }, keys) in known {
            if let Some(held) = held(keys, data_type)? {
                names.push(name);
                values.push(held);
                places.push(place);
            }
        }
        let values = without_nulls(values)?;
        if let Some(together) = self.snapshot.composite_lookup(&names, &values) {
            return Ok(KeyRequest::Keys(together));
        }
        let mut each = Vec::new();
        for ((name, held), place) in names.iter().zip(&values).zip(places) {
            // Index-only values are worth a search for any keys.
            if is_needless(place) || !self.is_index_only(output) && self.leave_too_much(name, keys, place).await? {
                continue;
            }
            let Some(points) = encode_literals(&sorted(held)?) else { continue };
            let text = format!("{} is one of {} keys", column::display(name), held.len());
            let test = Test::Ranges(KeyRanges::points(points));
            each.push(Predicate::Leaf(Leaf { column: name.clone(), test, text }));
        }
        Ok(if each.is_empty() { KeyRequest::Filter { enough } } else { KeyRequest::Keys(Predicate::And(each)) })
    }

    /// How many joined rows are enough, if these are found sooner by reading than by a search for all keys.
    async fn reads_little(
        &self,
        filter: &Arc<dyn PhysicalExpr>,
        keys: &BuildKeys,
        output: &Schema,
    ) -> Result<Option<usize>> {
        let (Some(enough), Some(rows)) = (keys.enough, self.snapshot.rows()) else { return Ok(None) };
        for (place, child) in filter.children().into_iter().enumerate() {
            let Some(column) = self.column(child, output) else { continue };
            let Some(sample) = keys.sample(place)? else { return Ok(None) };
            let Ok(Some(values)) = self.snapshot.distinct_values(&column.name).await else { continue };
            let share = (different(&sample.values, sample.rows)? / (values as f64).max(1.0)).min(1.0);
            let read = enough as f64 / share.max(f64::MIN_POSITIVE);
            if read < rows as f64 && read * READ_ROW < sample.rows as f64 * SEARCH_KEY {
                return Ok(Some(enough));
            }
        }
        Ok(None)
    }

    /// Whether the keys are nearly all values of a column.
    async fn leave_too_much(&self, column: &str, keys: &BuildKeys, place: usize) -> Result<bool> {
        let Ok(Some(values)) = self.snapshot.distinct_values(column).await else { return Ok(false) };
        let nearly_all = values as f64 * NEARLY_ALL;
        if keys.rows().is_none_or(|rows| (rows as f64) < nearly_all) {
            return Ok(false);
        }
        let Some(KeySample { values, rows }) = keys.sample(place)? else { return Ok(false) };
        Ok(different(&values, rows)? >= nearly_all)
    }

    /// Whether a column of a filter has an index.
    pub(crate) fn can_prune_by(&self, filter: &Arc<dyn PhysicalExpr>, output: &Schema) -> bool {
        filter.children().into_iter().any(|child| self.column(child, output).is_some())
    }

    /// The column of the table that an expression over the scan's columns has the values of.
    fn column<'a>(&'a self, expr: &Arc<dyn PhysicalExpr>, output: &Schema) -> Option<IndexedColumn<'a>> {
        let cast = expr.downcast_ref::<physical::CastExpr>();
        let column = cast.map_or(expr, physical::CastExpr::expr).downcast_ref::<physical::Column>()?;
        let name = output.fields().get(column.index()).filter(|field| self.snapshot.is_indexed(field.name()))?.name();
        let data_type = type_of(&self.schema, name)?;
        let is_whole = cast.is_none_or(|cast| are_alike(cast.cast_type(), data_type));
        (is_whole && !data_type.is_floating()).then(|| IndexedColumn { name: name.clone(), data_type })
    }
}

/// Sorts keys of a primitive type, far sooner than they would be sorted once encoded; encoding keeps their order.
fn sorted(keys: &ArrayRef) -> Result<ArrayRef> {
    Ok(if keys.data_type().is_primitive() { sort(keys, None)? } else { Arc::clone(keys) })
}

/// The keys as values of a column; none if they are of another kind. A key that the type of the column does not have is in no row.
fn held(keys: &ArrayRef, data_type: &DataType) -> Result<Option<ArrayRef>> {
    if keys.data_type() == data_type {
        return Ok(Some(Arc::clone(keys)));
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    Ok(if are_alike(keys.data_type(), data_type) { Some(cast_with_options(keys, data_type, &options)?) } else { None })
}

/// Whether a value of one type is equal to one of the other type if a cast makes them equal: both are integers, or both are texts.
fn are_alike(one: &DataType, other: &DataType) -> bool {
    one.is_integer() && other.is_integer() || one.is_string() && other.is_string()
}

/// Whether a filter says something when the query runs that it did not say when it was planned.
pub(crate) fn is_known_at_runtime(filter: &Arc<dyn PhysicalExpr>) -> bool {
    let is_late = |part: &Arc<dyn PhysicalExpr>| Ok(part.is::<ScalarSubqueryExpr>());
    filter.is::<DynamicFilterPhysicalExpr>() || filter.exists(is_late).unwrap_or(false)
}

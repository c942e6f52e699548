//! The rows of a scan that have one of some keys, which a join knows before it asks for rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use lakemark_format::column;
use lakemark_index::{KeyRanges, Leaf, Predicate, Test, Truth, encode_literals};
use lakemark_table::{IndexOnlyCost, ProbeOptions, ReadCost};

use super::covering::ScanColumns;
use super::pruned_scan::PrunedScan;
use super::{DynamicProber, IndexedColumn, MANY_KEYS, held, sorted};
use crate::error::to_engine;
use crate::exec::build_keys::without_nulls;

/// Of more rows than these an index is not expected to have the values.
const MOST_COVERED_ROWS: f64 = 8_192.0;
/// Nanoseconds to find a key with its values in a leaf, and to take the values of a row, about.
const COVERED_KEY: f64 = 2_000.0;
const COVERED_ROW: f64 = 200.0;

/// Values that are wanted of an expression over the output of a scan.
pub(crate) struct WantedKeys {
    pub(crate) expr: Arc<dyn PhysicalExpr>,
    /// A value for each row that asks. Other keys of the same rows have theirs at the same places.
    pub(crate) values: ArrayRef,
}

/// A scan cut down to the rows that have one of some keys.
pub(crate) struct KeyedRows {
    pub(crate) pruned: PrunedScan,
    /// How many different keys there are.
    pub(crate) keys: u64,
}

/// The condition that a row has one of some keys.
#[derive(Debug)]
struct KeyTest {
    predicate: Predicate,
    /// How many different keys there are.
    keys: usize,
}

impl DynamicProber {
    /// Whether an index may know the rows that have some value of an expression.
    pub(crate) fn has_index_on(&self, expr: &Arc<dyn PhysicalExpr>, output: &Schema) -> bool {
        self.column(expr, output).is_some()
    }

    /// The rows that have one of the keys. None if no index knows them, or if it takes longer to search for them than to read all rows.
    pub(crate) async fn keyed_rows(&self, wanted: &[WantedKeys], scan: &ScanColumns<'_>) -> Result<Option<KeyedRows>> {
        let Some(test) = self.key_test(wanted, scan.table)? else { return Ok(None) };
        if let Some(pruned) = self.linked(&test.predicate, scan).await {
            return Ok(Some(KeyedRows { pruned, keys: test.keys as u64 }));
        }
        let index_only = self.covering_cost(&test, scan).await;
        let reading = ReadCost { limit: None, index_only, ..self.reading };
        // Another query, or another round of this one, may ask for the same few keys.
        let selection_cache = self.selection_cache && test.keys <= MANY_KEYS;
        let options = ProbeOptions { reading: Some(reading), selection_cache, ..ProbeOptions::default() };
        let probe = self.snapshot.probe(&test.predicate, &options).await.map_err(to_engine)?;
        let given = self.covered(&test.predicate, &probe, scan).await;
        let Some(mut pruned) = PrunedScan::to(&self.snapshot, probe, None) else { return Ok(None) };
        if let Some(given) = given {
            pruned = pruned.with_given(given);
        }
        Ok(Some(KeyedRows { pruned, keys: test.keys as u64 }))
    }

    /// The condition on the columns that have indexes; none if there is no such column. NULL is no key, and neither is a value that the type
    /// of a column does not have.
    fn key_test(&self, wanted: &[WantedKeys], output: &Schema) -> Result<Option<KeyTest>> {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for WantedKeys { expr, values: wanted } in wanted {
            let Some(IndexedColumn { name, data_type }) = self.column(expr, output) else { continue };
            if let Some(held) = held(wanted, data_type)? {
                names.push(name);
                values.push(held);
            }
        }
        let values = without_nulls(values)?;
        let Some(rows) = values.first().map(|values| values.len()) else { return Ok(None) };
        if rows == 0 {
            return Ok(Some(KeyTest { predicate: Predicate::Const(Truth::False), keys: 0 }));
        }
        if let Some(together) = self.snapshot.composite_lookup(&names, &values) {
            return Ok(Some(KeyTest { predicate: together, keys: rows }));
        }
        let (mut each, mut keys) = (Vec::new(), 0);
        for (name, held) in names.into_iter().zip(&values) {
            let Some(mut points) = encode_literals(&sorted(held)?) else { continue };
            points.sort_unstable();
            points.dedup();
            keys = keys.max(points.len());
            let text = format!("{} is one of {} keys", column::display(&name), points.len());
            each.push(Predicate::Leaf(Leaf { column: name, test: Test::Ranges(KeyRanges::points(points)), text }));
        }
        Ok(match each.len() {
            0 => None,
            _ => Some(KeyTest { predicate: Predicate::And(each).simplify(), keys }),
        })
    }

    /// What it costs if an index gives the values of all columns with the rows; none if it does not, or if they are many.
    async fn covering_cost(&self, test: &KeyTest, scan: &ScanColumns<'_>) -> Option<IndexOnlyCost> {
        let Predicate::Leaf(leaf) = &test.predicate else { return None };
        let columns: Vec<String> = scan.wanted()?.iter().map(|field| field.name().clone()).collect();
        if !self.snapshot.is_covered(&test.predicate, &columns) {
            return None;
        }
        let rows = self.snapshot.rows()? as f64;
        let values = self.snapshot.distinct_values(&leaf.column).await.ok()?? as f64;
        let keys = test.keys as f64;
        let found = keys * rows / values.max(1.0);
        let nanoseconds = keys * COVERED_KEY + found * COVERED_ROW;
        (found <= MOST_COVERED_ROWS).then(|| IndexOnlyCost { nanoseconds, ..IndexOnlyCost::default() })
    }
}

//! Rows that an index gives with their values while a query runs: those of few keys, if the index includes the columns.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use lakemark_index::{Predicate, RowSet};
use lakemark_table::{CoverRequest, CoveredValues, FileProbe, Probe, RowsOfFile};

use super::DynamicProber;
use crate::exec::covered_rows::{CoveredRows, ScanFilter};

/// What a scan gives of a table.
#[derive(Clone, Copy)]
pub(crate) struct ScanColumns<'a> {
    /// Its columns, as the table calls them.
    pub(crate) table: &'a SchemaRef,
    /// The same, as the scan calls them.
    pub(crate) output: &'a SchemaRef,
    /// What its rows have to pass; none if no index may give rows, as that cannot be tested, or as an index gave some when it was planned.
    pub(crate) filter: Option<&'a ScanFilter>,
    /// Rows of a batch.
    pub(crate) batch_rows: usize,
}

impl ScanColumns<'_> {
    /// The columns that an index must have: those of the output, and behind them the others that the filter looks at. None if no index may
    /// give rows.
    pub(super) fn wanted(&self) -> Option<Vec<FieldRef>> {
        let wanted = self.filter?.beside(self.table)?;
        (!self.table.fields().is_empty()).then_some(wanted)
    }
}

/// Rows that an index gave.
pub(super) struct GivenRows {
    pub(super) rows: CoveredRows,
    /// Which rows of which files are not to be read: these, and others that do not pass the filter.
    pub(super) files: HashMap<usize, RowSet>,
    pub(super) index_reads: u64,
    pub(super) index_bytes_read: u64,
}

impl DynamicProber {
    /// The rows that a probe selected, if an index has their values. Rows that do not pass the scan's filter are left out of them. Those to be
    /// rechecked need no other test: whoever has the filter that came while the query runs tests all rows.
    pub(super) async fn covered(
        &self,
        predicate: &Predicate,
        probe: &Probe,
        scan: &ScanColumns<'_>,
    ) -> Option<GivenRows> {
        let wanted = scan.wanted()?;
        let columns = wanted.iter().map(|field| field.name().clone()).collect();
        let selected: Vec<SelectedRows<'_>> = probe.files.listed().filter_map(SelectedRows::of).collect();
        let rows = selected.iter().map(|of_file| RowsOfFile { file: of_file.file, rows: &of_file.rows }).collect();
        let request = CoverRequest { predicate, columns, rows };
        let found = self.snapshot.covered_rows(&request).await?;
        // Whatever cannot be given is read, and the reader says what is wrong with it.
        given(found, wanted, scan).ok()
    }
}

/// Rows of a file that may pass.
struct SelectedRows<'a> {
    /// The place of the file.
    file: usize,
    rows: Cow<'a, RowSet>,
}

impl<'a> SelectedRows<'a> {
    /// None if nothing is known of the file, or if no row may pass.
    fn of((file, found): (usize, &'a FileProbe)) -> Option<Self> {
        let FileProbe::Known { exact, recheck, .. } = found else { return None };
        let rows = if recheck.is_empty() { Cow::Borrowed(exact) } else { Cow::Owned(exact.or(recheck)) };
        (!rows.is_empty()).then_some(Self { file, rows })
    }
}

/// The rows of these values that pass the filter of the scan, as it gives them.
pub(super) fn given(found: CoveredValues, wanted: Vec<FieldRef>, scan: &ScanColumns<'_>) -> Result<GivenRows> {
    let CoveredValues { columns, mut files, rows, index_reads, index_bytes_read, .. } = found;
    let columns = columns.iter().zip(&wanted).map(|(values, field)| cast(values, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let mut batch = RecordBatch::try_new(Arc::new(Schema::new(wanted)), columns)?;
    let passing = scan.filter.map(|filter| filter.passing(&batch)).transpose()?.flatten();
    if let Some(passing) = passing {
        batch = filter_record_batch(&batch, &passing)?;
        let of_passing = files.into_iter().zip(&passing).filter(|(_, passes)| *passes == Some(true));
        files = of_passing.map(|(file, _)| file).collect();
    }
    let own = batch.columns().iter().take(scan.output.fields().len()).cloned().collect();
    let batch = RecordBatch::try_new(Arc::clone(scan.output), own)?;
    let rows_of_files = rows.into_iter().map(|of_file| (of_file.file, of_file.rows)).collect();
    let rows = CoveredRows::try_new(batch, files.into(), scan.batch_rows)?;
    Ok(GivenRows { rows, files: rows_of_files, index_reads, index_bytes_read })
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, Int64Array};
    use arrow::datatypes::{DataType, Field};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::execution::TaskContext;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, col, lit};
    use datafusion::physical_plan::collect;
    use lakemark_table::CoveredFile;

    use super::*;

    fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
        let fields = fields.iter().map(|(name, of)| Field::new(*name, of.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// A table of `s`, `p` and `o`, of which `p` is 1.
    fn filter() -> ScanFilter {
        let schema = schema(&[("s", DataType::Int64), ("p", DataType::Int32), ("o", DataType::Int64)]);
        let p: Arc<dyn PhysicalExpr> = col("p", &schema).unwrap();
        ScanFilter { predicate: Some(Arc::new(BinaryExpr::new(p, Operator::Eq, lit(1i32)))), schema }
    }

    #[test]
    fn columns_of_the_filter_are_wanted_beside_those_of_the_output() {
        let (filter, output) = (filter(), schema(&[("o", DataType::Int64)]));
        let scan = ScanColumns { table: &output, output: &output, filter: Some(&filter), batch_rows: 10 };
        let names = |scan: &ScanColumns<'_>| -> Option<Vec<String>> {
            Some(scan.wanted()?.iter().map(|field| field.name().clone()).collect())
        };
        assert_eq!(names(&scan).unwrap(), ["o", "p"]);
        assert_eq!(names(&ScanColumns { filter: None, ..scan }), None);
        let nothing = schema(&[]);
        assert_eq!(names(&ScanColumns { table: &nothing, ..scan }), None);
        let absent = ScanFilter { predicate: Some(Arc::new(Column::new("q", 7))), ..filter.clone() };
        assert_eq!(names(&ScanColumns { filter: Some(&absent), ..scan }), None);
    }

    #[tokio::test]
    async fn rows_that_do_not_pass_are_neither_given_nor_read() {
        let (filter, output) = (filter(), schema(&[("o", DataType::Int64)]));
        let scan = ScanColumns { table: &output, output: &output, filter: Some(&filter), batch_rows: 10 };
        let o: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), Some(8), None, Some(9)]));
        let p: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(1), None]));
        let rows = RowSet::from_rows(vec![3, 4, 5, 9], 10);
        let found = CoveredValues {
            index: "i".to_owned(),
            columns: vec![o, p],
            files: vec![2; 4],
            rows: vec![CoveredFile { file: 2, rows: rows.clone() }],
            index_reads: 1,
            index_bytes_read: 4096,
        };
        let given = given(found, scan.wanted().unwrap(), &scan).unwrap();
        assert_eq!((given.rows.count(), given.files.get(&2)), (2, Some(&rows)));
        let batches = collect(Arc::clone(&given.rows.plan), Arc::new(TaskContext::default())).await.unwrap();
        let text = pretty_format_batches(&batches).unwrap().to_string();
        assert!(text.contains("| 7 |") && !text.contains("| 8 |") && !text.contains("| 9 |"), "{text}");
    }
}

//! Rows that are read and then left out by their numbers.
//!
//! ```text
//! selected   ████ ██████ ███ ████████ ██                  ███ █████        buffered changes replace a row here and there
//! read       ███████████████████████████                  █████████        unselected stretches are closed where they are many and short
//! left out       ▲      ▲   ▲        ▲                       ▲             by a filter on the row's number
//! ```
//!
//! Parquet's reader takes a selection in one of two ways. It reads stretch by stretch, which costs about a microsecond for each stretch and
//! column. Or it decodes what is around the selection and applies a mask. It decides by the average stretch of a row group. What is skipped
//! before and behind a range counts there as well, be it by us or by the bounds of pages. So it reads a range with thousands of unselected
//! stretches stretch by stretch. Nor is its mask cheap. DataFusion hands it every stretch, each of which costs some 70 ns on its way to the
//! mask, a third of what buffered changes add to a scan. A filter behind the reader copies the same values and makes its mask from our own
//! rows.
//!
//! An unselected stretch is *closed* if the reader reads its rows with those around it, and the filter leaves them out. Otherwise it stays
//! open.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::and_kleene;
use arrow::datatypes::{DataType, Field, FieldRef, Int32Type, Int64Type, Schema, SchemaRef};
use datafusion::common::cast::{as_boolean_array, as_primitive_array};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use lakemark_index::{RowSet, RowSetBuilder};
use parquet::arrow::RowNumber;

/// Unselected stretches of more rows stay open: decoding them would cost more than skipping them.
const WIDEST_GAP: u32 = 64;
/// Where there are more rows to an unselected stretch, a mask over all of them costs more than reading stretch by stretch.
const ROWS_PER_GAP: u32 = 128;
/// Fewer unselected stretches are not worth a filter.
const LEAST_GAPS: u32 = 64;
/// Fewer in a row come from a search, which finds rows anywhere, a few of them near each other by chance.
const LEAST_IN_A_ROW: u32 = 32;
/// Below this average length of a stretch Parquet's reader applies a mask by itself.
const MASKED_BELOW: u32 = 32;
/// Where the reader would apply a mask, so many stretches have to become one. What is left of them may be read one by one then.
const STRETCHES_TO_ONE: u32 = 64;
/// The columns that number files and rows.
const FILE: &str = "__lakemark_file";
const ROW: &str = "__lakemark_row";

/// Files that are read with unselected stretches closed.
pub(crate) struct RowNumberFilter {
    /// The table's columns, and those that number files and rows.
    schema: TableSchema,
    /// The rows of each file, if others are read than the selected ones.
    files: Vec<Option<PaddedRows>>,
    /// How many unselected stretches are closed.
    pub(crate) count: u64,
}

/// Rows of a file with closed stretches.
struct PaddedRows {
    /// The selected rows.
    chosen: RowSet,
    /// The selected rows, and those of the closed stretches between.
    read: RowSet,
}

impl RowNumberFilter {
    /// For files of which these rows are selected (all of them where none are given). `leaves_out_pages` says that the reader goes by the
    /// bounds of pages, so that it applies no masks. None if no stretch is worth closing.
    pub(crate) fn of<'a>(
        schema: &TableSchema,
        chosen: impl Iterator<Item = Option<&'a RowSet>>,
        leaves_out_pages: bool,
    ) -> Option<Self> {
        let mut count = 0;
        let mut close = |rows: &RowSet| {
            let Closed { read, gaps } = closed(rows, !leaves_out_pages)?;
            count += u64::from(gaps);
            Some(PaddedRows { chosen: rows.clone(), read })
        };
        let files: Vec<_> = chosen.map(|rows| close(rows?)).collect();
        let schema = files.iter().any(Option::is_some).then(|| numbered(schema)).flatten()?;
        Some(Self { schema, files, count })
    }

    pub(crate) fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The file at this place with its number.
    pub(crate) fn number(&self, place: usize, file: PartitionedFile) -> PartitionedFile {
        let mut values = file.partition_values.clone();
        values.push(ScalarValue::Int32(i32::try_from(place).ok()));
        file.with_partition_values(values)
    }

    /// The rows to read of the file at this place, if they are others than the selected ones.
    pub(crate) fn read(&self, place: usize) -> Option<&RowSet> {
        self.files.get(place)?.as_ref().map(|rows| &rows.read)
    }

    /// The filter that leaves the rows of closed stretches out: whether a row is selected and passes the predicate. The two columns of
    /// numbers stand behind `columns` others.
    pub(crate) fn filter(&self, columns: usize, predicate: Option<Arc<dyn PhysicalExpr>>) -> Arc<dyn PhysicalExpr> {
        let files = self.files.iter().map(|file| file.as_ref().map(|rows| rows.chosen.clone())).collect();
        let (file, row) = (Arc::new(Column::new(FILE, columns)), Arc::new(Column::new(ROW, columns + 1)));
        Arc::new(IsSelected { files, file, row, predicate })
    }
}

/// Rows to read with unselected stretches between them closed.
struct Closed {
    /// The rows with those of closed stretches.
    read: RowSet,
    /// How many unselected stretches are closed.
    gaps: u32,
}

/// The rows to read where unselected stretches are worth closing; none if none is.
fn closed(rows: &RowSet, reader_masks: bool) -> Option<Closed> {
    let mut read = RowSetBuilder::new(rows.universe());
    let (mut stretch, mut ranges, mut closed) = (Vec::new(), 0u32, 0u32);
    let mut close = |stretch: &mut Vec<Range<u32>>| {
        let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else { return };
        let gaps = stretch.len() as u32 - 1;
        if gaps >= LEAST_IN_A_ROW && last.end - first.start <= gaps.saturating_mul(ROWS_PER_GAP) {
            closed += gaps;
            read.insert_range(first.start..last.end);
        } else {
            stretch.iter().for_each(|range| read.insert_range(range.clone()));
        }
        stretch.clear();
    };
    for range in rows.iter_ranges() {
        ranges += 1;
        if stretch.last().is_some_and(|last: &Range<u32>| range.start - last.end > WIDEST_GAP) {
            close(&mut stretch);
        }
        stretch.push(range);
    }
    close(&mut stretch);
    let is_masked = reader_masks && rows.universe() / MASKED_BELOW < ranges.saturating_mul(2);
    let is_better = !is_masked || (ranges - closed).saturating_mul(STRETCHES_TO_ONE) <= ranges;
    (closed >= LEAST_GAPS && is_better).then(|| Closed { read: read.finish(), gaps: closed })
}

/// The schema with two more columns behind all others, which number files and rows. None if the table has such columns itself.
fn numbered(schema: &TableSchema) -> Option<TableSchema> {
    if schema.table_schema().fields().iter().any(|field| [FILE, ROW].contains(&field.name().as_str())) {
        return None;
    }
    let file: FieldRef = Arc::new(Field::new(FILE, DataType::Int32, false));
    let partitions: Vec<FieldRef> = schema.table_partition_cols().iter().cloned().chain([file]).collect();
    let builder = TableSchema::builder(Arc::clone(schema.file_schema()));
    Some(builder.with_table_partition_cols(partitions).with_virtual_columns(vec![row_number()]).build())
}

/// The number of a row in its file.
fn row_number() -> FieldRef {
    Arc::new(Field::new(ROW, DataType::Int64, false).with_extension_type(RowNumber))
}

/// The columns of files, and behind them the number of each row, as a scan with closed stretches has it. None if the table has a column of
/// that name, in which no scan has it.
pub(crate) fn row_numbered(columns: &SchemaRef) -> Option<TableSchema> {
    if columns.fields().iter().any(|field| [FILE, ROW].contains(&field.name().as_str())) {
        return None;
    }
    Some(TableSchema::builder(Arc::clone(columns)).with_virtual_columns(vec![row_number()]).build())
}

/// Whether a row of a file is one of the selected ones, and passes the predicate if there is one. A row that is not selected is none of the
/// table: an error that its values give is none of the query.
#[derive(Debug, Clone)]
struct IsSelected {
    /// None for a file of which all rows that are read are selected.
    files: Arc<[Option<RowSet>]>,
    file: Arc<dyn PhysicalExpr>,
    row: Arc<dyn PhysicalExpr>,
    predicate: Option<Arc<dyn PhysicalExpr>>,
}

impl IsSelected {
    /// Which of these rows are selected.
    fn chosen(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let file = self.file.evaluate(batch)?.into_array(batch.num_rows())?;
        let rows = self.row.evaluate(batch)?.into_array(batch.num_rows())?;
        let rows = as_primitive_array::<Int64Type>(&rows)?;
        // All rows of a batch are of one file.
        let Some(file) = as_primitive_array::<Int32Type>(&file)?.values().first().copied() else {
            return Ok(BooleanArray::from(Vec::<bool>::new()));
        };
        match usize::try_from(file).ok().and_then(|file| self.files.get(file)) {
            None => internal_err!("rows of a file that was not selected"),
            Some(None) => Ok(BooleanArray::new(BooleanBuffer::new_set(batch.num_rows()), None)),
            Some(Some(chosen)) => mask(chosen, rows.values()),
        }
    }
}

impl PartialEq for IsSelected {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.files, &other.files)
            && *self.file == *other.file
            && *self.row == *other.row
            && self.predicate == other.predicate
    }
}

impl Eq for IsSelected {}

impl Hash for IsSelected {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.files).hash(state);
        self.file.hash(state);
        self.row.hash(state);
        self.predicate.hash(state);
    }
}

impl fmt::Display for IsSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is_selected({}, {})", self.file, self.row)?;
        self.predicate.as_ref().map_or(Ok(()), |predicate| write!(f, " AND {predicate}"))
    }
}

impl PhysicalExpr for IsSelected {
    fn data_type(&self, _schema: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.predicate.as_ref().map_or(Ok(false), |predicate| predicate.nullable(schema))
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let chosen = self.chosen(batch)?;
        let Some(predicate) = self.predicate.as_ref().filter(|_| chosen.has_true()) else {
            return Ok(ColumnarValue::Array(Arc::new(chosen)));
        };
        // Nearly all rows are selected: to copy them for the predicate would cost more than to evaluate it for all. If that fails, a
        // deleted row may be the cause, and only the selected rows are evaluated.
        let passing = predicate.evaluate(batch).or_else(|_| predicate.evaluate_selection(batch, &chosen))?;
        let passing = passing.into_array(batch.num_rows())?;
        Ok(ColumnarValue::Array(Arc::new(and_kleene(&chosen, as_boolean_array(&passing)?)?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        [&self.file, &self.row].into_iter().chain(&self.predicate).collect()
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let mut children = children.into_iter();
        let (Some(file), Some(row), predicate) = (children.next(), children.next(), children.next()) else {
            return internal_err!("a row is identified by its file and its number");
        };
        Ok(Arc::new(Self { files: Arc::clone(&self.files), file, row, predicate }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which of these rows, in ascending order, are selected.
fn mask(chosen: &RowSet, rows: &[i64]) -> Result<BooleanArray> {
    let mut mask = BooleanBufferBuilder::new(rows.len());
    for stretch in rows.chunk_by(|row, next| row + 1 == *next) {
        let (Some(first), Some(last)) = (stretch.first(), stretch.last()) else { continue };
        let (Ok(first), Ok(last)) = (u32::try_from(*first), u32::try_from(*last)) else {
            return internal_err!("a file has more rows than a row set");
        };
        let mut next = 0;
        for Range { start, end } in chosen.slice(first, last + 1).iter_ranges() {
            mask.append_n((start - next) as usize, false);
            mask.append_n((end - start) as usize, true);
            next = end;
        }
        mask.append_n(stretch.len() - next as usize, false);
    }
    Ok(BooleanArray::new(mask.finish(), None))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, Int64Array};
    use datafusion::common::DataFusionError;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, lit};

    use super::*;

    /// Every tenth row of a range is deleted.
    fn perforated(range: Range<u32>, universe: u32) -> RowSet {
        RowSet::from_rows(range.filter(|row| row % 10 != 3).collect(), universe)
    }

    #[test]
    fn many_narrow_gaps_are_closed() {
        let rows = perforated(50_000..60_000, 1_000_000);
        let Closed { read, gaps } = closed(&rows, true).unwrap();
        assert_eq!(gaps, 1000);
        assert_eq!((read.iter_ranges().count(), read.iter_ranges().next()), (1, Some(50_000..60_000)));
        let apart = rows.or(&perforated(90_000..90_700, 1_000_000));
        let read = closed(&apart, true).unwrap().read;
        assert_eq!(read.iter_ranges().collect::<Vec<_>>(), [50_000..60_000, 90_000..90_700]);
    }

    #[test]
    fn gaps_stay_open_where_they_are_few_or_wide_or_far_between() {
        assert!(closed(&perforated(50_000..50_600, 1_000_000), false).is_none());
        let wide = RowSet::from_rows((0..100_000).filter(|row| row % 100 < 30).collect(), 1_000_000);
        assert!(closed(&wide, false).is_none());
        let far = RowSet::from_rows((0..500_000).filter(|row| row % 300 != 3).collect(), 1_000_000);
        assert!(closed(&far, false).is_none());
        // Pairs of rows that are near each other among many that are not, as a search finds them.
        let pairs = (0..2_000).map(|row| row * 400).chain((0..700).map(|row| row * 1_200 + 7));
        let pairs = RowSet::from_rows(pairs.collect(), 1_000_000);
        assert!(closed(&pairs, false).is_none());
        // Beside these pairs a range with deleted rows is still read as a whole.
        let beside = pairs.or(&perforated(900_000..910_000, 1_000_000));
        let Closed { read, gaps } = closed(&beside, false).unwrap();
        assert_eq!((gaps, read), (1000, pairs.or(&RowSet::from_range(900_000..910_000, 1_000_000))));
        assert!(
            closed(&RowSet::full(1_000_000), false).is_none() && closed(&RowSet::empty(1_000_000), false).is_none()
        );
    }

    #[test]
    fn where_the_reader_would_mask_gaps_are_closed_together_or_not_at_all() {
        assert!(closed(&perforated(0..1_000_000, 1_000_000), true).is_some());
        // Hits of a search: what stays open the reader would take one by one.
        let mut state = 1u64;
        let mut hit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).is_multiple_of(16)
        };
        let hits = RowSet::from_rows((0..1_000_000).filter(|_| hit()).collect(), 1_000_000);
        let Closed { read, gaps } = closed(&hits, false).unwrap();
        assert!(gaps > 40_000 && read.iter_ranges().count() > 1000, "{gaps} gaps are closed, and many are not");
        assert!(closed(&hits, true).is_none());
    }

    #[test]
    fn a_predicate_is_evaluated_for_chosen_rows_alone_where_it_fails() {
        let chosen = RowSet::from_rows(vec![0, 1, 3, 4], 6);
        let of = |k: [Option<i64>; 5]| {
            let column = |name: &str, values: ArrayRef| (name.to_owned(), values);
            RecordBatch::try_from_iter([
                column("k", Arc::new(Int64Array::from(k.to_vec()))),
                column(FILE, Arc::new(Int32Array::from(vec![0; 5]))),
                column(ROW, Arc::new(Int64Array::from(vec![0, 1, 2, 3, 4]))),
            ])
            .unwrap()
        };
        let ask = |predicate: bool, batch: &RecordBatch| {
            let ten = binary(lit(10i64), Operator::Divide, Arc::new(Column::new("k", 0)), &batch.schema()).unwrap();
            let predicate = predicate.then(|| binary(ten, Operator::GtEq, lit(5i64), &batch.schema()).unwrap());
            let (file, row) = (Arc::new(Column::new(FILE, 1)), Arc::new(Column::new(ROW, 2)));
            let is_selected = IsSelected { files: [Some(chosen.clone())].into(), file, row, predicate };
            let passing = is_selected.evaluate(batch)?.into_array(batch.num_rows())?;
            Ok::<_, DataFusionError>(as_boolean_array(&passing)?.iter().collect::<Vec<_>>())
        };
        // Row 2 is not selected: nothing is divided by its 0.
        let hidden_zero = of([Some(1), Some(7), Some(0), None, Some(2)]);
        assert_eq!(ask(true, &hidden_zero).unwrap(), [Some(true), Some(false), Some(false), None, Some(true)]);
        assert_eq!(ask(false, &hidden_zero).unwrap(), [true, true, false, true, true].map(Some));
        let no_zero = of([Some(1), Some(7), Some(1), None, Some(2)]);
        assert_eq!(ask(true, &no_zero).unwrap(), ask(true, &hidden_zero).unwrap());
        let error = ask(true, &of([Some(1), Some(0), Some(0), None, Some(2)])).unwrap_err();
        assert!(error.to_string().contains("Divide by zero"), "{error}");
    }

    #[test]
    fn a_mask_gives_the_chosen_rows_also_of_several_stretches() {
        let chosen = RowSet::from_rows(vec![2, 3, 7, 8, 9, 20], 30);
        let of = |rows: &[i64]| mask(&chosen, rows).unwrap().values().iter().collect::<Vec<_>>();
        assert_eq!(of(&[2, 3, 4, 8, 9, 10, 19, 20]), [true, true, false, true, true, false, false, true]);
        assert_eq!(of(&[0, 1]), [false, false]);
        assert_eq!(of(&[29]), [false]);
        assert_eq!(of(&[]), [false; 0]);
    }
}

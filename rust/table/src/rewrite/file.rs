//! A data file that is written anew: what becomes of its rows, and the pieces in which that is done.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::Schema;
use futures::TryStreamExt;
use lakemark_index::RowSet;

use crate::error::{Error, Result};
use crate::files::columns::{ReadSelection, selection};
use crate::files::footer::Footer;
use crate::rewrite::copy::Copying;
use crate::rewrite::reader::OpenedFile;
use crate::rewrite::row_ids::{RowId, RowIds};
use crate::rewrite::rows::{AssignedRows, NewRows, TakenPlace};
use crate::rewrite::target::FileTarget;
use crate::rewrite::unfit;
use crate::snapshot::{DataFile, Snapshot};
use crate::values::conform::{Match, conform_batch};
use crate::values::int96::is_rebased;

/// A data file with rows that newer ones replace.
pub(super) struct OldFile {
    pub opened: OpenedFile,
    /// Rows that are not in the new file: replaced, deleted, or deleted by a deletion vector.
    pub deleted: RowSet,
    /// The places that new rows take, in the order of the file.
    pub places: Vec<TakenPlace>,
    /// The places of rows whose new ones are written to other files. Only tables that track rows, or keep a feed of changes, know them.
    pub elsewhere: Vec<TakenPlace>,
    /// How row groups get into the new file as they are; none if they cannot.
    pub copying: Option<Copying>,
    /// How the new file keeps what its rows are called; none if nobody tracks rows.
    pub row_ids: Option<Arc<RowIds>>,
}

/// Row groups of a file that become one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowGroupSpan {
    pub row_groups: Range<usize>,
    /// Rows of these row groups.
    pub rows: Range<u32>,
    /// How many rows are left.
    pub rows_left: u32,
    /// Whether every row stays.
    pub is_whole: bool,
}

impl OldFile {
    /// Reads what says how the file is written anew, and gives new rows their places.
    pub(super) async fn plan(
        snapshot: &Snapshot,
        file: &DataFile,
        replaced: &RowSet,
        new: &mut NewRows,
        target: &FileTarget<'_>,
    ) -> Result<Self> {
        let opened = OpenedFile::open(snapshot.object_store(), file).await?;
        check_rewritable(file, &opened.footer, replaced)?;
        let hidden = file.deleted.as_ref().map_or_else(|| replaced.clone(), |deleted| replaced.or(deleted));
        let row_ids = target.row_ids.clone();
        let mut old =
            Self { opened, deleted: hidden, places: Vec::new(), elsewhere: Vec::new(), copying: None, row_ids };
        let partition = new.partition_of(&file.partition_values)?;
        if partition.is_some() || target.row_ids.is_some() || target.changes.is_some() {
            let keys = old.keys(replaced, new).await?;
            let positions: Vec<u32> = replaced.iter().collect();
            let AssignedRows { here, elsewhere } =
                new.assign_positions(&keys, &positions, &file.partition_values, partition)?;
            (old.places, old.elsewhere) = (here, elsewhere);
            old.keep_ids(new).await?;
        }
        if old.pieces().iter().any(|piece| piece.is_whole) {
            old.copying = Copying::of(&old.opened, target).await?;
        }
        Ok(old)
    }

    /// Lets new rows that are written to other files be called as the rows that they replace here.
    async fn keep_ids(&self, new: &mut NewRows) -> Result<()> {
        let Some(row_ids) = self.row_ids.as_ref().filter(|_| !self.elsewhere.is_empty()) else { return Ok(()) };
        let positions = self.elsewhere.iter().map(|place| place.position).collect();
        let replaced = RowSet::from_rows(positions, self.deleted.universe());
        for (place, row_id) in self.elsewhere.iter().zip(row_ids.of_rows(&self.opened, &replaced).await?) {
            new.keep(place.new_row, RowId { version: None, ..row_id });
        }
        Ok(())
    }

    /// The columns of the key of some rows, as they are stored.
    async fn keys(&self, rows: &RowSet, new: &NewRows) -> Result<RecordBatch> {
        let schema = new.key_schema();
        let unreadable = |error| self.opened.unreadable(error);
        let ReadSelection { row_groups, rows: chosen } = selection(&self.opened.footer.row_groups, rows);
        let is_key = |column: &str| schema.field_with_name(column).is_ok();
        let mut batches = Vec::new();
        let mut read = self.opened.batches(row_groups, Some(chosen), is_key).map_err(unreadable)?;
        while let Some(batch) = read.try_next().await.map_err(unreadable)? {
            let batch = conform_batch(&batch, schema, Match::Name);
            batches.push(batch.map_err(|error| unfit(&self.opened.file.path).with_source(error))?);
        }
        let keys = concat_batches(schema, &batches)
            .map_err(|error| Error::internal("keys cannot be put together").with_source(error))?;
        if keys.num_rows() != rows.len() as usize {
            return Err(self.has_other_counts());
        }
        Ok(keys)
    }

    pub(super) fn has_other_counts(&self) -> Error {
        Error::corrupt(format!(
            "the data file {} has other row counts than its footer says; write it again",
            self.opened.file.path
        ))
    }

    /// The pieces in which the file is written anew, without those of which nothing is left. A row group becomes one of the new
    /// file; neighbours that shrank so much that they fit into one become one.
    pub(super) fn pieces(&self) -> Vec<RowGroupSpan> {
        let most = self.opened.footer.row_groups.iter().copied().max().unwrap_or_default();
        let mut pieces: Vec<RowGroupSpan> = Vec::new();
        let mut start = 0u32;
        for (group, length) in self.opened.footer.row_groups.iter().enumerate() {
            let rows = start..start + length;
            start = rows.end;
            let hidden = self.deleted.count_in(rows.start, rows.end);
            let kept = length - hidden + self.positions_in(&rows).len() as u32;
            let is_whole = hidden == 0;
            match pieces.last_mut().filter(|last| !(last.is_whole && is_whole) && last.rows_left + kept <= most) {
                Some(last) => {
                    last.row_groups.end = group + 1;
                    last.rows.end = rows.end;
                    last.rows_left += kept;
                    last.is_whole = false;
                }
                None => pieces.push(RowGroupSpan { row_groups: group..group + 1, rows, rows_left: kept, is_whole }),
            }
        }
        pieces.retain(|piece| piece.rows_left > 0);
        pieces
    }

    /// The new rows that take places among these rows.
    pub(super) fn positions_in(&self, rows: &Range<u32>) -> &[TakenPlace] {
        let at = |row: u32| self.places.partition_point(|place| place.position < row);
        self.places.get(at(rows.start)..at(rows.end)).unwrap_or_default()
    }
}

/// Refuses a file whose values would mean something else in a new file, or that is not the one that changes were resolved against.
fn check_rewritable(file: &DataFile, footer: &Footer, replaced: &RowSet) -> Result<()> {
    let rows: u32 = footer.row_groups.iter().sum();
    if replaced.universe() != rows {
        return Err(Error::internal(format!(
            "{} has {rows} rows, and its deleted positions are those of a file with {}",
            file.path,
            replaced.universe()
        )));
    }
    check_calendar(&file.path, &footer.schema)
}

/// Refuses a file of these columns if it has dates of another calendar than new files have.
pub(crate) fn check_calendar(name: &str, schema: &Schema) -> Result<()> {
    match schema.fields().iter().find(|field| is_rebased(field)) {
        None => Ok(()),
        Some(field) => Err(Error::unsupported(format!(
            "the column {} of {name} has dates of the calendar that old Spark wrote, which no new file can keep; \
             rewrite the table with a newer Spark first",
            field.name()
        ))),
    }
}

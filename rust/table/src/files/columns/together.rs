//! Columns of a row group side by side: those of an index over several, and those that ride along.

use arrow::array::{ArrayRef, new_empty_array, new_null_array};
use arrow::datatypes::FieldRef;
use arrow::error::ArrowError;

use super::{BATCH_ROWS, FetchedChunks, RowGroupOfFile, arrays_of, unreadable};
use crate::error::Result;

/// Hands on the rows of these columns, or the first `limit` of them, a batch of each at a time. All columns step together, so that no more of
/// them is in memory than that. An error calls them by the name of `shown`.
pub(super) fn each_batch(
    from: RowGroupOfFile<'_>,
    shown: &FieldRef,
    columns: &[FieldRef],
    parts: Vec<Option<FetchedChunks>>,
    limit: Option<usize>,
    mut push: impl FnMut(&[ArrayRef]) -> Result<(), ArrowError>,
) -> Result<()> {
    let rows = from.rows() as usize;
    let mut readers = Vec::with_capacity(columns.len());
    for (column, part) in columns.iter().zip(parts) {
        let of_part = |part| arrays_of(from, column, part, limit);
        readers.push((column, part.map(of_part).transpose()?));
    }
    let mut left = rows.min(limit.unwrap_or(rows));
    while left > 0 {
        let step = left.min(BATCH_ROWS);
        let mut arrays = Vec::with_capacity(readers.len());
        for (column, reader) in &mut readers {
            arrays.push(match reader {
                Some(reader) => reader.next().transpose()?.unwrap_or_else(|| new_empty_array(column.data_type())),
                None => new_null_array(column.data_type(), step),
            });
        }
        push(&arrays).map_err(|error| unreadable(shown, from.name, error))?;
        left -= step;
    }
    Ok(())
}

//! Whether the rows that a statement read are still what it read, where others changed the data files meanwhile.
//!
//! Our own changes have sequence numbers, those of other writers have none. For the keys that are written, the rows that the statement saw
//! are compared with those that readers see now, in data files and in the buffer. A file that others wrote anew, row for row, is no
//! conflict. Nor is a row that was buffered and was migrated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use lakemark_index::RowSet;

use crate::error::{Error, ErrorKind, Result};
use crate::files::file_version::FileVersion;
use crate::snapshot::{BufferedRows, DataFile, Snapshot};
use crate::updates::key::{KeyColumns, KeySet};
use crate::updates::lookup::fetch::RowFile;
use crate::updates::lookup::key_positions::{FilesToSearch, positions_of_keys};
use crate::updates::runs::sorted_run::{SortedRun, select_rows};
use crate::updates::view::merged_view::MergedView;

/// What readers see now.
pub(super) struct SeenState<'a> {
    /// The data files, without any buffered change.
    pub base: &'a Snapshot,
    /// The data files merged with the buffered changes.
    pub view: &'a MergedView,
}

/// Rows of a data file that readers see.
struct VisibleInFile {
    /// The place of the file in the snapshot.
    file: usize,
    rows: RowSet,
}

/// Visible rows of data files, by file.
type VisibleRows = HashMap<FileVersion, VisibleInFile>;

/// The rows of a key.
struct RowsOfKey {
    /// The key, for people.
    shown: String,
    /// The rows with all of their values as bytes, in order.
    rows: Vec<Box<[u8]>>,
}

/// The rows of keys, by the bytes of the keys.
type ByKey = BTreeMap<Box<[u8]>, RowsOfKey>;

/// The key of a row that others changed since `read`, for people.
pub(super) async fn changed_since(
    read: &Snapshot,
    seen: &SeenState<'_>,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
) -> Result<Option<String>> {
    let SeenState { base, view } = *seen;
    if is_same(read, base) {
        return Ok(None);
    }
    // A column that is dropped and added again, or takes the name of another one, looks the same in the schema.
    let stored_names = |state: &Snapshot| state.column_names().map(|names| names.fingerprint());
    if read.schema() != base.schema() || stored_names(read) != stored_names(base) {
        return Err(Error::new(
            ErrorKind::Conflict,
            "the columns of the table were changed meanwhile, so that nothing was written; try again",
        ));
    }
    let none = |_: usize| None;
    let hidden = |file: usize| view.deleted.get(&file).map(|hidden| Arc::clone(&hidden.rows));
    let mut then = visible(read, key, keys, none).await.map_err(undecidable)?;
    let mut now = visible(base, key, keys, hidden).await?;
    // Equal positions of the same file are the same rows.
    then.retain(|file, was| match now.get(file).is_some_and(|same| same.rows == was.rows) {
        true => now.remove(file).is_none(),
        false => true,
    });
    let was = buffered_rows_of(read.buffered_rows().map(Arc::as_ref), read, key, keys).await.map_err(undecidable)?;
    let is = buffered_rows_of(Some(&view.buffered), base, key, keys).await?;
    let then = values(read, key, &then, was).await.map_err(undecidable)?;
    let now = values(base, key, &now, is).await?;
    Ok(differing(&then, &now).or_else(|| differing(&now, &then)).cloned())
}

/// A key, for people, whose rows differ in the others.
fn differing<'a>(these: &'a ByKey, others: &ByKey) -> Option<&'a String> {
    let is_same = |key: &[u8], of: &RowsOfKey| others.get(key).is_some_and(|others| others.rows == of.rows);
    these.iter().find(|(key, of)| !is_same(key, of)).map(|(_, of)| &of.shown)
}

/// What the statement read is there no more, so that it cannot be compared.
fn undecidable(error: Error) -> Error {
    let text = "others replaced data files meanwhile, so that nobody can tell whether these rows are still the same; nothing was written, \
                try again";
    Error::new(ErrorKind::Conflict, text).with_source(error)
}

/// Whether nobody changed a data file between two states.
fn is_same(then: &Snapshot, now: &Snapshot) -> bool {
    match (then.delta_version(), now.delta_version()) {
        (Some(then), Some(now)) => then == now,
        _ => then.files().eq_by(now.files(), DataFile::is_same_version),
    }
}

/// The rows with one of the keys that readers see.
async fn visible(
    snapshot: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
    hidden: impl Fn(usize) -> Option<Arc<RowSet>>,
) -> Result<VisibleRows> {
    let mut seen = VisibleRows::new();
    for found in positions_of_keys(snapshot, key, keys, FilesToSearch::All).await? {
        let Some(file) = snapshot.files().get(found.file) else { continue };
        let mut rows = found.rows;
        for hides in [file.deleted.clone(), hidden(found.file)].into_iter().flatten() {
            rows = rows.minus(&hides);
        }
        if !rows.is_empty() {
            seen.insert(file.version(), VisibleInFile { file: found.file, rows });
        }
    }
    Ok(seen)
}

/// The buffered rows with one of the keys.
async fn buffered_rows_of(
    buffered: Option<&BufferedRows>,
    snapshot: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
) -> Result<Vec<RecordBatch>> {
    let (Some(buffered), schema) = (buffered, snapshot.schema()) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for file in &buffered.files {
        let run: Arc<SortedRun> =
            file.run.get().ok_or_else(|| Error::internal("a run of buffered rows is of another kind"))?;
        let rows = run.rows_with(key, keys).await?.and(&file.rows);
        if !rows.is_empty() {
            found.push(run.read(&schema, &rows).await?);
        }
    }
    for batch in &buffered.batches {
        // Rows of updates that were completed again are in the order of their run, and not of the key.
        let rows: Vec<u32> = (0..)
            .zip(key.encode(batch)?.iter())
            .filter_map(|(row, bytes)| keys.contains(bytes.as_ref()).then_some(row))
            .collect();
        if !rows.is_empty() {
            let universe = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
            found.push(select_rows(batch, &RowSet::from_rows(rows, universe))?);
        }
    }
    Ok(found)
}

/// The values of rows of data files and of others, by key.
async fn values(
    snapshot: &Snapshot,
    key: &Arc<KeyColumns>,
    rows: &VisibleRows,
    mut batches: Vec<RecordBatch>,
) -> Result<ByKey> {
    let schema = snapshot.schema();
    for visible in rows.values() {
        let Some(file) = snapshot.files().get(visible.file) else { continue };
        batches.push(RowFile::of(snapshot, file).open().await?.collect(&schema, Some(&visible.rows)).await?);
    }
    let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    let incomparable = |error| {
        let text = "others changed data files meanwhile, and rows of these types cannot be compared; try again";
        Error::new(ErrorKind::Conflict, text).with_source(error)
    };
    let converter = RowConverter::new(fields.collect()).map_err(incomparable)?;
    let mut values = ByKey::new();
    for batch in batches {
        let whole = converter.convert_columns(batch.columns()).map_err(incomparable)?;
        for (row, (bytes, whole)) in key.encode(&batch)?.iter().zip(&whole).enumerate() {
            let new = || RowsOfKey { shown: key.display(&batch, row), rows: Vec::new() };
            values.entry(bytes.as_ref().into()).or_insert_with(new).rows.push(whole.as_ref().into());
        }
    }
    values.values_mut().for_each(|of| of.rows.sort_unstable());
    Ok(values)
}

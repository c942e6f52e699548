//! From keys to rows of data files: by an index of the key where there is one, else by reading the key's columns.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::{KeyRanges, Leaf, Predicate, RowSet, Test, encode_literals};

use super::fetch::RowFile;
use crate::error::{Error, Result};
use crate::options::ProbeOptions;
use crate::snapshot::{FileProbe, Snapshot};
use crate::updates::key::{KeyColumns, KeySet};

/// Files that are read at a time.
const CONCURRENT_FILES: usize = 16;

/// Rows of a data file.
#[derive(Clone, Debug)]
pub(crate) struct KeyPositions {
    /// The place of the file in the snapshot.
    pub file: usize,
    pub row_groups: Vec<u32>,
    pub rows: RowSet,
}

/// The physical rows of each of `files` that have one of the keys, also rows that a deletion vector deletes. Vectors shrink when a table is
/// restored, and what was found must hold for every version.
pub(crate) async fn positions_of_keys(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
    files: &[usize],
) -> Result<Vec<KeyPositions>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let found = search_index(base, key, keys).await?;
    let is_whole = found.as_ref().is_some_and(|found| found.is_whole);
    let work = files.iter().map(|file| {
        let probe = found.as_ref().and_then(|found| found.files.get(*file)).cloned().unwrap_or(FileProbe::Unknown);
        in_file(base, key, keys, *file, FileLookup { probe, is_whole })
    });
    // Collected first, so that the futures do not borrow the iterator.
    let work: Vec<_> = work.collect();
    stream::iter(work).buffered(CONCURRENT_FILES).try_collect().await
}

/// What an index found for keys.
struct IndexLookup {
    files: Vec<FileProbe>,
    /// Whether the index has the whole key, and not only its first columns.
    is_whole: bool,
}

/// What an index found for keys in one file.
struct FileLookup {
    probe: FileProbe,
    /// Whether the index has the whole key, and not only its first columns.
    is_whole: bool,
}

/// Probes an index over all stored columns of the key, or else one of the first column.
async fn search_index(base: &Snapshot, key: &KeyColumns, keys: &KeySet) -> Result<Option<IndexLookup>> {
    let stored = physical_columns(base, &key.names);
    let by_all = keys.values(key, &stored).and_then(|keys| base.composite_lookup(&stored, &keys));
    let (predicate, columns) = match by_all {
        Some(predicate) => (predicate, stored.len()),
        None => match by_first(base, &stored, key, keys) {
            Some(predicate) => (predicate, 1),
            None => return Ok(None),
        },
    };
    let options = ProbeOptions { selection_cache: false, physical_rows: true, ..ProbeOptions::default() };
    let files = base.probe(&predicate, &options).await?.files;
    Ok(Some(IndexLookup { files, is_whole: columns == key.names.len() }))
}

/// The condition on the first stored column of the key; none without an index, or if a value has no place in its order.
fn by_first(base: &Snapshot, stored: &[String], key: &KeyColumns, keys: &KeySet) -> Option<Predicate> {
    let column = stored.first().filter(|column| !base.indexes_of(column).is_empty())?;
    let values = encode_literals(keys.values(key, std::slice::from_ref(column))?.first()?)?;
    let text = format!("{column} is one of {} keys", keys.len());
    let test = Test::Ranges(KeyRanges::points(values));
    Some(Predicate::Leaf(Leaf { column: column.clone(), test, text }))
}

/// The columns of the given ones that data files have: an index can be on them.
pub(crate) fn physical_columns(base: &Snapshot, columns: &[String]) -> Vec<String> {
    let is_partition = |column: &String| base.partition_columns().iter().any(|field| field.name() == column);
    columns.iter().filter(|column| !is_partition(column)).cloned().collect()
}

async fn in_file(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
    file: usize,
    lookup: FileLookup,
) -> Result<KeyPositions> {
    let Some(data_file) = base.files().get(file) else { return Err(Error::internal("a file out of range")) };
    let row_file = RowFile::of(base, data_file);
    match lookup.probe {
        FileProbe::Known { row_groups, exact, recheck } if !row_groups.is_empty() => {
            let (sure, open) =
                if lookup.is_whole { (exact, recheck) } else { (RowSet::empty(exact.universe()), exact.or(&recheck)) };
            let tested = match open.is_empty() {
                true => open,
                false => row_file.open().await?.rows_with(key, keys, Some(&open)).await?,
            };
            Ok(KeyPositions { file, row_groups, rows: sure.or(&tested) })
        }
        _ => {
            let opened = row_file.open().await?;
            let rows = opened.rows_with(key, keys, None).await?;
            Ok(KeyPositions { file, row_groups: opened.row_groups.clone(), rows })
        }
    }
}

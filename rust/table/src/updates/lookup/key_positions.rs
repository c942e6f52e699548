//! From keys to rows of data files: by an index of the key where there is one, else by reading the key's columns.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::{KeyRanges, Leaf, Predicate, RowSet, Test, encode_literals};

use super::fetch::RowFile;
use crate::error::{Error, Result};
use crate::options::ProbeOptions;
use crate::snapshot::{FileProbe, FileProbes, Snapshot};
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

/// Positions by the places of their files. What was found of a file for some keys and for others is one.
pub(crate) fn by_file(found: impl IntoIterator<Item = KeyPositions>) -> BTreeMap<usize, KeyPositions> {
    let mut by_file: BTreeMap<usize, KeyPositions> = BTreeMap::new();
    for found in found {
        match by_file.entry(found.file) {
            Entry::Vacant(entry) => {
                entry.insert(found);
            }
            Entry::Occupied(mut entry) => {
                let have = entry.get_mut();
                have.rows = have.rows.or(&found.rows);
            }
        }
    }
    by_file
}

/// Which data files are searched for keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilesToSearch<'a> {
    /// All files of the snapshot.
    All,
    /// Those at these places.
    These(&'a [usize]),
}

/// The physical rows of files that have one of the keys, also rows that a deletion vector deletes. Vectors shrink when a table is restored,
/// and what was found must hold for every version. Files are left out of which an index says that they have none of the keys.
pub(crate) async fn positions_of_keys(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &KeySet,
    files: FilesToSearch<'_>,
) -> Result<Vec<KeyPositions>> {
    if matches!(files, FilesToSearch::These([])) || base.files().is_empty() {
        return Ok(Vec::new());
    }
    let (probed, is_whole) = match search_index(base, key, keys).await? {
        Some(IndexLookup { files, is_whole }) => (Some(files), is_whole),
        None => (None, false),
    };
    let unknown = |file: usize| (file, FileProbe::Unknown);
    let lookups: Vec<(usize, FileProbe)> = match (probed, files) {
        (Some(probed), FilesToSearch::All) => probed.into_listed().collect(),
        (Some(probed), FilesToSearch::These(files)) => {
            let listed = files.iter().filter_map(|file| Some((*file, probed.get_listed(*file)?.clone())));
            listed.collect()
        }
        (None, FilesToSearch::All) => (0..base.files().len()).map(unknown).collect(),
        (None, FilesToSearch::These(files)) => files.iter().copied().map(unknown).collect(),
    };
    // Collected first, so that the futures do not borrow the iterator.
    let lookups = lookups.into_iter();
    let work: Vec<_> =
        lookups.map(|(file, probe)| in_file(base, key, keys, file, FileLookup { probe, is_whole })).collect();
    stream::iter(work).buffered(CONCURRENT_FILES).try_collect().await
}

/// What an index found for keys.
struct IndexLookup {
    files: FileProbes,
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

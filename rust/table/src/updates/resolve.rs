//! From keys to rows of data files: by an index of the key where there is one, else by reading the key's columns.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::{Leaf, Predicate, RowSet, Test};

use super::fetch::RowFile;
use super::key::{KeyColumns, Keys};
use crate::error::{Error, Result};
use crate::options::ProbeOptions;
use crate::snapshot::{FileProbe, Snapshot};

/// Files that are read at a time.
const CONCURRENT_FILES: usize = 16;

/// Rows of a data file.
#[derive(Clone, Debug)]
pub(crate) struct Positions {
    /// The place of the file in the snapshot.
    pub file: usize,
    pub row_groups: Vec<u32>,
    pub rows: RowSet,
}

/// The rows of each of `files` that have one of the keys. Rows that a deletion vector hides may be missing.
pub(crate) async fn positions(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &Keys,
    files: &[usize],
) -> Result<Vec<Positions>> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let probed = ask_index(base, key, keys).await?;
    let work = files.iter().map(|file| {
        let found = probed.as_ref().and_then(|found| found.get(*file)).cloned().unwrap_or(FileProbe::Unknown);
        in_file(base, key, keys, *file, found)
    });
    // Collected first, so that the futures do not borrow the iterator.
    let work: Vec<_> = work.collect();
    stream::iter(work).buffered(CONCURRENT_FILES).try_collect().await
}

/// What indexes say of the first column of the key.
async fn ask_index(base: &Snapshot, key: &KeyColumns, keys: &Keys) -> Result<Option<Vec<FileProbe>>> {
    let (Some(column), Some(ranges)) = (key.names.first(), keys.ranges()) else { return Ok(None) };
    if base.indexes_of(column).is_empty() {
        return Ok(None);
    }
    let text = format!("{column} is one of {} keys", keys.len());
    let leaf = Predicate::Leaf(Leaf { column: column.clone(), test: Test::Ranges(ranges), text });
    let options = ProbeOptions { use_cache: false, ..ProbeOptions::default() };
    Ok(Some(base.probe(&leaf, &options).await?.files))
}

async fn in_file(
    base: &Snapshot,
    key: &Arc<KeyColumns>,
    keys: &Keys,
    file: usize,
    found: FileProbe,
) -> Result<Positions> {
    let Some(data_file) = base.files().get(file) else { return Err(Error::internal("a file out of range")) };
    let row_file = RowFile::of(base, data_file);
    match found {
        FileProbe::Known { row_groups, certain, uncertain } if !row_groups.is_empty() => {
            let is_whole = key.names.len() == 1;
            let (sure, open) = if is_whole {
                (certain, uncertain)
            } else {
                (RowSet::empty(certain.universe()), certain.or(&uncertain))
            };
            let tested = match open.is_empty() {
                true => open,
                false => row_file.open().await?.rows_with(key, keys, Some(&open)).await?,
            };
            Ok(Positions { file, row_groups, rows: sure.or(&tested) })
        }
        _ => {
            let opened = row_file.open().await?;
            let rows = opened.rows_with(key, keys, None).await?;
            Ok(Positions { file, row_groups: opened.row_groups.clone(), rows })
        }
    }
}

//! Small files of new rows: they are filled up, so that migrations of few rows leave few files.
//!
//! A small file is written anew together with the new rows of its partition while it has at most twice the rows that it joins. This is the
//! logarithmic method (Bentley and Saxe, "Decomposable searching problems", J. Algorithms 1, 1980, section 3) on files. A file that stays
//! has more than twice the rows of the next smaller one. So a partition has as many small files as its rows have binary digits. A row that
//! is written again gets into a file with at least one and a half times the rows. So this happens log(rows) times.
//!
//! Names tell these files from those of others, which nobody fills up: other writers may read or replace them at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::rewrite::row_block::RowBlock;
use crate::rewrite::rows::NewRows;
use crate::rewrite::target::FILE_BYTES;
use crate::snapshot::{DataFile, Snapshot};

/// How names of files of new rows begin.
const ADDED: &str = "added";
/// How names of all other new files begin.
const REWRITTEN: &str = "part";
/// A file may have so many times the rows that it joins.
const GROWTH: usize = 2;

/// A file of the snapshot that may be filled up.
pub(crate) struct SmallFile {
    /// Its place in the snapshot.
    pub number: usize,
    /// The rows of it that stay, in the table's schema.
    pub rows: Arc<dyn RowBlock>,
}

/// The beginning of the name of a new file. A file of new rows stays one when it is written anew.
pub(super) fn name_start(replaces: Option<&DataFile>) -> &'static str {
    if replaces.is_none_or(|file| is_added(&file.path)) { ADDED } else { REWRITTEN }
}

/// Whether the file is one of new rows, and so small that it may be filled up: it could take as much again before it is closed.
pub(crate) fn is_small(file: &DataFile) -> bool {
    is_added(&file.path) && file.meta.size < FILE_BYTES / 2
}

/// Whether the file has a name such as `added-00000-9f0c2a7e-….parquet`, with a number of five digits or more.
fn is_added(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let rest = name.strip_prefix(ADDED).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(".parquet"));
    rest.and_then(|rest| rest.split_once('-')).is_some_and(|(number, id)| {
        let is_number = number.len() >= 5 && number.bytes().all(|digit| digit.is_ascii_digit());
        is_number && Uuid::try_parse(id).is_ok_and(|parsed| parsed.hyphenated().to_string() == id)
    })
}

/// The small files that new rows without a place are written together with, those with the fewest rows first.
pub(super) fn files_to_refill<'a>(
    snapshot: &Snapshot,
    small: &'a [SmallFile],
    new: &NewRows,
) -> Result<Vec<&'a SmallFile>> {
    let mut by_partition: BTreeMap<u32, Vec<&SmallFile>> = BTreeMap::new();
    for of in small {
        let Some(file) = snapshot.files().get(of.number) else { continue };
        if let Some(partition) = new.partition_of(&file.partition_values)? {
            by_partition.entry(partition).or_default().push(of);
        }
    }
    let mut chosen = Vec::new();
    for (partition, rows) in new.left() {
        let mut files = by_partition.remove(&partition).unwrap_or_default();
        files.sort_by_key(|file| file.rows.row_count());
        chosen.extend(joining(rows.len(), files));
    }
    Ok(chosen)
}

/// The files, of ascending row counts, that so many rows are written together with.
fn joining(mut rows: usize, files: Vec<&SmallFile>) -> Vec<&SmallFile> {
    let joins = |file: &&SmallFile| {
        let has = file.rows.row_count();
        let joins = has <= rows.saturating_mul(GROWTH);
        rows += if joins { has } else { 0 };
        joins
    };
    files.into_iter().take_while(joins).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, RecordBatch};

    use super::*;

    fn file(rows: usize) -> SmallFile {
        let k: ArrayRef = Arc::new(Int32Array::from(vec![0; rows]));
        SmallFile { number: rows, rows: Arc::new(RecordBatch::try_from_iter([("k", k)]).unwrap()) }
    }

    /// The most files at any time, and the rows that were written, after inserts of so many rows each.
    fn after(inserts: impl Iterator<Item = usize>) -> (usize, usize) {
        let (mut files, mut most, mut written) = (Vec::<SmallFile>::new(), 0, 0);
        for rows in inserts {
            files.sort_by_key(|file| file.rows.row_count());
            let joined = joining(rows, files.iter().collect()).len();
            let rest = files.split_off(joined);
            let merged = rows + files.iter().map(|file| file.rows.row_count()).sum::<usize>();
            files = rest;
            files.push(file(merged));
            (most, written) = (most.max(files.len()), written + merged);
        }
        (most, written)
    }

    #[test]
    fn small_files_are_as_few_as_the_binary_digits_of_their_rows() {
        assert_eq!(after(std::iter::repeat_n(10, 100)), (5, 4_830));
        // Ever fewer rows: no file may be left beside one that is hardly larger.
        assert_eq!(after((1..=300).rev()), (8, 210_488));
    }

    #[test]
    fn a_file_joins_while_it_has_at_most_twice_the_rows_before_it() {
        let files = [4, 13, 41, 42].map(file);
        let joined = |rows| joining(rows, files.iter().collect()).iter().map(|file| file.number).collect::<Vec<_>>();
        assert_eq!(joined(1), Vec::<usize>::new());
        assert_eq!(joined(2), [4]);
        // 3 and 4 take 13, and 20 take no 41.
        assert_eq!(joined(3), [4, 13]);
        assert_eq!(joined(4), [4, 13, 41, 42]);
    }

    #[test]
    fn names_tell_files_of_new_rows_from_others() {
        let id = crate::storage::ids::new_id();
        for (path, is) in [
            (format!("added-00000-{id}.parquet"), true),
            (format!("data/m/p=1/added-100001-{id}.parquet"), true),
            (format!("part-00000-{id}.parquet"), false),
            (format!("added-x/part-00000-{id}.parquet"), false),
            (format!("added-0-{id}.parquet"), false),
            (format!("added-00000-{id}.c000.parquet"), false),
            (format!("added-00000-{}.parquet", id.simple()), false),
            (format!("added-2024-01-31-{id}.parquet"), false),
            ("added-00000.parquet".to_owned(), false),
            ("added-rows.parquet".to_owned(), false),
            ("added.parquet".to_owned(), false),
        ] {
            assert_eq!(is_added(&path), is, "{path}");
        }
        assert_eq!(name_start(None), "added");
    }
}

//! The rows of a segment that pass a test, file by file: only files that have some take memory and time.

use lakemark_format::{SegmentDirectory, SegmentFile};
use lakemark_index::bitmap::SegmentRows;
use lakemark_index::{Candidates, RowSet, Truth};

/// Where there are more rows than this for each file, files are looked at one by one.
const MANY_ROWS: u64 = 4;

/// A file in which rows pass, or may pass.
#[derive(Debug)]
struct FoundInFile {
    /// Its place in the segment's directory.
    place: usize,
    candidates: Candidates,
}

/// The rows of a segment that pass a test.
#[derive(Debug)]
pub(super) struct FoundRows {
    /// By place, ascending.
    files: Vec<FoundInFile>,
    /// The rows of the segment where the test is NULL.
    nulls: RowSet,
}

impl FoundRows {
    /// What was found in a segment with this directory.
    pub(super) fn of(rows: SegmentRows, directory: &SegmentDirectory) -> Self {
        let passing = if rows.opaque.is_empty() { rows.t.clone() } else { rows.t.or(&rows.opaque) };
        let in_file = |place: usize| {
            let entry = directory.files.get(place)?;
            Some(FoundInFile { place, candidates: rows.candidates(entry.base, end_of(entry)) })
        };
        let files = files_with(&passing, &directory.files).into_iter().filter_map(in_file).collect();
        Self { files, nulls: rows.n }
    }

    /// The candidates of a file, by its place and entry in the directory.
    pub(super) fn candidates(&self, place: usize, entry: &SegmentFile) -> Candidates {
        let found = self.files.binary_search_by_key(&place, |found| found.place).ok();
        if let Some(found) = found.and_then(|at| self.files.get(at)) {
            return found.candidates.clone();
        }
        let nulls = self.nulls.slice(entry.base, end_of(entry));
        match nulls.is_empty() {
            true => Candidates::constant(Truth::False, nulls.universe()),
            false => Candidates::exact(RowSet::empty(nulls.universe()), nulls),
        }
    }

    /// The places in the directory of files in which rows may pass.
    pub(super) fn hits(&self) -> impl Iterator<Item = usize> + '_ {
        self.files.iter().filter(|found| found.candidates.may_be(Truth::True)).map(|found| found.place)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let of_file = |found: &FoundInFile| size_of::<FoundInFile>() + found.candidates.memory_bytes();
        self.nulls.memory_bytes() + self.files.iter().map(of_file).sum::<usize>()
    }
}

/// The row behind the last one of a file.
fn end_of(entry: &SegmentFile) -> u32 {
    entry.base.saturating_add(entry.rows() as u32)
}

/// The places of the files that have some of these rows, ascending; all files where rows are many.
fn files_with(rows: &RowSet, files: &[SegmentFile]) -> Vec<usize> {
    if u64::from(rows.len()) > MANY_ROWS.saturating_mul(files.len() as u64) {
        return (0..files.len()).collect();
    }
    let (mut found, mut next) = (Vec::new(), 0);
    for range in rows.iter_ranges() {
        let left = files.get(next..).unwrap_or_default();
        next += left.partition_point(|entry| end_of(entry) <= range.start);
        while files.get(next).is_some_and(|entry| entry.base < range.end) {
            found.push(next);
            next += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(base: u32, rows: u32) -> SegmentFile {
        SegmentFile { path: base.to_string(), base, row_groups: vec![rows], footer_hash: 0, column_hash: 0 }
    }

    /// Files of 50 rows at each 64th place.
    fn files(count: u32) -> Vec<SegmentFile> {
        (0..count).map(|file| entry(file * 64, 50)).collect()
    }

    #[test]
    fn files_are_found_by_their_rows_and_once_each() {
        let files = files(40);
        let with = |rows: Vec<u32>| files_with(&RowSet::from_rows(rows, 40 * 64), &files);
        assert_eq!(with(vec![3, 5, 49, 64, 130, 131, 2500]), [0, 1, 2, 39]);
        assert_eq!(with(vec![60, 63]), [0; 0], "rows between files are of none");
        assert_eq!(files_with(&RowSet::from_range(40..200, 40 * 64), &files).len(), 4);
        assert_eq!(files_with(&RowSet::full(40 * 64), &files).len(), 40);
    }

    #[test]
    fn a_file_without_a_hit_is_false_but_for_its_nulls() {
        let files = files(10);
        let set = |rows: &[u32]| RowSet::from_rows(rows.to_vec(), 640);
        let rows = SegmentRows { t: set(&[70]), n: set(&[71, 129]), opaque: set(&[200]) };
        let directory = |place: usize| &files[place];
        let passing = rows.t.or(&rows.opaque);
        let hits = files_with(&passing, &files);
        assert_eq!(hits, [1, 3]);
        let in_file = |place: usize| FoundInFile {
            place,
            candidates: rows.candidates(directory(place).base, end_of(directory(place))),
        };
        let found = FoundRows { files: hits.into_iter().map(in_file).collect(), nulls: rows.n.clone() };
        for place in 0..files.len() {
            let (expected, got) = (
                rows.candidates(directory(place).base, end_of(directory(place))),
                found.candidates(place, directory(place)),
            );
            let all = |of: &Candidates| (of.t(), of.f(), of.n(), of.universe());
            assert_eq!(all(&got), all(&expected), "{place}");
        }
        assert_eq!(found.hits().collect::<Vec<_>>(), [1, 3]);
    }
}

//! The rows that a probe selected, file by file, as a segment has them.

use lakemark_format::posting;
use lakemark_format::segment::{PostingRef, SegmentDirectory};
use lakemark_index::RowSet;

use super::sources::IndexedFile;
use crate::snapshot::{FileProbe, FileProbes};
use crate::store::segments::Damage;

/// Rows that a scan decodes to get at one: about a page.
const PAGE_ROWS: u32 = 8192;

/// Whether no row of a file is exact, so that nothing is to be counted there.
pub(super) fn has_nothing(file: &FileProbe) -> bool {
    file.exact_rows().is_some_and(RowSet::is_empty)
}

/// The selected rows of a data file in an open segment.
#[derive(Clone, Debug)]
pub(super) struct ChosenRows {
    pub covered: IndexedFile,
    pub rows: RowSet,
}

impl ChosenRows {
    /// Those of a file that a probe found some in, if the segment has as many rows of it.
    pub(super) fn of(covered: &IndexedFile, files: &FileProbes) -> Option<Self> {
        let rows = files.get(covered.file).and_then(FileProbe::exact_rows)?;
        let is_chosen = rows.universe() == covered.rows && !rows.is_empty();
        is_chosen.then(|| Self { covered: covered.clone(), rows: rows.clone() })
    }

    /// Those of a file that the probe knows, also where it found none. It does not know how many rows a file has that is ruled out.
    pub(super) fn even_if_none(covered: IndexedFile, files: &FileProbes) -> Option<Self> {
        let rows = files.get(covered.file).and_then(FileProbe::exact_rows)?;
        if rows.is_empty() {
            let rows = RowSet::empty(covered.rows);
            return Some(Self { covered, rows });
        }
        (rows.universe() == covered.rows).then(|| Self { covered, rows: rows.clone() })
    }
}

/// Leaves files out whose selected rows have values that the index does not know; `bytes` is the list of such rows.
pub(super) fn drop_opaque(
    chosen: &mut Vec<ChosenRows>,
    bytes: &[u8],
    list: PostingRef,
    directory: &SegmentDirectory,
) -> Result<(), Damage> {
    if list.rows == 0 {
        return Ok(());
    }
    let mut opaque: Vec<u32> = Vec::new();
    posting::decode(bytes, list.rows, directory.universe, &mut opaque).map_err(Damage::corrupt)?;
    chosen.retain(|ChosenRows { covered, rows }| {
        let first = opaque.partition_point(|row| *row < covered.base);
        let own = opaque.get(first..).unwrap_or_default().iter().map(|row| row - covered.base);
        !own.take_while(|row| *row < covered.rows).any(|row| rows.contains(row))
    });
    Ok(())
}

/// How many rows are selected in all files.
pub(super) fn total_of(chosen: &[ChosenRows]) -> u64 {
    chosen.iter().map(|chosen| u64::from(chosen.rows.len())).sum()
}

/// About how many rows a scan would decode to get at some of them.
pub(super) fn touched_rows(rows: &RowSet) -> u64 {
    let pages = (0..rows.universe().div_ceil(PAGE_ROWS)).map(|page| page * PAGE_ROWS);
    let touched = pages.filter(|&first| rows.count_in(first, first.saturating_add(PAGE_ROWS)) > 0);
    touched.count() as u64 * u64::from(PAGE_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_touches_whole_pages() {
        assert_eq!(touched_rows(&RowSet::from_rows(vec![3, 4, 20_000], 100_000)), 2 * u64::from(PAGE_ROWS));
        assert_eq!(touched_rows(&RowSet::empty(100_000)), 0);
    }
}

//! Row sets as the access plans of DataFusion's Parquet reader.

use std::ops::Range;

use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use lakemark_index::RowSet;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

/// A part of a file: the chosen rows of some neighbouring row groups.
pub(crate) struct Piece {
    /// What to read of each row group of the file.
    pub(crate) plan: ParquetAccessPlan,
    /// How many rows that is.
    pub(crate) rows: u64,
}

/// Cuts the chosen rows of a file into pieces of about `rows_per_piece` rows, at row groups.
pub(crate) fn pieces(row_groups: &[u32], rows: &RowSet, rows_per_piece: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plan = vec![RowGroupAccess::Skip; row_groups.len()];
    let (mut chosen, mut start) = (0u64, 0u32);
    for (ordinal, &length) in row_groups.iter().enumerate() {
        let end = start.saturating_add(length);
        let selected = rows.count_in(start, end);
        if selected > 0
            && let Some(access) = plan.get_mut(ordinal)
        {
            *access = if selected == length {
                RowGroupAccess::Scan
            } else {
                RowGroupAccess::Selection(selection(&rows.slice(start, end)))
            };
            chosen += u64::from(selected);
        }
        if chosen >= rows_per_piece.max(1) {
            let done = std::mem::replace(&mut plan, vec![RowGroupAccess::Skip; row_groups.len()]);
            pieces.push(Piece { plan: ParquetAccessPlan::new(done), rows: chosen });
            chosen = 0;
        }
        start = end;
    }
    if chosen > 0 {
        pieces.push(Piece { plan: ParquetAccessPlan::new(plan), rows: chosen });
    }
    pieces
}

/// The rows of a set as alternating skips and selects over its universe.
pub(crate) fn selection(rows: &RowSet) -> RowSelection {
    let mut selectors = Vec::new();
    let mut at = 0u32;
    for Range { start, end } in rows.iter_ranges() {
        if start > at {
            selectors.push(RowSelector::skip((start - at) as usize));
        }
        selectors.push(RowSelector::select((end - start) as usize));
        at = end;
    }
    if at < rows.universe() {
        selectors.push(RowSelector::skip((rows.universe() - at) as usize));
    }
    RowSelection::from(selectors)
}

/// The first `limit` rows of a set.
pub(crate) fn first_rows(rows: &RowSet, limit: u64) -> RowSet {
    if u64::from(rows.len()) <= limit {
        return rows.clone();
    }
    let mut left = u32::try_from(limit).unwrap_or(u32::MAX);
    let mut first = lakemark_index::RowSetBuilder::new(rows.universe());
    for Range { start, end } in rows.iter_ranges() {
        if left == 0 {
            break;
        }
        let taken = left.min(end - start);
        first.insert_range(start..start + taken);
        left -= taken;
    }
    first.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors(access: &RowGroupAccess) -> Vec<(bool, usize)> {
        match access {
            RowGroupAccess::Skip => vec![],
            RowGroupAccess::Scan => vec![(true, usize::MAX)],
            RowGroupAccess::Selection(selection) => {
                selection.iter().map(|selector| (!selector.skip, selector.row_count)).collect()
            }
        }
    }

    #[test]
    fn rows_become_skips_and_selects_per_row_group() {
        let rows = RowSet::from_rows(vec![2, 3, 9, 10, 11, 12, 13], 20);
        let pieces = pieces(&[5, 4, 5, 6], &rows, u64::MAX);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].rows, 7);
        let plan: Vec<_> = pieces[0].plan.inner().iter().map(selectors).collect();
        assert_eq!(plan, [vec![(false, 2), (true, 2), (false, 1)], vec![], vec![(true, usize::MAX)], vec![]]);
    }

    #[test]
    fn pieces_share_no_row_and_lose_none() {
        let rows = RowSet::full(30);
        let cut = pieces(&[10, 10, 10], &rows, 15);
        assert_eq!(cut.iter().map(|piece| piece.rows).collect::<Vec<_>>(), [20, 10]);
        let scans =
            |piece: &Piece| -> Vec<bool> { piece.plan.inner().iter().map(RowGroupAccess::should_scan).collect() };
        assert_eq!(scans(&cut[0]), [true, true, false]);
        assert_eq!(scans(&cut[1]), [false, false, true]);
        assert_eq!(pieces(&[10, 10, 10], &RowSet::empty(30), 15).len(), 0);
    }

    #[test]
    fn a_limit_cuts_a_set() {
        let rows = RowSet::from_rows(vec![1, 2, 5, 6, 7, 19], 20);
        assert_eq!(first_rows(&rows, 4).iter().collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!(first_rows(&rows, 0).len(), 0);
        assert_eq!(first_rows(&rows, 100).len(), 6);
    }
}

//! Row sets as the access plans of DataFusion's Parquet reader.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::datasource::physical_plan::parquet::{ParquetAccessPlan, RowGroupAccess};
use lakemark_index::RowSet;
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

/// What is read of a file.
pub(crate) struct FileAccess {
    pub(crate) plan: ParquetAccessPlan,
    /// Rows of each row group.
    pub(crate) row_groups: Arc<[u32]>,
    pub(crate) pages: Pages,
}

/// A file that is read, and what of it.
pub(crate) struct ReadFile {
    /// The file.
    pub(crate) file: PartitionedFile,
    /// What is read.
    pub(crate) access: FileAccess,
}

impl ReadFile {
    /// The file with all that is read of it.
    pub(crate) fn whole(self) -> PartitionedFile {
        self.file.with_extension(self.access.plan)
    }
}

/// Whether a file has an index of its pages. Without one the reader of a row reads and unpacks all of its row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    Indexed,
    Unindexed,
}

impl Pages {
    /// As this footer says. Writers make an index for all row groups.
    pub(crate) fn of(footer: &ParquetMetaData) -> Self {
        let is_indexed =
            |group: &RowGroupMetaData| group.columns().iter().all(|column| column.offset_index_offset().is_some());
        if footer.row_groups().first().is_some_and(is_indexed) { Self::Indexed } else { Self::Unindexed }
    }
}

/// A part of a file: the selected rows of some neighbouring row groups.
pub(crate) struct AccessSplit {
    /// What to read of each row group of the file.
    pub(crate) plan: ParquetAccessPlan,
    /// What it costs to read this, as the number of rows whose reading costs as much.
    pub(crate) cost: u64,
}

/// Fewer rows than these of a row group are not cut: two readers would open the same pages.
const LEAST_ROWS: u64 = 1 << 15;
/// To unpack so many rows costs as much as to decode one and to hand it on.
const UNPACKED_ROWS: u64 = 2;

/// Whether so many rows may be more than one piece.
pub(crate) fn is_worth_cutting(rows: u64) -> bool {
    rows >= 2 * LEAST_ROWS
}

/// Whether it matters if the pages of a file with these row groups have an index. In smaller row groups nothing is cut, and little is
/// unpacked in vain.
pub(crate) fn do_pages_matter(row_groups: &[u32]) -> bool {
    is_worth_cutting(row_groups.iter().map(|&rows| u64::from(rows)).sum())
}

/// The selected rows of each row group.
pub(crate) fn plan_of(row_groups: &[u32], rows: &RowSet) -> ParquetAccessPlan {
    let mut start = 0u32;
    let accesses = row_groups.iter().map(|&length| {
        let end = start.saturating_add(length);
        let access = match rows.count_in(start, end) {
            0 => RowGroupAccess::Skip,
            selected if selected == length => RowGroupAccess::Scan,
            _ => RowGroupAccess::Selection(selection(&rows.slice(start, end))),
        };
        start = end;
        access
    });
    ParquetAccessPlan::new(accesses.collect())
}

impl FileAccess {
    /// The selected rows of a file.
    pub(crate) fn of(row_groups: &[u32], rows: &RowSet, pages: Pages) -> Self {
        Self { plan: plan_of(row_groups, rows), row_groups: row_groups.into(), pages }
    }

    /// What it costs to read this, as the number of rows whose reading costs as much.
    pub(crate) fn cost(&self) -> u64 {
        self.plan.inner().iter().zip(self.row_groups.iter()).map(|(access, &length)| self.cost_of(access, length)).sum()
    }

    fn cost_of(&self, access: &RowGroupAccess, length: u32) -> u64 {
        match (rows_of(access, length), self.pages) {
            (0, _) => 0,
            (rows, Pages::Indexed) => rows,
            (rows, Pages::Unindexed) => rows.max(u64::from(length) / UNPACKED_ROWS),
        }
    }

    /// Whether more than one partition may read of the file.
    fn is_divisible(&self) -> bool {
        let lengths = self.plan.inner().iter().zip(self.row_groups.iter());
        let mut read = lengths.map(|(access, &length)| rows_of(access, length)).filter(|&rows| rows > 0);
        match (read.next(), read.next()) {
            (Some(rows), None) => self.pages == Pages::Indexed && is_worth_cutting(rows),
            (_, other) => other.is_some(),
        }
    }

    /// Cuts what is read of a file into pieces of about such a cost. It cuts at row groups, and within those that cost many times as much
    /// and whose pages have an index.
    pub(crate) fn cut(&self, cost_per_piece: u64) -> Vec<AccessSplit> {
        let nothing = || vec![RowGroupAccess::Skip; self.row_groups.len()];
        let (mut pieces, mut open, mut cost) = (Vec::new(), nothing(), 0u64);
        let mut close = |open: &mut Vec<RowGroupAccess>, cost: &mut u64| {
            let plan = ParquetAccessPlan::new(std::mem::replace(open, nothing()));
            pieces.push(AccessSplit { plan, cost: std::mem::take(cost) });
        };
        let per_piece = cost_per_piece.max(1);
        for ((ordinal, access), &length) in self.plan.inner().iter().enumerate().zip(self.row_groups.iter()) {
            let rows = rows_of(access, length);
            let parts = match self.pages {
                Pages::Indexed => (rows.saturating_add(per_piece / 2) / per_piece).min(rows / LEAST_ROWS),
                Pages::Unindexed => 1,
            };
            for (number, part) in parts_of(access.clone(), length, parts).into_iter().enumerate() {
                // A piece has one part of a row group.
                if number > 0 && cost > 0 {
                    close(&mut open, &mut cost);
                }
                cost += self.cost_of(&part, length);
                if let Some(access) = open.get_mut(ordinal) {
                    *access = part;
                }
                if cost >= per_piece {
                    close(&mut open, &mut cost);
                }
            }
        }
        if cost > 0 {
            close(&mut open, &mut cost);
        }
        pieces
    }
}

/// How many rows are read of a row group of so many.
pub(crate) fn rows_of(access: &RowGroupAccess, length: u32) -> u64 {
    match access {
        RowGroupAccess::Skip => 0,
        RowGroupAccess::Scan => length.into(),
        RowGroupAccess::Selection(rows) => rows.row_count() as u64,
    }
}

/// What is read of a row group in parts of about as many rows each, none of which begins before another one ends.
fn parts_of(access: RowGroupAccess, length: u32, parts: u64) -> Vec<RowGroupAccess> {
    if parts < 2 {
        return vec![access];
    }
    let per_part = usize::try_from(rows_of(&access, length).div_ceil(parts)).unwrap_or(usize::MAX);
    let selectors: Vec<RowSelector> = match access {
        RowGroupAccess::Skip => return vec![access],
        RowGroupAccess::Scan => vec![RowSelector::select(length as usize)],
        RowGroupAccess::Selection(rows) => rows.into(),
    };
    let (mut found, mut open, mut passed, mut chosen) = (Vec::new(), Vec::new(), 0, 0);
    let mut close = |open: &mut Vec<RowSelector>, passed: usize| {
        let mut rows = std::mem::replace(open, vec![RowSelector::skip(passed)]);
        rows.push(RowSelector::skip(length as usize - passed));
        rows.retain(|selector| selector.row_count > 0);
        found.push(RowGroupAccess::Selection(RowSelection::from(rows)));
    };
    for selector in selectors {
        let mut left = selector.row_count;
        while !selector.skip && chosen + left >= per_part {
            let taken = per_part - chosen;
            open.push(RowSelector::select(taken));
            (passed, left, chosen) = (passed + taken, left - taken, 0);
            close(&mut open, passed);
        }
        open.push(RowSelector { row_count: left, ..selector });
        passed += left;
        chosen += if selector.skip { 0 } else { left };
    }
    if chosen > 0 {
        close(&mut open, passed);
    }
    found
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

/// Shares what is read of files evenly among at most so many partitions; within one the order of the files is kept. Files are cut at row
/// groups where a partition would have more than its share, and finer where that is not even. Of three files of ten row groups each of two
/// partitions reads fifteen.
pub(crate) fn share(files: Vec<ReadFile>, partitions: usize) -> Vec<FileGroup> {
    let cost: u64 = files.iter().map(|read| read.access.cost()).sum();
    let even = cost.div_ceil(partitions.max(1) as u64).max(1);
    let mut best: Option<PieceShares> = None;
    for pieces_of_a_share in PIECES_OF_A_SHARE {
        let dealt = PieceShares::of(&files, even.div_ceil(pieces_of_a_share), partitions);
        if best.as_ref().is_none_or(|best| dealt.most < best.most) {
            best = Some(dealt);
        }
        let is_even = best.as_ref().is_some_and(|best| best.most <= even + even / UNEVEN);
        if is_even || !files.iter().any(|read| read.access.is_divisible()) {
            break;
        }
    }
    best.map(|best| best.groups(files)).unwrap_or_default()
}

/// Into so many pieces a partition's share is cut, if fewer are not even.
const PIECES_OF_A_SHARE: [u64; 2] = [1, 4];
/// A share may be too large by less than this part of it.
const UNEVEN: u64 = 8;

/// What is read of a file by one partition.
struct FilePiece {
    /// The number of the file.
    file: usize,
    /// What is read.
    plan: ParquetAccessPlan,
}

/// Pieces of files, dealt out to partitions.
struct PieceShares {
    /// By partition: the numbers of its pieces.
    members: Vec<Vec<usize>>,
    /// In the order of files.
    pieces: Vec<FilePiece>,
    /// The largest cost of a partition.
    most: u64,
}

impl PieceShares {
    /// Deals the largest piece first, to the partition that has least.
    fn of(files: &[ReadFile], cost_per_piece: u64, partitions: usize) -> Self {
        let (mut pieces, mut by_cost) = (Vec::with_capacity(files.len()), Vec::with_capacity(files.len()));
        for (file, read) in files.iter().enumerate() {
            for piece in read.access.cut(cost_per_piece) {
                by_cost.push((pieces.len(), piece.cost));
                pieces.push(FilePiece { file, plan: piece.plan });
            }
        }
        by_cost.sort_by_key(|(_, cost)| Reverse(*cost));
        let mut loads = vec![(0u64, Vec::new()); partitions.min(pieces.len()).max(1)];
        for (piece, cost) in by_cost {
            if let Some((load, members)) = loads.iter_mut().min_by_key(|(load, _)| *load) {
                *load += cost;
                members.push(piece);
            }
        }
        let most = loads.iter().map(|(load, _)| *load).max().unwrap_or(0);
        Self { members: loads.into_iter().map(|(_, members)| members).collect(), pieces, most }
    }

    fn groups(self, files: Vec<ReadFile>) -> Vec<FileGroup> {
        let mut pieces: Vec<Option<FilePiece>> = self.pieces.into_iter().map(Some).collect();
        let mut group = |mut members: Vec<usize>| {
            members.sort_unstable();
            let mut read: Vec<FilePiece> = Vec::with_capacity(members.len());
            for piece in members {
                let Some(piece) = pieces.get_mut(piece).and_then(Option::take) else { continue };
                match read.last_mut() {
                    Some(last) if last.file == piece.file && are_apart(&last.plan, &piece.plan) => {
                        unite(&mut last.plan, piece.plan);
                    }
                    _ => read.push(piece),
                }
            }
            read
        };
        let groups: Vec<_> = self.members.into_iter().map(&mut group).collect();
        let mut left: Vec<usize> = vec![0; files.len()];
        for piece in groups.iter().flatten() {
            if let Some(left) = left.get_mut(piece.file) {
                *left += 1;
            }
        }
        let mut files: Vec<Option<PartitionedFile>> = files.into_iter().map(|read| Some(read.file)).collect();
        // The partition that has the last piece of a file has the file itself.
        let mut of_file = |number: usize| -> Option<PartitionedFile> {
            let left = left.get_mut(number)?;
            *left -= 1;
            let file = files.get_mut(number)?;
            if *left == 0 { file.take() } else { file.clone() }
        };
        let mut opened = |piece: FilePiece| of_file(piece.file).map(|file| file.with_extension(piece.plan));
        groups.into_iter().map(|read| FileGroup::new(read.into_iter().filter_map(&mut opened).collect())).collect()
    }
}

/// Whether two plans for a file read of different row groups.
fn are_apart(one: &ParquetAccessPlan, other: &ParquetAccessPlan) -> bool {
    one.inner().iter().zip(other.inner()).all(|(one, other)| !one.should_scan() || !other.should_scan())
}

/// Reads what another plan reads, too, of other row groups.
fn unite(plan: &mut ParquetAccessPlan, other: ParquetAccessPlan) {
    let one = std::mem::replace(plan, ParquetAccessPlan::new_none(0)).into_inner().into_iter();
    let both = one.zip(other.into_inner()).map(|(one, other)| if one.should_scan() { one } else { other });
    *plan = ParquetAccessPlan::new(both.collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors(access: &RowGroupAccess) -> Vec<RowSelector> {
        match access {
            RowGroupAccess::Skip => vec![],
            RowGroupAccess::Scan => vec![RowSelector::select(usize::MAX)],
            RowGroupAccess::Selection(selection) => selection.iter().copied().collect(),
        }
    }

    #[test]
    fn rows_become_skips_and_selects_per_row_group() {
        let rows = RowSet::from_rows(vec![2, 3, 9, 10, 11, 12, 13], 20);
        let pieces = FileAccess::of(&[5, 4, 5, 6], &rows, Pages::Indexed).cut(u64::MAX);
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].cost, 7);
        let plan: Vec<_> = pieces[0].plan.inner().iter().map(selectors).collect();
        let first = vec![RowSelector::skip(2), RowSelector::select(2), RowSelector::skip(1)];
        assert_eq!(plan, [first, vec![], vec![RowSelector::select(usize::MAX)], vec![]]);
    }

    #[test]
    fn pieces_share_no_row_and_lose_none() {
        let rows = RowSet::full(30);
        let cut = FileAccess::of(&[10, 10, 10], &rows, Pages::Indexed).cut(15);
        assert_eq!(cut.iter().map(|piece| piece.cost).collect::<Vec<_>>(), [20, 10]);
        let scans =
            |piece: &AccessSplit| -> Vec<bool> { piece.plan.inner().iter().map(RowGroupAccess::should_scan).collect() };
        assert_eq!(scans(&cut[0]), [true, true, false]);
        assert_eq!(scans(&cut[1]), [false, false, true]);
        assert_eq!(FileAccess::of(&[10, 10, 10], &RowSet::empty(30), Pages::Indexed).cut(15).len(), 0);
    }

    #[test]
    fn row_groups_without_an_index_of_their_pages_are_unpacked_once() {
        let length = 10 * LEAST_ROWS as u32;
        let few =
            RowSet::from_rows((0..600).map(|row| row * 7).chain([length + 1, 2 * length + 3]).collect(), 3 * length);
        let access = FileAccess::of(&[length; 3], &few, Pages::Unindexed);
        let cut = access.cut(access.cost().div_ceil(3));
        let costs: Vec<u64> = cut.iter().map(|piece| piece.cost).collect();
        assert_eq!(costs, [u64::from(length) / UNPACKED_ROWS; 3]);
        let all = RowSet::full(length);
        assert_eq!(FileAccess::of(&[length], &all, Pages::Unindexed).cut(u64::from(length) / 2).len(), 1);
    }

    #[test]
    fn row_groups_with_many_rows_are_cut() {
        let length = 10 * LEAST_ROWS as u32;
        let every_other: Vec<u32> = (0..length).filter(|row| row % 2 == 0).collect();
        for rows in [RowSet::full(length), RowSet::from_rows(every_other, length)] {
            let cut = FileAccess::of(&[length], &rows, Pages::Indexed).cut(u64::from(rows.len()) / 2 + 1000);
            let counts: Vec<u64> = cut.iter().map(|piece| piece.cost).collect();
            assert_eq!((counts.len(), counts.iter().sum::<u64>()), (2, u64::from(rows.len())));
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 3, "{counts:?}");
            let mut read = Vec::new();
            for piece in &cut {
                let RowGroupAccess::Selection(rows) = &piece.plan.inner()[0] else { panic!("a part") };
                let selectors: Vec<RowSelector> = rows.clone().into();
                assert_eq!(selectors.iter().map(|selector| selector.row_count).sum::<usize>(), length as usize);
                let mut at = 0;
                for selector in selectors {
                    let end = at + selector.row_count as u32;
                    read.extend((at..end).filter(|_| !selector.skip));
                    at = end;
                }
            }
            assert_eq!(read, rows.iter().collect::<Vec<_>>());
        }
        assert_eq!(FileAccess::of(&[1000], &RowSet::full(1000), Pages::Indexed).cut(10).len(), 1);
    }

    #[test]
    fn files_are_shared_evenly_by_row_groups() {
        let file = |name: &str| PartitionedFile::new(name, 1_000);
        for (files, row_groups, partitions) in [(3, 10, 2), (9, 8, 8), (1, 10, 2), (100, 1, 3), (2, 1, 4)] {
            let access =
                |pages| FileAccess::of(&vec![1_000; row_groups], &RowSet::full(1_000 * row_groups as u32), pages);
            let read = |number: usize| ReadFile { file: file(&format!("f{number}")), access: access(Pages::Unindexed) };
            let groups = share((0..files).map(read).collect(), partitions);
            let read = |group: &FileGroup| -> usize {
                let plans = group.files().iter().filter_map(|file| file.extension::<ParquetAccessPlan>());
                plans.map(|plan| plan.inner().iter().filter(|access| access.should_scan()).count()).sum()
            };
            let loads: Vec<usize> = groups.iter().map(read).collect();
            assert_eq!(loads.iter().sum::<usize>(), files * row_groups);
            let even = (files * row_groups).div_ceil(partitions);
            assert!(loads.iter().all(|load| *load <= even + even / UNEVEN as usize), "{loads:?}");
        }
    }

    #[test]
    fn a_limit_cuts_a_set() {
        let rows = RowSet::from_rows(vec![1, 2, 5, 6, 7, 19], 20);
        assert_eq!(first_rows(&rows, 4).iter().collect::<Vec<_>>(), [1, 2, 5, 6]);
        assert_eq!(first_rows(&rows, 0).len(), 0);
        assert_eq!(first_rows(&rows, 100).len(), 6);
    }
}

//! When one decode for several queries is cheaper than one for each.
//!
//! ```text
//! private    Σ read(rows, columns)
//! shared     read(∪ rows, ∪ columns) + Σ select(∪ rows → rows)
//! ```
//!
//! Sharing has to win by a factor and by a time, as estimates are rough. All costs are nanoseconds of one core. What reading takes, the
//! table says ([`RowsToRead`]), with the constants that choose between searches and scans. What selecting takes is measured here:
//! Arrow's filter on batches of 8,192 rows took 0.6 to 3 a row and 0.4 to 0.8 a value, at 2% to 98% of the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use lakemark_table::{ColumnReadCost, RowSet, RowsToRead, pages_alone};

use super::piece_rows::{ChosenRows, PieceRows, PlannedRows};

/// Sharing has to win by this factor, and by these nanoseconds: a pass has a lock, wakers and pages that leave the cache.
const FACTOR: f64 = 1.1;
const NANOSECONDS: f64 = 20_000.0;
/// To take rows out of a batch: for each row of the batch, and for each value of a column.
const SELECT_ROW: f64 = 1.0;
const SELECT_VALUE: f64 = 0.6;
/// A scan that finds nobody lets others enter where it decodes for so many nanoseconds, or longer. For that it opens a row group by itself,
/// which is estimated at 40 µs: 2% of a query half of which is decoding.
const LEAST_LONE: f64 = 1_000_000.0;
/// It does so with runs of so many rows, or more: to make a set of rows is estimated at 40 ns a run.
const LONE_ROWS_OF_RUN: f64 = 256.0;
/// So many nanoseconds of reading rows that lie apart are a turn: to open the file takes 2% of that.
const SCATTERED_TURN: f64 = 2_000_000.0;
/// Rows of a batch. One of which all rows are taken costs nothing, nor does one of which none is.
const BATCH_ROWS: u64 = 8_192;

/// Columns by their places in the table, each with what it costs to read.
pub(crate) type ColumnCosts = BTreeMap<usize, ColumnReadCost>;

/// What a query wants of a row group.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    rows: PieceRows,
    /// One for all pieces of a scan.
    columns: Arc<ColumnCosts>,
    /// Whether a part of the rows can be read without what lies before them.
    is_divisible: bool,
    /// Whether others may enter where its scan reads it, and find nobody worse off.
    is_open: bool,
}

impl Piece {
    /// Rows of a row group, which is their universe, and columns.
    pub(crate) fn new(rows: RowSet, columns: impl Into<Arc<ColumnCosts>>) -> Self {
        Self::of(PieceRows::Chosen(ChosenRows::new(rows)), columns.into())
    }

    /// Rows as a scan planned them, and columns.
    pub(crate) fn planned(rows: PlannedRows, columns: impl Into<Arc<ColumnCosts>>) -> Self {
        Self::of(PieceRows::Planned(Arc::new(rows)), columns.into())
    }

    fn of(rows: PieceRows, columns: Arc<ColumnCosts>) -> Self {
        Self { rows, columns, is_divisible: false, is_open: true }
    }

    /// The same piece, of which a part can be read without what lies before it, or cannot.
    pub(crate) fn divisible(self, is_divisible: bool) -> Self {
        Self { is_divisible, ..self }
    }

    /// The same piece, which others may enter where its scan reads it, or may not: a reader may leave out rows of it that zone maps do not
    /// rule out, and a pass reads them all.
    pub(crate) fn open(self, is_open: bool) -> Self {
        Self { is_open, ..self }
    }

    /// Other rows of the row group.
    pub(crate) fn with_rows(&self, rows: RowSet) -> Self {
        Self::new(rows, Arc::clone(&self.columns)).divisible(self.is_divisible).open(self.is_open)
    }

    pub(crate) fn is_divisible(&self) -> bool {
        self.is_divisible
    }

    /// At most how many rows it has. That stays the same, whoever looks at them.
    pub(crate) fn most_rows(&self) -> u32 {
        self.rows.most()
    }

    /// Its rows, which somebody else wants some of, or which are cut.
    pub(crate) fn rows(&self) -> &RowSet {
        &self.rows.chosen().set
    }

    /// Whether somebody looked at its rows.
    pub(crate) fn is_seen(&self) -> bool {
        self.rows.is_seen()
    }

    /// Whether its scan reads it as a pass of one, which others may enter: it has so many rows, or more, and to decode them takes long enough.
    /// Of rows that nobody looked at, that is what they are at most.
    pub(crate) fn is_lone(&self, least_rows: u32, terms: Terms) -> bool {
        let rows = if self.is_seen() { self.rows().len() } else { self.most_rows() };
        let is_long = f64::from(rows) * together(&self.columns).decode >= LEAST_LONE;
        let pays = is_long && are_dense(rows, self.rows.runs());
        self.is_open && rows >= least_rows.max(1) && (terms == Terms::Always || pays)
    }

    /// About what it takes to read it alone; nobody looks at its rows for that.
    pub(crate) fn rough_cost(&self) -> f64 {
        self.rows.to_read_roughly().cost(together(&self.columns))
    }

    /// As how many rows it counts in a turn: where its rows lie apart, what is stepped over takes most of the time. A turn of `least` rows
    /// has [`SCATTERED_TURN`] of that.
    pub(crate) fn turn_rows(&self, least: u32) -> u32 {
        let rows = self.most_rows();
        if are_dense(rows, self.rows.runs()) {
            return rows;
        }
        let turns = self.rough_cost() / SCATTERED_TURN;
        rows.max((turns * f64::from(least)).min(f64::from(u32::MAX)) as u32)
    }

    /// Its rows, if they are not those that its scan planned.
    pub(crate) fn other_rows(&self) -> Option<&RowSet> {
        match &self.rows {
            PieceRows::Planned(_) => None,
            PieceRows::Chosen(chosen) => Some(&chosen.set),
        }
    }

    pub(crate) fn columns(&self) -> &ColumnCosts {
        &self.columns
    }

    /// To read it alone.
    fn cost(&self) -> f64 {
        self.rows.chosen().to_read().cost(together(&self.columns))
    }

    /// What it costs to read so many rows of it, in pages with so many rows that are not read without it.
    fn added_cost(&self, rows: u32, pages: f64) -> f64 {
        let whole = self.rows.chosen().to_read();
        let selected = f64::from(rows);
        RowsToRead { selected, touched: pages.max(selected), ..whole }.cost(together(&self.columns))
    }

    /// Both pieces of a query.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let both = self.columns.iter().chain(other.columns.iter()).map(|(place, cost)| (*place, *cost));
        let is_same = Arc::ptr_eq(&self.columns, &other.columns);
        let columns = if is_same { Arc::clone(&self.columns) } else { Arc::new(both.collect()) };
        let both = Self::new(self.rows().or(other.rows()), columns);
        both.divisible(self.is_divisible && other.is_divisible).open(self.is_open && other.is_open)
    }
}

/// What several pieces cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// If each query reads its own.
    pub(crate) private: f64,
    /// If one decode gives them all.
    pub(crate) shared: f64,
}

impl Prediction {
    /// Whether to share is cheaper for sure.
    pub(crate) fn wins(self, terms: Terms) -> bool {
        terms == Terms::Always || self.private > FACTOR * self.shared + NANOSECONDS
    }
}

/// When scans share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Terms {
    /// Where that is predicted to be cheaper.
    #[default]
    WherePays,
    /// Wherever they have something in common: for tests, whose tables are small.
    Always,
}

/// Pieces that are worth one decode.
#[derive(Clone, Debug)]
pub(crate) struct PieceGroup {
    /// The places of these pieces, ascending.
    pub(crate) members: Vec<usize>,
    /// What is decoded for them.
    pub(crate) rows: RowSet,
    pub(crate) columns: ColumnCosts,
    pub(crate) prediction: Prediction,
}

/// Those of some pieces of a row group that are worth one decode; none if no two of them are.
///
/// A piece takes part if reading it alone costs more than what it adds: rows that nobody else wants, pages that nobody else touches, and
/// taking its rows out. So rows that lie apart are shared as well, none of which two queries want: of each page they touch most is unpacked
/// for either. Whoever is left out makes the union smaller, so that the others are looked at again.
pub(crate) fn group(pieces: &[&Piece], terms: Terms) -> Option<PieceGroup> {
    let mut members: Vec<usize> = (0..pieces.len()).collect();
    while members.len() > 1 {
        let chosen: Vec<&Piece> = members.iter().filter_map(|&place| pieces.get(place).copied()).collect();
        let Overlap { union, common } = Overlap::of(&chosen);
        let selecting: Vec<f64> = chosen.iter().map(|piece| select(&union, piece)).collect();
        let alone = pages_alone(&chosen.iter().map(|piece| piece.rows()).collect::<Vec<_>>());
        let gains = chosen.iter().zip(&selecting).zip(alone).map(|((piece, select), pages)| {
            let shared_rows = piece.rows().and(&common).len();
            let is_cheaper = piece.cost() > piece.added_cost(piece.rows().len() - shared_rows, pages) + select;
            is_cheaper || (terms == Terms::Always && shared_rows > 0)
        });
        let left: Vec<usize> =
            members.iter().copied().zip(gains).filter(|(_, gains)| *gains).map(|(at, _)| at).collect();
        if left.len() < members.len() {
            members = left;
            continue;
        }
        let columns: ColumnCosts =
            chosen.iter().flat_map(|piece| piece.columns.iter()).map(|(place, cost)| (*place, *cost)).collect();
        let read = RowsToRead::of(&union).cost(together(&columns));
        let private = chosen.iter().map(|piece| piece.cost()).sum();
        let prediction = Prediction { private, shared: read + selecting.iter().sum::<f64>() };
        return prediction.wins(terms).then_some(PieceGroup { members, rows: union, columns, prediction });
    }
    None
}

/// Whether so many rows lie in so few runs that making a set of them costs little beside reading them.
fn are_dense(rows: u32, runs: f64) -> bool {
    (runs - 1.0) * LONE_ROWS_OF_RUN <= f64::from(rows)
}

/// A piece by itself: what a scan decodes that finds nobody, for whoever enters.
pub(crate) fn of_one(piece: &Piece) -> PieceGroup {
    let alone = piece.cost();
    let prediction = Prediction { private: alone, shared: alone };
    PieceGroup { members: vec![0], rows: piece.rows().clone(), columns: piece.columns().clone(), prediction }
}

/// What a piece costs alone, and what it costs if the rows that a pass still gives are taken from there and the others are read.
pub(crate) fn of_entry(piece: &Piece, rest_of_pass: &RowSet, taken: &RowSet, left: &RowSet) -> Prediction {
    let columns = together(&piece.columns);
    let selected = select_rows(rest_of_pass, taken, columns);
    Prediction { private: piece.cost(), shared: selected + RowsToRead::of(left).cost(columns) }
}

/// What several pieces have in common.
struct Overlap {
    /// Rows that one of them has.
    union: RowSet,
    /// Rows that two of them have.
    common: RowSet,
}

impl Overlap {
    fn of(pieces: &[&Piece]) -> Self {
        let universe = pieces.first().map_or(0, |piece| piece.rows().universe());
        let none = Self { union: RowSet::empty(universe), common: RowSet::empty(universe) };
        pieces.iter().fold(none, |Self { union, common }, piece| Self {
            common: common.or(&union.and(piece.rows())),
            union: union.or(piece.rows()),
        })
    }
}

fn together(columns: &ColumnCosts) -> ColumnReadCost {
    columns.values().copied().fold(ColumnReadCost::default(), ColumnReadCost::plus)
}

/// To take a piece's rows out of those that are decoded.
fn select(decoded: &RowSet, piece: &Piece) -> f64 {
    select_rows(decoded, piece.rows(), together(&piece.columns))
}

fn select_rows(decoded: &RowSet, rows: &RowSet, columns: ColumnReadCost) -> f64 {
    if rows.len() == decoded.len() {
        return 0.0;
    }
    // A batch reaches as far as it needs to have its rows.
    let universe = u64::from(decoded.universe());
    let reach = (BATCH_ROWS * universe / u64::from(decoded.len()).max(1)).clamp(1, universe.max(1));
    let reach = u32::try_from(reach).unwrap_or(u32::MAX);
    let starts = (0..decoded.universe()).step_by(reach as usize);
    let filtered = starts.map(|start| {
        let end = start.saturating_add(reach);
        let (of_batch, wanted) = (decoded.count_in(start, end), rows.count_in(start, end));
        if wanted == 0 || wanted == of_batch { 0.0 } else { f64::from(of_batch) }
    });
    filtered.sum::<f64>() * (SELECT_ROW + SELECT_VALUE * columns.count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u32 = 122_880;

    fn piece(rows: RowSet, columns: std::ops::Range<usize>) -> Piece {
        Piece::new(
            rows,
            columns.map(|place| (place, ColumnReadCost { count: 1.0, decode: 4.0 })).collect::<ColumnCosts>(),
        )
    }

    fn part(range: std::ops::Range<u32>) -> RowSet {
        RowSet::from_range(range, ROWS)
    }

    fn every(step: u32) -> RowSet {
        RowSet::from_rows((0..ROWS).step_by(step as usize).collect(), ROWS)
    }

    fn members(pieces: &[Piece]) -> Vec<usize> {
        group(&pieces.iter().collect::<Vec<_>>(), Terms::WherePays).map(|group| group.members).unwrap_or_default()
    }

    #[test]
    fn a_piece_that_nobody_else_wants_is_not_shared() {
        assert_eq!(members(&[]), [0_usize; 0]);
        assert_eq!(members(&[piece(part(0..ROWS), 0..4)]), [0_usize; 0]);
    }

    #[test]
    fn equal_pieces_are_shared_and_cost_what_one_costs() {
        let pieces = [piece(part(0..ROWS), 0..4), piece(part(0..ROWS), 0..4)];
        let found = group(&pieces.iter().collect::<Vec<_>>(), Terms::WherePays).unwrap();
        let alone = f64::from(ROWS) * 16.0;
        assert_eq!(found.prediction, Prediction { private: 2.0 * alone, shared: alone });
        assert_eq!((found.members, found.rows.len(), found.columns.len()), (vec![0, 1], ROWS, 4));
    }

    #[test]
    fn a_small_gain_is_not_worth_a_pass() {
        // 2,000 rows of one column cost 8 µs, and nothing that is saved of that makes 20 µs.
        let small = RowSet::full(2_000);
        assert_eq!(members(&[piece(small.clone(), 0..1), piece(small, 0..1)]), [0_usize; 0]);
    }

    #[test]
    fn rows_in_common_may_be_shared_whatever_it_saves() {
        let group_of = |pieces: &[&Piece]| group(pieces, Terms::Always).map(|group| group.members);
        let (one, other) = (piece(part(0..10), 0..1), piece(part(9..12), 3..4));
        assert_eq!(group_of(&[&one, &other]), Some(vec![0, 1]));
        assert_eq!((group_of(&[&one]), group_of(&[&one, &piece(part(50_000..50_002), 0..1)])), (None, None));
    }

    #[test]
    fn rows_apart_are_shared_where_they_lie_in_pages_that_others_touch() {
        let apart = |first: u32| RowSet::from_rows((first..ROWS).step_by(1_000).collect(), ROWS);
        let pieces = [piece(apart(0), 0..4), piece(apart(7), 0..4), piece(apart(500), 0..4)];
        assert_eq!(members(&pieces), [0, 1, 2]);
        let found = group(&pieces.iter().collect::<Vec<_>>(), Terms::WherePays).unwrap();
        assert!(found.rows.len() == 369 && found.prediction.private > 2.0 * found.prediction.shared);
        // Pages that no other one touches cost as much either way.
        let far = [piece(part(10..20), 0..4), piece(part(60_010..60_020), 0..4)];
        assert_eq!(members(&far), [0_usize; 0]);
    }

    #[test]
    fn rows_that_nobody_else_wants_are_read_alone() {
        let (first, second) = (part(0..ROWS / 2), part(ROWS / 2..ROWS));
        assert_eq!(members(&[piece(first.clone(), 0..4), piece(second.clone(), 0..4)]), [0_usize; 0]);
        let three = [piece(first.clone(), 0..4), piece(second, 0..9), piece(first, 0..4)];
        assert_eq!(members(&three), [0, 2]);
    }

    #[test]
    fn queries_of_different_columns_share_only_the_columns_in_common() {
        let all = part(0..ROWS);
        assert_eq!(members(&[piece(all.clone(), 0..4), piece(all.clone(), 4..8)]), [0_usize; 0]);
        assert_eq!(members(&[piece(all.clone(), 0..4), piece(all, 1..5)]), [0, 1]);
    }

    #[test]
    fn a_few_rows_are_not_taken_out_of_many() {
        let pieces = [piece(part(0..ROWS), 0..4), piece(part(0..ROWS), 0..4), piece(part(7..9), 0..4)];
        assert_eq!(members(&pieces), [0, 1, 2], "one batch is filtered, and pages are touched for two rows");
        let scattered = RowSet::from_rows(vec![9, 20_009, 40_009, 60_009], ROWS);
        let cheap = Piece::new(scattered, ColumnCosts::from([(9, ColumnReadCost { count: 1.0, decode: 0.1 })]));
        assert_eq!(members(&[pieces[0].clone(), pieces[1].clone(), cheap]), [0, 1]);
    }

    #[test]
    fn much_that_a_scan_reads_by_itself_may_be_entered_and_little_may_not() {
        let is_lone = |piece: &Piece| piece.is_lone(1_000, Terms::WherePays);
        let all = piece(part(0..ROWS), 0..4);
        assert!(is_lone(&all) && !is_lone(&all.clone().open(false)) && !all.is_lone(ROWS + 1, Terms::WherePays));
        // Rows that lie in many runs, and few values.
        assert!(!is_lone(&piece(every(2), 0..8)) && !is_lone(&piece(part(0..ROWS), 0..1)));
        let is_always = |piece: &Piece| piece.is_lone(0, Terms::Always);
        assert!(is_always(&piece(every(2), 0..1)) && !is_always(&piece(part(0..0), 0..1)));
        assert!(!is_lone(&all.with_rows(part(0..999))) && !is_lone(&all.open(false).with_rows(part(0..ROWS - 1))));
        let planned = |rows: RowSet| Piece::planned(PlannedRows::new(ROWS, move || rows.clone()), all_columns());
        let (few, many) = (planned(part(0..10)), planned(part(9..ROWS)));
        assert!(is_lone(&few) && is_lone(&many) && !few.is_seen());
        let scattered = PlannedRows::new(ROWS, || RowSet::full(ROWS)).in_runs(ROWS as usize / 200);
        assert!(!is_lone(&Piece::planned(scattered, all_columns())));
        assert_eq!((few.rows().len(), is_lone(&few)), (10, false));
        assert_eq!((many.rows().len(), is_lone(&many)), (ROWS - 9, true));
        assert_eq!(of_one(&many).rows, part(9..ROWS));
    }

    fn all_columns() -> ColumnCosts {
        (0..4).map(|place| (place, ColumnReadCost { count: 1.0, decode: 4.0 })).collect()
    }

    #[test]
    fn whole_batches_cost_nothing_to_select() {
        let columns = ColumnReadCost { count: 4.0, decode: 16.0 };
        let all = part(0..ROWS);
        assert_eq!(select_rows(&all, &part(0..8_192), columns), 0.0);
        assert_eq!(select_rows(&all, &part(0..8_193), columns), 8_192.0 * (1.0 + 0.6 * 4.0));
        assert_eq!(select_rows(&all, &every(2), columns), f64::from(ROWS) * (1.0 + 0.6 * 4.0));
        assert_eq!(select_rows(&every(2), &every(2), columns), 0.0);
    }

    #[test]
    fn a_late_query_enters_while_enough_is_left() {
        let wanted = piece(part(0..ROWS), 0..4);
        let enters = |at: u32| of_entry(&wanted, &part(at..ROWS), &part(at..ROWS), &part(0..at)).wins(Terms::WherePays);
        assert!(enters(0) && enters(ROWS / 2));
        assert!(!enters(ROWS - 1_000));
    }
}

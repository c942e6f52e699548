//! Row sets: selected rows of one data file (or of one segment), by physical position.
//!
//! A [`RowSet`] lives in a *universe* of `n` rows, `0..n`, and has one of four forms. The density
//! decides which is cheapest, so that combining a selective set with a dense one costs what the
//! selective one holds:
//!
//! ```text
//! Empty                      no row
//! Full                       every row
//! List    [3, 17, 90210]     4 bytes a row, sorted; while fewer than 1 row in 32 is selected
//! Bitmap  0b0101…            1 bit a row of the universe
//! ```
//!
//! Invariants: positions are below the universe; a list is strictly ascending; bits of a
//! bitmap beyond the universe are zero; `Empty` and `Full` are canonical (no list or bitmap
//! holds none or all of the rows).

mod builder;
mod count;
mod lists;
mod words;

use std::ops::Range;
use std::sync::Arc;

pub use builder::RowSetBuilder;
use lists::{intersect_lists, merge_lists};
use words::{clear_bit, count_bits, cut_words, find_bit, for_each_bit, get_bit, set_bit, set_range, trim, word_count};

/// A list costs 32 bits a row, a bitmap one: below this density the list is smaller.
const BITS_PER_LIST_ROW: u32 = 32;
const WORD_BITS: usize = u64::BITS as usize;

/// Selected rows among `universe` rows. A clone shares the rows.
#[derive(Clone, Debug)]
pub struct RowSet {
    universe: u32,
    form: RowSetForm,
}

#[derive(Clone, Debug)]
enum RowSetForm {
    Empty,
    Full,
    List(Arc<Vec<u32>>),
    Bitmap { words: Arc<Vec<u64>>, len: u32 },
}

impl RowSet {
    /// No row of `universe` rows.
    #[must_use]
    pub fn empty(universe: u32) -> Self {
        Self { universe, form: RowSetForm::Empty }
    }

    /// Every row of `universe` rows.
    #[must_use]
    pub fn full(universe: u32) -> Self {
        let form = if universe == 0 { RowSetForm::Empty } else { RowSetForm::Full };
        Self { universe, form }
    }

    /// The given rows. Rows outside the universe are dropped; order and repetition do not matter.
    #[must_use]
    pub fn from_rows(mut rows: Vec<u32>, universe: u32) -> Self {
        if !rows.is_sorted() {
            rows.sort_unstable();
        }
        rows.dedup();
        rows.truncate(rows.partition_point(|&row| row < universe));
        Self::from_list(rows, universe)
    }

    /// The rows of one range, cut to the universe.
    #[must_use]
    pub fn from_range(range: Range<u32>, universe: u32) -> Self {
        let end = range.end.min(universe);
        let mut builder = RowSetBuilder::new(universe);
        if range.start < end {
            builder.insert_range(range.start..end);
        }
        builder.finish()
    }

    fn from_list(rows: Vec<u32>, universe: u32) -> Self {
        let len = rows.len();
        if len == 0 {
            return Self::empty(universe);
        }
        if len == universe as usize {
            return Self::full(universe);
        }
        if prefers_list(len as u64, universe) {
            return Self { universe, form: RowSetForm::List(Arc::new(rows)) };
        }
        let mut words = vec![0u64; word_count(universe)];
        match (rows.first(), rows.last()) {
            (Some(&first), Some(&last)) if (last - first) as usize + 1 == len => set_range(&mut words, first..last + 1),
            _ => rows.iter().for_each(|&row| set_bit(&mut words, row)),
        }
        Self { universe, form: RowSetForm::Bitmap { words: Arc::new(words), len: len as u32 } }
    }

    /// Takes `ceil(universe / 64)` words whose bits beyond the universe are zero.
    fn from_words(words: Vec<u64>, universe: u32) -> Self {
        let len: u32 = words.iter().map(|word| word.count_ones()).sum();
        if len == 0 {
            return Self::empty(universe);
        }
        if len == universe {
            return Self::full(universe);
        }
        if prefers_list(u64::from(len), universe) {
            let mut rows = Vec::with_capacity(len as usize);
            for_each_bit(&words, |row| rows.push(row));
            return Self { universe, form: RowSetForm::List(Arc::new(rows)) };
        }
        Self { universe, form: RowSetForm::Bitmap { words: Arc::new(words), len } }
    }

    /// How many rows could be selected.
    #[must_use]
    pub fn universe(&self) -> u32 {
        self.universe
    }

    /// How many rows are selected.
    #[must_use]
    pub fn len(&self) -> u32 {
        match &self.form {
            RowSetForm::Empty => 0,
            RowSetForm::Full => self.universe,
            RowSetForm::List(rows) => rows.len() as u32,
            RowSetForm::Bitmap { len, .. } => *len,
        }
    }

    /// No row is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.form, RowSetForm::Empty)
    }

    /// Every row is selected (also true of the empty universe).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() == self.universe
    }

    /// Whether `row` is selected.
    #[must_use]
    pub fn contains(&self, row: u32) -> bool {
        match &self.form {
            RowSetForm::Empty => false,
            RowSetForm::Full => row < self.universe,
            RowSetForm::List(rows) => rows.binary_search(&row).is_ok(),
            RowSetForm::Bitmap { words, .. } => get_bit(words, row),
        }
    }

    /// Rows selected in both sets.
    ///
    /// Sets of different universes have no common meaning; the result then has the smaller universe.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let universe = self.universe.min(other.universe);
        match (&self.form, &other.form) {
            (RowSetForm::Empty, _) | (_, RowSetForm::Empty) => Self::empty(universe),
            (RowSetForm::Full, _) => other.clone(),
            (_, RowSetForm::Full) => self.clone(),
            (RowSetForm::List(a), RowSetForm::List(b)) => Self::from_list(intersect_lists(a, b), universe),
            (RowSetForm::List(list), RowSetForm::Bitmap { words, .. })
            | (RowSetForm::Bitmap { words, .. }, RowSetForm::List(list)) => {
                let rows = list.iter().copied().filter(|&row| get_bit(words, row)).collect();
                Self::from_list(rows, universe)
            }
            (RowSetForm::Bitmap { words: a, .. }, RowSetForm::Bitmap { words: b, .. }) => {
                Self::from_words(a.iter().zip(b.iter()).map(|(a, b)| a & b).collect(), universe)
            }
        }
    }

    /// Rows selected in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        match (&self.form, &other.form) {
            (RowSetForm::Empty, _) | (_, RowSetForm::Full) => other.clone(),
            (_, RowSetForm::Empty) | (RowSetForm::Full, _) => self.clone(),
            (RowSetForm::List(a), RowSetForm::List(b)) => Self::from_list(merge_lists(a, b), self.universe),
            (RowSetForm::List(list), RowSetForm::Bitmap { words, .. })
            | (RowSetForm::Bitmap { words, .. }, RowSetForm::List(list)) => {
                let mut words = words.to_vec();
                for &row in list.iter() {
                    set_bit(&mut words, row);
                }
                Self::from_words(words, self.universe)
            }
            (RowSetForm::Bitmap { words: a, .. }, RowSetForm::Bitmap { words: b, .. }) => {
                Self::from_words(a.iter().zip(b.iter()).map(|(a, b)| a | b).collect(), self.universe)
            }
        }
    }

    /// Rows of this set that the other has not.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        match (&self.form, &other.form) {
            (RowSetForm::Empty, _) | (_, RowSetForm::Full) => Self::empty(self.universe),
            (_, RowSetForm::Empty) => self.clone(),
            (RowSetForm::List(list), _) => {
                let rows = list.iter().copied().filter(|&row| !other.contains(row)).collect();
                Self::from_list(rows, self.universe)
            }
            (RowSetForm::Full | RowSetForm::Bitmap { .. }, _) => {
                let mut words = self.to_words();
                match &other.form {
                    RowSetForm::List(list) => list.iter().for_each(|&row| clear_bit(&mut words, row)),
                    RowSetForm::Bitmap { words: b, .. } => {
                        words.iter_mut().zip(b.iter()).for_each(|(a, b)| *a &= !b);
                    }
                    RowSetForm::Empty | RowSetForm::Full => {}
                }
                Self::from_words(words, self.universe)
            }
        }
    }

    /// Rows of the universe that are not selected.
    #[must_use]
    pub fn not(&self) -> Self {
        Self::full(self.universe).minus(self)
    }

    /// Whether every row of this set is in the other.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }

    /// The selected rows of `start..end`, renumbered from zero; the universe is the range's length.
    ///
    /// Cutting a bitmap at a multiple of 64 copies words; elsewhere it shifts them.
    #[must_use]
    pub fn slice(&self, start: u32, end: u32) -> Self {
        let end = end.min(self.universe);
        let start = start.min(end);
        let universe = end - start;
        if universe == self.universe {
            return self.clone();
        }
        match &self.form {
            RowSetForm::Empty => Self::empty(universe),
            RowSetForm::Full => Self::full(universe),
            RowSetForm::List(rows) => {
                let from = rows.partition_point(|&row| row < start);
                let to = rows.partition_point(|&row| row < end);
                let cut = rows.get(from..to).unwrap_or_default();
                Self::from_list(cut.iter().map(|&row| row - start).collect(), universe)
            }
            RowSetForm::Bitmap { words, .. } => Self::from_words(cut_words(words, start, universe), universe),
        }
    }

    /// How many rows of `start..end` are selected.
    #[must_use]
    pub fn count_in(&self, start: u32, end: u32) -> u32 {
        let end = end.min(self.universe);
        let start = start.min(end);
        match &self.form {
            RowSetForm::Empty => 0,
            RowSetForm::Full => end - start,
            RowSetForm::List(rows) => {
                (rows.partition_point(|&row| row < end) - rows.partition_point(|&row| row < start)) as u32
            }
            RowSetForm::Bitmap { words, .. } => count_bits(words, start..end),
        }
    }

    /// Bytes of memory that the rows take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.form {
            RowSetForm::Empty | RowSetForm::Full => 0,
            RowSetForm::List(rows) => rows.capacity() * size_of::<u32>(),
            RowSetForm::Bitmap { words, .. } => words.capacity() * size_of::<u64>(),
        }
    }

    /// The selected rows in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.iter_ranges().flatten()
    }

    /// The selected rows as maximal ranges in ascending order: what a Parquet reader selects by.
    #[must_use]
    pub fn iter_ranges(&self) -> Ranges<'_> {
        Ranges { set: self, next: 0, index: 0 }
    }

    /// Hands on the selected rows 64 at a time: the number of a word, ascending, and its rows as bits. Words without a row may be left out.
    pub fn for_each_word(&self, mut visit: impl FnMut(usize, u64)) {
        match &self.form {
            RowSetForm::Empty => {}
            RowSetForm::Full => {
                let whole = self.universe as usize / WORD_BITS;
                (0..whole).for_each(|word| visit(word, u64::MAX));
                let rest = self.universe as usize % WORD_BITS;
                if rest > 0 {
                    visit(whole, (1 << rest) - 1);
                }
            }
            RowSetForm::Bitmap { words, .. } => words.iter().enumerate().for_each(|(word, bits)| visit(word, *bits)),
            RowSetForm::List(rows) => {
                for rows in rows.chunk_by(|one, next| *one as usize / WORD_BITS == *next as usize / WORD_BITS) {
                    let bits = rows.iter().fold(0, |bits, row| bits | 1 << (*row as usize % WORD_BITS));
                    rows.first().into_iter().for_each(|row| visit(*row as usize / WORD_BITS, bits));
                }
            }
        }
    }

    fn to_words(&self) -> Vec<u64> {
        match &self.form {
            RowSetForm::Bitmap { words, .. } => words.to_vec(),
            RowSetForm::Empty => vec![0; word_count(self.universe)],
            RowSetForm::Full => {
                let mut words = vec![u64::MAX; word_count(self.universe)];
                trim(&mut words, self.universe);
                words
            }
            RowSetForm::List(rows) => {
                let mut words = vec![0; word_count(self.universe)];
                rows.iter().for_each(|&row| set_bit(&mut words, row));
                words
            }
        }
    }
}

impl PartialEq for RowSet {
    fn eq(&self, other: &Self) -> bool {
        self.universe == other.universe
            && match (&self.form, &other.form) {
                (RowSetForm::Empty, RowSetForm::Empty) | (RowSetForm::Full, RowSetForm::Full) => true,
                (RowSetForm::List(a), RowSetForm::List(b)) => a == b,
                (RowSetForm::Bitmap { words: a, .. }, RowSetForm::Bitmap { words: b, .. }) => a == b,
                _ => false,
            }
    }
}
impl Eq for RowSet {}

/// Maximal ranges of a row set; see [`RowSet::iter_ranges`].
#[derive(Debug)]
pub struct Ranges<'a> {
    set: &'a RowSet,
    /// First row not yet looked at (full set and bitmap).
    next: u32,
    /// First list entry not yet looked at.
    index: usize,
}

impl Iterator for Ranges<'_> {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        match &self.set.form {
            RowSetForm::Empty => None,
            RowSetForm::Full => {
                let start = std::mem::replace(&mut self.next, self.set.universe);
                (start < self.set.universe).then_some(start..self.set.universe)
            }
            RowSetForm::List(rows) => {
                let rest = rows.get(self.index..)?;
                let start = *rest.first()?;
                let run = rest.iter().zip(start..).take_while(|(row, want)| *row == want).count();
                self.index += run;
                Some(start..start + run as u32)
            }
            RowSetForm::Bitmap { words, .. } => {
                let start = find_bit(words, self.next, true)?;
                let end = find_bit(words, start, false).unwrap_or(self.set.universe);
                self.next = end;
                Some(start..end.min(self.set.universe))
            }
        }
    }
}

pub(crate) fn prefers_list(rows: u64, universe: u32) -> bool {
    rows * u64::from(BITS_PER_LIST_ROW) <= u64::from(universe)
}

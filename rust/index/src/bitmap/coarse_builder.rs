//! The coarse level while a segment is built: the rank of every row, and where bins are cut.
//!
//! Values are merged in their order. So a value's rank is known when its rows come, and not how many values will follow. The
//! rank of every row is kept, 4 bytes a row of the row space ([`coarse_memory_bytes`]). From the ranks each bitmap is made in one
//! pass at the end.
//!
//! Bins of several values are cut where the bytes of the fine level reach the next K-th part (Wu, Madduri and Canon 2010, section
//! 4.2). So the edge of a range costs the same wherever it falls. A range reads at most two bitmaps of `b` bytes, and the shorter
//! side of each of its two edge bins. With `F` bytes of postings that is `F / 2K + 2b` on average: the more bins, the fewer bytes.
//! What bounds the bins is the size of the index. The paper takes as many bins as make both terms equal, `K = F / 4b`, for
//! postings of 8 bytes a row (WAH). Ours take 1 to 3, so that `K` would be 2 to 5 and the edges dear. Here the coarse level may
//! take a third of the fine one's bytes. The paper's own indexes came to as much (figure 8: 30% for the interval level, 41% for
//! the range level).

use std::ops::Range;

use lakemark_format::segment::encoding::{CoarseLevel, Encoding, MAX_COARSE_BITMAPS};

use super::bin_writer;

/// A coarse level over bins takes one part in this many of the fine level's bytes.
const COARSE_SHARE: u64 = 3;
/// The most bins of several values each.
const MAX_BINS: u64 = 256;
/// Bins are cut between this many shares of the fine level at least, unless there are fewer values.
const SHARES: usize = 4096;
/// Bytes of a run of rows in a posting, about.
const RUN_BYTES: u64 = 3;
/// Bytes of the directory for a bitmap, about.
const ENTRY_BYTES: u64 = 8;
/// Rows of a sample that says how clustered a column is, about.
const SAMPLE_ROWS: usize = 1 << 20;
/// Rows side by side in the sample.
const SAMPLE_RUN: usize = 4096;

/// The rank of a row that has no value. No value has it: there are fewer values than rows.
const NO_RANK: u32 = u32::MAX;

/// Bytes of memory that a merge takes for its coarse level or its bins, beside its chunks.
#[must_use]
pub fn coarse_memory_bytes(encoding: Encoding, rows: u64) -> u64 {
    match encoding {
        Encoding::Binned => bin_writer::memory_bytes(rows),
        // Slices of 16 bits a row.
        Encoding::Sliced => rows * 2,
        _ if encoding.coarse_level().is_some() => rows * size_of::<u32>() as u64,
        _ => 0,
    }
}

/// How many bins a coarse level over `values` values gets, from the bytes of the fine level and of a bitmap.
pub(super) fn bins_of_size(level: CoarseLevel, fine: u64, bitmap: u64, values: u64) -> u64 {
    let bitmaps = (fine / COARSE_SHARE + bitmap / 2) / bitmap.max(1);
    let bins = match level {
        CoarseLevel::Interval => bitmaps.saturating_mul(2),
        CoarseLevel::Range | CoarseLevel::Slices => bitmaps.saturating_add(1),
    };
    // A bin of one value is a posting once more.
    bins.clamp(1, (values / 2).clamp(1, MAX_BINS))
}

/// The ranks of the rows of a segment.
pub(super) struct Ranks {
    level: CoarseLevel,
    of_row: Vec<u32>,
    shares: Shares,
}

impl Ranks {
    /// No row has a rank yet; none without a coarse level.
    pub(super) fn new(encoding: Encoding, universe: u32) -> Option<Self> {
        let level = encoding.coarse_level()?;
        Some(Self { level, of_row: vec![NO_RANK; universe as usize], shares: Shares::default() })
    }

    /// The rows have the rank.
    pub(super) fn set(&mut self, rows: impl Iterator<Item = u32>, rank: u32) {
        for row in rows {
            if let Some(slot) = self.of_row.get_mut(row as usize) {
                *slot = rank;
            }
        }
    }

    /// The fine level of the next value takes so many bytes.
    pub(super) fn push_share(&mut self, bytes: u64) {
        self.shares.push(bytes);
    }

    /// Whether so many values fit, each its own bin.
    pub(super) fn fits(&self, values: u64) -> bool {
        self.level.bitmaps(values) <= MAX_COARSE_BITMAPS as u64
    }

    /// Cuts the values into bins: as many as the caller names, or as the sizes of both levels suggest.
    pub(super) fn bins(&self, wanted: Option<u32>) -> Vec<u32> {
        if let Some(bins) = wanted {
            return self.shares.cut(u64::from(bins).clamp(1, MAX_BINS));
        }
        let total = self.shares.total();
        let bitmap = self.bitmap_bytes().max(1);
        self.shares.cut(bins_of_size(self.level, total, bitmap, self.shares.values()))
    }

    /// Bytes of a bitmap of the level, from how often a sample of the rows crosses a place where bins could be cut.
    fn bitmap_bytes(&self) -> u64 {
        let places = self.shares.entries.len();
        let locator = Locator::new(&self.shares.entries);
        let step = (self.of_row.len() / SAMPLE_ROWS).max(1) * SAMPLE_RUN;
        let (mut crossings, mut looked_at) = (0u64, 0u64);
        for start in (0..self.of_row.len()).step_by(step) {
            let rows = self.of_row.get(start..).unwrap_or_default();
            let rows = rows.get(..SAMPLE_RUN).unwrap_or(rows);
            looked_at += rows.len() as u64;
            let mut before = None;
            for &rank in rows {
                let place = if rank == NO_RANK { places } else { locator.place(rank) };
                crossings += before.map_or(0, |before: usize| place.abs_diff(before) as u64);
                before = Some(place);
            }
        }
        let dense = self.of_row.len() as u64 / 8;
        // Every second crossing begins a run of a prefix of the values; a run of bins in between has two such ends.
        let mut runs = crossings / (2 * places.max(1) as u64) + 1;
        if self.level == CoarseLevel::Interval {
            runs *= 2;
        }
        let runs = runs.saturating_mul(self.of_row.len() as u64) / looked_at.max(1);
        dense.min(runs.saturating_mul(RUN_BYTES)) + ENTRY_BYTES
    }

    /// The bitmaps, for bins that end before these ranks; `None` for a bin for each of `values`.
    pub(super) fn selections(&self, values: u64, bins: Option<&[u32]>) -> Vec<Selection> {
        let mut ends = vec![0u32];
        for size in bins.unwrap_or_default() {
            ends.push(ends.last().copied().unwrap_or(0) + size);
        }
        let count = bins.map_or(values, |bins| bins.len() as u64);
        let end = |bin: u64| {
            let rank = u32::try_from(bin).unwrap_or(NO_RANK);
            if bins.is_some() { ends.get(rank as usize).copied().unwrap_or(NO_RANK) } else { rank }
        };
        let selection = |number: u64| match self.level {
            CoarseLevel::Slices => Selection::Bit(number as u32),
            CoarseLevel::Range => Selection::Ranks(0..end(number + 1)),
            CoarseLevel::Interval => Selection::Ranks(end(number)..end(number + count / 2)),
        };
        (0..self.level.bitmaps(count)).map(selection).collect()
    }

    /// Hands the rows of a bitmap over, ascending, some at a time.
    pub(super) fn select<E>(
        &self,
        selection: &Selection,
        mut take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut selected = vec![0u32; SAMPLE_RUN];
        for (first, ranks) in (0..).step_by(SAMPLE_RUN).zip(self.of_row.chunks(SAMPLE_RUN)) {
            let count = match selection {
                Selection::Bit(bit) => {
                    fill(&mut selected, first, ranks, |rank| rank != NO_RANK && rank >> bit & 1 == 1)
                }
                Selection::Ranks(range) => fill(&mut selected, first, ranks, |rank| range.contains(&rank)),
            };
            take(selected.get(..count).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Which ranks a bitmap holds.
pub(super) enum Selection {
    Bit(u32),
    Ranks(Range<u32>),
}

/// Writes the rows that pass to the start of `rows` without a branch for each: half of them pass, in no order.
fn fill(rows: &mut [u32], first: u32, ranks: &[u32], pass: impl Fn(u32) -> bool) -> usize {
    let mut count = 0;
    for (row, &rank) in (first..).zip(ranks) {
        if let Some(slot) = rows.get_mut(count) {
            *slot = row;
        }
        count += usize::from(pass(rank));
    }
    count
}

/// Bytes of the fine level, summed over neighbouring values so that any number of values takes little memory.
#[derive(Default)]
struct Shares {
    entries: Vec<Share>,
    /// A share is closed when it has this many bytes.
    target: u64,
}

#[derive(Clone, Copy)]
struct Share {
    /// Rank of its first value.
    first: u32,
    values: u32,
    bytes: u64,
}

impl Shares {
    fn push(&mut self, bytes: u64) {
        let first = match self.entries.last_mut() {
            Some(last) if last.bytes < self.target => {
                last.values += 1;
                last.bytes += bytes;
                return;
            }
            Some(last) => last.first + last.values,
            None => 0,
        };
        self.entries.push(Share { first, values: 1, bytes });
        if self.entries.len() > 2 * SHARES {
            self.thin_out();
        }
    }

    fn total(&self) -> u64 {
        self.entries.iter().map(|share| share.bytes).sum()
    }

    fn values(&self) -> u64 {
        self.entries.iter().map(|share| u64::from(share.values)).sum()
    }

    fn thin_out(&mut self) {
        self.target = (self.target * 2).max(self.total() / SHARES as u64).max(1);
        let mut kept: Vec<Share> = Vec::with_capacity(SHARES);
        for share in self.entries.drain(..) {
            match kept.last_mut() {
                Some(last) if last.bytes < self.target => {
                    last.values += share.values;
                    last.bytes += share.bytes;
                }
                _ => kept.push(share),
            }
        }
        self.entries = kept;
    }

    /// The values of each of at most `bins` bins of about the same bytes.
    fn cut(&self, bins: u64) -> Vec<u32> {
        let total = self.total();
        let mut sizes: Vec<u32> = Vec::new();
        let (mut values, mut before) = (0u32, 0u64);
        for share in &self.entries {
            // The next border among those at total / bins, twice that, …; a share goes to the side where most of it lies.
            let border = (sizes.len() as u64 + 1) * total / bins;
            if values > 0 && sizes.len() as u64 + 1 < bins && before + share.bytes / 2 >= border {
                sizes.push(std::mem::take(&mut values));
            }
            values += share.values;
            before += share.bytes;
        }
        if values > 0 {
            sizes.push(values);
        }
        sizes
    }
}

/// Finds the share of a rank: a table by the rank's upper bits, then a few steps.
struct Locator<'a> {
    entries: &'a [Share],
    table: Vec<u32>,
    shift: u32,
}

impl<'a> Locator<'a> {
    fn new(entries: &'a [Share]) -> Self {
        let values = entries.last().map_or(0, |last| last.first + last.values);
        let shift = (u32::BITS - values.leading_zeros()).saturating_sub(16);
        let mut table = Vec::new();
        for (place, share) in entries.iter().enumerate() {
            while table.len() <= (share.first >> shift) as usize {
                // The share that holds the first rank of the table's entry begins at it or before.
                let starts = (table.len() as u32) << shift == share.first;
                table.push(if starts { place } else { place.saturating_sub(1) } as u32);
            }
        }
        Self { entries, table, shift }
    }

    fn place(&self, rank: u32) -> usize {
        let start = self.table.get((rank >> self.shift) as usize).or(self.table.last());
        let mut place = start.copied().unwrap_or(0) as usize;
        while self.entries.get(place + 1).is_some_and(|next| next.first <= rank) {
            place += 1;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(bytes: impl Iterator<Item = u64>) -> Shares {
        let mut shares = Shares::default();
        bytes.for_each(|bytes| shares.push(bytes));
        shares
    }

    #[test]
    fn bins_hold_about_the_same_bytes() {
        // Few values with much and many with little.
        let bytes = |value: u64| if value.is_multiple_of(100) { 5000 } else { 7 + value % 13 };
        let all = shares((0..100_000).map(bytes));
        assert!(all.entries.len() <= 2 * SHARES, "{}", all.entries.len());
        let total: u64 = (0..100_000).map(bytes).sum();
        assert_eq!(all.total(), total);
        for bins in [1u64, 2, 7, 64, 256] {
            let sizes = all.cut(bins);
            assert_eq!(sizes.len() as u64, bins);
            assert_eq!(sizes.iter().sum::<u32>(), 100_000);
            let mut start = 0u64;
            for size in sizes {
                let end = start + u64::from(size);
                let held: u64 = (start..end).map(bytes).sum();
                assert!(held.abs_diff(total / bins) <= 2 * total / SHARES as u64 + 5000, "{held} of {total} in {bins}");
                start = end;
            }
        }
    }

    #[test]
    fn a_value_with_most_of_the_bytes_has_its_own_bin() {
        let all = shares([1, 1, 1000, 1, 1].into_iter());
        assert_eq!(all.cut(3), [2, 1, 2]);
        assert_eq!(all.cut(2), [2, 3]);
        assert_eq!(all.cut(1), [5]);
        assert_eq!(shares(std::iter::empty()).cut(4), [0u32; 0]);
    }

    #[test]
    fn every_rank_is_in_its_share() {
        for values in [1u32, 5, 8192, 8193, 100_000, 300_000] {
            let all = shares((0..values).map(|value| u64::from(value % 17)));
            let locator = Locator::new(&all.entries);
            for rank in (0..values).step_by(37).chain([values - 1]) {
                let share = all.entries[locator.place(rank)];
                assert!((share.first..share.first + share.values).contains(&rank), "{rank} of {values}");
            }
        }
    }

    #[test]
    fn clustered_columns_have_small_bitmaps() {
        let ranks = |rank: fn(u32) -> u32| {
            let mut ranks = Ranks::new(Encoding::RangeEquality, 1 << 20).unwrap();
            (0..1 << 20).for_each(|row| ranks.set(std::iter::once(row), rank(row)));
            (0..1024).for_each(|_| ranks.push_share(2000));
            ranks.bitmap_bytes()
        };
        let sorted = ranks(|row| row >> 10);
        let mixed = ranks(|row| row.wrapping_mul(2_654_435_761) >> 22);
        assert!(sorted < 1000, "{sorted}");
        assert_eq!(mixed, (1 << 17) + ENTRY_BYTES);
    }
}

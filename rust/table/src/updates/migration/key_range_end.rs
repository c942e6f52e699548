//! Up to which key a part of the buffered rows reaches: the lowest keys, so many that they are a fraction of all rows of runs.
//!
//! ```text
//! run 0   │ page │ page ├─page─┤ page │ page │
//! run 1   │ page ├──page──┤ page │ page │          the border is in the band between them: of these pages keys are read
//! run 2   │ page │ page ├─page──┤ page │
//! ```
//!
//! The bounds of pages are in memory, and the border is found before the lock of writers is taken. So are the rows of each run up to it:
//! the run is searched by halves, or read as a whole if it is not in the order of the key.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use lakemark_index::{RowSet, RowSetBuilder};

use crate::error::Result;
use crate::updates::key::KeyColumns;
use crate::updates::runs::active_run::ActiveRun;
use crate::updates::runs::sorted_run::{SortedRun, SortedRunRows};

/// Where a range of keys ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeEnd {
    /// A key, or the beginning of one, as bytes in the order of keys.
    pub bytes: Box<[u8]>,
    /// Whether the range has this key, too.
    pub has_key: bool,
    /// The types by which the key became bytes.
    pub types: Vec<DataType>,
}

impl RangeEnd {
    /// Whether keys of these columns compare with it as bytes: others may widen the type of a column.
    pub(super) fn is_of(&self, key: &KeyColumns) -> bool {
        self.types == key.types
    }

    fn has(&self, key: &[u8]) -> bool {
        key < self.bytes.as_ref() || (self.has_key && key == self.bytes.as_ref())
    }
}

/// A page of a run with the bounds of its first key column; none where they are not known.
pub(super) struct Page<'a> {
    of: &'a ActiveRun,
    rows: RowSet,
    pub low: Option<Box<[u8]>>,
    pub high: Option<Box<[u8]>>,
}

impl Page<'_> {
    /// How many of its rows count.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.rows.len())
    }

    /// Whether all of its keys begin below a value.
    fn is_below(&self, value: &[u8]) -> bool {
        self.high.as_ref().is_some_and(|high| high.as_ref() < value)
    }

    /// Whether all of its keys begin above a value.
    fn is_above(&self, value: &[u8]) -> bool {
        self.low.as_ref().is_some_and(|low| low.as_ref() > value)
    }
}

/// The key up to which `wanted` rows of the runs that count reach. All rows reach up to the key of the last row.
pub(super) async fn range_end_of(runs: &[ActiveRun], key: &KeyColumns, wanted: u64) -> Result<Option<RangeEnd>> {
    let mut pages = Vec::new();
    for of in runs {
        pages.extend(pages_of(of, key)?);
    }
    let band = band_of(&pages, wanted);
    let (mut left, mut keys) = (wanted, Vec::new());
    for page in &pages {
        match &band {
            Some(band) if page.is_below(&band.low) => left = left.saturating_sub(page.count()),
            Some(band) if page.is_above(&band.high) => {}
            _ => keys.extend(page.of.run.keys(key, &page.rows).await?.sorted()),
        }
    }
    keys.sort_unstable();
    let place = usize::try_from(left.max(1)).unwrap_or(usize::MAX).min(keys.len());
    Ok(place.checked_sub(1).map(|place| RangeEnd {
        bytes: keys.swap_remove(place),
        has_key: true,
        types: key.types.clone(),
    }))
}

/// Two values between which the first column of the border lies.
struct KeyBand {
    /// Fewer than `wanted` rows are below this value.
    low: Box<[u8]>,
    /// At least `wanted` rows are at or below this value.
    high: Box<[u8]>,
}

/// The band in which the border of so many rows lies; none without enough bounds.
fn band_of(pages: &[Page<'_>], wanted: u64) -> Option<KeyBand> {
    let known = || pages.iter().filter_map(|page| Some((page, page.low.as_deref()?, page.high.as_deref()?)));
    let open: u64 = pages.iter().filter(|page| page.low.is_none() || page.high.is_none()).map(Page::count).sum();
    let mut lows: Vec<(&[u8], u64)> = known().map(|(page, low, _)| (low, page.count())).collect();
    let mut highs: Vec<(&[u8], u64)> = known().map(|(page, _, high)| (high, page.count())).collect();
    lows.sort_unstable();
    highs.sort_unstable();
    let reach = |ascending: &[(&[u8], u64)], from: u64| -> Option<Box<[u8]>> {
        let mut sum = from;
        ascending.iter().find_map(|(value, count)| {
            sum += count;
            (sum >= wanted).then(|| Box::from(*value))
        })
    };
    Some(KeyBand { low: reach(&lows, open)?, high: reach(&highs, 0)? })
}

/// The pages of a run with rows that count. Without bounds of pages the whole run is one page.
pub(super) fn pages_of<'a>(of: &'a ActiveRun, key: &KeyColumns) -> Result<Vec<Page<'a>>> {
    let active = of.active();
    let whole = || vec![Page { of, rows: active.clone(), low: None, high: None }];
    let bounds = match (&of.run.rows, key.names.first(), key.types.first()) {
        (SortedRunRows::File(file), Some(name), Some(first)) => file.bounds(name, first),
        _ => None,
    };
    let Some(bounds) = bounds.filter(|_| !active.is_empty()) else {
        return Ok(if active.is_empty() { Vec::new() } else { whole() });
    };
    let (low, high) = (encoded(key, &bounds.low)?, encoded(key, &bounds.high)?);
    let mut pages = Vec::with_capacity(bounds.rows.len());
    for ((rows, low), high) in bounds.rows.into_iter().zip(low).zip(high) {
        let mut page = RowSetBuilder::new(active.universe());
        page.insert_range(rows);
        let rows = active.and(&page.finish());
        if !rows.is_empty() {
            pages.push(Page { of, rows, low, high });
        }
    }
    Ok(pages)
}

/// Bounds of the first key column as bytes in the order of keys; none where there is no bound.
pub(super) fn encoded(key: &KeyColumns, bounds: &ArrayRef) -> Result<Vec<Option<Box<[u8]>>>> {
    let rows = key.encode_first(bounds)?;
    let bound =
        |(place, bytes): (usize, arrow::row::Row<'_>)| bounds.is_valid(place).then(|| Box::from(bytes.as_ref()));
    Ok(rows.iter().enumerate().map(bound).collect())
}

/// The rows of a run that count and whose keys are in a range.
pub(super) async fn rows_in_range(of: &ActiveRun, key: &KeyColumns, end: &RangeEnd) -> Result<RowSet> {
    let active = of.active();
    if !of.run.is_in_order(key) {
        return rows_by_key(of, key, end).await;
    }
    let universe = active.universe();
    let (mut low, mut high) = (0, universe);
    while low < high {
        let middle = low.midpoint(high);
        if has_row(&of.run, key, middle, end).await? { low = middle + 1 } else { high = middle }
    }
    Ok(active.and(&RowSet::from_range(0..low, universe)))
}

async fn has_row(run: &SortedRun, key: &KeyColumns, row: u32, end: &RangeEnd) -> Result<bool> {
    let rows = run.read(&key.schema(), &RowSet::from_rows(vec![row], run.row_count())).await?;
    Ok(key.encode(&rows)?.iter().next().is_some_and(|bytes| end.has(bytes.as_ref())))
}

async fn rows_by_key(of: &ActiveRun, key: &KeyColumns, end: &RangeEnd) -> Result<RowSet> {
    let active = of.active();
    let rows = of.run.read(&key.schema(), &active).await?;
    let keys = key.encode(&rows)?;
    let taken = keys.iter().zip(active.iter()).filter(|(bytes, _)| end.has(bytes.as_ref())).map(|(_, row)| row);
    Ok(RowSet::from_rows(taken.collect(), active.universe()))
}

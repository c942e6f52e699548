//! Chunks: the rows of one row group, sorted by value. What a build sorts, spills and merges.

mod cursor;
mod source;
mod tuples;

use std::collections::HashMap;
use std::io::{self, Write};

use arrow::array::{Array, ArrayRef};
use arrow::error::ArrowError;
use lakemark_format::filter::short_hash;
use lakemark_format::key::{Key, KeyType};
use lakemark_format::riding::RidingRows;

use crate::composite::visit_rows;
use crate::elements::visit_elements;
use crate::key::{CellVisitor, KeyCell, visit};
use crate::riding::RowForms;

pub(crate) use self::cursor::ChunkCursor;
use self::cursor::Entries;
pub use self::cursor::{NextValue, ValueRows};
pub use self::source::ChunkSource;
use self::tuples::Tuples;

/// A counting sort is used while the keys of a chunk span at most this many times its rows.
const COUNTING_SORT_SPAN: u64 = 4;
/// Room is made for more rows than this only when they are there: a footer may say anything.
const MAX_RESERVED_ROWS: usize = 1 << 22;

/// Gathers the values of one row group.
#[derive(Debug)]
pub struct ChunkBuilder {
    rows: u32,
    nulls: Vec<u32>,
    opaque: Vec<u32>,
    values: GatheredValues,
    /// Rows have any number of keys.
    of_lists: bool,
    /// The bits of hashes that are the keys of values.
    hash_bits: Option<u8>,
    /// What rides along with each row, if columns do.
    riding: Option<RowForms>,
}

#[derive(Debug)]
enum GatheredValues {
    Fixed {
        keys: Vec<u64>,
        /// None while every row has a key: the rows are then 0, 1, 2, …
        rows: Option<Vec<u32>>,
    },
    /// Keys of several columns that all have one width.
    Tuples(Tuples),
    /// Byte values are numbered in the order in which they are met.
    Bytes { numbers: HashMap<Box<[u8]>, u32>, of_row: Vec<u32>, rows: Vec<u32> },
}

impl ChunkBuilder {
    /// Starts a row group of a column.
    #[must_use]
    pub fn new(key_type: &KeyType) -> Self {
        let values = if key_type.is_fixed() {
            GatheredValues::Fixed { keys: Vec::new(), rows: None }
        } else if let Some(tuples) = Tuples::of(key_type) {
            GatheredValues::Tuples(tuples)
        } else {
            GatheredValues::Bytes { numbers: HashMap::new(), of_row: Vec::new(), rows: Vec::new() }
        };
        let (of_lists, hash_bits) = (key_type.is_list(), key_type.hash_bits());
        let (nulls, opaque) = (Vec::new(), Vec::new());
        let mut builder = Self { rows: 0, nulls, opaque, values, of_lists, hash_bits, riding: None };
        if builder.of_lists {
            builder.values.name_rows();
        }
        builder
    }

    /// Makes room for so many rows at once, so that their memory is not moved while they come.
    pub fn reserve(&mut self, rows: usize) {
        if let GatheredValues::Fixed { keys, .. } = &mut self.values {
            keys.reserve(rows.min(MAX_RESERVED_ROWS));
        }
    }

    /// Adds the next rows of the row group.
    ///
    /// # Errors
    /// A type that no index serves, or more elements of lists than a row group can have.
    pub fn push(&mut self, array: &dyn Array) -> Result<(), ArrowError> {
        let mut pushing = Pushing { first: self.rows, builder: self };
        match pushing.builder.of_lists {
            true => visit_elements(array, &mut pushing)?,
            false => visit(array, &mut pushing)?,
        }
        if u32::try_from(self.values.len()).is_err() {
            let problem = format!("a row group has more than {} elements of lists", u32::MAX);
            return Err(ArrowError::InvalidArgumentError(problem));
        }
        self.rows += array.len() as u32;
        Ok(())
    }

    /// Adds the next rows of an index over several columns, as many of each.
    ///
    /// # Errors
    /// A type that no index serves, or columns of different lengths.
    pub fn push_rows(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let rows = visit_rows(columns, &mut Pushing { first: self.rows, builder: self })?;
        self.rows += rows as u32;
        Ok(())
    }

    /// Adds the next rows of the columns that ride along, as many of each. They need not come with the same rows of the key.
    ///
    /// # Errors
    /// A type that does not ride, or columns of different lengths.
    pub fn push_riding(&mut self, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        self.riding.get_or_insert_default().push(columns)
    }

    /// Adds `count` NULL rows: a file that lacks the column.
    pub fn push_nulls(&mut self, count: u32) {
        self.values.name_rows();
        self.nulls.extend(self.rows..self.rows + count);
        self.rows += count;
    }

    /// Sorts the rows by value.
    #[must_use]
    pub fn finish(self) -> Chunk {
        let Self { rows: row_count, nulls, opaque, values, of_lists, riding, .. } = self;
        let SortedRows { keys, mut ends, mut rows } = match values {
            GatheredValues::Fixed { keys, rows } => sort_fixed(&keys, rows.as_deref()),
            GatheredValues::Tuples(tuples) => tuples.sort(),
            GatheredValues::Bytes { numbers, of_row, rows } => sort_bytes(numbers, &of_row, &rows),
        };
        if of_lists {
            drop_repeats(&mut ends, &mut rows);
        }
        Chunk { row_count, nulls, opaque, keys, ends, rows, riding }
    }
}

impl GatheredValues {
    /// Keys, of all rows.
    fn len(&self) -> usize {
        match self {
            Self::Fixed { keys, .. } => keys.len(),
            Self::Tuples(tuples) => tuples.len(),
            Self::Bytes { of_row, .. } => of_row.len(),
        }
    }

    /// From here on some row has no key, so that the rows of keys have to be named.
    fn name_rows(&mut self) {
        if let Self::Fixed { keys, rows: rows @ None } = self {
            *rows = Some((0..keys.len() as u32).collect());
        }
    }
}

struct Pushing<'a> {
    first: u32,
    builder: &'a mut ChunkBuilder,
}

impl Pushing<'_> {
    /// Files NULL and opaque rows; gives back the key of any other.
    fn without_key<K>(&mut self, row: u32, cell: KeyCell<K>) -> Option<K> {
        match cell {
            KeyCell::Null => self.builder.nulls.push(row),
            KeyCell::Opaque => self.builder.opaque.push(row),
            KeyCell::Key(key) => return Some(key),
        }
        self.builder.values.name_rows();
        None
    }
}

impl CellVisitor for Pushing<'_> {
    fn fixed(&mut self, row: usize, cell: KeyCell<u64>) {
        let row = self.first + row as u32;
        if let Some(key) = self.without_key(row, cell)
            && let GatheredValues::Fixed { keys, rows } = &mut self.builder.values
        {
            keys.push(key);
            if let Some(rows) = rows {
                rows.push(row);
            }
        }
    }

    fn bytes(&mut self, row: usize, cell: KeyCell<&[u8]>) {
        if let Some(bits) = self.builder.hash_bits {
            return self.fixed(row, cell.map(|value| short_hash(value, bits)));
        }
        let row = self.first + row as u32;
        let Some(key) = self.without_key(row, cell) else { return };
        if let GatheredValues::Tuples(tuples) = &mut self.builder.values {
            tuples.push(row, key);
        } else if let GatheredValues::Bytes { numbers, of_row, rows } = &mut self.builder.values {
            let next = numbers.len() as u32;
            let number = match numbers.get(key) {
                Some(&number) => number,
                None => *numbers.entry(key.into()).or_insert(next),
            };
            of_row.push(number);
            rows.push(row);
        }
    }

    fn long_bytes(&mut self, row: usize, value: &[u8]) {
        match self.builder.hash_bits {
            // A hash has as many bits, whatever the length of the value.
            Some(bits) => self.fixed(row, KeyCell::Key(short_hash(value, bits))),
            None => self.bytes(row, KeyCell::Opaque),
        }
    }
}

/// A list may have an element several times: its row is kept once for each value.
fn drop_repeats(ends: &mut [u32], rows: &mut Vec<u32>) {
    let (mut kept, mut start) = (0, 0);
    for end in ends {
        let mut last = None;
        for place in start..*end as usize {
            let Some(&row) = rows.get(place) else { break };
            if last.replace(row) != Some(row)
                && let Some(slot) = rows.get_mut(kept)
            {
                *slot = row;
                kept += 1;
            }
        }
        start = *end as usize;
        *end = kept as u32;
    }
    rows.truncate(kept);
}

/// The rows of a row group that have keys, by key.
#[derive(Default)]
struct SortedRows {
    /// Distinct, ascending.
    keys: Vec<Key>,
    /// Where the rows of each key end.
    ends: Vec<u32>,
    rows: Vec<u32>,
}

fn sort_fixed(keys: &[u64], rows: Option<&[u32]>) -> SortedRows {
    match rows {
        None => sort_keys(keys, 0..keys.len() as u32),
        Some(rows) => sort_keys(keys, rows.iter().copied()),
    }
}

fn sort_keys(keys: &[u64], rows: impl Iterator<Item = u32>) -> SortedRows {
    let (Some(&least), Some(&most)) = (keys.iter().min(), keys.iter().max()) else {
        return SortedRows::default();
    };
    if most - least <= keys.len() as u64 * COUNTING_SORT_SPAN {
        let of_row = keys.iter().map(|key| (key - least) as u32);
        return counting_sort((most - least + 1) as usize, of_row, rows, |number| {
            Key::Fixed(least + u64::from(number))
        });
    }
    let mut pairs: Vec<(u64, u32)> = keys.iter().copied().zip(rows).collect();
    pairs.sort_unstable();
    let (mut distinct, mut ends) = (Vec::new(), Vec::new());
    for group in pairs.chunk_by(|a, b| a.0 == b.0) {
        distinct.extend(group.first().map(|&(key, _)| Key::Fixed(key)));
        ends.push(ends.last().copied().unwrap_or(0) + group.len() as u32);
    }
    SortedRows { keys: distinct, ends, rows: pairs.into_iter().map(|(_, row)| row).collect() }
}

fn sort_bytes(numbers: HashMap<Box<[u8]>, u32>, of_row: &[u32], rows: &[u32]) -> SortedRows {
    let mut sorted: Vec<(Box<[u8]>, u32)> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut rank = vec![0u32; sorted.len()];
    for (place, (_, number)) in sorted.iter().enumerate() {
        if let Some(slot) = rank.get_mut(*number as usize) {
            *slot = place as u32;
        }
    }
    let of_row = of_row.iter().filter_map(|&number| rank.get(number as usize).copied());
    counting_sort(sorted.len(), of_row, rows.iter().copied(), |place| {
        Key::Bytes(sorted.get(place as usize).map(|(key, _)| key.to_vec()).unwrap_or_default())
    })
}

/// Stable, so that the rows of each value stay ascending.
fn counting_sort(
    places: usize,
    of_row: impl Iterator<Item = u32> + Clone,
    rows: impl Iterator<Item = u32>,
    key: impl Fn(u32) -> Key,
) -> SortedRows {
    let mut ends = vec![0u32; places];
    for place in of_row.clone() {
        if let Some(count) = ends.get_mut(place as usize) {
            *count += 1;
        }
    }
    let mut next = Vec::with_capacity(places);
    let mut total = 0;
    for end in &mut ends {
        next.push(total);
        total += *end;
        *end = total;
    }
    let mut sorted = vec![0u32; total as usize];
    for (place, row) in of_row.zip(rows) {
        if let Some(slot) = next.get_mut(place as usize) {
            if let Some(out) = sorted.get_mut(*slot as usize) {
                *out = row;
            }
            *slot += 1;
        }
    }
    // Places that no row has are no values.
    let (mut keys, mut kept) = (Vec::new(), Vec::new());
    let mut before = 0;
    for (place, &end) in ends.iter().enumerate() {
        if end > before {
            keys.push(key(place as u32));
            kept.push(end);
            before = end;
        }
    }
    SortedRows { keys, ends: kept, rows: sorted }
}

/// A value of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueList<'a> {
    pub key: &'a Key,
    /// Its rows, ascending.
    pub rows: &'a [u32],
}

/// The rows of one row group by value.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunk {
    row_count: u32,
    nulls: Vec<u32>,
    opaque: Vec<u32>,
    /// Distinct, ascending.
    keys: Vec<Key>,
    /// Where the rows of each key end in `rows`.
    ends: Vec<u32>,
    rows: Vec<u32>,
    /// What rides along with each row, if columns do.
    riding: Option<RowForms>,
}

impl Chunk {
    /// Rows of the row group.
    #[must_use]
    pub fn row_count(&self) -> u32 {
        self.row_count
    }

    /// Rows that columns ride along with; none if no column does.
    #[must_use]
    pub fn riding_count(&self) -> Option<usize> {
        self.riding.as_ref().map(RowForms::len)
    }

    /// The values in their order.
    pub(crate) fn values(&self) -> impl Iterator<Item = ValueList<'_>> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let lists = starts.zip(&self.ends).map(|(start, end)| self.rows.get(*start as usize..*end as usize));
        let values = self.keys.iter().zip(lists.map(Option::unwrap_or_default));
        values.map(|(key, rows)| ValueList { key, rows })
    }

    /// What rides along with the rows of a key; nothing if no column does.
    pub(crate) fn riding_of(&self, rows: &[u32]) -> RidingRows {
        self.riding.as_ref().map(|riding| riding.of_rows(rows)).unwrap_or_default()
    }

    /// Rows that are NULL.
    pub(crate) fn nulls(&self) -> &[u32] {
        &self.nulls
    }

    /// Rows whose value has no key.
    pub(crate) fn opaque(&self) -> &[u32] {
        &self.opaque
    }

    /// Bytes of memory that the chunk takes, with what the allocator takes for each key.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let key_bytes: usize = self
            .keys
            .iter()
            .map(|key| {
                size_of::<Key>()
                    + match key {
                        Key::Fixed(_) => 0,
                        Key::Bytes(bytes) => allocated(bytes.capacity()),
                    }
            })
            .sum();
        let rows = self.nulls.capacity() + self.opaque.capacity() + self.ends.capacity() + self.rows.capacity();
        key_bytes + rows * size_of::<u32>() + self.riding.as_ref().map_or(0, RowForms::memory_bytes)
    }

    /// Writes the chunk to a temporary file, to be merged from there by [`ChunkSource::spilled`].
    ///
    /// # Errors
    /// Those of `out`.
    pub fn spill(&self, out: &mut impl Write) -> io::Result<()> {
        write_rows(out, &self.nulls)?;
        write_rows(out, &self.opaque)?;
        out.write_all(&[self.riding.is_some().into()])?;
        out.write_all(&(self.keys.len() as u64).to_le_bytes())?;
        let mut start = 0;
        for (key, &end) in self.keys.iter().zip(&self.ends) {
            match key {
                Key::Fixed(key) => out.write_all(&key.to_le_bytes())?,
                Key::Bytes(bytes) => {
                    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
                    out.write_all(bytes)?;
                }
            }
            let rows = self.rows.get(start as usize..end as usize).unwrap_or_default();
            write_rows(out, rows)?;
            if let Some(riding) = &self.riding {
                write_riding(out, &riding.of_rows(rows))?;
            }
            start = end;
        }
        out.flush()
    }

    pub(crate) fn into_cursor(self) -> ChunkCursor {
        ChunkCursor {
            nulls: self.nulls,
            opaque: self.opaque,
            entries: Entries::Memory {
                keys: self.keys.into_iter(),
                ends: self.ends.into_iter(),
                rows: self.rows,
                riding: self.riding,
                start: 0,
            },
        }
    }
}

/// What an allocation of so many bytes takes of the heap. Usual allocators keep its length beside it and give out multiples of
/// 16 bytes.
fn allocated(bytes: usize) -> usize {
    (bytes + size_of::<usize>()).next_multiple_of(16).max(32)
}

fn write_rows(out: &mut impl Write, rows: &[u32]) -> io::Result<()> {
    out.write_all(&(rows.len() as u32).to_le_bytes())?;
    rows.iter().try_for_each(|row| out.write_all(&row.to_le_bytes()))
}

/// The rows that ride, each after its length; none of a key that does not.
fn write_riding(out: &mut impl Write, riding: &RidingRows) -> io::Result<()> {
    out.write_all(&(riding.rows().count() as u32).to_le_bytes())?;
    riding.rows().try_for_each(|row| {
        out.write_all(&(row.len() as u32).to_le_bytes())?;
        out.write_all(row)
    })
}

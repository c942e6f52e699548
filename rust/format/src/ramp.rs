//! Ramps: entries of a bin whose keys and rows both go on by constant steps. A key that counts the rows is one ramp, however
//! many rows a bin has.
//!
//! ```text
//! ramps := (first-key-step, entries - 1, [key-step, row-step,] first-row-step)*
//! ```
//!
//! Ramps take the place of a posting and of an order. Their rows may stand in any order.

use std::ops::Range;

use crate::bin_block::{Bin, BinEntry, MAX_BIN_ROWS};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::posting::RowSink;

/// Rows are handed over so many at a time.
const BATCH: usize = 512;

/// Entries that follow each other: entry i has the key `first_key + i key_step` and the row `first_row + i row_step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ramp {
    /// Key of the first entry.
    pub first_key: u64,
    /// To the next key; 0 for a ramp of one entry.
    pub key_step: u64,
    /// Row of the first entry.
    pub first_row: u32,
    /// To the next row; 0 for a ramp of one entry.
    pub row_step: i64,
    /// How many.
    pub entries: u32,
}

impl Ramp {
    fn last_key(&self) -> Option<u64> {
        self.key_step.checked_mul(u64::from(self.entries - 1))?.checked_add(self.first_key)
    }

    fn row(&self, entry: u32) -> Option<u32> {
        let steps = self.row_step.checked_mul(entry.into())?;
        steps.checked_add(self.first_row.into()).and_then(|row| u32::try_from(row).ok())
    }

    fn values(&self) -> u32 {
        if self.key_step == 0 { 1 } else { self.entries }
    }

    /// How many entries have a key below `key`, or up to it if `inclusive`.
    #[must_use]
    pub fn entries_below(&self, key: u64, inclusive: bool) -> u32 {
        let Some(distance) = key.checked_sub(self.first_key) else { return 0 };
        match self.key_step {
            0 => self.entries * u32::from(distance > 0 || inclusive),
            step => {
                let below = if inclusive { u128::from(distance / step) + 1 } else { distance.div_ceil(step).into() };
                u32::try_from(below).unwrap_or(u32::MAX).min(self.entries)
            }
        }
    }

    /// The key of each entry with its row.
    pub fn iter(&self) -> impl Iterator<Item = BinEntry> + use<> {
        let ramp = *self;
        (0..ramp.entries).map_while(move |entry| {
            Some(BinEntry { key: ramp.first_key + ramp.key_step * u64::from(entry), row: ramp.row(entry)? })
        })
    }

    /// Hands the rows of some entries over.
    pub fn rows(&self, entries: Range<u32>, sink: &mut impl RowSink) {
        let entries = entries.start..entries.end.min(self.entries);
        let ends = entries.end.checked_sub(1).and_then(|last| Some((self.row(entries.start)?, self.row(last)?)));
        let Some((first, last)) = ends.filter(|_| !entries.is_empty()) else { return };
        if self.row_step.abs() <= 1 {
            return sink.run(first.min(last), entries.len() as u32);
        }
        let mut rows: Vec<u32> = entries.filter_map(|entry| self.row(entry)).collect();
        if self.row_step < 0 {
            rows.reverse();
        }
        rows.chunks(BATCH).for_each(|rows| sink.rows(rows));
    }
}

/// The ramps of entries, ascending by key and row; none if there are many for so few entries.
#[must_use]
pub fn find(keys: &[u64], rows: &[u32]) -> Option<Vec<Ramp>> {
    let most = keys.len() / 8 + 2;
    let mut ramps: Vec<Ramp> = Vec::new();
    for (&key, &row) in keys.iter().zip(rows) {
        if let Some(ramp) = ramps.last_mut() {
            let steps = (key.wrapping_sub(ramp.first_key), i64::from(row) - i64::from(ramp.first_row));
            if ramp.entries == 1 {
                (ramp.key_step, ramp.row_step) = steps;
                ramp.entries = 2;
                continue;
            }
            let next = u64::from(ramp.entries);
            if ramp.key_step.checked_mul(next) == Some(steps.0) && ramp.row_step * next.cast_signed() == steps.1 {
                ramp.entries += 1;
                continue;
            }
            if ramps.len() == most {
                return None;
            }
        }
        ramps.push(Ramp { first_key: key, key_step: 0, first_row: row, row_step: 0, entries: 1 });
    }
    Some(ramps)
}

/// The bytes of the ramps of a bin that begins with `low`.
#[must_use]
pub fn encode(ramps: &[Ramp], low: u64) -> Vec<u8> {
    let mut out = ByteWriter::new();
    let (mut key, mut row) = (low, 0u32);
    for ramp in ramps {
        out.varint(ramp.first_key.wrapping_sub(key));
        out.varint(u64::from(ramp.entries.wrapping_sub(1)));
        if ramp.entries > 1 {
            out.varint(ramp.key_step);
            out.varint_signed(ramp.row_step);
        }
        out.varint_signed(i64::from(ramp.first_row) - i64::from(row));
        key = ramp.last_key().unwrap_or(key);
        row = ramp.row(ramp.entries.wrapping_sub(1)).unwrap_or(row);
    }
    out.into_vec()
}

/// Reads the ramps of a bin.
///
/// # Errors
/// Bytes that are no ramps, or those of another bin.
pub fn decode(bytes: &[u8], bin: &Bin, universe: u32) -> Result<Vec<Ramp>> {
    let mut input = ByteReader::new("the ramps of a bin", bytes);
    let mut ramps: Vec<Ramp> = Vec::new();
    let (mut key, mut row) = (bin.low, 0u32);
    let (mut entries, mut values) = (0u32, 0u32);
    while entries < bin.rows.min(MAX_BIN_ROWS) {
        let step = input.varint()?;
        let more = input.varint()?;
        let left = bin.rows - entries;
        let count = u32::try_from(more).ok().and_then(|more| more.checked_add(1)).filter(|count| *count <= left);
        let Some(count) = count else {
            return Err(FormatError::TooLong { what: "the entries of a ramp", got: more, limit: u64::from(left - 1) });
        };
        let (key_step, row_step) = if count > 1 { (input.varint()?, input.varint_signed()?) } else { (0, 0) };
        let row_before = row;
        let first_row = input.varint_signed()?.checked_add(row_before.into()).and_then(|row| u32::try_from(row).ok());
        let ramp = first_row.zip(key.checked_add(step)).map(|(first_row, first_key)| Ramp {
            first_key,
            key_step,
            first_row,
            row_step,
            entries: count,
        });
        let ends = ramp.and_then(|ramp| Some((ramp, ramp.last_key()?, ramp.row(count - 1)?)));
        let Some((ramp, last_key, last_row)) = ends.filter(|(_, last_key, _)| *last_key <= bin.high) else {
            return Err(wrong(bin, universe));
        };
        // Entries ascend by key, and by row where the key is the same.
        let follows = ramps.is_empty() || step > 0 || ramp.first_row > row_before;
        let ascends = count == 1 || key_step > 0 || row_step > 0;
        let distinct = count == 1 || row_step != 0;
        if !(follows && ascends && distinct && ramp.first_row < universe && last_row < universe) {
            return Err(wrong(bin, universe));
        }
        values += ramp.values() - u32::from(!ramps.is_empty() && step == 0);
        entries += count;
        (key, row) = (last_key, last_row);
        ramps.push(ramp);
    }
    input.finish()?;
    let starts = ramps.first().is_some_and(|ramp| ramp.first_key == bin.low);
    if starts && key == bin.high && values == bin.values && entries == bin.rows {
        return Ok(ramps);
    }
    Err(wrong(bin, universe))
}

fn wrong(bin: &Bin, universe: u32) -> FormatError {
    FormatError::invalid(
        "the ramps of a bin",
        "of other keys or rows",
        format_args!("{} keys from {} to {} in rows below {universe}", bin.values, bin.low, bin.high),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bin(keys: &[u64]) -> Bin {
        Bin {
            low: keys[0],
            high: keys[keys.len() - 1],
            values: keys.chunk_by(|a, b| a == b).count() as u32,
            rows: keys.len() as u32,
            posting_length: 1,
            order_length: 0,
        }
    }

    fn entry(key: u64, row: u32) -> BinEntry {
        BinEntry { key, row }
    }

    fn round_trip(entries: &[BinEntry], universe: u32) -> Vec<u8> {
        let (keys, rows): (Vec<u64>, Vec<u32>) = entries.iter().map(|entry| (entry.key, entry.row)).unzip();
        let ramps = find(&keys, &rows).unwrap();
        let bytes = encode(&ramps, keys[0]);
        let read = decode(&bytes, &bin(&keys), universe).unwrap();
        assert_eq!(read, ramps);
        assert_eq!(read.iter().flat_map(Ramp::iter).collect::<Vec<_>>(), entries);
        for bound in keys.iter().flat_map(|key| [key.saturating_sub(1), *key, key.saturating_add(1)]) {
            for inclusive in [false, true] {
                let is_below = |key: u64| key < bound || inclusive && key == bound;
                let below = entries.iter().filter(|entry| is_below(entry.key)).count();
                let found: u32 = ramps.iter().map(|ramp| ramp.entries_below(bound, inclusive)).sum();
                assert_eq!(found as usize, below, "{bound}");
            }
        }
        bytes
    }

    #[test]
    fn a_key_that_counts_the_rows_is_one_ramp() {
        let entries: Vec<BinEntry> = (0..100_000).map(|row| entry((1 << 63) | (u64::from(row) + 1), row)).collect();
        assert_eq!(round_trip(&entries[..1000], 100_000).len(), 6);
        let (keys, rows): (Vec<u64>, Vec<u32>) = entries.iter().map(|entry| (entry.key, entry.row)).unzip();
        assert_eq!(encode(&find(&keys, &rows).unwrap(), keys[0]).len(), 7);
    }

    #[test]
    fn ramps_go_up_and_down_and_stand_still() {
        let up = (0..50u32).map(|i| entry(u64::from(i) * 7, i * 3));
        let same = (0..20u32).map(|i| entry(400, 1000 + i));
        let down = (0..60u32).map(|i| entry(500 + u64::from(i), 900 - i * 2));
        let entries: Vec<_> = up.chain(same).chain(down).chain([entry(u64::MAX, 5000)]).collect();
        round_trip(&entries, 5001);
        let mut rows: Vec<u32> = Vec::new();
        let ramp = Ramp { first_key: 1, key_step: 2, first_row: 900, row_step: -2, entries: 60 };
        ramp.rows(1..4, &mut rows);
        Ramp { row_step: -1, ..ramp }.rows(0..3, &mut rows);
        ramp.rows(60..70, &mut rows);
        assert_eq!(rows, [894, 896, 898, 898, 899, 900]);
    }

    #[test]
    fn entries_without_steps_are_no_ramps() {
        let keys: Vec<u64> = (0..200u64).map(|i| i * i).collect();
        assert_eq!(find(&keys, &(0..200).collect::<Vec<u32>>()), None);
    }

    #[test]
    fn ramps_of_another_bin_are_found() {
        let entries: Vec<BinEntry> = (0..40u32).map(|i| entry(u64::from(i) * 2, i)).collect();
        let bytes = round_trip(&entries, 40);
        let keys: Vec<u64> = entries.iter().map(|entry| entry.key).collect();
        let good = bin(&keys);
        for wrong in [
            Bin { low: 1, ..good },
            Bin { high: 80, ..good },
            Bin { values: 39, ..good },
            Bin { rows: 41, ..good },
            Bin { rows: 39, ..good },
        ] {
            assert!(decode(&bytes, &wrong, 40).is_err(), "{wrong:?}");
        }
        assert!(decode(&bytes, &good, 39).is_err());
        let still = Ramp { first_key: 0, key_step: 1, first_row: 3, row_step: 0, entries: 40 };
        assert!(decode(&encode(&[still], 0), &Bin { high: 39, ..good }, 40).is_err(), "one row for all keys");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), rows in 2u32..3000, span in any::<u64>()) {
            let bin = Bin { low: 5, high: 5u64.saturating_add(span), values: 2, rows, posting_length: 1, order_length: 0 };
            if let Ok(ramps) = decode(&bytes, &bin, 4000) {
                let entries: Vec<BinEntry> = ramps.iter().flat_map(Ramp::iter).collect();
                prop_assert!(entries.is_sorted_by(|a, b| a < b) && entries.len() == rows as usize);
            }
        }
    }
}

//! Which numbers of a stretch of 1,024 have a file.

use std::ops::Range;

use super::PART_FILES;
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::file_numbers::FileNumbers;

const WORDS: usize = (PART_FILES / 64) as usize;

/// A bit for each number of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Live([u64; WORDS]);

/// How a set is written. A writer takes the first form that the set has, and of the last two the shorter one.
mod form {
    pub(super) const NONE: u8 = 0;
    pub(super) const ALL: u8 = 1;
    pub(super) const RANGES: u8 = 2;
    pub(super) const BITMAP: u8 = 3;
}

impl Live {
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.0.get((slot / 64) as usize).is_some_and(|word| (word >> (slot % 64)) & 1 == 1)
    }

    pub(super) fn set(&mut self, slot: u32, is_live: bool) {
        if let Some(word) = self.0.get_mut((slot / 64) as usize) {
            let bit = 1 << (slot % 64);
            *word = if is_live { *word | bit } else { *word & !bit };
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The places of the set, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.0).flat_map(|(place, word)| {
            let bits = std::iter::successors(Some(*word), |bits| Some(bits & bits.wrapping_sub(1)));
            bits.take_while(|bits| *bits != 0).map(move |bits| 64 * place + bits.trailing_zeros())
        })
    }

    /// Those of this set that are not in the other one.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest = *self;
        rest.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
        rest
    }

    /// Writes the set, of which the first `slots` places may be members.
    pub(super) fn encode(&self, slots: u32, out: &mut ByteWriter) {
        match self.len() {
            0 => out.u8(form::NONE),
            all if all == slots => out.u8(form::ALL),
            _ => {
                let mut ranges = ByteWriter::new();
                FileNumbers::from_sorted(self.iter()).encode(&mut ranges);
                let bitmap = self.bitmap(slots);
                if ranges.len() <= bitmap.len() {
                    out.u8(form::RANGES);
                    out.bytes(ranges.as_slice());
                } else {
                    out.u8(form::BITMAP);
                    out.bytes(&bitmap);
                }
            }
        }
    }

    pub(super) fn decode(slots: u32, input: &mut ByteReader<'_>) -> Result<Self> {
        let mut live = Self::default();
        let form = input.u8()?;
        match form {
            form::NONE => {}
            form::ALL => live.fill(0..slots),
            form::RANGES => {
                let numbers = FileNumbers::decode("the numbers of a part", slots, input)?;
                numbers.ranges().iter().for_each(|range| live.fill(range.clone()));
            }
            form::BITMAP => {
                for (place, byte) in (0..).zip(input.bytes(slots.div_ceil(8) as usize)?) {
                    (0..8).filter(|bit| (byte >> bit) & 1 == 1).for_each(|bit| live.set(8 * place + bit, true));
                }
            }
            other => return Err(FormatError::invalid("the form of the numbers of a part", other, "0 to 3")),
        }
        if live.iter().any(|slot| slot >= slots) {
            return Err(FormatError::invalid("the numbers of a part", "above its last", format_args!("below {slots}")));
        }
        let mut canonical = ByteWriter::new();
        live.encode(slots, &mut canonical);
        match canonical.as_slice().first() {
            Some(shortest) if *shortest != form => {
                Err(FormatError::invalid("the form of the numbers of a part", form, shortest))
            }
            _ => Ok(live),
        }
    }

    fn fill(&mut self, slots: Range<u32>) {
        slots.for_each(|slot| self.set(slot, true));
    }

    fn bitmap(&self, slots: u32) -> Vec<u8> {
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes());
        bytes.take(slots.div_ceil(8) as usize).collect()
    }
}

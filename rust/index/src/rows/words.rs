//! Bits of a bitmap, 64 rows a word.

use std::ops::Range;

use super::WORD_BITS;

pub(super) fn word_count(universe: u32) -> usize {
    (universe as usize).div_ceil(WORD_BITS)
}

#[inline]
pub(super) fn get_bit(words: &[u64], row: u32) -> bool {
    words.get(row as usize / WORD_BITS).is_some_and(|word| word >> (row % u64::BITS) & 1 == 1)
}

#[inline]
pub(super) fn set_bit(words: &mut [u64], row: u32) {
    if let Some(word) = words.get_mut(row as usize / WORD_BITS) {
        *word |= 1 << (row % u64::BITS);
    }
}

pub(super) fn clear_bit(words: &mut [u64], row: u32) {
    if let Some(word) = words.get_mut(row as usize / WORD_BITS) {
        *word &= !(1 << (row % u64::BITS));
    }
}

pub(super) fn set_range(words: &mut [u64], range: Range<u32>) {
    let (first, last) = (range.start as usize / WORD_BITS, (range.end - 1) as usize / WORD_BITS);
    let head = u64::MAX << (range.start % u64::BITS);
    let tail = u64::MAX >> (u64::BITS - 1 - (range.end - 1) % u64::BITS);
    match words.get_mut(first..=last) {
        Some([word]) => *word |= head & tail,
        Some([start, middle @ .., end]) => {
            *start |= head;
            middle.fill(u64::MAX);
            *end |= tail;
        }
        _ => {}
    }
}

/// Clears the bits beyond the universe.
pub(super) fn trim(words: &mut [u64], universe: u32) {
    if !universe.is_multiple_of(u64::BITS)
        && let Some(last) = words.get_mut(universe as usize / WORD_BITS)
    {
        *last &= u64::MAX >> (u64::BITS - universe % u64::BITS);
    }
}

/// First position at or after `from` whose bit is `value`.
pub(super) fn find_bit(words: &[u64], from: u32, value: bool) -> Option<u32> {
    let flip = if value { 0 } else { u64::MAX };
    let first = from as usize / WORD_BITS;
    for (index, &word) in words.iter().enumerate().skip(first) {
        let mut bits = word ^ flip;
        if index == first {
            bits &= u64::MAX << (from % u64::BITS);
        }
        if bits != 0 {
            return Some((index * WORD_BITS) as u32 + bits.trailing_zeros());
        }
    }
    None
}

pub(super) fn for_each_bit(words: &[u64], mut visit: impl FnMut(u32)) {
    for (index, &word) in words.iter().enumerate() {
        let mut bits = word;
        while bits != 0 {
            visit((index * WORD_BITS) as u32 + bits.trailing_zeros());
            bits &= bits - 1;
        }
    }
}

/// How many bits of a range are set.
pub(super) fn count_bits(words: &[u64], range: Range<u32>) -> u32 {
    if range.is_empty() {
        return 0;
    }
    let (first, last) = (range.start as usize / WORD_BITS, (range.end - 1) as usize / WORD_BITS);
    let head = u64::MAX << (range.start % u64::BITS);
    let tail = u64::MAX >> (u64::BITS - 1 - (range.end - 1) % u64::BITS);
    match words.get(first..=last) {
        Some([word]) => (word & head & tail).count_ones(),
        Some([start, middle @ .., end]) => {
            let inside: u32 = middle.iter().map(|word| word.count_ones()).sum();
            (start & head).count_ones() + inside + (end & tail).count_ones()
        }
        _ => 0,
    }
}

/// `universe` bits of `words` from bit `start`.
pub(super) fn cut_words(words: &[u64], start: u32, universe: u32) -> Vec<u64> {
    let (first, shift) = (start as usize / WORD_BITS, start % u64::BITS);
    let mut cut: Vec<u64> = (first..first + word_count(universe))
        .map(|index| {
            let low = words.get(index).copied().unwrap_or(0);
            if shift == 0 {
                return low;
            }
            let high = words.get(index + 1).copied().unwrap_or(0);
            low >> shift | high << (u64::BITS - shift)
        })
        .collect();
    trim(&mut cut, universe);
    cut
}

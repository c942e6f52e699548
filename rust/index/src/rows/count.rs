//! Counting the rows that several sets have in common, without making a set of them.
//!
//! This is the last step of a conjunction of which only the number of rows matters. Each bitmap is read once, a block of words
//! at a time, and nothing is allocated for the result.

use super::words::get_bit;
use super::{RowSet, RowSetForm, intersect_lists};

/// Words of a block: it stays in the fastest cache, beside the words of the next bitmap.
const BLOCK_WORDS: usize = 512;

impl RowSet {
    /// How many rows are selected in all of these sets, which are over `universe` rows each.
    #[must_use]
    pub fn count_common(sets: &[&Self], universe: u32) -> u32 {
        let (mut lists, mut bitmaps): (Vec<&[u32]>, Vec<&[u64]>) = (Vec::new(), Vec::new());
        for set in sets {
            match &set.form {
                RowSetForm::Empty => return 0,
                RowSetForm::Full => {}
                RowSetForm::List(rows) => lists.push(rows),
                RowSetForm::Bitmap { words, .. } => bitmaps.push(words),
            }
        }
        // The shortest list first: every later one is searched for few rows.
        lists.sort_by_key(|rows| rows.len());
        match (lists.as_slice(), bitmaps.as_slice()) {
            ([], []) => universe,
            ([], bitmaps) => common_bits(bitmaps),
            ([only], bitmaps) => count_in_all(only, bitmaps),
            ([first, second, others @ ..], bitmaps) => {
                let common = intersect_lists(first, second);
                let common = others.iter().fold(common, |rows, list| intersect_lists(&rows, list));
                count_in_all(&common, bitmaps)
            }
        }
    }
}

/// How many of the rows are in every bitmap.
fn count_in_all(rows: &[u32], bitmaps: &[&[u64]]) -> u32 {
    rows.iter().filter(|row| bitmaps.iter().all(|words| get_bit(words, **row))).count() as u32
}

/// How many bits are set in every bitmap.
fn common_bits(bitmaps: &[&[u64]]) -> u32 {
    match bitmaps {
        [] => 0,
        [only] => only.iter().map(|word| word.count_ones()).sum(),
        [first, second] => first.iter().zip(second.iter()).map(|(a, b)| (a & b).count_ones()).sum(),
        [first, second, others @ ..] => {
            let mut total = 0;
            let mut block = [0u64; BLOCK_WORDS];
            for (number, (a, b)) in first.chunks(BLOCK_WORDS).zip(second.chunks(BLOCK_WORDS)).enumerate() {
                for ((word, a), b) in block.iter_mut().zip(a).zip(b) {
                    *word = a & b;
                }
                let from = number * BLOCK_WORDS;
                for words in others {
                    let words = words.get(from..).unwrap_or_default();
                    block.iter_mut().zip(words).for_each(|(word, other)| *word &= other);
                }
                total += block.iter().take(a.len()).map(|word| word.count_ones()).sum::<u32>();
            }
            total
        }
    }
}

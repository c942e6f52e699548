//! Keys of bytes in a leaf, front coded: what each shares with the one before, and the rest in as few bits as its characters need.
//!
//! ```text
//! texts     := alphabet, shared, lengths, characters       of all keys but the first
//! alphabet  := number of runs, (first, more)*              none: each character is a byte
//! ```
//!
//! Hexadecimal digits, or digits and a dash, take four bits in place of eight. The order of characters is that of their bytes.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::key::MAX_KEY_LENGTH;
use crate::packed::{PackedNumbers, decode_column, encode_column, pack, width_of};

/// The most bytes of all keys of a list in a leaf, each counted whole. Part of the format.
pub const MAX_KEY_LIST_BYTES: usize = 1 << 22;

/// Appends all texts but the first, which ascend.
pub(crate) fn encode(texts: &[&[u8]], out: &mut ByteWriter) -> Result<()> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > MAX_KEY_LIST_BYTES {
        return Err(too_long(bytes));
    }
    let (mut shared, mut lengths, mut rests) = (Vec::new(), Vec::new(), Vec::new());
    for (before, after) in texts.iter().zip(texts.iter().skip(1)) {
        if after <= before {
            return Err(FormatError::invalid("a key", "not above the one before", "ascending keys"));
        }
        let common = before.iter().zip(after.iter()).take_while(|(one, other)| one == other).count();
        let rest = after.get(common..).unwrap_or_default();
        shared.push(common as u64);
        lengths.push(rest.len() as u64);
        rests.extend_from_slice(rest);
    }
    let alphabet = Alphabet::of(&rests);
    let is_worth = alphabet.saves(rests.len());
    if is_worth {
        alphabet.encode(out);
    } else {
        out.u8(0);
    }
    encode_column(shared.iter().copied(), out);
    encode_column(lengths.iter().copied(), out);
    if is_worth {
        alphabet.pack(&rests, out);
    } else {
        out.bytes(&rests);
    }
    Ok(())
}

fn too_long(bytes: usize) -> FormatError {
    FormatError::TooLong { what: "the keys of a list", got: bytes as u64, limit: MAX_KEY_LIST_BYTES as u64 }
}

/// So many texts, of which the first is known.
pub(crate) fn decode(input: &mut ByteReader<'_>, first: &[u8], count: usize) -> Result<Vec<Vec<u8>>> {
    let others = count.saturating_sub(1);
    let alphabet = Alphabet::decode(input)?;
    let shared = decode_column(input, others, "the shared bytes of a key")?;
    let lengths = decode_column(input, others, "the length of the rest of a key")?;
    // Few bytes may stand for many: what comes out is bounded before any of it is made.
    let (mut bytes, mut characters) = (first.len(), 0usize);
    for (shared, length) in shared.iter().zip(&lengths) {
        let whole = (*shared as usize).saturating_add(*length as usize);
        if whole > MAX_KEY_LENGTH {
            return Err(FormatError::TooLong { what: "a key", got: whole as u64, limit: MAX_KEY_LENGTH as u64 });
        }
        bytes = bytes.saturating_add(whole);
        characters += *length as usize;
    }
    if bytes > MAX_KEY_LIST_BYTES {
        return Err(too_long(bytes));
    }
    let rests = alphabet.unpack(input, characters)?;
    let (mut texts, mut current, mut at) = (Vec::with_capacity(count), first.to_vec(), 0);
    texts.push(current.clone());
    for (shared, length) in shared.into_iter().zip(lengths) {
        let (shared, end) = (shared as usize, at + length as usize);
        let rest = rests.get(at..end).unwrap_or_default();
        if current.get(shared..).is_none_or(|old| rest <= old) {
            return Err(FormatError::invalid("a key", "not above the one before", "ascending keys"));
        }
        current.truncate(shared);
        current.extend_from_slice(rest);
        texts.push(current.clone());
        at = end;
    }
    Ok(texts)
}

/// Characters that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u8,
    last: u8,
}

/// The characters of texts; without runs all bytes.
#[derive(Debug)]
struct Alphabet {
    /// Ascending.
    runs: Vec<Run>,
}

impl Alphabet {
    /// The characters of some bytes, and others between these as far as they take no bits more.
    fn of(bytes: &[u8]) -> Self {
        let mut is_used = [false; 256];
        for byte in bytes {
            if let Some(slot) = is_used.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
        let mut runs: Vec<Run> = Vec::new();
        for (byte, _) in (0..=u8::MAX).zip(is_used).filter(|(_, is_used)| *is_used) {
            match runs.last_mut() {
                Some(run) if run.last.checked_add(1) == Some(byte) => run.last = byte,
                _ => runs.push(Run { first: byte, last: byte }),
            }
        }
        let mut alphabet = Self { runs };
        alphabet.join();
        alphabet
    }

    /// Joins runs, the nearest first, while their characters have as many bits.
    fn join(&mut self) {
        let most = 1usize << self.width();
        loop {
            let gaps = self.runs.iter().zip(self.runs.iter().skip(1)).map(|(run, next)| next.first - run.last - 1);
            let Some((place, gap)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) else { return };
            if self.size() + usize::from(gap) > most {
                return;
            }
            let next = self.runs.remove(place + 1);
            if let Some(run) = self.runs.get_mut(place) {
                run.last = next.last;
            }
        }
    }

    /// How many characters there are.
    fn size(&self) -> usize {
        self.runs.iter().map(|run| usize::from(run.last - run.first) + 1).sum()
    }

    /// Bits of a character.
    fn width(&self) -> u8 {
        match self.runs.is_empty() {
            true => 8,
            false => width_of(std::iter::once(self.size().saturating_sub(1) as u64)),
        }
    }

    /// Whether so many characters take an eighth less than bytes.
    fn saves(&self, characters: usize) -> bool {
        let packed = 2 * self.runs.len() + (characters * usize::from(self.width())).div_ceil(8);
        packed * 8 <= characters * 7
    }

    fn encode(&self, out: &mut ByteWriter) {
        // More runs than 127 save nothing.
        out.u8(self.runs.len() as u8);
        for run in &self.runs {
            out.u8(run.first);
            out.u8(run.last - run.first);
        }
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let count = input.u8()?;
        let mut runs: Vec<Run> = Vec::with_capacity(count.into());
        for _ in 0..count {
            let (first, more) = (input.u8()?, input.u8()?);
            let is_behind = runs.last().is_none_or(|run| run.last < first);
            match first.checked_add(more).filter(|_| is_behind) {
                Some(last) => runs.push(Run { first, last }),
                None => return Err(FormatError::invalid("the characters of an alphabet", first, "ascending runs")),
            }
        }
        Ok(Self { runs })
    }

    /// The bytes of all characters by their numbers.
    fn characters(&self) -> Vec<u8> {
        self.runs.iter().flat_map(|run| run.first..=run.last).collect()
    }

    fn pack(&self, bytes: &[u8], out: &mut ByteWriter) {
        let mut numbers = [0u8; 256];
        for (number, byte) in (0u8..).zip(self.characters()) {
            if let Some(slot) = numbers.get_mut(usize::from(byte)) {
                *slot = number;
            }
        }
        let number = |byte: &u8| u64::from(numbers.get(usize::from(*byte)).copied().unwrap_or(0));
        pack(bytes.iter().map(number), self.width(), out);
    }

    fn unpack(&self, input: &mut ByteReader<'_>, count: usize) -> Result<Vec<u8>> {
        if self.runs.is_empty() {
            return input.bytes(count).map(<[u8]>::to_vec);
        }
        let characters = self.characters();
        let numbers = PackedNumbers::read(input, count, self.width())?;
        let character = |place| {
            let number = usize::try_from(numbers.get(place)).ok();
            number.and_then(|number| characters.get(number)).copied().ok_or_else(|| {
                FormatError::invalid("a character", numbers.get(place), format_args!("below {}", characters.len()))
            })
        };
        (0..count).map(character).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(texts: &[Vec<u8>]) -> usize {
        let held: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let mut out = ByteWriter::new();
        encode(&held, &mut out).unwrap();
        let bytes = out.into_vec();
        let mut input = ByteReader::new("texts", &bytes);
        assert_eq!(decode(&mut input, &texts[0], texts.len()).unwrap(), texts);
        input.finish().unwrap();
        bytes.len()
    }

    /// Texts of so many characters that look random, in order.
    fn spread(count: u64, length: usize, alphabet: &[u8]) -> Vec<Vec<u8>> {
        let mut state = 7u64;
        let mut character = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            alphabet[(state >> 33) as usize % alphabet.len()]
        };
        let mut texts: Vec<Vec<u8>> = (0..count).map(|_| (0..length).map(|_| character()).collect()).collect();
        texts.sort();
        texts.dedup();
        texts
    }

    #[test]
    fn characters_of_few_kinds_take_their_bits() {
        // 32 digits of four bits, less what is shared.
        assert!(round_trip(&spread(100, 32, b"0123456789abcdef")) <= 100 * 16);
        assert!(round_trip(&spread(100, 20, b"ACGT")) <= 100 * 5 + 20);
        // Digits and a dash are within 16 characters, from the dash on.
        assert!(round_trip(&spread(100, 30, b"-0123456789")) <= 100 * 15);
        // 62 letters and digits are six bits of eight.
        let letters: Vec<u8> = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').collect();
        assert!(round_trip(&spread(100, 40, &letters)) <= 100 * 31);
        // All bytes take a byte each.
        let bytes: Vec<u8> = (0..=u8::MAX).collect();
        let plain = round_trip(&spread(100, 30, &bytes));
        assert!((100 * 28..=100 * 32).contains(&plain), "{plain}");
    }

    #[test]
    fn one_character_alone_takes_no_bits() {
        let texts: Vec<Vec<u8>> = (1..=100).map(|length| vec![b'x'; length]).collect();
        // One run, and two columns.
        assert!(round_trip(&texts) <= 3 + 2 + 2 + 100);
        assert!(round_trip(&[vec![], vec![0]]) < 12);
    }

    #[test]
    fn few_bytes_are_no_many_texts() {
        // An alphabet of one character, and 2,000 texts of which each has one more than the one before.
        let mut out = ByteWriter::new();
        out.bytes(&[1, b'x', 0]);
        encode_column(1..4000u64, &mut out);
        encode_column(std::iter::repeat_n(1u64, 3999), &mut out);
        let error = decode(&mut ByteReader::new("texts", out.as_slice()), b"x", 4000).unwrap_err();
        assert!(matches!(error, FormatError::TooLong { what: "the keys of a list", .. }), "{error}");
        let long = [vec![0u8; MAX_KEY_LENGTH], vec![1u8; MAX_KEY_LENGTH]].concat();
        let mut texts: Vec<Vec<u8>> = long.chunks(MAX_KEY_LENGTH).map(<[u8]>::to_vec).collect();
        round_trip(&texts);
        texts[1].push(0);
        let mut out = ByteWriter::new();
        encode(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut out).unwrap();
        assert!(decode(&mut ByteReader::new("texts", out.as_slice()), &texts[0], 2).is_err());
    }

    #[test]
    fn alphabets_have_ascending_runs() {
        let read =
            |bytes: &[u8]| Alphabet::decode(&mut ByteReader::new("an alphabet", bytes)).map(|alphabet| alphabet.runs);
        assert_eq!(read(&[2, 3, 1, 9, 0]).unwrap(), [Run { first: 3, last: 4 }, Run { first: 9, last: 9 }]);
        assert!(read(&[2, 3, 1, 4, 0]).is_err() && read(&[1, 250, 6]).is_err() && read(&[1, 250]).is_err());
        // Three characters have numbers of two bits, of which one has no character.
        let bytes = [1, b'a', 2, 0, 0, 1, 0, 3];
        assert!(decode(&mut ByteReader::new("texts", &bytes), b"a", 2).is_err());
    }

    proptest! {
        #[test]
        fn texts_round_trip(
            texts in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..20), 1..100),
            low in any::<u8>(),
            span in 1u8..,
        ) {
            round_trip(&texts.iter().cloned().collect::<Vec<_>>());
            let narrow: std::collections::BTreeSet<Vec<u8>> = texts
                .into_iter()
                .map(|text| text.into_iter().map(|byte| low.wrapping_add(byte % span)).collect())
                .collect();
            round_trip(&narrow.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn arbitrary_bytes_are_ascending_texts_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..120), count in 1usize..40) {
            if let Ok(texts) = decode(&mut ByteReader::new("texts", &bytes), b"m", count) {
                prop_assert!(texts.len() == count && texts.is_sorted_by(|a, b| a < b));
            }
        }
    }
}

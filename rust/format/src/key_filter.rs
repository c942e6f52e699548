//! A filter of the keys of a run: whether the run may have a row of a key.
//!
//! ```text
//! key of n columns ─▶ h = XXH64(the first value's key) ─▶ h = XXH64(the next one's, with the seed h) ─▶ … ─▶ filter of h
//! ```

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::filter::{self, Density};
use crate::key::{KeyType, MAX_KEY_COLUMNS};

/// The byte before the filter.
const TAG: u8 = 1;

/// A Bloom filter of the keys of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFilter {
    /// The types of the key's columns as they were hashed; one or more. Columns of other types are hashed otherwise.
    pub types: Vec<KeyType>,
    /// How dense it is.
    pub density: Density,
    /// The filter: as many bytes as the density needs for the rows of the run as its keys.
    pub bytes: Vec<u8>,
}

impl KeyFilter {
    /// The filter of keys of these types by their hashes, one for each row of the run.
    #[must_use]
    pub fn of(types: Vec<KeyType>, density: Density, hashes: &[u64]) -> Self {
        let rows = u32::try_from(hashes.len()).unwrap_or(u32::MAX);
        Self { types, density, bytes: filter::encode(density.shape(rows), hashes) }
    }

    /// Whether the run, of so many rows, may have the key of this hash.
    #[must_use]
    pub fn may_contain(&self, rows: u32, hash: u64) -> bool {
        let shape = self.density.shape(rows);
        let length = (shape.block_bits / 8) as usize;
        let start = shape.block(hash) as usize * length;
        filter::may_contain(self.bytes.get(start..).unwrap_or_default(), shape, hash)
    }

    pub(crate) fn encode(&self, rows: u32, out: &mut ByteWriter) -> Result<()> {
        self.validate(rows)?;
        out.u8(TAG);
        out.length(self.types.len());
        for of in &self.types {
            of.encode(out);
        }
        out.varint(u64::from(self.density.bits));
        out.u8(self.density.hashes);
        out.blob("the filter of a run's keys", &self.bytes, u32::MAX as usize)
    }

    pub(crate) fn decode(rows: u32, input: &mut ByteReader<'_>) -> Result<Self> {
        let tag = input.u8()?;
        if tag != TAG {
            return Err(FormatError::invalid("the byte behind the runs of a position map", tag, TAG));
        }
        let count = input.count("the number of key columns", 1)?;
        let types = (0..count).map(|_| KeyType::decode(input)).collect::<Result<_>>()?;
        let density = Density { bits: input.varint_u32("the bits for a key")?, hashes: input.u8()? };
        let bytes = input.blob("the filter of a run's keys", u32::MAX as usize)?.to_vec();
        let filter = Self { types, density, bytes };
        filter.validate(rows)?;
        Ok(filter)
    }

    fn validate(&self, rows: u32) -> Result<()> {
        if self.types.is_empty() || self.types.len() > MAX_KEY_COLUMNS {
            let expected = format_args!("1 to {MAX_KEY_COLUMNS}").to_string();
            return Err(FormatError::invalid("the number of key columns", self.types.len(), expected));
        }
        for of in &self.types {
            of.validate()?;
        }
        self.density.validate()?;
        let expected = self.density.shape(rows).bytes();
        if self.bytes.len() as u64 == expected {
            return Ok(());
        }
        Err(FormatError::invalid("the bytes of a filter of a run's keys", self.bytes.len(), expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn a_run_holds_its_keys_and_few_others() {
        let hash = |first: u64, second: &str| {
            filter::hash_after(filter::hash(&Key::Fixed(first)), &Key::Bytes(second.as_bytes().to_vec()))
        };
        let hashes: Vec<u64> = (0..9000).map(|key| hash(key, "a")).collect();
        let filter = KeyFilter::of(vec![KeyType::Int64, KeyType::Utf8], Density::of_fpp(0.01), &hashes);
        assert!(hashes.iter().all(|hash| filter.may_contain(9000, *hash)));
        let held = (0..9000).filter(|key| filter.may_contain(9000, hash(*key, "b"))).count();
        assert!((30..200).contains(&held), "{held}");
        let none = KeyFilter::of(vec![KeyType::Int64], Density::of_fpp(0.01), &[]);
        assert!(none.bytes.is_empty() && !none.may_contain(0, 7));
    }
}

//! Bloom filters: whether a key may be among the keys of a zone.
//!
//! ```text
//! key ─ XXH64 ─▶ h ─▶ block floor(h · blocks / 2^64), and in it k bits
//!                     half words x of mix(h + γ), mix(h + 2γ), …: bit floor(x · bits of a block / 2^32)
//! ```
//!
//! A filter is cut into blocks of the same size. All bits of a key are in one block (Putze, Sanders and Singler 2007), so that
//! a probe reads one block. Blocks are about a page and not a cache line, as a reader of a bit reads and checks its page anyhow.
//! In so large a block the chance of a false positive is that of Bloom's filter (1970). With d bits a key it is
//! (1 - e^(-k/d))^k, at any size down to 10^-15. `mix` is the finalizer of SplitMix64 (Steele, Lea and Flood 2014): two positions
//! for one product chain.

use twox_hash::XxHash64;

use crate::error::{FormatError, Result};
use crate::key::Key;

/// The most bits that a key sets. Part of the format.
pub const MAX_HASHES: u8 = 64;
/// A filter of more bytes is cut into blocks of at most so many. Part of the format.
pub const BLOCK_BYTES: u64 = 4096;
/// Parts of a bit in which densities count. Part of the format.
pub const DENSITY_UNIT: u64 = 1024;
/// The most parts of a bit for a key: more than any filter needs. Part of the format.
pub const MAX_DENSITY: u32 = 1 << 20;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a key, of which everything else is made.
#[must_use]
pub fn hash(key: &Key) -> u64 {
    hash_after(0, key)
}

/// The hash of a key whose columns before this one have the hash `before`; 0 for the first one.
#[must_use]
pub fn hash_after(before: u64, key: &Key) -> u64 {
    match key {
        Key::Fixed(number) => XxHash64::oneshot(before, &number.to_le_bytes()),
        Key::Bytes(bytes) => XxHash64::oneshot(before, bytes),
    }
}

/// The highest `bits` bits, 64 at most, of the hash of a value with these bytes, whatever its length.
#[must_use]
pub fn short_hash(bytes: &[u8], bits: u8) -> u64 {
    let unused = u64::BITS.saturating_sub(u32::from(bits));
    XxHash64::oneshot(0, bytes).checked_shr(unused).unwrap_or(0)
}

/// How many bits a filter has for each key, and how many of them a key sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Density {
    /// Bits for each key, in parts of [`DENSITY_UNIT`].
    pub bits: u32,
    /// Bits that a key sets, 1 to [`MAX_HASHES`].
    pub hashes: u8,
}

impl Density {
    /// The least bits with which a key that is not there is taken to be there with the probability `fpp`, at least 10^-18 and below 1.
    ///
    /// With k bits of a key, d = -k / ln(1 - fpp^(1/k)); the best k is near d ln 2.
    #[must_use]
    pub fn of_fpp(fpp: f64) -> Self {
        let fpp = if fpp.is_nan() { 0.5 } else { fpp.clamp(1e-18, 0.999) };
        let bits = |hashes: u8| -f64::from(hashes) / (-fpp.powf(1.0 / f64::from(hashes))).ln_1p();
        let best = (1..=MAX_HASHES).min_by(|a, b| bits(*a).total_cmp(&bits(*b))).unwrap_or(1);
        let parts = (bits(best) * DENSITY_UNIT as f64).ceil().clamp(1.0, f64::from(MAX_DENSITY));
        Self { bits: parts as u32, hashes: best }
    }

    /// The probability that a key that is not there is taken to be there.
    #[must_use]
    pub fn fpp(self) -> f64 {
        let density = f64::from(self.bits) / DENSITY_UNIT as f64;
        (-(-f64::from(self.hashes) / density).exp_m1()).powi(self.hashes.into())
    }

    /// The filter of so many keys.
    #[must_use]
    pub fn shape(self, keys: u32) -> FilterShape {
        let bytes = (u64::from(keys) * u64::from(self.bits)).div_ceil(DENSITY_UNIT * 8);
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let block_bits = if blocks == 0 { 0 } else { bytes.div_ceil(blocks) * 8 };
        // At most 2^42 bits in blocks of 2^15.
        FilterShape { blocks: blocks as u32, block_bits: block_bits as u32, hashes: self.hashes }
    }

    pub(crate) fn validate(self) -> Result<()> {
        if self.bits == 0 || self.bits > MAX_DENSITY {
            return Err(FormatError::invalid("the bits for a key", self.bits, format_args!("1 to {MAX_DENSITY}")));
        }
        validate_hashes(self.hashes)
    }
}

pub(crate) fn validate_hashes(hashes: u8) -> Result<()> {
    if (1..=MAX_HASHES).contains(&hashes) {
        return Ok(());
    }
    Err(FormatError::invalid("the bits that a key sets", hashes, format_args!("1 to {MAX_HASHES}")))
}

/// The shape of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterShape {
    /// Blocks; none without keys.
    pub blocks: u32,
    /// Bits of a block.
    pub block_bits: u32,
    /// Bits that a key sets.
    pub hashes: u8,
}

impl FilterShape {
    /// Bits of the filter.
    #[must_use]
    pub fn bits(self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_bits)
    }

    /// Bytes of a filter that is stored by itself.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.blocks) * u64::from(self.block_bits / 8)
    }

    /// The block of a key by its hash.
    #[must_use]
    pub fn block(self, hash: u64) -> u32 {
        ((u128::from(hash) * u128::from(self.blocks)) >> 64) as u32
    }

    /// The bits of a key inside of its block.
    pub fn bits_in_block(self, hash: u64) -> impl Iterator<Item = u32> {
        let halves = (0..u64::from(self.hashes).div_ceil(2)).flat_map(move |pair| {
            let word = mix(hash.wrapping_add(GOLDEN.wrapping_mul(pair + 1)));
            [word >> 32, word & u64::from(u32::MAX)]
        });
        halves.take(self.hashes.into()).map(move |half| ((half * u64::from(self.block_bits)) >> 32) as u32)
    }

    /// The bits of a key in the filter.
    pub fn positions(self, hash: u64) -> impl Iterator<Item = u64> {
        let start = u64::from(self.block(hash)) * u64::from(self.block_bits);
        self.bits_in_block(hash).map(move |bit| start + u64::from(bit))
    }
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The bytes of a filter of these hashes.
#[must_use]
pub fn encode(shape: FilterShape, hashes: &[u64]) -> Vec<u8> {
    let mut bytes = vec![0u8; usize::try_from(shape.bytes()).unwrap_or(usize::MAX)];
    for hash in hashes {
        for position in shape.positions(*hash) {
            if let Some(byte) = bytes.get_mut((position / 8) as usize) {
                *byte |= 1 << (position % 8);
            }
        }
    }
    bytes
}

/// Whether a key may be in a filter, by the bytes of the key's block. A filter of no keys, which has no blocks, holds none.
#[must_use]
pub fn may_contain(block: &[u8], shape: FilterShape, hash: u64) -> bool {
    let holds = |bit: u32| block.get((bit / 8) as usize).is_none_or(|byte| byte >> (bit % 8) & 1 == 1);
    shape.blocks > 0 && shape.bits_in_block(hash).all(holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hashes(keys: std::ops::Range<u64>) -> Vec<u64> {
        keys.map(|key| hash(&Key::Fixed(key))).collect()
    }

    fn holds(bytes: &[u8], shape: FilterShape, hash: u64) -> bool {
        let block = shape.block(hash) as usize * (shape.block_bits / 8) as usize;
        may_contain(&bytes[block..block + (shape.block_bits / 8) as usize], shape, hash)
    }

    #[test]
    fn short_hashes_are_the_highest_bits() {
        let text = "Zürich".as_bytes();
        let hash = hash(&Key::Bytes(text.to_vec()));
        assert_eq!((short_hash(text, 64), short_hash(text, 12), short_hash(text, 1)), (hash, 0x85f, 1));
    }

    #[test]
    fn densities_are_those_of_the_formula() {
        // k = 1, d = -1 / ln(1 - 0.5).
        assert_eq!(Density::of_fpp(0.5), Density { bits: 1478, hashes: 1 });
        assert_eq!(Density::of_fpp(0.01), Density { bits: 9824, hashes: 7 });
        assert_eq!(Density::of_fpp(1e-15).hashes, 50);
        for fpp in [0.3, 0.2, 0.1, 1.9e-2, 1.8e-3, 1e-4, 1e-9, 1e-15] {
            let density = Density::of_fpp(fpp);
            assert!((density.fpp() / fpp - 1.0).abs() < 0.01, "{fpp}: {}", density.fpp());
            // Bloom's least: log2(1 / fpp) / ln 2 bits a key.
            let least = (1.0 / fpp).log2() / std::f64::consts::LN_2 * 1024.0;
            assert!(f64::from(density.bits) < least * 1.12, "{fpp}: {density:?} {least}");
        }
        assert_eq!(Density::of_fpp(f64::NAN), Density::of_fpp(0.5));
    }

    #[test]
    fn filters_of_no_keys_have_no_bytes() {
        let shape = Density::of_fpp(0.01).shape(0);
        assert_eq!((shape.blocks, shape.bytes()), (0, 0));
        assert_eq!(encode(shape, &[]), Vec::<u8>::new());
        assert!(!may_contain(&[], shape, 7));
    }

    #[test]
    fn large_filters_are_cut_into_equal_blocks() {
        let shape = Density { bits: 10_240, hashes: 7 }.shape(20_000);
        assert_eq!((shape.blocks, shape.block_bits, shape.bytes()), (7, 28_576, 25_004));
    }

    /// A million keys that are not there, at probabilities that show in a million.
    #[test]
    fn false_positives_are_as_many_as_requested() {
        for (fpp, keys) in [(0.2, 1000), (0.05, 20_000), (0.01, 20_000), (0.001, 5000)] {
            let density = Density::of_fpp(fpp);
            let shape = density.shape(keys);
            let bytes = encode(shape, &hashes(0..u64::from(keys)));
            let found =
                hashes(1 << 40..(1 << 40) + 1_000_000).iter().filter(|hash| holds(&bytes, shape, **hash)).count();
            let share = found as f64 / 1e6;
            assert!((share / fpp - 1.0).abs() < 0.2, "{fpp} of {keys} keys: {share}");
        }
    }

    proptest! {
        #[test]
        fn no_key_is_lost(
            keys in prop::collection::btree_set(any::<u64>(), 1..2000),
            fpp in prop::sample::select(vec![0.7, 0.2, 0.01, 1e-6, 1e-15]),
        ) {
            let hashes: Vec<u64> = keys.iter().map(|key| hash(&Key::Fixed(*key))).collect();
            let shape = Density::of_fpp(fpp).shape(keys.len() as u32);
            let bytes = encode(shape, &hashes);
            prop_assert!(hashes.iter().all(|hash| holds(&bytes, shape, *hash)));
        }
    }
}

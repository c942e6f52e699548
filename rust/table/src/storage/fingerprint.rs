//! The stable hashes of everything that is compared or named by a hash.

use twox_hash::XxHash64;

/// The hash of these bytes, the same in every release.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

/// A hash of 128 bits for names, the same in every release: two XXH64 with different seeds.
pub(crate) fn fingerprint_of_name(bytes: &[u8]) -> [u8; 16] {
    let [first, second] = [1, 2].map(|seed| u128::from(XxHash64::oneshot(seed, bytes)));
    (first | second << 64).to_le_bytes()
}

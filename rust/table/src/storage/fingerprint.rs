//! The stable 64-bit hash of everything that is compared by a hash.

use twox_hash::XxHash64;

/// The hash of these bytes, the same in every release.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

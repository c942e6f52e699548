//! How much of a table's runs a scan keeps in memory: it may be no more than MaSM's memory allows (Athanassoulis 2014, section 3.3.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::physical_plan::metrics::Gauge;

/// Bytes of files that are kept in memory now, and the most that ever were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    now: Arc<AtomicUsize>,
    most: Gauge,
}

impl Held {
    /// The most bytes that were kept in memory at once.
    pub(crate) fn most(&self) -> &Gauge {
        &self.most
    }

    /// The same bytes, tracked until the last part of them is dropped.
    pub(crate) fn hold(&self, bytes: Bytes) -> Bytes {
        let now = self.now.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.most.set_max(now);
        Bytes::from_owner(HeldBytes { bytes, now: Arc::clone(&self.now) })
    }
}

struct HeldBytes {
    bytes: Bytes,
    now: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.now.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_last_part_is_dropped() {
        let held = Held::default();
        let first = held.hold(Bytes::from(vec![1; 100]));
        let part = first.slice(10..20);
        drop(first);
        let second = held.hold(Bytes::from(vec![2; 50]));
        assert_eq!((held.now.load(Ordering::Relaxed), held.most().value()), (150, 150));
        drop(part);
        drop(held.hold(Bytes::from(vec![3; 20])));
        drop(second);
        assert_eq!((held.now.load(Ordering::Relaxed), held.most().value()), (0, 150));
    }
}

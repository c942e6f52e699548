//! How much of a table's runs a scan keeps in memory: it may be no more than MaSM's memory allows (Athanassoulis 2014, section 3.3.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use datafusion::physical_plan::metrics::Gauge;

/// Bytes of files that are kept in memory now, and the most that ever were.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryGauge {
    now: Arc<AtomicUsize>,
    peak: Gauge,
}

impl MemoryGauge {
    /// The most bytes that were kept in memory at once.
    pub(crate) fn peak(&self) -> &Gauge {
        &self.peak
    }

    /// The same bytes, tracked until the last part of them is dropped.
    pub(crate) fn track(&self, bytes: Bytes) -> Bytes {
        let now = self.now.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        self.peak.set_max(now);
        Bytes::from_owner(GaugedBytes { bytes, now: Arc::clone(&self.now) })
    }
}

struct GaugedBytes {
    bytes: Bytes,
    now: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for GaugedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for GaugedBytes {
    fn drop(&mut self) {
        self.now.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_last_part_is_dropped() {
        let gauge = MemoryGauge::default();
        let first = gauge.track(Bytes::from(vec![1; 100]));
        let part = first.slice(10..20);
        drop(first);
        let second = gauge.track(Bytes::from(vec![2; 50]));
        assert_eq!((gauge.now.load(Ordering::Relaxed), gauge.peak().value()), (150, 150));
        drop(part);
        drop(gauge.track(Bytes::from(vec![3; 20])));
        drop(second);
        assert_eq!((gauge.now.load(Ordering::Relaxed), gauge.peak().value()), (0, 150));
    }
}

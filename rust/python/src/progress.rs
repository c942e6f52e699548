//! How far a build is: counted by its threads, reported to Python by the thread that waits.

use std::sync::atomic::{AtomicU64, Ordering};

use lakemark_table::Progress;

/// Two counters. The build's threads never need the GIL.
#[derive(Default)]
pub(crate) struct Counters {
    total: AtomicU64,
    done: AtomicU64,
}

impl Counters {
    /// Rows done and rows in total.
    pub(crate) fn read(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

impl Progress for Counters {
    fn start(&self, total_rows: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total_rows, Ordering::Relaxed);
    }

    fn advance(&self, rows: u64) {
        self.done.fetch_add(rows, Ordering::Relaxed);
    }

    fn finish(&self) {}
}

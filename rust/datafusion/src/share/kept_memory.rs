//! Memory of a session for what queries keep for each other.
//!
//! An operator that runs short of memory cannot ask for it back. So nothing is kept while more than half of the session's memory is in use,
//! whoever uses it, and what is kept goes with the next batch that comes.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};

/// So many bytes at most of the memory of a session.
#[derive(Debug)]
pub(crate) struct KeptMemory {
    pool: Arc<dyn MemoryPool>,
    reservation: MemoryReservation,
    most: usize,
}

impl KeptMemory {
    /// Nothing so far.
    pub(crate) fn new(pool: &Arc<dyn MemoryPool>, most: usize) -> Self {
        let reservation = MemoryConsumer::new("SharedExec").register(pool);
        Self { pool: Arc::clone(pool), reservation, most }
    }

    /// Has so many bytes in place of those before; false if there is no room for them. It may have fewer then.
    pub(crate) fn resize(&self, bytes: usize) -> bool {
        let fits = bytes <= self.most && self.reservation.try_resize(bytes).is_ok();
        fits && (bytes == 0 || !self.is_short())
    }

    /// Has so many bytes more; false if there is no room for them.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let fits = self.reservation.size().saturating_add(bytes) <= self.most;
        if !fits || self.reservation.try_grow(bytes).is_err() {
            return false;
        }
        if self.is_short() {
            self.give_back(bytes);
            return false;
        }
        true
    }

    /// Gives back so many of the bytes that it took.
    pub(crate) fn give_back(&self, bytes: usize) {
        // It has as many.
        self.reservation.try_shrink(bytes).ok();
    }

    /// Whether operators may soon lack memory.
    fn is_short(&self) -> bool {
        match self.pool.memory_limit() {
            MemoryLimit::Finite(limit) => self.pool.reserved() > limit / 2,
            MemoryLimit::Infinite | MemoryLimit::Unknown => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    #[test]
    fn what_is_kept_has_its_limit_and_no_more_than_half_of_the_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let [one, other] = [40, 90].map(|most| KeptMemory::new(&pool, most));
        assert!(one.take(30) && one.take(10) && !one.take(1));
        assert!(other.take(10) && !other.take(1) && !other.resize(usize::MAX));
        assert_eq!(pool.reserved(), 50);
        one.give_back(15);
        assert!(other.resize(25) && !other.take(1));
        assert_eq!(pool.reserved(), 50);
    }

    #[test]
    fn nothing_more_is_kept_while_others_use_the_memory() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100));
        let kept = KeptMemory::new(&pool, 40);
        let operator = MemoryConsumer::new("operator").register(&pool);
        assert!(kept.take(20));
        operator.grow(40);
        // What is there is too much as well.
        assert!(!kept.take(1) && !kept.resize(20) && kept.resize(0));
        operator.shrink(10);
        assert!(kept.take(20) && !kept.take(1));
        drop(kept);
        assert_eq!(pool.reserved(), 30);
    }
}

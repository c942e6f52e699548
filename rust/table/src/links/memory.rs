//! Memory for what a walk has seen.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Where a walk takes memory from for the nodes that it has seen.
pub trait LinkMemory: Debug + Send + Sync {
    /// Takes more bytes. They are given back when the walk has ended.
    ///
    /// # Errors
    /// There are no more. The walk ends with the error, and never with a smaller answer.
    fn grow(&self, bytes: u64) -> Result<()>;
}

/// So many bytes for each walk.
#[derive(Debug)]
pub struct LinkMemoryLimit {
    limit: u64,
    used: AtomicU64,
}

impl LinkMemoryLimit {
    /// A limit for one walk.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }
}

impl LinkMemory for LinkMemoryLimit {
    fn grow(&self, bytes: u64) -> Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        match used <= self.limit {
            true => Ok(()),
            false => Err(Error::unsupported(format!(
                "the nodes that the walk has seen take {used} bytes of memory, and it may use {}: allow more, or go less deep with max_depth \
                 or along fewer predicates",
                self.limit
            ))),
        }
    }
}

/// Takes memory in steps, as nodes are many and small.
pub(super) struct Meter<'a> {
    memory: &'a dyn LinkMemory,
    /// Bytes that were taken and not used yet.
    left: u64,
}

/// Bytes that are taken at a time.
const STEP: u64 = 64 << 10;

impl<'a> Meter<'a> {
    pub(super) fn new(memory: &'a dyn LinkMemory) -> Self {
        Self { memory, left: 0 }
    }

    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.left {
            let step = STEP.max(bytes);
            self.memory.grow(step)?;
            self.left += step;
        }
        self.left -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is() {
        let limit = LinkMemoryLimit::new(3 * STEP);
        let mut meter = Meter::new(&limit);
        for _ in 0..3 * STEP / 16 {
            meter.take(16).unwrap();
        }
        let error = meter.take(1).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Unsupported);
    }
}

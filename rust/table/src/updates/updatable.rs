//! A table with what its readers and writers remember of pending changes.

use std::sync::Arc;

use super::automatic::Automatic;
use super::overlay::OverlayCache;
use super::write::WriteQueue;
use crate::snapshot::BaseTable;

/// A table that may have pending changes.
#[derive(Debug)]
pub(crate) struct UpdatableTable {
    pub base: BaseTable,
    pub overlays: OverlayCache,
    pub queue: WriteQueue,
    pub automatic: Automatic,
}

impl UpdatableTable {
    /// Nothing is remembered of its changes yet.
    pub(crate) fn new(base: BaseTable) -> Arc<Self> {
        let (overlays, queue, automatic) = (OverlayCache::default(), WriteQueue::default(), Automatic::default());
        Arc::new(Self { base, overlays, queue, automatic })
    }
}

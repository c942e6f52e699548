//! A table with what its readers and writers remember of buffered changes.

use std::sync::Arc;

use super::background_migration::BackgroundMigration;
use super::write_queue::WriteQueue;
use crate::snapshot::BaseTable;
use crate::updates::view::view_cache::MergedViewCache;

/// A table that may have buffered changes.
#[derive(Debug)]
pub(crate) struct UpdatableTable {
    pub base: BaseTable,
    pub merged_views: MergedViewCache,
    pub queue: WriteQueue,
    pub automatic: BackgroundMigration,
}

impl UpdatableTable {
    /// A table with nothing remembered of its changes yet.
    pub(crate) fn new(base: BaseTable) -> Arc<Self> {
        let (merged_views, queue, automatic) =
            (MergedViewCache::default(), WriteQueue::default(), BackgroundMigration::default());
        Arc::new(Self { base, merged_views, queue, automatic })
    }
}

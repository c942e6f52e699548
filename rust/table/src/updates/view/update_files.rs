//! What a table remembers of the files that have its buffered changes: opened runs, and the log as far as it was read.

use crate::updates::log::log_tail::LogTailSlot;
use crate::updates::log::log_types::LogTypes;
use crate::updates::runs::run_cache::RunCache;

/// Runs and log, as they were read last.
#[derive(Default)]
pub(crate) struct UpdateFiles {
    pub runs: RunCache,
    /// What readers read of the log.
    pub reader: LogTailSlot,
    /// What the writer knows of the log. It is not shared, so that adding changes copies nothing.
    pub writer: LogTailSlot,
    /// Which types partition columns had when the changes of the log were made.
    pub types: LogTypes,
}

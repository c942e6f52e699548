//! Building what declared indexes do not cover yet: data files to segments, and commits of what is finished.
//!
//! ```text
//! plan ─▶ BuildPlan: tasks ─▶ run each, here or in other processes ─▶ BuildParts ─▶ RunningBuild: a commit now and then
//!           which files, which indexes    one segment per index          files and segments
//! ```
//!
//! [`Table::build`](crate::Table::build) is these three steps in one process. An engine that has many processes takes them one by one:
//! tasks and parts have a form in bytes. A task knows the files that it is about by size and time, so that whoever runs it lists nothing.
//! Tasks need not know of each other, may run twice and may fail. A segment has a name that follows from what it is made of. So one that is
//! left is taken over by whoever builds the same, and a vacuum removes what nobody wants.
//!
//! Touched files whose hashes prove that nothing changed keep their indexes. Of the others, every row group is a unit of work: its columns
//! are read and sorted by value on all cores. The sorted chunks of a group of files are merged into one segment per index. Chunks beyond
//! the memory limit wait in a temporary file. A data file that cannot be read is left out of its group and reported. Where the storage does
//! not answer, or what was built cannot be written, the build stops.

mod adopt;
pub(crate) mod build_group;
pub(crate) mod coarse;
mod coverage;
pub(crate) mod group;
pub(crate) mod left_segments;
mod lost;
mod manifest_slice;
mod merge_group;
mod part;
mod plan;
mod read_group;
mod run;
mod running;
pub(crate) mod segment;
mod sharing;
pub(crate) mod spill;
mod task;

use std::sync::Arc;

use object_store::ObjectStore;

use crate::error::{Error, Result};
use crate::options::{BuildOptions, CancelFlag, Progress};
use crate::report::BuildReport;
use crate::snapshot::{BaseTable, ReadableSnapshot};
use crate::storage::machine::memory as machine_memory;
use crate::store::Store;
use crate::table_format::TableFormat;

pub use part::BuildPart;
pub(crate) use part::built_of;
pub use plan::BuildPlan;
pub(crate) use plan::{check_manifest, plan, selected_indexes};
pub use running::RunningBuild;
pub(crate) use running::{COMMIT_BYTES, COMMIT_EVERY};
use sharing::run_all;
pub(crate) use sharing::run_in_turn;
use spill::Budget;
pub use task::BuildTask;

/// Bytes for unfinished parts where the size of the machine's memory is unknown.
const FALLBACK_MEMORY: u64 = 1 << 30;

/// What the work on groups of files shares.
pub(crate) struct BuildContext {
    /// Where the data files are.
    pub object_store: Arc<dyn ObjectStore>,
    pub format: TableFormat,
    pub store: Arc<Store>,
    pub budget: Arc<Budget>,
    pub threads: usize,
    pub progress: Option<Arc<dyn Progress>>,
    pub cancel: Option<CancelFlag>,
}

impl BuildContext {
    pub(crate) fn new(table: &BaseTable, options: &BuildOptions) -> Result<Self> {
        Ok(Self {
            object_store: Arc::clone(&table.location.object_store),
            format: table.format,
            store: Arc::clone(table.writable_store()?),
            budget: Arc::new(Budget::new(options.memory_bytes.unwrap_or_else(default_memory))),
            threads: threads(options),
            progress: options.progress.clone(),
            cancel: options.cancel.clone(),
        })
    }

    /// Fails if the caller requested a stop.
    pub(crate) fn check_cancel(&self) -> Result<()> {
        check_cancel(self.cancel.as_ref())
    }
}

fn check_cancel(flag: Option<&CancelFlag>) -> Result<()> {
    match flag {
        Some(flag) if flag.is_cancelled() => Err(Error::cancelled()),
        _ => Ok(()),
    }
}

fn threads(options: &BuildOptions) -> usize {
    options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, Into::into)).max(1)
}

/// A quarter of the physical memory.
fn default_memory() -> u64 {
    machine_memory().map_or(FALLBACK_MEMORY, |bytes| bytes / 4)
}

/// Builds in this process.
pub(crate) async fn build(
    table: &BaseTable,
    readable: &ReadableSnapshot,
    options: BuildOptions,
) -> Result<BuildReport> {
    let plan = plan(table, readable, &options, 1).await?;
    if let Some(progress) = &options.progress {
        progress.start(plan.rows());
    }
    let mut running = RunningBuild::begin(table, plan, &options)?;
    match run_all(&mut running, &options).await {
        Ok(()) => running.finish().await,
        Err(error) => Err(running.stop(error).await),
    }
}

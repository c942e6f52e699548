//! The files of a log as the Delta library finds them.
//!
//! Statistics are left out: a checkpoint has them in columns that are not read then, and those of commits are not parsed. Nobody here needs
//! them.

use arrow::array::RecordBatch;
use buoyant_kernel::engine::arrow_data::ArrowEngineData;
use buoyant_kernel::scan::ScanMetadata;
use deltalake_core::kernel::Snapshot as LogSnapshot;
use deltalake_core::logstore::LogStoreRef;
use deltalake_core::{DeltaResult, DeltaTableError};
use futures::TryStreamExt;

use super::logged_file::{LoggedFile, files_of};
use crate::error::{Error, Result};

/// Hands on each file of a version, in no order.
///
/// # Errors
/// The log cannot be read, as `unreadable` says, or those of `take`.
pub(super) async fn scan_files(
    logged: &LogSnapshot,
    log_store: &LogStoreRef,
    unreadable: impl Fn(DeltaTableError) -> Error,
    mut take: impl FnMut(LoggedFile) -> Result<()>,
) -> Result<()> {
    let scan = logged.scan_builder().with_skip_stats(true).build();
    let mut parts = scan.map_err(&unreadable)?.scan_metadata(log_store.engine(None));
    while let Some(part) = parts.try_next().await.map_err(&unreadable)? {
        for file in files_of(&batch_of(part).map_err(&unreadable)?)? {
            take(file)?;
        }
    }
    Ok(())
}

/// Fails where the library cannot read the files of a version.
pub(super) fn check_readable(logged: &LogSnapshot) -> DeltaResult<()> {
    logged.scan_builder().with_skip_stats(true).build().map(drop)
}

fn batch_of(found: ScanMetadata) -> DeltaResult<RecordBatch> {
    let files = found.scan_files.apply_selection_vector()?;
    Ok(ArrowEngineData::try_from_engine_data(files)?.record_batch().clone())
}

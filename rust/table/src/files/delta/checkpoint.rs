//! A checkpoint: everything that a log leads to at a version, as one Parquet file.
//!
//! The library says what is in it: which actions still count, which of the removed files a vacuum has yet to find, and in which form the
//! table wants statistics. A table with the feature `v2Checkpoint` gets one of the second kind, under the classic name and without sidecars.

use std::sync::Arc;

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use buoyant_kernel::engine::arrow_data::ArrowEngineData;
use buoyant_kernel::{DeltaResult as KernelResult, Engine, Error as KernelError, SnapshotRef};
use deltalake_core::kernel::Snapshot as LogSnapshot;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::log_search::search_in;
use super::{ATTEMPTS, delta_error, log_store_of};
use crate::error::Result;
use crate::storage::location::Location;

/// The file of a checkpoint, and what it has.
pub(crate) struct Checkpoint {
    pub bytes: Vec<u8>,
    pub actions: u64,
    /// Actions that add files.
    pub files: u64,
}

impl Checkpoint {
    /// The checkpoint of a version. It is in memory as a whole.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) async fn of(location: &Location, version: u64) -> Result<Self> {
        let log_store = log_store_of(location)?;
        let mut logged = LogSnapshot::try_new(log_store.as_ref(), Some(version)).await;
        for _ in 1..ATTEMPTS {
            // A listing may lack a commit that others have just made.
            if logged.is_err() {
                logged = LogSnapshot::try_new(log_store.as_ref(), Some(version)).await;
            }
        }
        let checkpoint = match logged {
            Ok(logged) => search_in(&logged, &log_store, encoded).await,
            Err(error) => Err(error),
        };
        checkpoint.map_err(|error| delta_error(location, error))
    }
}

fn encoded(logged: &SnapshotRef, engine: &dyn Engine) -> KernelResult<Checkpoint> {
    let writer = Arc::clone(logged).create_checkpoint_writer(engine)?;
    let mut file: Option<ArrowWriter<Vec<u8>>> = None;
    let (mut actions, mut files) = (0, 0);
    for part in writer.checkpoint_data(engine)? {
        let part = ArrowEngineData::try_from_engine_data(part?.apply_selection_vector()?)?;
        let batch = part.record_batch();
        let mut open = match file.take() {
            Some(open) => open,
            None => begun(batch).map_err(unwritten)?,
        };
        open.write(batch).map_err(unwritten)?;
        file = Some(open);
        actions += batch.num_rows() as u64;
        let adds = batch.column_by_name("add").map_or(0, |adds| adds.len() - adds.null_count());
        files += adds as u64;
    }
    let file = file.ok_or_else(|| KernelError::generic("the log leads to nothing"))?;
    Ok(Checkpoint { bytes: file.into_inner().map_err(unwritten)?, actions, files })
}

fn unwritten(error: ParquetError) -> KernelError {
    KernelError::generic_err(error)
}

fn begun(first: &RecordBatch) -> Result<ArrowWriter<Vec<u8>>, ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    // Other readers go by Parquet's own types.
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    ArrowWriter::try_new_with_options(Vec::new(), first.schema(), options)
}

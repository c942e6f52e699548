//! The shapes of data files, which their footers say: rows and columns.
//!
//! Who needs every file fails with the first that cannot be read. Who does not goes on, and is told which those are.

use std::time::SystemTime;

use futures::{StreamExt, TryStreamExt, stream};

use super::{BaseTable, DataFile};
use crate::error::{Error, Result};
use crate::files::footer::FileSummary;
use crate::files::parted_list::PartedList;
use crate::files::unreadable::is_of_the_file;

/// Footers that are read at a time.
const CONCURRENT_READS: usize = 32;

/// What the footer of a data file says.
pub(crate) struct SummaryOfFile {
    /// The number of the file in the snapshot.
    pub file: usize,
    pub summary: FileSummary,
}

/// A data file that cannot be read, though the storage answers.
#[derive(Clone, Debug)]
pub(crate) struct UnreadableFile {
    /// Path below the table's root.
    pub path: String,
    pub written: SystemTime,
    pub problem: String,
}

/// Reads the footers of the listed files, some at a time.
pub(crate) async fn read_shapes(
    table: &BaseTable,
    files: &PartedList<DataFile>,
    wanted: Vec<usize>,
) -> Result<Vec<SummaryOfFile>> {
    stream::iter(wanted.into_iter().filter(|&file| file < files.len()))
        .map(|file| read_shape(table, files, file))
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await
}

async fn read_shape(table: &BaseTable, files: &PartedList<DataFile>, file: usize) -> Result<SummaryOfFile> {
    let Some(data_file) = files.get(file) else { return Err(Error::internal("a file out of range")) };
    let store = &table.location.object_store;
    let summary = table.cache.footers.shape(store.as_ref(), &data_file.meta, &data_file.path).await?;
    Ok(SummaryOfFile { file, summary })
}

/// The footers that can be read, and the files of the others.
pub(crate) struct ReadableShapes {
    pub shapes: Vec<SummaryOfFile>,
    pub failed: Vec<UnreadableFile>,
}

/// Reads footers as [`read_shapes`] does, and goes on where one of them cannot be read.
pub(crate) async fn readable_shapes(
    table: &BaseTable,
    files: &PartedList<DataFile>,
    wanted: Vec<usize>,
) -> Result<ReadableShapes> {
    let mut reads = stream::iter(wanted.into_iter().filter(|&file| file < files.len()))
        .map(|file| async move { (file, read_shape(table, files, file).await) })
        .buffered(CONCURRENT_READS);
    let mut read = ReadableShapes { shapes: Vec::new(), failed: Vec::new() };
    while let Some((file, shape)) = reads.next().await {
        let (error, data_file) = match (shape, files.get(file)) {
            (Ok(shape), _) => {
                read.shapes.push(shape);
                continue;
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(data_file)) => (error, data_file),
        };
        if !is_of_the_file(table.location.object_store.as_ref(), &data_file.meta, error.kind()).await? {
            return Err(error);
        }
        tracing::warn!(file = data_file.path, %error, "the data file cannot be read and is left out");
        let (path, written) = (data_file.path.clone(), SystemTime::from(data_file.meta.last_modified));
        read.failed.push(UnreadableFile { path, written, problem: error.to_string() });
    }
    Ok(read)
}

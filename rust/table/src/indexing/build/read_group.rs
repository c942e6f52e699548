//! The data files of a group: opened, and the indexed columns of their row groups read and sorted.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use lakemark_format::ManifestFile;
use tokio::sync::Semaphore;

use super::BuildContext;
use super::group::{BuiltFile, Group, GroupFile, GroupResult};
use super::segment::disk_error;
use super::spill::{Budget, Spill, SpilledChunk};
use crate::error::{Error, Result};
use crate::files::columns::{ColumnChunk, IndexedFields, list_bytes, read_columns};
use crate::files::footer::Footer;
use crate::storage::disk::on_a_thread;
use crate::storage::file_time::modified_ns;
use crate::store::segment_id::SourceFile;

/// A file of the group while it is read.
pub(super) struct OpenGroupFile<'a> {
    pub file: &'a GroupFile,
    pub footer: Arc<Footer>,
}

impl OpenGroupFile<'_> {
    pub(super) fn rows(&self) -> u64 {
        self.footer.row_groups.iter().copied().map(u64::from).sum()
    }

    /// What a segment's id has of the file.
    pub(super) fn source(&self, has_false_statistics: bool) -> SourceFile<'_> {
        let GroupFile { meta, path } = self.file;
        SourceFile {
            path,
            size: meta.size,
            modified_ns: modified_ns(meta),
            tag: meta.e_tag.as_deref(),
            footer_hash: self.footer.hash,
            has_false_statistics,
        }
    }

    /// The file as the result has it.
    pub(super) fn built(&self, false_statistics: Vec<u32>) -> BuiltFile {
        let file = ManifestFile {
            path: self.file.path.clone(),
            size: self.file.meta.size,
            modified_ns: modified_ns(&self.file.meta),
            etag: self.file.meta.e_tag.clone(),
            footer_hash: self.footer.hash,
            schema: 0,
            row_groups: self.footer.row_groups.clone(),
            false_statistics,
        };
        BuiltFile { file, schema: Arc::clone(&self.footer.schema) }
    }
}

/// What reading one row group gave.
struct RowGroupRead {
    /// The place of its file in the group.
    file: usize,
    row_group: usize,
    columns: Result<Vec<SortedColumn>, ReadFailure>,
}

/// Why a row group was not read.
enum ReadFailure {
    /// Its file gave this error.
    File(Error),
    /// Another row group of its file did.
    LeftOut,
    /// What was read cannot be kept, or the build is stopped: no other file would fare better.
    Build(Error),
}

/// The sorted columns of one row group.
pub(super) struct SortedColumns {
    /// The place of its file in the group.
    pub file: usize,
    pub row_group: usize,
    pub columns: Vec<SortedColumn>,
}

/// A column of a row group, sorted.
pub(super) struct SortedColumn {
    pub chunk: SpilledChunk,
    /// Fingerprint of its bytes.
    pub hash: u64,
    /// The leaf of the column, if its statistics in the footer are false.
    pub caught: Option<u32>,
}

/// The leaves of a file whose statistics are false, by its place in the group.
pub(super) fn caught_in(sorted: &[SortedColumns], place: usize) -> Vec<u32> {
    let columns = sorted.iter().filter(|sorted| sorted.file == place).flat_map(|sorted| &sorted.columns);
    let leaves: BTreeSet<u32> = columns.filter_map(|column| column.caught).collect();
    leaves.into_iter().collect()
}

pub(super) async fn open<'a>(
    context: &BuildContext,
    group: &'a Group,
    result: &mut GroupResult,
) -> Result<Vec<OpenGroupFile<'a>>> {
    let mut readings = Vec::with_capacity(group.files.len());
    for file in &group.files {
        match Footer::read(context.object_store.as_ref(), &file.meta, &file.path).await {
            Ok(footer) => readings.push(OpenGroupFile { file, footer: Arc::new(footer) }),
            Err(error) => result.leave_out(context, file, error).await?,
        }
    }
    Ok(readings)
}

/// What was read of a group.
pub(super) struct ReadGroup {
    /// The sorted columns, in the order of rows.
    pub sorted: Vec<SortedColumns>,
    /// The places of files that cannot be read, or changed meanwhile.
    pub left_out: HashSet<usize>,
}

/// Reads all row groups, some at a time. Of a file that cannot be read nothing is kept.
pub(super) async fn read(
    context: &BuildContext,
    readings: &[OpenGroupFile<'_>],
    fields: &[IndexedFields],
    spill: &Arc<Spill>,
    result: &mut GroupResult,
) -> Result<ReadGroup> {
    let alone = Semaphore::new(1);
    let alone = &alone;
    let left_out: Mutex<HashSet<usize>> = Mutex::default();
    let is_left_out = |file: usize| left_out.lock().unwrap_or_else(PoisonError::into_inner).contains(&file);
    let is_left_out = &is_left_out;
    let mut tasks: Vec<BoxFuture<'_, RowGroupRead>> = Vec::new();
    for (place, reading) in readings.iter().enumerate() {
        for row_group in 0..reading.footer.row_groups.len() {
            tasks.push(Box::pin(async move {
                let columns = match is_left_out(place) {
                    true => Err(ReadFailure::LeftOut),
                    false => read_row_group(context, reading, row_group, fields, spill, alone).await,
                };
                RowGroupRead { file: place, row_group, columns }
            }));
        }
    }
    let mut done = stream::iter(tasks).buffer_unordered(context.threads);
    let mut sorted: Vec<SortedColumns> = Vec::new();
    while let Some(RowGroupRead { file, row_group, columns }) = done.next().await {
        match columns {
            Ok(columns) if !is_left_out(file) => sorted.push(SortedColumns { file, row_group, columns }),
            Ok(_) | Err(ReadFailure::LeftOut) => {}
            Err(ReadFailure::File(_)) if is_left_out(file) => {}
            Err(ReadFailure::File(error)) => {
                let Some(reading) = readings.get(file) else { return Err(error) };
                left_out.lock().unwrap_or_else(PoisonError::into_inner).insert(file);
                sorted.retain(|sorted| sorted.file != file);
                result.leave_out(context, reading.file, error).await?;
            }
            Err(ReadFailure::Build(error)) => return Err(error),
        }
    }
    drop(done);
    sorted.sort_by_key(|sorted| (sorted.file, sorted.row_group));
    Ok(ReadGroup { sorted, left_out: left_out.into_inner().unwrap_or_else(PoisonError::into_inner) })
}

async fn read_row_group(
    context: &BuildContext,
    reading: &OpenGroupFile<'_>,
    row_group: usize,
    fields: &[IndexedFields],
    spill: &Arc<Spill>,
    alone: &Semaphore,
) -> Result<Vec<SortedColumn>, ReadFailure> {
    context.check_cancel().map_err(ReadFailure::Build)?;
    let (store, file) = (context.object_store.as_ref(), reading.file);
    let bytes = list_bytes(&reading.footer, row_group, fields);
    if bytes > context.budget.limit() {
        return Err(ReadFailure::File(Error::unsupported(format!(
            "the lists of row group {row_group} of the data file {} have so many elements that sorting them takes {bytes} bytes of memory, \
             and the build may use {}: allow more with --memory, or write the file with smaller row groups",
            file.path,
            context.budget.limit()
        ))));
    }
    // Where there is no room for several columns, they are sorted one at a time.
    let room = Budget::reserve(&context.budget, bytes);
    let _turn = match &room {
        None if bytes > 0 => {
            let ended = |_| ReadFailure::Build(Error::internal("the turns of row groups have ended"));
            Some(alone.acquire().await.map_err(ended)?)
        }
        _ => None,
    };
    let columns = read_columns(store, &file.meta, &file.path, &reading.footer, row_group, fields).await;
    let columns = columns.map_err(ReadFailure::File)?;
    // From here on only what is kept takes memory.
    drop(room);
    let spill = Arc::clone(spill);
    let keep = move || -> io::Result<Vec<SortedColumn>> {
        let sorted = columns
            .into_iter()
            .map(|ColumnChunk { chunk, hash, caught }| Ok(SortedColumn { chunk: spill.push(chunk)?, hash, caught }));
        sorted.collect()
    };
    let kept = on_a_thread(keep).await.map_err(|error| ReadFailure::Build(Error::task(&error)))?;
    let kept = kept.map_err(|error| ReadFailure::Build(disk_error(context, error)))?;
    if let Some(progress) = &context.progress {
        progress.advance(reading.footer.row_groups.get(row_group).copied().unwrap_or_default().into());
    }
    Ok(kept)
}

//! Merging buffered rows into the data files of a table: what a migration does to the table itself.
//!
//! A file with rows that newer ones replace is written anew. A newer row takes the place of the first row that it replaces, the others are
//! left out, and all keep their order. Rows that replace none, or that moved to another partition, go to new files, sorted by key, together
//! with the rows of small ones ([`refill`]). Row groups of which no row changes are copied as bytes. [`delta`] publishes the result by one
//! commit of the log; [`folder`] leaves that to whoever writes the manifest.
//!
//! Uses `snapshot` and the rooms below it; `updates` alone uses this one.
//!
//! Invariant: it takes a snapshot and pins none. Nobody sees a new file before a commit of the log, or a manifest, names it.

mod change_feed;
mod checkpoint;
mod commit;
mod constraints;
mod copy;
pub(crate) mod delta;
mod emptied_files;
mod encode;
mod file;
pub(crate) mod folder;
mod indexed_columns;
mod leaves;
mod log;
mod log_files;
mod output;
mod reader;
pub(crate) mod refill;
mod row_block;
mod row_ids;
mod rows;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod writable;
mod writer;

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::ArrayRef;
use futures::future::BoxFuture;
use lakemark_index::RowSet;
use parquet::file::properties::WriterProperties;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::options::Progress;
use crate::rewrite::change_feed::ChangeFeed;
use crate::rewrite::emptied_files::emptied_files;
use crate::rewrite::encode::{RowGroup, encode_new, rewrite};
use crate::rewrite::file::OldFile;
use crate::rewrite::refill::{SmallFile, files_to_refill};
use crate::rewrite::row_ids::KeptRowIds;
use crate::rewrite::rows::NewRows;
use crate::rewrite::target::{FileTarget, WrittenFile};
use crate::rewrite::writer::{
    FileWriter, ROW_GROUP_BYTES, ROW_GROUP_ROWS, StartedFile, new_properties, properties_like,
};
use crate::snapshot::{DataFile, Snapshot};
use crate::storage::disk::on_a_thread;
use crate::store::locks::FileLock;

pub(crate) use crate::rewrite::file::check_calendar;
pub(crate) use crate::rewrite::row_block::RowBlock;

/// New rows that are read to find out how large they are.
const SAMPLE_ROWS: usize = 1024;

/// What is merged into the data files of a snapshot. The snapshot has no buffered updates. So the deleted rows of its files are those of
/// deletion vectors and nothing else, since all of them are left out of files that are written anew.
pub(crate) struct RewriteInput<'a> {
    /// For each file of the snapshot the rows that the new rows replace or that were deleted. A file without any stays as it is.
    pub deleted: &'a [Option<Arc<RowSet>>],
    /// The new rows in the table's schema, in any order. Their keys are unique.
    pub rows: &'a [Arc<dyn RowBlock>],
    /// Files that may be filled up with new rows. They have no row that is replaced or deleted.
    pub small: &'a [SmallFile],
    /// The columns of the key, by the names that they show.
    pub key: &'a [String],
    /// The keys of the rows that are merged, to be searched in files that others add; without them any file of others is a conflict.
    pub keys: Option<&'a dyn RewrittenKeys>,
    /// Gets reports of how far the rewrite is.
    pub progress: Option<Arc<dyn Progress>>,
    /// The lock that is held until a commit that was begun is made or not, also if the caller goes away.
    pub lock: Option<Arc<FileLock>>,
}

/// The keys of the rows that are merged.
pub(crate) trait RewrittenKeys: Send + Sync {
    /// Whether a file that others added has one of these keys.
    fn are_in<'a>(&'a self, added: &'a [String]) -> BoxFuture<'a, Result<bool>>;
}

/// What a rewrite wrote.
#[derive(Debug, Default)]
pub(crate) struct RewriteOutput {
    /// The new files.
    pub files: Vec<WrittenFile>,
    /// Files that say which rows changed, where the table keeps a feed of changes.
    pub changes: Vec<WrittenFile>,
    /// The files of the snapshot that the new files replace, by number. A replaced file may have no successor.
    pub replaced: Vec<usize>,
}

/// Writes the new files and sees to it that they are on the disk. Nobody sees them before they are published.
///
/// Row groups are made on all cores, each in memory, and get into the files in their order. As many are in memory as there are cores, and a
/// few bytes of each new row.
#[tracing::instrument(level = "debug", name = "rewrite", skip_all, fields(table = %snapshot.root_url(), files = snapshot.files().len()))]
async fn rewrite_files(
    snapshot: &Snapshot,
    input: &RewriteInput<'_>,
    target: &FileTarget<'_>,
) -> Result<RewriteOutput> {
    if input.deleted.len() != snapshot.files().len() {
        return Err(Error::internal("the deleted positions to compact are those of another snapshot"));
    }
    if let Some(progress) = &input.progress {
        let old = input.deleted.iter().flatten().filter(|deleted| !deleted.is_empty());
        let old: u64 = old.map(|deleted| u64::from(deleted.universe())).sum();
        progress.start(old + input.rows.iter().map(|part| part.row_count() as u64).sum::<u64>());
    }
    let rows = NewRows::new(snapshot, input, &target.schema).await?;
    let cores = std::thread::available_parallelism().map_or(2, Into::into);
    let (progress, making, file, rewritten) = (input.progress.clone(), VecDeque::new(), None, RewriteOutput::default());
    let syncing = Vec::new();
    let feed = target.changes.map(ChangeFeed::new);
    let mut job =
        RewriteJob { snapshot, target, rows, progress, cores, making, file, begun: 0, rewritten, syncing, feed };
    match job.run(input).await {
        Ok(()) => Ok(job.rewritten),
        Err(error) => {
            job.stop().await;
            target.discard(&job.rewritten.files).await;
            let changes = job.feed.as_ref().map(|feed| feed.files.as_slice()).unwrap_or_default();
            target.discard(changes).await;
            target.discard(&job.rewritten.changes).await;
            Err(error)
        }
    }
}

struct RewriteJob<'a> {
    snapshot: &'a Snapshot,
    target: &'a FileTarget<'a>,
    rows: NewRows,
    progress: Option<Arc<dyn Progress>>,
    cores: usize,
    /// Row groups that are being made, in the order in which files get them.
    making: VecDeque<EncodingRowGroup>,
    /// The file that gets row groups now.
    file: Option<FileWriter>,
    /// Files that were begun.
    begun: usize,
    rewritten: RewriteOutput,
    /// Files that are being synced.
    syncing: Vec<JoinHandle<std::io::Result<()>>>,
    /// What says which rows changed; none if nobody asks.
    feed: Option<ChangeFeed<'a>>,
}

/// A row group that is being made.
struct EncodingRowGroup {
    row_group: JoinHandle<Result<RowGroup>>,
    /// The file that begins with it.
    begins: Option<Box<FileWriter>>,
    /// Whether a file ends with it.
    ends: FileEnd,
    /// Rows that are done with it.
    rows: u64,
}

/// Whether a file ends with a row group.
#[derive(Clone, Copy)]
enum FileEnd {
    No,
    /// The file that replaces this one.
    Replacing(usize),
    /// A file of new rows.
    New,
    /// A file of new rows, if it is large enough.
    IfFull,
}

impl RewriteJob<'_> {
    async fn run(&mut self, input: &RewriteInput<'_>) -> Result<()> {
        let files = self.snapshot.files().iter().zip(input.deleted).enumerate();
        for (number, (file, deleted)) in files {
            if let Some(deleted) = deleted.as_ref().filter(|deleted| !deleted.is_empty()) {
                self.rewrite(number, file, deleted).await?;
            }
        }
        self.refill(input.small).await?;
        self.write_left().await?;
        while !self.making.is_empty() {
            self.append().await?;
        }
        if self.target.columns_are_in_files {
            self.write_bare().await?;
        }
        if let Some(mut feed) = self.feed.take() {
            self.rewritten.changes = feed.files;
            self.target.sync(&self.rewritten.changes, &mut feed.syncing).await?;
        }
        self.target.sync(&self.rewritten.files, &mut self.syncing).await
    }

    /// Writes a file anew, if anything is left of it.
    async fn rewrite(&mut self, number: usize, file: &DataFile, deleted: &RowSet) -> Result<()> {
        let old = OldFile::plan(self.snapshot, file, deleted, &mut self.rows, self.target).await?;
        self.rewritten.replaced.push(number);
        if let Some(feed) = &mut self.feed {
            feed.of_file(number, file, &old, deleted, self.rows.source()).await?;
        }
        let pieces = old.pieces();
        let dealt: u64 = pieces.iter().map(|piece| piece.rows.len() as u64).sum();
        self.advance(u64::from(deleted.universe()) - dealt + old.places.len() as u64);
        let Some(last) = pieces.len().checked_sub(1) else { return Ok(()) };
        let StartedFile { writer, factory } =
            self.begin(Some(file), &file.partition_values, &properties_like(&old.opened.footer))?;
        let (mut begins, old) = (Some(Box::new(writer)), Arc::new(old));
        for (place, piece) in pieces.into_iter().enumerate() {
            let (old, factory) = (Arc::clone(&old), Arc::clone(&factory));
            let (source, rows) = (Arc::clone(self.rows.source()), piece.rows.len() as u64);
            let row_group = on_a_core(async move { rewrite(&old, &piece, &source, &factory).await });
            let ends = if place == last { FileEnd::Replacing(number) } else { FileEnd::No };
            self.make(EncodingRowGroup { row_group, begins: begins.take(), ends, rows }).await?;
        }
        Ok(())
    }

    /// Lets rows of small files go to new files together with the new rows that found no place.
    async fn refill(&mut self, small: &[SmallFile]) -> Result<()> {
        for file in files_to_refill(self.snapshot, small, &self.rows)? {
            match self.add_small_file(file).await {
                Ok(true) => self.rewritten.replaced.push(file.number),
                Ok(false) => {}
                // No change is about a row of this file: it stays, whatever is wrong with it.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Corrupt | ErrorKind::SchemaMismatch | ErrorKind::Unsupported
                    ) =>
                {
                    tracing::info!(table = %self.snapshot.root_url(), %error, "a small file is not filled up");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds the rows of a small file to the new ones. Says whether it did.
    async fn add_small_file(&mut self, small: &SmallFile) -> Result<bool> {
        let row_ids = match (&self.target.row_ids, self.snapshot.files().get(small.number)) {
            (Some(row_ids), Some(file)) => row_ids.of_small_file(self.snapshot, file).await?,
            _ => Vec::new(),
        };
        self.rows.add(&small.rows, row_ids).await
    }

    /// Writes the new rows that found no place, partition by partition, in the order of keys.
    async fn write_left(&mut self) -> Result<()> {
        let row_ids = self.target.row_ids.clone();
        let kept = row_ids.map(|row_ids| Arc::new(KeptRowIds { row_ids, of_rows: self.rows.take_kept() }));
        let left = self.rows.left();
        let Some(sample) = left.values().next() else { return Ok(()) };
        let sample = self.rows.source().gather(sample.get(..SAMPLE_ROWS).unwrap_or(sample)).await?;
        let width = sample.get_array_memory_size().div_ceil(sample.num_rows().max(1)).max(1) as u64;
        let most = (ROW_GROUP_BYTES.min(self.target.file_bytes) / width).max(1);
        let most = usize::try_from(most).unwrap_or(ROW_GROUP_ROWS).clamp(reader::BATCH_ROWS, ROW_GROUP_ROWS);
        let properties = new_properties();
        for (partition, rows) in left {
            let values = self.rows.partition_values(partition);
            self.feed_new(&values, &rows).await?;
            let last = rows.len().div_ceil(most).saturating_sub(1);
            for (place, rows) in rows.chunks(most).enumerate() {
                let StartedFile { writer, factory } = self.begin(None, &values, &properties)?;
                let (source, rows, count) = (Arc::clone(self.rows.source()), rows.to_vec(), self.rows.count_new(rows));
                let kept = kept.clone();
                let row_group = on_a_core(async move { encode_new(&rows, &source, &factory, kept.as_deref()).await });
                let ends = if place == last { FileEnd::New } else { FileEnd::IfFull };
                self.make(EncodingRowGroup { row_group, begins: Some(Box::new(writer)), ends, rows: count }).await?;
            }
        }
        Ok(())
    }

    /// Writes down which of these rows are new or changed. Where no file is replaced, its readers take all rows of new files for inserted.
    async fn feed_new(&mut self, partition_values: &[ArrayRef], rows: &[u32]) -> Result<()> {
        let Some(feed) = self.feed.as_mut().filter(|_| !self.rewritten.replaced.is_empty()) else { return Ok(()) };
        let changes = rows.iter().filter_map(|row| Some((*row, self.rows.change_of(*row)?)));
        feed.of_new(partition_values, &changes.collect::<Vec<_>>(), self.rows.source()).await
    }

    /// Waits until a core is free for a row group.
    async fn make(&mut self, making: EncodingRowGroup) -> Result<()> {
        self.making.push_back(making);
        while self.making.len() > self.cores {
            self.append().await?;
        }
        Ok(())
    }

    /// Waits for the oldest row group that is being made and gives it to its file.
    async fn append(&mut self) -> Result<()> {
        let Some(EncodingRowGroup { row_group, begins, ends, rows }) = self.making.pop_front() else { return Ok(()) };
        let row_group = row_group.await.map_err(|error| Error::task(&error))??;
        let file = match (&mut self.file, begins) {
            (Some(file), _) => file,
            (none, Some(begins)) => none.insert(*begins),
            (None, None) => return Err(Error::internal("a row group without a file")),
        };
        file.append(row_group).await?;
        let is_full = file.bytes() >= self.target.file_bytes;
        self.advance(rows);
        match ends {
            FileEnd::No => Ok(()),
            FileEnd::IfFull if !is_full => Ok(()),
            FileEnd::Replacing(number) => self.finish(Some(number)).await,
            FileEnd::New | FileEnd::IfFull => self.finish(None).await,
        }
    }

    /// Ends what is being made: it would write nothing, but use memory and cores.
    async fn stop(&mut self) {
        for making in self.making.drain(..) {
            making.row_group.abort();
            drop(making.row_group.await);
        }
        let of_feed = self.feed.as_mut().map(|feed| std::mem::take(&mut feed.syncing)).unwrap_or_default();
        for syncing in self.syncing.drain(..).chain(of_feed) {
            drop(syncing.await);
        }
    }

    fn advance(&self, rows: u64) {
        if let Some(progress) = &self.progress {
            progress.advance(rows);
        }
    }

    /// Writes files without rows where otherwise columns were lost with the last rows.
    async fn write_bare(&mut self) -> Result<()> {
        for number in emptied_files(self.snapshot, &self.rewritten)? {
            let Some(file) = self.snapshot.files().get(number) else { continue };
            let started = self.begin(Some(file), &file.partition_values, &new_properties())?;
            self.file = Some(started.writer);
            self.finish(Some(number)).await?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        replaces: Option<&DataFile>,
        partition: &[ArrayRef],
        properties: &WriterProperties,
    ) -> Result<StartedFile> {
        let started = FileWriter::start(self.target, self.begun, replaces, partition, properties)?;
        self.begun += 1;
        Ok(started)
    }

    async fn finish(&mut self, replaces: Option<usize>) -> Result<()> {
        if let Some(writer) = self.file.take() {
            let file = writer.finish(replaces).await?;
            self.syncing.extend(self.target.begin_sync(&file));
            self.rewritten.files.push(file);
        }
        Ok(())
    }
}

/// Runs what computes more than it waits on a thread of its own, whatever the runtime.
fn on_a_core<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let runtime = Handle::current();
    on_a_thread(move || runtime.block_on(work))
}

/// The error of rows that the table's schema cannot take.
fn unfit(name: &str) -> Error {
    Error::new(
        ErrorKind::SchemaMismatch,
        format!("the rows of {name} do not fit the table's columns, by their types or since a column takes no NULL"),
    )
}

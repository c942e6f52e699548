//! Writing rows of changes aside: sorted by key, a file for as many as memory should hold.

use std::fmt;
use std::hash::Hasher;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::row::{Row, Rows};
use lakemark_format::Operation;
use twox_hash::XxHash64;

use super::staged_rows::{StagedRows, other_columns};
use crate::error::{Error, Result};
use crate::storage::temp_file::TempFile;
use crate::store::Store;
use crate::updates::changes::change::keys_of;
use crate::updates::errors::{not_local, unwritable};
use crate::updates::key::KeyColumns;
use crate::updates::state::keyed_snapshot::KeyedSnapshot;
use crate::updates::state::updatable::UpdatableTable;

/// Bytes of rows that are sorted at a time.
const SORTED_BYTES: usize = 32 << 20;
/// Rows that are written, and read again, at a time.
const BATCH_ROWS: usize = 4096;
/// Bytes of a file that are written at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// Rows of one operation that are being written aside. Of a `Staging` that is dropped unfinished, whole files are left, which nobody names.
pub struct Staging {
    store: Arc<Store>,
    operation: Operation,
    key: Arc<KeyColumns>,
    /// Rows that are not sorted yet, and how many bytes they take.
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    staged: Vec<StagedRows>,
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("operation", &self.operation)
            .field("staged", &self.staged)
            .finish_non_exhaustive()
    }
}

impl Staging {
    /// Begins to write rows aside in the store of a table.
    pub(crate) async fn begin(table: &Arc<UpdatableTable>, operation: Operation) -> Result<Self> {
        let store = Arc::clone(table.base.writable_store()?);
        let Some(folder) = store.updates_folder() else { return Err(not_local(&store)) };
        // A declared key has its log there. A folder that was made anew would conceal that this machine sees another disk.
        if !folder.is_dir() {
            return Err(Error::not_found(format!(
                "there is no {} on this machine, so that rows cannot be staged: either the table has no key yet, or the store is on a disk \
                 that only other machines see; let it be in a folder that all of them share",
                folder.display()
            )));
        }
        let KeyedSnapshot { key, .. } = KeyedSnapshot::of(table).await?;
        Ok(Self { store, operation, key, waiting: Vec::new(), waiting_bytes: 0, staged: Vec::new() })
    }

    /// Adds rows, which have the columns of those before. Their memory is kept until there is enough to be sorted.
    ///
    /// # Errors
    /// Other columns, no column of the key, a key that does not fit the table's, a full disk.
    pub async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        if self.waiting.first().is_some_and(|before| before.schema().fields() != rows.schema().fields()) {
            return Err(other_columns());
        }
        self.waiting_bytes += rows.get_array_memory_size();
        self.waiting.push(rows);
        if self.waiting_bytes >= SORTED_BYTES { self.write_sorted().await } else { Ok(()) }
    }

    /// Bytes of rows that are in memory.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Makes the rows durable; gives their names, none if there are no rows.
    ///
    /// # Errors
    /// Those of [`Self::write`].
    pub async fn finish(mut self) -> Result<Vec<StagedRows>> {
        self.write_sorted().await?;
        Ok(self.staged)
    }

    /// Removes what was written, which nobody will name.
    pub async fn abandon(self) {
        for file in &self.staged {
            self.store.discard(&file.path).await;
        }
    }

    /// Writes a file of the rows that wait.
    async fn write_sorted(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let Some(first) = batches.first() else { return Ok(()) };
        let Some(folder) = self.store.updates_folder() else { return Err(not_local(&self.store)) };
        let keys: Vec<Rows> = batches.iter().map(|rows| keys_of(rows, &self.key)).collect::<Result<_>>()?;
        let places = keys
            .iter()
            .enumerate()
            .flat_map(|(batch, keys)| keys.iter().enumerate().map(move |(row, key)| (key, (batch, row))));
        let mut order: Vec<(Row<'_>, (usize, usize))> = places.collect();
        order.sort_unstable();
        let file = TempFile::create(&folder).map_err(|error| unwritable(&self.store, error))?;
        let sink = BufWriter::with_capacity(BUFFER_BYTES, Sink { file, hasher: XxHash64::with_seed(0) });
        let mut writer = StreamWriter::try_new(sink, &first.schema()).map_err(|error| self.unstaged(error))?;
        let all: Vec<&RecordBatch> = batches.iter().collect();
        for part in order.chunks(BATCH_ROWS) {
            let places: Vec<(usize, usize)> = part.iter().map(|(_, place)| *place).collect();
            let rows = interleave_record_batch(&all, &places);
            rows.and_then(|rows| writer.write(&rows)).map_err(|error| self.unstaged(error))?;
        }
        let buffered = writer.into_inner().map_err(|error| self.unstaged(error))?;
        let Sink { file, hasher } =
            buffered.into_inner().map_err(|error| unwritable(&self.store, error.into_error()))?;
        let (path, bytes, checksum) = (Store::staged_path(), file.length, hasher.finish());
        self.store.publish(file, &path).await?;
        let rows = order.len() as u64;
        self.staged.push(StagedRows { operation: self.operation, rows, path, bytes, checksum });
        Ok(())
    }

    fn unstaged(&self, error: ArrowError) -> Error {
        match error {
            ArrowError::IoError(_, error) => unwritable(&self.store, error),
            error => Error::unsupported("the rows cannot be staged").with_source(error),
        }
    }
}

/// The file, and the checksum of what was written to it.
#[derive(Debug)]
struct Sink {
    file: TempFile,
    hasher: XxHash64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.write(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

//! Where sorted chunks wait for their merge: in memory up to a limit, then in one temporary file per group.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Result as IoResult};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::storage::temp_file::TempFile;
use lakemark_format::KeyType;
use lakemark_index::bitmap::{Chunk, ChunkSource};

/// Each chunk is read back in pieces of this size.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that chunks may take, over the whole build.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    spilled: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0), spilled: AtomicU64::new(0) }
    }

    /// Chunks that went to disk.
    pub(crate) fn spilled(&self) -> u64 {
        self.spilled.load(Ordering::Relaxed)
    }

    /// The bytes that may be used in all.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes bytes until what is given back is dropped; none if there are not as many left.
    pub(crate) fn reserve(budget: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        budget.take(bytes).then(|| Reservation { budget: Arc::clone(budget), bytes })
    }

    fn take(&self, bytes: u64) -> bool {
        let fits = self.used.fetch_add(bytes, Ordering::SeqCst) + bytes <= self.limit;
        if !fits {
            self.used.fetch_sub(bytes, Ordering::SeqCst);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// A chunk that waits.
pub(crate) enum SpilledChunk {
    /// In memory; the budget gets its bytes back when it is dropped.
    Memory(Chunk, Reservation),
    /// In the spill file.
    Spilled { file: Arc<File>, start: u64, end: u64 },
}

/// Bytes taken from the budget.
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// A chunk as input of a merge.
pub(crate) struct ReservedSource {
    pub source: ChunkSource,
    /// Memory that the chunk takes of the budget, if it is in memory.
    pub memory: Option<Reservation>,
}

impl SpilledChunk {
    /// The chunk as input of a merge, at its place in the segment's row space.
    pub(crate) fn into_source(self, first_row: u32, key_type: KeyType) -> IoResult<ReservedSource> {
        match self {
            Self::Memory(chunk, memory) => {
                Ok(ReservedSource { source: ChunkSource::memory(first_row, chunk), memory: Some(memory) })
            }
            Self::Spilled { file, start, end } => {
                let input = BufReader::with_capacity(READ_BYTES, Section { file, at: start, end });
                let source = ChunkSource::spilled(first_row, Box::new(input), key_type)?;
                Ok(ReservedSource { source, memory: None })
            }
        }
    }
}

/// The spill file of a group; it is created with the first chunk that does not fit.
pub(crate) struct Spill {
    budget: Arc<Budget>,
    folder: PathBuf,
    file: Mutex<Option<SpillFile>>,
}

/// A temporary file with chunks.
struct SpillFile {
    /// Removes the file when it is dropped.
    _temp: TempFile,
    file: Arc<File>,
    /// Where the next chunk goes.
    end: u64,
}

impl Spill {
    pub(crate) fn new(budget: Arc<Budget>, folder: PathBuf) -> Self {
        Self { budget, folder, file: Mutex::default() }
    }

    /// Keeps a chunk, in memory if it fits. Blocks.
    pub(crate) fn push(&self, chunk: Chunk) -> IoResult<SpilledChunk> {
        let bytes = chunk.memory_bytes() as u64;
        if self.budget.take(bytes) {
            let memory = Reservation { budget: Arc::clone(&self.budget), bytes };
            return Ok(SpilledChunk::Memory(chunk, memory));
        }
        self.budget.spilled.fetch_add(1, Ordering::Relaxed);
        let mut slot = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let temp = TempFile::create(&self.folder)?;
            let Some(file) = temp.file() else { return Err(std::io::ErrorKind::NotFound.into()) };
            let file = Arc::new(file.try_clone()?);
            *slot = Some(SpillFile { _temp: temp, file, end: 0 });
        }
        let Some(SpillFile { file, end, .. }) = slot.as_mut() else { return Err(std::io::ErrorKind::NotFound.into()) };
        let start = *end;
        let mut out = BufWriter::with_capacity(READ_BYTES, Appender { file, at: start });
        chunk.spill(&mut out)?;
        let out = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        let reached = out.at;
        *end = reached;
        Ok(SpilledChunk::Spilled { file: Arc::clone(file), start, end: reached })
    }
}

struct Appender<'a> {
    file: &'a File,
    at: u64,
}

impl std::io::Write for Appender<'_> {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        let written = self.file.write_at(bytes, self.at)?;
        self.at += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> IoResult<()> {
        Ok(())
    }
}

struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let Some(buffer) = buffer.get_mut(..length) else { return Ok(0) };
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

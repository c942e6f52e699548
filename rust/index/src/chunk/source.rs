//! Chunks as a build merges them.

use std::io;

use lakemark_format::key::KeyType;

use super::Chunk;
use super::cursor::{ChunkCursor, NextValue};

/// A chunk to merge, and where its rows begin in the segment's row space.
pub struct ChunkSource {
    pub(crate) first_row: u32,
    pub(crate) cursor: ChunkCursor,
}

impl std::fmt::Debug for ChunkSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkSource").field("first_row", &self.first_row).finish_non_exhaustive()
    }
}

impl ChunkSource {
    /// A chunk in memory.
    #[must_use]
    pub fn memory(first_row: u32, chunk: Chunk) -> Self {
        Self { first_row, cursor: chunk.into_cursor() }
    }

    /// A chunk that [`Chunk::spill`] wrote. Give a buffered reader.
    ///
    /// # Errors
    /// Those of `input`.
    pub fn spilled(first_row: u32, input: Box<dyn io::Read + Send>, key_type: KeyType) -> io::Result<Self> {
        Ok(Self { first_row, cursor: ChunkCursor::spilled(input, key_type)? })
    }

    /// Values that another segment holds, with its NULL and opaque rows; all rows are those of the new segment.
    #[must_use]
    pub fn stream(nulls: Vec<u32>, opaque: Vec<u32>, next: NextValue) -> Self {
        Self { first_row: 0, cursor: ChunkCursor::stream(nulls, opaque, next) }
    }
}

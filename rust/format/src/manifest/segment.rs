//! A sidecar file: the sections of one index for some data files.

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::file_numbers::FileNumbers;
use crate::limits::MAX_PATH_LENGTH;
use crate::path::check_path;

/// A sidecar file: the sections of one index for some data files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestSegment {
    /// The segment's id, the seed of its checksums.
    pub id: [u8; 16],
    /// The index it belongs to.
    pub index_id: [u8; 16],
    /// Path relative to the store.
    pub path: String,
    /// Length in bytes.
    pub length: u64,
    /// Numbers of the covered files, one or more. A number stays when its file leaves the manifest, and then means nothing.
    pub files: FileNumbers,
}

impl ManifestSegment {
    /// Two ids, an empty path's length, the length, and one range of files.
    pub(super) const MIN_BYTES: usize = 16 + 16 + 1 + 1 + 3;

    pub(super) fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.bytes(&self.id);
        out.bytes(&self.index_id);
        out.string("the path of a segment", &self.path, MAX_PATH_LENGTH)?;
        out.varint(self.length);
        self.files.encode(out);
        Ok(())
    }

    pub(super) fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let id = input.array()?;
        let index_id = input.array()?;
        let path = input.string("the path of a segment", MAX_PATH_LENGTH)?;
        let length = input.varint()?;
        let files = FileNumbers::decode("the files of a segment", u32::MAX, input)?;
        Ok(Self { id, index_id, path, length, files })
    }

    pub(super) fn validate(&self) -> Result<()> {
        check_path("the path of a segment", &self.path)?;
        if self.files.is_empty() {
            return Err(FormatError::invalid("the files of a segment", "none", "one or more"));
        }
        Ok(())
    }
}

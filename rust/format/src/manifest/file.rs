//! A data file, as it was when it was indexed.

use twox_hash::XxHash64;

use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::limits::{MAX_FILE_ROWS, MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::path::check_path;

/// A data file, as it was when it was indexed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path relative to the table's root, separated by `/`.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
    /// The object store's entity tag, where there is one.
    pub etag: Option<String>,
    /// Fingerprint of the Parquet footer.
    pub footer_hash: u64,
    /// Number of its schema, see [`Manifest::schema`](super::Manifest::schema).
    pub schema: u32,
    /// Rows of each row group.
    pub row_groups: Vec<u32>,
    /// Columns whose statistics in the footer are false, since they exclude values that are there. The numbers are places among
    /// the leaves of the file's Parquet schema, ascending.
    pub false_statistics: Vec<u32>,
}

impl ManifestFile {
    /// Nothing shared, an empty path's length, size, time, no tag, hash, schema, no row groups and no false statistics.
    pub(super) const MIN_BYTES: usize = 1 + 1 + 1 + 8 + 1 + 8 + 1 + 1 + 1;

    /// Whether both are the same version of a file. What else a manifest says of the file may differ: its schema's number,
    /// and columns whose statistics are false.
    pub fn is_same_version(&self, other: &Self) -> bool {
        let version = |file: &Self| (file.size, file.modified_ns, file.footer_hash);
        version(self) == version(other)
            && (&self.path, &self.etag, &self.row_groups) == (&other.path, &other.etag, &other.row_groups)
    }

    /// Rows of the file.
    pub fn rows(&self) -> u64 {
        self.row_groups.iter().copied().map(u64::from).sum()
    }

    /// Writes the file; of its path only what differs from the path of the file `before` it.
    pub(super) fn encode(&self, before: &str, out: &mut ByteWriter) -> Result<()> {
        if self.path.len() > MAX_PATH_LENGTH {
            let (what, got) = ("the path of a data file", self.path.len() as u64);
            return Err(FormatError::TooLong { what, got, limit: MAX_PATH_LENGTH as u64 });
        }
        let shared = shared_length(before.as_bytes(), self.path.as_bytes());
        out.length(shared);
        let (_, rest) = self.path.as_bytes().split_at(shared);
        out.blob("the path of a data file", rest, MAX_PATH_LENGTH)?;
        out.varint(self.size);
        out.i64(self.modified_ns);
        out.flag(self.etag.is_some());
        if let Some(etag) = &self.etag {
            out.string("an entity tag", etag, MAX_NAME_LENGTH)?;
        }
        out.u64(self.footer_hash);
        out.varint(u64::from(self.schema));
        for list in [&self.row_groups, &self.false_statistics] {
            out.length(list.len());
            list.iter().for_each(|number| out.varint(u64::from(*number)));
        }
        Ok(())
    }

    pub(super) fn decode(before: &str, input: &mut ByteReader<'_>) -> Result<Self> {
        let path = path_after(before, input)?;
        let size = input.varint()?;
        let modified_ns = input.i64()?;
        let etag = match input.flag("the presence of an entity tag")? {
            true => Some(input.string("an entity tag", MAX_NAME_LENGTH)?),
            false => None,
        };
        let footer_hash = input.u64()?;
        let schema = input.varint_u32("the schema of a data file")?;
        let count = input.count("the number of row groups", 1)?;
        let row_groups = (0..count).map(|_| input.varint_u32("the rows of a row group")).collect::<Result<_>>()?;
        let count = input.count("the number of columns with false statistics", 1)?;
        let columns = (0..count).map(|_| input.varint_u32("a column with false statistics"));
        let false_statistics = columns.collect::<Result<_>>()?;
        Ok(Self { path, size, modified_ns, etag, footer_hash, schema, row_groups, false_statistics })
    }

    pub(super) fn validate(&self) -> Result<()> {
        check_path("the path of a data file", &self.path)?;
        let rows = self.rows();
        if rows > MAX_FILE_ROWS {
            return Err(FormatError::TooLong { what: "the rows of a data file", got: rows, limit: MAX_FILE_ROWS });
        }
        if !self.false_statistics.is_sorted_by(|a, b| a < b) {
            let got = format_args!("{:?}", self.false_statistics).to_string();
            return Err(FormatError::invalid("the columns with false statistics", got, "ascending"));
        }
        Ok(())
    }
}

/// The hash by which a path is looked up.
pub(super) fn path_hash(path: &str) -> u64 {
    XxHash64::oneshot(0, path.as_bytes())
}

fn shared_length(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn path_after(before: &str, input: &mut ByteReader<'_>) -> Result<String> {
    let what = "the path of a data file";
    let shared = input.varint()?;
    let rest = input.blob(what, MAX_PATH_LENGTH)?;
    let head = usize::try_from(shared).ok().and_then(|shared| before.as_bytes().get(..shared));
    let Some(head) = head else {
        let limit = before.len() as u64;
        return Err(FormatError::TooLong { what: "the bytes that two paths share", got: shared, limit });
    };
    let path = [head, rest].concat();
    if path.len() > MAX_PATH_LENGTH {
        return Err(FormatError::TooLong { what, got: path.len() as u64, limit: MAX_PATH_LENGTH as u64 });
    }
    let most = shared_length(before.as_bytes(), &path);
    if most != head.len() {
        return Err(FormatError::invalid("the bytes that two paths share", shared, most));
    }
    String::from_utf8(path).map_err(|error| FormatError::invalid(what, error.utf8_error(), "UTF-8"))
}

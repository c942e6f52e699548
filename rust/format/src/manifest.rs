//! The manifest: the numbered, immutable list of a table's data files, indexes and segments.
//!
//! A manifest is a [container](crate::container) whose stream holds just the header and whose directory is the manifest.
//! Its id is the store's. References between its parts are checked at both ends: [`Manifest::encode`] refuses what
//! [`Manifest::decode`] would refuse.

mod extras;
mod false_statistics;
mod updates;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContainerWriter, ContentKind, WholeFile, open_whole};
use crate::error::{FormatError, Result};
use crate::index_kind::IndexKind;
use crate::key::KeyType;
use crate::limits::{MAX_FILE_ROWS, MAX_NAME_LENGTH, MAX_PATH_LENGTH};
use crate::name_of::NameOf;
use crate::path::check_path;
use crate::segment::encoding::Encoding;

pub use extras::{ManifestDelta, ManifestPublication, ManifestTransaction, MovedFile, PublishedFile};
use false_statistics::FALSE_STATISTICS_TAG;
pub use updates::{
    ManifestLog, ManifestMigration, ManifestPositionMap, ManifestRun, ManifestUpdates, ReplacedFile, RunRange,
    StoreFile, WriteCounters,
};

/// The longest schema of a data file, in bytes.
pub const MAX_SCHEMA_LENGTH: usize = 16 * 1024 * 1024;
/// The byte before the part about updates, which only manifests of tables that take updates have.
const UPDATES_TAG: u8 = 1;

/// One state of a table's index store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The store's id, which never changes.
    pub store_id: [u8; 16],
    /// The manifest's number: the commit is the put-if-absent of the next one.
    pub number: u64,
    /// When it was written, in milliseconds since 1970-01-01 UTC; for people, never for decisions.
    pub created_ms: i64,
    /// The distinct schemas of the data files: Arrow IPC schema messages, opaque to the format.
    pub schemas: Vec<Vec<u8>>,
    /// The data files that segments cover.
    pub files: Vec<ManifestFile>,
    /// The declared indexes.
    pub indexes: Vec<ManifestIndex>,
    /// The sidecar files.
    pub segments: Vec<ManifestSegment>,
    /// What is buffered, if the table takes updates.
    pub updates: Option<ManifestUpdates>,
}

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
    /// Ordinal of its schema in [`Manifest::schemas`].
    pub schema: u32,
    /// Rows of each row group.
    pub row_groups: Vec<u32>,
    /// Columns whose statistics in the footer are false, since they exclude values that are there. The numbers are places among
    /// the leaves of the file's Parquet schema, ascending.
    pub false_statistics: Vec<u32>,
}

/// A declared index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestIndex {
    /// The index's id; a name that is dropped and declared again is another index.
    pub id: [u8; 16],
    /// The name, unique in the table.
    pub name: String,
    /// The kind, such as `bitmap`.
    pub kind: NameOf<IndexKind>,
    /// The encoding, such as `equality`.
    pub encoding: NameOf<Encoding>,
    /// The column's physical name.
    pub column: String,
    /// The column's field id, where the table has them.
    pub field_id: Option<i32>,
    /// The column's type.
    pub key_type: KeyType,
    /// Options as they were given, in order.
    pub options: Vec<(String, String)>,
}

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
    /// Ordinals of the covered files in [`Manifest::files`], ascending.
    pub files: Vec<u32>,
}

impl Manifest {
    /// The bytes of the manifest file.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.validate_indexes()?;
        let mut out = ByteWriter::new();
        out.u64(self.number);
        out.i64(self.created_ms);
        out.length(self.schemas.len());
        for schema in &self.schemas {
            out.blob("the schema of a data file", schema, MAX_SCHEMA_LENGTH)?;
        }
        out.length(self.files.len());
        for file in &self.files {
            file.encode(&mut out)?;
        }
        out.length(self.indexes.len());
        for index in &self.indexes {
            index.encode(&mut out)?;
        }
        out.length(self.segments.len());
        for segment in &self.segments {
            segment.encode(&mut out)?;
        }
        false_statistics::encode(&self.files, &mut out);
        if let Some(updates) = &self.updates {
            updates.validate()?;
            out.u8(UPDATES_TAG);
            updates.encode(&mut out)?;
        }
        ContainerWriter::new(ContentKind::Manifest, self.store_id).finish(out.as_slice())
    }

    /// Reads the bytes of a manifest file, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let WholeFile { id, directory } = open_whole(bytes, ContentKind::Manifest)?;
        let manifest = Self::decode_body(id, directory)?;
        manifest.validate_indexes()?;
        Ok(manifest)
    }

    fn decode_body(store_id: [u8; 16], body: &[u8]) -> Result<Self> {
        let mut input = ByteReader::new("the manifest", body);
        let number = input.u64()?;
        let created_ms = input.i64()?;
        let count = input.count("the number of schemas", 1)?;
        let mut schemas = Vec::with_capacity(count);
        for _ in 0..count {
            schemas.push(input.blob("the schema of a data file", MAX_SCHEMA_LENGTH)?.to_vec());
        }
        let count = input.count("the number of files", ManifestFile::MIN_BYTES)?;
        let mut files = Vec::with_capacity(count);
        for _ in 0..count {
            files.push(ManifestFile::decode(&mut input)?);
        }
        let count = input.count("the number of indexes", ManifestIndex::MIN_BYTES)?;
        let mut indexes = Vec::with_capacity(count);
        for _ in 0..count {
            indexes.push(ManifestIndex::decode(&mut input)?);
        }
        let count = input.count("the number of segments", ManifestSegment::MIN_BYTES)?;
        let mut segments = Vec::with_capacity(count);
        for _ in 0..count {
            segments.push(ManifestSegment::decode(&mut input)?);
        }
        if input.peek() == Some(FALSE_STATISTICS_TAG) {
            input.u8()?;
            false_statistics::decode(&mut input, &mut files)?;
        }
        let updates = match input.remaining() {
            0 => None,
            _ => Some(decode_updates(input).map_err(of_updates)?),
        };
        Ok(Self { store_id, number, created_ms, schemas, files, indexes, segments, updates })
    }

    /// Checks all but the updates.
    fn validate_indexes(&self) -> Result<()> {
        let mut paths = HashSet::with_capacity(self.files.len());
        for file in &self.files {
            check_path("the path of a data file", &file.path)?;
            unique(&mut paths, "the path of a data file", file.path.as_str())?;
            if file.schema as usize >= self.schemas.len() {
                let expected = format_args!("below {}", self.schemas.len()).to_string();
                return Err(FormatError::invalid("the schema of a data file", file.schema, expected));
            }
            let rows: u64 = file.row_groups.iter().copied().map(u64::from).sum();
            if rows > MAX_FILE_ROWS {
                return Err(FormatError::TooLong { what: "the rows of a data file", got: rows, limit: MAX_FILE_ROWS });
            }
            false_statistics::validate(file)?;
        }
        let mut names = HashSet::with_capacity(self.indexes.len());
        let mut index_ids = HashSet::with_capacity(self.indexes.len());
        for index in &self.indexes {
            unique(&mut names, "the name of an index", index.name.as_str())?;
            unique(&mut index_ids, "the id of an index", &index.id)?;
            index.key_type.validate()?;
        }
        let mut ids = HashSet::with_capacity(self.segments.len());
        for segment in &self.segments {
            check_path("the path of a segment", &segment.path)?;
            unique(&mut ids, "the id of a segment", &segment.id)?;
            if !index_ids.contains(&segment.index_id) {
                let got = format_args!("{:02x?}", segment.index_id).to_string();
                return Err(FormatError::invalid("the index of a segment", got, "a declared index"));
            }
            segment.validate(self.files.len())?;
        }
        Ok(())
    }
}

impl ManifestFile {
    /// An empty path's length, size, time, no tag, hash, schema and no row groups.
    const MIN_BYTES: usize = 1 + 1 + 8 + 1 + 8 + 1 + 1;

    /// Whether both are the same version of a file. What else a manifest says of the file may differ: its schema's place there,
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

    fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.string("the path of a data file", &self.path, MAX_PATH_LENGTH)?;
        out.varint(self.size);
        out.i64(self.modified_ns);
        out.flag(self.etag.is_some());
        if let Some(etag) = &self.etag {
            out.string("an entity tag", etag, MAX_NAME_LENGTH)?;
        }
        out.u64(self.footer_hash);
        out.varint(u64::from(self.schema));
        out.length(self.row_groups.len());
        for rows in &self.row_groups {
            out.varint(u64::from(*rows));
        }
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let path = input.string("the path of a data file", MAX_PATH_LENGTH)?;
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
        Ok(Self { path, size, modified_ns, etag, footer_hash, schema, row_groups, false_statistics: Vec::new() })
    }
}

impl ManifestIndex {
    /// The id, four empty strings, no field id, a type and no options.
    const MIN_BYTES: usize = 16 + 4 + 1 + 1 + 1;

    fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.bytes(&self.id);
        out.string("the name of an index", &self.name, MAX_NAME_LENGTH)?;
        out.string("the kind of an index", self.kind.as_str(), MAX_NAME_LENGTH)?;
        out.string("the encoding of an index", self.encoding.as_str(), MAX_NAME_LENGTH)?;
        out.string("the column of an index", &self.column, MAX_NAME_LENGTH)?;
        out.flag(self.field_id.is_some());
        if let Some(field_id) = self.field_id {
            out.u32(field_id.cast_unsigned());
        }
        self.key_type.encode(out);
        out.length(self.options.len());
        for (name, value) in &self.options {
            out.string("an option's name", name, MAX_NAME_LENGTH)?;
            out.string("an option's value", value, MAX_NAME_LENGTH)?;
        }
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let id = input.array()?;
        let name = input.string("the name of an index", MAX_NAME_LENGTH)?;
        let kind = input.string("the kind of an index", MAX_NAME_LENGTH)?.as_str().into();
        let encoding = input.string("the encoding of an index", MAX_NAME_LENGTH)?.as_str().into();
        let column = input.string("the column of an index", MAX_NAME_LENGTH)?;
        let field_id = match input.flag("the presence of a field id")? {
            true => Some(input.u32()?.cast_signed()),
            false => None,
        };
        let key_type = KeyType::decode(input)?;
        let count = input.count("the number of options", 2)?;
        let mut options = Vec::with_capacity(count);
        for _ in 0..count {
            let name = input.string("an option's name", MAX_NAME_LENGTH)?;
            options.push((name, input.string("an option's value", MAX_NAME_LENGTH)?));
        }
        Ok(Self { id, name, kind, encoding, column, field_id, key_type, options })
    }
}

impl ManifestSegment {
    /// Two ids, an empty path's length, the length and no files.
    const MIN_BYTES: usize = 16 + 16 + 1 + 1 + 1;

    fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        out.bytes(&self.id);
        out.bytes(&self.index_id);
        out.string("the path of a segment", &self.path, MAX_PATH_LENGTH)?;
        out.varint(self.length);
        out.length(self.files.len());
        let mut next = 0;
        for ordinal in &self.files {
            // `validate` saw that the ordinals ascend.
            out.varint(u64::from(ordinal.wrapping_sub(next)));
            next = ordinal.wrapping_add(1);
        }
        Ok(())
    }

    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let id = input.array()?;
        let index_id = input.array()?;
        let path = input.string("the path of a segment", MAX_PATH_LENGTH)?;
        let length = input.varint()?;
        let count = input.count("the number of files of a segment", 1)?;
        let mut files = Vec::with_capacity(count);
        let mut next = 0u64;
        for _ in 0..count {
            let ordinal = next.saturating_add(input.varint()?);
            files.push(u32::try_from(ordinal).map_err(|_| FormatError::TooLong {
                what: "the ordinal of a data file",
                got: ordinal,
                limit: u64::from(u32::MAX),
            })?);
            next = ordinal + 1;
        }
        Ok(Self { id, index_id, path, length, files })
    }

    fn validate(&self, file_count: usize) -> Result<()> {
        if !self.files.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::invalid("the files of a segment", "out of order", "ascending ordinals"));
        }
        match self.files.last() {
            Some(last) if *last as usize >= file_count => {
                Err(FormatError::invalid("a file of a segment", last, format_args!("below {file_count}")))
            }
            _ => Ok(()),
        }
    }
}

/// The rest of a manifest that has more than indexes.
fn decode_updates(mut input: ByteReader<'_>) -> Result<ManifestUpdates> {
    match input.u8()? {
        UPDATES_TAG => {}
        other => return Err(FormatError::invalid("the byte before the updates", other, UPDATES_TAG)),
    }
    let updates = ManifestUpdates::decode(&mut input)?;
    input.finish()?;
    updates.validate()?;
    Ok(updates)
}

/// An error of the part about updates.
fn of_updates(error: FormatError) -> FormatError {
    error.of_updates("the updates of the manifest")
}

/// Checks that paths are unique and lead nowhere else.
fn check_paths<'a>(what: &'static str, paths: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for path in paths {
        check_path(what, path)?;
        unique(&mut seen, what, path)?;
    }
    Ok(())
}

/// Refuses a value that was seen before.
pub(crate) fn unique<'a, T: Hash + Eq + Debug + ?Sized>(
    seen: &mut HashSet<&'a T>,
    what: &'static str,
    value: &'a T,
) -> Result<()> {
    if seen.insert(value) {
        return Ok(());
    }
    Err(FormatError::invalid(what, format_args!("{value:02x?} for the second time"), "unique"))
}

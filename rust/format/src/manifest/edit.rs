//! An edit: what one commit changed, as the changes of the state and not as what somebody wanted.
//!
//! An edit is a [container](crate::container) whose stream holds just the header and whose directory is the edit. Its id is the store's.

use std::collections::HashSet;

use super::{MAX_SCHEMA_LENGTH, ManifestFile, ManifestIndex, ManifestSegment, ManifestUpdates, unique};
use crate::codec::{ByteReader, ByteWriter};
use crate::container::{ContainerWriter, ContentKind, WholeFile, open_whole};
use crate::error::{FormatError, Result};
use crate::file_numbers::FileNumbers;

/// The edit of one number: the commit is the put-if-absent of the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEdit {
    /// The store's id, which never changes.
    pub store_id: [u8; 16],
    /// The edit's number: 1 for the first, and one more for each.
    pub number: u64,
    /// When it was written, in milliseconds since 1970-01-01 UTC; for people, never for decisions.
    pub created_ms: i64,
    /// Number of the newest checkpoint that its writer knew, below `number`; 0 if it knew none.
    pub checkpoint: u64,
    /// What changed.
    pub changes: ManifestChanges,
}

/// What an edit changes. The changes are applied in the order of the fields. Lists are in an order of their own, which
/// [`Self::sort`] makes, so that the same changes have the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestChanges {
    /// Numbers of files that leave.
    pub files_removed: FileNumbers,
    /// Numbers of schemas that leave, ascending: no file that stays, comes or changes has one of them.
    pub schemas_removed: Vec<u32>,
    /// Schemas that come: Arrow IPC schema messages, opaque to the format. They get the numbers from
    /// [`Manifest::next_schema`](super::Manifest::next_schema) on.
    pub schemas_added: AddedSchemas,
    /// Files that stay, under their numbers, ascending, with all that is known of them now. Paths stay what they were.
    pub files_changed: Vec<(u32, ManifestFile)>,
    /// Files that come. They get the numbers from [`Manifest::next_file`](super::Manifest::next_file) on.
    pub files_added: AddedFiles,
    /// Ids of segments that leave, ascending.
    pub segments_removed: Vec<[u8; 16]>,
    /// Ids of indexes that leave, ascending. Their segments leave with the same edit or left before.
    pub indexes_removed: Vec<[u8; 16]>,
    /// Indexes that come, by name.
    pub indexes_added: Vec<ManifestIndex>,
    /// Segments that come, by id.
    pub segments_added: Vec<ManifestSegment>,
    /// What is buffered, if that changed: all of it, as it is now.
    pub updates: Option<ManifestUpdates>,
}

/// Schemas that come, with the number of the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedSchemas {
    /// Number of the first; 0 if there is none.
    pub first: u32,
    /// The schemas, distinct.
    pub schemas: Vec<Vec<u8>>,
}

/// Files that come, with the number of the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedFiles {
    /// Number of the first; 0 if there is none.
    pub first: u32,
    /// The files; paths are unique.
    pub files: Vec<ManifestFile>,
}

impl ManifestEdit {
    /// The bytes of the file. What [`Self::decode`] would refuse is refused.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.validate()?;
        let mut out = ByteWriter::new();
        out.u64(self.number);
        out.i64(self.created_ms);
        out.varint(self.checkpoint);
        self.changes.encode(&mut out)?;
        ContainerWriter::new(ContentKind::Edit, self.store_id).finish(out.as_slice())
    }

    /// Reads the bytes of a file, all of them.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let WholeFile { id, directory } = open_whole(bytes, ContentKind::Edit)?;
        let mut input = ByteReader::new("the edit", directory);
        let (number, created_ms, checkpoint) = (input.u64()?, input.i64()?, input.varint()?);
        let changes = ManifestChanges::decode(input)?;
        let edit = Self { store_id: id, number, created_ms, checkpoint, changes };
        edit.validate()?;
        Ok(edit)
    }

    fn validate(&self) -> Result<()> {
        if self.checkpoint >= self.number {
            let expected = format_args!("below {}, the number of the edit", self.number).to_string();
            return Err(FormatError::invalid("the checkpoint of an edit", self.checkpoint, expected));
        }
        self.changes.validate()
    }
}

/// The byte before each change that an edit has. Changes ascend by their bytes.
mod tag {
    pub(super) const FILES_REMOVED: u8 = 1;
    pub(super) const SCHEMAS_REMOVED: u8 = 2;
    pub(super) const SCHEMAS_ADDED: u8 = 3;
    pub(super) const FILES_CHANGED: u8 = 4;
    pub(super) const FILES_ADDED: u8 = 5;
    pub(super) const SEGMENTS_REMOVED: u8 = 6;
    pub(super) const INDEXES_REMOVED: u8 = 7;
    pub(super) const INDEXES_ADDED: u8 = 8;
    pub(super) const SEGMENTS_ADDED: u8 = 9;
    pub(super) const UPDATES: u8 = 10;
}

impl ManifestChanges {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts the lists in the order that they have in an edit. Files and schemas that come have the order of their numbers.
    pub fn sort(&mut self) {
        self.schemas_removed.sort_unstable();
        self.files_changed.sort_unstable_by_key(|(number, _)| *number);
        self.segments_removed.sort_unstable();
        self.indexes_removed.sort_unstable();
        self.indexes_added.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.segments_added.sort_unstable_by_key(|segment| segment.id);
    }

    fn encode(&self, out: &mut ByteWriter) -> Result<()> {
        if !self.files_removed.is_empty() {
            out.u8(tag::FILES_REMOVED);
            self.files_removed.encode(out);
        }
        put_list(tag::SCHEMAS_REMOVED, &self.schemas_removed, out, |number, out| {
            out.varint(u64::from(*number));
            Ok(())
        })?;
        if !self.schemas_added.schemas.is_empty() {
            out.u8(tag::SCHEMAS_ADDED);
            out.varint(u64::from(self.schemas_added.first));
            put_items(&self.schemas_added.schemas, out, |schema, out| {
                out.blob("the schema of a data file", schema, MAX_SCHEMA_LENGTH)
            })?;
        }
        put_list(tag::FILES_CHANGED, &self.files_changed, out, |(number, file), out| {
            out.varint(u64::from(*number));
            file.encode("", out)
        })?;
        if !self.files_added.files.is_empty() {
            out.u8(tag::FILES_ADDED);
            out.varint(u64::from(self.files_added.first));
            put_items(&self.files_added.files, out, |file, out| file.encode("", out))?;
        }
        let put_id = |id: &[u8; 16], out: &mut ByteWriter| {
            out.bytes(id);
            Ok(())
        };
        put_list(tag::SEGMENTS_REMOVED, &self.segments_removed, out, put_id)?;
        put_list(tag::INDEXES_REMOVED, &self.indexes_removed, out, put_id)?;
        put_list(tag::INDEXES_ADDED, &self.indexes_added, out, ManifestIndex::encode)?;
        put_list(tag::SEGMENTS_ADDED, &self.segments_added, out, ManifestSegment::encode)?;
        if let Some(updates) = &self.updates {
            out.u8(tag::UPDATES);
            updates.encode(out)?;
        }
        Ok(())
    }

    fn decode(mut input: ByteReader<'_>) -> Result<Self> {
        let mut changes = Self::default();
        let mut last = 0;
        while input.remaining() > 0 {
            let tag = input.u8()?;
            if tag <= last || tag > tag::UPDATES {
                let expected = format_args!("above {last}, at most {}", tag::UPDATES).to_string();
                return Err(FormatError::invalid("the byte before a change", tag, expected));
            }
            last = tag;
            changes.decode_change(tag, &mut input)?;
        }
        Ok(changes)
    }

    fn decode_change(&mut self, tag: u8, input: &mut ByteReader<'_>) -> Result<()> {
        match tag {
            tag::FILES_REMOVED => {
                self.files_removed = FileNumbers::decode("the files that are removed", u32::MAX, input)?;
                not_empty("the files that are removed", self.files_removed.ranges())?;
            }
            tag::SCHEMAS_REMOVED => {
                let what = "the schemas that are removed";
                self.schemas_removed = list(what, 1, input, |input| input.varint_u32("the number of a schema"))?;
            }
            tag::SCHEMAS_ADDED => {
                let first = input.varint_u32("the number of a schema")?;
                let schema = |input: &mut ByteReader<'_>| {
                    Ok(input.blob("the schema of a data file", MAX_SCHEMA_LENGTH)?.to_vec())
                };
                self.schemas_added =
                    AddedSchemas { first, schemas: list("the schemas that are added", 1, input, schema)? };
            }
            tag::FILES_CHANGED => {
                let file = |input: &mut ByteReader<'_>| {
                    Ok((input.varint_u32("the number of a data file")?, ManifestFile::decode("", input)?))
                };
                self.files_changed = list("the files that are changed", 1 + ManifestFile::MIN_BYTES, input, file)?;
            }
            tag::FILES_ADDED => {
                let first = input.varint_u32("the number of a data file")?;
                let file = |input: &mut ByteReader<'_>| ManifestFile::decode("", input);
                let files = list("the files that are added", ManifestFile::MIN_BYTES, input, file)?;
                self.files_added = AddedFiles { first, files };
            }
            tag::SEGMENTS_REMOVED => {
                self.segments_removed = list("the segments that are removed", 16, input, |input| input.array())?;
            }
            tag::INDEXES_REMOVED => {
                self.indexes_removed = list("the indexes that are removed", 16, input, |input| input.array())?;
            }
            tag::INDEXES_ADDED => {
                let what = "the indexes that are added";
                self.indexes_added = list(what, ManifestIndex::MIN_BYTES, input, ManifestIndex::decode)?;
            }
            tag::SEGMENTS_ADDED => {
                let what = "the segments that are added";
                self.segments_added = list(what, ManifestSegment::MIN_BYTES, input, ManifestSegment::decode)?;
            }
            _ => self.updates = Some(ManifestUpdates::decode_rest(input)?),
        }
        Ok(())
    }

    /// Checks what can be told without the state that is changed.
    fn validate(&self) -> Result<()> {
        ascending("the schemas that are removed", self.schemas_removed.iter())?;
        let AddedSchemas { first, schemas } = &self.schemas_added;
        check_numbers("the numbers of schemas that are added", *first, schemas.len())?;
        let mut seen = HashSet::new();
        schemas.iter().try_for_each(|schema| unique(&mut seen, "the schema of a data file", schema.as_slice()))?;
        ascending("the files that are changed", self.files_changed.iter().map(|(number, _)| number))?;
        let AddedFiles { first, files } = &self.files_added;
        check_numbers("the numbers of files that are added", *first, files.len())?;
        let mut paths = HashSet::with_capacity(files.len() + self.files_changed.len());
        for file in files.iter().chain(self.files_changed.iter().map(|(_, file)| file)) {
            file.validate()?;
            unique(&mut paths, "the path of a data file", file.path.as_str())?;
        }
        ascending("the segments that are removed", self.segments_removed.iter())?;
        ascending("the indexes that are removed", self.indexes_removed.iter())?;
        ascending("the indexes that are added", self.indexes_added.iter().map(|index| &index.name))?;
        let mut ids = HashSet::new();
        for index in &self.indexes_added {
            unique(&mut ids, "the id of an index", &index.id)?;
            index.key_type.validate()?;
        }
        ascending("the segments that are added", self.segments_added.iter().map(|segment| &segment.id))?;
        self.segments_added.iter().try_for_each(ManifestSegment::validate)?;
        self.updates.as_ref().map_or(Ok(()), ManifestUpdates::validate)
    }
}

/// Writes a change that is a list, unless the list is empty.
fn put_list<T>(
    tag: u8,
    items: &[T],
    out: &mut ByteWriter,
    put: impl Fn(&T, &mut ByteWriter) -> Result<()>,
) -> Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    out.u8(tag);
    put_items(items, out, put)
}

fn put_items<T>(items: &[T], out: &mut ByteWriter, put: impl Fn(&T, &mut ByteWriter) -> Result<()>) -> Result<()> {
    out.length(items.len());
    items.iter().try_for_each(|item| put(item, out))
}

/// Reads a list that is not empty.
fn list<T>(
    what: &'static str,
    min_bytes: usize,
    input: &mut ByteReader<'_>,
    item: impl Fn(&mut ByteReader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = input.count(what, min_bytes)?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(item(input)?);
    }
    not_empty(what, &items)?;
    Ok(items)
}

fn not_empty<T>(what: &'static str, items: &[T]) -> Result<()> {
    if items.is_empty() { Err(FormatError::invalid(what, "none", "left out where there are none")) } else { Ok(()) }
}

/// Numbers are below 2^32 - 1. The first of none is 0.
fn check_numbers(what: &'static str, first: u32, count: usize) -> Result<()> {
    if count == 0 && first != 0 {
        return Err(FormatError::invalid(what, first, "0 where there are none"));
    }
    let (end, limit) = (u64::from(first) + count as u64, u64::from(u32::MAX));
    if end > limit { Err(FormatError::TooLong { what, got: end, limit }) } else { Ok(()) }
}

/// Checks an order in which nothing is there twice.
pub(super) fn ascending<T: Ord>(what: &'static str, items: impl Iterator<Item = T>) -> Result<()> {
    if items.is_sorted_by(|a, b| a < b) {
        return Ok(());
    }
    Err(FormatError::invalid(what, "out of order or twice", "ascending"))
}

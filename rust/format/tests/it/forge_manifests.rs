//! The second writer of edits and checkpoints, made from `docs/format.md`, that checks nothing.

use lakemark_format::codec::ByteWriter;
use lakemark_format::*;
use twox_hash::XxHash64;

use crate::forge::{self, blob, list};
use crate::forge_updates;
use crate::samples_manifests as samples;

/// A file of this kind whose directory is everything.
pub fn whole(kind: ContentKind, id: [u8; 16], body: &[u8]) -> Vec<u8> {
    forge::container(kind, id, &forge::header(kind.code(), &id), body)
}

/// An edit's file.
pub fn edit(edit: &ManifestEdit) -> Vec<u8> {
    whole(ContentKind::Edit, edit.store_id, &edit_body(edit))
}

pub fn edit_body(edit: &ManifestEdit) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.u64(edit.number);
    out.i64(edit.created_ms);
    out.varint(edit.checkpoint);
    let changes = &edit.changes;
    if !changes.files_removed.is_empty() {
        out.u8(1);
        numbers(&mut out, &changes.files_removed);
    }
    if !changes.schemas_removed.is_empty() {
        out.u8(2);
        list(&mut out, &changes.schemas_removed);
    }
    if !changes.schemas_added.schemas.is_empty() {
        out.u8(3);
        out.varint(changes.schemas_added.first.into());
        items(&mut out, &changes.schemas_added.schemas, |out, schema| blob(out, schema));
    }
    if !changes.files_changed.is_empty() {
        out.u8(4);
        items(&mut out, &changes.files_changed, |out, (number, value)| {
            out.varint((*number).into());
            file(out, 0, value);
        });
    }
    if !changes.files_added.files.is_empty() {
        out.u8(5);
        out.varint(changes.files_added.first.into());
        items(&mut out, &changes.files_added.files, |out, value| file(out, 0, value));
    }
    for (tag, ids) in [(6, &changes.segments_removed), (7, &changes.indexes_removed)] {
        if !ids.is_empty() {
            out.u8(tag);
            items(&mut out, ids, |out, id| out.bytes(id));
        }
    }
    if !changes.indexes_added.is_empty() {
        out.u8(8);
        items(&mut out, &changes.indexes_added, index);
    }
    if !changes.segments_added.is_empty() {
        out.u8(9);
        items(&mut out, &changes.segments_added, segment);
    }
    if let Some(updates) = &changes.updates {
        out.u8(10);
        out.bytes(&forge_updates::part(updates));
    }
    out.into_vec()
}

fn items<T>(out: &mut ByteWriter, items: &[T], put: impl Fn(&mut ByteWriter, &T)) {
    out.varint(items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn numbers(out: &mut ByteWriter, numbers: &FileNumbers) {
    out.varint(numbers.ranges().len() as u64);
    let mut before = None;
    for range in numbers.ranges() {
        out.varint(u64::from(range.start) - before.map_or(0, |end: u32| u64::from(end) + 1));
        out.varint(u64::from(range.end - range.start) - 1);
        before = Some(range.end);
    }
}

/// A file whose path shares so many bytes with the one before.
fn file(out: &mut ByteWriter, shared: usize, file: &ManifestFile) {
    out.varint(shared as u64);
    blob(out, &file.path.as_bytes()[shared..]);
    out.varint(file.size);
    out.i64(file.modified_ns);
    out.u8(file.etag.is_some().into());
    file.etag.iter().for_each(|etag| blob(out, etag.as_bytes()));
    out.u64(file.footer_hash);
    out.varint(file.schema.into());
    list(out, &file.row_groups);
    list(out, &file.false_statistics);
}

fn index(out: &mut ByteWriter, index: &ManifestIndex) {
    out.bytes(&index.id);
    for text in [index.name.as_str(), index.kind.as_str(), index.encoding.as_str(), index.column.as_str()] {
        blob(out, text.as_bytes());
    }
    out.u8(index.field_id.is_some().into());
    index.field_id.iter().for_each(|id| out.bytes(&id.to_le_bytes()));
    index.key_type.encode(out);
    items(out, &index.options, |out, (name, value)| {
        blob(out, name.as_bytes());
        blob(out, value.as_bytes());
    });
}

fn segment(out: &mut ByteWriter, segment: &ManifestSegment) {
    out.bytes(&segment.id);
    out.bytes(&segment.index_id);
    blob(out, segment.path.as_bytes());
    out.varint(segment.length);
    numbers(out, &segment.files);
}

/// The root of a checkpoint, as its bytes have it.
#[derive(Debug, Clone, Default)]
pub struct Root {
    pub store_id: [u8; 16],
    pub number: u64,
    pub created_ms: i64,
    pub next_schema: u32,
    pub schemas: Vec<(u32, Vec<u8>)>,
    pub next_file: u32,
    /// The bytes of the live numbers of each part, and the name of its piece.
    pub parts: Vec<(Vec<u8>, Option<[u8; 16]>)>,
    /// The number of entries of each page, and the name of its piece.
    pub pages: Vec<(u64, Option<[u8; 16]>)>,
    pub indexes: Vec<ManifestIndex>,
    pub segments: Vec<ManifestSegment>,
    pub updates: Option<ManifestUpdates>,
}

/// A root's file.
pub fn root(root: &Root) -> Vec<u8> {
    whole(ContentKind::Checkpoint, root.store_id, &root_body(root))
}

pub fn root_body(root: &Root) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.u64(root.number);
    out.i64(root.created_ms);
    out.varint(root.next_schema.into());
    items(&mut out, &root.schemas, |out, (number, schema)| {
        out.varint((*number).into());
        blob(out, schema);
    });
    out.varint(root.next_file.into());
    for (live, piece) in &root.parts {
        out.bytes(live);
        piece.iter().for_each(|id| out.bytes(id));
    }
    for (entries, piece) in &root.pages {
        out.varint(*entries);
        piece.iter().for_each(|id| out.bytes(id));
    }
    items(&mut out, &root.indexes, index);
    items(&mut out, &root.segments, segment);
    out.u8(root.updates.is_some().into());
    root.updates.iter().for_each(|updates| out.bytes(&forge_updates::part(updates)));
    out.into_vec()
}

/// The live numbers of a part of so many numbers.
pub fn live(slots: u32, live: &[u32]) -> Vec<u8> {
    if live.is_empty() {
        return vec![0];
    }
    if live.len() == slots as usize {
        return vec![1];
    }
    let mut ranges = ByteWriter::new();
    numbers(&mut ranges, &live.iter().copied().collect());
    let mut bitmap = vec![0; (slots as usize).div_ceil(8)];
    live.iter().for_each(|slot| bitmap[*slot as usize / 8] |= 1 << (slot % 8));
    if ranges.len() <= bitmap.len() { [vec![2], ranges.into_vec()].concat() } else { [vec![3], bitmap].concat() }
}

/// The name of a piece with this body.
pub fn piece_id(kind: ContentKind, body: &[u8]) -> [u8; 16] {
    let hash = |seed| XxHash64::oneshot(seed, body).to_le_bytes();
    let seed = u64::from(kind.code());
    [hash(seed), hash(seed + 256)].concat().try_into().unwrap()
}

/// A piece's file.
pub fn piece(kind: ContentKind, body: &[u8]) -> Vec<u8> {
    whole(kind, piece_id(kind, body), body)
}

/// The body of a part with files at these places.
pub fn part_body(part: u32, files: &[(u32, ManifestFile)]) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.varint(part.into());
    out.varint(files.len() as u64);
    let (mut next, mut before) = (0u32, "");
    for (slot, value) in files {
        out.varint(slot.wrapping_sub(next).into());
        let shared = value.path.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
        file(&mut out, shared, value);
        (next, before) = (slot + 1, value.path.as_str());
    }
    out.into_vec()
}

/// The body of a page among 2^bits pages.
pub fn page_body(bits: u8, page: u64, entries: &[(u64, u32)]) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.u8(bits);
    out.varint(page);
    out.varint(entries.len() as u64);
    let mut before = if bits == 0 { 0 } else { page << (64 - bits) };
    for (hash, number) in entries {
        out.varint(hash.wrapping_sub(before));
        out.varint((*number).into());
        before = *hash;
    }
    out.into_vec()
}

/// The hash of a path.
pub fn path_hash(path: &str) -> u64 {
    XxHash64::oneshot(0, path.as_bytes())
}

#[test]
fn the_second_writer_writes_the_same_edits() {
    for (name, value) in crate::golden_manifests::edits() {
        assert!(edit(&value) == value.encode().unwrap(), "{name}");
    }
    assert!(
        root(&Root { store_id: samples::STORE, pages: vec![(0, None)], ..Root::default() })
            == Manifest::new(samples::STORE).to_checkpoint().unwrap().root
    );
}

//! A second writer of containers and directories, made from `docs/format.md`, that checks nothing.
//!
//! It makes the bad files, and where its input is good it must write the same bytes as the library.

use lakemark_format::codec::ByteWriter;
use lakemark_format::*;

use crate::forge_zones;

/// A stream's pages with good checksums.
pub fn pages(id: &[u8; 16], stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, page) in stream.chunks(4092).enumerate() {
        out.extend(page);
        out.extend(crc(id, number as u64, page).to_le_bytes());
    }
    out
}

/// CRC32C over id, page number and bytes.
pub fn crc(id: &[u8; 16], page: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[id.as_slice(), &page.to_le_bytes(), bytes].concat())
}

/// The trailer of a file with these parts.
pub fn trailer(kind: ContentKind, id: [u8; 16], stream: &[u8], directory: &[u8]) -> Trailer {
    let directory_offset = (stream.len() + 4 * stream.len().div_ceil(4092)) as u64;
    Trailer {
        kind,
        id,
        stream_length: stream.len() as u64,
        directory_offset,
        directory_length: directory.len() as u32,
        directory_checksum: crc(&id, u64::MAX, directory),
        file_length: directory_offset + directory.len() as u64 + 64,
    }
}

/// A file in which every checksum is good.
pub fn container(kind: ContentKind, id: [u8; 16], stream: &[u8], directory: &[u8]) -> Vec<u8> {
    let trailer = trailer(kind, id, stream, directory).encode();
    [pages(&id, stream), directory.to_vec(), trailer].concat()
}

/// The logical bytes of a good file's stream.
pub fn stream(file: &[u8]) -> Vec<u8> {
    let trailer = open_tail(file, file.len() as u64).unwrap().trailer;
    read_logical(&file[..trailer.directory_offset as usize], 0..trailer.stream_length, &trailer).unwrap().into_owned()
}

/// Bytes after their length.
pub fn blob(out: &mut ByteWriter, bytes: &[u8]) {
    out.varint(bytes.len() as u64);
    out.bytes(bytes);
}

/// Numbers after their count.
pub fn list(out: &mut ByteWriter, numbers: &[u32]) {
    out.varint(numbers.len() as u64);
    numbers.iter().for_each(|number| out.varint((*number).into()));
}

fn place(out: &mut ByteWriter, cursor: &mut u64, offset: u64, length: u64) {
    let distance = offset.wrapping_sub(*cursor) as i64;
    out.varint(((distance << 1) ^ (distance >> 63)) as u64);
    out.varint(length);
    *cursor = offset.wrapping_add(length);
}

/// The bytes of a segment's directory. Bases below their lowest place wrap.
pub fn directory(directory: &SegmentDirectory) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.bytes(&directory.index_id);
    blob(&mut out, directory.column.as_bytes());
    directory.key_type.encode(&mut out);
    out.varint(directory.universe.into());
    out.varint(directory.files.len() as u64);
    let mut lowest = 0u32;
    for file in directory.files.iter() {
        blob(&mut out, file.path.as_bytes());
        out.varint((file.base.wrapping_sub(lowest) / 64).into());
        list(&mut out, &file.row_groups);
        out.u64(file.footer_hash);
        out.u64(file.column_hash);
        lowest = (u64::from(file.base) + file.rows()).next_multiple_of(64) as u32;
    }
    for posting in [&directory.nulls, &directory.opaque] {
        out.varint(posting.offset);
        out.varint(posting.length.into());
        out.varint(posting.rows.into());
    }
    out.varint(directory.value_count);
    out.varint(directory.blocks.len() as u64);
    let (mut previous, mut cursor) = (0, 64);
    for block in &directory.blocks {
        match &block.first_key {
            Key::Fixed(key) => {
                out.varint(key.wrapping_sub(previous));
                previous = *key;
            }
            Key::Bytes(bytes) => blob(&mut out, bytes),
        }
        out.varint(block.values.into());
        out.varint(block.rows.wrapping_sub(block.values.into()));
        place(&mut out, &mut cursor, block.postings_offset, block.postings_length);
        place(&mut out, &mut cursor, block.offset, block.length.into());
    }
    match &directory.max_key {
        Some(Key::Fixed(key)) => out.varint(*key),
        Some(Key::Bytes(bytes)) => blob(&mut out, bytes),
        None => {}
    }
    use Encoding::*;
    let codes =
        [Equality, Binary, Range, Interval, IntervalEquality, RangeEquality, Binned, Packed, Filtered, Sliced, Linked];
    let code = codes.iter().position(|encoding| *encoding == directory.encoding).unwrap() as u8 + 1;
    out.u8(code);
    if code == 5 || code == 6 {
        list(&mut out, &directory.bins);
    }
    for bitmap in &directory.bitmaps {
        place(&mut out, &mut cursor, bitmap.offset, bitmap.length.into());
        out.varint(bitmap.rows.into());
    }
    directory.orders.iter().for_each(|length| out.varint(*length));
    if code == 8 {
        out.u8(directory.has_inner_pages().into());
        out.varint(directory.riding.len() as u64);
        for column in &directory.riding {
            blob(&mut out, column.column.as_bytes());
            column.key_type.encode(&mut out);
        }
    }
    if code == 11 {
        predicates(&mut out, &directory.predicates);
    }
    directory.zones.iter().for_each(|zones| out.bytes(&forge_zones::zones(zones)));
    out.into_vec()
}

/// The predicates of links.
fn predicates(out: &mut ByteWriter, predicates: &[Option<Key>]) {
    out.varint(predicates.len() as u64);
    for predicate in predicates {
        out.u8(predicate.is_some().into());
        match predicate {
            Some(Key::Fixed(key)) => out.varint(*key),
            Some(Key::Bytes(bytes)) => blob(out, bytes),
            None => {}
        }
    }
}

/// The header of a file.
pub fn header(kind: u8, id: &[u8; 16]) -> Vec<u8> {
    [b"LAKEMARK".as_slice(), &[6, 0, kind, 0, 0, 0, 0, 0], id, &[0; 32]].concat()
}

#[test]
fn the_second_writer_writes_the_same_bytes() {
    for (name, segment) in crate::golden::segments() {
        let (file, written) = segment.write();
        let forged = container(ContentKind::Segment, segment.id, &stream(&file), &directory(&written));
        assert!(forged == file, "{name}");
    }
    for (name, segment) in crate::golden_zones::segments() {
        let (file, written) = segment.write();
        let stream = stream(&file);
        let zones = written.zones.as_ref().unwrap();
        let filters = forge_zones::filters(zones, &segment.keys());
        assert!(stream[zones.offset as usize..] == filters, "the filters of {name}");
        assert!(container(ContentKind::Segment, segment.id, &stream, &directory(&written)) == file, "{name}");
    }
}

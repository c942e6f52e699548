//! The second writer of what updates write, made from `docs/format.md`, that checks nothing.

use lakemark_format::codec::ByteWriter;
use lakemark_format::*;

use crate::forge::{self, blob, list};
use crate::samples_updates as samples;

/// What an edit and the root of a checkpoint say of updates.
pub fn part(updates: &ManifestUpdates) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.varint(updates.key.len() as u64);
    updates.key.iter().for_each(|column| blob(&mut out, column.as_bytes()));
    out.varint(updates.options.len() as u64);
    for (name, value) in &updates.options {
        blob(&mut out, name.as_bytes());
        blob(&mut out, value.as_bytes());
    }
    out.bytes(&updates.log.id);
    blob(&mut out, updates.log.path.as_bytes());
    out.varint(updates.log.first_sequence);
    out.varint(updates.runs.len() as u64);
    updates.runs.iter().for_each(|each| run(&mut out, each));
    out.u8(updates.migration.is_some().into());
    if let Some(migration) = &updates.migration {
        out.varint(migration.number);
        out.varint(migration.ranges.len() as u64);
        for RunRange { run, rows } in &migration.ranges {
            numbers(&mut out, &[(*run).into(), rows.start.into(), rows.end.wrapping_sub(rows.start).into()]);
        }
    }
    out.varint(updates.migrations);
    out.varint(updates.replaced.len() as u64);
    for file in &updates.replaced {
        blob(&mut out, file.path.as_bytes());
        out.varint(file.size);
        out.bytes(&file.modified_ns.to_le_bytes());
    }
    out.varint(updates.data.len() as u64);
    for file in &updates.data {
        blob(&mut out, file.path.as_bytes());
        out.varint(file.size);
    }
    let WriteCounters { rows, log_bytes, flushed_bytes, merged_bytes, merged_rows } = updates.written;
    numbers(&mut out, &[rows, log_bytes, flushed_bytes, merged_bytes, merged_rows]);
    if !updates.transactions.is_empty() || !updates.publications.is_empty() || updates.delta.is_some() {
        extras(&mut out, updates);
    }
    out.into_vec()
}

/// The part behind the updates, with the byte before it.
fn extras(out: &mut ByteWriter, updates: &ManifestUpdates) {
    out.u8(2);
    out.varint(updates.transactions.len() as u64);
    for ManifestTransaction { application, version, sequence } in &updates.transactions {
        blob(out, application.as_bytes());
        numbers(out, &[*version, *sequence]);
    }
    out.varint(updates.publications.len() as u64);
    for ManifestPublication { manifest, files, originals } in &updates.publications {
        numbers(out, &[*manifest, files.len() as u64]);
        for file in files {
            blob(out, file.stored.as_bytes());
            blob(out, file.path.as_bytes());
            out.varint(file.size);
        }
        out.varint(originals.len() as u64);
        for file in originals {
            blob(out, file.path.as_bytes());
            blob(out, file.stored.as_bytes());
            out.varint(file.size);
            out.bytes(&file.modified_ns.to_le_bytes());
        }
    }
    out.u8(updates.delta.is_some().into());
    if let Some(ManifestDelta { table_id, last_migration: migrated, version }) = &updates.delta {
        blob(out, table_id.as_bytes());
        numbers(out, &[*migrated, *version]);
    }
}

fn numbers(out: &mut ByteWriter, numbers: &[u64]) {
    numbers.iter().for_each(|number| out.varint(*number));
}

fn run(out: &mut ByteWriter, run: &ManifestRun) {
    out.bytes(&run.id);
    blob(out, run.path.as_bytes());
    out.varint(run.length);
    out.u8(run.passes);
    numbers(out, &[run.rows.into(), run.first_sequence, run.last_sequence, run.migrated.len() as u64]);
    for rows in &run.migrated {
        numbers(out, &[rows.start.into(), rows.end.wrapping_sub(rows.start).into()]);
    }
    out.u8(run.position_map.is_some().into());
    if let Some(position_map) = &run.position_map {
        out.bytes(&position_map.id);
        blob(out, position_map.path.as_bytes());
        out.varint(position_map.length);
    }
    out.varint(run.during);
}

/// A header with these bytes where version and kind are, and its checksum.
pub fn log_header(id: &[u8; 16], version: u8, kind: u8, reserved: u8) -> Vec<u8> {
    let mut header = forge::header(kind, id);
    (header[8], header[63]) = (version, reserved);
    let checksum = forge::crc(id, 0, &header);
    [header, checksum.to_le_bytes().to_vec()].concat()
}

/// The frame that stands at `at` and holds this payload.
pub fn frame(id: &[u8; 16], at: usize, sequence: u64, payload: &[u8]) -> Vec<u8> {
    let checksum = forge::crc(id, at as u64, payload);
    [frame_header(id, at, payload.len() as u32, sequence, checksum), payload.to_vec()].concat()
}

/// The 20 bytes before a payload.
pub fn frame_header(id: &[u8; 16], at: usize, length: u32, sequence: u64, payload_checksum: u32) -> Vec<u8> {
    let fields = [&length.to_le_bytes(), sequence.to_le_bytes().as_slice(), &payload_checksum.to_le_bytes()].concat();
    let checksum = forge::crc(id, at as u64, &fields);
    [fields, checksum.to_le_bytes().to_vec()].concat()
}

/// The payload of a frame.
pub fn payload(commits: &[LogCommit]) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.varint(commits.len() as u64);
    for commit in commits {
        blob(&mut out, commit.tag.as_bytes());
        out.varint(commit.changes.len() as u64);
        for change in &commit.changes {
            let operations = [Operation::Insert, Operation::Upsert, Operation::Update, Operation::Delete];
            let place = operations.iter().position(|operation| *operation == change.operation).unwrap();
            out.u8(place as u8 + 1);
            blob(&mut out, &change.rows);
        }
    }
    out.into_vec()
}

/// A whole log of frames with these sequences and payloads.
pub fn log(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = log_header(&samples::LOG, 6, 4, 0);
    for (sequence, payload) in frames {
        bytes.extend(frame(&samples::LOG, bytes.len(), *sequence, payload));
    }
    bytes
}

/// The directory of a position map.
pub fn position_map_body(position_map: &PositionMap) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.bytes(&position_map.run);
    out.varint(position_map.rows.into());
    out.varint(position_map.files.len() as u64);
    for file in &position_map.files {
        blob(&mut out, file.path.as_bytes());
        out.varint(file.size);
        out.bytes(&file.modified_ns.to_le_bytes());
        out.u8(file.etag.is_some().into());
        file.etag.iter().for_each(|etag| blob(&mut out, etag.as_bytes()));
        list(&mut out, &file.row_groups);
        rows(&mut out, &file.deleted, file.row_groups.iter().sum());
        rows(&mut out, &file.completed, position_map.rows);
    }
    out.varint(position_map.runs.len() as u64);
    for run in &position_map.runs {
        out.bytes(&run.id);
        out.varint(run.rows.into());
        rows(&mut out, &run.replaced, run.rows);
    }
    if let Some(keys) = &position_map.keys {
        out.u8(1);
        out.varint(keys.types.len() as u64);
        keys.types.iter().for_each(|of| of.encode(&mut out));
        out.varint(keys.density.bits.into());
        out.u8(keys.density.hashes);
        blob(&mut out, &keys.bytes);
    }
    out.into_vec()
}

/// A list of rows, also one with rows that its universe does not have.
fn rows(out: &mut ByteWriter, rows: &[u32], universe: u32) {
    out.varint(rows.len() as u64);
    if !rows.is_empty() {
        let mut bytes = Vec::new();
        posting::encode(rows, universe.max(rows[rows.len() - 1] + 1), &mut bytes);
        blob(out, &bytes);
    }
}

/// A position map's file in which every checksum is good.
pub fn position_map(id: [u8; 16], body: &[u8]) -> Vec<u8> {
    forge::container(ContentKind::PositionMap, id, &forge::header(3, &id), body)
}

#[test]
fn the_second_writer_writes_the_same_updates() {
    let (written, ends) = samples::log(&samples::frames());
    let forged = samples::frames().iter().map(|commits| payload(commits)).collect::<Vec<_>>();
    let sequences = [samples::FIRST, samples::FIRST + 2];
    assert!(log(&sequences.into_iter().zip(forged).collect::<Vec<_>>()) == written);
    assert_eq!(ends.last(), Some(&written.len()));
    for value in [samples::position_map(), samples::position_map_with_keys()] {
        assert!(position_map(value.id, &position_map_body(&value)) == value.encode().unwrap());
    }
}

//! Bad position maps whose checksums are all good.

use lakemark_format::codec::ByteWriter;
use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::forge_updates::{position_map, position_map_body};
use crate::samples_updates as samples;
use crate::{forge, golden};

pub fn position_maps() -> Vec<Bad> {
    [containers(), fields(), lists(), filters()].into_iter().flatten().collect()
}

fn named(name: &str, error: &'static str, wrong: &'static str, bytes: Vec<u8>) -> Bad {
    bad(&format!("position-map-{name}.lmx"), error, wrong, bytes)
}

fn body(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let value = samples::position_map();
    let mut body = position_map_body(&value);
    change(&mut body);
    position_map(value.id, &body)
}

fn with(change: impl FnOnce(&mut PositionMap)) -> Vec<u8> {
    let mut value = samples::position_map();
    change(&mut value);
    position_map(value.id, &position_map_body(&value))
}

fn containers() -> Vec<Bad> {
    let value = samples::position_map();
    let of = |stream: &[u8]| forge::container(ContentKind::PositionMap, value.id, stream, &position_map_body(&value));
    let good = value.encode().unwrap();
    let longer = [forge::header(3, &value.id), vec![0]].concat();
    vec![
        bad("segment-is-position-map.lmx", "Invalid", "the file is a good position map", good.clone()),
        bad("position-map-as-manifest.lmm", "Invalid", "the file is a good position map", good),
        named("is-segment", "Invalid", "the file is a good segment", golden::numbers().write().0),
        named("header-of-segment", "Invalid", "the header is a segment's", of(&forge::header(1, &value.id))),
        named("stream-longer", "Invalid", "a byte follows the header in the stream", of(&longer)),
        named("body-empty", "Truncated", "the body has no bytes", body(Vec::clear)),
        named("body-cut", "Truncated", "the last number is missing", body(|body| body.truncate(body.len() - 1))),
        named("body-longer", "Invalid", "a byte follows the body's last field", body(|body| body.push(0))),
    ]
}

fn fields() -> Vec<Bad> {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    // The run's id and its 9000 rows are in 18 bytes, the number of files follows.
    let files = body(|body| drop(body.splice(18..19, huge)));
    let runs = body(|body| {
        let at = body.len() - 18 - (resolved_run().len() - 18) - 1;
        drop(body.splice(at..at + 1, huge));
    });
    vec![
        named("files-huge", "TooLong", "there are 2^63 - 1 files", files),
        named("runs-huge", "TooLong", "there are 2^63 - 1 runs", runs),
        named(
            "file-twice",
            "Invalid",
            "a data file is listed twice",
            with(|value| value.files.push(value.files[0].clone())),
        ),
        named(
            "path-escapes",
            "Invalid",
            "a data file's path leads out of the table",
            with(|value| value.files[0].path = "../a".into()),
        ),
        named("run-twice", "Invalid", "a run is listed twice", with(|value| value.runs[1].id = value.runs[0].id)),
        named(
            "of-itself",
            "Invalid",
            "the run is listed among the older ones",
            with(|value| value.runs[1].id = value.run),
        ),
        named(
            "rows-of-33-bits",
            "TooLong",
            "a data file has more than 2^32 - 1 rows",
            file(&[], &[u32::MAX.into(), 1], &[0, 0]),
        ),
        named("tag-flag-2", "Invalid", "the flag of the entity tag is 2", body(|body| body[18 + 1 + 25 + 3 + 8] = 2)),
    ]
}

/// Filters of the keys of a run.
fn filters() -> Vec<Bad> {
    let with = |change: &dyn Fn(&mut KeyFilter)| {
        let mut value = samples::position_map_with_keys();
        value.keys.iter_mut().for_each(change);
        position_map(value.id, &position_map_body(&value))
    };
    let mut cut = position_map_body(&samples::position_map_with_keys());
    cut.pop();
    let mut longer = position_map_body(&samples::position_map_with_keys());
    longer.push(0);
    let mut tag = position_map_body(&samples::position_map());
    tag.push(2);
    let id = samples::position_map_with_keys().id;
    let many = with(&|keys| keys.types = vec![KeyType::Int8; 65]);
    let wrong = "the filter has a byte less than its keys need";
    vec![
        named(
            "filter-tag-2",
            "Invalid",
            "the byte before the filter is 2",
            position_map(samples::position_map().id, &tag),
        ),
        named("filter-of-no-column", "Invalid", "the key has no column", with(&|keys| keys.types.clear())),
        named("filter-of-65-columns", "Invalid", "the key has 65 columns", many),
        named("filter-density-0", "Invalid", "the filter has no bits for a key", with(&|keys| keys.density.bits = 0)),
        named("filter-65-hashes", "Invalid", "a key sets 65 bits", with(&|keys| keys.density.hashes = 65)),
        named("filter-shorter", "Invalid", wrong, with(&|keys| keys.bytes.truncate(11))),
        named("filter-longer", "Invalid", "the filter has a byte too many", with(&|keys| keys.bytes.push(0))),
        named("filter-cut", "Truncated", "the last byte of the filter is missing", position_map(id, &cut)),
        named("filter-body-longer", "Invalid", "a byte follows the filter", position_map(id, &longer)),
    ]
}

/// The two older runs, as they are in the body.
fn resolved_run() -> Vec<u8> {
    let value = samples::position_map();
    let without = PositionMap { runs: vec![], ..value.clone() };
    position_map_body(&value).split_off(position_map_body(&without).len())
}

/// A position map of a run of 10 rows against one file with these row groups, whose lists of rows are these bytes.
fn file(before: &[u8], row_groups: &[u64], lists: &[u8]) -> Vec<u8> {
    let mut out = ByteWriter::new();
    out.bytes(&[7; 16]);
    out.bytes(&[10, 1, 1, b'f', 0]);
    out.i64(0);
    out.u8(0);
    out.varint(row_groups.len() as u64);
    row_groups.iter().for_each(|rows| out.varint(*rows));
    out.bytes(before);
    out.bytes(lists);
    out.u8(0);
    position_map([8; 16], out.as_slice())
}

fn lists() -> Vec<Bad> {
    // Lists of the file's rows and of the run's rows; a list is a count and a posting, here in the form of runs.
    let deleted = |list: &[u8]| file(list, &[20], &[0]);
    let limit = [0x81, 0x80, 0x80, 0x80, 0x01];
    vec![
        named("too-many-rows", "TooLong", "21 of a file's 20 rows are listed", deleted(&[21, 4, 3, 1, 0, 21])),
        named("row-beyond-file", "Invalid", "row 20 of a file of 20 rows is listed", deleted(&[1, 4, 3, 1, 20, 1])),
        named(
            "row-beyond-run",
            "Invalid",
            "row 10 of a run of 10 rows is listed",
            file(&[0], &[20], &[1, 4, 3, 1, 10, 1]),
        ),
        named(
            "row-beyond-older-run",
            "Invalid",
            "row 64 of an older run of 64 rows is listed",
            with(|value| value.runs[0].replaced = vec![3, 64]),
        ),
        named("posting-of-fewer-rows", "Invalid", "a list has a row less than its count", deleted(&[2, 4, 3, 1, 0, 1])),
        named("posting-empty", "Truncated", "a list has no bytes", deleted(&[2, 0])),
        named("posting-cut", "Truncated", "a list ends in its posting", deleted(&[2, 3, 3, 1, 0])),
        named("posting-longer", "Invalid", "a byte follows a posting", deleted(&[2, 5, 3, 1, 0, 2, 0])),
        named("posting-form-4", "Invalid", "a posting has the form 4", deleted(&[2, 4, 4, 1, 0, 2])),
        named("list-beyond-body", "Truncated", "a posting is longer than the body", deleted(&[2, 100, 3, 1, 0, 2])),
        named("list-huge", "TooLong", "a list has 2^28 + 1 rows", file(&limit, &[1 << 29], &[0])),
    ]
}

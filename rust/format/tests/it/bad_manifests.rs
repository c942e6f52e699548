//! Bad manifests whose checksums are all good.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::{forge, golden, samples};

fn with(change: impl FnOnce(&mut Manifest)) -> Vec<u8> {
    let mut manifest = samples::manifest();
    change(&mut manifest);
    forge::manifest(&manifest)
}

/// The manifest with other bytes in its body.
fn raw(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let manifest = samples::manifest();
    let mut body = forge::manifest_body(&manifest);
    change(&mut body);
    let stream = forge::header(2, &manifest.store_id);
    forge::container(ContentKind::Manifest, manifest.store_id, &stream, &body)
}

pub fn manifests() -> Vec<Bad> {
    [containers(), fields()].into_iter().flatten().collect()
}

fn containers() -> Vec<Bad> {
    let manifest = samples::manifest();
    let body = forge::manifest_body(&manifest);
    let id = manifest.store_id;
    let longer = [forge::header(2, &id), vec![0]].concat();
    let of_segment = forge::container(ContentKind::Manifest, id, &forge::header(1, &id), &body);
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    vec![
        bad("segment-as-manifest.lmm", "Invalid", "the file is a good segment", golden::numbers().write().0),
        bad("manifest-as-segment.lmx", "Invalid", "the file is a good manifest", manifest.encode().unwrap()),
        bad("header-of-segment.lmm", "Invalid", "the header is a segment's, the trailer a manifest's", of_segment),
        bad(
            "stream-longer-than-header.lmm",
            "Invalid",
            "the stream holds more than the header",
            forge::container(ContentKind::Manifest, id, &longer, &body),
        ),
        bad("body-empty.lmm", "Truncated", "the body has no bytes", raw(Vec::clear)),
        bad(
            "body-cut.lmm",
            "TooLong",
            "the body ends in the last segment's list of files",
            raw(|body| body.truncate(body.len() - 1)),
        ),
        bad("body-longer.lmm", "DamagedUpdates", "a byte follows the body's last field", raw(|body| body.push(0))),
        bad(
            "schema-count-huge.lmm",
            "TooLong",
            "there are 2^63 - 1 schemas",
            raw(|body| drop(body.splice(16..17, huge))),
        ),
        bad("schema-huge.lmm", "TooLong", "a schema has 2^63 - 1 bytes", raw(|body| drop(body.splice(17..18, huge)))),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn fields() -> Vec<Bad> {
    vec![
        bad(
            "file-twice.lmm",
            "Invalid",
            "a data file is listed twice",
            with(|manifest| manifest.files[1].path = manifest.files[0].path.clone()),
        ),
        bad(
            "file-path-absolute.lmm",
            "Invalid",
            "a data file's path starts with a slash",
            with(|manifest| manifest.files[0].path = "/a".into()),
        ),
        bad(
            "file-path-escapes.lmm",
            "Invalid",
            "a data file's path leads out of the table",
            with(|manifest| manifest.files[0].path = "../a".into()),
        ),
        bad(
            "file-schema.lmm",
            "Invalid",
            "a data file's schema does not exist",
            with(|manifest| manifest.files[0].schema = 2),
        ),
        bad(
            "file-rows.lmm",
            "TooLong",
            "a data file has more than 2^32 - 1 rows",
            with(|manifest| manifest.files[0].row_groups = vec![u32::MAX, 1]),
        ),
        bad(
            "false-statistics-twice.lmm",
            "Invalid",
            "a column of a data file has false statistics twice",
            with(|manifest| manifest.files[0].false_statistics = vec![3, 3]),
        ),
        bad(
            "false-statistics-descending.lmm",
            "Invalid",
            "columns with false statistics are not in order",
            with(|manifest| manifest.files[0].false_statistics = vec![3, 2]),
        ),
        bad(
            "false-statistics-none.lmm",
            "Invalid",
            "the part about false statistics has no file",
            raw(|body| body.extend([3, 0, 0, 0])),
        ),
        bad(
            "false-statistics-no-column.lmm",
            "Invalid",
            "a file with false statistics has no column with any",
            raw(|body| body.extend([3, 1, 0, 0, 0])),
        ),
        bad(
            "false-statistics-no-file.lmm",
            "Invalid",
            "false statistics are of a file that is not listed",
            raw(|body| body.extend([3, 1, 2, 1, 0])),
        ),
        bad(
            "false-statistics-file-twice.lmm",
            "Invalid",
            "a file with false statistics is named twice",
            raw(|body| body.extend([3, 2, 0, 1, 0, 0, 1, 1])),
        ),
        bad(
            "index-twice.lmm",
            "Invalid",
            "two indexes have one name",
            with(|manifest| manifest.indexes[1].name = "by_city".into()),
        ),
        bad(
            "index-id-twice.lmm",
            "Invalid",
            "two indexes have one id",
            with(|manifest| manifest.indexes[1].id = manifest.indexes[0].id),
        ),
        bad(
            "index-key-type.lmm",
            "Invalid",
            "an index is on a 64-bit time that counts seconds",
            with(|manifest| manifest.indexes[0].key_type = KeyType::Time64 { unit: TimeUnit::Second }),
        ),
        bad(
            "segment-of-no-index.lmm",
            "Invalid",
            "a segment's index is not declared",
            with(|manifest| manifest.segments[0].index_id = [9; 16]),
        ),
        bad(
            "segment-path-escapes.lmm",
            "Invalid",
            "a segment's path leads out of the store",
            with(|manifest| manifest.segments[0].path = "indexes/../../x".into()),
        ),
        bad(
            "segment-file-unknown.lmm",
            "Invalid",
            "a segment covers a file that is not listed",
            with(|manifest| manifest.segments[0].files = vec![0, 2]),
        ),
        bad(
            "segment-files-descending.lmm",
            "TooLong",
            "a segment's files wrap around",
            with(|manifest| manifest.segments[0].files = vec![1, 0]),
        ),
        bad(
            "segment-twice.lmm",
            "Invalid",
            "two segments have one id",
            with(|manifest| manifest.segments.push(manifest.segments[0].clone())),
        ),
    ]
}

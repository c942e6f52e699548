//! Bad edits whose checksums are all good.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::forge_manifests::{edit, edit_body, whole};
use crate::samples_manifests::{self as samples, STORE, segment};
use crate::{forge, golden};

const HUGE: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];

fn with(name: &str, error: &'static str, wrong: &'static str, change: impl FnOnce(&mut ManifestChanges)) -> Bad {
    let mut value = samples::every_change();
    value.changes.updates = None;
    change(&mut value.changes);
    bad(name, error, wrong, edit(&value))
}

/// An edit with these bytes for its changes.
fn raw(name: &str, error: &'static str, wrong: &'static str, changes: impl AsRef<[u8]>) -> Bad {
    let before = edit_body(&samples::edit(1, ManifestChanges::default()));
    bad(name, error, wrong, whole(ContentKind::Edit, STORE, &[&before, changes.as_ref()].concat()))
}

pub fn edits() -> Vec<Bad> {
    [containers(), tags(), files(), numbers(), indexes()].into_iter().flatten().collect()
}

fn containers() -> Vec<Bad> {
    let value = samples::edit(7, ManifestChanges::default());
    let body = edit_body(&value);
    let longer = [forge::header(2, &STORE), vec![0]].concat();
    let of_segment = forge::container(ContentKind::Edit, STORE, &forge::header(1, &STORE), &body);
    let numbered = |number, checkpoint| edit(&ManifestEdit { number, checkpoint, ..value.clone() });
    vec![
        bad("segment-as-edit.lmm", "Invalid", "the file is a good segment", golden::numbers().write().0),
        bad("edit-as-segment.lmx", "Invalid", "the file is a good edit", value.encode().unwrap()),
        bad("root-as-edit.lmm", "Invalid", "the file is the good root of a checkpoint", {
            Manifest::new(STORE).to_checkpoint().unwrap().root
        }),
        bad("header-of-segment.lmm", "Invalid", "the header is a segment's, the trailer an edit's", of_segment),
        bad("stream-longer-than-header.lmm", "Invalid", "the stream holds more than the header", {
            forge::container(ContentKind::Edit, STORE, &longer, &body)
        }),
        bad("body-empty.lmm", "Truncated", "the body has no bytes", whole(ContentKind::Edit, STORE, &[])),
        bad("body-cut.lmm", "Truncated", "the body ends in the time", whole(ContentKind::Edit, STORE, &body[..15])),
        bad("edit-0.lmm", "Invalid", "the edit has the number 0", numbered(0, 0)),
        bad(
            "edit-before-its-checkpoint.lmm",
            "Invalid",
            "the checkpoint that is named is the edit's own",
            numbered(7, 7),
        ),
    ]
}

fn tags() -> Vec<Bad> {
    vec![
        raw("change-0.lmm", "Invalid", "the byte before a change is 0", [0]),
        raw("change-11.lmm", "Invalid", "the byte before a change is 11", [11, 1]),
        raw("changes-descend.lmm", "Invalid", "an earlier change stands behind a later one", [2, 1, 0, 1, 1, 0, 0]),
        raw("change-twice.lmm", "Invalid", "a change is there twice", [2, 1, 0, 2, 1, 1]),
        raw("change-cut.lmm", "TooLong", "the last change ends early", [2, 2, 0]),
        raw("removed-files-none.lmm", "Invalid", "the files that are removed are none", [1, 0]),
        raw("removed-schemas-none.lmm", "Invalid", "the schemas that are removed are none", [2, 0]),
        raw("added-schemas-none.lmm", "Invalid", "the schemas that are added are none", [3, 0, 0]),
        raw("changed-files-none.lmm", "Invalid", "the files that are changed are none", [4, 0]),
        raw("added-files-none.lmm", "Invalid", "the files that are added are none", [5, 0, 0]),
        raw("removed-segments-none.lmm", "Invalid", "the segments that are removed are none", [6, 0]),
        raw("removed-indexes-none.lmm", "Invalid", "the indexes that are removed are none", [7, 0]),
        raw("added-indexes-none.lmm", "Invalid", "the indexes that are added are none", [8, 0]),
        raw("added-segments-none.lmm", "Invalid", "the segments that are added are none", [9, 0]),
        raw("schema-count-huge.lmm", "TooLong", "2^63 - 1 schemas are added", [[3, 0].as_slice(), &HUGE].concat()),
        raw("schema-huge.lmm", "TooLong", "a schema has 2^63 - 1 bytes", [[3, 0, 1].as_slice(), &HUGE].concat()),
        raw("ranges-huge.lmm", "TooLong", "2^63 - 1 ranges of files are removed", [[1].as_slice(), &HUGE].concat()),
        raw("range-beyond-32-bits.lmm", "TooLong", "a range of removed files ends beyond 2^32 - 1", {
            [1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]
        }),
    ]
}

fn files() -> Vec<Bad> {
    vec![
        with("file-twice.lmm", "Invalid", "a path is added twice", |changes| {
            changes.files_added.files[1].path = changes.files_added.files[0].path.clone();
        }),
        with("file-added-and-changed.lmm", "Invalid", "a path is added and of a file that is changed", |changes| {
            changes.files_added.files[1].path = "a.parquet".into();
        }),
        with("file-path-absolute.lmm", "Invalid", "a data file's path starts with a slash", |changes| {
            changes.files_added.files[0].path = "/a".into();
        }),
        with("file-path-escapes.lmm", "Invalid", "a data file's path leads out of the table", |changes| {
            changes.files_changed[0].1.path = "../a".into();
        }),
        raw("file-shares-a-path.lmm", "TooLong", "an added path shares bytes with one before", {
            [&[5, 0, 2], of_file(0, b"ab").as_slice(), &of_file(1, b"c")].concat()
        }),
        with("file-rows.lmm", "TooLong", "a data file has more than 2^32 - 1 rows", |changes| {
            changes.files_added.files[0].row_groups = vec![u32::MAX, 1];
        }),
        with(
            "false-statistics-twice.lmm",
            "Invalid",
            "a column of a data file has false statistics twice",
            |changes| {
                changes.files_added.files[0].false_statistics = vec![3, 3];
            },
        ),
        with(
            "false-statistics-descending.lmm",
            "Invalid",
            "columns with false statistics are not in order",
            |changes| {
                changes.files_added.files[0].false_statistics = vec![3, 2];
            },
        ),
    ]
}

/// The bytes of a file with nothing but a path, of which so many bytes are those of the path before.
pub fn of_file(shared: u8, path: &[u8]) -> Vec<u8> {
    [&[shared, path.len() as u8], path, &[0; 21]].concat()
}

fn numbers() -> Vec<Bad> {
    vec![
        with("changed-files-descend.lmm", "Invalid", "the files that are changed are not in order", |changes| {
            changes.files_changed.reverse();
        }),
        with("changed-file-twice.lmm", "Invalid", "a file is changed twice", |changes| {
            changes.files_changed[1].0 = changes.files_changed[0].0;
        }),
        with("added-files-beyond-32-bits.lmm", "TooLong", "the last added file has the number 2^32 - 1", |changes| {
            changes.files_added.first = u32::MAX - 1;
        }),
        with(
            "added-schemas-beyond-32-bits.lmm",
            "TooLong",
            "the last added schema has the number 2^32 - 1",
            |changes| {
                changes.schemas_added.first = u32::MAX - 1;
            },
        ),
        with("schema-twice.lmm", "Invalid", "a schema is added twice", |changes| {
            changes.schemas_added.schemas[1] = changes.schemas_added.schemas[0].clone();
        }),
        with("removed-schemas-descend.lmm", "Invalid", "the schemas that are removed are not in order", |changes| {
            changes.schemas_removed.reverse();
        }),
    ]
}

fn indexes() -> Vec<Bad> {
    vec![
        with("index-twice.lmm", "Invalid", "two added indexes have one name", |changes| {
            changes.indexes_added[1].name = changes.indexes_added[0].name.clone();
        }),
        with("index-id-twice.lmm", "Invalid", "two added indexes have one id", |changes| {
            changes.indexes_added[1].id = changes.indexes_added[0].id;
        }),
        with("indexes-descend.lmm", "Invalid", "the added indexes are not in the order of their names", |changes| {
            changes.indexes_added.reverse();
        }),
        with("index-key-type.lmm", "Invalid", "an index is on a 64-bit time that counts seconds", |changes| {
            changes.indexes_added[0].key_type = KeyType::Time64 { unit: TimeUnit::Second };
        }),
        with("removed-indexes-twice.lmm", "Invalid", "an index is removed twice", |changes| {
            changes.indexes_removed = vec![[3; 16], [3; 16]];
        }),
        with("removed-segments-descend.lmm", "Invalid", "the segments that are removed are not in order", |changes| {
            changes.segments_removed.reverse();
        }),
        with("segment-twice.lmm", "Invalid", "two added segments have one id", |changes| {
            changes.segments_added[1].id = changes.segments_added[0].id;
        }),
        with("segment-path-escapes.lmm", "Invalid", "a segment's path leads out of the store", |changes| {
            changes.segments_added[0].path = "indexes/../../x".into();
        }),
        with("segment-of-no-file.lmm", "Invalid", "a segment covers no file", |changes| {
            changes.segments_added[0] = segment(0x5e, FileNumbers::default());
        }),
    ]
}

//! Bad roots and pieces of checkpoints whose checksums are all good.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_edits::of_file;
use crate::forge;
use crate::forge_manifests::{Root, page_body, part_body, piece, piece_id, root, root_body, whole};
use crate::samples_manifests::{self as samples, STORE, file, segment};

const HUGE: [u8; 9] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
const PIECE: Option<[u8; 16]> = Some([0xee; 16]);

/// The root of ten files, of which three are there.
fn small() -> Root {
    Root {
        store_id: STORE,
        number: 9,
        created_ms: 5,
        next_schema: 3,
        schemas: vec![(0, b"schema".to_vec()), (2, b"newer schema".to_vec())],
        next_file: 10,
        // From 0 on one number, and two behind three more.
        parts: vec![(vec![3, 0b11_0001, 0], PIECE)],
        pages: vec![(3, PIECE)],
        indexes: samples::indexes(),
        segments: vec![segment(1, FileNumbers::of_range(0..10)), segment(2, FileNumbers::of_range(4..5))],
        updates: None,
    }
}

fn with(name: &str, error: &'static str, wrong: &'static str, change: impl FnOnce(&mut Root)) -> Bad {
    let mut value = small();
    change(&mut value);
    bad(name, error, wrong, root(&value))
}

pub fn checkpoints() -> Vec<Bad> {
    [containers(), roots(), files(), parts(), part_files(), pages()].into_iter().flatten().collect()
}

fn containers() -> Vec<Bad> {
    let whole_root = |body: &[u8]| whole(ContentKind::Checkpoint, STORE, body);
    let (body, page) = (root_body(&small()), page_body(0, 0, &[(7, 1)]));
    let other = whole(ContentKind::PathPage, [7; 16], &page);
    let as_part = piece_id(ContentKind::FilePart, &page);
    vec![
        bad("edit-as-root.lmk", "Invalid", "the file is a good edit", samples::every_change().encode().unwrap()),
        bad("root-empty.lmk", "Truncated", "the body has no bytes", whole_root(&[])),
        bad("root-cut.lmk", "Truncated", "the flag of the updates is missing", whole_root(&body[..body.len() - 1])),
        bad(
            "root-longer.lmk",
            "Invalid",
            "a byte follows the flag of the updates",
            whole_root(&[&body[..], &[0]].concat()),
        ),
        bad("root-flag-2.lmk", "Invalid", "the flag of the updates is 2", {
            whole_root(&[&body[..body.len() - 1], &[2]].concat())
        }),
        bad("root-as-piece.lmp", "Invalid", "the file is the good root of a checkpoint", root(&small())),
        bad("piece-id.lmp", "Invalid", "the id of a piece is not the hash of what is in it", other),
        bad("piece-id-of-part.lmp", "Invalid", "the id of a page is that of a part with the same content", {
            whole(ContentKind::PathPage, as_part, &page)
        }),
        bad("piece-header.lmp", "Invalid", "the header is that of a page, the trailer that of a part", {
            forge::container(ContentKind::FilePart, as_part, &forge::header(7, &as_part), &page)
        }),
    ]
}

fn roots() -> Vec<Bad> {
    vec![
        with("schemas-descend.lmk", "Invalid", "the schemas are not in the order of their numbers", |root| {
            root.schemas.reverse();
        }),
        with("schema-of-later.lmk", "Invalid", "a schema has the number that the next one gets", |root| {
            root.schemas[1].0 = 3;
        }),
        with("schema-twice.lmk", "Invalid", "two schemas are the same", |root| {
            root.schemas[1].1 = root.schemas[0].1.clone();
        }),
        with("index-names-descend.lmk", "Invalid", "the indexes are not in the order of their names", |root| {
            root.indexes.reverse();
        }),
        with("index-id-twice.lmk", "Invalid", "two indexes have one id", |root| {
            root.indexes[1].id = root.indexes[0].id
        }),
        with("index-key-type.lmk", "Invalid", "an index is on a 64-bit time that counts seconds", |root| {
            root.indexes[0].key_type = KeyType::Time64 { unit: TimeUnit::Second };
        }),
        with("segments-descend.lmk", "Invalid", "the segments are not in the order of their ids", |root| {
            root.segments.reverse();
        }),
        with("segment-of-no-index.lmk", "Invalid", "a segment's index is not declared", |root| {
            root.segments[0].index_id = [9; 16];
        }),
        with("segment-of-later-file.lmk", "Invalid", "a segment covers the number that the next file gets", |root| {
            root.segments[0].files = FileNumbers::of_range(0..11);
        }),
        with("segment-of-no-file.lmk", "Invalid", "a segment covers no file", |root| {
            root.segments[0].files = FileNumbers::default();
        }),
        with("segment-path-absolute.lmk", "Invalid", "a segment's path starts with a slash", |root| {
            root.segments[0].path = "/indexes".into();
        }),
    ]
}

fn files() -> Vec<Bad> {
    let live = |name: &str, error: &'static str, wrong: &'static str, bytes: &[u8]| {
        with(name, error, wrong, |root| root.parts[0].0 = bytes.to_vec())
    };
    vec![
        with("parts-missing.lmk", "TooLong", "there are fewer bytes than parts of the numbers", |root| {
            root.next_file = u32::MAX;
        }),
        live("live-form-4.lmk", "Invalid", "the live numbers of a part have the form 4", &[4]),
        live(
            "live-ranges-longer.lmk",
            "Invalid",
            "live numbers are ranges that a bitmap writes shorter",
            &[2, 2, 0, 0, 3, 1],
        ),
        with("live-bitmap-longer.lmk", "Invalid", "live numbers are a bitmap that ranges write as short", |root| {
            root.next_file = 24;
            root.parts[0].0 = vec![3, 0b111, 0, 0];
        }),
        live("live-bitmap-of-all.lmk", "Invalid", "all numbers are live, and a bitmap says so", &[3, 0xff, 3]),
        live("live-bitmap-of-none.lmk", "Invalid", "no number is live, and a bitmap says so", &[3, 0, 0]),
        live("live-beyond-part.lmk", "Invalid", "a number is live that no file had", &[3, 0b1_0001, 4]),
        live("live-range-beyond-part.lmk", "TooLong", "a range of live numbers ends behind the last", &[2, 1, 8, 2]),
        with("pages-of-fewer-files.lmk", "Invalid", "the pages have fewer entries than there are files", |root| {
            root.pages[0].0 = 2;
        }),
        with("pages-of-no-entry.lmk", "Invalid", "there are files, and no page has an entry", |root| {
            root.pages = vec![(0, None)];
        }),
    ]
}

fn part(name: &str, error: &'static str, wrong: &'static str, body: impl AsRef<[u8]>) -> Bad {
    bad(name, error, wrong, piece(ContentKind::FilePart, body.as_ref()))
}

fn parts() -> Vec<Bad> {
    let good = part_body(0, &[(0, file("a")), (5, file("b"))]);
    vec![
        part("part-empty.lmp", "Truncated", "the body has no bytes", []),
        part("part-longer.lmp", "Invalid", "a byte follows the last file", [&good[..], &[0]].concat()),
        part("part-cut.lmp", "Truncated", "the last file ends early", &good[..good.len() - 1]),
        part("part-of-no-file.lmp", "Invalid", "a part has no file", [0, 0]),
        part("part-files-huge.lmp", "TooLong", "a part has 2^63 - 1 files", [&[0], &HUGE[..]].concat()),
        part("part-beyond-last.lmp", "TooLong", "the part has the number 2^22", part_body(1 << 22, &[(0, file("a"))])),
        part("part-of-1025-numbers.lmp", "TooLong", "a file has the place 1024", part_body(0, &[(1024, file("a"))])),
    ]
}

/// A part of a file `abc` and one with these bytes.
fn two(second: &[u8]) -> Vec<u8> {
    [&[0, 2, 0], of_file(0, b"abc").as_slice(), &[0], second].concat()
}

fn part_files() -> Vec<Bad> {
    let one = |change: &dyn Fn(&mut ManifestFile)| {
        let mut value = file("a");
        change(&mut value);
        part_body(0, &[(0, value)])
    };
    vec![
        part(
            "part-path-shares-more.lmp",
            "TooLong",
            "a path shares more bytes than the one before has",
            two(&of_file(4, b"d")),
        ),
        part(
            "part-path-shares-less.lmp",
            "Invalid",
            "a path shares fewer bytes than it could",
            two(&of_file(1, b"bd")),
        ),
        part("part-path-too-long.lmp", "TooLong", "a path has more bytes than there may be", {
            let long = "a".repeat(1 << 14);
            part_body(0, &[(0, file(long.clone())), (1, file(long + "a"))])
        }),
        part("part-path-not-text.lmp", "Invalid", "a path is no UTF-8", two(&of_file(2, &[0xff]))),
        part("part-path-escapes.lmp", "Invalid", "a path leads out of the table", one(&|file| file.path = "..".into())),
        part("part-file-rows.lmp", "TooLong", "a file has more than 2^32 - 1 rows", {
            one(&|file| file.row_groups = vec![u32::MAX, 1])
        }),
        part("part-false-statistics.lmp", "Invalid", "columns with false statistics are not in order", {
            one(&|file| file.false_statistics = vec![3, 2])
        }),
    ]
}

fn page(name: &str, error: &'static str, wrong: &'static str, body: impl AsRef<[u8]>) -> Bad {
    bad(name, error, wrong, piece(ContentKind::PathPage, body.as_ref()))
}

fn pages() -> Vec<Bad> {
    vec![
        page("page-empty.lmp", "Truncated", "the body has no bytes", []),
        page("page-of-no-entry.lmp", "Invalid", "a page has no entry", page_body(0, 0, &[])),
        page(
            "page-longer.lmp",
            "Invalid",
            "a byte follows the last entry",
            [page_body(0, 0, &[(7, 1)]), vec![0]].concat(),
        ),
        page("page-cut.lmp", "TooLong", "a page has fewer entries than it says", [0, 0, 2, 7, 1]),
        page("page-entries-huge.lmp", "TooLong", "a page has 2^63 - 1 entries", [&[0, 0], &HUGE[..]].concat()),
        page("page-of-2-to-23.lmp", "TooLong", "a page is one of 2^23", page_body(23, 0, &[(7, 1)])),
        page("page-beyond-last.lmp", "TooLong", "a page is the fifth of four", page_body(2, 4, &[(7, 1)])),
        page("page-of-other-hash.lmp", "Invalid", "a hash belongs to the next page", page_body(1, 0, &[(1 << 63, 1)])),
        page("page-hash-beyond-64-bits.lmp", "Invalid", "a hash has more than 64 bits", {
            [&[1, 1, 1], [0xff; 9].as_slice(), &[1, 1]].concat()
        }),
        page("page-entry-twice.lmp", "Invalid", "an entry is there twice", page_body(0, 0, &[(7, 1), (7, 1)])),
        page("page-numbers-descend.lmp", "Invalid", "numbers of one hash descend", page_body(0, 0, &[(7, 2), (7, 1)])),
    ]
}

/// Each bad file has one thing wrong.
#[test]
fn what_the_bad_checkpoints_are_made_of_is_good() {
    let manifest = Manifest::from_root(&root(&small())).unwrap();
    assert_eq!(manifest.live_files(), [0, 4, 5].into_iter().collect());
    for (kind, body) in [
        (ContentKind::FilePart, two(&of_file(2, b"d"))),
        (ContentKind::FilePart, part_body(0, &[(0, file("a")), (1023, file("b"))])),
        (ContentKind::PathPage, page_body(0, 0, &[(7, 1), (7, 2)])),
        (ContentKind::PathPage, page_body(1, 1, &[(1 << 63, 1), (u64::MAX, 0)])),
    ] {
        let bytes = piece(kind, &body);
        assert_eq!(Piece::read(&bytes).unwrap().encode(), Ok(bytes));
    }
}

//! Bad inner pages of a packed tree.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::{forge, golden, golden_inner};

/// The golden tree of numbers with another directory, of which the bytes are changed in the end.
fn with(change: impl FnOnce(&mut SegmentDirectory), raw: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let [(_, segment), _] = golden_inner::trees();
    let (file, mut directory) = golden_inner::write(&segment);
    change(&mut directory);
    let mut bytes = forge::directory(&directory);
    raw(&mut bytes);
    forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &bytes)
}

fn directory(change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    with(change, |_| {})
}

/// The same tree with another first byte of its first inner page: the number of leaves.
fn count(byte: u8) -> Vec<u8> {
    let [(_, segment), _] = golden_inner::trees();
    let (file, directory) = golden_inner::write(&segment);
    let mut stream = forge::stream(&file);
    let slot = &mut stream[directory.blocks[0].offset as usize];
    assert_eq!(*slot, 2, "the leaves of the first page");
    *slot = byte;
    forge::container(ContentKind::Segment, segment.id, &stream, &forge::directory(&directory))
}

/// The empty segment as a tree, of which the directory says that its blocks are inner pages.
fn without_blocks() -> Vec<u8> {
    let segment = golden::empty();
    let (file, mut directory) = segment.write();
    directory.encoding = Encoding::Packed;
    let mut bytes = forge::directory(&directory);
    let place = bytes.len() - 2;
    assert_eq!(bytes[place], 0);
    bytes[place] = 1;
    forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &bytes)
}

/// A directory ends with the flag of inner pages and with the number of columns that ride along.
pub fn pages() -> Vec<Bad> {
    vec![
        bad("inner-of-no-leaf.lmx", "Invalid", "an inner page has no leaf", count(0)),
        bad(
            "inner-flag.lmx",
            "Invalid",
            "whether blocks are inner pages is said by a 2",
            with(
                |_| {},
                |bytes| {
                    let place = bytes.len() - 2;
                    assert_eq!(bytes[place], 1);
                    bytes[place] = 2;
                },
            ),
        ),
        bad("inner-without-blocks.lmx", "Invalid", "no blocks are said to be inner pages", without_blocks()),
        bad(
            "inner-of-more-keys.lmx",
            "Invalid",
            "the directory says another number of keys than an inner page",
            directory(|directory| {
                directory.blocks[0].values += 1;
                directory.blocks[1].values -= 1;
            }),
        ),
        bad(
            "inner-ends-early.lmx",
            "Invalid",
            "the leaves of an inner page end behind what the directory says",
            directory(|directory| directory.blocks[0].postings_length -= 1),
        ),
        bad(
            "inner-keys-cross.lmx",
            "Invalid",
            "an inner page begins below the last leaf of the one before",
            directory(|directory| {
                let Key::Fixed(first) = directory.blocks[0].first_key else { panic!("a number") };
                directory.blocks[1].first_key = Key::Fixed(first + 1);
            }),
        ),
    ]
}

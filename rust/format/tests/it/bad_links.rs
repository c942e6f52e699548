//! Bad segments of links.

use lakemark_format::links::MAX_PREDICATES;
use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::bad_segments::file;
use crate::forge;
use crate::golden_links::{Links, nodes, terms};

/// A golden file with another directory.
fn with(links: &Links, change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    let (file, mut directory) = links.write();
    change(&mut directory);
    forge::container(ContentKind::Segment, links.0.id, &forge::stream(&file), &forge::directory(&directory))
}

/// The golden file of numbers with another byte of its leaf, or of its rows.
fn byte(of: impl FnOnce(&ValueBlockRef) -> u64, change: impl FnOnce(u8) -> u8) -> Vec<u8> {
    let links = nodes();
    let (file, directory) = links.write();
    let mut stream = forge::stream(&file);
    let slot = &mut stream[of(&directory.blocks[0]) as usize];
    *slot = change(*slot);
    forge::container(ContentKind::Segment, links.0.id, &stream, &forge::directory(&directory))
}

/// The golden file of texts with another byte at the end of its leaf, which is that of a far end.
fn last_byte(byte: u8) -> Vec<u8> {
    let links = terms();
    let (file, directory) = links.write();
    let mut stream = forge::stream(&file);
    let block = &directory.blocks[0];
    stream[(block.offset + u64::from(block.length)) as usize - 1] = byte;
    forge::container(ContentKind::Segment, links.0.id, &stream, &forge::directory(&directory))
}

/// Bad links of both golden files.
pub fn links() -> Vec<Bad> {
    [dictionaries(), directories(), leaves()].into_iter().flatten().collect()
}

fn dictionaries() -> Vec<Bad> {
    vec![
        bad(
            "links-predicate-twice.lmx",
            "Invalid",
            "the dictionary has a predicate twice",
            with(&terms(), |directory| directory.predicates[1] = directory.predicates[0].clone()),
        ),
        bad(
            "links-predicate-missing.lmx",
            "Invalid",
            "a leaf has a predicate that the dictionary lacks",
            with(&terms(), |directory| drop(directory.predicates.pop())),
        ),
        bad(
            "links-predicates-none.lmx",
            "Invalid",
            "links with predicates have no dictionary",
            with(&terms(), |directory| directory.predicates.clear()),
        ),
        bad(
            "links-predicates-many.lmx",
            "TooLong",
            "there are 65,536 predicates",
            with(&terms(), |directory| {
                directory.predicates = vec![None; MAX_PREDICATES + 1];
            }),
        ),
        bad(
            "links-predicate-not-utf8.lmx",
            "Invalid",
            "a predicate that is a string is not UTF-8",
            with(&terms(), |directory| directory.predicates[1] = Some(Key::Bytes(vec![0xff]))),
        ),
        bad(
            "links-predicates-of-none.lmx",
            "Invalid",
            "links without predicates have a dictionary",
            with(&nodes(), |directory| directory.predicates.push(None)),
        ),
    ]
}

fn directories() -> Vec<Bad> {
    vec![
        bad(
            "links-of-four-columns.lmx",
            "Invalid",
            "links have four columns",
            with(&terms(), |directory| {
                directory.key_type = KeyType::Composite(vec![KeyType::Utf8; 4].into());
                directory.blocks[0].first_key = Key::Bytes(vec![0; 4]);
                directory.max_key = Some(Key::Bytes(vec![1, 0, 0, 0, 0, 0]));
            }),
        ),
        bad(
            "links-without-rows.lmx",
            "Invalid",
            "a leaf has no place of its rows",
            with(&nodes(), |directory| directory.blocks[0].postings_length = 0),
        ),
        bad(
            "links-in-a-leaf-65537.lmx",
            "TooLong",
            "a leaf has 65,537 links",
            with(&nodes(), |directory| {
                directory.blocks[0].values = 65_537;
                directory.blocks[0].rows = 65_537;
                file(directory, 0).row_groups = vec![65_537];
                directory.universe = 65_537;
                directory.value_count = 65_537;
            }),
        ),
        bad(
            "links-begin-early.lmx",
            "Invalid",
            "a leaf begins in its rows",
            with(&nodes(), |directory| {
                let block = &mut directory.blocks[0];
                // The last byte of the rows is 0, and no leaf has so many near ends.
                (block.offset, block.length) = (block.offset - 1, block.length + 1);
                block.postings_length -= 1;
            }),
        ),
    ]
}

/// The leaf of numbers begins with the count of its near ends (4), then the column of the links of each: the least and the width. Its rows are
/// a column of two bytes, the form and the first row.
fn leaves() -> Vec<Bad> {
    vec![
        bad("links-near-ends-none.lmx", "Invalid", "a leaf has no near end", byte(|block| block.offset, |_| 0)),
        bad(
            "links-near-ends-many.lmx",
            "Invalid",
            "a leaf has more near ends than links",
            byte(|block| block.offset, |_| 6),
        ),
        bad(
            "links-fewer.lmx",
            "Invalid",
            "the near ends of a leaf have more links than the leaf",
            byte(|block| block.offset + 1, |_| 1),
        ),
        bad(
            "links-width-65.lmx",
            "Invalid",
            "the numbers of links have 65 bits",
            byte(|block| block.offset + 2, |_| 65),
        ),
        bad("links-end-not-utf8.lmx", "Invalid", "a far end that is a string is not UTF-8", last_byte(0xff)),
        bad(
            "links-rows-form.lmx",
            "Invalid",
            "the form of the rows of links is 3",
            byte(|block| block.postings_offset + 2, |_| 3),
        ),
        bad(
            "links-rows-beyond.lmx",
            "Invalid",
            "a row of a link is beyond the files",
            byte(|block| block.postings_offset + 3, |_| 9),
        ),
    ]
}

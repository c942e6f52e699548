//! Bad columns that ride along with the keys of a packed tree.

use lakemark_format::*;

use crate::bad::{Bad, bad};
use crate::golden_riding::covering;
use crate::{forge, golden};

/// The golden file with another directory.
fn with(change: impl FnOnce(&mut SegmentDirectory)) -> Vec<u8> {
    let covering = covering();
    let (file, mut directory) = covering.write();
    change(&mut directory);
    forge::container(ContentKind::Segment, covering.segment.id, &forge::stream(&file), &forge::directory(&directory))
}

/// The golden file with another byte at a place of its second leaf, counted from its end.
fn leaf(from_end: usize, change: impl FnOnce(u8) -> u8) -> Vec<u8> {
    let covering = covering();
    let (file, directory) = covering.write();
    let mut stream = forge::stream(&file);
    let block = &directory.blocks[1];
    let slot = &mut stream[(block.offset + u64::from(block.length)) as usize - from_end];
    *slot = change(*slot);
    forge::container(ContentKind::Segment, covering.segment.id, &stream, &forge::directory(&directory))
}

/// The second leaf ends with the column of times: which of the five rows are NULL (the form and a byte of bits), the least of the three
/// others in ten bytes, the width of 2, and three numbers in a byte.
pub fn riders() -> Vec<Bad> {
    let column = |name: &str, key_type| RidingColumn { column: name.into(), key_type };
    let plain = || {
        let segment = golden::packed();
        let (file, mut directory) = segment.write();
        directory.riding = vec![column("amount", KeyType::Int32)];
        forge::container(ContentKind::Segment, segment.id, &forge::stream(&file), &forge::directory(&directory))
    };
    vec![
        bad(
            "riding-column-twice.lmx",
            "Invalid",
            "a column rides along twice",
            with(|directory| directory.riding[1].column = "customer".into()),
        ),
        bad(
            "riding-lists.lmx",
            "Invalid",
            "a column of lists rides along",
            with(|directory| directory.riding[3].key_type = KeyType::List(KeyType::Bool.into())),
        ),
        bad(
            "riding-columns-65.lmx",
            "TooLong",
            "65 columns ride along",
            with(|directory| directory.riding = (0..65).map(|n| column(&n.to_string(), KeyType::Bool)).collect()),
        ),
        bad(
            "riding-column-missing.lmx",
            "Invalid",
            "the leaves have another column than the directory",
            with(|directory| drop(directory.riding.pop())),
        ),
        bad("riding-nothing.lmx", "Truncated", "the directory has a column that no leaf has", plain()),
        bad(
            "riding-number-outside.lmx",
            "Invalid",
            "a number that rides along is beyond its type",
            with(|directory| directory.riding[4].key_type = KeyType::Int32),
        ),
        bad("riding-wide.lmx", "Invalid", "the numbers of a column have 65 bits", leaf(2, |_| 65)),
        bad("riding-nulls-form.lmx", "Invalid", "the form of NULL rows is 3", leaf(14, |_| 3)),
        bad(
            "riding-nulls-beyond.lmx",
            "Invalid",
            "a bit behind those of all rows is set",
            leaf(13, |bits| bits | 0x20),
        ),
    ]
}

//! Packed trees of three levels: those of other golden files, with their leaves in inner pages.

use std::ops::Range;

use lakemark_format::inner_page::{self, InnerPage};
use lakemark_format::*;

use crate::forge;
use crate::golden::{golden, packed, packed_columns};
use crate::model::Segment;

/// The most leaves of a page.
const LEAVES: usize = 2;

/// The golden files: leaves of numbers, of which one has a long posting, and leaves whose first keys are beginnings.
pub fn trees() -> [(&'static str, Segment); 2] {
    [
        ("packed-inner.lmx", Segment { id: *b"segment-of-pages", ..packed() }),
        ("packed-inner-columns.lmx", Segment { id: *b"pages-of-columns", ..packed_columns() }),
    ]
}

/// The file of a tree, and its directory. Inner pages lie behind the leaves.
pub fn write(segment: &Segment) -> (Vec<u8>, SegmentDirectory) {
    let (file, directory) = segment.write();
    let (mut stream, mut pages) = (forge::stream(&file), Vec::new());
    let mut rest = directory.blocks.as_slice();
    while !rest.is_empty() {
        let page = InnerPage::of(rest, LEAVES, usize::MAX).unwrap();
        pages.push(ValueBlockRef { offset: stream.len() as u64, ..page.block });
        stream.extend(page.bytes);
        rest = &rest[page.leaves..];
    }
    let directory = directory.with_blocks(pages);
    let bytes = directory.encode(stream.len() as u64).unwrap();
    (forge::container(ContentKind::Segment, segment.id, &stream, &bytes), directory)
}

/// The leaves of all inner pages of a directory.
pub fn leaves(
    directory: &SegmentDirectory,
    read: impl Fn(Range<u64>) -> Result<Vec<u8>>,
) -> Result<Vec<ValueBlockRef>> {
    let mut leaves = Vec::new();
    for page in &directory.blocks {
        let bytes = read(page.offset..page.offset + u64::from(page.length))?;
        leaves.extend(inner_page::decode(&bytes, page, &directory.key_type)?);
    }
    match leaves.is_sorted_by(|one, other| one.first_key < other.first_key) {
        true => Ok(leaves),
        false => Err(FormatError::invalid("the first keys of leaves", "out of order", "ascending from page to page")),
    }
}

#[test]
fn golden_trees_of_three_levels_are_read_and_written() {
    for (name, segment) in trees() {
        let (encoded, directory) = write(&segment);
        assert!(directory.has_inner_pages() && directory.blocks.len() == segment.blocks.len().div_ceil(LEAVES));
        let golden = golden(name, &encoded);
        assert_eq!(Segment::read(&golden).as_ref(), Ok(&segment), "{name} is read as another value");
        assert!(golden == encoded, "{name} is written with other bytes");
        let (stream, forged) = (forge::stream(&encoded), forge::directory(&directory));
        assert!(forge::container(ContentKind::Segment, segment.id, &stream, &forged) == encoded, "{name}");
    }
}

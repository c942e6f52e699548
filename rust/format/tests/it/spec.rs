//! `docs/format.md` says what the code does: its tables of constants and its dump are compared with both.

use lakemark_format::filter::{self, FilterShape};
use lakemark_format::{
    ContentKind, Key, Operation, bin_block, container, inner_page, key, leaf, limits, links, log, manifest, order,
    position_map, posting, riding, segment, value_block, zones,
};

use crate::{forge, golden};

const SPEC: &str = include_str!("../../../../docs/format.md");

/// The first two cells of every row of the tables whose first column is headed `heading`.
fn table(heading: &str) -> Vec<(String, String)> {
    cells(heading).into_iter().map(|cells| (cells[1].clone(), cells[2].clone())).collect()
}

/// All cells of those rows; the first is what stands before the first bar.
fn cells(heading: &str) -> Vec<Vec<String>> {
    let mut lines = SPEC.lines();
    let mut rows = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with(&format!("| {heading} |")) {
            for row in lines.by_ref().skip(1).take_while(|row| row.starts_with('|')) {
                rows.push(row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect());
            }
        }
    }
    rows
}

#[test]
fn spec_constants_match() {
    let expected = [
        ("MAGIC", String::from_utf8(container::MAGIC.to_vec()).unwrap()),
        ("VERSION", container::VERSION.to_string()),
        ("OLDEST_VERSION", container::OLDEST_VERSION.to_string()),
        ("PAGE_BYTES", container::PAGE_BYTES.to_string()),
        ("PAGE_PAYLOAD", container::PAGE_PAYLOAD.to_string()),
        ("CHECKSUM_BYTES", container::CHECKSUM_BYTES.to_string()),
        ("HEADER_BYTES", container::HEADER_BYTES.to_string()),
        ("TRAILER_BYTES", container::TRAILER_BYTES.to_string()),
        ("TRAILER_PAGE", container::TRAILER_PAGE.to_string()),
        ("DIRECTORY_PAGE", container::DIRECTORY_PAGE.to_string()),
        ("BASE_ALIGNMENT", segment::BASE_ALIGNMENT.to_string()),
        ("BLOCK_ROWS", posting::BLOCK_ROWS.to_string()),
        ("ORDER_BLOCK_ENTRIES", order::ORDER_BLOCK_ENTRIES.to_string()),
        ("LEAF_ZONES", zones::LEAF_ZONES.to_string()),
        ("BLOCK_BYTES", filter::BLOCK_BYTES.to_string()),
        ("DENSITY_UNIT", filter::DENSITY_UNIT.to_string()),
        ("PART_FILES", manifest::PART_FILES.to_string()),
        ("PAGE_FILES", manifest::PAGE_FILES.to_string()),
        ("LOG_START", log::LOG_START.to_string()),
        ("MAX_STREAM_BYTES", container::MAX_STREAM_BYTES.to_string()),
        ("MAX_DIRECTORY_BYTES", container::MAX_DIRECTORY_BYTES.to_string()),
        ("MAX_KEY_LENGTH", key::MAX_KEY_LENGTH.to_string()),
        ("MAX_PATH_LENGTH", limits::MAX_PATH_LENGTH.to_string()),
        ("MAX_NAME_LENGTH", limits::MAX_NAME_LENGTH.to_string()),
        ("MAX_SCHEMA_LENGTH", manifest::MAX_SCHEMA_LENGTH.to_string()),
        ("MAX_FILE_ROWS", limits::MAX_FILE_ROWS.to_string()),
        ("MAX_BLOCK_VALUES", value_block::MAX_BLOCK_VALUES.to_string()),
        ("MAX_BIN_ROWS", bin_block::MAX_BIN_ROWS.to_string()),
        ("MAX_SEGMENT_KEYS", leaf::MAX_SEGMENT_KEYS.to_string()),
        ("MAX_KEY_LIST_BYTES", leaf::MAX_KEY_LIST_BYTES.to_string()),
        ("MAX_KEY_LIST_NUMBERS", leaf::MAX_KEY_LIST_NUMBERS.to_string()),
        ("MAX_INNER_LEAVES", inner_page::MAX_INNER_LEAVES.to_string()),
        ("MAX_COARSE_BITMAPS", segment::encoding::MAX_COARSE_BITMAPS.to_string()),
        ("MAX_ZONES", zones::MAX_ZONES.to_string()),
        ("MAX_FENCE_BYTES", zones::MAX_FENCE_BYTES.to_string()),
        ("MAX_HASHES", filter::MAX_HASHES.to_string()),
        ("MAX_DENSITY", filter::MAX_DENSITY.to_string()),
        ("MAX_KEY_COLUMNS", key::MAX_KEY_COLUMNS.to_string()),
        ("MAX_FRAME_BYTES", log::MAX_FRAME_BYTES.to_string()),
        ("MAX_RESOLVED_ROWS", position_map::MAX_RESOLVED_ROWS.to_string()),
        ("MAX_RIDING_COLUMNS", riding::MAX_RIDING_COLUMNS.to_string()),
        ("MAX_RIDING_ROWS", riding::MAX_RIDING_ROWS.to_string()),
        ("MAX_RIDING_BYTES", riding::MAX_RIDING_BYTES.to_string()),
        ("MAX_PREDICATES", links::MAX_PREDICATES.to_string()),
        ("MAX_LEAF_LINKS", links::MAX_LEAF_LINKS.to_string()),
        ("MAX_LINK_BYTES", links::MAX_LINK_BYTES.to_string()),
    ];
    let specified: Vec<_> = table("constant").into_iter().chain(table("limit")).collect();
    let expected: Vec<_> = expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    assert_eq!(specified, expected);
}

/// Files of every release depend on these.
#[test]
fn never_change_these_constants() {
    assert_eq!(&container::MAGIC, b"LAKEMARK");
    assert_eq!((container::PAGE_BYTES, container::PAGE_PAYLOAD, container::CHECKSUM_BYTES), (4096, 4092, 4));
    assert_eq!((container::HEADER_BYTES, container::TRAILER_BYTES), (64, 64));
    assert_eq!((container::DIRECTORY_PAGE, container::TRAILER_PAGE), (u64::MAX, u64::MAX - 1));
    assert_eq!((segment::BASE_ALIGNMENT, posting::BLOCK_ROWS, order::ORDER_BLOCK_ENTRIES), (64, 4096, 1024));
    assert_eq!((log::LOG_START, log::MAX_FRAME_BYTES), (68, 1 << 30));
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

/// `hexdump -C`, with lines equal to the one before left out.
fn dump(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut previous: Option<&[u8]> = None;
    let mut starred = false;
    for (number, line) in bytes.chunks(16).enumerate() {
        if previous == Some(line) {
            if !std::mem::replace(&mut starred, true) {
                out += "*\n";
            }
            continue;
        }
        (previous, starred) = (Some(line), false);
        let hex: String = (0..16)
            .map(|i| {
                let gap = if i == 8 { "  " } else { " " };
                line.get(i).map_or_else(|| format!("{gap}  "), |byte| format!("{gap}{byte:02x}"))
            })
            .collect();
        let text: String = line.iter().map(|b| if (0x20..0x7f).contains(b) { *b as char } else { '.' }).collect();
        out += &format!("{:08x} {hex}  |{text}|\n", number * 16);
    }
    out + &format!("{:08x}\n", bytes.len())
}

#[test]
fn the_dump_in_the_specification_is_the_golden_file() {
    let bytes = golden::golden("numbers.lmx", &golden::numbers().write().0);
    assert!(SPEC.contains(&dump(&bytes)), "{}", dump(&bytes));
}

/// The rows of the explanation under the dump show the bytes of the file.
#[test]
fn the_explained_bytes_are_those_of_the_file() {
    let bytes = golden::golden("numbers.lmx", &golden::numbers().write().0);
    let mut explained = 0;
    for (at, shown) in table("at") {
        let shown: Vec<_> = shown.split(' ').collect();
        if shown.iter().any(|byte| byte.len() != 2) || shown.iter().any(|byte| u8::from_str_radix(byte, 16).is_err()) {
            continue;
        }
        let (Ok(at), true) = (usize::from_str_radix(&at, 16), at.len() == 2 && shown.len() > 2) else {
            continue;
        };
        let found: Vec<_> = bytes[at..at + shown.len()].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, shown, "at {at:x}");
        explained += 1;
    }
    assert_eq!(explained, 9);
    let stream = forge::stream(&bytes);
    assert_eq!(stream.len(), 0x79);
}

/// The operations of the specification have the codes of the library.
#[test]
fn the_operations_match() {
    let specified: Vec<_> = cells("code | operation").into_iter().map(|row| (row[1].clone(), row[2].clone())).collect();
    let codes = (1..=4).map(|code| (code.to_string(), Operation::decode(code).unwrap().name().to_owned()));
    assert_eq!(specified, codes.collect::<Vec<_>>());
    assert!(SPEC.contains("1 segment, 2 edit, 3 position map, 5 checkpoint, 6 file part, 7 path page; 4 is a log"));
    use ContentKind::*;
    let kinds = [Segment, Edit, PositionMap, Log, Checkpoint, FilePart, PathPage];
    assert_eq!(kinds.map(ContentKind::code), [1, 2, 3, 4, 5, 6, 7]);
}

/// The positions that the specification gives as an example are those of the library.
#[test]
fn the_positions_of_the_example_are_those_of_the_filter() {
    let shapes =
        [FilterShape { blocks: 1, block_bits: 1000, hashes: 5 }, FilterShape { blocks: 3, block_bits: 64, hashes: 4 }];
    let keys = [Key::Fixed(0), Key::Fixed(1 << 63 | 7), Key::Bytes("Zürich".into())];
    let rows = cells("key of the example");
    assert_eq!(rows.len(), keys.len());
    for (row, key) in rows.iter().zip(keys) {
        let hash = filter::hash(&key);
        let positions = shapes.map(|shape| {
            let positions: Vec<String> = shape.positions(hash).map(|position| position.to_string()).collect();
            positions.join(", ")
        });
        let [of_one, of_three] = positions;
        assert_eq!(row[2..5], [format!("{hash:016x}"), of_one, of_three], "{key:?}");
    }
}

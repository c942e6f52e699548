//! Small values of every structure, shared by the tests and by the golden files.

use lakemark_format::*;

/// Two files, two value blocks that follow their postings, then NULL and opaque rows.
pub fn directory() -> SegmentDirectory {
    SegmentDirectory {
        segment_id: [0x5e; 16],
        index_id: [0x1d; 16],
        column: "temperature".into(),
        key_type: KeyType::Int32,
        files: vec![file("a.parquet", 0, vec![50, 20]), file("b.parquet", 128, vec![30])].into(),
        universe: 158,
        nulls: PostingRef { offset: 124, length: 6, rows: 4 },
        opaque: PostingRef { offset: 130, length: 3, rows: 1 },
        value_count: 5,
        max_key: Some(Key::Fixed(key_of_i64(40))),
        blocks: vec![
            ValueBlockRef {
                first_key: Key::Fixed(key_of_i64(-5)),
                offset: 74,
                length: 20,
                values: 3,
                rows: 65,
                postings_offset: 64,
                postings_length: 10,
                is_inner: false,
            },
            ValueBlockRef {
                first_key: Key::Fixed(key_of_i64(7)),
                offset: 104,
                length: 20,
                values: 2,
                rows: 30,
                postings_offset: 94,
                postings_length: 10,
                is_inner: false,
            },
        ],
        encoding: Encoding::Equality,
        bins: vec![],
        bitmaps: vec![],
        orders: vec![],
        riding: vec![],
        predicates: vec![],
        zones: None,
    }
}

/// A covered file with hashes made from its base.
pub fn file(path: &str, base: u32, row_groups: Vec<u32>) -> SegmentFile {
    SegmentFile {
        path: path.into(),
        base,
        row_groups,
        footer_hash: 0xf000 + u64::from(base),
        column_hash: 0xc000 + u64::from(base),
    }
}

/// The trailer of a segment whose stream has `stream_length` bytes; only what decoding a directory looks at is meaningful.
pub fn trailer(segment_id: [u8; 16], stream_length: u64) -> Trailer {
    Trailer {
        kind: ContentKind::Segment,
        id: segment_id,
        stream_length,
        directory_offset: physical_length(stream_length),
        directory_length: 0,
        directory_checksum: 0,
        file_length: 0,
    }
}

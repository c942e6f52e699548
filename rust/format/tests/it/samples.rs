//! Small values of every structure, shared by the tests and by the golden files.

use lakemark_format::*;

/// A manifest that uses every optional field and two key types with parameters.
pub fn manifest() -> Manifest {
    let index = [0x1d; 16];
    Manifest {
        store_id: *b"store-0123456789",
        number: 42,
        created_ms: 1_700_000_000_123,
        schemas: vec![b"schema of 2024".to_vec(), vec![]],
        files: vec![
            ManifestFile {
                path: "year=2024/part-0.parquet".into(),
                size: 1_234_567,
                modified_ns: 1_700_000_000_000_000_001,
                etag: Some("\"abc\"".into()),
                footer_hash: 0x0123_4567_89ab_cdef,
                schema: 1,
                row_groups: vec![100_000, 100_000, 7],
                false_statistics: vec![],
            },
            ManifestFile {
                path: "year=2025/größe.parquet".into(),
                size: 0,
                modified_ns: -1,
                etag: None,
                footer_hash: u64::MAX,
                schema: 0,
                row_groups: vec![],
                false_statistics: vec![],
            },
        ],
        indexes: vec![
            ManifestIndex {
                id: index,
                name: "by_city".into(),
                kind: "bitmap".into(),
                encoding: "equality".into(),
                column: "city".into(),
                field_id: Some(-3),
                key_type: KeyType::Utf8,
                options: vec![("precision".into(), "2".into())],
            },
            ManifestIndex {
                id: [0x2d; 16],
                name: "by_time".into(),
                kind: "bitmap".into(),
                encoding: "equality".into(),
                column: "time".into(),
                field_id: None,
                key_type: KeyType::Timestamp { unit: TimeUnit::Microsecond, zoned: true },
                options: vec![],
            },
        ],
        segments: vec![ManifestSegment {
            id: [0x5e; 16],
            index_id: index,
            path: "indexes/5e5e.lmx".into(),
            length: 4321,
            files: vec![0, 1],
        }],
        updates: None,
    }
}

/// A manifest of a new store.
pub fn empty_manifest() -> Manifest {
    Manifest {
        store_id: [0; 16],
        number: 0,
        created_ms: 0,
        schemas: vec![],
        files: vec![],
        indexes: vec![],
        segments: vec![],
        updates: None,
    }
}

/// Two files, two value blocks that follow their postings, then NULL and opaque rows.
pub fn directory() -> SegmentDirectory {
    SegmentDirectory {
        segment_id: [0x5e; 16],
        index_id: [0x1d; 16],
        column: "temperature".into(),
        key_type: KeyType::Int32,
        files: vec![file("a.parquet", 0, vec![50, 20]), file("b.parquet", 128, vec![30])],
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
            },
            ValueBlockRef {
                first_key: Key::Fixed(key_of_i64(7)),
                offset: 104,
                length: 20,
                values: 2,
                rows: 30,
                postings_offset: 94,
                postings_length: 10,
            },
        ],
        encoding: Encoding::Equality,
        bins: vec![],
        bitmaps: vec![],
        orders: vec![],
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

/// A manifest that knows of footers with false statistics, and has updates behind that.
pub fn false_statistics() -> Manifest {
    let mut manifest = crate::samples_updates::manifest();
    manifest.files = self::manifest().files;
    manifest.schemas = self::manifest().schemas;
    manifest.indexes = self::manifest().indexes;
    manifest.segments = self::manifest().segments;
    manifest.files[0].false_statistics = vec![0, 3, 300];
    manifest.files[1].false_statistics = vec![7];
    manifest
}

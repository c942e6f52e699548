//! Small edits, and a history that leads to a checkpoint, shared by the tests and by the golden files.

use lakemark_format::*;

use crate::samples_updates;

/// The id of the store.
pub const STORE: [u8; 16] = *b"store-0123456789";

/// An edit of the store.
pub fn edit(number: u64, changes: ManifestChanges) -> ManifestEdit {
    let (created_ms, checkpoint) = (1_700_000_000_000 + number as i64, number.saturating_sub(3));
    ManifestEdit { store_id: STORE, number, created_ms, checkpoint, changes }
}

/// A data file of one row group, of the schema 0.
pub fn file(path: impl Into<String>) -> ManifestFile {
    ManifestFile {
        path: path.into(),
        size: 4096,
        modified_ns: 1_700_000_000_000_000_000,
        etag: None,
        footer_hash: 7,
        schema: 0,
        row_groups: vec![1000],
        false_statistics: vec![],
    }
}

/// Two files with every optional field present and absent.
pub fn files() -> Vec<ManifestFile> {
    vec![
        ManifestFile {
            path: "year=2024/part-0.parquet".into(),
            size: 1_234_567,
            modified_ns: 1_700_000_000_000_000_001,
            etag: Some("\"abc\"".into()),
            footer_hash: 0x0123_4567_89ab_cdef,
            schema: 1,
            row_groups: vec![100_000, 100_000, 7],
            false_statistics: vec![0, 3, 300],
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
    ]
}

/// Two indexes, one of them on a type with parameters.
pub fn indexes() -> Vec<ManifestIndex> {
    vec![
        ManifestIndex {
            id: [0x1d; 16],
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
    ]
}

/// A segment of the first index.
pub fn segment(id: u8, files: FileNumbers) -> ManifestSegment {
    let path = format!("indexes/{id:x}{id:x}.lmx");
    ManifestSegment { id: [id; 16], index_id: [0x1d; 16], path, length: 4321, files }
}

/// An edit with every change that there is. It fits no state: only its bytes matter.
pub fn every_change() -> ManifestEdit {
    let changes = ManifestChanges {
        files_removed: [2, 3, 4, 9, 1 << 20].into_iter().collect(),
        schemas_removed: vec![1, 5],
        schemas_added: AddedSchemas { first: 6, schemas: vec![b"schema of 2024".to_vec(), vec![]] },
        files_changed: vec![(7, file("a.parquet")), (300, ManifestFile { schema: 6, ..file("b/c.parquet") })],
        files_added: AddedFiles { first: 70_000, files: files() },
        segments_removed: vec![[1; 16], [2; 16]],
        indexes_removed: vec![[3; 16]],
        indexes_added: indexes(),
        segments_added: vec![
            segment(0x5e, FileNumbers::of_range(70_000..70_002)),
            segment(0x5f, [0, 7, 300, 301].into_iter().collect()),
        ],
        updates: Some(samples_updates::updates()),
    };
    edit(42, changes)
}

/// An edit that changes nothing but what is buffered.
pub fn of_updates(updates: ManifestUpdates) -> ManifestEdit {
    edit(1, ManifestChanges { updates: Some(updates), ..ManifestChanges::default() })
}

/// Edits to a state with two parts, in which a schema and most of the files have left.
pub fn history() -> Vec<ManifestEdit> {
    let named = |number: u32| file(format!("day={}/part-{number}.parquet", number / 10));
    let first = ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![b"schema".to_vec(), b"old schema".to_vec()] },
        files_added: AddedFiles { first: 0, files: (0..1030).map(named).collect() },
        indexes_added: indexes(),
        segments_added: vec![
            segment(0x5e, FileNumbers::of_range(0..1030)),
            segment(0x5f, [0, 1, 1029].into_iter().collect()),
        ],
        ..ManifestChanges::default()
    };
    let second = ManifestChanges {
        files_removed: FileNumbers::of_range(4..1023).union(&FileNumbers::of_range(1025..1029)),
        schemas_removed: vec![1],
        schemas_added: AddedSchemas { first: 2, schemas: vec![b"newer schema".to_vec()] },
        files_changed: vec![(1, ManifestFile { etag: Some("\"tag\"".into()), modified_ns: 5, ..named(1) })],
        files_added: AddedFiles {
            first: 1030,
            files: vec![ManifestFile { schema: 2, false_statistics: vec![4], ..named(7) }, named(2000)],
        },
        segments_removed: vec![[0x5f; 16]],
        updates: Some(samples_updates::updates()),
        ..ManifestChanges::default()
    };
    vec![edit(1, first), edit(2, second)]
}

/// The state after those edits.
pub fn manifest() -> Manifest {
    history().iter().fold(Manifest::new(STORE), |manifest, edit| manifest.apply(edit).unwrap())
}

/// Its checkpoint: the names of the golden files and their bytes.
pub fn checkpoint() -> Vec<(&'static str, Vec<u8>)> {
    let Checkpoint { root, pieces, .. } = manifest().to_checkpoint().unwrap();
    let is_page = |bytes: &[u8]| open_tail(bytes, bytes.len() as u64).unwrap().trailer.kind == ContentKind::PathPage;
    let (page, mut parts): (Vec<_>, Vec<_>) =
        pieces.into_iter().map(|(_, bytes)| bytes).partition(|bytes| is_page(bytes));
    // The body begins with the number of the part, behind a page of the header.
    parts.sort_by_key(|bytes| bytes[68]);
    let names = ["table-part-0.lmp", "table-part-1.lmp", "table-page.lmp"];
    let pieces = names.into_iter().zip(parts.into_iter().chain(page));
    [("table.lmk", root)].into_iter().chain(pieces).collect()
}

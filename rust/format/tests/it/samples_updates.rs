//! Small values of what updates write, shared by the tests and by the golden files.

use lakemark_format::*;

/// Everything buffered that there can be, with every optional field present and absent.
pub fn updates() -> ManifestUpdates {
    let position_map = ManifestPositionMap { id: [0x4e; 16], path: "updates/4e4e.lmx".into(), length: 777 };
    ManifestUpdates {
        key: vec!["country".into(), "straße".into()],
        options: vec![("buffer".into(), "1GiB".into()), ("alpha".into(), "".into())],
        log: ManifestLog { id: LOG, path: "updates/3c3c.lml".into(), first_sequence: FIRST },
        runs: vec![
            ManifestRun {
                id: [0xa1; 16],
                path: "updates/a1a1.lmr".into(),
                length: 1 << 40,
                passes: 2,
                rows: u32::MAX,
                first_sequence: 0,
                last_sequence: 30,
                migrated: vec![0..1, 7..300, u32::MAX - 1..u32::MAX],
                position_map: Some(position_map),
                during: 0,
            },
            ManifestRun {
                id: [0xa2; 16],
                path: "updates/a2a2.lmr".into(),
                length: 0,
                passes: 1,
                rows: 10,
                first_sequence: 33,
                last_sequence: 33,
                migrated: vec![],
                position_map: None,
                during: 3,
            },
        ],
        migration: Some(ManifestMigration {
            number: 3,
            ranges: vec![
                RunRange { run: 0, rows: 1..5 },
                RunRange { run: 0, rows: 300..4000 },
                RunRange { run: 1, rows: 9..10 },
            ],
        }),
        migrations: 3,
        replaced: vec![ReplacedFile { path: "year=2024/part-0.parquet".into(), size: 1_234_567, modified_ns: -2 }],
        data: vec![
            StoreFile { path: "data/d1.parquet".into(), size: 4321 },
            StoreFile { path: "data/größe.parquet".into(), size: 0 },
        ],
        written: WriteCounters {
            rows: 1,
            log_bytes: 200,
            flushed_bytes: 30_000,
            merged_bytes: 4_000_000,
            merged_rows: u64::MAX,
        },
        ..ManifestUpdates::default()
    }
}

/// What stands behind the updates: two applications, a publication that is done and one that is under way, a Delta table.
pub fn extras() -> ManifestUpdates {
    let of = |application: &str, version, sequence| ManifestTransaction {
        application: application.into(),
        version,
        sequence,
    };
    let published = PublishedFile {
        stored: "data/7/year=2024/part-1.parquet".into(),
        path: "year=2024/part-1.parquet".into(),
        size: 4321,
    };
    let moved = MovedFile {
        path: "year=2024/größe.parquet".into(),
        stored: "originals/7/year=2024/größe.parquet".into(),
        size: 1_234_567,
        modified_ns: -3,
    };
    let done = ManifestPublication { manifest: 8, files: vec![published.clone()], originals: vec![moved] };
    let file = PublishedFile { stored: "data/8/a.parquet".into(), path: "a.parquet".into(), size: 0 };
    let under_way = ManifestPublication { manifest: 0, files: vec![file], originals: vec![] };
    ManifestUpdates {
        transactions: vec![of("größe of loads", u64::MAX, 40), of("b", 0, 0)],
        publications: vec![done, under_way],
        delta: Some(ManifestDelta { table_id: "größe-4f1c".into(), last_migration: 2, version: 1 << 40 }),
        ..updates()
    }
}

/// Nothing buffered.
pub fn key_only() -> ManifestUpdates {
    let log = ManifestLog { path: "l".into(), ..ManifestLog::default() };
    ManifestUpdates { key: vec!["id".into()], log, ..ManifestUpdates::default() }
}

/// The id of the log.
pub const LOG: [u8; 16] = *b"log-of-updates-1";
/// The number of its first commit.
pub const FIRST: u64 = 41;

/// The frames of a log: two commits that were synced together, then one. Every operation is there.
pub fn frames() -> Vec<Vec<LogCommit>> {
    let change = |operation, rows: &str| LogChange { operation, rows: rows.into() };
    vec![
        vec![
            LogCommit {
                tag: "load größe".into(),
                changes: vec![change(Operation::Insert, "rows to add"), change(Operation::Delete, "keys")],
            },
            LogCommit { tag: "".into(), changes: vec![change(Operation::Upsert, "")] },
        ],
        vec![LogCommit { tag: "".into(), changes: vec![change(Operation::Update, "keys and new values")] }],
    ]
}

/// All commits of frames with their numbers.
pub fn numbered(frames: &[Vec<LogCommit>]) -> Vec<LoggedCommit> {
    let numbered = (FIRST..).zip(frames.iter().flatten().cloned());
    numbered.map(|(sequence, commit)| LoggedCommit { sequence, commit }).collect()
}

/// The whole log of these frames, and where each of them ends.
pub fn log(frames: &[Vec<LogCommit>]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends, mut sequence) = (log::log_header(LOG), Vec::new(), FIRST);
    for commits in frames {
        bytes.extend(log::log_frame(&LOG, bytes.len() as u64, sequence, commits).unwrap());
        ends.push(bytes.len());
        sequence += commits.len() as u64;
    }
    (bytes, ends)
}

/// Reads a whole log.
pub fn read_log(bytes: &[u8]) -> Result<LogRead> {
    log::check_log_header(&LOG, bytes)?;
    log::read_log(&LOG, log::LOG_START, FIRST, &bytes[log::LOG_START as usize..])
}

/// A position map against two data files and an older run, with and without each list.
pub fn position_map() -> PositionMap {
    PositionMap {
        id: *b"position-map-a1!",
        run: [0xa1; 16],
        rows: 9000,
        files: vec![
            PositionsInFile {
                path: "year=2024/part-0.parquet".into(),
                size: 1_234_567,
                modified_ns: 1_700_000_000_000_000_001,
                etag: Some("\"abc\"".into()),
                row_groups: vec![100_000, 100_000, 7],
                deleted: (0..5000).map(|row| 40 * row + row % 7).collect(),
                completed: vec![0, 8999],
            },
            PositionsInFile {
                path: "year=2025/größe.parquet".into(),
                size: 0,
                modified_ns: -1,
                etag: None,
                row_groups: vec![],
                deleted: vec![],
                completed: vec![],
            },
        ],
        runs: vec![
            PositionsInRun { id: [0xa0; 16], rows: 64, replaced: (0..64).collect() },
            PositionsInRun { id: [0x9f; 16], rows: 0, replaced: vec![] },
        ],
        keys: None,
    }
}

/// A position map with a filter of ten keys: the numbers 0, 10, … 90, each with a text.
pub fn position_map_with_keys() -> PositionMap {
    let texts = ["a", "b", "", "größe", "e", "f", "g", "h", "i", "a longer text than the others"];
    let hash = |(number, text): (i64, &str)| {
        let first = filter::hash(&Key::Fixed(key_of_i64(number * 10)));
        filter::hash_after(first, &Key::Bytes(text.as_bytes().to_vec()))
    };
    let hashes: Vec<u64> = (0..).zip(texts).map(hash).collect();
    let keys = KeyFilter::of(vec![KeyType::Int32, KeyType::Utf8], filter::Density::of_fpp(0.01), &hashes);
    PositionMap {
        id: *b"position-map-a2!",
        run: [0xa2; 16],
        rows: 10,
        files: vec![],
        runs: vec![PositionsInRun { id: [0xa1; 16], rows: 9000, replaced: vec![1, 2] }],
        keys: Some(keys),
    }
}

//! How the manifest grows with the files of a table: `cargo bench -p lakemark-format --bench growth`.
//!
//! ```text
//! checkpoint    root and pieces of a table whose index is one segment, as a full compaction leaves it
//! commit        an edit of 16 new files and their segment, and what applying it takes
//! next          what the checkpoint after 64 such commits writes, and how long that takes
//! open          reading the root; finding the number of one path and its file then reads two pieces
//! memory        what the process holds once every piece is read
//! ```
//!
//! Nothing is read from a disk: these are the costs that remain if reading costs nothing. Times are medians of the rounds.

#![allow(clippy::restriction, clippy::disallowed_methods, reason = "a program that is run by hand")]

use std::collections::HashMap;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use lakemark_format::{
    AddedFiles, AddedSchemas, FileNumbers, KeyType, Manifest, ManifestChanges, ManifestEdit, ManifestFile,
    ManifestIndex, ManifestSegment, PieceId,
};

const ROUNDS: usize = 9;
const GROUP: u32 = 16;
const INDEX: [u8; 16] = [7; 16];

fn main() {
    println!(
        "| files | root | pieces | bytes of pieces | commit, bytes | applied, µs | next writes | next, ms | open, µs | one file, µs | bytes read | memory, MB |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for files in [1_000, 50_000, 1_000_000] {
        println!("{}", row(files));
    }
}

fn row(files: u32) -> String {
    let before = resident();
    let mut manifest = empty();
    for first in (0..files).step_by(1024) {
        let edit = edit(&manifest, added(first..files.min(first + 1024)));
        manifest = manifest.into_applied(&edit).unwrap();
    }
    let edit =
        edit(&manifest, ManifestChanges { segments_added: vec![segment(0..files)], ..ManifestChanges::default() });
    manifest = manifest.into_applied(&edit).unwrap();
    let checkpoint = manifest.to_checkpoint().unwrap();
    let memory = resident().saturating_sub(before);
    let pieces: HashMap<PieceId, Vec<u8>> = checkpoint.pieces.into_iter().collect();
    let manifest = checkpoint.manifest;
    let edit = commit(&manifest);
    let applied = median(|| manifest.apply(&edit).unwrap());
    let mut later = manifest.clone();
    for _ in 0..64 {
        let edit = commit(&later);
        later = later.into_applied(&edit).unwrap();
    }
    let next = median(|| later.to_checkpoint().unwrap());
    let written = later.to_checkpoint().unwrap();
    let written = written.root.len() + written.pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let open = median(|| Manifest::from_root(&checkpoint.root).unwrap());
    let one = median(|| one_file(&checkpoint.root, &pieces, files / 2));
    let read = one_file(&checkpoint.root, &pieces, files / 2);
    let (root, count) = (checkpoint.root.len(), pieces.len());
    let bytes = pieces.values().map(Vec::len).sum::<usize>();
    format!(
        "| {files} | {root} | {count} | {bytes} | {} | {:.1} | {written} | {:.1} | {:.1} | {:.1} | {read} | {} |",
        edit.encode().unwrap().len(),
        applied * 1e6,
        next * 1e3,
        open * 1e6,
        one * 1e6,
        memory >> 20
    )
}

/// A store with an index and no file.
fn empty() -> Manifest {
    let index = ManifestIndex {
        id: INDEX,
        name: "customer".into(),
        kind: "key".into(),
        encoding: "packed".into(),
        column: "customer".into(),
        field_id: None,
        key_type: KeyType::Int64,
        options: vec![],
    };
    let changes = ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![vec![7; 500]] },
        indexes_added: vec![index],
        ..ManifestChanges::default()
    };
    let edit = ManifestEdit { store_id: [1; 16], number: 1, created_ms: 0, checkpoint: 0, changes };
    Manifest::new([1; 16]).apply(&edit).unwrap()
}

/// Sixteen new files, and the segment that covers them.
fn commit(manifest: &Manifest) -> ManifestEdit {
    let new = manifest.next_file()..manifest.next_file() + GROUP;
    edit(manifest, ManifestChanges { segments_added: vec![segment(new.clone())], ..added(new) })
}

fn added(new: Range<u32>) -> ManifestChanges {
    let files_added = AddedFiles { first: new.start, files: new.map(file).collect() };
    ManifestChanges { files_added, ..ManifestChanges::default() }
}

fn segment(files: Range<u32>) -> ManifestSegment {
    let id = (u128::from(files.end) << 64 | 1).to_be_bytes();
    let (path, files) = (format!("indexes/{}.lmx", hex(id)), FileNumbers::of_range(files));
    ManifestSegment { id, index_id: INDEX, path, length: 12_345_678, files }
}

fn edit(manifest: &Manifest, changes: ManifestChanges) -> ManifestEdit {
    let (number, checkpoint) = (manifest.number() + 1, manifest.checkpoint());
    ManifestEdit { store_id: [1; 16], number, created_ms: 0, checkpoint, changes }
}

/// A file as a table in an object store has it.
fn file(number: u32) -> ManifestFile {
    let hash = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    ManifestFile {
        path: path(number),
        size: 100_000_000 + u64::from(number),
        modified_ns: 1_790_000_000_000_000_000 + i64::from(number),
        etag: Some(format!("\"{}\"", hex(hash.rotate_left(64).to_be_bytes()))),
        footer_hash: hash as u64,
        schema: 0,
        row_groups: vec![1 << 20, 1 << 20, 77_777],
        false_statistics: vec![],
    }
}

fn path(number: u32) -> String {
    let hash = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    format!("day=2026-{:02}/part-{number:05}-{}-c000.snappy.parquet", number / 100_000, hex(hash.to_be_bytes()))
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Finds a file by its path in a manifest of which only the root is there; returns the bytes that were read.
fn one_file(root: &[u8], pieces: &HashMap<PieceId, Vec<u8>>, number: u32) -> usize {
    let manifest = Manifest::from_root(root).unwrap();
    let (path, mut read) = (path(number), root.len());
    loop {
        let missing = manifest.missing_of_paths([path.as_str()]);
        if missing.is_empty() {
            break;
        }
        for piece in missing {
            let bytes = &pieces[&piece.id()];
            piece.supply(bytes).unwrap();
            read += bytes.len();
        }
    }
    assert_eq!(manifest.number_of(&path).unwrap(), Some(number));
    read
}

/// The median seconds of a run.
fn median<T>(mut run: impl FnMut() -> T) -> f64 {
    let timed = |run: &mut dyn FnMut() -> T| {
        let began = Instant::now();
        black_box(run());
        began.elapsed().as_secs_f64()
    };
    let mut taken: Vec<f64> = (0..ROUNDS).map(|_| timed(&mut run)).collect();
    taken.sort_by(f64::total_cmp);
    taken[ROUNDS / 2]
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

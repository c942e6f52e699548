//! How many bytes a manifest takes: the table of `docs/internals/manifest.md` is computed here, and edits stay small.

use lakemark_format::*;

use crate::forge_manifests::{self as forge, Root};
use crate::samples_manifests::{self as samples, edit, segment};

const PAGE: &str = include_str!("../../../../docs/internals/manifest.md");

/// A file as a table in an object store has it.
fn typical(number: u32) -> ManifestFile {
    let hash = u128::from(number) * 0x1234_5678_9abc_def1_2345_6789;
    ManifestFile {
        path: format!("day=2026-{:02}/part-{number:05}-{hash:032x}-c000.snappy.parquet", number / 100_000),
        size: 100_000_000 + u64::from(number),
        modified_ns: 1_790_000_000_000_000_000 + i64::from(number),
        etag: Some(format!("\"{:032x}\"", hash.wrapping_mul(3))),
        footer_hash: hash as u64,
        schema: 0,
        row_groups: vec![1 << 20, 1 << 20, 77_777],
        false_statistics: vec![],
    }
}

/// The root of a checkpoint of so many files, of which none has left, without schemas, indexes, segments and updates.
fn root_of(files: u32) -> Root {
    let parts = files.div_ceil(manifest::PART_FILES);
    let pages = u64::from(files).div_ceil(manifest::PAGE_FILES).next_power_of_two();
    let entries = |page| u64::from(files) / pages + u64::from(page < u64::from(files) % pages);
    Root {
        store_id: samples::STORE,
        number: 1000,
        next_file: files,
        parts: (0..parts).map(|_| (vec![1], Some([0xee; 16]))).collect(),
        pages: (0..pages).map(|page| (entries(page), Some([0xee; 16]))).collect(),
        ..Root::default()
    }
}

/// A number with a comma before each three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let places = (0..).zip(digits.chars()).map(|(place, digit)| {
        let is_first = place == 0 || !(digits.len() - place).is_multiple_of(3);
        if is_first { digit.to_string() } else { format!(",{digit}") }
    });
    places.collect()
}

#[test]
fn the_sizes_of_roots_are_those_of_the_page_and_edits_do_not_grow() {
    let mut lengths = Vec::new();
    for files in [1_000, 50_000, 1_000_000, 10_000_000] {
        let root = root_of(files);
        let bytes = forge::root(&root);
        let cells = [files as usize, root.parts.len(), root.pages.len(), bytes.len()].map(grouped);
        let row = format!("| {} |", cells.join(" | "));
        assert!(PAGE.contains(&row), "{row}");
        let manifest = Manifest::from_root(&bytes).unwrap();
        assert_eq!(manifest.file_count(), u64::from(files));
        let changes = ManifestChanges {
            schemas_added: AddedSchemas { first: 0, schemas: vec![vec![7; 500]] },
            files_added: AddedFiles { first: files, files: (files..files + 16).map(typical).collect() },
            indexes_added: samples::indexes(),
            segments_added: vec![segment(1, FileNumbers::of_range(files..files + 16))],
            ..ManifestChanges::default()
        };
        let new = edit(1001, changes);
        let known = FileNumbers::of_range(5..500).union(&FileNumbers::of_range(700..703));
        let changes = ManifestChanges { segments_added: vec![segment(2, known)], ..ManifestChanges::default() };
        let known = edit(1002, changes);
        // No piece is there, and none is needed.
        assert_eq!(manifest.apply(&new).unwrap().apply(&known).unwrap().file_count(), u64::from(files) + 16);
        lengths.push((new.encode().unwrap().len(), known.encode().unwrap().len()));
    }
    assert!(lengths.iter().all(|(new, known)| *new < 5_000 && *known < 250), "{lengths:?}");
}

#[test]
fn a_file_takes_as_few_bytes_in_a_piece_as_the_page_says() {
    let changes = ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![vec![]] },
        files_added: AddedFiles { first: 0, files: (0..1024).map(typical).collect() },
        ..ManifestChanges::default()
    };
    let manifest = Manifest::new(samples::STORE).apply(&edit(1, changes)).unwrap();
    let mut lengths: Vec<usize> =
        manifest.to_checkpoint().unwrap().pieces.into_iter().map(|(_, bytes)| bytes.len() / 1024).collect();
    lengths.sort();
    // A page of one of few files has hashes of eight or nine bytes each, as they are far from each other.
    assert!(lengths[0] <= 12 && (90..=130).contains(&lengths[1]), "{lengths:?}");
    assert!(PAGE.contains("130 bytes a file"));
}

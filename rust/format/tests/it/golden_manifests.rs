//! Golden files of manifests: edits, the roots of checkpoints and their pieces.

use lakemark_format::*;

use crate::golden::golden;
use crate::samples_manifests as samples;
use crate::samples_updates;

pub fn edits() -> Vec<(&'static str, ManifestEdit)> {
    vec![
        ("empty.lmm", samples::edit(1, ManifestChanges::default())),
        ("every-change.lmm", samples::every_change()),
        ("key-only.lmm", samples::of_updates(samples_updates::key_only())),
        ("extras.lmm", samples::of_updates(samples_updates::extras())),
    ]
}

/// Roots and pieces by their names.
pub fn checkpoints() -> Vec<(&'static str, Vec<u8>)> {
    let empty = Manifest::new(samples::STORE).to_checkpoint().unwrap();
    [("empty.lmk", empty.root)].into_iter().chain(samples::checkpoint()).collect()
}

#[test]
fn golden_edits_are_read_and_written() {
    for (name, edit) in edits() {
        let encoded = edit.encode().unwrap();
        let golden = golden(name, &encoded);
        assert_eq!(ManifestEdit::decode(&golden).as_ref(), Ok(&edit), "{name} is read as another value");
        assert!(golden == encoded, "{name} is written with other bytes");
    }
}

#[test]
fn golden_checkpoints_are_read_and_written() {
    let files: Vec<(&str, Vec<u8>)> =
        checkpoints().into_iter().map(|(name, encoded)| (name, golden(name, &encoded))).collect();
    for ((name, encoded), (_, golden)) in checkpoints().iter().zip(&files) {
        assert!(golden == encoded, "{name} is written with other bytes");
    }
    let file = |name: &str| &files.iter().find(|(other, _)| *other == name).unwrap().1;
    let manifest = Manifest::from_root(file("table.lmk")).unwrap();
    for piece in manifest.missing_of_all_files() {
        let holds = |name: &&str| Piece::read(file(name)).unwrap().id() == piece.id();
        piece.supply(file(["table-part-0.lmp", "table-part-1.lmp"].iter().find(|name| holds(name)).unwrap())).unwrap();
    }
    let read: Vec<_> = manifest.files().map(Result::unwrap).collect();
    let expected = samples::manifest();
    assert_eq!(read, expected.files().map(Result::unwrap).collect::<Vec<_>>());
    assert_eq!(read.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 1023, 1024, 1029, 1030, 1031]);
    assert!(manifest.schemas().eq(expected.schemas()));
    assert!(manifest.indexes().eq(expected.indexes()));
    assert!(manifest.segments().eq(expected.segments()));
    assert_eq!(manifest.updates(), expected.updates());
    assert_eq!(
        (manifest.number(), manifest.checkpoint(), manifest.next_file(), manifest.next_schema()),
        (2, 2, 1032, 3)
    );
}

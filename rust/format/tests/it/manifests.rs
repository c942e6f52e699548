//! What a manifest makes of edits and checkpoints: which edits fit, which pieces are read, how many bytes are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use lakemark_format::*;

use crate::forge_manifests::{self as forge, Root};
use crate::samples_manifests::{self as samples, edit, file, segment};
use crate::samples_updates;

/// A store of so many files, one segment of all and no checkpoint.
fn store_of(files: u32) -> Manifest {
    let changes = ManifestChanges {
        schemas_added: AddedSchemas { first: 0, schemas: vec![b"schema".to_vec()] },
        files_added: AddedFiles { first: 0, files: (0..files).map(|n| file(format!("f{n}"))).collect() },
        indexes_added: samples::indexes(),
        segments_added: vec![segment(0x5e, FileNumbers::of_range(0..files))],
        ..ManifestChanges::default()
    };
    Manifest::new(samples::STORE).apply(&edit(1, changes)).unwrap()
}

/// The checkpoint of a manifest, opened by its root, and its pieces.
fn reopened(manifest: &Manifest) -> (Manifest, BTreeMap<PieceId, Vec<u8>>) {
    let checkpoint = manifest.to_checkpoint().unwrap();
    (Manifest::from_root(&checkpoint.root).unwrap(), checkpoint.pieces.into_iter().collect())
}

fn removed(numbers: impl IntoIterator<Item = u32>) -> ManifestChanges {
    ManifestChanges { files_removed: numbers.into_iter().collect(), ..ManifestChanges::default() }
}

fn added(first: u32, files: Vec<ManifestFile>) -> ManifestChanges {
    ManifestChanges { files_added: AddedFiles { first, files }, ..ManifestChanges::default() }
}

fn changed(number: u32, file: ManifestFile) -> ManifestChanges {
    ManifestChanges { files_changed: vec![(number, file)], ..ManifestChanges::default() }
}

#[test]
fn an_edit_of_another_store_or_out_of_turn_is_refused() {
    let manifest = store_of(3);
    let next = edit(2, ManifestChanges::default());
    assert_eq!(manifest.apply(&next).unwrap().number(), 2);
    let other = ManifestEdit { store_id: [9; 16], ..next.clone() };
    assert!(matches!(manifest.apply(&other), Err(FormatError::OtherStore { edit: 2, .. })));
    for number in [0, 1, 3] {
        let wrong = ManifestEdit { number, ..next.clone() };
        let expected = FormatError::OutOfTurn { got: number, expected: 2 };
        assert_eq!(manifest.apply(&wrong).unwrap_err(), expected);
    }
}

/// Whether the pieces were read or not: nothing that is refused here is in one.
#[test]
fn a_change_that_does_not_fit_is_refused_and_says_which() {
    let none = ManifestChanges::default;
    let schema = |first, text: &str| AddedSchemas { first, schemas: vec![text.into()] };
    let of_index = |index_id| ManifestSegment { index_id, ..segment(7, FileNumbers::of_range(0..1)) };
    let index = |id, name: &str| ManifestIndex { id: [id; 16], name: name.into(), ..samples::indexes().remove(0) };
    let cases = [
        ("a file that is removed", removed([3])),
        ("a file that is removed", removed([1])),
        ("a file that is changed", changed(1, file("f1"))),
        ("a file that is changed", changed(3, file("f3"))),
        ("the schema of a file", changed(0, ManifestFile { schema: 1, ..file("f0") })),
        ("the schema of a file", added(3, vec![ManifestFile { schema: 1, ..file("new") }])),
        ("the number of the first added file", added(2, vec![file("new")])),
        ("the number of the first added file", added(4, vec![file("new")])),
        ("a schema that is removed", ManifestChanges { schemas_removed: vec![1], ..none() }),
        ("the number of the first added schema", ManifestChanges { schemas_added: schema(2, "new"), ..none() }),
        ("a schema that is added", ManifestChanges { schemas_added: schema(1, "schema"), ..none() }),
        ("a segment that is removed", ManifestChanges { segments_removed: vec![[7; 16]], ..none() }),
        (
            "a segment that is added",
            ManifestChanges { segments_added: vec![segment(0x5e, FileNumbers::of_range(0..1))], ..none() },
        ),
        ("the index of a segment", ManifestChanges { segments_added: vec![of_index([7; 16])], ..none() }),
        (
            "a file of a segment",
            ManifestChanges { segments_added: vec![segment(7, FileNumbers::of_range(2..4))], ..none() },
        ),
        ("an index that is removed", ManifestChanges { indexes_removed: vec![[7; 16]], ..none() }),
        ("an index that is removed", ManifestChanges { indexes_removed: vec![[0x1d; 16]], ..none() }),
        ("an index that is added", ManifestChanges { indexes_added: vec![index(7, "by_city")], ..none() }),
        ("an index that is added", ManifestChanges { indexes_added: vec![index(0x1d, "new")], ..none() }),
    ];
    let warm = store_of(3).apply(&edit(2, removed([1]))).unwrap();
    let (cold, _) = reopened(&warm);
    for manifest in [&warm, &cold] {
        for (expected, changes) in &cases {
            match manifest.apply(&edit(3, changes.clone())) {
                Err(FormatError::DoesNotFit { edit: 3, what, .. }) => assert_eq!(what, *expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_path_is_added_once_and_again_when_its_file_has_left() {
    let manifest = store_of(3);
    let again = edit(2, added(3, vec![file("f1")]));
    assert!(matches!(manifest.apply(&again), Err(FormatError::DoesNotFit { .. })));
    let replaced = ManifestChanges { files_removed: FileNumbers::of_range(1..2), ..again.changes };
    let manifest = manifest.apply(&edit(2, replaced)).unwrap();
    assert_eq!((manifest.number_of("f1"), manifest.is_live(1), manifest.file_count()), (Ok(Some(3)), false, 3));
    let (cold, pieces) = reopened(&manifest);
    while let Some(piece) = cold.missing_of_paths(["f1"]).pop() {
        piece.supply(&pieces[&piece.id()]).unwrap();
    }
    assert_eq!(cold.number_of("f1"), Ok(Some(3)));
    assert!(matches!(cold.apply(&edit(3, added(4, vec![file("f1")]))), Err(FormatError::DoesNotFit { .. })));
}

/// Nothing of a store looks at a file by a path that is not its own, so that a changed path is found when the part is stored at the latest.
#[test]
fn a_file_keeps_its_path() {
    let warm = store_of(3);
    assert!(matches!(warm.apply(&edit(2, changed(1, file("other")))), Err(FormatError::DoesNotFit { .. })));
    let (cold, pieces) = reopened(&warm);
    let renamed = cold.apply(&edit(2, changed(1, file("other")))).unwrap();
    for piece in renamed.missing_of_checkpoint() {
        piece.supply(&pieces[&piece.id()]).unwrap();
    }
    assert!(matches!(renamed.to_checkpoint(), Err(FormatError::Invalid { .. })));
}

/// A state that has not read its pages cannot tell, and its checkpoint does.
#[test]
fn two_files_do_not_have_one_path() {
    let (cold, pieces) = reopened(&store_of(3000));
    let twice = cold.apply(&edit(2, added(3000, vec![file("f7")]))).unwrap();
    let mut read = 0;
    loop {
        let missing = twice.missing_of_checkpoint();
        if missing.is_empty() {
            break;
        }
        missing.iter().for_each(|piece| piece.supply(&pieces[&piece.id()]).unwrap());
        read += missing.len();
    }
    // The part of the new file, the page, and the part of the old file.
    assert_eq!(read, 3);
    assert!(matches!(twice.to_checkpoint(), Err(FormatError::Invalid { what: "the path of a data file", .. })));
}

#[test]
fn a_schema_that_a_file_has_does_not_leave_with_a_checkpoint() {
    let without = ManifestChanges { schemas_removed: vec![0], ..removed([0]) };
    let manifest = store_of(3).apply(&edit(2, without)).unwrap();
    assert!(matches!(manifest.to_checkpoint(), Err(FormatError::Invalid { what: "the schema of a file", .. })));
}

#[test]
fn one_file_takes_its_part_and_one_path_a_page_and_a_part() {
    let (manifest, pieces) = reopened(&store_of(3000));
    assert_eq!((manifest.pieces().len(), pieces.len()), (3 + 4, 3 + 4));
    assert!(manifest.is_live(2999) && !manifest.is_live(3000));
    assert_eq!(manifest.live_files(), FileNumbers::of_range(0..3000));
    assert!(matches!(manifest.file(1500), Err(FormatError::NotLoaded { .. })));
    assert_eq!(manifest.file(3000), Ok(None));
    let found = FileNumbers::from_sorted([1024, 1025, 2047, 70_000]);
    let missing = manifest.missing_of_files(&found);
    assert_eq!(missing.len(), 1);
    missing[0].supply(&pieces[&missing[0].id()]).unwrap();
    assert!(missing[0].is_loaded() && manifest.missing_of_files(&found).is_empty());
    assert_eq!(manifest.file(1500).unwrap().unwrap().path, "f1500");
    assert!(matches!(manifest.file(1023), Err(FormatError::NotLoaded { .. })));

    let (manifest, _) = reopened(&store_of(3000));
    let mut read = 0;
    assert!(matches!(manifest.number_of("f7"), Err(FormatError::NotLoaded { .. })));
    while let Some(piece) = manifest.missing_of_paths(["f7"]).pop() {
        piece.supply(&pieces[&piece.id()]).unwrap();
        read += 1;
    }
    assert_eq!((manifest.number_of("f7"), read), (Ok(Some(7)), 2));
    assert_eq!(manifest.missing_of_all_files().len(), 2);
}

/// States share what they have in common, whoever reads it.
#[test]
fn a_piece_that_one_state_reads_is_read_for_all_that_share_it() {
    let (manifest, pieces) = reopened(&store_of(2000));
    let next = manifest.apply(&edit(2, removed([1999]))).unwrap();
    for piece in next.missing_of_files(&FileNumbers::of_range(0..1)) {
        piece.supply(&pieces[&piece.id()]).unwrap();
    }
    assert!(Arc::ptr_eq(manifest.file(5).unwrap().unwrap(), next.file(5).unwrap().unwrap()));
}

/// As after a vacuum, which leaves another root of the newest state.
#[test]
fn a_state_of_another_root_takes_over_what_was_read_of_the_same_pieces() {
    let before = store_of(3000);
    let (read, pieces) = reopened(&before);
    read.missing_of_all().iter().for_each(|piece| piece.supply(&pieces[&piece.id()]).unwrap());
    let after = before.apply(&edit(2, changed(1500, ManifestFile { modified_ns: 9, ..file("f1500") }))).unwrap();
    let (mut opened, _) = reopened(&after);
    assert_eq!(opened.missing_of_all().len(), 3 + 4);
    opened.share_pieces(&read);
    // The part of the file that changed is another piece.
    assert_eq!(opened.missing_of_all().len(), 1);
    assert!(Arc::ptr_eq(opened.file(5).unwrap().unwrap(), read.file(5).unwrap().unwrap()));
    assert_eq!(opened.number_of("f7"), Ok(Some(7)));
    assert!(matches!(opened.file(1500), Err(FormatError::NotLoaded { .. })));
    // Of what was not read, nothing is taken over.
    let (mut opened, _) = reopened(&after);
    opened.share_pieces(&reopened(&before).0);
    assert_eq!(opened.missing_of_all().len(), 3 + 4);
}

#[test]
fn a_path_that_came_since_the_checkpoint_needs_no_piece() {
    let (manifest, _) = reopened(&store_of(3000));
    let manifest = manifest.apply(&edit(2, added(3000, vec![file("new")]))).unwrap();
    assert!(manifest.missing_of_paths(["new"]).is_empty());
    assert_eq!(manifest.number_of("new"), Ok(Some(3000)));
    let missing = manifest.missing_of_paths(["new", "f7"]);
    assert_eq!(missing.len(), 1, "the page of the other path");
    // Once its file has left, nobody knows whether the checkpoint has the path.
    let left = manifest.apply(&edit(3, removed([3000]))).unwrap();
    assert_eq!(left.missing_of_paths(["new"]).len(), 1);
    assert!(matches!(left.number_of("new"), Err(FormatError::NotLoaded { .. })));
}

#[test]
fn a_piece_takes_no_bytes_but_its_own() {
    let (manifest, pieces) = reopened(&store_of(3000));
    let all = manifest.missing_of_all_files();
    let other = &pieces[&all[1].id()];
    assert!(matches!(all[0].supply(other), Err(FormatError::Invalid { what: "the piece", .. })));
    assert!(!all[0].is_loaded());
    let page = &manifest.missing_of_paths(["f7"])[0];
    assert!(page.supply(other).is_err() && all[0].supply(&pieces[&page.id()]).is_err());
    // A root that gives a piece another place, or other numbers, is not the root of these pieces.
    let parts: Vec<_> = all.iter().map(|piece| (vec![1], Some(piece.id().0))).collect();
    let swapped = parts.iter().rev().cloned().collect();
    let pages = [2997, 1, 1, 1].map(|entries| (entries, Some(page.id().0))).to_vec();
    for (parts, refused) in [(parts, 0), (swapped, 2)] {
        let root = Root { next_file: 3000, parts, pages: pages.clone(), ..Root::default() };
        let manifest = Manifest::from_root(&forge::root(&root)).unwrap();
        let missing = manifest.missing_of_all_files();
        assert_eq!(missing.iter().filter(|piece| piece.supply(&pieces[&piece.id()]).is_err()).count(), refused);
        let page = &manifest.missing_of_paths(["f7"])[0];
        assert!(page.supply(&pieces[&page.id()]).is_err(), "a page of other entries");
    }
}

#[test]
fn a_checkpoint_writes_the_pieces_that_changed() {
    let before = store_of(3000).to_checkpoint().unwrap();
    assert_eq!(before.manifest.to_checkpoint().unwrap().pieces, []);
    let mut changes = added(3000, vec![file("new")]);
    changes.files_changed = vec![(3, ManifestFile { etag: Some("tag".into()), ..file("f3") })];
    let after = before.manifest.apply(&edit(2, changes)).unwrap().to_checkpoint().unwrap();
    // The parts of both files and the page of the new one.
    assert_eq!(after.pieces.len(), 3);
    let kept = before.manifest.pieces().intersection(&after.manifest.pieces()).count();
    assert_eq!((kept, after.manifest.pieces().len()), (4, 7));
    // What comes and leaves between two checkpoints leaves nothing behind, but for the number.
    let passing = before.manifest.apply(&edit(2, added(3000, vec![file("new")]))).unwrap();
    let passed = passing.apply(&edit(3, removed([3000]))).unwrap().to_checkpoint().unwrap();
    assert_eq!((passed.pieces.len(), passed.manifest.next_file()), (0, 3001));
}

#[test]
fn pages_divide_and_join_as_files_come_and_leave() {
    let bits_of = |manifest: &Manifest| {
        let pages = manifest.to_checkpoint().unwrap().pieces.into_iter().map(|(_, bytes)| bytes);
        pages
            .filter(|bytes| open_tail(bytes, bytes.len() as u64).unwrap().trailer.kind == ContentKind::PathPage)
            .count()
    };
    for (files, pages) in [(0, 0), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 4)] {
        assert_eq!(bits_of(&store_of(files)), pages, "{files} files");
    }
    // Once from a state with all pages, once from one that has read what it needs alone.
    let (cold, mut pieces) = reopened(&store_of(2049));
    let joined = edit(2, removed(0..2000));
    let divided = edit(3, added(2049, (0..1500).map(|n| file(format!("g{n}"))).collect()));
    let warm = store_of(2049).apply(&joined).unwrap().apply(&divided).unwrap();
    let cold = cold.apply(&joined).unwrap().apply(&divided).unwrap();
    loop {
        let missing = cold.missing_of_checkpoint();
        if missing.is_empty() {
            break;
        }
        missing.iter().for_each(|piece| piece.supply(&pieces[&piece.id()]).unwrap());
    }
    let (warm, cold) = (warm.to_checkpoint().unwrap(), cold.to_checkpoint().unwrap());
    assert!(warm.root == cold.root);
    pieces.extend(cold.pieces);
    assert!(warm.pieces.iter().all(|(id, bytes)| pieces[id] == *bytes));
}

/// Segments keep the numbers of files that left, which mean nothing then.
#[test]
fn a_file_leaves_and_its_segments_stay_as_they_are() {
    let manifest = store_of(4).apply(&edit(2, removed(1..3))).unwrap();
    let segment = manifest.segment(&[0x5e; 16]).unwrap();
    assert_eq!(segment.files.intersection(&manifest.live_files()), [0, 3].into_iter().collect());
    let changes = ManifestChanges {
        segments_removed: vec![[0x5e; 16]],
        indexes_removed: vec![[0x1d; 16]],
        updates: Some(samples_updates::key_only()),
        ..ManifestChanges::default()
    };
    let manifest = manifest.apply(&edit(3, changes)).unwrap();
    assert_eq!((manifest.segments().len(), manifest.index("by_city"), manifest.indexes().len()), (0, None, 1));
    assert_eq!(manifest.updates().unwrap().key, ["id"]);
}

#[test]
fn lists_are_sorted_for_an_edit_that_would_be_refused_otherwise() {
    let mut changes = samples::every_change().changes;
    changes.files_changed.reverse();
    changes.indexes_added.reverse();
    changes.segments_added.reverse();
    changes.segments_removed.reverse();
    changes.schemas_removed.reverse();
    assert!(matches!(edit(42, changes.clone()).encode(), Err(FormatError::Invalid { .. })));
    changes.sort();
    assert_eq!(edit(42, changes).encode(), samples::every_change().encode());
    assert!(ManifestChanges::default().is_empty() && !samples::every_change().changes.is_empty());
}

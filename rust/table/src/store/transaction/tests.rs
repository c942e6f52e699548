//! What edits make of a manifest.

use lakemark_format::KeyType;

use super::*;

fn index(id: u8) -> ManifestIndex {
    ManifestIndex {
        id: [id; 16],
        name: format!("i{id}"),
        kind: "bitmap".into(),
        encoding: "equality".into(),
        column: "k".to_owned(),
        field_id: None,
        key_type: KeyType::Int32,
        options: Vec::new(),
    }
}

fn built(index: u8, segment: u8, files: &[(&str, u64)]) -> Edit {
    let file = |(path, footer_hash): &(&str, u64)| ManifestFile {
        path: (*path).to_owned(),
        size: 1,
        modified_ns: 0,
        etag: None,
        footer_hash: *footer_hash,
        schema: 0,
        row_groups: vec![1],
        false_statistics: Vec::new(),
    };
    let ordinals = (0..).take(files.len()).collect();
    let segment = ManifestSegment {
        id: [segment; 16],
        index_id: [index; 16],
        path: format!("indexes/{segment}"),
        length: 1,
        files: ordinals,
    };
    let files = files.iter().map(file).collect();
    Edit::AddSegments(BuiltSegments {
        schemas: vec![vec![7]],
        files,
        segments: vec![segment],
        ..BuiltSegments::default()
    })
}

fn after(edits: &[Edit]) -> Manifest {
    let mut manifest = empty_manifest();
    for edit in edits {
        if let Some(next) = apply(&manifest, edit).unwrap().next {
            next.encode().unwrap();
            manifest = next;
        }
    }
    manifest
}

fn create(id: u8) -> Edit {
    Edit::CreateIndex { index: index(id), if_not_exists: false }
}

fn replace(replaced: &[u8], edit: Edit) -> Edit {
    let Edit::AddSegments(built) = edit else { panic!("{edit:?}") };
    Edit::ReplaceSegments { replaced: replaced.iter().map(|id| [*id; 16]).collect(), built }
}

#[test]
fn a_merged_segment_takes_the_place_of_the_others_which_stay_on_the_disk() {
    let base = after(&[create(1), built(1, 3, &[("a", 1)]), built(1, 4, &[("b", 1)]), built(1, 5, &[("c", 1)])]);
    let Applied { next, committed } = apply(&base, &replace(&[3, 4], built(1, 9, &[("a", 1), ("b", 1)]))).unwrap();
    let next = next.unwrap();
    let left: Vec<(&str, &[u32])> =
        next.segments.iter().map(|segment| (segment.path.as_str(), segment.files.as_slice())).collect();
    assert_eq!(left, [("indexes/5", [2].as_slice()), ("indexes/9", [0, 1].as_slice())]);
    assert_eq!((committed.changed, committed.unused), (true, Vec::new()));
}

/// Whoever was faster wins: what was merged meanwhile is removed.
#[test]
fn segments_that_are_gone_and_files_that_changed_are_not_replaced() {
    let base = after(&[create(1), built(1, 3, &[("a", 1)]), built(1, 4, &[("b", 2)])]);
    for edit in [
        replace(&[3, 7], built(1, 9, &[("a", 1), ("b", 2)])),
        replace(&[3, 4], built(1, 9, &[("a", 1), ("b", 1)])),
        replace(&[3, 4], built(1, 9, &[("a", 1), ("z", 2)])),
    ] {
        let Applied { next, committed } = apply(&base, &edit).unwrap();
        assert_eq!((next, committed.changed, committed.unused), (None, false, vec!["indexes/9".to_owned()]));
    }
}

#[test]
fn segments_of_a_dropped_index_are_discarded() {
    let drop = Edit::DropIndex { name: "i1".to_owned(), if_exists: false };
    let base = after(&[create(1), drop]);
    let Applied { next, committed } = apply(&base, &built(1, 9, &[("a", 1)])).unwrap();
    assert!(next.is_none());
    assert_eq!(committed.unused, ["indexes/9"]);
}

#[test]
fn a_changed_file_leaves_the_segments_of_its_older_self() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)])]);
    let Applied { next, committed } = apply(&base, &built(1, 9, &[("b", 2)])).unwrap();
    let next = next.unwrap();
    assert_eq!(
        next.files.iter().map(|file| (file.path.as_str(), file.footer_hash)).collect::<Vec<_>>(),
        [("a", 1), ("b", 2)]
    );
    assert_eq!(next.segments.iter().map(|segment| segment.files.clone()).collect::<Vec<_>>(), [vec![0], vec![1]]);
    assert!(committed.unused.is_empty());
    let Applied { next, committed } = apply(&next, &built(1, 10, &[("a", 2)])).unwrap();
    assert_eq!(next.unwrap().segments.len(), 2);
    assert_eq!(committed.unused, ["indexes/8"]);
}

#[test]
fn applications_that_called_long_ago_are_forgotten() {
    let call = |number: usize| ManifestTransaction {
        application: format!("job {number}"),
        version: 1,
        sequence: number as u64,
    };
    let mut have = Vec::new();
    for number in 0..REMEMBERED_APPLICATIONS + 5 {
        add_transactions(&mut have, &[call(number)]);
        // One of the applications calls all the time.
        add_transactions(&mut have, &[ManifestTransaction { application: "stream".to_owned(), ..call(number) }]);
    }
    assert_eq!(have.len(), REMEMBERED_APPLICATIONS);
    assert_eq!(have.last().unwrap().application, "stream");
    assert_eq!(have[0].application, "job 6");
}

#[test]
fn the_slower_of_two_builders_of_the_same_files_adds_nothing() {
    let base = after(&[create(1), create(2), built(1, 8, &[("a", 1), ("b", 1)])]);
    let Applied { next, committed } = apply(&base, &built(1, 9, &[("a", 1)])).unwrap();
    assert!(next.is_none());
    assert_eq!(committed.unused, ["indexes/9"]);
    let applied = apply(&base, &built(2, 9, &[("a", 1)])).unwrap();
    assert_eq!(applied.next.unwrap().segments.len(), 2);
}

#[test]
fn a_touched_file_keeps_its_segments_unless_it_was_indexed_again_meanwhile() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)])]);
    let was = base.files[0].clone();
    let adoption = Adoption { now: ManifestFile { modified_ns: 5, etag: None, ..was.clone() }, was };
    let edit = Edit::AddSegments(BuiltSegments { adopted: vec![adoption], ..BuiltSegments::default() });
    let Applied { next, committed } = apply(&base, &edit).unwrap();
    let next = next.unwrap();
    assert_eq!(next.files.iter().map(|file| file.modified_ns).collect::<Vec<_>>(), [5, 0]);
    assert_eq!((next.segments.len(), next.segments[0].files.as_slice()), (1, &[0, 1][..]));
    assert!(committed.unused.is_empty());
    // Applied again, or after a faster builder, it changes nothing.
    assert!(apply(&next, &edit).unwrap().next.is_none());
    let faster = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)]), built(1, 9, &[("a", 2)])]);
    assert!(apply(&faster, &edit).unwrap().next.is_none());
}

#[test]
fn files_and_schemas_without_segments_are_forgotten() {
    let drop = Edit::DropIndex { name: "i1".to_owned(), if_exists: false };
    let base = after(&[create(1), create(2), built(1, 8, &[("a", 1)]), built(2, 9, &[("b", 1)]), drop]);
    assert_eq!(base.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!((base.schemas.len(), base.segments[0].files.as_slice()), (1, &[0][..]));
}

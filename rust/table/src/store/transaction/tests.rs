//! What edits make of a manifest.

use lakemark_format::{FileNumbers, KeyType};

use super::updates::{REMEMBERED_APPLICATIONS, add_transactions};
use super::*;

/// The manifest of a store before its first edit.
pub(super) fn empty() -> Manifest {
    Manifest::new([9; 16])
}

/// What a reader makes of what is written for an edit; no manifest if nothing is.
pub(super) fn applied(base: &Manifest, edit: &Edit) -> (Option<Manifest>, Committed) {
    let Applied { changes, committed } = apply(base, edit).unwrap();
    let next = changes.map(|changes| {
        let bytes = edit_of(base, 0, changes).encode().unwrap();
        base.apply(&ManifestEdit::decode(&bytes).unwrap()).unwrap()
    });
    (next, committed)
}

fn paths(manifest: &Manifest) -> Vec<(u32, String)> {
    manifest.files().map(Result::unwrap).map(|(number, file)| (number, file.path.clone())).collect()
}

/// The numbers of files of each segment, by id.
fn numbers(manifest: &Manifest) -> Vec<Vec<u32>> {
    manifest.segments().map(|segment| segment.files.iter().collect()).collect()
}

pub(crate) fn index(id: u8) -> ManifestIndex {
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
    let places: FileNumbers = (0..).take(files.len()).collect();
    let segment = ManifestSegment {
        id: [segment; 16],
        index_id: [index; 16],
        path: format!("indexes/{segment}"),
        length: 1,
        files: places,
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
    edits.iter().fold(empty(), |manifest, edit| applied(&manifest, edit).0.unwrap_or(manifest))
}

fn create(id: u8) -> Edit {
    Edit::CreateIndex { index: index(id), if_not_exists: false }
}

fn replacement(replaced: &[u8], edit: Edit) -> Replacement {
    let Edit::AddSegments(built) = edit else { panic!("{edit:?}") };
    Replacement { replaced: replaced.iter().map(|id| [*id; 16]).collect(), built }
}

fn replace(replaced: &[u8], edit: Edit) -> Edit {
    Edit::ReplaceSegments(vec![replacement(replaced, edit)])
}

#[test]
fn a_merged_segment_takes_the_place_of_the_others_which_stay_on_the_disk() {
    let base = after(&[create(1), built(1, 3, &[("a", 1)]), built(1, 4, &[("b", 1)]), built(1, 5, &[("c", 1)])]);
    let (next, committed) = applied(&base, &replace(&[3, 4], built(1, 9, &[("a", 1), ("b", 1)])));
    let next = next.unwrap();
    let left: Vec<(&str, Vec<u32>)> =
        next.segments().map(|segment| (segment.path.as_str(), segment.files.iter().collect())).collect();
    assert_eq!(left, [("indexes/5", vec![2]), ("indexes/9", vec![0, 1])]);
    assert_eq!((committed.changed, committed.unused), (true, Vec::new()));
}

/// Whoever was faster wins: what was merged meanwhile is left to a vacuum.
#[test]
fn segments_that_are_gone_and_files_that_changed_are_not_replaced() {
    let base = after(&[create(1), built(1, 3, &[("a", 1)]), built(1, 4, &[("b", 2)])]);
    for edit in [
        replace(&[3, 7], built(1, 9, &[("a", 1), ("b", 2)])),
        replace(&[3, 4], built(1, 9, &[("a", 1), ("b", 1)])),
        replace(&[3, 4], built(1, 9, &[("a", 1), ("z", 2)])),
    ] {
        let (next, committed) = applied(&base, &edit);
        assert_eq!((next.is_none(), committed.changed, committed.left_out), (true, false, vec![[9; 16]]));
        assert!(committed.unused.is_empty());
    }
}

#[test]
fn one_commit_makes_the_replacements_that_it_still_can() {
    let base = after(&[
        create(1),
        create(2),
        built(1, 3, &[("a", 1)]),
        built(1, 4, &[("b", 1)]),
        built(2, 5, &[("a", 1)]),
        built(2, 6, &[("b", 1)]),
    ]);
    let both = [("a", 1), ("b", 1)];
    let edit = Edit::ReplaceSegments(vec![
        replacement(&[3, 4], built(1, 9, &both)),
        // Others were faster with one of these, and no segment is replaced twice.
        replacement(&[5, 77], built(2, 10, &both)),
        replacement(&[4], built(1, 11, &[("b", 1)])),
        replacement(&[5, 6], built(2, 12, &both)),
    ]);
    let (next, committed) = applied(&base, &edit);
    let next = next.unwrap();
    let left: Vec<&str> = next.segments().map(|segment| segment.path.as_str()).collect();
    assert_eq!((left, numbers(&next)), (vec!["indexes/9", "indexes/12"], vec![vec![0, 1]; 2]));
    assert_eq!((committed.changed, committed.left_out), (true, vec![[10; 16], [11; 16]]));
    // Somebody else may be about to name what was left out.
    assert!(committed.unused.is_empty());
    // Made again, whoever made it the first time, it counts as made.
    let Applied { changes, committed } = apply(&next, &edit).unwrap();
    assert_eq!((changes.is_none(), committed.changed), (true, true));
    assert_eq!((committed.left_out, committed.unused), (vec![[10; 16], [11; 16]], Vec::new()));
}

#[test]
fn a_merged_segment_of_files_that_others_cover_is_left_out_and_the_others_stay() {
    let base = after(&[create(1), built(1, 3, &[("a", 1)]), built(1, 4, &[("a", 1), ("b", 1)])]);
    let (next, committed) = applied(&base, &replace(&[3], built(1, 9, &[("a", 1)])));
    assert!(next.is_none());
    assert_eq!((committed.changed, committed.left_out, committed.unused), (false, vec![[9; 16]], Vec::new()));
}

/// Another builder may have made the same merge of the same files, and segments that it did not replace are left.
#[test]
fn a_merged_segment_that_is_there_replaces_what_is_left_and_is_made_once() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)]), built(1, 9, &[("b", 1), ("c", 1)])]);
    let edit = replace(&[8, 9], built(1, 8, &[("a", 1), ("b", 1)]));
    let (next, committed) = applied(&base, &edit);
    let next = next.unwrap();
    assert_eq!((numbers(&next), committed.changed), (vec![vec![0, 1]], true));
    assert!(committed.left_out.is_empty() && committed.unused.is_empty());
    let (again, committed) = applied(&next, &edit);
    assert!(again.is_none() && committed.changed && committed.left_out.is_empty());
    // One of the others is gone, and another one is still there: nobody knows what became of them.
    let (next, committed) = applied(&base, &replace(&[7, 9], built(1, 8, &[("a", 1), ("b", 1)])));
    assert!(next.is_none() && !committed.changed);
    assert_eq!((committed.left_out, committed.unused), (vec![[8; 16]], Vec::new()));
}

#[test]
fn segments_of_a_dropped_index_are_discarded() {
    let drop = Edit::DropIndex { name: "i1".to_owned(), if_exists: false };
    let base = after(&[create(1), drop]);
    let (next, committed) = applied(&base, &built(1, 9, &[("a", 1)]));
    assert!(next.is_none());
    assert_eq!(committed.unused, ["indexes/9"]);
}

#[test]
fn a_changed_file_gets_a_new_number_that_older_segments_do_not_have() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)])]);
    let (next, committed) = applied(&base, &built(1, 9, &[("b", 2)]));
    let next = next.unwrap();
    assert_eq!(paths(&next), [(0, "a".to_owned()), (2, "b".to_owned())]);
    // The number of what the file was stays in the segment, and means nothing.
    assert_eq!(numbers(&next), [vec![0, 1], vec![2]]);
    assert!(committed.unused.is_empty());
    let (next, committed) = applied(&next, &built(1, 10, &[("a", 2)]));
    let next = next.unwrap();
    assert_eq!(
        (paths(&next), numbers(&next)),
        (vec![(2, "b".to_owned()), (3, "a".to_owned())], vec![vec![2], vec![3]])
    );
    assert_eq!(committed.unused, ["indexes/8"]);
}

#[test]
fn tasks_that_fill_two_indexes_bring_a_file_once() {
    let base = after(&[create(1), create(2)]);
    let (Edit::AddSegments(one), Edit::AddSegments(two)) =
        (built(1, 8, &[("a", 1), ("b", 1)]), built(2, 9, &[("b", 1), ("c", 1)]))
    else {
        panic!("no segments");
    };
    let shifted = |segment: &ManifestSegment| ManifestSegment { files: (2..4).collect(), ..segment.clone() };
    let both = BuiltSegments {
        files: [one.files.clone(), two.files.clone()].concat(),
        segments: one.segments.iter().cloned().chain(two.segments.iter().map(shifted)).collect(),
        ..one.clone()
    };
    let next = applied(&base, &Edit::AddSegments(both.clone())).0.unwrap();
    assert_eq!(paths(&next).len(), 3);
    assert_eq!(numbers(&next), [vec![0, 1], vec![1, 2]]);
    // What a task found out later of a version that another one did not see is covered by no segment.
    let mut other = both;
    other.files[2].footer_hash = 7;
    let next = applied(&base, &Edit::AddSegments(other)).0.unwrap();
    assert_eq!(numbers(&next), [vec![0, 1], vec![2]]);
}

#[test]
fn what_is_written_for_a_segment_does_not_grow_with_the_store() {
    let names: Vec<String> = (0..2000).map(|number| format!("year=2020/part-{number:06}.parquet")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let bytes = |base: &Manifest| {
        let changes = apply(base, &built(1, 200, &[("new", 1)])).unwrap().changes.unwrap();
        edit_of(base, 0, changes).encode().unwrap().len()
    };
    let small = after(&[create(1), built(1, 3, &files[..1])]);
    let large = after(&[create(1), built(1, 3, &files)]);
    assert!(bytes(&large) <= bytes(&small) + 4, "{} and {} bytes", bytes(&small), bytes(&large));
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
    let (next, committed) = applied(&base, &built(1, 9, &[("a", 1)]));
    assert!(next.is_none());
    // Somebody else may be about to name the very same.
    assert!(committed.unused.is_empty());
    assert_eq!(applied(&base, &built(2, 9, &[("a", 1)])).0.unwrap().segments().len(), 2);
}

/// The same files make the same segment.
#[test]
fn a_segment_that_is_built_again_under_its_name_stays() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)]), built(1, 9, &[("c", 1)])]);
    let lost = |edit: Edit, lost: &[u8]| {
        let Edit::AddSegments(built) = edit else { panic!("{edit:?}") };
        Edit::AddSegments(BuiltSegments { lost: lost.iter().map(|id| [*id; 16]).collect(), ..built })
    };
    let (next, committed) = applied(&base, &lost(built(1, 8, &[("a", 1), ("b", 1)]), &[8]));
    assert!(next.is_none() && committed.unused.is_empty());
    // Another one that is lost leaves, and comes back under its name.
    let (next, committed) = applied(&base, &lost(built(1, 8, &[("a", 1), ("b", 1)]), &[8, 9]));
    let next = next.unwrap();
    assert_eq!((numbers(&next), committed.unused), (vec![vec![0, 1]], Vec::new()));
    let next = applied(&next, &built(1, 9, &[("c", 1)])).0.unwrap();
    assert_eq!(numbers(&next), [vec![0, 1], vec![3]]);
    // A merge whose product was there before.
    let next = applied(&base, &replace(&[8, 9], built(1, 8, &[("a", 1), ("b", 1)]))).0.unwrap();
    assert_eq!(numbers(&next), [vec![0, 1]]);
}

/// A build leaves out a file that changed meanwhile, and one that was put back since has its old segment.
#[test]
fn a_segment_that_is_there_with_other_files_gets_those_that_it_lacks() {
    let both = built(1, 8, &[("a", 1), ("b", 1)]);
    let base = after(&[create(1), built(1, 8, &[("a", 1)])]);
    let (next, committed) = applied(&base, &both);
    let next = next.unwrap();
    assert_eq!((numbers(&next), committed.unused), (vec![vec![0, 1]], Vec::new()));
    // Fewer files are no reason to commit.
    for edit in [both.clone(), built(1, 8, &[("b", 1)])] {
        assert!(applied(&next, &edit).0.is_none());
    }
    // Either build has left out what the other has.
    assert_eq!(numbers(&applied(&base, &built(1, 8, &[("b", 1)])).0.unwrap()), [vec![0, 1]]);
    let covered = after(&[create(1), built(1, 8, &[("a", 1)]), built(1, 9, &[("b", 1)])]);
    assert!(applied(&covered, &both).0.is_none());
    let (next, committed) = applied(&covered, &replace(&[9], both.clone()));
    assert_eq!((numbers(&next.unwrap()), committed.left_out), (vec![vec![0, 1]], Vec::new()));
    // A file that was another one for a while has another number.
    let back = after(&[create(1), both.clone(), built(1, 9, &[("b", 2)])]);
    assert_eq!(numbers(&applied(&back, &both).0.unwrap()), [vec![0, 3]]);
}

/// The same length is no proof of the same bytes.
#[test]
fn a_segment_that_was_lost_covers_the_files_alone_that_it_was_built_again_of() {
    let lost = |edit: Edit| {
        let Edit::AddSegments(built) = edit else { panic!("{edit:?}") };
        Edit::AddSegments(BuiltSegments { lost: vec![[8; 16]], ..built })
    };
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)])]);
    for (again, left) in
        [(lost(built(1, 8, &[("a", 1)])), vec![0]), (lost(built(1, 8, &[("b", 1), ("c", 1)])), vec![1, 2])]
    {
        let (next, committed) = applied(&base, &again);
        let next = next.unwrap();
        assert_eq!((numbers(&next), committed.unused), (vec![left.clone()], Vec::new()));
        // Files that nothing covers any more leave, and are built as new ones.
        assert_eq!(paths(&next).into_iter().map(|(number, _)| number).collect::<Vec<_>>(), left);
        // Made again, it counts as made.
        let (once_more, committed) = applied(&next, &again);
        assert!(once_more.is_none() && committed.changed && committed.unused.is_empty());
    }
}

#[test]
fn a_touched_file_keeps_its_segments_unless_it_was_indexed_again_meanwhile() {
    let base = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)])]);
    let was = base.file(0).unwrap().unwrap().as_ref().clone();
    let adoption = Adoption { now: ManifestFile { modified_ns: 5, etag: None, ..was.clone() }, was };
    let edit = Edit::AddSegments(BuiltSegments { adopted: vec![adoption], ..BuiltSegments::default() });
    let (next, committed) = applied(&base, &edit);
    let next = next.unwrap();
    let times = next.files().map(|file| file.unwrap().1.modified_ns);
    assert_eq!(times.collect::<Vec<_>>(), [5, 0]);
    assert_eq!(numbers(&next), [vec![0, 1]]);
    assert!(committed.unused.is_empty());
    // Applied again, or after a faster builder, it changes nothing.
    assert!(applied(&next, &edit).0.is_none());
    let faster = after(&[create(1), built(1, 8, &[("a", 1), ("b", 1)]), built(1, 9, &[("a", 2)])]);
    assert!(applied(&faster, &edit).0.is_none());
}

#[test]
fn files_and_schemas_without_segments_are_forgotten() {
    let drop = Edit::DropIndex { name: "i1".to_owned(), if_exists: false };
    let base = after(&[create(1), create(2), built(1, 8, &[("a", 1)]), built(2, 9, &[("b", 1)]), drop]);
    assert_eq!(paths(&base), [(1, "b".to_owned())]);
    assert_eq!((base.schemas().len(), numbers(&base)), (1, vec![vec![1]]));
    let none =
        after(&[create(1), built(1, 8, &[("a", 1)]), Edit::DropIndex { name: "i1".to_owned(), if_exists: false }]);
    assert_eq!((none.file_count(), none.schemas().len(), none.segments().len()), (0, 0, 0));
}

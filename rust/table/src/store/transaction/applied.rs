//! Whether an edit was committed before: by us, with an answer that was lost, or by whoever was handed the same edit.
//!
//! What an edit brings has a random id of its own, or an id that says what is in it. So a manifest which has it has the edit. `DropIndex`,
//! `EndMigration`, `AbandonMigration` and `EndPublication` bring nothing, nor does a `TakeOver` that keeps the log. That what they take away
//! is gone says nothing of who took it, and to take it again changes nothing.

use lakemark_format::{Manifest, ManifestSegment, ManifestUpdates};

use super::{BuiltSegments, Edit};
use crate::error::Result;

/// Whether the state has the effect of this edit.
///
/// # Errors
/// Files of the state cannot be told.
pub(super) fn is_done(base: &Manifest, edit: &Edit) -> Result<bool> {
    let updates = |has: &dyn Fn(&ManifestUpdates) -> bool| base.updates().is_some_and(|updates| has(updates));
    Ok(match edit {
        Edit::CreateIndex { index, .. } => base.indexes().any(|have| have.id == index.id),
        // Somebody else may have added the same segments, and does not know of files that this one has seen to be the same.
        Edit::AddSegments(built) => built.adopted.is_empty() && has_segments(base, &[], built)?,
        Edit::ReplaceSegments(replacements) => {
            for made in replacements {
                if !has_segments(base, &made.replaced, &made.built)? {
                    return Ok(false);
                }
            }
            !replacements.is_empty()
        }
        Edit::DeclareKey { updates: declared } => updates(&|have| have.log.id == declared.log.id),
        Edit::AddRun { run, log, .. } => {
            updates(&|have| have.log.id == log.id || have.runs.iter().any(|have| have.id == run.id))
        }
        Edit::MergeRuns { run, .. } => updates(&|have| have.runs.iter().any(|have| have.id == run.id)),
        // Only one migration runs at a time, so that its number is its id.
        Edit::BeginMigration { migration } => updates(&|have| have.migration.as_ref() == Some(migration)),
        Edit::MigrateFolder { number, originals, data, .. } => updates(&|have| {
            let is_over = have.migrations >= *number && have.migration.as_ref().is_none_or(|now| now.number != *number);
            is_over
                && data.iter().all(|file| have.data.contains(file))
                && originals.iter().all(|file| have.replaced.contains(file))
        }),
        Edit::BeginPublication { publication } => updates(&|have| have.publications.last() == Some(publication)),
        Edit::TakeOver { log: Some(log), .. } => updates(&|have| have.log.id == log.id),
        Edit::DropIndex { .. }
        | Edit::EndMigration { .. }
        | Edit::AbandonMigration { .. }
        | Edit::TakeOver { log: None, .. }
        | Edit::EndPublication => false,
    })
}

/// Whether the state has a segment as it was built: with its length, and for all files that it was built of. Another build of the same files may
/// have left some of them out, or seen a newer version of one, so that the segment covers the others alone. One that was lost and built again
/// covers no other files than it was built of.
pub(super) fn has_as_built(base: &Manifest, built: &BuiltSegments, segment: &ManifestSegment) -> Result<bool> {
    let Some(have) = base.segment(&segment.id).filter(|have| have.length == segment.length) else { return Ok(false) };
    for place in segment.files.iter() {
        let Some(file) = built.files.get(place as usize) else { return Ok(false) };
        if !base.number_of(&file.path)?.is_some_and(|number| have.files.contains(number)) {
            return Ok(false);
        }
    }
    // All of its files are among those that it covers, so that their count tells whether there are others.
    let covered = || have.files.iter().filter(|number| base.is_live(*number)).count() as u64;
    Ok(!built.lost.contains(&segment.id) || covered() == segment.files.len())
}

/// Whether the state has all segments that were built, as they were built. There is at least one.
pub(super) fn has_all_as_built(base: &Manifest, built: &BuiltSegments) -> Result<bool> {
    for segment in &built.segments {
        if !has_as_built(base, built, segment)? {
            return Ok(false);
        }
    }
    Ok(!built.segments.is_empty())
}

/// Whether the segments are there, and those that they take the place of are not.
pub(super) fn has_segments(base: &Manifest, replaced: &[[u8; 16]], built: &BuiltSegments) -> Result<bool> {
    let is_built = |id: &[u8; 16]| built.segments.iter().any(|segment| segment.id == *id);
    let is_left = |id: &[u8; 16]| base.segment(id).is_some() && !is_built(id);
    Ok(!replaced.iter().chain(&built.lost).any(is_left) && has_all_as_built(base, built)?)
}

#[cfg(test)]
mod tests {
    use lakemark_format::{
        FileNumbers, ManifestFile, ManifestLog, ManifestMigration, ManifestPublication, ManifestRun, ReplacedFile,
        RunRange, StoreFile, WriteCounters,
    };

    use super::super::tests::{applied, empty, index};
    use super::super::{Applied, Replacement, apply};
    use super::*;

    fn built(segment: u8, file: &str, lost: &[u8]) -> BuiltSegments {
        let file = ManifestFile {
            path: file.to_owned(),
            size: 1,
            modified_ns: 0,
            etag: None,
            footer_hash: 0,
            schema: 0,
            row_groups: vec![1],
            false_statistics: Vec::new(),
        };
        let (id, index_id, path) = ([segment; 16], [1; 16], format!("indexes/{segment}"));
        let segment = ManifestSegment { id, index_id, path, length: 1, files: FileNumbers::of_range(0..1) };
        let lost = lost.iter().map(|id| [*id; 16]).collect();
        BuiltSegments {
            schemas: vec![vec![7]],
            files: vec![file],
            segments: vec![segment],
            lost,
            ..BuiltSegments::default()
        }
    }

    fn log(id: u8) -> ManifestLog {
        ManifestLog { id: [id; 16], path: format!("updates/{id}"), first_sequence: id.into() }
    }

    fn run(id: u8, sequences: (u64, u64)) -> Box<ManifestRun> {
        Box::new(ManifestRun {
            id: [id; 16],
            path: format!("updates/run-{id}"),
            length: 1,
            passes: 1,
            rows: 2,
            first_sequence: sequences.0,
            last_sequence: sequences.1,
            migrated: Vec::new(),
            position_map: None,
            during: 0,
        })
    }

    fn add_run(of: u8, id: u8, sequences: (u64, u64)) -> Edit {
        let (of_log, log, written, transactions) = ([of; 16], log(of + 1), WriteCounters::default(), Vec::new());
        Edit::AddRun { of_log, run: run(id, sequences), log, written, transactions, compacted: None }
    }

    fn replace(replaced: [u8; 16], built: BuiltSegments) -> Edit {
        Edit::ReplaceSegments(vec![Replacement { replaced: vec![replaced], built }])
    }

    /// Rows of the first run.
    fn slice(rows: std::ops::Range<u32>) -> Vec<RunRange> {
        vec![RunRange { run: 0, rows }]
    }

    /// One edit of each kind, each on what those before it left.
    fn edits() -> Vec<Edit> {
        let updates = ManifestUpdates { key: vec!["k".to_owned()], log: log(1), ..ManifestUpdates::default() };
        let data = StoreFile { path: "data/m/new.parquet".to_owned(), size: 3 };
        let original = ReplacedFile { path: "a".to_owned(), size: 1, modified_ns: 0 };
        let publication = ManifestPublication {
            manifest: 0,
            files: vec![lakemark_format::PublishedFile {
                stored: data.path.clone(),
                path: "new.parquet".to_owned(),
                size: 3,
            }],
            originals: Vec::new(),
        };
        vec![
            Edit::CreateIndex { index: index(1), if_not_exists: false },
            Edit::AddSegments(built(3, "a", &[])),
            Edit::AddSegments(built(4, "b", &[])),
            replace([3; 16], built(5, "a", &[])),
            // What was lost, and what took its place.
            Edit::AddSegments(built(6, "b", &[4])),
            Edit::DeclareKey { updates: Box::new(updates) },
            add_run(1, 11, (1, 1)),
            add_run(2, 12, (2, 2)),
            Edit::MergeRuns {
                parts: vec![*run(11, (1, 1)), *run(12, (2, 2))],
                run: run(13, (1, 2)),
                written: WriteCounters::default(),
            },
            Edit::BeginMigration { migration: ManifestMigration { number: 1, ranges: slice(0..1) } },
            Edit::MigrateFolder { number: 1, originals: vec![original], own: Vec::new(), data: vec![data] },
            Edit::BeginMigration { migration: ManifestMigration { number: 2, ranges: slice(1..2) } },
            Edit::EndMigration { number: 2, version: 7 },
            Edit::BeginPublication { publication },
            Edit::EndPublication,
            Edit::BeginMigration { migration: ManifestMigration { number: 3, ranges: Vec::new() } },
            Edit::AbandonMigration { number: 3 },
            Edit::TakeOver { migrations: 5, log: Some(log(9)), delta: None },
            Edit::DropIndex { name: "i1".to_owned(), if_exists: false },
        ]
    }

    /// An edit that is applied to a state that has it counts as made, and deletes nothing.
    #[test]
    fn an_edit_that_was_committed_before_is_made_and_changes_nothing() {
        let mut base = empty();
        for edit in edits() {
            let (next, committed) = applied(&base, &edit);
            assert!(committed.changed && !is_done(&base, &edit).unwrap(), "{edit:?}");
            base = next.unwrap_or_else(|| panic!("{edit:?} changes nothing"));
            match (&edit, apply(&base, &edit)) {
                // These bring nothing that distinguishes them from what others did.
                (Edit::EndMigration { .. } | Edit::AbandonMigration { .. } | Edit::EndPublication, again) => {
                    let Applied { changes, committed } = again.unwrap();
                    assert!(changes.is_none() && !committed.changed && committed.unused.is_empty(), "{edit:?}");
                }
                (Edit::DropIndex { .. }, again) => drop(again.unwrap_err()),
                (_, again) => {
                    let Applied { changes, committed } = again.unwrap();
                    assert!(changes.is_none() && committed.changed && committed.unused.is_empty(), "{edit:?}");
                }
            }
        }
    }

    /// Its bytes may have changed without its name: by a release that forgot to say so.
    #[test]
    fn a_segment_that_is_built_again_with_another_length_is_taken() {
        let mut base = empty();
        for edit in edits().into_iter().take(2) {
            base = applied(&base, &edit).0.unwrap();
        }
        let again = |length: u64, lost: &[u8]| {
            let mut again = built(3, "a", lost);
            again.segments[0].length = length;
            again
        };
        for (length, edit) in [
            (2, Edit::AddSegments(again(2, &[3]))),
            (3, Edit::AddSegments(again(3, &[]))),
            (4, replace([3; 16], again(4, &[]))),
        ] {
            let (next, committed) = applied(&base, &edit);
            base = next.unwrap_or_else(|| panic!("{edit:?} changes nothing"));
            let segments: Vec<(u64, u64)> =
                base.segments().map(|segment| (segment.length, segment.files.len())).collect();
            assert_eq!((segments, committed.unused), (vec![(length, 1)], Vec::new()), "{edit:?}");
            assert!(applied(&base, &edit).0.is_none(), "{edit:?}");
        }
    }

    /// The same where others committed in between, as long as they left it there.
    #[test]
    fn nothing_that_the_newest_state_names_is_unused() {
        let mut base = empty();
        for edit in edits().into_iter().take(5) {
            base = applied(&base, &edit).0.unwrap();
        }
        for edit in [
            Edit::AddSegments(built(5, "a", &[])),
            Edit::AddSegments(BuiltSegments {
                segments: [built(5, "a", &[]).segments, built(9, "b", &[]).segments].concat(),
                ..built(5, "a", &[])
            }),
            replace([3; 16], built(5, "a", &[])),
            replace([77; 16], built(9, "a", &[])),
        ] {
            let (next, committed) = applied(&base, &edit);
            let named = next.as_ref().unwrap_or(&base);
            let is_named = |path: &String| named.segments().any(|segment| segment.path == *path);
            assert!(!committed.unused.iter().any(is_named), "{edit:?}: {committed:?}");
        }
    }
}

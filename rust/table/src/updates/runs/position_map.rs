//! What the parts of a run are resolved to, put together for the run.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_index::RowSet;

use super::known_hits::{FilePositions, HitsOfFile, place_of};
use super::sorted_run::{ReplacedInRun, SortedRun, SortedRunRows};
use crate::files::file_version::FileVersion;
use crate::files::parted_list::PartedList;
use crate::snapshot::DataFile;

/// What the parts that were added are resolved to.
#[derive(Default)]
pub(crate) struct PositionMapBuilder {
    /// Files that all parts are resolved in: those of which nothing is added have none of the keys.
    resolved: Option<PartedList<DataFile>>,
    files: HashMap<FileVersion, FilePart>,
    runs: HashMap<[u8; 16], RunPart>,
    parts: usize,
}

struct FilePart {
    row_groups: Vec<u32>,
    deleted: RowSet,
    /// Rows of the run.
    completed: Vec<u32>,
    parts: usize,
}

struct RunPart {
    replaced: RowSet,
    parts: usize,
}

impl PositionMapBuilder {
    /// For parts that are all resolved in these files.
    pub(crate) fn in_files(files: &PartedList<DataFile>) -> Self {
        Self { resolved: Some(files.clone()), ..Self::default() }
    }

    /// Adds what a part hits in files and replaces in older runs; `place` says where its rows are in the run, if they are.
    pub(crate) fn add(
        &mut self,
        hits: Vec<HitsOfFile>,
        replaced: Vec<ReplacedInRun>,
        place: impl Fn(u32) -> Option<u32>,
    ) {
        self.parts += 1;
        for HitsOfFile { file, hits } in hits {
            let of = self.files.entry(file).or_insert_with(|| FilePart {
                row_groups: hits.row_groups.clone(),
                deleted: RowSet::empty(hits.deleted.universe()),
                completed: Vec::new(),
                parts: 0,
            });
            of.deleted = of.deleted.or(&hits.deleted);
            of.completed.extend(hits.completed.iter().filter_map(&place));
            of.parts += 1;
        }
        for ReplacedInRun { run, rows } in replaced {
            let none = || RunPart { replaced: RowSet::empty(rows.universe()), parts: 0 };
            let of = self.runs.entry(run).or_insert_with(none);
            of.replaced = of.replaced.or(&rows);
            of.parts += 1;
        }
    }

    /// A run with so many rows, resolved to what all of its parts were resolved to.
    pub(crate) fn into_run(self, rows: u32) -> SortedRun {
        let run = SortedRun::new([0; 16], SortedRunRows::None, RowSet::empty(rows), RowSet::empty(rows));
        let in_all = |file: &FileVersion| self.resolved.as_ref().is_some_and(|files| place_of(file, files).is_some());
        for (file, of) in self.files.into_iter().filter(|(file, of)| of.parts == self.parts || in_all(file)) {
            let FilePart { row_groups, deleted, completed, .. } = of;
            let completed = RowSet::from_rows(completed, rows);
            run.set_hits(file, FilePositions { row_groups, deleted: Arc::new(deleted), completed });
        }
        for (older, of) in self.runs.into_iter().filter(|(_, of)| of.parts == self.parts) {
            run.set_replaced(older, of.replaced);
        }
        self.resolved.iter().for_each(|files| run.set_resolved(files));
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> DataFile {
        DataFile::of_test(&format!("{number:05}.parquet"), 1, Some(vec![5, 5]))
    }

    fn hits(number: u64, rows: &[u32], completed: &[u32]) -> HitsOfFile {
        let deleted = Arc::new(RowSet::from_rows(rows.to_vec(), 10));
        let completed = RowSet::from_rows(completed.to_vec(), 3);
        let hits = Arc::new(FilePositions { row_groups: vec![5, 5], deleted, completed });
        HitsOfFile { file: file(number).version(), hits }
    }

    #[test]
    fn parts_that_are_resolved_in_the_same_files_name_those_that_they_hit() {
        let files: PartedList<DataFile> = (0..2000).map(file).collect();
        let mut builder = PositionMapBuilder::in_files(&files);
        builder.add(vec![hits(3, &[1], &[0]), hits(700, &[2], &[])], Vec::new(), Some);
        // The last is of another version, in which nobody has searched the keys of the first part.
        builder.add(vec![hits(3, &[4], &[1]), hits(5000, &[1], &[])], Vec::new(), |row| row.checked_add(3));
        let run = builder.into_run(6);
        assert!(run.unresolved_among(&files).is_empty());
        let found = run.hits_among(&files);
        let deleted = found.iter().map(|(place, hits)| (*place, hits.deleted.iter().collect::<Vec<_>>()));
        assert_eq!(deleted.collect::<Vec<_>>(), [(3, vec![1, 4]), (700, vec![2])]);
        assert_eq!(found[&3].completed.iter().collect::<Vec<_>>(), [0, 4]);
        assert_eq!(run.all_hits().len(), 2000);
    }

    #[test]
    fn of_parts_that_are_resolved_apart_only_files_that_all_know_count() {
        let mut builder = PositionMapBuilder::default();
        builder.add(vec![hits(3, &[1], &[]), hits(4, &[], &[])], Vec::new(), Some);
        builder.add(vec![hits(3, &[4], &[])], Vec::new(), Some);
        assert_eq!(
            builder.into_run(3).all_hits().into_iter().map(|hits| hits.file.path).collect::<Vec<_>>(),
            ["00003.parquet"]
        );
    }
}

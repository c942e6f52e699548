//! What the parts of a run are resolved to, put together for the run.

use std::collections::HashMap;
use std::sync::Arc;

use lakemark_index::RowSet;

use super::known_hits::{FilePositions, HitsOfFile};
use super::sorted_run::{ReplacedInRun, SortedRun, SortedRunRows};
use crate::files::file_version::FileVersion;

/// What the parts that were added are resolved to.
#[derive(Default)]
pub(crate) struct PositionMapBuilder {
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
        for (file, of) in self.files.into_iter().filter(|(_, of)| of.parts == self.parts) {
            let FilePart { row_groups, deleted, completed, .. } = of;
            let completed = RowSet::from_rows(completed, rows);
            run.set_hits(file, FilePositions { row_groups, deleted: Arc::new(deleted), completed });
        }
        for (older, of) in self.runs.into_iter().filter(|(_, of)| of.parts == self.parts) {
            run.set_replaced(older, of.replaced);
        }
        run
    }
}

//! The data files of a snapshot without the rows that buffered changes delete or replace.
//!
//! ```text
//! files as they are pinned      [ a b c d ] [ e f g h ] [ i j k ] …
//! rows that changes delete          │ of b                  │ of j
//! files as they are laid        [ a b'c d ] [ shared  ] [ i j'k ] …
//! one more change, of j                 shared               [ i j"k ]
//! ```
//!
//! The files of the next change are made from those of the one before. So a change copies the parts of its own files, however many files
//! have deleted rows already.

use std::collections::BTreeMap;
use std::sync::Arc;

use lakemark_index::RowSet;

use super::{DataFile, Snapshot};
use crate::files::parted_list::{ListEdit, PartedList};

/// Rows of a data file that buffered changes delete or replace.
#[derive(Clone, Debug)]
pub(crate) struct DeletedPositions {
    /// Rows of the file per row group.
    pub row_groups: Vec<u32>,
    /// The rows that are deleted or replaced.
    pub rows: Arc<RowSet>,
}

/// The rows that buffered changes delete or replace, by the places of the data files that have some.
pub(crate) type DeletedByFile = BTreeMap<usize, DeletedPositions>;

/// Data files as they are pinned, and as buffered changes leave them.
#[derive(Clone, Debug)]
pub(crate) struct LaidFiles {
    /// The files as they are pinned.
    pinned: PartedList<DataFile>,
    pub(super) deleted: Arc<DeletedByFile>,
    /// The files without the rows that are deleted.
    pub(super) files: PartedList<DataFile>,
    /// How many rows of them are deleted or replaced.
    pub(super) deleted_rows: u64,
}

/// A file whose deleted rows are others than before; none where changes delete none of its rows any more.
type ChangedFile<'a> = (usize, Option<&'a DeletedPositions>);

impl LaidFiles {
    /// The files of a snapshot without these rows. What was laid before is a start, if that was of the same files.
    pub(crate) fn of(snapshot: &Snapshot, deleted: &Arc<DeletedByFile>, before: Option<&Self>) -> Self {
        let pinned = &snapshot.files;
        let same = before.filter(|before| before.pinned.is_same_list(pinned));
        let laid = same.cloned().unwrap_or_else(|| Self {
            pinned: pinned.clone(),
            deleted: Arc::default(),
            files: pinned.clone(),
            deleted_rows: snapshot.deleted_rows,
        });
        laid.next(deleted)
    }

    /// The same files without these rows.
    fn next(mut self, deleted: &Arc<DeletedByFile>) -> Self {
        if Arc::ptr_eq(&self.deleted, deleted) {
            return self;
        }
        let mut edits = Vec::new();
        for (place, hidden) in changed_files(&self.deleted, deleted) {
            let Some(file) = self.pinned.get(place) else { continue };
            let now = hidden.map_or_else(|| file.clone(), |hidden| without(file, hidden));
            let was = self.files.get(place).map_or(0, DataFile::deleted_row_count);
            self.deleted_rows = (self.deleted_rows + now.deleted_row_count()).saturating_sub(was);
            edits.push(ListEdit { place, removes: true, item: Some(now) });
        }
        self.files = self.files.edited(edits);
        self.deleted = Arc::clone(deleted);
        self
    }
}

/// What differs between the deleted rows of two states, by place.
fn changed_files<'a>(before: &'a DeletedByFile, now: &'a DeletedByFile) -> Vec<ChangedFile<'a>> {
    let (mut was, mut changed) = (before.iter().peekable(), Vec::new());
    for (place, hidden) in now {
        while let Some((gone, _)) = was.next_if(|(other, _)| *other < place) {
            changed.push((*gone, None));
        }
        let before = was.next_if(|(other, _)| *other == place);
        let is_same = before.is_some_and(|(_, was)| Arc::ptr_eq(&was.rows, &hidden.rows) || was.rows == hidden.rows);
        if !is_same {
            changed.push((*place, Some(hidden)));
        }
    }
    changed.extend(was.map(|(gone, _)| (*gone, None)));
    changed
}

/// A file without some of its rows, beside those that a deletion vector deletes.
fn without(file: &DataFile, hidden: &DeletedPositions) -> DataFile {
    let rows = file.deleted.as_ref().map(|deleted| Arc::new(deleted.or(&hidden.rows)));
    let deleted = Some(rows.unwrap_or_else(|| Arc::clone(&hidden.rows)));
    let row_groups = file.row_groups.clone().or_else(|| Some(hidden.row_groups.clone()));
    DataFile { deleted, row_groups, ..file.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: usize) -> DataFile {
        let file = DataFile::of_test(&format!("{number:05}.parquet"), 1, (number > 0).then(|| vec![10]));
        DataFile { deleted: (number == 5).then(|| Arc::new(RowSet::from_rows(vec![9], 10))), ..file }
    }

    fn deleted(of: &[(usize, u32)]) -> Arc<DeletedByFile> {
        let hidden = |(place, row): &(usize, u32)| {
            (*place, DeletedPositions { row_groups: vec![10], rows: Arc::new(RowSet::from_rows(vec![*row], 10)) })
        };
        Arc::new(of.iter().map(hidden).collect())
    }

    /// Laid over so many files, of which a deletion vector deletes one row.
    fn laid(pinned: &PartedList<DataFile>, deleted: &Arc<DeletedByFile>, before: Option<&LaidFiles>) -> LaidFiles {
        let start =
            LaidFiles { pinned: pinned.clone(), deleted: Arc::default(), files: pinned.clone(), deleted_rows: 1 };
        before.unwrap_or(&start).clone().next(deleted)
    }

    fn rows(files: &PartedList<DataFile>) -> Vec<(usize, Vec<u32>)> {
        let rows = files.iter().enumerate().filter_map(|(place, file)| Some((place, file.deleted.as_ref()?)));
        rows.map(|(place, deleted)| (place, deleted.iter().collect())).collect()
    }

    #[test]
    fn the_files_of_a_change_share_all_parts_but_those_of_its_own_files() {
        let pinned: PartedList<DataFile> = (0..5000).map(file).collect();
        let many: Vec<(usize, u32)> = (0..5000).step_by(7).map(|place| (place, 1)).collect();
        let before = laid(&pinned, &deleted(&many), None);
        assert_eq!(before.deleted_rows, 1 + many.len() as u64);
        let more = [many.as_slice(), &[(5, 9), (3001, 2)]].concat();
        let after = laid(&pinned, &deleted(&more), Some(&before));
        let copied = before.files.parts().zip(after.files.parts()).filter(|(was, now)| !Arc::ptr_eq(was, now));
        assert_eq!(copied.count(), 2);
        // The row 9 of the file 5 was deleted already.
        assert_eq!(after.deleted_rows, before.deleted_rows + 1);
        let anew = laid(&pinned, &deleted(&more), None);
        assert_eq!((rows(&after.files), after.deleted_rows), (rows(&anew.files), anew.deleted_rows));
        assert_eq!(after.files.get(0).unwrap().row_groups, Some(vec![10]));
    }

    #[test]
    fn rows_that_are_deleted_no_more_are_there_again() {
        let pinned: PartedList<DataFile> = (0..600).map(file).collect();
        let before = laid(&pinned, &deleted(&[(0, 3), (5, 4), (400, 1), (500, 1)]), None);
        let after = laid(&pinned, &deleted(&[(5, 6), (500, 1)]), Some(&before));
        assert_eq!(rows(&after.files), [(5, vec![6, 9]), (500, vec![1])]);
        assert_eq!((after.deleted_rows, after.files.get(0).unwrap().row_groups.clone()), (3, None));
        let none = laid(&pinned, &Arc::default(), Some(&after));
        assert_eq!((rows(&none.files), none.deleted_rows), (rows(&pinned), 1));
    }
}

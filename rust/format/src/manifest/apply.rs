//! What an edit makes of a state.

use std::sync::Arc;

use super::edit::{AddedFiles, AddedSchemas};
use super::file::path_hash;
use super::path_page::PathPage;
use super::stored_paths::PagePlace;
use super::{FileNumbers, FilePart, Manifest, ManifestChanges, ManifestEdit, ManifestFile, PART_FILES, PieceId};
use crate::error::{FormatError, Result};

impl Manifest {
    /// The state after the next edit. It takes time by what the edit changes, and needs no piece. An edit that does not fit the state is an
    /// error: of another store, of another number than the next, or with changes of what is not there or is there already.
    ///
    /// That no file with the path of an added one is there is checked as far as pieces were read.
    pub fn apply(&self, edit: &ManifestEdit) -> Result<Self> {
        self.clone().into_applied(edit)
    }

    /// The same of a state that nobody needs any more: what no other state shares is changed in place. So a replay of many edits copies what
    /// is there once at most.
    pub fn into_applied(mut self, edit: &ManifestEdit) -> Result<Self> {
        if edit.store_id != self.store_id {
            let (got, expected) = (PieceId(edit.store_id).to_string(), PieceId(self.store_id).to_string());
            return Err(FormatError::OtherStore { edit: edit.number, got, expected });
        }
        if Some(edit.number) != self.number.checked_add(1) {
            return Err(FormatError::OutOfTurn { got: edit.number, expected: self.number.saturating_add(1) });
        }
        (self.number, self.created_ms) = (edit.number, edit.created_ms);
        self.change(&edit.changes).map_err(|misfit| misfit.of_edit(edit.number))?;
        Ok(self)
    }

    fn change(&mut self, changes: &ManifestChanges) -> Result<(), Misfit> {
        self.remove_files(&changes.files_removed)?;
        self.change_schemas(&changes.schemas_removed, &changes.schemas_added)?;
        for (number, file) in &changes.files_changed {
            self.change_file(*number, file)?;
        }
        self.add_files(&changes.files_added)?;
        self.change_indexes(changes)?;
        if let Some(updates) = &changes.updates {
            self.updates = Some(Arc::new(updates.clone()));
        }
        Ok(())
    }

    fn remove_files(&mut self, numbers: &FileNumbers) -> Result<(), Misfit> {
        if numbers.end() > self.next_file {
            return Err(misfit("a file that is removed", numbers.end() - 1, format_args!("below {}", self.next_file)));
        }
        for number in numbers.iter() {
            let part = self.part_of_live("a file that is removed", number)?;
            part.remove(number % PART_FILES);
        }
        self.file_count -= numbers.len();
        Ok(())
    }

    fn change_schemas(&mut self, removed: &[u32], added: &AddedSchemas) -> Result<(), Misfit> {
        if removed.is_empty() && added.schemas.is_empty() {
            return Ok(());
        }
        let schemas = Arc::make_mut(&mut self.schemas);
        for number in removed {
            if schemas.remove(number).is_none() {
                return Err(misfit("a schema that is removed", number, "one that is there"));
            }
        }
        if !added.schemas.is_empty() && added.first != self.next_schema {
            return Err(misfit("the number of the first added schema", added.first, self.next_schema));
        }
        for (number, schema) in (self.next_schema..).zip(&added.schemas) {
            if let Some((have, _)) = schemas.iter().find(|(_, have)| ***have == **schema) {
                return Err(misfit("a schema that is added", format_args!("the schema {have}"), "a new one"));
            }
            schemas.insert(number, schema.as_slice().into());
        }
        self.next_schema = end_of("the numbers of schemas", self.next_schema, added.schemas.len())?;
        Ok(())
    }

    fn change_file(&mut self, number: u32, file: &ManifestFile) -> Result<(), Misfit> {
        self.check_schema(file)?;
        let part = self.part_of_live("a file that is changed", number)?;
        // Without the piece the path is unknown; whoever stores the part looks at it.
        if let Ok(Some(was)) = part.file(number % PART_FILES)
            && was.path != file.path
        {
            let (got, expected) =
                (format_args!("{:?}", file.path).to_string(), format_args!("{:?}", was.path).to_string());
            return Err(misfit("the path of a file that is changed", got, expected));
        }
        part.put(number % PART_FILES, Arc::new(file.clone()));
        Ok(())
    }

    fn add_files(&mut self, added: &AddedFiles) -> Result<(), Misfit> {
        let AddedFiles { first, files } = added;
        if !files.is_empty() && *first != self.next_file {
            return Err(misfit("the number of the first added file", first, self.next_file));
        }
        let end = end_of("the numbers of files", self.next_file, files.len())?;
        for file in files {
            self.check_schema(file)?;
            if let Ok(Some(number)) = self.number_of(&file.path) {
                let got = format_args!("{:?}, the path of the file {number}", file.path).to_string();
                return Err(misfit("the path of a file that is added", got, "one that no file has"));
            }
        }
        self.file_count += files.len() as u64;
        self.fit_pages();
        let bits = self.page_bits();
        self.parts.resize_with(end.div_ceil(PART_FILES) as usize, Arc::default);
        for (number, file) in (self.next_file..).zip(files) {
            if let Some(part) = self.parts.get_mut((number / PART_FILES) as usize) {
                Arc::make_mut(part).put(number % PART_FILES, Arc::new(file.clone()));
            }
            let hash = path_hash(&file.path);
            if let Some(page) = self.pages.get_mut(PagePlace::of(hash, bits).page as usize) {
                Arc::make_mut(page).add((hash, number));
            }
        }
        self.next_file = end;
        Ok(())
    }

    /// As many pages as the files ask for.
    fn fit_pages(&mut self) {
        let (from, to) = (self.page_bits(), PagePlace::bits_for(self.file_count));
        if from != to {
            self.pages = PathPage::resize(&self.pages, from, to);
        }
    }

    fn change_indexes(&mut self, changes: &ManifestChanges) -> Result<(), Misfit> {
        if !changes.segments_removed.is_empty() {
            let segments = Arc::make_mut(&mut self.segments);
            for id in &changes.segments_removed {
                if segments.remove(id).is_none() {
                    return Err(misfit("a segment that is removed", PieceId(*id), "one that is there"));
                }
            }
        }
        for id in &changes.indexes_removed {
            let Some(name) = self.indexes.values().find(|index| index.id == *id).map(|index| index.name.clone()) else {
                return Err(misfit("an index that is removed", PieceId(*id), "one that is there"));
            };
            if let Some(segment) = self.segments.values().find(|segment| segment.index_id == *id) {
                let got = format_args!("the index of the segment {}", PieceId(segment.id)).to_string();
                return Err(misfit("an index that is removed", got, "one without segments"));
            }
            Arc::make_mut(&mut self.indexes).remove(&name);
        }
        for index in &changes.indexes_added {
            if self.indexes.values().any(|have| have.id == index.id || have.name == index.name) {
                let got = format_args!("{} ({})", index.name, PieceId(index.id)).to_string();
                return Err(misfit("an index that is added", got, "another name and another id than those there are"));
            }
            Arc::make_mut(&mut self.indexes).insert(index.name.clone(), index.clone());
        }
        for segment in &changes.segments_added {
            if !self.indexes.values().any(|index| index.id == segment.index_id) {
                return Err(misfit("the index of a segment", PieceId(segment.index_id), "a declared index"));
            }
            if segment.files.end() > self.next_file {
                let (got, expected) = (segment.files.end() - 1, format_args!("below {}", self.next_file).to_string());
                return Err(misfit("a file of a segment", got, expected));
            }
            if Arc::make_mut(&mut self.segments).insert(segment.id, Arc::new(segment.clone())).is_some() {
                return Err(misfit("a segment that is added", PieceId(segment.id), "one that is not there"));
            }
        }
        Ok(())
    }

    fn check_schema(&self, file: &ManifestFile) -> Result<(), Misfit> {
        match self.schemas.get(&file.schema) {
            Some(_) => Ok(()),
            None => Err(misfit("the schema of a file", file.schema, "one that is there")),
        }
    }

    /// The part of a file that must be there.
    fn part_of_live(&mut self, what: &'static str, number: u32) -> Result<&mut FilePart, Misfit> {
        match self.parts.get_mut((number / PART_FILES) as usize) {
            Some(part) if part.live.contains(number % PART_FILES) => Ok(Arc::make_mut(part)),
            _ => Err(misfit(what, number, "one that is there")),
        }
    }
}

/// A change that does not fit the state.
struct Misfit {
    what: &'static str,
    got: String,
    expected: String,
}

impl Misfit {
    fn of_edit(self, edit: u64) -> FormatError {
        FormatError::DoesNotFit { edit, what: self.what, got: self.got, expected: self.expected }
    }
}

fn misfit(what: &'static str, got: impl ToString, expected: impl ToString) -> Misfit {
    Misfit { what, got: got.to_string(), expected: expected.to_string() }
}

/// The number behind so many from `first` on.
fn end_of(what: &'static str, first: u32, count: usize) -> Result<u32, Misfit> {
    let end = u32::try_from(count).ok().and_then(|count| first.checked_add(count));
    end.ok_or_else(|| misfit(what, format_args!("{count} more than {first}"), format_args!("at most {}", u32::MAX)))
}

//! Changing the store: what is wanted becomes an edit of the newest manifest, which is put under the next number.
//!
//! [`Edit`] says *what* is wanted and not what comes of it, so that rebasing after a lost race is deriving the changes again. The changes are
//! what is written, and the next manifest is always the one before with these changes applied: by the writer as by any reader.

mod adoption;
mod applied;
mod draft;
mod updates;

use std::collections::HashSet;
use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{
    FormatError, Manifest, ManifestChanges, ManifestDelta, ManifestEdit, ManifestFile, ManifestIndex, ManifestLog,
    ManifestMigration, ManifestPublication, ManifestRun, ManifestSegment, ManifestTransaction, ManifestUpdates,
    ReplacedFile, StoreFile, WriteCounters,
};

use crate::error::{Error, ErrorKind, Result};
use crate::storage::clock;
use crate::storage::ids::new_id;
use crate::storage::put_if_absent::PutOutcome;
use crate::store::Store;
use crate::store::layout::edit_path;
use crate::store::link_pair::{back_name, is_back_of};
use crate::store::pieces::ManifestNeeds;
pub(crate) use adoption::Adoption;
use applied::{has_all_as_built, has_segments, is_done};
use draft::Draft;
pub(crate) use updates::{begin_migration, bound_by_migration};

/// Races that are lost in a row before the commit gives up.
const MAX_ATTEMPTS: u32 = 20;
/// Segments whose presence is checked at a time.
const CONCURRENT_LOOKS: usize = 32;

/// A change of the store.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Declares an index.
    CreateIndex { index: ManifestIndex, if_not_exists: bool },
    /// Drops an index with its segments.
    DropIndex { name: String, if_exists: bool },
    /// Adds segments that were built.
    AddSegments(BuiltSegments),
    /// Puts merged segments in the place of those that they were merged of. Each replacement is made or left out by itself.
    ReplaceSegments(Vec<Replacement>),
    /// Declares the key of the table.
    DeclareKey { updates: Box<ManifestUpdates> },
    /// Adds the run that a log became, and begins a new log.
    AddRun {
        of_log: [u8; 16],
        run: Box<ManifestRun>,
        log: ManifestLog,
        written: WriteCounters,
        transactions: Vec<ManifestTransaction>,
        /// Of the migration that was under way when the run was written.
        compacted: Option<CompactedRows>,
    },
    /// Says which slices of runs a migration compacts.
    BeginMigration { migration: ManifestMigration },
    /// Puts new data files of a folder in the place of originals and of files of earlier migrations, and forgets the slices.
    MigrateFolder { number: u64, originals: Vec<ReplacedFile>, own: Vec<String>, data: Vec<StoreFile> },
    /// Forgets the slices of a migration that is done: a version of the Delta log has it.
    EndMigration { number: u64, version: u64 },
    /// Forgets a migration that nobody goes on with and that no log has: its slices stay buffered.
    AbandonMigration { number: u64 },
    /// Goes on with a Delta table as it is, beyond so many migrations. With a log, what was buffered is forgotten.
    TakeOver { migrations: u64, log: Option<ManifestLog>, delta: Option<ManifestDelta> },
    /// Says which files are going to be published, if they are all that migrations wrote.
    BeginPublication { publication: ManifestPublication },
    /// Lets files of the folder count again, as those that were to be published are there.
    EndPublication,
    /// Puts a run in the place of neighbours that it was merged of, if these are as they were and no migration names them.
    MergeRuns { parts: Vec<ManifestRun>, run: Box<ManifestRun>, written: WriteCounters },
}

/// Segments that were built, with the data files that they cover.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuiltSegments {
    /// Distinct schemas; `ManifestFile::schema` is the place of one in here.
    pub schemas: Vec<Vec<u8>>,
    pub files: Vec<ManifestFile>,
    /// The numbers in `ManifestSegment::files` are places in `files`.
    pub segments: Vec<ManifestSegment>,
    /// Data files that were touched and not changed.
    pub adopted: Vec<Adoption>,
    /// Segments that are missing or damaged: no manifest needs to name them any longer, unless they are among those that were built.
    pub lost: Vec<[u8; 16]>,
}

/// Rows that a migration compacts. What became of them says whether it ended or was abandoned.
#[derive(Clone, Debug)]
pub(crate) struct CompactedRows {
    /// The id of their run.
    pub run: [u8; 16],
    pub rows: Range<u32>,
}

/// A segment that takes the place of others, if all of these are still there and their files are the same. They are not deleted: queries may
/// read them.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    /// The ids of the others.
    pub replaced: Vec<[u8; 16]>,
    /// The segment, with their files.
    pub built: BuiltSegments,
}

impl Edit {
    /// The segments that were built for the edit.
    fn built(&self) -> Vec<&ManifestSegment> {
        match self {
            Self::AddSegments(built) => built.segments.iter().collect(),
            Self::ReplaceSegments(replacements) => {
                replacements.iter().flat_map(|replacement| &replacement.built.segments).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Paths of data files that the edit asks a manifest for.
    fn paths(&self) -> Vec<&str> {
        match self {
            Self::AddSegments(built) => built.paths().collect(),
            Self::ReplaceSegments(replacements) => {
                replacements.iter().flat_map(|replacement| replacement.built.paths()).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl BuiltSegments {
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.iter().chain(self.adopted.iter().map(|adoption| &adoption.was)).map(|file| file.path.as_str())
    }
}

/// What a commit did.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Whether the edit changed anything, now or when it was committed before.
    pub changed: bool,
    /// Paths of segments that no manifest names any more, nor will.
    pub unused: Vec<String>,
    /// Ids of merged segments that took no place: others changed what they were merged of.
    pub left_out: Vec<[u8; 16]>,
}

/// Commits an edit; a lost race is tried again on the newer manifest.
///
/// No commit names a segment that is not there. Nobody but a vacuum deletes the segments that the edit built, unless their index is gone:
/// somebody else may be about to name them, as the same files make the same segments.
#[tracing::instrument(level = "debug", skip_all, fields(store = store.text()))]
pub(crate) async fn commit(store: &Store, edit: &Edit) -> Result<Committed> {
    look_for(store, &edit.built()).await?;
    for attempt in 0..MAX_ATTEMPTS {
        let newest = store.newest_with(&ManifestNeeds::Paths(edit.paths())).await?;
        let base = newest.manifest.unwrap_or_else(|| Arc::new(Manifest::new(new_id().into_bytes())));
        let (base, Applied { changes, committed }) = apply_loaded(store, base, edit).await?;
        let Some(changes) = changes else {
            discard(store, &committed.unused).await;
            return Ok(committed);
        };
        let written = edit_of(&base, newest.checkpoint, changes);
        let next = base.apply(&written).map_err(beyond_the_format)?;
        match store.put_edit(&written).await? {
            PutOutcome::Made if store.is_overtaken(base.number(), written.number).await? => {
                // Nobody will read it: readers begin behind it.
                store.discard(&edit_path(written.number)).await;
                // The vacuum that took the edits may have taken what was built.
                look_for(store, &edit.built()).await?;
            }
            PutOutcome::Made => {
                store.metrics.commits.add(1);
                discard(store, &committed.unused).await;
                store.checkpoint_if_due(&next, newest.checkpoint).await;
                return Ok(committed);
            }
            PutOutcome::Taken(_) => store.metrics.commit_retries.add(1),
            PutOutcome::Refused(cause) | PutOutcome::Missing(cause) => return Err(store.unwritable(cause)),
            PutOutcome::Unknown(cause) => return Err(store.unsure(cause)),
        }
        tracing::debug!(attempt, number = written.number, "another writer committed first; trying again");
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(attempt) * 5)).await;
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!("others committed to {} {MAX_ATTEMPTS} times in a row; nothing is lost, try again", store.text()),
    ))
}

/// What an edit changes of a manifest that knows the paths of the edit. What leaves takes files and schemas along that nothing else has: only
/// then all files are read.
async fn apply_loaded(store: &Store, base: Arc<Manifest>, edit: &Edit) -> Result<(Arc<Manifest>, Applied)> {
    match apply(&base, edit) {
        Err(error) if is_unread(&error) => {
            let base = store.loaded(&base, &ManifestNeeds::Files(edit.paths())).await?;
            let applied = apply(&base, edit)?;
            Ok((base, applied))
        }
        applied => applied.map(|applied| (base, applied)),
    }
}

/// Whether a manifest was asked for what is in a piece that was not read.
fn is_unread(error: &Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<FormatError>());
    matches!(cause, Some(FormatError::NotLoaded { .. }))
}

/// Fails if a segment is not there: a vacuum may have removed it, or whoever wrote it had another disk under the same path. Those of an index
/// that was dropped are not missed.
async fn look_for(store: &Store, segments: &[&ManifestSegment]) -> Result<()> {
    let segments: Vec<ManifestSegment> = segments.iter().copied().cloned().collect();
    let looks = stream::iter(segments).map(|segment| async move {
        match store.length_of(&segment.path).await? {
            Some(length) if length == segment.length => Ok(None),
            found => Ok::<_, Error>(Some((segment, found))),
        }
    });
    let missing = looks.buffer_unordered(CONCURRENT_LOOKS).try_filter_map(|missing| async move { Ok(missing) });
    let mut missing: Vec<(ManifestSegment, Option<u64>)> = missing.try_collect().await?;
    if !missing.is_empty() {
        let declared = store.declared_indexes().await?;
        missing.retain(|(segment, _)| declared.contains(&segment.index_id));
    }
    let Some((segment, found)) = missing.first() else { return Ok(()) };
    Err(Error::not_found(format!(
        "{} bytes were written to {} of the store {}, where {}, so that nothing was committed. If the work took longer than a vacuum's \
         age, a vacuum has removed them: try again. Otherwise a process that builds sees another store: put the table, or its indexes with \
         the option `store`, on storage that all of them reach",
        segment.length,
        segment.path,
        store.text(),
        found.map_or_else(|| "nothing is".to_owned(), |length| format!("{length} are"))
    )))
}

async fn discard(store: &Store, paths: &[String]) {
    for path in paths {
        store.discard(path).await;
    }
}

/// What is put under the next number.
fn edit_of(base: &Manifest, checkpoint: u64, changes: ManifestChanges) -> ManifestEdit {
    ManifestEdit {
        store_id: base.store_id(),
        number: base.number() + 1,
        created_ms: clock::utc().timestamp_millis(),
        checkpoint,
        changes,
    }
}

fn beyond_the_format(error: FormatError) -> Error {
    Error::unsupported("the table is beyond the limits of the manifest's format").with_source(error)
}

/// What becomes of an edit.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// What changes; none if nothing does.
    pub changes: Option<ManifestChanges>,
    pub committed: Committed,
}

impl Applied {
    fn changed(changes: ManifestChanges) -> Self {
        Self { changes: Some(changes), committed: Committed { changed: true, ..Committed::default() } }
    }
}

/// What an edit changes of a manifest.
pub(crate) fn apply(base: &Manifest, edit: &Edit) -> Result<Applied> {
    if is_done(base, edit)? {
        return Ok(Applied { changes: None, committed: Committed { changed: true, ..Committed::default() } });
    }
    match edit {
        Edit::CreateIndex { index, if_not_exists } => create_index(base, index, *if_not_exists),
        Edit::DropIndex { name, if_exists } => drop_index(base, name, *if_exists),
        Edit::AddSegments(built) => add_segments(base, built),
        Edit::ReplaceSegments(replacements) => replace_segments(base, replacements),
        Edit::DeclareKey { updates } => Ok(match base.updates() {
            Some(_) => Applied::default(),
            None => of_updates(updates.as_ref().clone()),
        }),
        edit => {
            let Some(mut updates) = base.updates().map(|updates| updates.as_ref().clone()) else {
                return Ok(Applied::default());
            };
            let is_changed = updates::change(&mut updates, edit, base.number());
            Ok(if is_changed { of_updates(updates) } else { Applied::default() })
        }
    }
}

fn of_updates(updates: ManifestUpdates) -> Applied {
    Applied::changed(ManifestChanges { updates: Some(updates), ..ManifestChanges::default() })
}

fn create_index(base: &Manifest, index: &ManifestIndex, if_not_exists: bool) -> Result<Applied> {
    if base.index(&index.name).is_some() {
        if if_not_exists {
            return Ok(Applied::default());
        }
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("the index {} exists already; drop it first or choose another name", index.name),
        ));
    }
    Ok(Applied::changed(ManifestChanges { indexes_added: vec![index.clone()], ..ManifestChanges::default() }))
}

fn drop_index(base: &Manifest, name: &str, if_exists: bool) -> Result<Applied> {
    let Some(index) = base.index(name) else {
        if if_exists {
            return Ok(Applied::default());
        }
        return Err(Error::not_found(format!(
            "there is no index {name}; `lakemark index list` shows those that exist"
        )));
    };
    let mut draft = Draft::new(base);
    // Links go both ways, or none.
    let back = base.index(&back_name(name)).filter(|other| is_back_of(other, index));
    let mut dropped: Vec<[u8; 16]> = [Some(index), back].into_iter().flatten().map(|index| index.id).collect();
    dropped.sort_unstable();
    let segments: Vec<&Arc<ManifestSegment>> =
        base.segments().filter(|segment| dropped.contains(&segment.index_id)).collect();
    draft.remove_segments(segments.iter().map(|segment| segment.id));
    let changes = ManifestChanges { indexes_removed: dropped, ..draft.finish()? };
    let unused = segments.into_iter().map(|segment| segment.path.clone()).collect();
    Ok(Applied { changes: Some(changes), committed: Committed { changed: true, unused, ..Committed::default() } })
}

/// Adds segments. One that is lost and built again under its name stays.
fn add_segments(base: &Manifest, built: &BuiltSegments) -> Result<Applied> {
    let mut draft = Draft::new(base);
    let lost = leaving(base, &built.lost, built);
    draft.remove_segments(lost.iter().copied());
    // Files are adopted first, so that a file which is adopted and indexed anew keeps the segments that it had.
    let is_adopted = draft.adopt(&built.adopted)?;
    let is_added = draft.add(built)?;
    let changed = is_adopted || is_added || !lost.is_empty();
    // A build may be writing a lost one again.
    let kept = built.lost.iter().copied().collect();
    finish(base, draft, changed, of_dropped_indexes(base, &built.segments), &kept)
}

/// Makes the replacements whose segments and files are still what they were, and leaves the others out.
fn replace_segments(base: &Manifest, replacements: &[Replacement]) -> Result<Applied> {
    let mut draft = Draft::new(base);
    let (mut replaced, mut left_out) = (HashSet::new(), Vec::new());
    let (mut is_replaced, mut was_replaced) = (false, false);
    for Replacement { replaced: ids, built } in replacements {
        if has_segments(base, ids, built)? {
            was_replaced = true;
        } else if is_current(base, ids, built)?
            && !ids.iter().any(|id| replaced.contains(id))
            && draft_one(base, &mut draft, ids, built)?
        {
            is_replaced = true;
            replaced.extend(ids.iter().copied());
        } else {
            left_out.extend(built.segments.iter().map(|segment| segment.id));
        }
    }
    let built = replacements.iter().flat_map(|replacement| &replacement.built.segments);
    let mut applied = finish(base, draft, is_replaced, of_dropped_indexes(base, built), &replaced)?;
    applied.committed.changed |= was_replaced;
    applied.committed.left_out = left_out;
    Ok(applied)
}

/// Adds a replacement to a draft, unless others cover its files; says whether it did. A merged segment may be there already under its name:
/// then the others only leave.
fn draft_one(base: &Manifest, draft: &mut Draft<'_>, replaced: &[[u8; 16]], built: &BuiltSegments) -> Result<bool> {
    let leaving = leaving(base, replaced, built);
    draft.remove_segments(leaving.iter().copied());
    let is_there = has_all_as_built(base, built)?;
    if draft.add(built)? || is_there {
        return Ok(true);
    }
    draft.keep_segments(&leaving);
    Ok(false)
}

/// Whether the segments that are to be replaced are there, and their files are those that the new one was made of.
fn is_current(base: &Manifest, replaced: &[[u8; 16]], built: &BuiltSegments) -> Result<bool> {
    if !replaced.iter().all(|id| base.segment(id).is_some()) {
        return Ok(false);
    }
    for file in &built.files {
        let have = base.number_of(&file.path)?.and_then(|number| base.file(number).transpose()).transpose()?;
        // The number of a schema is a matter of each manifest.
        if !have.is_some_and(|have| have.is_same_version(file)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Those of these segments that leave: they are there, and are not built again under their names.
fn leaving(base: &Manifest, ids: &[[u8; 16]], built: &BuiltSegments) -> Vec<[u8; 16]> {
    let again: HashSet<[u8; 16]> = built.segments.iter().map(|segment| segment.id).collect();
    ids.iter().copied().filter(|id| base.segment(id).is_some() && !again.contains(id)).collect()
}

/// Paths of segments that were built for indexes which are gone: an index that is declared anew is another one.
fn of_dropped_indexes<'a>(base: &Manifest, built: impl IntoIterator<Item = &'a ManifestSegment>) -> Vec<String> {
    let is_declared = |segment: &&ManifestSegment| base.indexes().any(|index| index.id == segment.index_id);
    built.into_iter().filter(|segment| !is_declared(segment)).map(|segment| segment.path.clone()).collect()
}

/// The changes of a draft, with the paths of what no manifest will name. Those of `kept` stay on the disk.
fn finish(
    base: &Manifest,
    draft: Draft<'_>,
    changed: bool,
    mut unused: Vec<String>,
    kept: &HashSet<[u8; 16]>,
) -> Result<Applied> {
    if !changed {
        // The base stays the newest, with all that it names.
        return Ok(Applied { changes: None, committed: Committed { changed, unused, ..Committed::default() } });
    }
    let changes = draft.finish()?;
    // One that was built again with another length leaves and comes.
    let again: HashSet<[u8; 16]> = changes.segments_added.iter().map(|segment| segment.id).collect();
    let left = changes.segments_removed.iter().filter(|id| !kept.contains(*id) && !again.contains(*id));
    unused.extend(left.filter_map(|id| base.segment(id)).map(|segment| segment.path.clone()));
    Ok(Applied { changes: Some(changes), committed: Committed { changed, unused, ..Committed::default() } })
}

#[cfg(test)]
pub(crate) mod tests;

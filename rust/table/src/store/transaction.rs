//! Changing the store: what is wanted becomes an edit of the newest manifest, which is put under the next number.
//!
//! [`Edit`] says *what* is wanted and not what comes of it, so that rebasing after a lost race is deriving the changes again. The changes are
//! what is written, and the next manifest is always the one before with these changes applied: by the writer as by any reader.

mod adoption;
mod applied;
mod draft;
mod updates;

use std::collections::HashSet;
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
pub(crate) use adoption::Adoption;
use applied::{has_segments, is_done};
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
    /// Segments that are missing or damaged: no manifest needs to name them any longer.
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
}

/// What a commit did.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Whether the edit changed anything, now or when it was committed before.
    pub changed: bool,
    /// Paths of segments that no manifest names (any more).
    pub unused: Vec<String>,
}

/// Commits an edit; a lost race is tried again on the newer manifest.
///
/// No commit names a segment that is not there. Of the segments that the edit built, those are deleted that surely no manifest names, and
/// never will. After an error nobody else may delete them. Whether the commit was made may be unknown, and a vacuum removes what was not.
#[tracing::instrument(level = "debug", skip_all, fields(store = store.text()))]
pub(crate) async fn commit(store: &Store, edit: &Edit) -> Result<Committed> {
    if let Err(error) = look_for(store, &edit.built()).await {
        // Of a storage that does not answer nobody knows what is there.
        if error.kind() == ErrorKind::NotFound {
            abandon(store, edit.built()).await;
        }
        return Err(error);
    }
    for attempt in 0..MAX_ATTEMPTS {
        let newest = store.newest().await?;
        let base = newest.manifest.unwrap_or_else(|| Arc::new(Manifest::new(new_id().into_bytes())));
        let Applied { changes, committed } = apply(&base, edit)?;
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
                if let Err(error) = look_for(store, &edit.built()).await {
                    abandon(store, edit.built()).await;
                    return Err(error);
                }
            }
            PutOutcome::Made => {
                store.metrics.commits.add(1);
                discard(store, &committed.unused).await;
                store.checkpoint_if_due(&next, newest.checkpoint).await;
                return Ok(committed);
            }
            PutOutcome::Taken(_) => store.metrics.commit_retries.add(1),
            PutOutcome::Refused(cause) => {
                abandon(store, edit.built()).await;
                return Err(store.unwritable(cause));
            }
            PutOutcome::Missing(cause) => return Err(store.unwritable(cause)),
            PutOutcome::Unknown(cause) => return Err(store.unsure(cause)),
        }
        tracing::debug!(attempt, number = written.number, "another writer committed first; trying again");
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(attempt) * 5)).await;
    }
    abandon(store, edit.built()).await;
    Err(Error::new(
        ErrorKind::Conflict,
        format!("others committed to {} {MAX_ATTEMPTS} times in a row; nothing is lost, try again", store.text()),
    ))
}

/// Fails if a segment is not there: a vacuum may have removed it, or whoever wrote it had another disk under the same path.
async fn look_for(store: &Store, segments: &[&ManifestSegment]) -> Result<()> {
    let segments: Vec<ManifestSegment> = segments.iter().copied().cloned().collect();
    let looks = stream::iter(segments).map(|segment| async move {
        match store.length_of(&segment.path).await? {
            Some(length) if length == segment.length => Ok(()),
            found => Err(Error::not_found(format!(
                "{} bytes were written to {} of the store {}, where {}, so that nothing was committed. If the work took longer than a vacuum's \
                 age, a vacuum has removed them: try again. Otherwise a process that builds sees another store: put the table, or its indexes with \
                 the option `store`, on storage that all of them reach",
                segment.length,
                segment.path,
                store.text(),
                found.map_or_else(|| "nothing is".to_owned(), |length| format!("{length} are"))
            ))),
        }
    });
    looks.buffer_unordered(CONCURRENT_LOOKS).try_collect().await
}

async fn discard(store: &Store, paths: &[String]) {
    for path in paths {
        store.discard(path).await;
    }
}

/// Removes segments that no commit under way has, unless the newest manifest names them, whoever committed them. Failing is harmless: the
/// segments are only waste.
pub(crate) async fn abandon(store: &Store, segments: Vec<&ManifestSegment>) {
    // If the newest manifest cannot be read, nothing is deleted.
    let Ok(used) = store.named_segments().await else { return };
    for segment in segments.into_iter().filter(|segment| !used.contains(&segment.id)) {
        // The path is made from the id: the path that the segment has may come from another process.
        store.discard(&Store::segment_path(segment.id)).await;
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
        Self { changes: Some(changes), committed: Committed { changed: true, unused: Vec::new() } }
    }
}

/// What an edit changes of a manifest.
pub(crate) fn apply(base: &Manifest, edit: &Edit) -> Result<Applied> {
    if is_done(base, edit) {
        return Ok(Applied { changes: None, committed: Committed { changed: true, unused: Vec::new() } });
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
    let segments: Vec<&Arc<ManifestSegment>> = base.segments().filter(|segment| segment.index_id == index.id).collect();
    draft.remove_segments(segments.iter().map(|segment| segment.id));
    let changes = ManifestChanges { indexes_removed: vec![index.id], ..draft.finish()? };
    let unused = segments.into_iter().map(|segment| segment.path.clone()).collect();
    Ok(Applied { changes: Some(changes), committed: Committed { changed: true, unused } })
}

fn add_segments(base: &Manifest, built: &BuiltSegments) -> Result<Applied> {
    let mut draft = Draft::new(base);
    let lost: Vec<&Arc<ManifestSegment>> = built.lost.iter().filter_map(|id| base.segment(id)).collect();
    draft.remove_segments(lost.iter().map(|segment| segment.id));
    // Files are adopted first, so that a file which is adopted and indexed anew keeps the segments that it had.
    let is_adopted = draft.adopt(&built.adopted)?;
    let is_added = draft.add(built)?;
    let changed = is_adopted || is_added || !lost.is_empty();
    finish(base, draft, changed, &built.segments.iter().collect::<Vec<_>>(), &HashSet::new())
}

/// Makes the replacements whose segments and files are still what they were. Of the others, what was built is unused.
fn replace_segments(base: &Manifest, replacements: &[Replacement]) -> Result<Applied> {
    let mut draft = Draft::new(base);
    let mut replaced = HashSet::new();
    let (mut is_replaced, mut was_replaced) = (false, false);
    for replacement in replacements {
        if has_segments(base, &replacement.built) {
            was_replaced = true;
        } else if is_current(base, replacement)? && !replacement.replaced.iter().any(|id| replaced.contains(id)) {
            draft.remove_segments(replacement.replaced.iter().copied());
            if draft.add(&replacement.built)? {
                is_replaced = true;
                replaced.extend(replacement.replaced.iter().copied());
            } else {
                draft.keep_segments(&replacement.replaced);
            }
        }
    }
    let built: Vec<&ManifestSegment> =
        replacements.iter().flat_map(|replacement| &replacement.built.segments).collect();
    let mut applied = finish(base, draft, is_replaced, &built, &replaced)?;
    applied.committed.changed |= was_replaced;
    Ok(applied)
}

/// Whether the segments that are to be replaced are there, and their files are those that the new one was made of.
fn is_current(base: &Manifest, replacement: &Replacement) -> Result<bool> {
    if !replacement.replaced.iter().all(|id| base.segment(id).is_some()) {
        return Ok(false);
    }
    for file in &replacement.built.files {
        let have = base.number_of(&file.path)?.and_then(|number| base.file(number).transpose()).transpose()?;
        // The number of a schema is a matter of each manifest.
        if !have.is_some_and(|have| have.is_same_version(file)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The changes of a draft, with the paths of what no manifest names. Those of `replaced` stay on the disk.
fn finish(
    base: &Manifest,
    draft: Draft<'_>,
    changed: bool,
    built: &[&ManifestSegment],
    replaced: &HashSet<[u8; 16]>,
) -> Result<Applied> {
    let is_kept = |segment: &ManifestSegment| base.segment(&segment.id).is_some() || draft.has_added(&segment.id);
    let unused = built.iter().filter(|segment| !is_kept(segment)).map(|segment| segment.path.clone());
    let mut unused: Vec<String> = unused.collect();
    if !changed {
        // The base stays the newest, with all that it names.
        return Ok(Applied { changes: None, committed: Committed { changed, unused } });
    }
    let changes = draft.finish()?;
    let left = changes.segments_removed.iter().filter(|id| !replaced.contains(*id));
    unused.extend(left.filter_map(|id| base.segment(id)).map(|segment| segment.path.clone()));
    Ok(Applied { changes: Some(changes), committed: Committed { changed, unused } })
}

#[cfg(test)]
pub(crate) mod tests;

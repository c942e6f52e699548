//! Changing the store: an edit is applied to the newest manifest and committed as the next one.
//!
//! An edit says *what* changes and not what the result is, so that rebasing after a lost race is applying it again.

mod adoption;
mod applied;
mod ordinals;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_format::{
    Manifest, ManifestDelta, ManifestFile, ManifestIndex, ManifestLog, ManifestMigration, ManifestPublication,
    ManifestRun, ManifestSegment, ManifestTransaction, ManifestUpdates, ReplacedFile, RunRange, StoreFile,
    WriteCounters,
};

use crate::error::{Error, ErrorKind, Result};
use crate::storage::clock;
use crate::storage::ids::new_id;
use crate::storage::put_if_absent::PutOutcome;
use crate::store::Store;
pub(crate) use adoption::Adoption;
use applied::is_done;
use ordinals::{collect_garbage, merge_files};

/// Races that are lost in a row before the commit gives up.
const MAX_ATTEMPTS: u32 = 20;
/// Applications whose last call is known.
const REMEMBERED_APPLICATIONS: usize = 1000;
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
    /// Puts a segment in the place of segments with these ids, if all of these are still there and their files are the same. They are not
    /// deleted: queries may read them.
    ReplaceSegments { replaced: Vec<[u8; 16]>, built: BuiltSegments },
    /// Declares the key of the table.
    DeclareKey { updates: Box<ManifestUpdates> },
    /// Adds the run that a log became, and begins a new log.
    AddRun {
        of_log: [u8; 16],
        run: Box<ManifestRun>,
        log: ManifestLog,
        written: WriteCounters,
        transactions: Vec<ManifestTransaction>,
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
    /// Puts a run in the place of neighbours that it was merged of.
    MergeRuns { replaced: Vec<[u8; 16]>, run: Box<ManifestRun>, written: WriteCounters },
}

/// Segments that were built, with the data files that they cover.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuiltSegments {
    /// Distinct schemas; `ManifestFile::schema` counts in here.
    pub schemas: Vec<Vec<u8>>,
    pub files: Vec<ManifestFile>,
    /// `ManifestSegment::files` counts in `files`.
    pub segments: Vec<ManifestSegment>,
    /// Data files that were touched and not changed.
    pub adopted: Vec<Adoption>,
    /// Segments that are missing or damaged: no manifest needs to name them any longer.
    pub lost: Vec<[u8; 16]>,
}

impl Edit {
    /// The segments that were built for the edit.
    fn built(&self) -> &[ManifestSegment] {
        match self {
            Self::AddSegments(built) | Self::ReplaceSegments { built, .. } => &built.segments,
            _ => &[],
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
    if let Err(error) = look_for(store, edit.built()).await {
        abandon(store, edit.built().iter().collect()).await;
        return Err(error);
    }
    for attempt in 0..MAX_ATTEMPTS {
        let newest = store.newest().await?;
        let base = match newest.manifest? {
            Some(manifest) => manifest,
            None => Arc::new(empty_manifest()),
        };
        let Applied { next, committed } = apply(&base, edit)?;
        let Some(mut next) = next else {
            discard(store, &committed.unused).await;
            return Ok(committed);
        };
        next.number = newest.number + 1;
        next.created_ms = clock::utc().timestamp_millis();
        match store.put_manifest(&next).await? {
            PutOutcome::Made => {
                store.metrics.commits.add(1);
                discard(store, &committed.unused).await;
                return Ok(committed);
            }
            PutOutcome::Taken(_) => store.metrics.commit_retries.add(1),
            PutOutcome::Refused(cause) => {
                abandon(store, edit.built().iter().collect()).await;
                return Err(store.unwritable(cause));
            }
            PutOutcome::Missing(cause) => return Err(store.unwritable(cause)),
            PutOutcome::Unknown(cause) => return Err(store.unsure(cause)),
        }
        tracing::debug!(attempt, number = next.number, "another writer committed first; trying again");
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(attempt) * 5)).await;
    }
    abandon(store, edit.built().iter().collect()).await;
    Err(Error::new(
        ErrorKind::Conflict,
        format!("others committed to {} {MAX_ATTEMPTS} times in a row; nothing is lost, try again", store.text()),
    ))
}

/// Fails if a segment is not there: a vacuum may have removed it, or whoever wrote it had another disk under the same path.
async fn look_for(store: &Store, segments: &[ManifestSegment]) -> Result<()> {
    let looks = stream::iter(segments.to_vec()).map(|segment| async move {
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

fn empty_manifest() -> Manifest {
    Manifest {
        store_id: new_id().into_bytes(),
        number: 0,
        created_ms: 0,
        schemas: Vec::new(),
        files: Vec::new(),
        indexes: Vec::new(),
        segments: Vec::new(),
        updates: None,
    }
}

/// What an edit makes of a manifest.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The manifest after the edit; none if nothing changes.
    pub next: Option<Manifest>,
    pub committed: Committed,
}

/// Applies an edit to a manifest.
pub(crate) fn apply(base: &Manifest, edit: &Edit) -> Result<Applied> {
    if is_done(base, edit) {
        return Ok(Applied { next: None, committed: Committed { changed: true, unused: Vec::new() } });
    }
    match edit {
        Edit::CreateIndex { index, if_not_exists } => create_index(base, index, *if_not_exists),
        Edit::DropIndex { name, if_exists } => drop_index(base, name, *if_exists),
        Edit::AddSegments(built) => Ok(add_segments(base, built)),
        Edit::ReplaceSegments { replaced, built } => Ok(replace_segments(base, replaced, built)),
        Edit::DeclareKey { updates } => match &base.updates {
            Some(_) => Ok(Applied::default()),
            None => Ok(changed(Manifest { updates: Some(updates.as_ref().clone()), ..base.clone() })),
        },
        of_updates => {
            let mut next = base.clone();
            let is_changed = next.updates.as_mut().is_some_and(|updates| change(updates, of_updates, base.number));
            Ok(if is_changed { changed(next) } else { Applied::default() })
        }
    }
}

/// Applies an edit of updates to those of the manifest `number`; says whether it changed them.
fn change(updates: &mut ManifestUpdates, edit: &Edit, number: u64) -> bool {
    let is_current = |updates: &ManifestUpdates, number: u64| {
        updates.migration.as_ref().is_some_and(|migration| migration.number == number)
    };
    match edit {
        Edit::CreateIndex { .. }
        | Edit::DropIndex { .. }
        | Edit::AddSegments(_)
        | Edit::ReplaceSegments { .. }
        | Edit::DeclareKey { .. } => return false,
        Edit::AddRun { of_log, run, log, written, transactions } => {
            // The lock of writers sees to it that the log is still the one that was flushed.
            if updates.log.id != *of_log {
                return false;
            }
            updates.runs.push(run.as_ref().clone());
            updates.log = log.clone();
            add_transactions(&mut updates.transactions, transactions);
            add_counters(&mut updates.written, written);
        }
        // Only one migration is begun at a time, and its number is the next one.
        Edit::BeginMigration { migration } if updates.migrations + 1 != migration.number => return false,
        Edit::BeginMigration { migration } => begin_migration(updates, migration.clone()),
        Edit::MigrateFolder { number, .. } | Edit::EndMigration { number, .. } | Edit::AbandonMigration { number }
            if !is_current(updates, *number) =>
        {
            return false;
        }
        Edit::MigrateFolder { originals, own, data, .. } => {
            updates.replaced.extend(originals.iter().cloned());
            updates.data.retain(|file| !own.contains(&file.path));
            updates.data.extend(data.iter().cloned());
            end_migration(updates);
        }
        Edit::EndMigration { number, version } => {
            end_migration(updates);
            if let Some(delta) = &mut updates.delta {
                (delta.last_migration, delta.version) = (*number, *version);
            }
        }
        Edit::AbandonMigration { .. } => forget_migration(updates),
        Edit::TakeOver { migrations, log, delta } => take_over(updates, *migrations, log.as_ref(), delta.as_ref()),
        Edit::BeginPublication { publication } => return begin_publication(updates, publication),
        Edit::EndPublication => return end_publication(updates, number + 1),
        Edit::MergeRuns { replaced, run, written } => return merge_runs(updates, replaced, run, written),
    }
    true
}

fn create_index(base: &Manifest, index: &ManifestIndex, if_not_exists: bool) -> Result<Applied> {
    if base.indexes.iter().any(|have| have.name == index.name) {
        if if_not_exists {
            return Ok(Applied::default());
        }
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            format!("the index {} exists already; drop it first or choose another name", index.name),
        ));
    }
    let mut next = base.clone();
    next.indexes.push(index.clone());
    Ok(changed(next))
}

fn take_over(updates: &mut ManifestUpdates, migrations: u64, log: Option<&ManifestLog>, delta: Option<&ManifestDelta>) {
    updates.migrations = updates.migrations.max(migrations);
    forget_migration(updates);
    updates.delta = delta.cloned();
    if let Some(log) = log {
        updates.runs.clear();
        updates.log = log.clone();
    }
}

fn begin_publication(updates: &mut ManifestUpdates, publication: &ManifestPublication) -> bool {
    let is_all = updates.data.iter().map(|file| &file.path).eq(publication.files.iter().map(|file| &file.stored));
    let is_next = is_all && updates.publications.last().is_none_or(|last| last.manifest != 0);
    if is_next {
        updates.publications.push(publication.clone());
    }
    is_next
}

/// Ends the publication that was begun, by the manifest `manifest`.
fn end_publication(updates: &mut ManifestUpdates, manifest: u64) -> bool {
    let Some(begun) = updates.publications.last_mut().filter(|last| last.manifest == 0) else { return false };
    begun.manifest = manifest;
    updates.data.clear();
    updates.replaced.clear();
    true
}

fn merge_runs(
    updates: &mut ManifestUpdates,
    replaced: &[[u8; 16]],
    run: &ManifestRun,
    written: &WriteCounters,
) -> bool {
    let first = updates.runs.iter().position(|have| replaced.first() == Some(&have.id));
    let place = first.filter(|first| {
        let there = updates.runs.iter().skip(*first).map(|have| have.id).take(replaced.len());
        there.eq(replaced.iter().copied())
    });
    if let Some(place) = place {
        updates.runs.splice(place..place + replaced.len(), [run.clone()]);
        add_counters(&mut updates.written, written);
    }
    place.is_some()
}

fn changed(next: Manifest) -> Applied {
    Applied { next: Some(next), committed: Committed { changed: true, unused: Vec::new() } }
}

/// From now on the migration is under way. One before it that did not come to its end never will.
pub(crate) fn begin_migration(updates: &mut ManifestUpdates, migration: ManifestMigration) {
    forget_migration(updates);
    updates.migrations = migration.number;
    updates.migration = Some(migration);
}

/// What the migration would have compacted stays buffered, and runs that were written meanwhile are what they were then.
fn forget_migration(updates: &mut ManifestUpdates) {
    let Some(migration) = updates.migration.take() else { return };
    for run in updates.runs.iter_mut().filter(|run| run.during == migration.number) {
        run.during = 0;
    }
}

/// The slices of the migration are in the data files; runs of which nothing is left are forgotten.
fn end_migration(updates: &mut ManifestUpdates) {
    let Some(migration) = updates.migration.take() else { return };
    for RunRange { run, rows } in migration.ranges {
        if let Some(run) = updates.runs.get_mut(run as usize) {
            run.migrated.push(rows);
            run.migrated.sort_unstable_by_key(|rows| (rows.start, rows.end));
            let mut joined: Vec<Range<u32>> = Vec::with_capacity(run.migrated.len());
            for rows in std::mem::take(&mut run.migrated) {
                match joined.last_mut() {
                    Some(last) if last.end >= rows.start => last.end = last.end.max(rows.end),
                    _ => joined.push(rows),
                }
            }
            run.migrated = joined;
        }
    }
    updates.runs.retain(|run| !matches!(run.migrated.as_slice(), [all] if *all == (0..run.rows)));
}

/// Adds the last call of each application, with those that called last at the end. Jobs that give themselves a new name each time would
/// fill manifests, so that those that called longest ago are forgotten.
fn add_transactions(have: &mut Vec<ManifestTransaction>, newer: &[ManifestTransaction]) {
    have.retain(|have| !newer.iter().any(|newer| newer.application == have.application));
    have.extend(newer.iter().cloned());
    have.drain(..have.len().saturating_sub(REMEMBERED_APPLICATIONS));
}

fn add_counters(sum: &mut WriteCounters, more: &WriteCounters) {
    sum.rows += more.rows;
    sum.log_bytes += more.log_bytes;
    sum.flushed_bytes += more.flushed_bytes;
    sum.merged_bytes += more.merged_bytes;
    sum.merged_rows += more.merged_rows;
}

fn drop_index(base: &Manifest, name: &str, if_exists: bool) -> Result<Applied> {
    let Some(index) = base.indexes.iter().find(|have| have.name == name) else {
        if if_exists {
            return Ok(Applied::default());
        }
        return Err(Error::not_found(format!(
            "there is no index {name}; `lakemark index list` shows those that exist"
        )));
    };
    let id = index.id;
    let mut next = base.clone();
    next.indexes.retain(|have| have.id != id);
    next.segments.retain(|segment| segment.index_id != id);
    let unused = base.segments.iter().filter(|segment| segment.index_id == id).map(|segment| segment.path.clone());
    let unused = unused.collect();
    collect_garbage(&mut next);
    Ok(Applied { next: Some(next), committed: Committed { changed: true, unused } })
}

fn add_segments(base: &Manifest, built: &BuiltSegments) -> Applied {
    let mut next = base.clone();
    // Files are adopted first, so that a file which is adopted and indexed anew keeps the segments that it had.
    let mut changed = adopt(&mut next, &built.adopted);
    let before = next.segments.len();
    next.segments.retain(|segment| !built.lost.contains(&segment.id));
    changed |= next.segments.len() < before;
    let ordinals = merge_files(&mut next, built);
    let mut covered: HashSet<([u8; 16], u32)> = HashSet::new();
    for segment in &next.segments {
        covered.extend(segment.files.iter().map(|file| (segment.index_id, *file)));
    }
    let there: HashSet<[u8; 16]> = next.segments.iter().map(|segment| segment.id).collect();
    for segment in &built.segments {
        let mut files: Vec<u32> =
            segment.files.iter().filter_map(|file| ordinals.get(*file as usize).copied()).collect();
        files.sort_unstable();
        let declared = next.indexes.iter().any(|index| index.id == segment.index_id);
        // A builder that was faster may have covered the same files; an index may have been dropped meanwhile.
        if !declared
            || there.contains(&segment.id)
            || files.iter().all(|file| covered.contains(&(segment.index_id, *file)))
        {
            continue;
        }
        next.segments.push(ManifestSegment { files, ..segment.clone() });
        changed = true;
    }
    collect_garbage(&mut next);
    let kept: HashSet<&str> = next.segments.iter().map(|segment| segment.path.as_str()).collect();
    // Where nothing is committed the base stays the newest, with all that it names.
    let before = base.segments.iter().filter(|_| changed);
    let fresh =
        built.segments.iter().filter(|segment| changed || !base.segments.iter().any(|have| have.id == segment.id));
    let all = before.chain(fresh).map(|segment| segment.path.clone());
    let unused = all.filter(|path| !kept.contains(path.as_str())).collect();
    Applied { next: changed.then_some(next), committed: Committed { changed, unused } }
}

fn replace_segments(base: &Manifest, replaced: &[[u8; 16]], built: &BuiltSegments) -> Applied {
    let is_there = |id: &[u8; 16]| base.segments.iter().any(|segment| segment.id == *id);
    // The number of a schema is a matter of each manifest.
    let is_same = |file: &ManifestFile| {
        let have = base.files.iter().find(|have| have.path == file.path);
        have.is_some_and(|have| have.is_same_version(file))
    };
    if !replaced.iter().all(is_there) || !built.files.iter().all(is_same) {
        let unused = built.segments.iter().filter(|segment| !is_there(&segment.id));
        let unused = unused.map(|segment| segment.path.clone()).collect();
        return Applied { next: None, committed: Committed { changed: false, unused } };
    }
    let mut without = base.clone();
    without.segments.retain(|segment| !replaced.contains(&segment.id));
    add_segments(&without, built)
}

/// Gives touched files their new identity; says whether there was one.
fn adopt(next: &mut Manifest, adopted: &[Adoption]) -> bool {
    let adopted: HashMap<&str, &Adoption> =
        adopted.iter().map(|adoption| (adoption.was.path.as_str(), adoption)).collect();
    let mut changed = false;
    for file in &mut next.files {
        if let Some(adoption) = adopted.get(file.path.as_str()) {
            changed |= adoption.apply(file);
        }
    }
    changed
}

#[cfg(test)]
mod tests;

//! Removing what no reader needs any more: edits and checkpoints of old manifests, segments, runs, logs and data files that only these name,
//! and files that nobody finished.
//!
//! Age decides, since which states other processes still read cannot be known. A manifest goes when its *successor* is old enough: until
//! that was written, readers pinned it. The oldest manifest that stays gets a checkpoint, so that the edits before it can go. A segment, a piece
//! of a checkpoint or an unfinished file goes when it is old enough itself and nothing that stays names it. It stays while a writer, a
//! migration or a build holds its lock: a process that was stopped for hours has files that it is going to name. On object stores there are
//! no locks: a build that takes longer than the age fails, as its segments are gone. Segments that a build took over stay (`waste`).
//!
//! ```text
//! checkpoint of the oldest manifest that stays ─▶ older roots ─▶ older edits ─▶ pieces, segments and all else that nothing names
//! ```
//!
//! Uses `updates`, `snapshot`, `store` and `storage`.
//!
//! Invariant: a vacuum which is stopped at any point leaves waste, and every manifest that stays with all that it needs. The newest always
//! stays.

mod waste;

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use lakemark_format::{Checkpoint, Manifest, ManifestPublication, ManifestUpdates, PieceId};
use object_store::ObjectMeta;

use crate::error::{Error, ErrorKind, Result};
use crate::options::VacuumOptions;
use crate::report::{VacuumReport, Waste};
use crate::snapshot::{BaseTable, newest_manifest};
use crate::storage::clock::{self, Stopwatch};
use crate::storage::retry_listing::retry_if_gone;
use crate::store::chain::Chain;
use crate::store::layout::StoreFileKind;
use crate::store::pieces::ManifestNeeds;
use crate::store::{ListedStoreFile, Store};
use crate::updates;

/// A commit or a query that is under way is younger than this.
const SHORTEST_AGE: Duration = Duration::from_secs(60 * 60);

/// Removes what is older than the age, or says what would be removed.
pub(crate) async fn vacuum(table: &BaseTable, options: &VacuumOptions) -> Result<VacuumReport> {
    let stopwatch = Stopwatch::start();
    if options.older_than < SHORTEST_AGE {
        return Err(Error::invalid(
            "the age is below one hour: commits and queries that are under way would lose their index files; give at least 1h",
        ));
    }
    let store = table.writable_store()?;
    // Without a manifest that names them, buffered updates would be waste.
    newest_manifest(table).await?;
    let held = updates::quiesce(store).await?;
    if options.originals && !held.migrations {
        return Err(Error::new(
            ErrorKind::Conflict,
            "a migration or a publication is running, whose originals no manifest names yet; let it finish",
        ));
    }
    // An age beyond all calendars removes nothing.
    let age = chrono::Duration::from_std(options.older_than).unwrap_or(chrono::Duration::MAX);
    let before = clock::utc().checked_sub_signed(age).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let (files, kept) = retry_if_gone(store.text(), || async {
        let files = store.files().await?;
        Ok(Kept::of(store, &files, before).await?.map(|kept| (files, kept)))
    })
    .await?;
    let is_old_root = |file: &&ListedStoreFile| matches!(file.kind, StoreFileKind::Checkpoint(of) if of < kept.from);
    let is_old_edit = |file: &&ListedStoreFile| matches!(file.kind, StoreFileKind::Edit(of) if of < kept.from);
    let is_waste = |file: &&ListedStoreFile| {
        let is_old = file.meta.last_modified < before;
        let is_named = kept.named.contains(&file.path);
        match file.kind {
            StoreFileKind::Edit(_) | StoreFileKind::Checkpoint(_) => false,
            StoreFileKind::Piece(id) => is_old && !kept.pieces.contains(&id),
            // A segment may be the position map of a run; nothing names a file that is not finished.
            StoreFileKind::Segment | StoreFileKind::Unfinished => {
                held.writers && held.migrations && held.builds && is_old && !is_named
            }
            // A claim is renewed as long as somebody builds.
            StoreFileKind::Claim => held.builds && is_old,
            StoreFileKind::Update => held.writers && is_old && !is_named,
            StoreFileKind::Data => held.migrations && is_old && !is_named,
            // The user's program gave originals their times. What counts is that no version needs them.
            StoreFileKind::Original => options.originals && !is_named,
        }
    };
    let mut roots: Vec<&ListedStoreFile> = files.iter().filter(is_old_root).collect();
    let mut edits: Vec<&ListedStoreFile> = files.iter().filter(is_old_edit).collect();
    // By their numbers: what a stopped vacuum leaves is the end of the chain, without a gap.
    roots.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    edits.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    let rest: Vec<&ListedStoreFile> = files.iter().filter(is_waste).collect();
    let mut report = VacuumReport {
        dry_run: options.dry_run,
        manifests_kept: kept.manifests,
        segments_kept: files.iter().filter(|file| file.kind == StoreFileKind::Segment && !is_waste(file)).count()
            as u64,
        removed: roots.iter().chain(&edits).chain(&rest).map(|file| wasted(file)).collect(),
        ..VacuumReport::default()
    };
    if !options.dry_run {
        if let Some(checkpoint) = kept.checkpoint {
            store.put_checkpoint(checkpoint).await?;
        }
        store.remove(&roots).await?;
        // A writer that finds the number after an edit free and the edit there takes its commit for made.
        store.remove_one_by_one(&edits).await?;
        let stay = waste::remove(store, &rest, before).await?;
        report.segments_kept += stay.len() as u64;
        report.removed.retain(|file| !stay.contains(&file.path));
    }
    report.bytes = report.removed.iter().map(|file| file.bytes).sum();
    report.seconds = stopwatch.seconds();
    Ok(report)
}

/// What stays.
#[derive(Default)]
struct Kept {
    /// Edits and checkpoints with lower numbers go.
    from: u64,
    /// How many manifests stay.
    manifests: u64,
    /// The checkpoint that is to be written before anything goes.
    checkpoint: Option<Checkpoint>,
    /// Pieces of checkpoints that stay.
    pieces: HashSet<PieceId>,
    /// Paths that manifests name which stay.
    named: HashSet<String>,
}

impl Kept {
    /// What stays of these files; none if somebody removed some of them meanwhile. An edit that stays and cannot be read stops the vacuum:
    /// nobody knows what it names.
    async fn of(store: &Store, files: &[ListedStoreFile], before: DateTime<Utc>) -> Result<Option<Self>> {
        let listed = Chain::of(files.iter().filter(|file| is_of_chain(file)).map(|file| file.meta.clone()));
        let versions = staying(&listed, before);
        let Some(newest) = listed.newest() else { return Ok(Some(Self::default())) };
        let Some(oldest) = versions.first().copied().filter(|_| versions.last() == Some(&newest)) else {
            // Nothing leads to the newest, or others commit while it is listed.
            return store.manifest_of(&listed, newest).await.map(|_| None);
        };
        // Older edits and checkpoints go: what stays must tell all that they told.
        let manifest = store.manifest_with(&listed, oldest, &ManifestNeeds::Everything).await?;
        let Some(manifest) = manifest else { return Ok(None) };
        let mut kept = Self { from: oldest, manifests: versions.len() as u64, ..Self::default() };
        let is_first = listed.edits.keys().chain(listed.checkpoints.keys()).all(|number| *number >= oldest);
        if manifest.checkpoint() != oldest && !is_first {
            if listed.checkpoints.contains_key(&oldest) {
                // It is damaged: all stays that the manifest is told from in its place.
                kept.from = manifest.checkpoint();
            } else {
                let checkpoint = store.to_checkpoint(&manifest).await?;
                kept.pieces.extend(checkpoint.manifest.pieces());
                kept.checkpoint = Some(checkpoint);
            }
        }
        for (number, meta) in listed.checkpoints.range(kept.from..) {
            match store.root(*number, &meta.location).await {
                Ok(Some(root)) => kept.pieces.extend(root.pieces()),
                Ok(None) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    tracing::warn!(store = store.text(), %error, "nobody can use the checkpoint");
                }
                Err(error) => return Err(error),
            }
        }
        let is_whole = kept.add_named(store, &listed, manifest, &versions).await?;
        Ok(is_whole.then_some(kept))
    }

    /// Adds what the manifests name that stay; `manifest` is the oldest of them. Says whether all of them were there.
    async fn add_named(
        &mut self,
        store: &Store,
        listed: &Chain,
        mut manifest: Manifest,
        versions: &[u64],
    ) -> Result<bool> {
        let oldest = manifest.number();
        self.add_manifest(&manifest, oldest);
        for number in versions.iter().copied().skip(1) {
            let edit = match listed.edits.get(&number).filter(|_| manifest.number() + 1 == number) {
                Some(meta) => match store.read_edit(number, &meta.location).await? {
                    Some(edit) => Some(edit),
                    None => return Ok(false),
                },
                None => None,
            };
            match edit {
                Some(edit) => {
                    self.named.extend(edit.changes.segments_added.iter().map(|segment| segment.path.clone()));
                    edit.changes.updates.iter().for_each(|updates| self.add_updates(updates, oldest));
                    manifest = store.applied(manifest, &[edit])?;
                }
                None => {
                    let Some(told) = store.manifest_of(listed, number).await? else { return Ok(false) };
                    self.add_manifest(&told, oldest);
                    manifest = told;
                }
            }
        }
        Ok(true)
    }

    fn add_manifest(&mut self, manifest: &Manifest, oldest: u64) {
        self.named.extend(manifest.segments().map(|segment| segment.path.clone()));
        manifest.updates().into_iter().for_each(|updates| self.add_updates(updates, oldest));
    }

    /// Adds runs, log and data files, and the originals that versions need which are older than their publication.
    fn add_updates(&mut self, updates: &ManifestUpdates, oldest: u64) {
        self.named.insert(updates.log.path.clone());
        self.named.extend(updates.data.iter().map(|file| file.path.clone()));
        let is_needed = |of: &&ManifestPublication| of.manifest == 0 || of.manifest > oldest;
        let needed = updates.publications.iter().filter(is_needed);
        self.named.extend(needed.flat_map(|of| &of.originals).map(|file| file.stored.clone()));
        for run in &updates.runs {
            self.named.insert(run.path.clone());
            self.named.extend(run.position_map.as_ref().map(|position_map| position_map.path.clone()));
        }
    }
}

fn is_of_chain(file: &ListedStoreFile) -> bool {
    matches!(file.kind, StoreFileKind::Edit(_) | StoreFileKind::Checkpoint(_))
}

/// The numbers of the manifests that stay, ascending, up to the newest.
fn staying(listed: &Chain, before: DateTime<Utc>) -> Vec<u64> {
    let mut versions = listed.versions();
    let successors = versions.iter().skip(1).filter_map(|number| listed.end(*number));
    let old = successors.take_while(|successor| successor.last_modified < before).count();
    versions.drain(..old);
    versions
}

fn wasted(file: &ListedStoreFile) -> Waste {
    let ObjectMeta { size, .. } = file.meta;
    Waste { path: file.path.clone(), bytes: size }
}

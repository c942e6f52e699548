//! Merging the segments of an index into fewer, so that a search of many files reads few segments.
//!
//! ```text
//! segments   ┌ 16 files ┐ ┌ 1 ┐ ┌ 1 ┐ ┌ 3 ┐        which ones: by their sizes (`tiers`), up to files_per_segment files together (`plan`)
//!            └────┬─────┘ └─┬─┘ └─┬─┘ └─┬─┘
//!    values in order with rows, walked side by side   (`values`)
//!                 └────── one segment ──┘             one commit for all that are merged in half a minute
//! ```
//!
//! The values of each segment are read in their order and merged as a build merges its chunks, with as little memory. Filters of zones are put
//! one behind the other as they are, where their shapes allow it (`zones`), and else made from the column. Rows of files that are gone are left
//! out. Nothing that is there is written again: the old segments stay until a vacuum, and readers of older manifests keep
//! theirs.

mod damage;
mod merge;
mod parts;
mod plan;
mod tiers;
mod values;
mod zones;

use std::collections::HashSet;
use std::mem::take;
use std::time::Duration;

use lakemark_format::{Manifest, ManifestSegment};

use crate::error::{Error, ErrorKind, Result};
use crate::indexing::build::left_segments::{check_kept, is_gone};
use crate::indexing::build::{BuildContext, COMMIT_BYTES, COMMIT_EVERY, selected_indexes};
use crate::options::{BuildOptions, Merging};
use crate::report::CompactReport;
use crate::snapshot::{BaseTable, Snapshot};
use crate::storage::clock::Stopwatch;
use crate::storage::ids::new_id;
use crate::store::claims::{Claim, Claims};
use crate::store::locks::BuildLock;
use crate::store::transaction::{Edit, Replacement, commit};
use parts::{Merge, MergeResult};
use plan::Selection;

/// Merges what somebody asks for: all that is worth it, or everything that can be merged.
pub(crate) async fn compact(table: &BaseTable, snapshot: &Snapshot, options: BuildOptions) -> Result<CompactReport> {
    let selection = match options.merging {
        Merging::Never => {
            return Err(Error::invalid("a compaction merges segments; leave the option out that forbids it"));
        }
        Merging::Due => Selection::Worthwhile,
        Merging::All => Selection::All,
    };
    let Outcome { report, left_out } = merge_selected(table, snapshot, &options, selection, None).await?;
    left_out.map_or(Ok(report), Err)
}

/// Merges what a build leaves behind it: what is due by the sizes of the segments, or as much as the options say. Of builds at once that find
/// the same to be due, one merges it. Segments that are damaged, or cannot be merged, stay as they are.
pub(crate) async fn merge_due(table: &BaseTable, snapshot: &Snapshot, options: &BuildOptions) -> Result<CompactReport> {
    let selection = match options.merging {
        Merging::Never => return Ok(CompactReport::default()),
        Merging::Due => Selection::Due,
        Merging::All => Selection::All,
    };
    // The build has told its progress to the end.
    let options = BuildOptions { progress: None, ..options.clone() };
    let claims = Claims::new(table.writable_store()?, new_id().into_bytes());
    let Outcome { report, left_out } = merge_selected(table, snapshot, &options, selection, Some(claims)).await?;
    if let Some(error) = left_out {
        tracing::warn!(%error, "not all segments that are too many are merged");
    }
    Ok(report)
}

/// Whether there are segments to merge after a build that added so many, as far as the newest manifest says without a look at the table.
pub(crate) async fn is_merge_due(table: &BaseTable, options: &BuildOptions, built: u64) -> Result<bool> {
    let (store, only) = (table.writable_store()?, options.index.as_deref());
    match options.merging {
        Merging::Never => return Ok(false),
        Merging::All => return Ok(true),
        Merging::Due => {}
    }
    // The manifest that the build began with says it without a request where there are few.
    let known = store.remembered().map_or(0, |manifest| plan::most_segments(&manifest, only));
    if known as u64 + built < tiers::LEAST as u64 {
        return Ok(false);
    }
    Ok(store.newest().await?.manifest.is_some_and(|manifest| plan::is_due(&manifest, only)))
}

/// What was merged, and why something was not.
struct Outcome {
    report: CompactReport,
    left_out: Option<Error>,
}

async fn merge_selected(
    table: &BaseTable,
    snapshot: &Snapshot,
    options: &BuildOptions,
    selection: Selection,
    claims: Option<Claims>,
) -> Result<Outcome> {
    let stopwatch = Stopwatch::start();
    let context = BuildContext::new(table, options)?;
    let indexes = selected_indexes(snapshot, options)?;
    let Some(manifest) = snapshot.manifest.clone() else {
        return Ok(Outcome { report: CompactReport::default(), left_out: None });
    };
    let merges = plan::merges(snapshot, &manifest, &indexes, selection);
    // The lock keeps what is written until it is committed.
    let _lock = if merges.is_empty() { None } else { Some(BuildLock::share(&context.store).await?) };
    if let Some(progress) = &options.progress {
        progress.start(merges.iter().map(|merge| merge.rows(&manifest)).sum());
    }
    let mut running = Compaction::begin(&context, snapshot, &manifest, options, claims);
    let (mut left_out, mut stopped) = (None, Ok(()));
    for merge in merges {
        let Err(error) = running.merge(merge).await else { continue };
        // Damage of one index, or too little memory for it, keeps no other one from being merged.
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) {
            left_out.get_or_insert(error);
        } else {
            stopped = Err(error);
            break;
        }
    }
    // What is merged is worth committing, whatever stopped the rest.
    let committed = running.commit().await;
    stopped.and(committed)?;
    Ok(Outcome { report: CompactReport { seconds: stopwatch.seconds(), ..running.report }, left_out })
}

/// A compaction under way: merged segments wait for a commit, as those of a build do.
struct Compaction<'a> {
    context: &'a BuildContext,
    snapshot: &'a Snapshot,
    manifest: &'a Manifest,
    /// Claims of merges that others may be doing; none if whoever asks for a merge wants it done here.
    claims: Option<Claims>,
    commit_every: Duration,
    /// Runs since the last commit.
    since: Stopwatch,
    waiting: Vec<Merged<'a>>,
    report: CompactReport,
}

/// A merge that is done and not committed.
struct Merged<'a> {
    merge: Merge<'a>,
    result: MergeResult,
    /// Held until the commit.
    claim: Claim,
}

impl Merged<'_> {
    fn segment(&self) -> Option<&ManifestSegment> {
        self.result.built.segments.first()
    }

    fn replacement(&self) -> Replacement {
        let replaced = self.merge.segments.iter().map(|merged| merged.segment.id).collect();
        Replacement { replaced, built: self.result.built.clone() }
    }
}

impl<'a> Compaction<'a> {
    fn begin(
        context: &'a BuildContext,
        snapshot: &'a Snapshot,
        manifest: &'a Manifest,
        options: &BuildOptions,
        claims: Option<Claims>,
    ) -> Self {
        Self {
            context,
            snapshot,
            manifest,
            claims,
            commit_every: options.commit_every.unwrap_or(COMMIT_EVERY),
            since: Stopwatch::start(),
            waiting: Vec::new(),
            report: CompactReport::default(),
        }
    }

    async fn merge(&mut self, merge: Merge<'a>) -> Result<()> {
        self.context.check_cancel()?;
        let Some(claim) = self.claim(&merge).await else { return Ok(()) };
        match self.merge_claimed(&merge).await {
            Ok(Some(result)) => self.add(Merged { merge, result, claim }).await,
            Err(error) if error.kind() == ErrorKind::Corrupt && merge.is_exact() => {
                self.merge_sound(merge, claim).await?;
                Err(error)
            }
            outcome => {
                claim.release().await;
                outcome.map(drop)
            }
        }
    }

    /// Merges what is not damaged, by the claim of all.
    async fn merge_sound(&mut self, merge: Merge<'a>, claim: Claim) -> Result<()> {
        match self.sound_of(merge).await {
            Ok(Some((merge, result))) => self.add(Merged { merge, result, claim }).await,
            outcome => {
                claim.release().await;
                outcome.map(drop)
            }
        }
    }

    /// The segments that are not damaged, merged; none if what is left is no merge.
    async fn sound_of(&self, merge: Merge<'a>) -> Result<Option<(Merge<'a>, MergeResult)>> {
        let Some(sound) = merge.without_damaged(self.context).await? else { return Ok(None) };
        let result = self.merge_claimed(&sound).await?;
        Ok(result.map(|result| (sound, result)))
    }

    /// Keeps what was merged until it is committed.
    async fn add(&mut self, merged: Merged<'a>) -> Result<()> {
        self.waiting.push(merged);
        let bytes: u64 = self.waiting.iter().filter_map(Merged::segment).map(|segment| segment.length).sum();
        if bytes >= COMMIT_BYTES || self.since.left_of(self.commit_every).is_zero() {
            self.commit().await?;
        }
        Ok(())
    }

    /// The claim of a merge; none if others are doing it, or have done it since it was planned.
    async fn claim(&mut self, merge: &Merge<'_>) -> Option<Claim> {
        let Some(claims) = &mut self.claims else { return Some(Claim::None) };
        let claim = claims.take(merge.claim_id()).await?;
        if merge.is_outdated(&self.context.store).await {
            claim.release().await;
            return None;
        }
        Some(claim)
    }

    async fn merge_claimed(&self, merge: &Merge<'_>) -> Result<Option<MergeResult>> {
        match merge.run(self.context, self.snapshot, self.manifest).await {
            Err(error) if error.kind() == ErrorKind::Corrupt && merge.is_outdated(&self.context.store).await => {
                tracing::info!(
                    index = merge.index.name,
                    "others changed the index meanwhile; its segments stay as they are"
                );
                Ok(None)
            }
            built => built,
        }
    }

    /// One edit for all that waits. Somebody else may have compacted or dropped an index meanwhile: then what was merged of it is left out.
    async fn commit(&mut self) -> Result<()> {
        self.since = Stopwatch::start();
        let waiting = take(&mut self.waiting);
        let waiting = self.without_gone(waiting).await?;
        if waiting.is_empty() {
            return Ok(());
        }
        let edit = Edit::ReplaceSegments(waiting.iter().map(Merged::replacement).collect());
        let committed = commit(&self.context.store, &edit).await;
        let mut merges = Vec::with_capacity(waiting.len());
        for Merged { merge, result, claim } in waiting {
            claim.release().await;
            merges.push((merge, result));
        }
        let left_out = committed?.left_out;
        for (merge, result) in merges {
            let Some(segment) = result.built.segments.first().filter(|segment| !left_out.contains(&segment.id)) else {
                continue;
            };
            self.count(&merge, segment.length);
            if result.is_taken_over {
                check_kept(&self.context.store, &result.built, &HashSet::from([segment.id])).await?;
            }
        }
        self.report.indexes.dedup();
        Ok(())
    }

    /// What waits, without merges whose segments are gone that were taken over: of these the old segments stay.
    async fn without_gone(&self, waiting: Vec<Merged<'a>>) -> Result<Vec<Merged<'a>>> {
        let mut left = Vec::with_capacity(waiting.len());
        for merged in waiting {
            let is_left = match merged.segment().filter(|_| merged.result.is_taken_over) {
                Some(segment) => !is_gone(&self.context.store, segment).await?,
                None => true,
            };
            if is_left {
                left.push(merged);
            } else {
                tracing::warn!(
                    index = merged.merge.index.name,
                    "a vacuum removed the merged segment; it is not committed"
                );
                merged.claim.release().await;
            }
        }
        Ok(left)
    }

    fn count(&mut self, merge: &Merge<'_>, length: u64) {
        self.report.indexes.push(merge.index.name.clone());
        self.report.segments_merged += merge.segments.len() as u64;
        self.report.segments_written += 1;
        self.report.bytes_written += length;
        self.context.store.metrics.count_segment(length);
    }
}

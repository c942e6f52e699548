//! Merging some segments of an index into one: by their values, by their filters, or from the data.

use std::collections::HashSet;

use lakemark_format::Manifest;

use super::parts::{Merge, MergeResult};
use super::{values, zones};
use crate::error::{Error, ErrorKind, Result};
use crate::indexing::build::build_group::build_group;
use crate::indexing::build::group::{Group, GroupResult};
use crate::indexing::build::{BuildContext, built_of};
use crate::report::Finding;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// What became of filters that were to be put one behind the other.
enum MergedZones {
    Merged(MergeResult),
    /// Their shapes do not allow it, or they come to no segment.
    Unlike,
    /// One of them is damaged.
    Damaged,
}

impl Merge<'_> {
    /// Whether the newest manifest does without some of the segments: the index was dropped, or others merged or repaired it.
    pub(super) async fn is_outdated(&self, store: &Store) -> bool {
        let named = store.named_segments().await;
        named.is_ok_and(|named| self.segments.iter().any(|merged| !named.contains(&merged.segment.id)))
    }

    /// Writes the segment; none if it cannot be made now.
    pub(super) async fn run(
        &self,
        context: &BuildContext,
        snapshot: &Snapshot,
        manifest: &Manifest,
    ) -> Result<Option<MergeResult>> {
        let merged = match self.is_exact() {
            true => values::write_merged(self, context, manifest).await?,
            // A build that reads a column once more reports its rows itself.
            false => match self.merge_zones(context, manifest).await? {
                MergedZones::Merged(merged) => merged,
                MergedZones::Unlike => return self.build_again(context, snapshot, false).await,
                MergedZones::Damaged => return self.build_again(context, snapshot, true).await,
            },
        };
        if let Some(progress) = &context.progress {
            progress.advance(self.rows(manifest));
        }
        Ok(Some(merged))
    }

    /// Puts filters one behind the other as they are.
    async fn merge_zones(&self, context: &BuildContext, manifest: &Manifest) -> Result<MergedZones> {
        let merged = async {
            let gathered = self.gather(context, manifest).await?;
            match zones::are_alike(self, context, &gathered) {
                true => zones::write(self, context, gathered).await.map(MergedZones::Merged),
                false => Ok(MergedZones::Unlike),
            }
        };
        match merged.await {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                tracing::warn!(index = self.index.name, %error, "the filters are made from the data");
                match error.kind() {
                    ErrorKind::Corrupt => Ok(MergedZones::Damaged),
                    _ => Ok(MergedZones::Unlike),
                }
            }
            merged => merged,
        }
    }

    /// Filters of other shapes, or damaged ones, are made from the column, once for all files. A damaged segment that has all of these files
    /// has the name that a build would give: it is not taken over.
    async fn build_again(
        &self,
        context: &BuildContext,
        snapshot: &Snapshot,
        is_damaged: bool,
    ) -> Result<Option<MergeResult>> {
        let wanted: HashSet<u32> = self.segments.iter().flat_map(|merged| merged.files.iter().copied()).collect();
        let with_states = snapshot.files().iter().zip(snapshot.index_states.iter());
        let files = with_states.filter(|(_, state)| state.number.is_some_and(|number| wanted.contains(&number)));
        let mut group = Group::of(snapshot, files.map(|(file, _)| file), vec![self.index.clone()])?;
        group.has_random_ids = is_damaged;
        let mut result = GroupResult::default();
        let outcome = build_group(context, &group, &mut result).await;
        let whole = result.files.len() == wanted.len();
        match outcome {
            Ok(()) if whole => {
                let is_taken_over = !result.taken_over.is_empty();
                Ok(Some(MergeResult { built: built_of(&result)?, is_taken_over }))
            }
            outcome => {
                outcome?;
                match result.failed.first() {
                    // A file changed meanwhile: the next build will index it again.
                    None => Ok(None),
                    Some(Finding { path, problem }) => Err(Error::corrupt(format!(
                        "segments of the index {} are not merged, as the data file {path} cannot be read: {problem}",
                        self.index.name
                    ))),
                }
            }
        }
    }
}

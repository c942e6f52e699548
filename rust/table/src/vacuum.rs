//! Removing what no reader needs any more: old manifests, segments, runs, logs and data files that only these name, and files that nobody
//! finished.
//!
//! Age decides, since which states other processes still read cannot be known. A manifest goes when its *successor* is old enough: until
//! that was written, readers pinned it. A segment or an unfinished file goes when it is old enough itself and no manifest that stays names
//! it. It stays while a writer, a migration or a build holds its lock: a process that was stopped for hours has files that it is going to
//! name. On object stores there are no locks: a build that takes longer than the age fails, as its segments are gone. Manifests go first.
//! So a vacuum which is stopped at any point leaves waste and no manifest without its segments; the newest manifest always stays.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use lakemark_format::ManifestPublication;
use object_store::ObjectMeta;

use crate::error::{Error, ErrorKind, Result};
use crate::options::VacuumOptions;
use crate::report::{VacuumReport, Waste};
use crate::snapshot::BaseTable;
use crate::storage::clock::{self, Stopwatch};
use crate::storage::retry_listing::retry_if_gone;
use crate::store::{ListedStoreFile, Store, StoreFileKind};
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
    let listed = retry_if_gone(store.text(), || async {
        let files = store.files().await?;
        let ManifestsByAge { kept, .. } = manifests(&files, before);
        Ok(named_by(store, &kept).await?.map(|named| (files, named)))
    });
    let (files, named) = listed.await?;
    let ManifestsByAge { old, kept } = manifests(&files, before);
    let is_waste = |file: &&ListedStoreFile| {
        let is_old = file.meta.last_modified < before;
        match file.kind {
            StoreFileKind::Manifest(_) => false,
            // A segment may be the position map of a run; nothing names a file that is not finished.
            StoreFileKind::Segment | StoreFileKind::Unfinished => {
                held.writers && held.migrations && held.builds && is_old && !named.contains(&file.path)
            }
            StoreFileKind::Update => held.writers && is_old && !named.contains(&file.path),
            StoreFileKind::Data => held.migrations && is_old && !named.contains(&file.path),
            // The user's program gave originals their times. What counts is that no version needs them.
            StoreFileKind::Original => options.originals && !named.contains(&file.path),
        }
    };
    let rest: Vec<&ListedStoreFile> = files.iter().filter(is_waste).collect();
    let mut report = VacuumReport {
        dry_run: options.dry_run,
        manifests_kept: kept.len() as u64,
        segments_kept: files.iter().filter(|file| file.kind == StoreFileKind::Segment && !is_waste(file)).count()
            as u64,
        removed: old.iter().chain(&rest).map(|file| waste(file)).collect(),
        ..VacuumReport::default()
    };
    report.bytes = report.removed.iter().map(|waste| waste.bytes).sum();
    if !options.dry_run {
        store.remove(&old).await?;
        store.remove(&rest).await?;
    }
    report.seconds = stopwatch.seconds();
    Ok(report)
}

/// The manifests of a store, each from the oldest on.
struct ManifestsByAge<'a> {
    /// Manifests that go.
    old: Vec<&'a ListedStoreFile>,
    /// Manifests that stay, up to the newest.
    kept: Vec<&'a ListedStoreFile>,
}

/// Which manifests go and which stay.
fn manifests(files: &[ListedStoreFile], before: DateTime<Utc>) -> ManifestsByAge<'_> {
    let mut all: Vec<(u64, &ListedStoreFile)> = files
        .iter()
        .filter_map(|file| match file.kind {
            StoreFileKind::Manifest(number) => Some((number, file)),
            StoreFileKind::Segment
            | StoreFileKind::Update
            | StoreFileKind::Data
            | StoreFileKind::Original
            | StoreFileKind::Unfinished => None,
        })
        .collect();
    all.sort_unstable_by_key(|(number, _)| *number);
    let all: Vec<&ListedStoreFile> = all.into_iter().map(|(_, file)| file).collect();
    let successors = all.iter().skip(1);
    let old = successors.take_while(|successor| successor.meta.last_modified < before).count();
    let (old, kept) = all.split_at(old);
    ManifestsByAge { old: old.to_vec(), kept: kept.to_vec() }
}

/// The segments, logs, runs and data files that manifests name, and the originals that versions need which are older than their
/// publication. None if a manifest is gone. A manifest that cannot be read stops the vacuum: nobody knows what it names.
async fn named_by(store: &Store, manifests: &[&ListedStoreFile]) -> Result<Option<HashSet<String>>> {
    let mut named = HashSet::new();
    let oldest = manifests
        .first()
        .and_then(|file| if let StoreFileKind::Manifest(number) = file.kind { Some(number) } else { None });
    for file in manifests {
        let StoreFileKind::Manifest(number) = file.kind else { continue };
        let Some(manifest) = store.read_manifest(number, &file.meta).await? else { return Ok(None) };
        named.extend(manifest.segments.into_iter().map(|segment| segment.path));
        let Some(updates) = manifest.updates else { continue };
        named.insert(updates.log.path);
        named.extend(updates.data.into_iter().map(|file| file.path));
        let is_needed = |of: &ManifestPublication| of.manifest == 0 || oldest.is_none_or(|oldest| of.manifest > oldest);
        let needed = updates.publications.into_iter().filter(is_needed);
        named.extend(needed.flat_map(|of| of.originals).map(|file| file.stored));
        for run in updates.runs {
            named.insert(run.path);
            named.extend(run.position_map.map(|position_map| position_map.path));
        }
    }
    Ok(Some(named))
}

fn waste(file: &ListedStoreFile) -> Waste {
    let ObjectMeta { size, .. } = file.meta;
    Waste { path: file.path.clone(), bytes: size }
}

//! Which data files a table had when somebody looked last. Readers who take an answer of some age look again only when it is older.
//!
//! What a process of ours moves between folder, store and log is always in a manifest, and the newest one is read for each snapshot. So an
//! older answer counts as long as the manifest says of these moves what it said then.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lakemark_format::{
    Manifest, ManifestDelta, ManifestMigration, ManifestPublication, ManifestUpdates, ReplacedFile, StoreFile,
};

use crate::error::Result;
use crate::storage::clock::Moment;

/// What was found last.
pub(crate) struct Recent<T>(Mutex<Option<Found<T>>>);

/// What a look found.
struct Found<T> {
    what: Arc<T>,
    /// A manifest that goes with it.
    manifest: Option<Arc<Manifest>>,
    /// When the look began: what came later may be missing.
    since: Moment,
}

impl<T> Recent<T> {
    /// What a look found that began less than `within` ago, if the newest manifest says of it what the manifest of then did.
    pub(super) fn get(
        &self,
        within: Duration,
        newest: Option<&Manifest>,
        goes_with: impl FnOnce(Option<&ManifestUpdates>, Option<&ManifestUpdates>) -> bool,
    ) -> Option<Arc<T>> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = last.as_ref().filter(|found| found.since.is_within(within))?;
        goes_with(updates_of(found.manifest.as_deref()), updates_of(newest)).then(|| Arc::clone(&found.what))
    }

    /// Whether the last look began less than `within` ago.
    pub(super) fn is_within(&self, within: Duration) -> bool {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|found| found.since.is_within(within))
    }

    /// When the last look began.
    pub(super) fn since(&self) -> Option<Moment> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|found| found.since)
    }

    /// What the last look found, however long ago.
    pub(super) fn found(&self) -> Option<Arc<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|found| Arc::clone(&found.what))
    }

    /// The same for another handle, of which this is what was found.
    pub(super) fn copied(&self, own: impl FnOnce(&Arc<T>) -> Result<Arc<T>>) -> Result<Self> {
        let copied = match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Found { what, manifest, since }) => {
                Some(Found { what: own(what)?, manifest: manifest.clone(), since: *since })
            }
            None => None,
        };
        Ok(Self(Mutex::new(copied)))
    }

    /// Remembers what a look found, unless a later one did.
    pub(super) fn insert(&self, since: Moment, what: &Arc<T>, manifest: Option<&Arc<Manifest>>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|found| found.since <= since) {
            *last = Some(Found { what: Arc::clone(what), manifest: manifest.cloned(), since });
        }
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for Recent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

/// What a manifest says of changes, if it does.
pub(super) fn updates_of(manifest: Option<&Manifest>) -> Option<&ManifestUpdates> {
    manifest.and_then(|manifest| manifest.updates().map(Arc::as_ref))
}

/// Whether no file of ours came to a folder, or left it, between two manifests.
pub(super) fn has_same_moves(one: Option<&ManifestUpdates>, other: Option<&ManifestUpdates>) -> bool {
    type Moves<'a> = (&'a [ManifestPublication], &'a [ReplacedFile], &'a [StoreFile]);
    fn moves(updates: Option<&ManifestUpdates>) -> Moves<'_> {
        updates.map_or((&[], &[], &[]), |of| (&of.publications, &of.replaced, &of.data))
    }
    // Mostly both are one: a manifest that says nothing of changes shares what the one before said.
    let is_one = one.zip(other).is_some_and(|(one, other)| std::ptr::eq(one, other));
    is_one || moves(one) == moves(other)
}

/// Whether two manifests have seen the same migrations in the log of a Delta table.
pub(super) fn has_same_migrations(one: Option<&ManifestUpdates>, other: Option<&ManifestUpdates>) -> bool {
    type Migrations<'a> = (u64, Option<&'a ManifestMigration>, Option<&'a ManifestDelta>);
    fn migrations(updates: Option<&ManifestUpdates>) -> Migrations<'_> {
        updates.map_or((0, None, None), |of| (of.migrations, of.migration.as_ref(), of.delta.as_ref()))
    }
    migrations(one) == migrations(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::clock::stepped::step;

    const LIMIT: Duration = Duration::from_secs(10);

    fn found(recent: &Recent<u8>) -> Option<u8> {
        recent.get(LIMIT, None, has_same_moves).map(|found| *found)
    }

    #[test]
    fn what_was_found_counts_until_it_is_as_old_as_the_limit() {
        let recent = Recent::default();
        assert_eq!(found(&recent), None);
        recent.insert(Moment::now(), &Arc::new(1), None);
        step(LIMIT - Duration::from_secs(1));
        assert_eq!(found(&recent), Some(1));
        step(Duration::from_secs(1));
        assert_eq!((found(&recent), recent.is_within(LIMIT)), (None, false));
        // A limit of nothing takes nothing, however quick the reader is.
        recent.insert(Moment::now(), &Arc::new(2), None);
        assert!(recent.get(Duration::ZERO, None, has_same_moves).is_none() && !recent.is_within(Duration::ZERO));
    }

    #[test]
    fn a_look_that_began_before_the_last_one_does_not_replace_it() {
        let recent = Recent::default();
        let early = Moment::now();
        step(Duration::from_secs(1));
        recent.insert(Moment::now(), &Arc::new(2), None);
        recent.insert(early, &Arc::new(1), None);
        assert_eq!(found(&recent), Some(2));
    }

    #[test]
    fn what_does_not_go_with_the_newest_manifest_does_not_count() {
        let recent = Recent::default();
        recent.insert(Moment::now(), &Arc::new(1), None);
        assert!(recent.get(LIMIT, None, |_, _| false).is_none());
        assert_eq!(found(&recent), Some(1));
    }

    #[test]
    fn a_listing_counts_while_no_file_of_ours_was_moved() {
        let data = vec![StoreFile { path: "data/1/f.parquet".into(), size: 7 }];
        let replaced = vec![ReplacedFile { path: "f.parquet".into(), size: 7, modified_ns: 1 }];
        for moved in [
            ManifestUpdates { data, ..ManifestUpdates::default() },
            ManifestUpdates { replaced, ..ManifestUpdates::default() },
        ] {
            assert!(!has_same_moves(Some(&moved), Some(&ManifestUpdates::default())));
            assert!(!has_same_moves(None, Some(&moved)) && has_same_moves(Some(&moved), Some(&moved.clone())));
        }
        let flushed = ManifestUpdates { migrations: 3, ..ManifestUpdates::default() };
        assert!(has_same_moves(Some(&flushed), None));
    }

    #[test]
    fn a_version_of_a_log_counts_while_no_migration_began_or_ended() {
        let plain = ManifestUpdates::default();
        let migration = Some(ManifestMigration { number: 1, ranges: Vec::new() });
        for other in [
            ManifestUpdates { migrations: 1, ..ManifestUpdates::default() },
            ManifestUpdates { migration, ..ManifestUpdates::default() },
            ManifestUpdates { delta: Some(ManifestDelta::default()), ..ManifestUpdates::default() },
        ] {
            assert!(!has_same_migrations(Some(&plain), Some(&other)));
        }
        assert!(has_same_migrations(Some(&plain), None));
    }
}

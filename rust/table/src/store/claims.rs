//! Claims: who builds or merges what just now, so that builds at once do not do the same.
//!
//! ```text
//! local file system   claims/….claim, locked by the operating system ─▶ free when its process ends
//! object store        claims/….claim, put if absent ─▶ renewed every 20 seconds ─▶ anybody's 60 seconds after the last time
//! ```
//!
//! Claims only save work. Whoever cannot claim builds all the same. Two who have one claim write the same segments under the same names, and
//! a commit adds each once.
//!
//! No clock of one machine is compared with that of another. The storage gives both the time now and the time of the claim, and the age of a
//! claim is the difference. A storage whose clock goes back would make claims last. So a claim has expired, too, if it was seen for 60 seconds
//! without being renewed.

mod lease;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lease::{Lease, StorageTime, WatchedClaim};

use super::Store;
use super::layout::claim_path;
use super::locks::FileLock;
use crate::storage::clock::Moment;
use crate::storage::disk::{self, on_a_thread};

/// How long a claim in an object store lasts that nobody renews.
const LEASE: Duration = Duration::from_secs(60);
/// Nobody waits longer than this for a claim on a local disk: whoever has it may be stopped, and not be gone. The same goes for an expired
/// claim in an object store that cannot be taken.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);
/// How often it is tried to take what others have claimed,
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// and in an object store.
const LOOK_AT_STORAGE_EVERY: Duration = Duration::from_secs(1);

/// The claims of one builder.
#[derive(Debug)]
pub(crate) struct Claims {
    store: Arc<Store>,
    /// The build that it works for, which is in the file of each claim.
    build: [u8; 16],
    /// The time at an object store, once somebody else's claim was met.
    time: Option<StorageTime>,
    /// Claims of others, as they were seen.
    watched: HashMap<[u8; 16], WatchedClaim>,
}

/// A claim that is held as long as this lives, or is not released.
#[derive(Debug)]
pub(crate) enum Claim {
    Local(LocalClaim),
    Remote(Lease),
    /// The store takes no claims now, or another builder of the same build has it. Whoever runs a task twice at once wants it done
    /// twice.
    None,
}

impl Claims {
    pub(crate) fn new(store: &Arc<Store>, build: [u8; 16]) -> Self {
        Self { store: Arc::clone(store), build, time: None, watched: HashMap::new() }
    }

    /// The claim of what has this id, unless another build has it.
    pub(crate) async fn take(&mut self, id: [u8; 16]) -> Option<Claim> {
        let (path, build) = (claim_path(id), self.build);
        match self.store.local_path(&path) {
            Some(path) => {
                let taken = on_a_thread(move || LocalClaim::take(path, build)).await;
                // There may be a file system without locks, or a full disk.
                taken.unwrap_or(Ok(Some(Claim::None))).unwrap_or(Some(Claim::None))
            }
            None => self.lease(id, &path).await,
        }
    }

    /// Whether a builder that has waited since then for a claim does the work without it. Whoever renews a claim in an object store is at
    /// work. One that is not renewed expires, and is done without if the storage lets nobody take it.
    pub(crate) fn is_overdue(&self, id: [u8; 16], since: Moment) -> bool {
        if self.store.is_local() {
            return !since.is_within(LONGEST_WAIT);
        }
        self.watched.get(&id).is_some_and(|watched| watched.is_expired_for(LONGEST_WAIT))
    }

    /// Waits a little before a claim of others is tried again, and no longer than so long.
    pub(crate) async fn pause(&self, id: [u8; 16], longest: Duration) {
        let every = match self.store.local_path(&claim_path(id)) {
            Some(path) => {
                // Only tests let it fail.
                let _ = on_a_thread(move || disk::before_retry(&path)).await;
                LOOK_EVERY
            }
            None => LOOK_AT_STORAGE_EVERY,
        };
        tokio::time::sleep(every.min(longest)).await;
    }
}

impl Claim {
    /// Lets others have what is left to do of it.
    pub(crate) async fn release(self) {
        match self {
            Self::Remote(lease) => lease.release().await,
            Self::Local(held) => drop(held),
            Self::None => {}
        }
    }
}

/// A claim on a local file system: the lock of a file that is there as long as somebody has it.
#[derive(Debug)]
pub(crate) struct LocalClaim {
    path: PathBuf,
    _lock: FileLock,
}

impl LocalClaim {
    /// How often a file is locked that whoever had it before removes.
    const TRIES: u32 = 3;

    fn take(path: PathBuf, build: [u8; 16]) -> io::Result<Option<Claim>> {
        // Where a task runs that does not see the store nothing is made.
        let folder = path.parent().filter(|folder| folder.parent().is_some_and(Path::is_dir));
        disk::make_folder(folder.ok_or(io::ErrorKind::NotFound)?)?;
        for _ in 0..Self::TRIES {
            let Some(lock) = FileLock::try_take(&path)? else {
                let is_own = std::fs::read(&path).is_ok_and(|holder| holder == build);
                return Ok(is_own.then_some(Claim::None));
            };
            if lock.is_of(&path) {
                lock.sign(&build)?;
                return Ok(Some(Claim::Local(Self { path, _lock: lock })));
            }
        }
        Ok(None)
    }
}

impl Drop for LocalClaim {
    fn drop(&mut self) {
        // A file that stays is taken by the next one, or by a vacuum.
        let _ = disk::remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object_store::local::LocalFileSystem;

    use super::*;
    use crate::storage::clock::stepped::step;
    use crate::storage::location::StorePlace;

    #[test]
    fn a_local_claim_ends_with_its_builder_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("claims/a.claim");
        let take = |build: u8| LocalClaim::take(path.clone(), [build; 16]).unwrap();
        // What a process left that was killed comes after nothing.
        for left in [None, Some([1; 16])] {
            left.into_iter().for_each(|left| fs::write(&path, left).unwrap());
            let held = take(1).unwrap();
            assert!(matches!(held, Claim::Local(_)));
            assert!(take(2).is_none());
            // A task that runs twice at once does not wait for itself.
            assert!(matches!(take(1), Some(Claim::None)));
            drop(held);
            assert!(!path.exists());
        }
    }

    #[test]
    fn what_a_stopped_process_of_a_local_disk_claimed_is_done_without_the_claim_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = object_store::path::Path::from_absolute_path(folder.path()).unwrap();
        let (text, local) = (folder.path().display().to_string(), Some(folder.path().to_owned()));
        let place = StorePlace { text, prefix, local, object_store: Arc::new(LocalFileSystem::new()) };
        let claims = Claims::new(&Arc::new(Store::new(place, Arc::default())), [1; 16]);
        let since = Moment::now();
        assert!(!claims.is_overdue([7; 16], since));
        step(LONGEST_WAIT);
        assert!(claims.is_overdue([7; 16], since));
        // Each is waited for by itself.
        assert!(!claims.is_overdue([7; 16], Moment::now()));
    }

    #[test]
    fn a_file_that_was_removed_is_no_claim() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.claim");
        let lock = FileLock::try_take(&path).unwrap().unwrap();
        assert!(lock.is_of(&path));
        fs::remove_file(&path).unwrap();
        assert!(!lock.is_of(&path));
        fs::write(&path, []).unwrap();
        assert!(!lock.is_of(&path));
    }
}

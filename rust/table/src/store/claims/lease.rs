//! Claims in object stores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, PutResult, UpdateVersion};
use tokio::task::JoinHandle;

use super::{Claim, Claims, LEASE};
use crate::storage::clock::Moment;
use crate::storage::ids::new_id;

/// How often a claim is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// A claim that is renewed as long as this lives.
#[derive(Debug)]
pub(crate) struct Lease {
    object_store: Arc<dyn ObjectStore>,
    path: Path,
    /// What is in it.
    token: Bytes,
    renewal: JoinHandle<()>,
}

/// The time at the storage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StorageTime {
    /// What it was,
    read: DateTime<Utc>,
    /// at this moment here.
    at: Moment,
}

/// A claim of somebody else.
#[derive(Debug)]
pub(crate) struct WatchedClaim {
    version: (Option<String>, DateTime<Utc>),
    /// When this version was seen first.
    since: Moment,
    /// When it was first known that it has expired.
    expired: Option<Moment>,
}

impl WatchedClaim {
    fn begin(version: (Option<String>, DateTime<Utc>)) -> Self {
        Self { version, since: Moment::now(), expired: None }
    }

    /// Whether it has expired for so long, and was never renewed.
    pub(super) fn is_expired_for(&self, time: Duration) -> bool {
        self.expired.is_some_and(|expired| !expired.is_within(time))
    }
}

impl StorageTime {
    /// Whether a file was written so long ago.
    fn is_past(self, written: DateTime<Utc>, age: Duration) -> bool {
        let was = self.read.signed_duration_since(written);
        let left = TimeDelta::from_std(age).unwrap_or(TimeDelta::MAX) - was;
        !left.to_std().is_ok_and(|left| self.at.is_within(left))
    }
}

impl Claims {
    /// The claim in an object store, unless somebody has it.
    pub(super) async fn lease(&mut self, id: [u8; 16], relative: &str) -> Option<Claim> {
        let (object_store, path) = (Arc::clone(self.store.object_store()), self.store.object_path(relative));
        let token = Bytes::from([self.build.as_slice(), new_id().as_bytes()].concat());
        match put(object_store.as_ref(), &path, &token, PutMode::Create).await {
            Ok(put) => return Some(Lease::begin(object_store, path, token, put.into())),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            Err(error) => return Some(unclaimed(&error)),
        }
        let read = match object_store.get(&path).await {
            Ok(read) => read,
            // Whoever had it is done with it.
            Err(object_store::Error::NotFound { .. }) => return None,
            Err(error) => return Some(unclaimed(&error)),
        };
        let meta = read.meta.clone();
        let found = read.bytes().await.unwrap_or_default();
        if found == token {
            // The answer to the put was lost, and the client asked again.
            return Some(Lease::begin(object_store, path, token, version_of(&meta)));
        }
        if found.starts_with(&self.build) {
            return Some(Claim::None);
        }
        if !self.is_expired(id, &meta).await {
            return None;
        }
        tracing::info!(claim = relative, "a claim that nobody renews is taken");
        match take_expired(object_store.as_ref(), &path, &token, version_of(&meta)).await {
            Ok(put) => {
                self.watched.remove(&id);
                Some(Lease::begin(object_store, path, token, put.into()))
            }
            // Somebody else took it, or released it.
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. }
                | object_store::Error::NotFound { .. },
            ) => None,
            Err(error) => Some(unclaimed(&error)),
        }
    }

    /// Whether a claim was not renewed for so long that its builder is gone.
    async fn is_expired(&mut self, id: [u8; 16], meta: &ObjectMeta) -> bool {
        let version = (meta.e_tag.clone(), meta.last_modified);
        let watched = self.watched.entry(id).or_insert_with(|| WatchedClaim::begin(version.clone()));
        if watched.version != version {
            *watched = WatchedClaim::begin(version);
        }
        let is_watched_long = !watched.since.is_within(LEASE);
        if !is_watched_long && self.time.is_none() {
            self.time = self.read_time().await;
        }
        let is_expired = is_watched_long || self.time.is_some_and(|time| time.is_past(meta.last_modified, LEASE));
        if let Some(watched) = self.watched.get_mut(&id).filter(|_| is_expired) {
            watched.expired.get_or_insert_with(Moment::now);
        }
        is_expired
    }

    /// The time at the storage.
    async fn read_time(&self) -> Option<StorageTime> {
        let at = Moment::now();
        Some(StorageTime { read: self.store.storage_time().await.ok()?, at })
    }
}

impl Lease {
    fn begin(object_store: Arc<dyn ObjectStore>, path: Path, token: Bytes, version: UpdateVersion) -> Claim {
        let renewal = renew(Arc::clone(&object_store), path.clone(), token.clone(), version);
        Claim::Remote(Self { object_store, path, token, renewal: tokio::spawn(renewal) })
    }

    /// Removes the claim, unless somebody took it for expired.
    pub(super) async fn release(self) {
        self.renewal.abort();
        let Ok(read) = self.object_store.get(&self.path).await else { return };
        if read.bytes().await.is_ok_and(|found| found == self.token) {
            // One that stays expires.
            let _ = self.object_store.delete(&self.path).await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

/// Puts our claim in the place of one that was of this version.
async fn take_expired(
    object_store: &dyn ObjectStore,
    path: &Path,
    token: &Bytes,
    version: UpdateVersion,
) -> object_store::Result<PutResult> {
    match put(object_store, path, token, PutMode::Update(version)).await {
        Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
            object_store.delete(path).await?;
            put(object_store, path, token, PutMode::Create).await
        }
        taken => taken,
    }
}

/// Writes a claim again and again, as long as it is ours.
async fn renew(object_store: Arc<dyn ObjectStore>, path: Path, token: Bytes, mut version: UpdateVersion) {
    loop {
        tokio::time::sleep(RENEW_EVERY).await;
        match renew_once(object_store.as_ref(), &path, &token, version).await {
            Some(renewed) => version = renewed,
            None => return,
        }
    }
}

/// Writes a claim that was of this version again; gives its version, or none once it is somebody else's.
async fn renew_once(
    object_store: &dyn ObjectStore,
    path: &Path,
    token: &Bytes,
    version: UpdateVersion,
) -> Option<UpdateVersion> {
    match put(object_store, path, token, PutMode::Update(version.clone())).await {
        Ok(put) => return Some(put.into()),
        Err(object_store::Error::NotFound { .. }) => return None,
        Err(object_store::Error::Precondition { .. }) => return own_version(object_store, path, token, version).await,
        Err(object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. }) => {
            // One that is not written again expires.
            let _ = put(object_store, path, token, PutMode::Overwrite).await;
        }
        Err(error) => tracing::debug!(%error, "a claim was not renewed; it is tried again"),
    }
    Some(version)
}

/// The version of a claim that is another one than we know: the answer to a renewal was lost, or the claim is somebody else's.
async fn own_version(
    object_store: &dyn ObjectStore,
    path: &Path,
    token: &Bytes,
    known: UpdateVersion,
) -> Option<UpdateVersion> {
    let read = match object_store.get(path).await {
        Ok(read) => read,
        Err(object_store::Error::NotFound { .. }) => return None,
        // The next renewal looks again.
        Err(_) => return Some(known),
    };
    let version = version_of(&read.meta);
    match read.bytes().await {
        Ok(found) => (found == *token).then_some(version),
        Err(_) => Some(known),
    }
}

async fn put(
    object_store: &dyn ObjectStore,
    path: &Path,
    token: &Bytes,
    mode: PutMode,
) -> object_store::Result<PutResult> {
    object_store.put_opts(path, PutPayload::from(token.clone()), mode.into()).await
}

fn version_of(meta: &ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() }
}

/// What a builder goes on with where the storage takes no claims now.
fn unclaimed(error: &object_store::Error) -> Claim {
    tracing::debug!(%error, "nothing can be claimed");
    Claim::None
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::storage::clock::stepped::step;
    use crate::storage::location::StorePlace;
    use crate::store::Store;
    use crate::store::claims::LONGEST_WAIT;
    use crate::store::layout::claim_path;

    const ID: [u8; 16] = [7; 16];

    /// Two builders of a store in memory.
    fn builders() -> (Claims, Claims) {
        let (text, prefix, memory) = ("memory".to_owned(), Path::from("t/_lakemark"), Arc::new(InMemory::new()));
        let place = StorePlace { text, prefix, local: None, object_store: memory };
        let store = Arc::new(Store::new(place, Arc::default()));
        (Claims::new(&store, [1; 16]), Claims::new(&store, [2; 16]))
    }

    #[tokio::test]
    async fn a_claim_is_one_builders_until_it_is_released() {
        let (mut one, mut other) = builders();
        let held = one.take(ID).await.unwrap();
        assert!(other.take(ID).await.is_none());
        // A task that runs twice at once does not wait for itself.
        assert!(matches!(one.take(ID).await, Some(Claim::None)));
        let another = other.take([8; 16]).await.unwrap();
        held.release().await;
        let held = other.take(ID).await.unwrap();
        assert!(one.take(ID).await.is_none());
        held.release().await;
        another.release().await;
        assert!(matches!(one.take(ID).await, Some(Claim::Remote(_))));
    }

    #[tokio::test]
    async fn a_claim_that_nobody_renews_is_anybodys_after_a_minute() {
        let (mut one, mut other) = builders();
        // Its builder is gone, and the claim is not.
        drop(one.take(ID).await.unwrap());
        assert!(other.take(ID).await.is_none());
        step(LEASE);
        let taken = other.take(ID).await.unwrap();
        assert!(one.take(ID).await.is_none());
        taken.release().await;
        assert!(one.take(ID).await.is_some());
    }

    #[tokio::test]
    async fn whoever_is_late_does_not_remove_the_claim_that_others_took() {
        let (mut one, mut other) = builders();
        let late = one.take(ID).await.unwrap();
        assert!(other.take(ID).await.is_none());
        step(LEASE);
        let taken = other.take(ID).await.unwrap();
        late.release().await;
        assert!(one.take(ID).await.is_none());
        taken.release().await;
    }

    #[tokio::test]
    async fn nobody_does_without_a_claim_that_is_renewed() {
        let (claims, _) = builders();
        let since = Moment::now();
        step(Duration::from_secs(24 * 60 * 60));
        assert!(!claims.is_overdue(ID, since));
    }

    /// A storage may refuse each takeover, as if somebody else were always first.
    #[tokio::test]
    async fn what_expired_and_cannot_be_taken_is_done_without_the_claim_after_a_while() {
        let (mut one, mut other) = builders();
        let since = Moment::now();
        let held = one.take(ID).await.unwrap();
        assert!(other.take(ID).await.is_none());
        step(LEASE);
        let path = other.store.object_path(&claim_path(ID));
        let meta = other.store.object_store().head(&path).await.unwrap();
        assert!(other.is_expired(ID, &meta).await);
        assert!(!other.is_overdue(ID, since));
        step(LONGEST_WAIT);
        assert!(other.is_expired(ID, &meta).await);
        assert!(other.is_overdue(ID, since));
        // Each is waited for by itself, and whoever renews a claim is at work.
        assert!(!other.is_overdue([8; 16], since));
        let renewed = ObjectMeta { e_tag: Some("another".to_owned()), ..meta };
        other.is_expired(ID, &renewed).await;
        assert!(!other.is_overdue(ID, since));
        held.release().await;
    }

    #[tokio::test]
    async fn a_renewal_whose_answer_was_lost_is_followed_by_others() {
        let (store, path, token) = (InMemory::new(), Path::from("a.claim"), Bytes::from_static(b"ours"));
        let made = put(&store, &path, &token, PutMode::Create).await.unwrap();
        let first = UpdateVersion::from(made);
        let lost = renew_once(&store, &path, &token, first.clone()).await.unwrap();
        // It is written, and this builder goes on with the version before.
        let found = renew_once(&store, &path, &token, first.clone()).await.unwrap();
        assert_eq!(found.e_tag, lost.e_tag);
        let renewed = renew_once(&store, &path, &token, found.clone()).await.unwrap();
        assert_ne!(renewed.e_tag, found.e_tag);
        put(&store, &path, &Bytes::from_static(b"theirs"), PutMode::Overwrite).await.unwrap();
        assert!(renew_once(&store, &path, &token, renewed.clone()).await.is_none());
        store.delete(&path).await.unwrap();
        assert!(renew_once(&store, &path, &token, renewed).await.is_none());
    }

    /// By a clock of the storage that goes back no claim would ever expire.
    #[tokio::test]
    async fn a_claim_that_is_seen_for_a_minute_has_expired_whatever_the_time_is() {
        let (mut one, mut other) = builders();
        drop(one.take(ID).await.unwrap());
        other.time = Some(StorageTime { read: DateTime::UNIX_EPOCH, at: Moment::now() });
        assert!(other.take(ID).await.is_none());
        step(LEASE - Duration::from_secs(5));
        assert!(other.take(ID).await.is_none());
        step(Duration::from_secs(5));
        assert!(other.take(ID).await.is_some());
    }

    #[test]
    fn the_age_of_a_claim_is_told_by_the_time_at_the_storage() {
        let at = |seconds: i64| DateTime::<Utc>::from_timestamp(seconds, 0).unwrap();
        let time = StorageTime { read: at(1_000), at: Moment::now() };
        assert!(time.is_past(at(940), LEASE) && time.is_past(at(0), LEASE));
        assert!(!time.is_past(at(941), LEASE) && !time.is_past(at(1_000), LEASE));
        // A clock at the storage that went back.
        assert!(!time.is_past(at(5_000), LEASE));
        step(Duration::from_secs(30));
        assert!(time.is_past(at(970), LEASE) && !time.is_past(at(971), LEASE));
        assert!(!time.is_past(at(5_000), LEASE));
    }
}

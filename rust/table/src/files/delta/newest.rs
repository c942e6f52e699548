//! The newest state of a Delta table, which is read anew only if its log has changed.
//!
//! A log grows by one commit at a time. While the last commit that was read is the same file and none with the next number follows, the
//! state is the same. That takes two requests in the place of a listing, a checkpoint and all commits after it. The number alone does not
//! suffice: a table that was made anew may have as many commits, and the file differs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::log::DeltaLog;
use super::{DeltaState, LOG_FOLDER};
use crate::error::Result;
use crate::storage::location::Location;

/// What a table remembers of its log.
#[derive(Default)]
pub(crate) struct NewestState(Mutex<Option<CachedState>>);

/// A state, and the commit that it ends with.
#[derive(Clone)]
struct CachedState {
    state: Arc<DeltaState>,
    commit: ObjectMeta,
}

impl NewestState {
    /// The newest state.
    ///
    /// # Errors
    /// The log cannot be read.
    #[tracing::instrument(level = "debug", name = "listing", skip_all, fields(table = location.text))]
    pub(crate) async fn read(&self, location: &Location) -> Result<Arc<DeltaState>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known
            && known.is_newest(location).await
        {
            return Ok(known.state);
        }
        let before = last_commit(location).await;
        let state = Arc::new(DeltaState::read(location).await?);
        // The log may have changed while it was read; the next reader then reads the state again.
        let mut known = before.map(|commit| CachedState { state: Arc::clone(&state), commit });
        if let Some(read) = &known
            && !read.is_newest(location).await
        {
            known = None;
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(state)
    }
}

impl CachedState {
    /// Whether the log ends with this commit. If that cannot be found out, the log is read again.
    async fn is_newest(&self, location: &Location) -> bool {
        let store = &location.object_store;
        let next = place_of_commit(location, self.state.version + 1);
        let (last, next) = futures::join!(store.head(&self.commit.location), store.head(&next));
        let is_last = self.commit.location == place_of_commit(location, self.state.version);
        is_last
            && last.is_ok_and(|last| last == self.commit)
            && matches!(next, Err(object_store::Error::NotFound { .. }))
    }
}

/// The last commit, if the log has one that can be listed. Its metadata come from a request for the one object, as listings say less.
async fn last_commit(location: &Location) -> Option<ObjectMeta> {
    let log = DeltaLog::list(location).await.ok()?;
    let (version, _) = log.commits.last_key_value()?;
    location.object_store.head(&place_of_commit(location, *version)).await.ok()
}

fn place_of_commit(location: &Location, version: u64) -> Path {
    location.prefix.clone().join(LOG_FOLDER).join(format!("{version:020}.json"))
}

impl fmt::Debug for NewestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestState").finish_non_exhaustive()
    }
}

//! The newest state of a Delta table, of which only the commits are read that came since it was read last.
//!
//! A log grows by one commit at a time. While the last commit that was read is the same file and none with the next number follows, the
//! state is the same. That takes two requests in the place of a listing, a checkpoint and all commits after it. Where commits follow, the
//! state is the one before with their changes. The number alone does not suffice: a table that was made anew may have as many commits, and
//! the file differs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::{ObjectMeta, ObjectStoreExt};

use super::DeltaState;
use super::commits::{NextCommits, place_of_commit};
use super::log::DeltaLog;
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

/// What became of a log.
enum Since {
    Same,
    /// Commits follow.
    Grown,
    /// The commit is gone or another one, or nobody can tell.
    Unknown,
}

impl NewestState {
    /// The newest state.
    ///
    /// # Errors
    /// The log cannot be read.
    #[tracing::instrument(level = "debug", name = "listing", skip_all, fields(table = location.text))]
    pub(crate) async fn read(&self, location: &Location) -> Result<Arc<DeltaState>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            match known.since(location).await {
                Since::Same => return Ok(known.state),
                Since::Grown => {
                    if let Some(next) = known.next(location).await {
                        let state = Arc::clone(&next.state);
                        self.remember(Some(next));
                        return Ok(state);
                    }
                }
                Since::Unknown => {}
            }
        }
        let before = last_commit(location).await;
        let state = Arc::new(DeltaState::read(location).await?);
        // The log may have changed while it was read; the next reader then reads the state again.
        let mut known = before.map(|commit| CachedState { state: Arc::clone(&state), commit });
        if let Some(read) = &known
            && !matches!(read.since(location).await, Since::Same)
        {
            known = None;
        }
        self.remember(known);
        Ok(state)
    }

    /// The same for another handle, of which this is the state.
    ///
    /// # Errors
    /// The state cannot be read through that handle.
    pub(crate) fn copied(&self, own: impl FnOnce(&Arc<DeltaState>) -> Result<Arc<DeltaState>>) -> Result<Self> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let copied = match known {
            Some(CachedState { state, commit }) => Some(CachedState { state: own(&state)?, commit }),
            None => None,
        };
        Ok(Self(Mutex::new(copied)))
    }

    fn remember(&self, state: Option<CachedState>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl CachedState {
    /// Whether the log ends with this commit.
    async fn since(&self, location: &Location) -> Since {
        let next = place_of_commit(location, self.state.version + 1);
        let (is_there, next) = futures::join!(self.is_there(location), location.object_store.head(&next));
        match next {
            Ok(_) if is_there => Since::Grown,
            Err(object_store::Error::NotFound { .. }) if is_there => Since::Same,
            _ => Since::Unknown,
        }
    }

    /// Whether the log has the commit still.
    async fn is_there(&self, location: &Location) -> bool {
        self.commit.location == place_of_commit(location, self.state.version)
            && location.object_store.head(&self.commit.location).await.is_ok_and(|last| last == self.commit)
    }

    /// The state after the commits that follow. None if the log has to be read as a whole.
    async fn next(&self, location: &Location) -> Option<Self> {
        let commits = NextCommits::read(location, self.state.version).await?;
        // A log that still has the commit has not been made anew while the others were read.
        if !self.is_there(location).await {
            return None;
        }
        let state = self.state.after(commits.version, commits.changes)?;
        let came = state.changes_since(&self.state).into_iter().filter_map(|change| change.item);
        // What fails here fails again where the log is read as a whole, and is told then.
        state.check_ids(came).await.ok()?;
        Some(Self { state: Arc::new(state), commit: commits.last })
    }
}

/// The last commit, if the log has one that can be listed. Its metadata come from a request for the one object, as listings say less.
async fn last_commit(location: &Location) -> Option<ObjectMeta> {
    let log = DeltaLog::list(location).await.ok()?;
    let (version, _) = log.commits.last_key_value()?;
    location.object_store.head(&place_of_commit(location, *version)).await.ok()
}

impl fmt::Debug for NewestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewestState").finish_non_exhaustive()
    }
}

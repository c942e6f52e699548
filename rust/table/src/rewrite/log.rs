//! The log of a Delta table, to be written. A version is put if there is none of its number. What others put may be a conflict.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStoreExt;
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::files::delta::logged_path::snapshot_path;
use crate::files::delta::{DeltaState, LOG_FOLDER, RowTracking};
use crate::rewrite::RewrittenKeys;
use crate::rewrite::commit::{Commit, LogEnd};
use crate::snapshot::Snapshot;
use crate::storage::location::{Location, place_of};
use crate::storage::put_if_absent::{PutOutcome, PutTarget};
use crate::store::locks::{FileLock, holding};

/// The transaction of a commit, by which an application makes it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApplicationTransaction {
    /// The application's name.
    pub id: String,
    /// The version grows from commit to commit.
    pub version: i64,
    /// Another application's version that is committed with it.
    pub through: Option<ApplicationVersion>,
}

/// The version of an application that a log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApplicationVersion {
    /// The application's name.
    pub id: String,
    /// The version grows from commit to commit.
    pub version: i64,
}

/// What became of an attempt to commit.
pub(super) enum Outcome {
    Committed(u64),
    /// Somebody committed this transaction, or a later one.
    Already,
    /// Nothing was committed, for certain.
    Refused(Error),
    /// Writing failed in a way that leaves open whether it was done.
    Unknown(Error),
}

/// The log of a table, to be written.
pub(super) struct Log<'a> {
    pub location: &'a Location,
    pub transaction: &'a ApplicationTransaction,
    /// The lock is held until a put that was begun is done, also if the caller goes away.
    pub lock: Option<Arc<FileLock>>,
}

/// What a commit of others means for ours.
#[derive(Debug, PartialEq, Eq)]
enum Theirs {
    Harmless,
    /// Files come and go, and nothing else.
    Files(Files),
    Conflict,
    /// The commit is ours, or a later one of the same application.
    Already,
}

/// Files that a commit adds and removes, by their paths below the table's folder.
#[derive(Debug, Default, PartialEq, Eq)]
struct Files {
    added: Vec<String>,
    removed: Vec<String>,
}

/// Which commits of others go together with ours.
pub(super) struct Admission<'a> {
    /// The files that are replaced.
    pub replaced: HashSet<&'a str>,
    /// The keys that are merged into the table; without them nothing of others is let pass.
    pub keys: Option<&'a dyn RewrittenKeys>,
}

impl Admission<'_> {
    /// Whether ours is the same whether these files are there or not: none of them is replaced, or has a row with one of our keys.
    async fn lets_pass(&self, files: &Files) -> Result<bool> {
        let Some(keys) = self.keys else { return Ok(false) };
        if files.removed.iter().any(|path| self.replaced.contains(path.as_str())) {
            return Ok(false);
        }
        Ok(files.added.is_empty() || !keys.are_in(&files.added).await?)
    }
}

impl Log<'_> {
    /// Fails if others changed the table between the snapshot and this state.
    pub(super) async fn check_since(&self, snapshot: &Snapshot, state: &DeltaState) -> Result<()> {
        let pinned = snapshot.delta_version().filter(|pinned| *pinned <= state.version);
        let Some(pinned) = pinned else { return Err(self.conflict()) };
        for version in pinned + 1..=state.version {
            if self.judge(self.read(version).await?.as_deref()) != Theirs::Harmless {
                return Err(self.conflict());
            }
        }
        Ok(())
    }

    /// What the log has at the end of a version, as far as the commit needs to know.
    pub(super) async fn end_of(&self, state: &DeltaState, commit: &Commit) -> Result<LogEnd> {
        let greatest_row_id = match commit.demands.tracks_rows && !commit.adds.is_empty() {
            true => state.greatest_row_id().await?,
            false => -1,
        };
        let end = LogEnd { version: state.version, greatest_row_id, timestamp: None };
        self.timed(end, commit).await
    }

    /// The end with the time of its last commit, where commits have one.
    async fn timed(&self, end: LogEnd, commit: &Commit) -> Result<LogEnd> {
        if !commit.demands.is_timed {
            return Ok(end);
        }
        let last = self.read(end.version).await?;
        let timestamp = last.and_then(|last| LogEnd { timestamp: None, ..end }.after(&last).timestamp);
        match timestamp {
            Some(_) => Ok(LogEnd { timestamp, ..end }),
            None => Err(Error::corrupt(format!(
                "the version {} of the Delta table {} has no time, which its commits must have (inCommitTimestamp); commit once with \
                 another writer",
                end.version, self.location.text
            ))),
        }
    }

    /// Commits as the version after this end, or after commits of others that go together with ours.
    pub(super) async fn commit(&self, end: LogEnd, commit: &Commit, admission: &Admission<'_>) -> Outcome {
        let mut end = end;
        loop {
            let put = match self.put(end.version + 1, lines_of(&commit.lines(&end))).await {
                Ok(put) => put,
                Err(error) => return Outcome::Refused(error),
            };
            match put {
                PutOutcome::Made => return Outcome::Committed(end.version + 1),
                PutOutcome::Refused(cause) => return Outcome::Refused(self.unwritable(cause)),
                PutOutcome::Missing(cause) | PutOutcome::Unknown(cause) => {
                    return Outcome::Unknown(self.unwritable(cause));
                }
                PutOutcome::Taken(found) => match self.judge(Some(&found)) {
                    Theirs::Harmless => end = end.after(&found),
                    Theirs::Files(files) => match admission.lets_pass(&files).await {
                        Ok(true) => end = end.after(&found),
                        Ok(false) => return Outcome::Refused(self.conflict()),
                        Err(error) => return Outcome::Refused(error),
                    },
                    Theirs::Already => return Outcome::Already,
                    Theirs::Conflict => return Outcome::Refused(self.conflict()),
                },
            }
        }
    }

    /// Takes the version after `version`, so that a commit of the transaction which was sent to be that version comes no more. Says whether
    /// the commit has not come.
    pub(super) async fn block_version(&self, version: u64, commit: &Commit) -> Result<bool> {
        let end = self.timed(LogEnd { version, greatest_row_id: -1, timestamp: None }, commit).await?;
        match self.put(version + 1, lines_of(&commit.lines(&end))).await? {
            PutOutcome::Made => Ok(true),
            PutOutcome::Taken(found) => Ok(self.judge(Some(&found)) != Theirs::Already),
            PutOutcome::Refused(cause) | PutOutcome::Missing(cause) | PutOutcome::Unknown(cause) => {
                Err(self.unwritable(cause))
            }
        }
    }

    /// Puts a version if there is none of that number.
    async fn put(&self, version: u64, bytes: Vec<u8>) -> Result<PutOutcome> {
        let name = commit_name(version);
        let path = place_of(&self.location.prefix, &format!("{LOG_FOLDER}/{name}"))?;
        let local = self.location.local.as_ref().map(|root| root.join(LOG_FOLDER).join(&name));
        let (object_store, lock) = (Arc::clone(&self.location.object_store), self.lock.clone());
        let put = async move { PutTarget { object_store: &object_store, path, local }.put(bytes).await };
        holding(lock, put).await
    }

    fn unwritable(&self, cause: Box<dyn std::error::Error + Send + Sync>) -> Error {
        Error::io(format!(
            "the Delta log of {} cannot be written (disk full, or no permission?); run it again, it is not done twice",
            self.location.text
        ))
        .with_source(cause)
    }

    /// Reads a version; none if it was cleaned up.
    async fn read(&self, version: u64) -> Result<Option<Bytes>> {
        let path = place_of(&self.location.prefix, &format!("{LOG_FOLDER}/{}", commit_name(version)))?;
        let unreadable = |error| {
            Error::io(format!("the version {version} of the Delta table {} cannot be read", self.location.text))
                .with_source(error)
        };
        match self.location.object_store.get(&path).await {
            Ok(found) => found.bytes().await.map(Some).map_err(unreadable),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unreadable(error)),
        }
    }

    fn conflict(&self) -> Error {
        Error::new(
            ErrorKind::Conflict,
            format!("others changed the Delta table {} at the same time; run it again", self.location.text),
        )
    }

    /// What a commit means. Whatever is not known to leave schema and protocol alone is a conflict, also a commit that cannot be read, or
    /// not any more.
    fn judge(&self, commit: Option<&[u8]>) -> Theirs {
        let (Some(commit), ours) = (commit, self.transaction) else { return Theirs::Conflict };
        let (mut is_known, mut files) = (true, Files::default());
        for line in commit.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let Ok(Value::Object(action)) = serde_json::from_slice(line) else { return Theirs::Conflict };
            for (kind, content) in &action {
                match kind.as_str() {
                    "commitInfo" | "cdc" => {}
                    "domainMetadata" if RowTracking::greatest_in(content).is_some() => {}
                    "txn" if content["appId"] != ours.id.as_str() => {}
                    "txn" if content["version"].as_i64().is_some_and(|have| have >= ours.version) => {
                        return Theirs::Already;
                    }
                    "add" | "remove" => match self.path_of(content) {
                        Some(path) if kind == "add" => files.added.push(path),
                        Some(path) => files.removed.push(path),
                        None => is_known = false,
                    },
                    _ => is_known = false,
                }
            }
        }
        match is_known {
            true if files == Files::default() => Theirs::Harmless,
            true => Theirs::Files(files),
            false => Theirs::Conflict,
        }
    }

    /// The path of a file as snapshots have it.
    fn path_of(&self, action: &Value) -> Option<String> {
        snapshot_path(self.location, action["path"].as_str()?).ok()
    }
}

/// A commit as its file has it: an action a line.
fn lines_of(actions: &[Value]) -> Vec<u8> {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    lines.join("\n").into_bytes()
}

fn commit_name(version: u64) -> String {
    format!("{version:020}.json")
}

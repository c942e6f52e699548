//! The files of a log that is short, read commit by commit from its beginning.
//!
//! ```text
//! commits 0 to the version ─▶ all at once ─▶ lines, some to each thread ─▶ the last action of each file
//! ```
//!
//! The library makes columns of every action, with its statistics, which takes many times as long as to read the text. Nobody here needs
//! statistics. The library stays the judge of columns and protocol. Where a commit has more than we know, or is gone, it reads the files,
//! too.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use futures::{StreamExt, stream};
use object_store::{ObjectMeta, ObjectStoreExt};

use super::commits::{CommitAction, LogChanges, actions_of, place_of_commit};
use super::logged_file::LoggedFile;
use crate::storage::disk::on_a_thread;
use crate::storage::location::Location;

/// A log with more commits has a checkpoint, and its first commits may be gone.
const MOST_COMMITS: u64 = 32;
/// The bytes of all commits together, which are held in memory.
const MOST_BYTES: u64 = 64 << 20;
/// Commits that are read at a time.
const CONCURRENT_READS: usize = 16;
/// So many bytes of a commit at least are parsed by a thread of their own.
const BYTES_PER_THREAD: usize = 256 * 1024;

/// The files of a version of the table with this id, in no order. None if the log is long, or if its commits alone do not tell them.
pub(super) async fn files(location: &Location, version: u64, table_id: &str) -> Option<Vec<LoggedFile>> {
    if version >= MOST_COMMITS {
        return None;
    }
    let left = AtomicU64::new(MOST_BYTES);
    let reads = (0..=version).map(|version| read(location, version, &left)).collect::<Vec<_>>();
    let mut commits = stream::iter(reads).buffered(CONCURRENT_READS);
    let (mut changes, mut first) = (LogChanges::default(), None);
    while let Some(commit) = commits.next().await {
        let ReadCommit { meta, text: commit } = commit?;
        first.get_or_insert(meta);
        let actions = on_a_thread(move || parsed(&commit)).await.ok()??;
        changes.add_commit(actions)?;
    }
    // The table may have been made anew since the library read the log, or while its commits were read here.
    let first = first?;
    let is_same = changes.table_id.as_deref() == Some(table_id)
        && location.object_store.head(&first.location).await.is_ok_and(|now| now == first);
    is_same.then(|| changes.files.into_values().flatten().collect())
}

struct ReadCommit {
    meta: ObjectMeta,
    text: Bytes,
}

/// The text of a commit, unless that is more than what is left of the bytes that are held.
async fn read(location: &Location, version: u64, left: &AtomicU64) -> Option<ReadCommit> {
    let commit = location.object_store.get(&place_of_commit(location, version)).await.ok()?;
    let meta = commit.meta.clone();
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(meta.size)).ok()?;
    Some(ReadCommit { meta, text: commit.bytes().await.ok()? })
}

/// The actions of a commit, in order. Threads share a large one.
fn parsed(commit: &[u8]) -> Option<Vec<CommitAction>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let parts = cut(commit, commit.len().div_ceil(threads).max(BYTES_PER_THREAD));
    if let [all] = parts.as_slice() {
        return actions_of(all);
    }
    let parts: Option<Vec<Vec<CommitAction>>> = thread::scope(|scope| {
        let begun: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || actions_of(part))).collect();
        begun.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    Some(parts?.into_iter().flatten().collect())
}

/// A text in parts of whole lines that have so many bytes at least, but for the last one.
fn cut(text: &[u8], bytes: usize) -> Vec<&[u8]> {
    let (mut parts, mut left) = (Vec::new(), text);
    while let Some(end) = left.get(bytes..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        && let Some((part, rest)) = left.split_at_checked(bytes + end + 1)
    {
        parts.push(part);
        left = rest;
    }
    parts.push(left);
    parts
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use object_store::ObjectStore;

    use super::*;
    use crate::storage::access::StorageAccess;

    #[tokio::test]
    async fn the_files_of_a_short_log_are_those_of_all_its_commits() {
        let folder = tempfile::tempdir().unwrap();
        let layer = |store: Arc<dyn ObjectStore>| store;
        let location =
            Location::parse(folder.path().to_str().unwrap(), &StorageAccess::default(), &layer).await.unwrap();
        let commit = |version: u64, actions: &str| {
            let log = folder.path().join("_delta_log");
            fs::create_dir_all(&log).unwrap();
            fs::write(log.join(format!("{version:020}.json")), actions).unwrap();
        };
        let add = |file: &str| {
            format!(
                "{{\"add\":{{\"path\":\"{file}\",\"partitionValues\":{{}},\"size\":1,\"modificationTime\":1,\"dataChange\":true}}}}\n"
            )
        };
        let found = async |version: u64, id: &str| {
            let files = files(&location, version, id).await?;
            let mut paths: Vec<String> = files.into_iter().map(|file| file.path).collect();
            paths.sort();
            Some(paths)
        };
        commit(0, &format!("{{\"metaData\":{{\"id\":\"one\"}}}}\n{}{}", add("a"), add("b")));
        commit(1, &format!("{{\"remove\":{{\"path\":\"a\"}}}}\n{}", add("c")));
        assert_eq!(found(0, "one").await.unwrap(), ["a", "b"]);
        assert_eq!(found(1, "one").await.unwrap(), ["b", "c"]);
        assert!(found(1, "other").await.is_none(), "another table");
        assert!(found(2, "one").await.is_none(), "a commit that is not there");
        (2..=MOST_COMMITS).for_each(|version| commit(version, &add(&version.to_string())));
        assert_eq!(found(MOST_COMMITS - 1, "one").await.unwrap().len(), MOST_COMMITS as usize);
        assert!(found(MOST_COMMITS, "one").await.is_none(), "a long log");
        commit(1, "{\"somethingNew\":{}}\n");
        assert!(found(2, "one").await.is_none(), "an action that nobody knows");
    }

    #[test]
    fn a_text_is_cut_behind_lines_and_loses_nothing() {
        let text = b"one\ntwo\n\nthree three three\nfour";
        for bytes in 1..=text.len() + 1 {
            let parts = cut(text, bytes);
            assert_eq!(parts.concat(), text, "{bytes}");
            let (last, whole) = parts.split_last().unwrap();
            assert!(whole.iter().all(|part| part.len() > bytes && part.ends_with(b"\n")), "{bytes}");
            assert!(last.len() <= bytes || !last.get(bytes..).unwrap().contains(&b'\n'), "{bytes}");
        }
        assert_eq!(cut(b"", 4), [b""]);
    }

    #[test]
    fn a_commit_that_threads_share_has_the_same_actions() {
        let line = |file: usize| {
            format!(
                "{{\"add\":{{\"path\":\"f{file}\",\"partitionValues\":{{}},\"size\":{file},\"modificationTime\":1,\
                 \"dataChange\":true,\"stats\":\"{}\"}}}}\n",
                " ".repeat(200)
            )
        };
        let commit: String = (0..8000).map(line).collect();
        assert!(commit.len() > 4 * BYTES_PER_THREAD);
        let parts = cut(commit.as_bytes(), BYTES_PER_THREAD);
        assert!(parts.len() > 3);
        let apart: Vec<CommitAction> = parts.into_iter().flat_map(|part| actions_of(part).unwrap()).collect();
        for actions in [apart, parsed(commit.as_bytes()).unwrap()] {
            let sizes = actions.iter().map(|action| match action {
                CommitAction::Add(file) => file.size,
                _ => -1,
            });
            assert!(sizes.eq(0..8000));
        }
        let unknown = commit + "{\"somethingNew\":{}}\n";
        assert!(parsed(unknown.as_bytes()).is_none());
    }
}

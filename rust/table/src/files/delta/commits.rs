//! What commits of a Delta log change, as far as their files tell it.
//!
//! A commit that does more than to add and remove files says too little by itself: what a new schema or another protocol means is known of
//! the whole log alone. Which files there are does not depend on that, so that all commits of a log tell it.

use std::collections::{HashMap, HashSet};

use buoyant_kernel::actions::deletion_vector::DeletionVectorDescriptor as VectorDescriptor;
use deltalake_core::kernel::DeletionVectorDescriptor;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};
use serde::Deserialize;

use super::LOG_FOLDER;
use super::logged_file::LoggedFile;
use crate::storage::location::Location;

/// Where more commits follow, the log is read as a whole: it has a checkpoint by then.
const MOST_COMMITS: u64 = 32;

/// A larger commit has tens of thousands of files. To hold all of its text and actions costs more than what is saved, and is in vain where
/// one of its actions asks for the whole log.
const MOST_COMMIT_BYTES: u64 = 16 << 20;

/// How the log knows a data file: by the text of its path, and the vector of its deleted rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileKey {
    pub path: String,
    /// The id of the vector.
    pub vector: Option<String>,
}

/// What commits in a row change: the later of two counts.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LogChanges {
    /// Files that were added, or removed.
    pub files: HashMap<FileKey, Option<LoggedFile>>,
    /// The last versions of applications.
    pub transactions: HashMap<String, i64>,
    /// Whether a commit says which columns or which protocol the table has.
    pub redefines: bool,
    /// The id that the last of them gives the table.
    pub table_id: Option<String>,
}

/// Commits that follow a version, up to the end of the log.
pub(super) struct NextCommits {
    pub changes: LogChanges,
    /// The version of the last one.
    pub version: u64,
    /// The file of the last one.
    pub last: ObjectMeta,
}

/// An action of a commit. Any other is unknown.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum CommitAction {
    Add(LoggedFile),
    Remove(RemovedFile),
    Txn(CommittedTransaction),
    MetaData(CommittedMetadata),
    Protocol {},
    CommitInfo {},
    Cdc {},
    DomainMetadata {},
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemovedFile {
    path: String,
    deletion_vector: Option<DeletionVectorDescriptor>,
}

#[derive(Deserialize)]
pub(super) struct CommittedMetadata {
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommittedTransaction {
    app_id: String,
    version: i64,
}

impl FileKey {
    /// Of a file with this vector.
    pub(super) fn new(path: &str, vector: Option<&VectorDescriptor>) -> Self {
        Self { path: path.to_owned(), vector: vector.map(VectorDescriptor::unique_id) }
    }

    /// The same of what the log says; none if the vector is malformed.
    fn of_log(path: &str, vector: Option<DeletionVectorDescriptor>) -> Option<Self> {
        let vector = vector.map(VectorDescriptor::try_from).transpose().ok()?;
        Some(Self::new(path, vector.as_ref()))
    }
}

impl NextCommits {
    /// The commits after a version. None if there is none, or if the log has to be read as a whole.
    pub(super) async fn read(location: &Location, version: u64) -> Option<Self> {
        let mut changes = LogChanges::default();
        let mut last: Option<(u64, ObjectMeta)> = None;
        for version in version + 1..=version + MOST_COMMITS {
            let commit = match location.object_store.get(&place_of_commit(location, version)).await {
                Ok(commit) => commit,
                Err(object_store::Error::NotFound { .. }) => {
                    return last.map(|(version, last)| Self { changes, version, last });
                }
                Err(_) => return None,
            };
            if commit.meta.size > MOST_COMMIT_BYTES {
                return None;
            }
            last = Some((version, commit.meta.clone()));
            changes.add_commit(actions_of(&commit.bytes().await.ok()?)?)?;
            if changes.redefines {
                return None;
            }
        }
        None
    }
}

impl LogChanges {
    /// Adds the next commit. None if the commit alone does not tell which files and transactions it changes.
    pub(super) fn add_commit(&mut self, actions: Vec<CommitAction>) -> Option<()> {
        let (mut files, mut applications) = (HashSet::new(), HashSet::new());
        let has_actions = !actions.is_empty();
        for action in actions {
            let (key, file) = match action {
                CommitAction::Add(file) => (FileKey::of_log(&file.path, file.deletion_vector.clone())?, Some(file)),
                CommitAction::Remove(file) => (FileKey::of_log(&file.path, file.deletion_vector)?, None),
                CommitAction::Txn(transaction) => {
                    if !applications.insert(transaction.app_id.clone()) {
                        return None;
                    }
                    self.transactions.insert(transaction.app_id, transaction.version);
                    continue;
                }
                CommitAction::MetaData(metadata) => {
                    (self.redefines, self.table_id) = (true, Some(metadata.id));
                    continue;
                }
                CommitAction::Protocol {} => {
                    self.redefines = true;
                    continue;
                }
                CommitAction::CommitInfo {} | CommitAction::Cdc {} | CommitAction::DomainMetadata {} => continue,
            };
            // The protocol allows one action for a file in a commit.
            if !files.insert(key.clone()) {
                return None;
            }
            self.files.insert(key, file);
        }
        has_actions.then_some(())
    }
}

/// The actions of a commit, or of some of its lines. None if one of them is unknown.
pub(super) fn actions_of(lines: &[u8]) -> Option<Vec<CommitAction>> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(serde_json::from_slice).collect::<Result<_, _>>().ok()
}

/// Where the file of a commit is.
pub(super) fn place_of_commit(location: &Location, version: u64) -> Path {
    location.prefix.clone().join(LOG_FOLDER).join(format!("{version:020}.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn add(path: &str, size: i64) -> Value {
        json!({"add": {"path": path, "partitionValues": {"p": "1", "q": null}, "size": size, "modificationTime": 7,
            "dataChange": true, "stats": "{}", "tags": {"a": "b"}, "baseRowId": 3}})
    }

    fn remove(path: &str) -> Value {
        json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true}})
    }

    fn changes(commits: &[&[Value]]) -> Option<LogChanges> {
        let mut changes = LogChanges::default();
        for commit in commits {
            let lines: Vec<String> = commit.iter().map(Value::to_string).collect();
            changes.add_commit(actions_of(lines.join("\n").as_bytes())?)?;
        }
        Some(changes)
    }

    fn sizes(changes: &LogChanges) -> Vec<(&str, Option<i64>)> {
        let mut files: Vec<_> =
            changes.files.iter().map(|(key, file)| (key.path.as_str(), file.as_ref().map(|file| file.size))).collect();
        files.sort_unstable();
        files
    }

    #[test]
    fn the_last_action_of_a_file_counts() {
        let first = [add("a", 1), add("b", 2), remove("c"), json!({"commitInfo": {"operation": "WRITE"}})];
        let second = [remove("a"), add("c", 3), add("b", 4), json!({"txn": {"appId": "x", "version": 2}})];
        let third = [json!({"txn": {"appId": "x", "version": 5, "lastUpdated": 1}})];
        let changes = changes(&[&first, &second, &third]).unwrap();
        assert_eq!(sizes(&changes), [("a", None), ("b", Some(4)), ("c", Some(3))]);
        assert_eq!(changes.transactions, HashMap::from([("x".to_owned(), 5)]));
        let file = changes.files.values().flatten().find(|file| file.path == "c").unwrap();
        assert_eq!(file.partition_values, HashMap::from([("p".into(), Some("1".into())), ("q".into(), None)]));
        assert_eq!((file.modification_time, file.deletion_vector.as_ref()), (7, None));
    }

    #[test]
    fn a_file_with_a_vector_is_another_one_than_without() {
        let vector = json!({"storageType": "i", "pathOrInlineDv": "abc", "sizeInBytes": 3, "cardinality": 1});
        let mut with_vector = add("a", 1);
        with_vector["add"]["deletionVector"] = vector;
        let changes = changes(&[&[remove("a"), with_vector]]).unwrap();
        let of = |vector: Option<&str>| FileKey { path: "a".into(), vector: vector.map(str::to_owned) };
        assert_eq!(changes.files.get(&of(None)), Some(&None));
        assert!(changes.files[&of(Some("iabc"))].is_some());
    }

    #[test]
    fn what_a_commit_does_not_tell_by_itself_is_not_guessed() {
        let unknown = json!({"somethingNew": {}});
        let twice = [add("a", 1), remove("a")];
        let transactions = [json!({"txn": {"appId": "x", "version": 1}}), json!({"txn": {"appId": "x", "version": 2}})];
        for commit in [&[unknown][..], &twice, &transactions, &[], &[json!(1)]] {
            assert_eq!(changes(&[commit]), None, "{commit:?}");
        }
    }

    #[test]
    fn a_commit_that_redefines_the_table_says_so_and_which_table_it_is() {
        let metadata = |id: &str| json!({"metaData": {"id": id, "schemaString": "{}"}});
        let protocol = json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}});
        let table = |commits: &[&[Value]]| changes(commits).map(|changes| (changes.redefines, changes.table_id));
        assert_eq!(table(&[&[add("a", 1)]]), Some((false, None)));
        assert_eq!(table(&[&[add("a", 1), protocol.clone()]]), Some((true, None)));
        let begun = [protocol, metadata("x"), add("a", 1)];
        assert_eq!(table(&[&begun, &[metadata("y")], &[remove("a")]]), Some((true, Some("y".to_owned()))));
        assert_eq!(changes(&[&[json!({"metaData": {}})]]), None);
    }
}

//! A commit as it is written: what it removes and adds, and what depends on the version that it becomes.
//!
//! ```text
//! commitInfo  remove …  add …  domainMetadata  cdc …  txn …
//!     │                  │           └─ the greatest id of a row, where the table tracks rows
//!     │                  └─ the id of the file's first row, and the version
//!     └─ the time of the commit, later than that of the commit before
//! ```
//!
//! Others may commit first. The same commit is written for the version after theirs then, with what their commit has left.

use serde_json::{Map, Value, json};

use crate::error::Result;
use crate::files::delta::{DeltaState, RowTracking, WriterFeature};

/// What a table demands of every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommitDemands {
    /// New rows have ids.
    pub tracks_rows: bool,
    /// Rows that are written elsewhere keep theirs.
    pub keeps_row_ids: bool,
    /// A commit has a time, which is later than that of the commit before.
    pub is_timed: bool,
}

impl CommitDemands {
    /// Those of a table.
    ///
    /// # Errors
    /// The table says that it tracks rows, and not how.
    pub(super) fn of(state: &DeltaState) -> Result<Self> {
        let tracking = state.row_tracking()?;
        let is_timed = state.writer_features().contains(&WriterFeature::InCommitTimestamp)
            && state.is_on("delta.enableInCommitTimestamps");
        let keeps_row_ids = tracking.as_ref().is_some_and(|tracking| tracking.columns.is_some());
        Ok(Self { tracks_rows: tracking.is_some(), keeps_row_ids, is_timed })
    }
}

/// What a log has at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogEnd {
    pub version: u64,
    /// The greatest id that a row has or had; below 0 if none has one.
    pub greatest_row_id: i64,
    /// The time of the last commit, in milliseconds since 1970-01-01 UTC, where commits have one.
    pub timestamp: Option<i64>,
}

impl LogEnd {
    /// The end after one more commit, whoever made it.
    pub(super) fn after(self, commit: &[u8]) -> Self {
        let mut end = Self { version: self.version + 1, ..self };
        for action in commit.split(|byte| *byte == b'\n') {
            let Ok(Value::Object(action)) = serde_json::from_slice(action) else { continue };
            if let Some(domain) = action.get("domainMetadata") {
                end.greatest_row_id = end.greatest_row_id.max(RowTracking::greatest_in(domain).unwrap_or(-1));
            }
            let timestamp = action.get("commitInfo").and_then(|info| info["inCommitTimestamp"].as_i64());
            end.timestamp = timestamp.or(end.timestamp);
        }
        end
    }
}

/// A commit that is to be made.
pub(super) struct Commit {
    pub info: CommitInfo,
    /// Actions that remove files.
    pub removes: Vec<Value>,
    pub adds: Vec<AddedFile>,
    /// Actions behind those of data files.
    pub others: Vec<Value>,
    pub demands: CommitDemands,
}

/// What a commit says of itself.
pub(super) struct CommitInfo {
    pub operation: &'static str,
    /// The version that the writer read.
    pub read_version: Option<u64>,
    /// When the writer began to commit, in milliseconds since 1970-01-01 UTC.
    pub now: i64,
    pub metrics: Value,
}

/// A data file that a commit adds.
pub(super) struct AddedFile {
    /// The action, but for what depends on the version.
    pub action: Value,
    pub rows: u64,
}

impl Commit {
    /// A commit that says that nothing was done.
    pub(super) fn of_nothing(info: CommitInfo, demands: CommitDemands) -> Self {
        Self { info, removes: Vec::new(), adds: Vec::new(), others: Vec::new(), demands }
    }

    /// The lines of the commit as the version after this end.
    pub(super) fn lines(&self, end: &LogEnd) -> Vec<Value> {
        let mut lines = vec![self.info_after(end)];
        lines.extend(self.removes.iter().cloned());
        let mut greatest = end.greatest_row_id;
        for AddedFile { action, rows } in &self.adds {
            let mut action = action.clone();
            if self.demands.tracks_rows
                && let Some(add) = action.pointer_mut("/add").and_then(Value::as_object_mut)
            {
                add.insert("baseRowId".to_owned(), json!(greatest.saturating_add(1)));
                add.insert("defaultRowCommitVersion".to_owned(), json!(end.version + 1));
                greatest = greatest.saturating_add(i64::try_from(*rows).unwrap_or(i64::MAX));
            }
            lines.push(action);
        }
        if greatest > end.greatest_row_id {
            lines.push(RowTracking::domain(greatest));
        }
        lines.extend(self.others.iter().cloned());
        lines
    }

    fn info_after(&self, end: &LogEnd) -> Value {
        let CommitInfo { operation, read_version, now, metrics } = &self.info;
        let mut info = Map::new();
        if self.demands.is_timed {
            let timestamp = end.timestamp.map_or(*now, |before| before.saturating_add(1).max(*now));
            info.insert("inCommitTimestamp".to_owned(), json!(timestamp));
        }
        for (name, value) in [
            ("timestamp", json!(now)),
            ("operation", json!(operation)),
            ("operationParameters", json!({})),
            ("readVersion", json!(read_version)),
            ("isolationLevel", json!("Serializable")),
            ("isBlindAppend", json!(false)),
            ("operationMetrics", metrics.clone()),
            ("engineInfo", json!(concat!("lakemark/", env!("CARGO_PKG_VERSION")))),
        ] {
            info.insert(name.to_owned(), value);
        }
        if self.demands.tracks_rows {
            let is_preserved = self.demands.keeps_row_ids || self.adds.is_empty();
            info.insert("tags".to_owned(), json!({"delta.rowTracking.preserved": is_preserved.to_string()}));
        }
        json!({"commitInfo": info})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(rows: &[u64], demands: CommitDemands) -> Commit {
        let info = CommitInfo { operation: "MIGRATE", read_version: Some(6), now: 1000, metrics: json!({}) };
        let adds =
            rows.iter().map(|rows| AddedFile { action: json!({"add": {"path": "a", "baseRowId": null}}), rows: *rows });
        let removes = vec![json!({"remove": {"path": "b"}})];
        Commit { info, removes, adds: adds.collect(), others: vec![json!({"txn": {"appId": "x"}})], demands }
    }

    fn end(version: u64, greatest_row_id: i64, timestamp: Option<i64>) -> LogEnd {
        LogEnd { version, greatest_row_id, timestamp }
    }

    #[test]
    fn rows_get_ids_above_all_others_and_the_version_of_their_commit() {
        let demands = CommitDemands { tracks_rows: true, keeps_row_ids: true, is_timed: false };
        let lines = commit(&[10, 5], demands).lines(&end(6, 41, None));
        let [info, remove, first, second, domain, txn] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(info["commitInfo"]["tags"], json!({"delta.rowTracking.preserved": "true"}));
        assert_eq!(info["commitInfo"].get("inCommitTimestamp"), None);
        assert!(remove.get("remove").is_some() && txn.get("txn").is_some());
        assert_eq!((&first["add"]["baseRowId"], &first["add"]["defaultRowCommitVersion"]), (&json!(42), &json!(7)));
        assert_eq!((&second["add"]["baseRowId"], &second["add"]["defaultRowCommitVersion"]), (&json!(52), &json!(7)));
        let configuration = domain["domainMetadata"]["configuration"].as_str().unwrap();
        assert_eq!(configuration, r#"{"rowIdHighWaterMark":56}"#);
        // Nobody reads those lines as another end than the one that they make.
        let bytes: Vec<String> = lines.iter().map(Value::to_string).collect();
        assert_eq!(end(6, 41, None).after(bytes.join("\n").as_bytes()), end(7, 56, None));
        // A table that does not keep ids says so, and one without new rows has no new id.
        let demands = CommitDemands { keeps_row_ids: false, ..demands };
        let lines = commit(&[1], demands).lines(&end(0, -1, None));
        assert_eq!(lines[0]["commitInfo"]["tags"], json!({"delta.rowTracking.preserved": "false"}));
        assert_eq!(lines[2]["add"]["baseRowId"], json!(0));
        let lines = commit(&[], demands).lines(&end(0, -1, None));
        assert_eq!(lines[0]["commitInfo"]["tags"], json!({"delta.rowTracking.preserved": "true"}));
        assert!(lines.iter().all(|line| line.get("domainMetadata").is_none()));
    }

    #[test]
    fn a_commit_is_later_than_the_one_before() {
        let demands = CommitDemands { is_timed: true, ..CommitDemands::default() };
        let timestamp = |before: Option<i64>| {
            let lines = commit(&[1], demands).lines(&end(3, -1, before));
            assert!(lines[0]["commitInfo"].get("tags").is_none() && lines[2]["add"]["baseRowId"].is_null());
            lines[0]["commitInfo"]["inCommitTimestamp"].as_i64().unwrap()
        };
        assert_eq!([timestamp(None), timestamp(Some(10)), timestamp(Some(5000))], [1000, 1000, 5001]);
        let theirs = br#"{"commitInfo":{"operation":"WRITE","inCommitTimestamp":7000}}"#;
        assert_eq!(end(3, 5, Some(10)).after(theirs), end(4, 5, Some(7000)));
        assert_eq!(end(3, 5, Some(10)).after(b"{\"txn\":{}}\nno JSON"), end(4, 5, Some(10)));
    }
}

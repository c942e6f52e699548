//! Whether the clock of the storage goes with that of this machine.

use chrono::{DateTime, TimeDelta, Utc};

use crate::report::{Problem, ProblemName};
use crate::storage::clock;
use crate::store::Store;

/// Times of files are of whole seconds on some storages, and a request takes its time.
const TOLERATED_SECONDS: i64 = 5;

/// Compares the clocks, by a file that is written and removed. Nothing is written where there is no store yet.
pub(super) async fn look_at(store: &Store) -> Vec<Problem> {
    if store.place().local.as_ref().is_some_and(|root| !root.is_dir()) {
        return Vec::new();
    }
    let before = clock::utc();
    match store.storage_time().await {
        Ok(time) => judged(before, time, clock::utc()),
        Err(error) => {
            let problem = format!("the clock of the storage was not compared: {error}");
            vec![Problem::new(ProblemName::NotChecked, problem, "nothing, if the store is only read from here")]
        }
    }
}

/// What is to be said of a storage that had this time between two times of this machine.
fn judged(before: DateTime<Utc>, time: DateTime<Utc>, after: DateTime<Utc>) -> Vec<Problem> {
    let tolerated = TimeDelta::seconds(TOLERATED_SECONDS);
    let (skew, how) = if time < before - tolerated {
        (before - time, "behind")
    } else if time > after + tolerated {
        (time - after, "ahead of")
    } else {
        return Vec::new();
    };
    let problem = format!("the clock of the storage is {} s {how} that of this machine", skew.num_seconds());
    let remedy = "let both take the time from one source (NTP): what a vacuum may remove, and whether files are fresh, goes by their times";
    vec![Problem::new(ProblemName::ClockSkew, problem, remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_by_some_seconds() {
        let at = |seconds: i64| DateTime::from_timestamp(1_000_000 + seconds, 0).unwrap();
        let said =
            |time: i64| judged(at(0), at(time), at(2)).into_iter().map(|found| found.problem).collect::<Vec<_>>();
        for time in [-5, 0, 2, 7] {
            assert!(said(time).is_empty(), "{time}");
        }
        assert_eq!(said(-6), ["the clock of the storage is 6 s behind that of this machine"]);
        assert_eq!(said(3_602), ["the clock of the storage is 3600 s ahead of that of this machine"]);
    }
}

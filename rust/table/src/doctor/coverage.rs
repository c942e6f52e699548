//! What the newest state says: data files that cannot be read, and what the indexes do not cover.

use std::time::Duration;

use crate::report::{Problem, ProblemName, count};
use crate::snapshot::ReadableSnapshot;
use crate::storage::clock;

/// Clocks may differ by so much before a file is of the future.
const FUTURE_SECONDS: i64 = 60;

/// Data files that cannot be read, and those that are younger than now.
pub(super) fn of_data_files(readable: &ReadableSnapshot) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(first) = readable.unreadable.first() {
        problems.push(Problem::new(
            ProblemName::UnreadableFiles,
            format!(
                "{} cannot be read, such as {}: {}",
                files(readable.unreadable.len() as u64),
                first.path,
                first.problem
            ),
            "mend or remove what is damaged: queries that read it fail",
        ));
    }
    let limit = clock::utc() + chrono::TimeDelta::seconds(FUTURE_SECONDS);
    let mut young = readable.snapshot.files().iter().filter(|file| file.meta.last_modified > limit);
    if let Some(first) = young.next() {
        let number = 1 + young.count() as u64;
        problems.push(Problem::new(
            ProblemName::FilesOfTheFuture,
            format!(
                "{} {} of the future by the clock of this machine, such as {} ({})",
                files(number),
                are(number),
                first.path,
                first.meta.last_modified
            ),
            "set the clocks right: whether a file changed is told by its time, too",
        ));
    }
    problems
}

/// Indexes that are of no use, and data files that some index does not cover.
pub(super) fn of_indexes(location: &str, readable: &ReadableSnapshot) -> Vec<Problem> {
    let snapshot = &readable.snapshot;
    let indexes = snapshot.manifest.iter().flat_map(|manifest| manifest.indexes());
    let mut problems = Vec::new();
    let mut is_there = false;
    for index in indexes {
        is_there = true;
        if index.kind.known().is_none() {
            problems.push(Problem::new(
                ProblemName::UnknownIndex,
                format!(
                    "the index {} is of the kind {}, which this release does not know",
                    index.name,
                    index.kind.as_str()
                ),
                "upgrade Lakemark; queries scan meanwhile",
            ));
        } else if !snapshot.is_usable(index) {
            problems.push(Problem::new(
                ProblemName::UnusableIndex,
                format!("the column of the index {} is gone, or has another type than it was indexed with", index.name),
                format!("run `lakemark index drop {location} {}`, and create it anew", index.name),
            ));
        }
    }
    if !is_there {
        let remedy =
            format!("run `lakemark index create {location} --on COLUMN`, or `lakemark index advise {location}`");
        return vec![Problem::new(ProblemName::NoIndex, "the table has no index, so that queries scan", remedy)];
    }
    let coverage = readable.index_coverage();
    let uncovered = coverage.uncovered_files.saturating_sub(readable.unreadable.len() as u64);
    if uncovered > 0 {
        problems.push(Problem::new(
            ProblemName::UncoveredFiles,
            format!(
                "{} of {} {} without an index, the oldest of them for {}; queries scan them",
                count(uncovered),
                files(coverage.files),
                are(uncovered),
                age(coverage.lag(clock::now()))
            ),
            format!("run `lakemark index build {location}`, and see that cron, timer or watch runs it"),
        ));
    }
    problems
}

pub(super) fn files(number: u64) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{} files", count(number)) }
}

/// The verb that goes with a number.
pub(super) fn are(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

/// A time for people, in its largest unit.
pub(super) fn age(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_are_written_for_people() {
        let ages = [0, 119, 120, 7_199, 7_200, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
        assert_eq!([files(1), files(1_500)], ["1 file", "1,500 files"]);
    }
}

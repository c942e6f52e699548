//! The files of a Delta log by their names, and which of them nobody needs any more.
//!
//! ```text
//! commits       0 1 2 3 4 5 6 7 8 9          expired: those made before the day on which the table's time of keeping began
//! checkpoints       2     5   7              the last one among them stays, and everything after it
//!               └── removed ─┘└─ kept
//! ```

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, NaiveTime, Utc};
use object_store::ObjectMeta;
use object_store::path::Path;

/// Digits of a version in a name.
const VERSION_DIGITS: usize = 20;

/// A file of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LogFile {
    Commit,
    /// A checkpoint, or one of these so many parts of one.
    Checkpoint {
        parts: u64,
    },
    Checksum,
    /// Commits from its version on in one file.
    Compacted,
}

/// A file of a log and the version that its name begins with.
struct NamedFile<'a> {
    version: u64,
    file: LogFile,
    meta: &'a ObjectMeta,
}

impl LogFile {
    /// What a name says; none if it is another file.
    fn of_name(name: &str) -> Option<(u64, Self)> {
        let (version, rest) = name.split_once('.')?;
        let version = number(version, VERSION_DIGITS)?;
        let parts: Vec<&str> = rest.split('.').collect();
        let file = match parts.as_slice() {
            ["json"] => Self::Commit,
            ["crc"] => Self::Checksum,
            ["checkpoint", "parquet"] | ["checkpoint", _, "parquet" | "json"] => Self::Checkpoint { parts: 1 },
            ["checkpoint", part, parts, "parquet"] => {
                number(part, 10)?;
                Self::Checkpoint { parts: number(parts, 10)? }
            }
            [until, "compacted", "json"] => {
                number(until, VERSION_DIGITS)?;
                Self::Compacted
            }
            _ => return None,
        };
        Some((version, file))
    }
}

fn number(text: &str, digits: usize) -> Option<u64> {
    text.parse().ok().filter(|_| text.len() == digits && text.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The midnight at which the day began that is so long ago, in milliseconds since 1970-01-01 UTC: what is not newer is old. None for an empty
/// log, or if there was no such day.
///
/// The log was written to just now. So now is no later than its last file, whatever our own clock says.
pub(super) fn cutoff_ms(listed: &[ObjectMeta], now: DateTime<Utc>, kept: Duration) -> Option<i64> {
    let last = listed.iter().map(|meta| meta.last_modified).max()?;
    let since = last.min(now).checked_sub_signed(kept)?;
    Some(since.date_naive().and_time(NaiveTime::MIN).and_utc().timestamp_millis())
}

/// The files of a log that are not needed for any version from this time on, in milliseconds since 1970-01-01 UTC. They are in the order
/// of their versions, so that a log is whole after each removal. There are none as long as no checkpoint makes them superfluous.
pub(super) fn expired(listed: &[ObjectMeta], cutoff_ms: i64) -> Vec<Path> {
    let mut files: Vec<NamedFile<'_>> = listed
        .iter()
        .filter_map(|meta| {
            let (version, file) = LogFile::of_name(meta.location.filename()?)?;
            Some(NamedFile { version, file, meta })
        })
        .collect();
    files.sort_by_key(|named| named.version);
    let commits = files.iter().filter(|named| named.file == LogFile::Commit);
    // A later commit may have an earlier time, where clocks differ: it counts as late as those before it.
    let old = commits.take_while(|named| named.meta.last_modified.timestamp_millis() <= cutoff_ms);
    let Some(last) = old.map(|named| named.version).last() else { return Vec::new() };
    let Some(kept) = whole_checkpoints(&files).into_iter().filter(|version| *version <= last).max() else {
        return Vec::new();
    };
    let is_expired = |named: &&NamedFile<'_>| match named.file {
        LogFile::Compacted => named.version <= kept,
        LogFile::Commit | LogFile::Checkpoint { .. } | LogFile::Checksum => named.version < kept,
    };
    files.iter().filter(is_expired).map(|named| named.meta.location.clone()).collect()
}

/// The versions with a checkpoint of which all parts are there.
fn whole_checkpoints(files: &[NamedFile<'_>]) -> Vec<u64> {
    let mut there: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for named in files {
        if let LogFile::Checkpoint { parts } = named.file {
            *there.entry((named.version, parts)).or_default() += 1;
        }
    }
    there.into_iter().filter(|((_, parts), there)| there >= parts).map(|((version, _), _)| version).collect()
}

/// The milliseconds of an interval such as `interval 30 days` or `interval 1 week 12 hours`; none if it is written in another way.
pub(super) fn interval_ms(text: &str) -> Option<i64> {
    let lower = text.trim().to_lowercase();
    let mut words = lower.strip_prefix("interval").unwrap_or(&lower).split_whitespace();
    let mut sum: Option<i64> = None;
    while let Some(count) = words.next() {
        let count = count.parse::<i64>().ok().filter(|count| *count >= 0)?;
        let unit = match words.next()?.trim_end_matches('s') {
            "millisecond" => 1,
            "second" => 1_000,
            "minute" => 60_000,
            "hour" => 3_600_000,
            "day" => 86_400_000,
            "week" => 7 * 86_400_000,
            _ => return None,
        };
        sum = Some(sum.unwrap_or_default().checked_add(count.checked_mul(unit)?)?);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a log, each with the day of its time.
    fn listed(files: &[(&str, i64)]) -> Vec<ObjectMeta> {
        let meta = |(name, day): &(&str, i64)| ObjectMeta {
            location: Path::from(format!("t/_delta_log/{name}")),
            last_modified: DateTime::from_timestamp(day * 86_400, 0).unwrap(),
            size: 1,
            e_tag: None,
            version: None,
        };
        files.iter().map(meta).collect()
    }

    fn of_version(version: u64, rest: &str) -> String {
        format!("{version:020}.{rest}")
    }

    /// The names of the files that expire after so many days.
    fn expired_after(files: &[(String, i64)], days: i64) -> Vec<String> {
        let files: Vec<(&str, i64)> = files.iter().map(|(name, day)| (name.as_str(), *day)).collect();
        let gone = expired(&listed(&files), days * 86_400_000);
        gone.iter().map(|path| path.filename().unwrap().to_owned()).collect()
    }

    fn commits(days: &[i64]) -> Vec<(String, i64)> {
        (0u64..).zip(days).map(|(version, day)| (of_version(version, "json"), *day)).collect()
    }

    #[test]
    fn what_is_before_the_last_old_checkpoint_expires() {
        let mut files = commits(&[1, 2, 3, 4, 5, 6]);
        files.push((of_version(2, "checkpoint.parquet"), 9));
        files.push((of_version(4, "checkpoint.parquet"), 9));
        files.push((of_version(1, "crc"), 9));
        files.push((of_version(4, "crc"), 9));
        files.push(("_last_checkpoint".to_owned(), 0));
        files.push((format!("{:020}.{:020}.compacted.json", 2, 3), 9));
        assert_eq!(expired_after(&files, 0), [] as [&str; 0]);
        assert_eq!(expired_after(&files, 2), [] as [&str; 0], "no checkpoint is so old");
        let commit = |version: u64| of_version(version, "json");
        let until_2 = [commit(0), commit(1), of_version(1, "crc"), format!("{:020}.{:020}.compacted.json", 2, 3)];
        assert_eq!(expired_after(&files, 3), until_2);
        assert_eq!(expired_after(&files, 4), until_2);
        let mut until_4 = until_2.to_vec();
        until_4.extend([commit(2), of_version(2, "checkpoint.parquet"), commit(3)]);
        let mut found = expired_after(&files, 99);
        found.sort();
        until_4.sort();
        assert_eq!(found, until_4);
    }

    #[test]
    fn a_clock_that_is_ahead_makes_no_log_old() {
        let hour = |hours: i64| DateTime::from_timestamp(hours * 3600, 0).unwrap();
        let log = listed(&[("1", 3), ("2", 40), ("3", 9)]);
        let cutoff = |now: i64, kept: Duration| cutoff_ms(&log, hour(now), kept).map(|cutoff| cutoff / 3_600_000);
        // The last file is of the day 40.
        assert_eq!(cutoff(41 * 24 - 1, Duration::days(30)), Some(10 * 24));
        assert_eq!(cutoff(1_000 * 24, Duration::days(30)), Some(10 * 24));
        // A clock that is behind keeps more.
        assert_eq!(cutoff(35 * 24 + 7, Duration::days(30)), Some(5 * 24));
        assert_eq!(cutoff(1_000 * 24, Duration::hours(1)), Some(39 * 24));
        assert_eq!(cutoff(1_000 * 24, Duration::MAX), None);
        assert_eq!(cutoff_ms(&[], hour(1), Duration::days(30)), None);
    }

    #[test]
    fn a_late_commit_keeps_those_behind_it() {
        let mut files = commits(&[1, 9, 3, 4]);
        files.push((of_version(2, "checkpoint.parquet"), 1));
        assert_eq!(expired_after(&files, 5), [] as [&str; 0]);
        assert_eq!(expired_after(&files, 9).len(), 2);
    }

    #[test]
    fn a_checkpoint_counts_once_all_of_its_parts_are_there() {
        let part = |part: u64| (format!("{:020}.checkpoint.{part:010}.{:010}.parquet", 2, 2), 1);
        let mut files = commits(&[1, 1, 1]);
        files.push(part(1));
        assert_eq!(expired_after(&files, 5), [] as [&str; 0]);
        files.push(part(2));
        assert_eq!(expired_after(&files, 5), [of_version(0, "json"), of_version(1, "json")]);
        let mut files = commits(&[1, 1, 1]);
        files.push((of_version(1, "checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"), 1));
        assert_eq!(expired_after(&files, 5), [of_version(0, "json")]);
    }

    #[test]
    fn intervals_are_read_as_tables_write_them() {
        for (text, expected) in [
            ("interval 30 days", Some(30 * 86_400_000)),
            ("INTERVAL 1 week 12 hours", Some(7 * 86_400_000 + 12 * 3_600_000)),
            ("2 minutes", Some(120_000)),
            ("interval 1 month", None),
            ("interval -1 days", None),
            ("interval days", None),
            ("interval 9999999999999 weeks", None),
            ("", None),
        ] {
            assert_eq!(interval_ms(text), expected, "{text}");
        }
    }
}

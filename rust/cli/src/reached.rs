//! How far a job is, as numbers and as a line. The time is given, so that tests own it.

use lakemark_table::report::{bytes, count};
use serde_json::{Map, Value, json};

use crate::log::object;

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reached {
    /// Rows that were read.
    pub(crate) rows: u64,
    /// Rows that there are to read.
    pub(crate) total_rows: u64,
    /// Data files that are done.
    pub(crate) files: u64,
    /// Bytes that were read from storage.
    pub(crate) bytes: u64,
    /// Seconds since it began.
    pub(crate) seconds: f64,
}

impl Reached {
    /// How much is done, 0 to 1; of nothing, all.
    fn share(&self) -> f64 {
        if self.total_rows == 0 { 1.0 } else { (self.rows as f64 / self.total_rows as f64).min(1.0) }
    }

    fn per_second(&self, number: u64) -> f64 {
        if self.seconds > 0.0 { number as f64 / self.seconds } else { 0.0 }
    }

    /// Seconds that are left if it goes on as until now; none before the first row.
    fn seconds_left(&self) -> Option<f64> {
        let left = self.total_rows.saturating_sub(self.rows);
        (self.rows > 0).then(|| left as f64 * self.seconds / self.rows as f64)
    }

    /// Files, rates and the time that is left, as they stand behind a bar.
    pub(crate) fn rates(&self) -> String {
        let left = self.seconds_left().map_or_else(String::new, |left| format!(", {} left", duration(left)));
        format!(
            "{} files, {} rows/s, {}/s{left}",
            count(self.files),
            count(self.per_second(self.rows) as u64),
            bytes(self.per_second(self.bytes) as u64)
        )
    }

    /// A line for a log.
    pub(crate) fn line(&self, verb: &str, table: &str) -> String {
        let share = (self.share() * 100.0).floor();
        let (rows, total) = (count(self.rows), count(self.total_rows));
        format!("{verb} {table}: {share} %, {rows} of {total} rows, {}", self.rates())
    }

    /// The same as fields.
    pub(crate) fn fields(&self, verb: &str, table: &str) -> Map<String, Value> {
        object(json!({
            "verb": verb,
            "table": table,
            "rows": self.rows,
            "total_rows": self.total_rows,
            "files": self.files,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "rows_per_second": self.per_second(self.rows),
            "bytes_per_second": self.per_second(self.bytes),
            "seconds_left": self.seconds_left(),
        }))
    }
}

/// A time as people say it, in its two largest units.
fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(rows: u64, seconds: f64) -> Reached {
        Reached { rows, total_rows: 4_000_000, files: 12, bytes: 30 << 20, seconds }
    }

    #[test]
    fn a_line_says_how_much_is_done_how_fast_and_how_long_it_takes() {
        assert_eq!(
            reached(1_000_000, 10.0).line("build", "/lake/flights"),
            "build /lake/flights: 25 %, 1,000,000 of 4,000,000 rows, 12 files, 100,000 rows/s, 3.0 MiB/s, 30 s left"
        );
    }

    #[test]
    fn before_the_first_row_nobody_knows_how_long_it_takes() {
        let line = reached(0, 0.0).line("build", "t");
        assert_eq!(line, "build t: 0 %, 0 of 4,000,000 rows, 12 files, 0 rows/s, 0 B/s");
        assert_eq!(reached(0, 5.0).fields("build", "t")["seconds_left"], Value::Null);
    }

    #[test]
    fn nothing_to_read_is_done_and_more_rows_than_announced_are_no_more_than_all() {
        assert!(Reached::default().line("build", "t").contains(": 100 %, 0 of 0 rows"));
        assert!(reached(5_000_000, 10.0).line("build", "t").contains(": 100 %, "));
        assert!(reached(5_000_000, 10.0).line("build", "t").ends_with(", 0 s left"));
        // As long as a row is left it is not all.
        assert!(reached(3_999_999, 10.0).line("build", "t").contains(": 99 %, "));
    }

    #[test]
    fn fields_have_numbers_in_one_unit_each() {
        let fields = reached(1_000_000, 10.0).fields("compact", "t");
        assert_eq!((&fields["verb"], &fields["table"]), (&json!("compact"), &json!("t")));
        assert_eq!((&fields["rows_per_second"], &fields["seconds_left"]), (&json!(100_000.0), &json!(30.0)));
    }

    #[test]
    fn times_have_their_two_largest_units() {
        assert_eq!(
            [0.4, 59.4, 61.0, 3599.0, 3600.0, 90_061.0].map(duration),
            ["0 s", "59 s", "1 min 1 s", "59 min 59 s", "1 h 0 min", "25 h 1 min"]
        );
    }
}

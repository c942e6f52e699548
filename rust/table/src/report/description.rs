//! What reports say to people, once: text of a shell, text of Python and the tables of notebooks are drawn from it.

use std::fmt;

use serde::Serialize;

use crate::report::{
    BuildReport, CompactReport, Finding, MigrateReport, PublishReport, TableInfo, UpdatesInfo, VacuumReport,
    VerifyReport,
};

/// Columns of a table that are named; of wider tables the others are counted.
const NAMED_COLUMNS: usize = 64;

/// A report as people read it. As text it is one line with the facts behind the title, and the notes below; without a title each fact has a
/// line of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// What was done; empty if nothing was to be done but to look.
    pub title: String,
    /// Values for people, each with its name.
    pub facts: Vec<(String, String)>,
    /// What else is worth a line: findings, and what to do next.
    pub notes: Vec<String>,
}

impl Description {
    fn titled(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    fn findings(mut self, prefix: &str, findings: &[Finding]) -> Self {
        self.notes.extend(findings.iter().map(|Finding { path, problem }| format!("{prefix}{path}: {problem}")));
        self
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        if self.title.is_empty() {
            let width = self.facts.iter().map(|(name, _)| name.chars().count() + 1).max().unwrap_or_default();
            lines.extend(self.facts.iter().map(|(name, value)| format!("{:<width$} {value}", format!("{name}:"))));
        } else {
            let facts: Vec<String> = self.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let colon = if facts.is_empty() { "" } else { ": " };
            lines.push(format!("{}{colon}{}", self.title, facts.join(", ")));
        }
        lines.extend(self.notes.iter().cloned());
        f.write_str(&lines.join("\n"))
    }
}

/// A report that is read by people and, as JSON, by programs.
pub trait Report: Serialize {
    /// What it says to people.
    fn describe(&self) -> Description;
}

impl Report for BuildReport {
    fn describe(&self) -> Description {
        let able = if self.declined.is_empty() { "" } else { " that they can" };
        let mut said = if self.segments > 0 {
            Description::titled(format!("built {}", self.indexes.join(", ")))
                .fact("rows", count(self.rows))
                .fact("files", count(self.files))
                .fact("segments", count(self.segments))
                .fact("written", bytes(self.bytes_written))
                .fact("time", time(self.seconds))
        } else if self.repaired > 0 {
            Description::titled("nothing to build: no data file is left of what lost segments covered")
        } else {
            Description::titled(format!("nothing to build: the indexes cover every file{able}"))
        };
        if self.repaired > 0 {
            said = said.note(format!(
                "{} segments were missing or damaged: what they covered counts as not indexed, and is built again",
                count(self.repaired)
            ));
        }
        if self.adopted > 0 {
            let adopted = count(self.adopted);
            said = said.note(format!("took over {adopted} touched files: their bytes are those that were indexed"));
        }
        if !self.skipped.is_empty() {
            let skipped = self.skipped.join(", ");
            said = said.note(format!("left out, because they changed while they were read: {skipped}"));
        }
        said.findings("left out: ", &self.declined).findings("", &self.false_statistics)
    }
}

impl Report for CompactReport {
    fn describe(&self) -> Description {
        if self.segments_written == 0 {
            return Description::titled(
                "nothing to merge: every index has as few segments as its files_per_segment allows",
            );
        }
        Description::titled(format!("merged segments of {}", self.indexes.join(", ")))
            .fact("segments merged", count(self.segments_merged))
            .fact("segments written", count(self.segments_written))
            .fact("written", bytes(self.bytes_written))
            .fact("time", time(self.seconds))
            .note("a vacuum removes the merged segments once they are old enough")
    }
}

impl Report for VerifyReport {
    fn describe(&self) -> Description {
        let mut said = match self.indexes.len() {
            0 => Description::titled("no index to verify"),
            indexes => Description::titled("verified").fact("indexes", count(indexes as u64)),
        };
        for index in &self.indexes {
            let (damaged, stale) = (count(index.damaged.len() as u64), count(index.stale.len() as u64));
            let files = count(index.files_ok);
            said = said
                .note(format!("{}: {files} files ok, {damaged} damaged, {stale} stale", index.name))
                .findings("  damaged: ", &index.damaged)
                .findings("  stale: ", &index.stale);
        }
        said.findings("", &self.false_statistics)
    }
}

impl Report for VacuumReport {
    fn describe(&self) -> Description {
        let mut said = Description::titled(if self.dry_run { "would remove" } else { "removed" })
            .fact("files", count(self.removed.len() as u64))
            .fact("bytes", bytes(self.bytes))
            .fact("manifests kept", count(self.manifests_kept))
            .fact("segments kept", count(self.segments_kept))
            .fact("time", time(self.seconds));
        if self.dry_run {
            said.notes.extend(self.removed.iter().map(|waste| format!("{}: {}", waste.path, bytes(waste.bytes))));
        }
        said
    }
}

impl Report for MigrateReport {
    fn describe(&self) -> Description {
        if self.files_replaced + self.files_written == 0 {
            return Description::titled("nothing to migrate");
        }
        let said = Description::titled("migrated")
            .fact("rows", count(self.rows))
            .fact("rows replaced or removed", count(self.rows_hidden))
            .fact("files replaced", count(self.files_replaced))
            .fact("files written", count(self.files_written))
            .fact("written", bytes(self.bytes_written))
            .fact("time", time(self.seconds));
        match self.delta_version {
            Some(version) => said.fact("Delta version", version.to_string()),
            None => said,
        }
    }
}

impl Report for PublishReport {
    fn describe(&self) -> Description {
        if self.files_published + self.originals_moved == 0 {
            return Description::titled("nothing to publish");
        }
        Description::titled("published")
            .fact("files", count(self.files_published))
            .fact("originals moved to the store", count(self.originals_moved))
            .fact("bytes", bytes(self.bytes_published))
            .fact("time", time(self.seconds))
    }
}

impl Report for UpdatesInfo {
    fn describe(&self) -> Description {
        let merged = self.runs.iter().filter(|run| run.passes > 1).count();
        let threshold = self.migration_threshold;
        let threshold = threshold.map_or(String::new(), |share| format!(", migrated from {:.0}% on", share * 100.0));
        let (pending, hidden) = (count(self.rows_pending), count(self.rows_hidden));
        Description::default()
            .fact("key", self.key.join(", "))
            .fact("last change", format!("number {}", count(self.sequence)))
            .fact("pending rows", format!("{pending}, {hidden} rows of data files hidden"))
            .fact(
                "buffer",
                format!(
                    "{} of {}, {} keys",
                    bytes(self.buffer_bytes),
                    bytes(self.buffer_limit),
                    count(self.buffer_keys)
                ),
            )
            .fact("runs", format!("{} of {}, {merged} of them merged", self.runs.len(), count(self.runs_limit)))
            .fact(
                "cache",
                format!(
                    "{} of {}, {:.1}% full{threshold}",
                    bytes(self.cache_bytes),
                    bytes(self.cache_limit),
                    self.cache_share * 100.0
                ),
            )
            .fact("writes per update", format!("{:.2} of at most {:.2}", self.writes_per_update, self.writes_bound))
            .fact(
                "written",
                format!(
                    "{} to logs, {} to runs, {} merged",
                    bytes(self.log_bytes),
                    bytes(self.flushed_bytes),
                    bytes(self.merged_bytes)
                ),
            )
    }
}

impl Report for TableInfo {
    fn describe(&self) -> Description {
        let number = |number: Option<u64>| number.map_or_else(|| "none".to_owned(), |number| number.to_string());
        let mut said = Description::default()
            .fact("location", self.location.clone())
            .fact("format", self.format.clone())
            .fact("store", self.store.clone().unwrap_or_else(|| "none".to_owned()));
        if self.delta_version.is_some() {
            said = said.fact("Delta version", number(self.delta_version));
        }
        said = said
            .fact("manifest", number(self.manifest))
            .fact("files", format!("{}, {}", count(self.files), bytes(self.bytes)))
            .fact("rows", count(self.rows))
            .fact("columns", count(self.columns.len() as u64));
        for column in self.columns.iter().take(NAMED_COLUMNS) {
            let partition = if self.partition_columns.contains(&column.name) { ", partition" } else { "" };
            said = said.fact(format!("  {}", column.name), format!("{}{partition}", column.data_type));
        }
        if let Some(more) = self.columns.len().checked_sub(NAMED_COLUMNS).filter(|more| *more > 0) {
            said = said.fact("  …", format!("{} more", count(more as u64)));
        }
        for index in &self.indexes {
            let (covered, size) = (index.coverage * 100.0, bytes(index.bytes));
            let how = format!("{} ({}) on {}", index.kind, index.encoding, index.column);
            said = said.fact(format!("index {}", index.name), format!("{how}, {covered:.0}% covered, {size}"));
        }
        if self.indexes.is_empty() {
            said = said.fact("indexes", "none");
        }
        match &self.updates {
            Some(updates) => said.facts.extend(updates.describe().facts),
            None => said = said.fact("updates", "none"),
        }
        said
    }
}

/// A number with commas between thousands.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the largest unit that it has one of.
fn bytes(number: u64) -> String {
    let mut size = number as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0 {
        let Some(larger) = units.next() else { break };
        (size, unit) = (size / 1024.0, larger);
    }
    if number < 1024 { format!("{number} B") } else { format!("{size:.1} {unit}") }
}

fn time(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ColumnInfo;

    #[test]
    fn numbers_are_written_for_people() {
        let counts = [0, 999, 1000, 123_456, 1_234_567].map(count);
        assert_eq!(counts, ["0", "999", "1,000", "123,456", "1,234,567"]);
        let sizes = [0, 1023, 1536, 5 << 30, 3 << 50].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3072.0 TiB"]);
    }

    #[test]
    fn a_title_has_its_facts_in_one_line_and_others_have_a_line_each() {
        let said = Description::titled("built a").fact("rows", "7").fact("time", "0.10 s").note("took over 1 file");
        assert_eq!(said.to_string(), "built a: rows 7, time 0.10 s\ntook over 1 file");
        let said = Description::default().fact("key", "id").fact("last change", "number 3");
        assert_eq!(said.to_string(), "key:         id\nlast change: number 3");
        assert_eq!(Description::titled("nothing to do").to_string(), "nothing to do");
    }

    #[test]
    fn of_wide_tables_some_columns_are_named() {
        let column = |place: usize| ColumnInfo { name: format!("c{place}"), ..ColumnInfo::default() };
        let info = TableInfo { columns: (0..70).map(column).collect(), ..TableInfo::default() };
        let said = info.describe().to_string();
        assert!(said.contains("c63") && !said.contains("c64") && said.contains("6 more"), "{said}");
    }
}

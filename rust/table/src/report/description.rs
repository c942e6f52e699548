//! What reports say to people, once: text of a shell, text of Python and the tables of notebooks are drawn from it.

use std::fmt;

use serde::Serialize;

/// A report as people read it. As text it is one line with the facts behind the title, and the notes below; without a title each fact has a
/// line of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// What was done; empty for a report that only shows something.
    pub title: String,
    /// Values for people, each with its name.
    pub facts: Vec<(String, String)>,
    /// What else is worth a line: findings, and what to do next.
    pub notes: Vec<String>,
}

impl Description {
    pub(super) fn titled(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    pub(super) fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub(super) fn notes(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
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
    /// What the report says to people.
    fn describe(&self) -> Description;
}

/// A number with commas between thousands.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the largest unit that it has one of.
#[must_use]
pub fn bytes(number: u64) -> String {
    let mut size = number as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size >= 1024.0 {
        let Some(larger) = units.next() else { break };
        (size, unit) = (size / 1024.0, larger);
    }
    if number < 1024 { format!("{number} B") } else { format!("{size:.1} {unit}") }
}

pub(super) fn time(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

//! Advice as a struct that becomes JSON, and as text.

use std::fmt;

use lakemark_format::Encoding;
use serde::Serialize;

use crate::index_kind::IndexKind;
use crate::report::serialized::as_text;

/// Queries that are shown one by one in the text.
const SHOWN: usize = 20;
/// Characters of a query that are shown.
const TEXT: usize = 60;

/// Which indexes to build, and what they would save.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// Rows of the table.
    pub rows: u64,
    /// Rows that were read for the advice.
    pub sampled_rows: u64,
    /// Queries that the advice is about; 0 if it is about the standard shapes of predicates over every column.
    pub queries: u64,
    /// Indexes to build, the one that saves most first, each beside those before it.
    pub indexes: Vec<Proposal>,
    /// Indexes that nothing in the queries can use.
    pub unused: Vec<String>,
    /// Other layouts of the data that would save much.
    pub layout: Vec<LayoutHint>,
    /// What each query reads now and with the indexes proposed.
    pub gains: Vec<QueryGain>,
    /// Queries that could not be read.
    pub problems: Vec<QueryProblem>,
}

/// An index to build.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// Its column.
    pub column: String,
    /// Its kind, as `--using` takes it.
    #[serde(serialize_with = "as_text")]
    pub kind: IndexKind,
    /// Its encoding.
    #[serde(serialize_with = "as_text")]
    pub encoding: Encoding,
    /// Why this kind and encoding.
    pub reason: String,
    /// Distinct values of a segment, about; of the table if it is no bitmap.
    pub values: u64,
    /// Bytes that it will take.
    pub predicted_bytes: u64,
    /// Bytes that a query need not read with it, on average over all queries.
    pub saved_bytes: u64,
    /// Queries that read less with it.
    pub queries: u64,
    /// Columns to include, so that lookups of these read no data.
    pub include: Vec<String>,
}

impl Proposal {
    /// The column, and those to include, as a statement has them.
    fn columns(&self) -> String {
        match self.include.is_empty() {
            true => self.column.clone(),
            false => format!("{} INCLUDE ({})", self.column, self.include.join(", ")),
        }
    }
}

/// Another layout of the data.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayoutHint {
    /// What to change.
    pub change: String,
    /// Bytes that all queries read with all indexes.
    pub bytes_now: u64,
    /// The same with the change.
    pub bytes_after: u64,
}

impl LayoutHint {
    pub(super) fn new(change: String, now: f64, after: f64) -> Self {
        Self { change, bytes_now: now as u64, bytes_after: after as u64 }
    }
}

/// What a query reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueryGain {
    /// Its first line in the file.
    pub line: u64,
    /// The query, in one line.
    pub text: String,
    /// Bytes that it reads, predicted.
    pub bytes_now: u64,
    /// The same with the indexes proposed.
    pub bytes_after: u64,
}

/// A query that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueryProblem {
    /// Its first line in the file.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.queries {
            0 => "standard predicates over every column".to_owned(),
            1 => "1 query".to_owned(),
            queries => format!("{queries} queries"),
        };
        writeln!(f, "{of}, {} rows of which {} were read to predict", self.rows, self.sampled_rows)?;
        if self.indexes.is_empty() {
            writeln!(f, "\nno further index would save enough to be worth its bytes")?;
        } else {
            writeln!(f, "\nindexes to build:")?;
            let proposal = |proposal: &Proposal| {
                vec![
                    proposal.columns(),
                    proposal.kind.name().to_owned(),
                    proposal.encoding.name().to_owned(),
                    proposal.values.to_string(),
                    megabytes(proposal.predicted_bytes),
                    megabytes(proposal.saved_bytes),
                    proposal.queries.to_string(),
                ]
            };
            let head = ["column", "kind", "encoding", "values", "MB", "a query saves, MB", "queries"];
            write_table(f, &head, &self.indexes.iter().map(proposal).collect::<Vec<_>>())?;
        }
        if !self.gains.is_empty() {
            writeln!(f, "\nqueries, MB read now and with these indexes:")?;
            let gain = |gain: &QueryGain| {
                let text = gain.text.chars().take(TEXT).collect();
                vec![gain.line.to_string(), text, megabytes(gain.bytes_now), megabytes(gain.bytes_after)]
            };
            let rows: Vec<_> = self.gains.iter().take(SHOWN).map(gain).collect();
            write_table(f, &["line", "query", "now", "then"], &rows)?;
            if self.gains.len() > SHOWN {
                writeln!(f, "… and {} more", self.gains.len() - SHOWN)?;
            }
        }
        if !self.unused.is_empty() {
            writeln!(f, "\nno query can use: {}", self.unused.join(", "))?;
        }
        for hint in &self.layout {
            let (now, after) = (megabytes(hint.bytes_now), megabytes(hint.bytes_after));
            writeln!(f, "\nlayout: with {} all queries would read {after} MB instead of {now}", hint.change)?;
        }
        for problem in &self.problems {
            writeln!(f, "\nnot looked at: line {}: {}", problem.line, problem.problem)?;
        }
        Ok(())
    }
}

fn megabytes(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    if megabytes < 10.0 { format!("{megabytes:.2}") } else { format!("{megabytes:.0}") }
}

fn write_table(f: &mut fmt::Formatter<'_>, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    let width = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count());
        cells.chain(head.get(place).map(|name| name.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let is_number = |cell: &str| cell.chars().all(|c| c.is_ascii_digit() || c == '.');
    let names = head.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            line.push_str("  ");
            line.push_str(&if is_number(cell) { padding + cell } else { format!("{cell}{padding}") });
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

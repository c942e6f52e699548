//! How a predicate was answered, and what that cost.

use std::fmt;

use lakemark_format::{Encoding, NameOf};
use lakemark_index::Reason;
use serde::{Serialize, Serializer};

use crate::report::serialized::as_optional_text;

/// How one condition of a predicate was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeafReport {
    /// The condition as SQL.
    pub text: String,
    /// The column, or the way to the field, if the condition is about one.
    pub column: Option<String>,
    /// What answered, at least for some files.
    #[serde(serialize_with = "as_optional_text")]
    pub index: Option<AnsweredBy>,
    /// The encoding of that index.
    #[serde(serialize_with = "as_optional_text")]
    pub encoding: Option<NameOf<Encoding>>,
    /// Why `auto` chose the encoding, if it did.
    pub choice: Option<String>,
    /// Why no index answered, at least for some files.
    #[serde(serialize_with = "reason_code")]
    pub reason: Option<Reason>,
    /// Rows for which the condition may be true, in the files where an index was probed: not in files that another condition ruled out.
    pub rows: Option<u64>,
}

fn reason_code<S: Serializer>(reason: &Option<Reason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(Reason::code).serialize(serializer)
}

/// What answered a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The index of this name.
    Index(String),
    /// The values of a partition column.
    Partition,
}

impl AnsweredBy {
    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Index(name) => name,
            Self::Partition => "partition",
        }
    }
}

impl fmt::Display for AnsweredBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a probe found and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProbeReport {
    /// The conditions in the order of the text.
    pub leaves: Vec<LeafReport>,
    /// Share of the data files for which the index ruled rows out or answered everything.
    pub coverage: f64,
    /// Data files of the snapshot.
    pub files_total: u64,
    /// Data files that need not be read.
    pub files_pruned: u64,
    /// Data files that must be scanned as without an index.
    pub files_scanned: u64,
    /// Row groups of the files that are not unknown.
    pub row_groups_total: u64,
    /// Row groups among them that need not be read.
    pub row_groups_pruned: u64,
    /// Rows of the files that are not unknown.
    pub rows_total: u64,
    /// Rows that are exact: they are in the answer without a test.
    pub rows_exact: u64,
    /// Rows that must be read and rechecked.
    pub rows_rechecked: u64,
    /// Reads of the store.
    pub index_reads: u64,
    /// Bytes of these reads.
    pub index_bytes_read: u64,
    /// Wall time of the probe.
    pub seconds: f64,
}

impl fmt::Display for ProbeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for leaf in &self.leaves {
            write!(f, "  {}: ", leaf.text)?;
            match &leaf.index {
                Some(index) => write!(f, "index {index}")?,
                None => f.write_str("no index")?,
            }
            if let Some(encoding) = &leaf.encoding {
                write!(f, " ({encoding})")?;
            }
            if let (Some(_), Some(rows)) = (&leaf.index, leaf.rows) {
                write!(f, ", {rows} rows")?;
            }
            if let Some(reason) = leaf.reason {
                write!(f, " ({reason})")?;
            }
            writeln!(f)?;
            if let (Some(encoding), Some(choice)) = (&leaf.encoding, &leaf.choice) {
                writeln!(f, "    auto chose {encoding}: {choice}")?;
            }
        }
        writeln!(f, "coverage:   {:.1}% of {} files", self.coverage * 100.0, self.files_total)?;
        writeln!(
            f,
            "files:      {} total, {} pruned, {} scanned",
            self.files_total, self.files_pruned, self.files_scanned
        )?;
        writeln!(f, "row groups: {} known, {} pruned", self.row_groups_total, self.row_groups_pruned)?;
        writeln!(
            f,
            "rows:       {} known, {} exact, {} to recheck",
            self.rows_total, self.rows_exact, self.rows_rechecked
        )?;
        write!(
            f,
            "index:      {} reads, {} bytes, {:.1} ms",
            self.index_reads,
            self.index_bytes_read,
            self.seconds * 1000.0
        )
    }
}

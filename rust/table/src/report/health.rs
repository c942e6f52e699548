//! What a look at everything that goes wrong with a table found, and what to do about each of it.

use serde::{Serialize, Serializer};

use crate::report::description::{Description, Report};

/// What was found of the health of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HealthReport {
    /// The table, as it was given.
    pub location: String,
    /// Path or URL of the store; none for a glob or a single file opened without one.
    pub store: Option<String>,
    /// The release that looked.
    pub release: String,
    /// What was looked at, in this order.
    pub checked: Vec<String>,
    /// What was found, in the same order.
    pub problems: Vec<Problem>,
}

impl HealthReport {
    /// Whether nothing asks for somebody; notes do not.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity == Severity::Note)
    }

    /// Adds what a look at one thing found.
    pub(crate) fn add(&mut self, checked: &str, problems: Vec<Problem>) {
        self.checked.push(checked.to_owned());
        self.problems.extend(problems);
    }
}

impl Report for HealthReport {
    fn describe(&self) -> Description {
        let title = match self.problems.iter().filter(|problem| problem.severity != Severity::Note).count() {
            0 => "nothing to do".to_owned(),
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        };
        let lines = self.problems.iter().map(|found| {
            let Problem { name, severity, problem, remedy } = found;
            format!("{}: {}: {problem}; {remedy}", severity.name(), name.name())
        });
        Description::titled(title).fact("checked", self.checked.join(", ")).notes(lines)
    }
}

/// Something that is wrong, or worth to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What programs know it by.
    pub name: ProblemName,
    /// Whether it asks for somebody.
    pub severity: Severity,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    pub(crate) fn new(name: ProblemName, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, severity: name.severity(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// How much a problem asks for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth to know, and nothing to do now.
    Note,
    /// Answers are right, and cost more than they have to, or will.
    Warning,
    /// Queries or changes fail.
    Error,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What goes wrong with tables. `docs/operations.md` has the same list, which a test compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemName {
    /// The newest state cannot be read.
    UnreadableTable,
    /// The manifest cannot be read, so that queries scan and builds fail.
    UnreadableManifest,
    /// Data files cannot be read.
    UnreadableFiles,
    /// Data files are younger than now.
    FilesOfTheFuture,
    /// The table has no place for indexes.
    NoStore,
    /// The table has no index.
    NoIndex,
    /// An index is of a kind that this release does not know.
    UnknownIndex,
    /// The column of an index is gone, or has another type.
    UnusableIndex,
    /// Some index does not cover data files.
    UncoveredFiles,
    /// Index files are missing or cut off.
    LostIndexFiles,
    /// Index files cannot be opened.
    DamagedIndexFiles,
    /// The storage does not give index files.
    UnreadIndexFiles,
    /// Buffered updates cannot be read.
    UnreadableUpdates,
    /// Buffered updates take nearly all the space that they may have.
    FullCache,
    /// A process holds a lock of the store.
    Locked,
    /// A process that holds a lock of the store is stopped.
    StoppedProcess,
    /// Files that nobody finished are left.
    Leftovers,
    /// The store cannot be listed.
    UnreadableStore,
    /// The store cannot be written.
    NotWritable,
    /// The disk has little space left.
    LowDiskSpace,
    /// The clocks of storage and machine differ.
    ClockSkew,
    /// Something was not looked at.
    NotChecked,
}

impl ProblemName {
    /// The name, as programs see it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnreadableTable => "unreadable_table",
            Self::UnreadableManifest => "unreadable_manifest",
            Self::UnreadableFiles => "unreadable_files",
            Self::FilesOfTheFuture => "files_of_the_future",
            Self::NoStore => "no_store",
            Self::NoIndex => "no_index",
            Self::UnknownIndex => "unknown_index",
            Self::UnusableIndex => "unusable_index",
            Self::UncoveredFiles => "uncovered_files",
            Self::LostIndexFiles => "lost_index_files",
            Self::DamagedIndexFiles => "damaged_index_files",
            Self::UnreadIndexFiles => "unread_index_files",
            Self::UnreadableUpdates => "unreadable_updates",
            Self::FullCache => "full_cache",
            Self::Locked => "locked",
            Self::StoppedProcess => "stopped_process",
            Self::Leftovers => "leftovers",
            Self::UnreadableStore => "unreadable_store",
            Self::NotWritable => "not_writable",
            Self::LowDiskSpace => "low_disk_space",
            Self::ClockSkew => "clock_skew",
            Self::NotChecked => "not_checked",
        }
    }

    /// How much it asks for somebody.
    #[must_use]
    pub fn severity(self) -> Severity {
        match self {
            Self::UnreadableTable | Self::UnreadableFiles | Self::UnreadableUpdates | Self::UnreadableStore => {
                Severity::Error
            }
            Self::NoStore | Self::NoIndex | Self::Locked | Self::Leftovers | Self::NotChecked => Severity::Note,
            _ => Severity::Warning,
        }
    }
}

impl Serialize for ProblemName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_ask_for_nobody_and_everything_else_does() {
        let mut report = HealthReport { location: "t".to_owned(), ..HealthReport::default() };
        report.add("coverage", vec![Problem::new(ProblemName::NoIndex, "it has no index", "make one")]);
        assert!(report.is_healthy());
        let said = report.describe().to_string();
        assert_eq!(said, "nothing to do: checked coverage\nnote: no_index: it has no index; make one");
        report.add("disk", vec![Problem::new(ProblemName::LowDiskSpace, "1 B is left", "make room")]);
        assert!(!report.is_healthy());
        assert!(report.describe().to_string().starts_with("1 problem: checked coverage, disk\n"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["problems"][1]["name"], "low_disk_space");
        assert_eq!(json["problems"][1]["severity"], "warning");
    }
}

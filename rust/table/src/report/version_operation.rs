//! What made a version of a table.

use std::fmt;

use serde::{Serialize, Serializer};

/// What made a version: a step of ours between two manifests, or a commit of a Delta table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VersionOperation {
    /// A key was declared, with these columns.
    DeclareKey(Vec<String>),
    /// An index of this name was declared.
    CreateIndex(String),
    /// The index of this name was dropped.
    DropIndex(String),
    /// Segments were built, or taken away.
    BuildIndexes,
    /// Buffered changes became a run.
    FlushChanges,
    /// Runs became one.
    MergeRuns,
    /// The migration of this number was begun.
    BeginMigration(u64),
    /// The migration of this number was given up.
    AbandonMigration(u64),
    /// The migration of this number was finished.
    Migrate(u64),
    /// A publication was begun.
    BeginPublication,
    /// A publication was finished.
    Publish,
    /// Nothing says what it was.
    #[default]
    Unknown,
    /// What a commit of a Delta table says of itself.
    Other(String),
}

impl fmt::Display for VersionOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeclareKey(columns) => write!(f, "declare key ({})", columns.join(", ")),
            Self::CreateIndex(name) => write!(f, "create index {name}"),
            Self::DropIndex(name) => write!(f, "drop index {name}"),
            Self::BuildIndexes => f.write_str("build indexes"),
            Self::FlushChanges => f.write_str("flush changes"),
            Self::MergeRuns => f.write_str("merge runs"),
            Self::BeginMigration(number) => write!(f, "begin migration {number}"),
            Self::AbandonMigration(number) => write!(f, "abandon migration {number}"),
            Self::Migrate(number) => write!(f, "migrate {number}"),
            Self::BeginPublication => f.write_str("begin publication"),
            Self::Publish => f.write_str("publish"),
            Self::Unknown => f.write_str("unknown"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// An operation is written as its text.
impl Serialize for VersionOperation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

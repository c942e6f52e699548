//! Features that a Delta table may demand of its writers, by the names of the protocol.

/// A feature that writers of a Delta table must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriterFeature {
    AppendOnly,
    Invariants,
    CheckConstraints,
    ChangeDataFeed,
    GeneratedColumns,
    IdentityColumns,
    AllowColumnDefaults,
    ColumnMapping,
    DeletionVectors,
    TimestampNtz,
    RowTracking,
    InCommitTimestamp,
    TypeWidening,
    DomainMetadata,
    Clustering,
    V2Checkpoint,
    VacuumProtocolCheck,
    CheckpointProtection,
    AutoOptimize,
    /// Any other, by its name.
    Unknown(String),
}

impl WriterFeature {
    /// The feature of a name.
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "appendOnly" => Self::AppendOnly,
            "invariants" => Self::Invariants,
            "checkConstraints" => Self::CheckConstraints,
            "changeDataFeed" => Self::ChangeDataFeed,
            "generatedColumns" => Self::GeneratedColumns,
            "identityColumns" => Self::IdentityColumns,
            "allowColumnDefaults" => Self::AllowColumnDefaults,
            "columnMapping" => Self::ColumnMapping,
            "deletionVectors" => Self::DeletionVectors,
            // The second name is none of the protocol's, but some tables have it.
            "timestampNtz" | "timestampWithoutTimezone" => Self::TimestampNtz,
            "rowTracking" => Self::RowTracking,
            "inCommitTimestamp" => Self::InCommitTimestamp,
            "typeWidening" | "typeWidening-preview" => Self::TypeWidening,
            "domainMetadata" => Self::DomainMetadata,
            "clustering" => Self::Clustering,
            "v2Checkpoint" => Self::V2Checkpoint,
            "vacuumProtocolCheck" => Self::VacuumProtocolCheck,
            "checkpointProtection" => Self::CheckpointProtection,
            "autoOptimize" => Self::AutoOptimize,
            _ => Self::Unknown(name.to_owned()),
        }
    }
}

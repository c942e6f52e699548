//! The one error type of the format: every variant says what was found, what was expected and what to do.

use std::fmt::Display;

/// Why bytes are not the Lakemark file, section or value that they should be.
///
/// Corrupt indexes never fail a query (it falls back to scanning); this error is what a warning, `lakemark index verify`
/// or a maintenance command shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The first or last eight bytes are not Lakemark's.
    #[error(
        "{what} holds the magic {got:02x?} instead of {expected:02x?}: this is no Lakemark file or its end is missing; \
         delete the file and run `lakemark index build`"
    )]
    BadMagic {
        /// The part of the file that was read.
        what: &'static str,
        /// The bytes found.
        got: [u8; 8],
        /// The bytes that stand there in a good file.
        expected: [u8; 8],
    },
    /// The file was written by a release whose format this one does not read.
    #[error(
        "the file has format version {got}, this release reads versions {oldest} to {newest}: \
         upgrade lakemark, or delete the file and run `lakemark index build`"
    )]
    UnsupportedVersion {
        /// The version found.
        got: u16,
        /// The oldest version that can be read.
        oldest: u16,
        /// The newest version that can be read.
        newest: u16,
    },
    /// A length or count is above the format's limit, or above what the bytes at hand can hold.
    #[error(
        "{what}: got {got}, at most {limit} is possible: the file is damaged or the table is beyond the format's limits; \
         delete the file and run `lakemark index build`, with smaller groups of files if it happens again"
    )]
    TooLong {
        /// The length or count.
        what: &'static str,
        /// The value found.
        got: u64,
        /// The largest value allowed.
        limit: u64,
    },
    /// Bytes changed after they were written, or belong to another file.
    #[error(
        "{what} {position} has the checksum {got:08x} instead of {expected:08x}: the bytes were damaged or belong to \
         another file; delete the file and run `lakemark index build`"
    )]
    ChecksumMismatch {
        /// The kind of bytes: page, directory, trailer.
        what: &'static str,
        /// The page's number, or the physical offset of the bytes.
        position: u64,
        /// The checksum of the bytes found.
        got: u32,
        /// The checksum that was stored.
        expected: u32,
    },
    /// Fewer bytes than the structure needs.
    #[error(
        "{what} needs {expected} bytes and has {got}: the file or the read was cut short; \
         read again, or delete the file and run `lakemark index build`"
    )]
    Truncated {
        /// The structure.
        what: &'static str,
        /// The bytes at hand.
        got: u64,
        /// The bytes needed.
        expected: u64,
    },
    /// A field has a value that the format does not allow.
    #[error(
        "{what}: got {got}, expected {expected}: the file is damaged or came from a faulty writer; \
         delete the file and run `lakemark index build`"
    )]
    Invalid {
        /// The field.
        what: &'static str,
        /// The value found.
        got: String,
        /// The values allowed.
        expected: String,
    },
    /// Bytes that hold updates are not what they should be. Unlike indexes, updates are data: nothing can make them anew.
    #[error(
        "{what}: {finding}; updates are data that no other file may hold: keep the file, upgrade lakemark if a later \
         release wrote it, or else restore it from a copy"
    )]
    DamagedUpdates {
        /// The file, and the place in it.
        what: String,
        /// What was found and what was expected.
        finding: String,
    },
    /// What was asked for is in a piece of a checkpoint that was not read yet.
    #[error("the piece {piece} of the manifest was not read: read it from the folder `checkpoint` of the store first")]
    NotLoaded {
        /// The name of the piece.
        piece: String,
    },
    /// An edit of one store among those of another.
    #[error(
        "the edit {edit} is of the store {got} and not of {expected}: files of two stores were mixed; keep those of one store alone, \
         or delete the store's folder and run `lakemark index build`, unless it has updates, which are data"
    )]
    OtherStore {
        /// The number of the edit.
        edit: u64,
        /// The store's id in the edit.
        got: String,
        /// The id of the store.
        expected: String,
    },
    /// An edit that is not the next one.
    #[error(
        "the edit {got} stands where {expected} is the next: an edit is missing, and what it changed is lost; restore it from a copy, \
         or delete the store's folder and run `lakemark index build`, unless it has updates, which are data"
    )]
    OutOfTurn {
        /// The number of the edit.
        got: u64,
        /// The number of the next edit.
        expected: u64,
    },
    /// An edit that changes what is not there, or adds what is there.
    #[error(
        "the edit {edit} does not fit the state before it: {what}: got {got}, expected {expected}: a faulty writer made it, or files of \
         the store were mixed up; restore the store from a copy, or delete its folder and run `lakemark index build`, unless it has \
         updates, which are data"
    )]
    DoesNotFit {
        /// The number of the edit.
        edit: u64,
        /// What is changed.
        what: &'static str,
        /// The value found.
        got: String,
        /// The values allowed.
        expected: String,
    },
    /// Updates that do not fit into one frame of the log.
    #[error("{what} has {got} bytes, at most {limit} can be committed at once: commit it in smaller parts")]
    TooLarge {
        /// What does not fit.
        what: &'static str,
        /// Its bytes.
        got: u64,
        /// The most bytes that are possible.
        limit: u64,
    },
}

impl FormatError {
    /// An [`FormatError::Invalid`] for the field `what`.
    pub fn invalid(what: &'static str, got: impl Display, expected: impl Display) -> Self {
        Self::Invalid { what, got: got.to_string(), expected: expected.to_string() }
    }

    /// The same finding about updates, which must not be deleted and built again as index files are.
    pub(crate) fn of_updates(self, what: impl Display) -> Self {
        Self::DamagedUpdates { what: what.to_string(), finding: self.finding() }
    }

    /// What was found and what was expected, without what to do.
    fn finding(self) -> String {
        match self {
            Self::BadMagic { what, got, expected } => {
                format!("{what} holds the magic {got:02x?} instead of {expected:02x?}")
            }
            Self::UnsupportedVersion { got, oldest, newest } => {
                format!("it has format version {got}, this release reads versions {oldest} to {newest}")
            }
            Self::TooLong { what, got, limit } => format!("{what}: got {got}, at most {limit} is possible"),
            Self::ChecksumMismatch { what, position, got, expected } => {
                format!("{what} {position} has the checksum {got:08x} instead of {expected:08x}")
            }
            Self::Truncated { what, got, expected } => format!("{what} needs {expected} bytes and has {got}"),
            Self::Invalid { what, got, expected } => format!("{what}: got {got}, expected {expected}"),
            Self::DamagedUpdates { finding, .. } => finding,
            Self::NotLoaded { piece } => format!("the piece {piece} was not read"),
            Self::OtherStore { edit, got, expected } => {
                format!("the edit {edit} is of the store {got} and not of {expected}")
            }
            Self::OutOfTurn { got, expected } => format!("the edit {got} stands where {expected} is the next"),
            Self::DoesNotFit { edit, what, got, expected } => {
                format!("the edit {edit} does not fit: {what}: got {got}, expected {expected}")
            }
            Self::TooLarge { what, got, limit } => format!("{what} has {got} bytes, at most {limit} are possible"),
        }
    }
}

/// The result of everything that decodes or encodes.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;

//! The one error type of the public interface: a coarse kind, and a message that says what to do.
//!
//! Uses nothing; every room may use it.
//!
//! Invariant: what a storage answers to a request that it refuses is not repeated, as it may have a token in it.

pub(crate) mod refusal;

use std::error::Error as StdError;
use std::fmt;

use lakemark_format::FormatError;
use parquet::errors::ParquetError;

use self::refusal::AccessProblem;

/// What a caller would act differently on. Python and Java have one exception class per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument, option or path makes no sense.
    InvalidInput,
    /// The table, column or index does not exist.
    NotFound,
    /// An index of that name exists, or a row with the key of an insert.
    AlreadyExists,
    /// A type, table feature or storage that this release does not serve.
    Unsupported,
    /// Files of one table disagree on the type of a column, or rows do not fit the columns of a table.
    SchemaMismatch,
    /// A row does not meet a constraint of its table.
    ConstraintViolation,
    /// Others committed at the same time, again and again.
    Conflict,
    /// Buffered updates take all the space that they may have.
    CacheFull,
    /// What an old version of the table needs is gone.
    SnapshotExpired,
    /// The buffered changes of a store may not be those of the table.
    StoreMismatch,
    /// Bytes are not what they should be.
    Corrupt,
    /// Reading or writing failed.
    Io,
    /// The caller requested a stop.
    Cancelled,
    /// A defect of Lakemark.
    Internal,
}

impl ErrorKind {
    /// The stable name, as in the classes of Python and Java.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "InvalidInput",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Unsupported => "Unsupported",
            Self::SchemaMismatch => "SchemaMismatch",
            Self::ConstraintViolation => "ConstraintViolation",
            Self::Conflict => "Conflict",
            Self::CacheFull => "CacheFull",
            Self::SnapshotExpired => "SnapshotExpired",
            Self::StoreMismatch => "StoreMismatch",
            Self::Corrupt => "Corrupt",
            Self::Io => "Io",
            Self::Cancelled => "Cancelled",
            Self::Internal => "Internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where something stands in the text of a statement. Lines and characters are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPlace {
    /// The line.
    pub line: u64,
    /// The character in the line.
    pub column: u64,
}

/// Why an operation failed, and what to do about it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
    place: Option<TextPlace>,
}

/// The result of everything that touches a table.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a message for the user.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, place: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error with the place in the statement that it is about.
    #[must_use]
    pub fn with_place(mut self, place: TextPlace) -> Self {
        self.place = Some(place);
        self
    }

    /// The place in the statement that it is about, if an engine knows one.
    #[must_use]
    pub fn place(&self) -> Option<TextPlace> {
        self.place
    }

    /// The same error with something to add to its message.
    #[must_use]
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        self.message = format!("{}; {note}", self.message);
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message without its cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::SnapshotExpired, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(
            ErrorKind::Cancelled,
            "stopped before its end: what was committed stays, and another run goes on with the rest",
        )
    }

    /// The error of a task that did not come back.
    pub(crate) fn task(error: &tokio::task::JoinError) -> Self {
        Self::internal(format!("a background task did not finish: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

/// What kind of failure an error of the storage is.
#[must_use]
pub fn kind_of_storage(error: &object_store::Error) -> ErrorKind {
    use std::io::ErrorKind::{InvalidData, UnexpectedEof};
    match error {
        object_store::Error::NotFound { .. } => ErrorKind::NotFound,
        object_store::Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => ErrorKind::Unsupported,
        // Only reads of what was listed before are for one version.
        object_store::Error::Precondition { .. } => ErrorKind::Conflict,
        object_store::Error::Generic { source, .. } => match source.downcast_ref::<std::io::Error>() {
            // Bytes that are no such file, and a file that ends before what others say is in it.
            Some(error) if matches!(error.kind(), InvalidData | UnexpectedEof) => ErrorKind::Corrupt,
            // What a source of credentials says.
            _ => source.downcast_ref().map_or(ErrorKind::Io, Error::kind),
        },
        _ => ErrorKind::Io,
    }
}

/// What kind of failure an error of the Parquet reader is. Errors that are not the storage's come from the file's bytes.
#[must_use]
pub fn kind_of_parquet(error: &ParquetError) -> ErrorKind {
    match error {
        ParquetError::External(source) => match source.downcast_ref() {
            Some(error) => kind_of_storage(error),
            None if source.is::<std::io::Error>() => ErrorKind::Io,
            None => ErrorKind::Corrupt,
        },
        _ => ErrorKind::Corrupt,
    }
}

/// What stands in an error of the storage's that is a whole sentence by itself.
fn sentence_in(error: &object_store::Error) -> Option<Error> {
    let object_store::Error::Generic { source, .. } = error else { return None };
    match source.downcast_ref::<Error>() {
        Some(ours) => Some(Error::new(ours.kind(), ours.to_string())),
        None => source.downcast_ref::<AccessProblem>().map(|problem| Error::io(problem.to_string())),
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        if let Some(sentence) = sentence_in(&error) {
            return sentence;
        }
        let message = match &error {
            object_store::Error::NotFound { path, .. } => format!("{path} does not exist"),
            object_store::Error::AlreadyExists { path, .. } => format!("{path} exists already"),
            object_store::Error::Precondition { path, .. } => format!("{path} changed while it was read; run it again"),
            object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
                "the storage cannot do this".to_owned()
            }
            _ => "the storage failed".to_owned(),
        };
        Self::new(kind_of_storage(&error), message).with_source(error)
    }
}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        Self::corrupt("an index file is damaged").with_source(error)
    }
}

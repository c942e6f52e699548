//! Errors on their way through DataFusion and back.

use std::error::Error as StdError;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use lakemark_table::{Error, ErrorKind, TextPlace, kind_of_parquet};
use parquet::errors::ParquetError;

/// Wraps an error of ours, so that it passes through DataFusion unchanged.
#[must_use]
pub fn to_engine(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Finds our error within one of DataFusion's, or gives DataFusion's own a kind. The place in the statement is known where the parser
/// stopped, and of names that were not found if the session's `datafusion.sql_parser.collect_spans` is set.
#[must_use]
pub fn from_engine(error: DataFusionError) -> Error {
    let place = place_of(&error);
    let error = with_kind(error);
    match place {
        Some(place) => error.with_place(place),
        None => error,
    }
}

fn with_kind(error: DataFusionError) -> Error {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => with_kind(*inner),
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => match other.downcast::<DataFusionError>() {
                Ok(nested) => from_engine(*nested),
                Err(other) => {
                    let kind = other.downcast_ref().map_or(ErrorKind::Io, kind_of_parquet);
                    Error::new(kind, other.to_string())
                }
            },
        },
        DataFusionError::Shared(shared) => match ours_in(shared.as_ref()) {
            Some(ours) => Error::new(ours.kind(), ours.to_string()),
            None => Error::new(kind_of(&shared), text_of(&shared)),
        },
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => from_engine(first),
            None => Error::new(ErrorKind::Internal, "an empty collection of errors"),
        },
        other => match ours_in(&other) {
            Some(ours) => Error::new(ours.kind(), ours.to_string()),
            None => Error::new(kind_of(&other), text_of(&other)),
        },
    }
}

fn place_of(error: &DataFusionError) -> Option<TextPlace> {
    if let Some(span) = error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        return Some(TextPlace { line: span.start.line, column: span.start.column });
    }
    match error.find_root() {
        DataFusionError::SQL(error, _) => place_in(&error.to_string()),
        _ => None,
    }
}

/// What the parser says at the end of its messages: `at Line: 1, Column: 8`.
fn place_in(text: &str) -> Option<TextPlace> {
    let (_, place) = text.rsplit_once(" at Line: ")?;
    let (line, rest) = place.split_once(", Column: ")?;
    let digits = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    Some(TextPlace { line: line.parse().ok()?, column: digits.parse().ok()? })
}

fn text_of(error: &DataFusionError) -> String {
    error.strip_backtrace().trim().to_owned()
}

fn kind_of(error: &DataFusionError) -> ErrorKind {
    if let Some(kind) = kind_of_reading(error) {
        return kind;
    }
    match error.find_root() {
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::IoError(_) | DataFusionError::ResourcesExhausted(_) => ErrorKind::Io,
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) => ErrorKind::Internal,
        _ => ErrorKind::InvalidInput,
    }
}

/// An error of ours that others have wrapped in theirs.
pub(crate) fn ours_in<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref() {
            return Some(ours);
        }
        next = error.source();
    }
    None
}

/// What kind of failure an error of the Parquet reader is; none for errors of others.
pub(crate) fn kind_of_reading(error: &DataFusionError) -> Option<ErrorKind> {
    match error.find_root() {
        DataFusionError::ParquetError(error) => Some(kind_of_parquet(error)),
        DataFusionError::ArrowError(error, _) => kind_of_arrow(error),
        DataFusionError::External(error) => error.downcast_ref().map(kind_of_parquet),
        DataFusionError::ObjectStore(error) => Some(lakemark_table::kind_of_storage(error)),
        _ => None,
    }
}

fn kind_of_arrow(error: &ArrowError) -> Option<ErrorKind> {
    match error {
        ArrowError::ParquetError(_) => Some(ErrorKind::Corrupt),
        ArrowError::ExternalError(error) => match error.downcast_ref::<ParquetError>() {
            Some(error) => Some(kind_of_parquet(error)),
            None => error.downcast_ref().map(lakemark_table::kind_of_storage),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ours_comes_back_with_its_kind_and_message() {
        let sent = to_engine(Error::new(ErrorKind::SchemaMismatch, "column a differs")).context("while scanning");
        let back = from_engine(sent);
        assert_eq!((back.kind(), back.message()), (ErrorKind::SchemaMismatch, "column a differs"));
    }

    #[test]
    fn what_the_parser_says_of_the_place_is_read() {
        let place = |text| place_in(text).map(|place| (place.line, place.column));
        assert_eq!(place("Expected: end, found: x at Line: 2, Column: 17"), Some((2, 17)));
        assert_eq!(place("found: ' at Line: 9, Column: 9' at Line: 1, Column: 3 (more)"), Some((1, 3)));
        for text in ["Expected: end, found: EOF", "at Line: 1", "x at Line: one, Column: 2", "x at Line: 1, Column: "] {
            assert_eq!(place(text), None, "{text}");
        }
    }

    #[test]
    fn a_shared_error_keeps_its_kind() {
        let shared = DataFusionError::Shared(std::sync::Arc::new(to_engine(Error::new(ErrorKind::Corrupt, "bad"))));
        assert_eq!(from_engine(shared).kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn errors_of_the_engine_get_a_kind() {
        assert_eq!(from_engine(DataFusionError::Plan("no such column".into())).kind(), ErrorKind::InvalidInput);
        assert_eq!(from_engine(DataFusionError::NotImplemented("x".into())).kind(), ErrorKind::Unsupported);
        assert_eq!(from_engine(DataFusionError::Internal("x".into())).kind(), ErrorKind::Internal);
        let pages = ArrowError::ParquetError("no such encoding".into());
        assert_eq!(from_engine(DataFusionError::ArrowError(Box::new(pages), None)).kind(), ErrorKind::Corrupt);
        let cast = ArrowError::CastError("x is no number".into());
        assert_eq!(from_engine(DataFusionError::ArrowError(Box::new(cast), None)).kind(), ErrorKind::InvalidInput);
    }
}

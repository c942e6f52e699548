//! Errors on their way through DataFusion and back.

use datafusion::error::DataFusionError;
use lakemark_table::{Error, ErrorKind};

/// Wraps an error of ours, so that it passes through DataFusion unchanged.
#[must_use]
pub fn to_engine(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Finds our error within one of DataFusion's, or gives DataFusion's own a kind.
#[must_use]
pub fn from_engine(error: DataFusionError) -> Error {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_engine(*inner),
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => match other.downcast::<DataFusionError>() {
                Ok(nested) => from_engine(*nested),
                Err(other) => Error::new(ErrorKind::Io, other.to_string()),
            },
        },
        DataFusionError::Shared(shared) => match find(&shared) {
            Some(ours) => Error::new(ours.kind(), ours.to_string()),
            None => Error::new(kind_of(&shared), text_of(&shared)),
        },
        DataFusionError::Collection(errors) => match errors.into_iter().next() {
            Some(first) => from_engine(first),
            None => Error::new(ErrorKind::Internal, "an empty collection of errors"),
        },
        other => Error::new(kind_of(&other), text_of(&other)),
    }
}

fn find(error: &DataFusionError) -> Option<&Error> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref::<Error>(),
        _ => None,
    }
}

fn text_of(error: &DataFusionError) -> String {
    error.strip_backtrace().trim().to_owned()
}

fn kind_of(error: &DataFusionError) -> ErrorKind {
    match error.find_root() {
        DataFusionError::NotImplemented(_) => ErrorKind::Unsupported,
        DataFusionError::ObjectStore(inner) if matches!(**inner, object_store::Error::NotFound { .. }) => {
            ErrorKind::NotFound
        }
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) | DataFusionError::ResourcesExhausted(_) => {
            ErrorKind::Io
        }
        DataFusionError::ParquetError(_) => ErrorKind::Corrupt,
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) => ErrorKind::Internal,
        _ => ErrorKind::InvalidInput,
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
    fn a_shared_error_keeps_its_kind() {
        let shared = DataFusionError::Shared(std::sync::Arc::new(to_engine(Error::new(ErrorKind::Corrupt, "bad"))));
        assert_eq!(from_engine(shared).kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn errors_of_the_engine_get_a_kind() {
        assert_eq!(from_engine(DataFusionError::Plan("no such column".into())).kind(), ErrorKind::InvalidInput);
        assert_eq!(from_engine(DataFusionError::NotImplemented("x".into())).kind(), ErrorKind::Unsupported);
        assert_eq!(from_engine(DataFusionError::Internal("x".into())).kind(), ErrorKind::Internal);
    }
}

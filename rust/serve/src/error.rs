//! Errors as clients of Flight see them: a status with a message that says what to do.

use std::error::Error as _;
use std::time::Duration;

use arrow::error::ArrowError;
use arrow_flight::error::FlightError;
use datafusion::error::DataFusionError;
use lakemark_datafusion::{ErrorKind, from_engine};
use lakemark_table::Error;
use tonic::{Code, Status};

/// The seconds after which a client that was refused may try again, as `Retry-After` of HTTP has them.
pub(crate) const RETRY_AFTER: &str = "retry-after";

/// Letters of a message. It travels as a header, and clients give up connections over headers of more than 8 KiB; other letters than
/// those of ASCII take up to nine bytes of one, or twelve.
const MOST_LETTERS: usize = 600;

/// An error of ours. A refusal that went [`through_engine`] is what it was before.
pub(crate) fn status(error: Error) -> Status {
    if let Some(refused) = error.source().and_then(|source| source.downcast_ref::<Status>()) {
        return refused.clone();
    }
    let code = match error.kind() {
        ErrorKind::InvalidInput => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::SchemaMismatch
        | ErrorKind::ConstraintViolation
        | ErrorKind::SnapshotExpired
        | ErrorKind::StoreMismatch => Code::FailedPrecondition,
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::CacheFull => Code::ResourceExhausted,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Io => Code::Unavailable,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Internal => Code::Internal,
    };
    Status::new(code, short(error.to_string()))
}

/// A refusal of the server's own on its way through the engine.
pub(crate) fn through_engine(refused: Status) -> Error {
    Error::new(ErrorKind::Cancelled, "the server refused the statement").with_source(refused)
}

/// The beginning and the end of a message that is too long, as one that repeats a whole statement.
fn short(message: String) -> String {
    let letters = message.chars().count();
    if letters <= MOST_LETTERS {
        return message;
    }
    let kept = MOST_LETTERS / 2;
    let start = message.chars().take(kept);
    let end = message.chars().skip(letters - kept);
    start.chain(" … ".chars()).chain(end).collect()
}

/// An error of the engine's, while rows are computed.
pub(crate) fn engine_status(error: DataFusionError) -> Status {
    let is_memory = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
    let found = status(from_engine(error));
    if is_memory { Status::resource_exhausted(found.message()) } else { found }
}

/// The same within a stream.
pub(crate) fn engine_error(error: DataFusionError) -> FlightError {
    FlightError::Tonic(Box::new(engine_status(error)))
}

/// An error of Arrow's, while an answer is put together.
pub(crate) fn arrow_status(error: ArrowError) -> Status {
    engine_status(error.into())
}

/// An error of the crate for Flight, while an answer is put together.
pub(crate) fn flight_status(error: FlightError) -> Status {
    match error {
        FlightError::Arrow(error) => arrow_status(error),
        FlightError::Tonic(status) => *status,
        other => Status::internal(other.to_string()),
    }
}

/// An error of what a client sent.
pub(crate) fn bad_stream(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => Status::invalid_argument(format!("the parameters cannot be read: {other}")),
    }
}

/// A refusal that tells the client to come again.
pub(crate) fn come_again(message: impl Into<String>, after: Duration) -> Status {
    let mut status = Status::resource_exhausted(message);
    status.metadata_mut().insert(RETRY_AFTER, after.as_secs().max(1).into());
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_no_longer_than_headers_may_be() {
        let of = |message: String| status(Error::new(ErrorKind::InvalidInput, message)).message().to_owned();
        assert_eq!(of("short".to_owned()), "short");
        let cut = of(format!("begins {} ends", "𝄞".repeat(100_000)));
        assert!(cut.starts_with("begins 𝄞") && cut.contains("𝄞 … 𝄞") && cut.ends_with("𝄞 ends"), "{cut}");
        // As a header, a byte that is no letter of ASCII takes three.
        assert!(cut.len() * 3 < 8000, "{}", cut.len());
    }
}

//! Why a command failed, as its user sees it: `error: …` on stderr and an exit code.

use std::fmt;
use std::io;

use datafusion::error::DataFusionError;
use lakemark_table::ErrorKind;

/// Everything went well.
pub const DONE: i32 = 0;
/// The command was understood and failed.
pub const FAILED: i32 = 1;
/// The command line makes no sense.
pub const WRONG_USAGE: i32 = 2;
/// A build is done but for data files that could not be indexed.
pub const INCOMPLETE: i32 = 3;
/// `doctor` found something that asks for somebody.
pub const UNHEALTHY: i32 = 4;
/// Stopped by Ctrl-C: 128 + SIGINT, as shells say it.
pub const INTERRUPTED: i32 = 130;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Reported as `error: …`.
    Error(String),
    /// What was to be done is done in part.
    Incomplete(String),
    /// The user pressed Ctrl-C.
    Interrupted(String),
    /// Everything was said already; only the exit code is left.
    Reported,
    /// The report says what is wrong with the table; only the exit code is left.
    Unhealthy,
    /// The reader of our output went away, e.g. `| head`: no error.
    PipeClosed,
}

impl Failure {
    /// The exit code that goes with it.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Error(_) | Self::Reported => FAILED,
            Self::Incomplete(_) => INCOMPLETE,
            Self::Unhealthy => UNHEALTHY,
            Self::Interrupted(_) => INTERRUPTED,
            Self::PipeClosed => DONE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(message) | Self::Incomplete(message) | Self::Interrupted(message) => f.write_str(message),
            Self::Reported | Self::Unhealthy | Self::PipeClosed => Ok(()),
        }
    }
}

impl From<lakemark_table::Error> for Failure {
    fn from(error: lakemark_table::Error) -> Self {
        match error.kind() {
            ErrorKind::Cancelled => Self::Interrupted(error.to_string()),
            ErrorKind::Internal => Self::Error(format!(
                "{error}\nThis is a defect of Lakemark: please report it with the command you ran."
            )),
            _ => Self::Error(error.to_string()),
        }
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::from(lakemark_datafusion::from_engine(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::PipeClosed
        } else {
            Self::Error(format!("writing the output failed: {error}"))
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Error(format!("a report cannot be written as JSON: {error}"))
    }
}

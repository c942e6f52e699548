//! Why an index could not be built.

use std::io;

use lakemark_format::error::FormatError;

use crate::precision::PrecisionError;

/// Why a segment could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Reading a spill file or writing the segment failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The segment would break a limit of the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The encoding `binned` and a precision go together, and not every column can have one.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// The encoding `binned` does not say where to cut.
    #[error("the encoding binned needs a precision, such as precision=2 for two significant digits or precision=month")]
    NoPrecision,
    /// Every value would be its own bin, and there are too many.
    #[error(
        "the column {column} has more than {values} values: with the encoding {encoding} they would take more than {bytes} bytes \
         of bitmaps; use {encoding}-equality, which has one bitmap for many values"
    )]
    TooManyValues {
        /// The column.
        column: String,
        /// The name of the encoding.
        encoding: &'static str,
        /// The most values that it may have.
        values: u64,
        /// Bytes that the bitmaps of so many values take if their rows are spread.
        bytes: u64,
    },
    /// Links name their predicates by places in a dictionary.
    #[error(
        "the links over {column} have more than {limit} different predicates: the column in the middle is for kinds of links; declare the \
         index over both ends alone, or with a smaller files_per_segment"
    )]
    TooManyPredicates {
        /// The columns of the links.
        column: String,
        /// The most predicates that a segment may have.
        limit: u64,
    },
    /// Zones are smaller than a segment can have.
    #[error(
        "the rows of a segment would have {zones} zones, and at most {limit} are possible: give zone_rows a larger number, or declare the index with a smaller files_per_segment"
    )]
    TooManyZones {
        /// Zones.
        zones: u64,
        /// The most.
        limit: u64,
    },
    /// A summary is made in memory.
    #[error(
        "the summary of a segment takes {bytes} bytes of memory, and the build may use {memory}: allow more with --memory, or declare \
         the index with a smaller files_per_segment or a larger fpp"
    )]
    TooManySlices {
        /// Bytes that it takes.
        bytes: u64,
        /// Bytes that it may take.
        memory: u64,
    },
}

//! What passes from the first round of a search to the second.

use std::ops::Range;

/// A block that the first round read, decoded.
#[derive(Debug)]
pub(super) struct DecodedBlock<T> {
    /// Its number among the blocks of the segment.
    pub number: usize,
    /// Its values, or its bins.
    pub entries: Vec<T>,
}

/// A plan of the second round.
#[derive(Debug)]
pub(super) struct Planned<P> {
    pub plan: P,
    /// The logical ranges that it reads.
    pub ranges: Vec<Range<u64>>,
}

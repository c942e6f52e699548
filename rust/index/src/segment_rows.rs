//! What a segment answers.

use lakemark_format::error::Result;
use lakemark_format::posting::{self, RowSink};
use lakemark_format::segment::PostingRef;

use crate::algebra::Candidates;
use crate::rows::{RowSet, RowSetBuilder};

/// The answer of a segment, over the rows of its row space.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentRows {
    /// Rows that pass.
    pub t: RowSet,
    /// Rows where the test is NULL.
    pub n: RowSet,
    /// Rows that the index cannot decide.
    pub opaque: RowSet,
}

impl SegmentRows {
    /// The candidates of the rows `start..end` of the row space: those of one data file.
    #[must_use]
    pub fn candidates(&self, start: u32, end: u32) -> Candidates {
        Candidates::with_opaque(self.t.slice(start, end), self.n.slice(start, end), &self.opaque.slice(start, end))
    }
}

/// The rows of a posting that stands by itself.
pub(crate) fn rows_of_posting(bytes: &[u8], posting: PostingRef, universe: u32) -> Result<RowSet> {
    let mut rows = PostingCollector(RowSetBuilder::with_capacity(universe, posting.rows.into()));
    posting::decode(bytes, posting.rows, universe, &mut rows)?;
    Ok(rows.0.finish())
}

/// Gathers the rows of postings.
pub(crate) struct PostingCollector(pub(crate) RowSetBuilder);

impl RowSink for PostingCollector {
    fn rows(&mut self, rows: &[u32]) {
        self.0.extend_from_slice(rows);
    }
    fn word(&mut self, first: u32, bits: u64) {
        self.0.insert_word(first, bits);
    }
    fn run(&mut self, first: u32, length: u32) {
        self.0.insert_range(first..first.saturating_add(length));
    }
}

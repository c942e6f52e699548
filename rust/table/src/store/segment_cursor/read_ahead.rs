//! Reading a segment from its beginning to its end in few large requests.
//!
//! ```text
//! segment   ├── window ──┼── window ──┼── window ──┤ directory
//!               ▲ ▲   ▲        what is read of it, one after the other: lists, blocks with their postings
//! ```
//!
//! A window begins where something is read that the last one lacks. What a value needs lies together, so that a window is seldom left behind.

use std::ops::Range;

use bytes::Bytes;
use lakemark_format::PostingRef;

use super::decode_rows;
use crate::store::segments::{Damage, ReadCounter, Segment};

/// A segment with the window that was read last.
pub(crate) struct ReadAhead {
    segment: Segment,
    /// Bytes of a window, unless more are read at once.
    window_bytes: u64,
    /// Where the window begins in the file.
    start: u64,
    pages: Bytes,
}

impl ReadAhead {
    pub(crate) fn new(segment: &Segment, window_bytes: u64) -> Self {
        Self { segment: segment.clone(), window_bytes, start: 0, pages: Bytes::new() }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Reads the window at the beginning, unless something was read by now. So several segments are on their way at once.
    pub(crate) async fn begin(&mut self, counter: &ReadCounter) -> Result<(), Damage> {
        if self.pages.is_empty() {
            let end = self.window_bytes.min(self.segment.pages_end());
            self.pages = self.segment.read_pages(0..end, counter).await?;
        }
        Ok(())
    }

    /// Reads logical ranges, checking every page of theirs. Ranges of one call should lie together.
    pub(crate) async fn read(&mut self, ranges: &[Range<u64>], counter: &ReadCounter) -> Result<Vec<Bytes>, Damage> {
        let places: Vec<Range<u64>> = ranges.iter().map(|range| self.segment.physical(range)).collect();
        let full = || places.iter().filter(|place| !place.is_empty());
        let start = full().map(|place| place.start).min();
        let end = full().map(|place| place.end).max();
        if let Some((start, end)) = start.zip(end)
            && self.slice(&(start..end)).is_none()
        {
            let end = end.max(start.saturating_add(self.window_bytes).min(self.segment.pages_end()));
            self.pages = self.segment.read_pages(start..end, counter).await?;
            self.start = start;
        }
        let mut read = Vec::with_capacity(ranges.len());
        for (range, place) in ranges.iter().zip(&places) {
            let pages = if place.is_empty() { Some(Bytes::new()) } else { self.slice(place) };
            let pages = pages.ok_or_else(|| Damage::corrupt("the segment is shorter than it should be"))?;
            read.push(self.segment.logical(pages, range)?);
        }
        Ok(read)
    }

    /// The rows of a list.
    pub(crate) async fn rows(&mut self, list: PostingRef, counter: &ReadCounter) -> Result<Vec<u32>, Damage> {
        let range = list.offset..list.offset + u64::from(list.length);
        let bytes = self.read(&[range], counter).await?.pop().unwrap_or_default();
        decode_rows(&bytes, list.rows, &self.segment)
    }

    /// A part of the file, if it is in the window.
    fn slice(&self, place: &Range<u64>) -> Option<Bytes> {
        let from = usize::try_from(place.start.checked_sub(self.start)?).ok()?;
        let to = usize::try_from(place.end.checked_sub(self.start)?).ok()?;
        (from <= to && to <= self.pages.len()).then(|| self.pages.slice(from..to))
    }
}

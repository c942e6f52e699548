//! How many different values a column has, by the directories of its segments, which are cached.

use std::sync::Arc;

use futures::future::try_join_all;
use lakemark_format::ManifestSegment;

use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::segments::{ReadCounter, Segment};

/// Of more segments the number is not worth opening them.
const MOST_SEGMENTS: usize = 8;

impl Snapshot {
    /// About how many different values a column has in the data files, NULL not counted. None if no index knows most of them, or if it has
    /// many segments. Deleted rows may have had some of the values, and buffered rows may have others.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub async fn distinct_values(&self, column: &str) -> Result<Option<u64>> {
        let (Some(store), Some(manifest)) = (self.store.as_ref(), self.manifest.as_ref()) else { return Ok(None) };
        let Some(index) = self.exact_indexes_of(column).first().copied() else { return Ok(None) };
        let of_index = manifest.segments().map(Arc::as_ref).filter(|segment| segment.index_id == index.id);
        let segments: Vec<&ManifestSegment> = of_index.take(MOST_SEGMENTS + 1).collect();
        let indexed: u64 = segments.iter().map(|segment| segment.files.len()).sum();
        if segments.len() > MOST_SEGMENTS || indexed * 2 < self.files().len() as u64 {
            return Ok(None);
        }
        let counter = ReadCounter::default();
        let opened = segments.iter().map(|segment| Segment::open(store, segment, index, &counter));
        let opened = try_join_all(opened).await;
        let opened =
            opened.map_err(|damage| Error::corrupt(format!("an index file cannot be read: {}", damage.problem)))?;
        let (mut most, mut sum, mut is_unique) = (0, 0, true);
        for Segment { directory, .. } in opened {
            let values = directory.value_count;
            (most, sum) = (values.max(most), values + sum);
            // Rows that hardly share values within a segment share none with rows of other segments.
            is_unique &= values * 2 > directory.rows();
        }
        Ok(Some(if is_unique { sum } else { most }))
    }
}

//! How many different values a column has, by the directories of its segments, which are cached.

use futures::future::try_join_all;
use lakemark_format::ManifestSegment;

use crate::segments::{ReadCounter, Segment};
use crate::snapshot::Snapshot;

/// Of more segments the number is not worth opening them.
const MOST_SEGMENTS: usize = 8;

impl Snapshot {
    /// About how many different values a column has in the data files, NULL not counted; none if no index knows most of them, or if it has many
    /// segments. What is deleted may have had some of them, and what is pending may have others.
    pub async fn distinct_values(&self, column: &str) -> Option<u64> {
        let (store, manifest) = (self.store.as_ref()?, self.manifest.as_ref()?);
        let index = self.exact_indexes_of(column).first().copied()?;
        let of_index = manifest.segments.iter().filter(|segment| segment.index_id == index.id);
        let segments: Vec<&ManifestSegment> = of_index.take(MOST_SEGMENTS + 1).collect();
        let indexed: usize = segments.iter().map(|segment| segment.files.len()).sum();
        if segments.len() > MOST_SEGMENTS || indexed * 2 < self.files().len() {
            return None;
        }
        let counter = ReadCounter::default();
        let opened = segments.iter().map(|segment| Segment::open(store, segment, index, &counter));
        let (mut most, mut sum, mut is_unique) = (0, 0, true);
        for Segment { directory, .. } in try_join_all(opened).await.ok()? {
            let values = directory.value_count;
            (most, sum) = (values.max(most), values + sum);
            // Rows that hardly share values within a segment share none with those of others.
            is_unique &= values * 2 > directory.rows();
        }
        Some(if is_unique { sum } else { most })
    }
}

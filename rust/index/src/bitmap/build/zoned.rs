//! Zones and their filters: no merge, as they lie in the order of rows.

use lakemark_format::segment::PostingRef;

use super::{BuildError, ChunkSource, SegmentMeta, SegmentSummary, SegmentWriter};
use crate::zones::build::write;

impl SegmentWriter<'_> {
    /// Writes the zones of chunks, one for each row group of the files.
    pub(super) fn write_zones(
        mut self,
        meta: SegmentMeta,
        chunks: Vec<ChunkSource>,
        nulls: PostingRef,
        opaque: PostingRef,
    ) -> Result<SegmentSummary, BuildError> {
        let row_groups: Vec<u32> = meta.files.iter().flat_map(|file| file.row_groups.iter().copied()).collect();
        let start = self.container.offset();
        let push = |bytes: &[u8]| {
            self.container.push(bytes);
            self.drain_if_full()
        };
        let built = write(meta.encoding, meta.zones, meta.key_type.clone(), &row_groups, chunks, start, push)?;
        self.value_count = built.zones.keys.iter().copied().map(u64::from).sum();
        self.zones = Some(built);
        self.finish(meta, nulls, opaque)
    }
}

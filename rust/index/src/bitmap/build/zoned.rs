//! Zones and their filters: no merge by value, as they lie in the order of rows.

use std::io;

use lakemark_format::segment::PostingRef;

use super::{BuildError, ChunkSource, SegmentMeta, SegmentSummary, SegmentWriter, universe_of};
use crate::zones::ZonePart;
use crate::zones::build::{BuiltZones, write};
use crate::zones::merge;

/// Builds a segment of the zones of others, writing it to `sink`: `rows` has the NULL and opaque rows of each part, with the numbers that they
/// get.
///
/// # Errors
/// [`BuildError`]; what the sink has got is then no segment. Parts whose filters have nothing in common are an I/O error:
/// [`common_filters`](crate::zones::common_filters) says so before.
pub fn merge_zones(
    meta: SegmentMeta,
    rows: &[ChunkSource],
    parts: Vec<ZonePart>,
    sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<SegmentSummary, BuildError> {
    let mut writer = SegmentWriter::new(&meta, universe_of(&meta)?, sink)?;
    let nulls = writer.posting_of(rows, |cursor| &cursor.nulls)?;
    let opaque = writer.posting_of(rows, |cursor| &cursor.opaque)?;
    let start = writer.container.offset();
    let zones = merge::write(parts, &meta.zones, start, |bytes| {
        writer.container.push(bytes);
        writer.drain_if_full()
    })?;
    writer.value_count = zones.keys.iter().copied().map(u64::from).sum();
    writer.zones = Some(BuiltZones { zones, overlap: None });
    writer.finish(meta, nulls, opaque)
}

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

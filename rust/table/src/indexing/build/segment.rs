//! Writing one segment: chunks are merged into a temporary file, which is published under the segment's path.

use std::io::{self, Write};

use lakemark_format::{Encoding, FileNumbers, ManifestIndex, ManifestSegment};
use lakemark_index::bitmap::{BuildError, ChunkSource, SegmentMeta, SegmentSummary, merge_in_pages};

use super::BuildContext;
use super::spill::{Reservation, ReservedSource};
use crate::error::{Error, Result};
use crate::storage::disk::on_a_thread;
use crate::store::Store;
use crate::store::hashed::key_type_of_segments;
use crate::store::kind::{precision_of, zones_of};
use crate::store::segment_files::Published;

/// A segment that was written.
pub(crate) struct WrittenSegment {
    /// What a manifest says of it, without its files.
    pub segment: ManifestSegment,
    /// What its merge found out.
    pub summary: SegmentSummary,
    /// Whether somebody else had written the very same meanwhile.
    pub is_taken_over: bool,
}

/// A segment of an index without files, and without an id; `memory` is what a build may use.
pub(crate) fn meta_of(index: &ManifestIndex, encoding: Encoding, memory: u64) -> Result<SegmentMeta> {
    Ok(SegmentMeta {
        segment_id: [0; 16],
        index_id: index.id,
        column: index.column.clone(),
        key_type: key_type_of_segments(index),
        files: Vec::new(),
        encoding,
        bins: None,
        precision: precision_of(&index.options)?,
        zones: zones_of(index, memory),
        riding: Vec::new(),
    })
}

/// Merges chunks into a segment that is published under its path; `sources` gives them with the memory that they take until the end.
pub(crate) async fn write(
    context: &BuildContext,
    meta: SegmentMeta,
    sources: impl FnOnce() -> io::Result<Vec<ReservedSource>> + Send + 'static,
) -> Result<WrittenSegment> {
    let most_leaves = context.store.most_leaves();
    let make = move |meta, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>| {
        let reserved = sources()?.into_iter().map(|reserved| (reserved.source, reserved.memory));
        let (sources, memory): (Vec<ChunkSource>, Vec<Option<Reservation>>) = reserved.unzip();
        let summary = merge_in_pages(meta, sources, most_leaves, sink);
        drop(memory);
        summary
    };
    write_by(context, meta, make).await
}

/// Writes a segment that is published under its path; `make` makes its bytes on a thread that may block.
pub(crate) async fn write_by(
    context: &BuildContext,
    meta: SegmentMeta,
    make: impl FnOnce(SegmentMeta, &mut dyn FnMut(&[u8]) -> io::Result<()>) -> Result<SegmentSummary, BuildError>
    + Send
    + 'static,
) -> Result<WrittenSegment> {
    context.check_cancel()?;
    let mut temp = context.store.start_file().await?;
    let (id, index_id) = (meta.segment_id, meta.index_id);
    let cancel = context.cancel.clone();
    let work = move || {
        let summary = make(meta, &mut |bytes| match &cancel {
            Some(flag) if flag.is_cancelled() => Err(io::Error::other("the build was cancelled")),
            _ => temp.write_all(bytes),
        });
        summary.map(|summary| (temp, summary))
    };
    let written = on_a_thread(work).await.map_err(|error| Error::task(&error))?;
    let (temp, summary) = written.map_err(|error| match error {
        _ if context.check_cancel().is_err() => Error::cancelled(),
        BuildError::Io(error) if error.kind() == io::ErrorKind::InvalidData => Error::corrupt(format!(
            "what is merged is damaged: {error}; `lakemark index verify` says where, delete that file and run `lakemark index build`"
        )),
        BuildError::Io(error) => disk_error(context, error),
        BuildError::Format(error) => {
            Error::unsupported("the segment is beyond the limits of the format; use fewer files per segment")
                .with_source(error)
        }
        error => Error::unsupported(error.to_string()),
    })?;
    let length = temp.length;
    let Published { id, is_taken_over } = context.store.publish_segment(temp, id).await?;
    let segment =
        ManifestSegment { id, index_id, path: Store::segment_path(id), length, files: FileNumbers::default() };
    Ok(WrittenSegment { segment, summary, is_taken_over })
}

/// The error of temporary files that cannot be written or read.
pub(super) fn disk_error(context: &BuildContext, error: io::Error) -> Error {
    Error::io(format!(
        "temporary files in {} cannot be written or read (disk full?); the last snapshot is untouched: \
         make room, give more memory, or choose another place with --store, and run it again",
        context.store.temp_folder().display()
    ))
    .with_source(error)
}

//! The encodings of the indexes of a group, and memory for those with a coarse level.

use lakemark_format::segment::BASE_ALIGNMENT;
use lakemark_format::{Encoding, ManifestIndex};
use lakemark_index::bitmap::coarse_memory_bytes;
use tokio::sync::Semaphore;

use super::BuildContext;
use super::read_group::OpenGroupFile;
use super::spill::{Budget, Reservation};
use crate::error::{Error, Result};
use crate::files::columns::IndexedFields;
use crate::store::recorded::is_chosen_by_auto;

/// An index of a group that has to be built, and what it reads.
pub(super) struct IndexedColumn<'a> {
    pub index: &'a ManifestIndex,
    pub fields: &'a IndexedFields,
}

/// Memory for the coarse levels of a group, and how many of its merges may have one at the same time.
pub(super) struct Coarse {
    pub turns: Semaphore,
    /// The encoding of each index of the group.
    pub encodings: Vec<Encoding>,
    _memory: Vec<Reservation>,
}

/// Takes memory for as many coarse levels as merges run at once, or for fewer, but for one at least.
pub(super) fn reserve(
    context: &BuildContext,
    lacking: &[IndexedColumn<'_>],
    readings: &[OpenGroupFile<'_>],
) -> Result<Coarse> {
    let rows = readings.iter().map(|reading| reading.rows().next_multiple_of(u64::from(BASE_ALIGNMENT))).sum();
    let mut encodings = lacking.iter().map(|column| encoding_of(column.index)).collect::<Result<Vec<_>>>()?;
    let bytes = |encoding: &Encoding| coarse_memory_bytes(*encoding, rows);
    // The largest come first: a merge that has a turn has the memory for any of them.
    let mut needs: Vec<(u64, usize)> = encodings.iter().map(bytes).zip(0..).filter(|(bytes, _)| *bytes > 0).collect();
    needs.sort_unstable_by(|a, b| b.cmp(a));
    let mut memory: Vec<Reservation> = Vec::new();
    for (bytes, place) in needs {
        if memory.len() == context.threads {
            break;
        }
        let taken = Budget::reserve(&context.budget, bytes);
        let is_first = memory.is_empty();
        match (taken, lacking.get(place).map(|column| column.index), encodings.get_mut(place)) {
            (Some(taken), ..) => {
                memory.push(taken);
                continue;
            }
            (None, Some(index), Some(encoding)) if is_first => {
                if !is_chosen_by_auto(index) {
                    return Err(Error::unsupported(format!(
                        "the encoding {} of the index {} takes {bytes} bytes of memory for the {rows} rows of a segment, and the build \
                     may use {}: allow more with --memory, or declare the index with a smaller files_per_segment",
                        index.encoding,
                        index.name,
                        context.budget.limit()
                    )));
                }
                tracing::warn!(
                    index = index.name,
                    bytes,
                    limit = context.budget.limit(),
                    "the memory limit does not allow for the encoding that auto chose; segments get the encoding equality instead"
                );
                *encoding = Encoding::Equality;
            }
            _ => break,
        }
    }
    // Files without rows need no memory, and a turn all the same.
    Ok(Coarse { turns: Semaphore::new(memory.len().max(1)), encodings, _memory: memory })
}

/// The encoding that an index was declared with.
pub(crate) fn encoding_of(index: &ManifestIndex) -> Result<Encoding> {
    index.encoding.known().ok_or_else(|| {
        Error::unsupported(format!(
            "the index {} has the encoding {}, which this release does not build: upgrade lakemark, or drop the index",
            index.name, index.encoding
        ))
    })
}

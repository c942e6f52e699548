//! Reads of many blocks of a segment, a part at a time: no more is in memory than what the cores work on, and its memory is used again.

use std::ops::Range;

use futures::{StreamExt, TryStreamExt, stream};

use super::CORES;
use crate::segments::Damage;

/// Blocks of a part: a leaf of a packed tree has a page.
pub(super) const BLOCKS_OF_PART: usize = 256;

/// Runs something for each part of so many blocks, as many at once as there are cores, and gives what comes of them in their order.
pub(super) async fn in_parts<T, F>(blocks: usize, run: impl Fn(Range<usize>) -> F) -> Result<Vec<T>, Damage>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Damage>> + Send + 'static,
{
    if blocks <= BLOCKS_OF_PART {
        return Ok(vec![run(0..blocks).await?]);
    }
    let parts = (0..blocks).step_by(BLOCKS_OF_PART).map(|start| start..blocks.min(start + BLOCKS_OF_PART));
    stream::iter(parts)
        .map(|part| tokio::spawn(run(part)))
        .buffered(*CORES)
        .map(|done| done.map_err(Damage::corrupt)?)
        .try_collect()
        .await
}

//! Reading parts of a column to measure them: row groups from all over a table, some of them at a time.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use lakemark_index::bitmap::{Chunk, ChunkBuilder};
use object_store::{ObjectMeta, ObjectStore};

use super::{
    FetchedFields, IndexedFields, RowGroupOfFile, bytes_of_column, fetch_fields, key_type, push_riding, push_rows,
};
use crate::error::{Error, Result};
use crate::files::footer::Footer;
use crate::storage::disk::on_a_thread;

/// Chunks of a sample that are read at a time,
const CONCURRENT_READS: u64 = 32;
/// and the bytes that these may have, unless one chunk has more.
const CONCURRENT_BYTES: u64 = 64 << 20;

/// A column of a row group that is read to be measured.
pub(crate) struct SampledChunk<'a> {
    pub meta: &'a ObjectMeta,
    pub name: &'a str,
    pub footer: Arc<Footer>,
    pub row_group: usize,
    /// No more rows than these, from the first on.
    pub rows: usize,
}

/// Reads parts of a column and sorts all of their rows together by value, with those that ride along.
pub(crate) async fn read_sample(
    store: &dyn ObjectStore,
    parts: &[SampledChunk<'_>],
    fields: &IndexedFields,
) -> Result<Chunk> {
    let mut builder = ChunkBuilder::new(&key_type(&fields.key)?);
    // Collected first, so that the futures do not borrow the iterator.
    let reads = parts.iter().map(|SampledChunk { meta, name, footer, row_group, .. }| {
        fetch_fields(store, meta, name, footer, *row_group, fields)
    });
    let reads: Vec<_> = reads.collect();
    let mut fetched = stream::iter(reads).buffered(at_once(parts, fields));
    for part in parts {
        let Some(FetchedFields { key, riding }) = fetched.try_next().await? else { break };
        let (footer, fields, name, size) =
            (Arc::clone(&part.footer), fields.clone(), part.name.to_owned(), part.meta.size);
        let (row_group, rows) = (part.row_group, part.rows);
        let decode = move || {
            let from = RowGroupOfFile { footer: &footer, row_group, name: &name, size };
            push_rows(&mut builder, from, &fields.key, key, None, Some(rows))?;
            push_riding(&mut builder, from, &fields.riding, riding, Some(rows)).map(|()| builder)
        };
        builder = on_a_thread(decode).await.map_err(|error| Error::task(&error))??;
    }
    on_a_thread(move || builder.finish()).await.map_err(|error| Error::task(&error))
}

/// How many parts of a sample are read at a time: fewer where they are large, as they wait in memory.
fn at_once(parts: &[SampledChunk<'_>], fields: &IndexedFields) -> usize {
    let bytes = |part: &SampledChunk<'_>| {
        let group = part.footer.metadata.row_groups().get(part.row_group);
        let columns = || std::iter::once(&fields.key).chain(&fields.riding);
        group.map_or(0, |group| columns().map(|field| bytes_of_column(group.columns(), field.name())).sum::<u64>())
    };
    let largest = parts.iter().map(bytes).max().unwrap_or_default().max(1);
    (CONCURRENT_BYTES / largest).clamp(1, CONCURRENT_READS) as usize
}

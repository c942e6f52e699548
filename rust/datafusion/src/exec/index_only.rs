//! Rows that no file is read for: the values of a scan's only column, which the index has with the number of rows of each.

use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use futures::{Stream, stream};
use lakemark_table::ValueCounts;

/// Values take at most this share of the memory of a session while they are read.
const MOST_SHARE: usize = 4;

/// Values of the index, which take the memory of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexOnlyRows {
    parts: Vec<Arc<ValueCounts>>,
    memory: Option<Arc<MemoryReservation>>,
}

/// One partition among several.
#[derive(Clone, Copy)]
pub(crate) struct PartitionOf {
    /// Its number.
    pub(crate) partition: usize,
    /// How many there are.
    pub(crate) partitions: usize,
}

/// Bytes that values may take while they are read.
pub(crate) fn most_bytes(context: &TaskContext) -> u64 {
    match context.memory_pool().memory_limit() {
        MemoryLimit::Finite(limit) => (limit / MOST_SHARE) as u64,
        MemoryLimit::Infinite | MemoryLimit::Unknown => u64::MAX,
    }
}

impl IndexOnlyRows {
    /// Keeps more values in memory; false if the session has no memory for them, and then none of them is kept.
    pub(crate) fn hold(&mut self, parts: Vec<ValueCounts>, context: &TaskContext) -> bool {
        if parts.is_empty() {
            return true;
        }
        let reservation = || Arc::new(MemoryConsumer::new("LakemarkScanExec").register(context.memory_pool()));
        let memory = self.memory.get_or_insert_with(reservation);
        let fits = memory.try_grow(parts.iter().map(bytes_of).sum()).is_ok();
        if fits {
            self.parts.extend(parts.into_iter().map(Arc::new));
        }
        fits
    }

    /// Batches of one partition, each value as often as it has rows.
    pub(crate) fn batches(
        &self,
        share: PartitionOf,
        schema: &SchemaRef,
        batch_rows: usize,
    ) -> Result<Vec<impl Stream<Item = Result<RecordBatch>> + use<>>> {
        self.parts.iter().map(|part| batches(Arc::clone(part), share, schema, batch_rows)).collect()
    }
}

/// Bytes that values and the numbers of their rows take.
pub(crate) fn bytes_of(part: &ValueCounts) -> usize {
    part.values.iter().map(|values| values.get_array_memory_size()).sum::<usize>() + part.rows.len() * size_of::<u64>()
}

fn batches(
    part: Arc<ValueCounts>,
    share: PartitionOf,
    schema: &SchemaRef,
    batch_rows: usize,
) -> Result<impl Stream<Item = Result<RecordBatch>> + use<>> {
    let PartitionOf { partition, partitions } = share;
    let (Some(field), [values]) = (schema.fields().first(), part.values.as_slice()) else {
        return internal_err!("index-only rows have one column");
    };
    let (values, schema) = (cast(values, field.data_type())?, Arc::clone(schema));
    let all = usize::try_from(part.rows.iter().sum::<u64>()).unwrap_or(usize::MAX);
    let share = all.div_ceil(partitions.max(1));
    let rows_of = move |value: usize| part.rows.get(value).map(|rows| usize::try_from(*rows).unwrap_or(usize::MAX));
    let mut places = (0u32..)
        .map_while(move |value| Some(std::iter::repeat_n(value, rows_of(value as usize)?)))
        .flatten()
        .skip(partition.saturating_mul(share))
        .take(share);
    let next = move || {
        let places: UInt32Array = places.by_ref().take(batch_rows.max(1)).collect();
        (!places.is_empty())
            .then(|| Ok(RecordBatch::try_new(Arc::clone(&schema), vec![take(&values, &places, None)?])?))
    };
    Ok(stream::iter(std::iter::from_fn(next)))
}

//! The Arrow C stream of an input of a split. It pulls batches, and lets no error or panic escape without the marker that Java looks for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::error::{NativeError, Result};
use crate::read::InputReader;
use crate::runtime::block_on;

/// Something that gives batches one by one.
pub(crate) trait Batches: Send {
    fn schema(&self) -> SchemaRef;
    fn next(&mut self) -> Result<Option<RecordBatch>>;
}

impl Batches for InputReader {
    fn schema(&self) -> SchemaRef {
        Self::schema(self)
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        block_on(Self::next(self))?
    }
}

/// A batch that is there already, or a stream without columns.
pub(crate) struct Once {
    schema: SchemaRef,
    batch: Option<RecordBatch>,
}

impl Once {
    pub(crate) fn new(batch: Option<RecordBatch>) -> Self {
        Self { schema: batch.as_ref().map_or_else(|| Schema::empty().into(), RecordBatch::schema), batch }
    }
}

impl Batches for Once {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.batch.take())
    }
}

/// Panics at the first batch; see [`crate::calls`].
pub(crate) struct Panicking;

impl Batches for Panicking {
    fn schema(&self) -> SchemaRef {
        Schema::empty().into()
    }

    #[expect(clippy::panic, reason = "it is there to prove that a panic is contained")]
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        panic!("asked for by the self test of streams")
    }
}

/// A reader that the C stream interface can export.
pub(crate) struct Exported<B> {
    batches: B,
    /// After a failure the source may be in any state, so it is not polled again.
    failed: bool,
}

impl<B: Batches> Exported<B> {
    pub(crate) fn new(batches: B) -> Self {
        Self { batches, failed: false }
    }
}

impl<B: Batches> Iterator for Exported<B> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        // The caller is C: a panic that passed here would end the JVM.
        let next = catch_unwind(AssertUnwindSafe(|| self.batches.next()))
            .unwrap_or_else(|payload| Err(NativeError::panic(payload.as_ref())));
        self.failed = next.is_err();
        next.map_err(NativeError::into_arrow).transpose()
    }
}

impl<B: Batches> RecordBatchReader for Exported<B> {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}

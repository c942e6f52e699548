//! Values that clients send for the parameters of their statements.
//!
//! So many bytes for each statement, so many for all of them together, and within a time. The bytes of all count until nobody keeps the
//! values any more.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, RecordBatch};
use arrow::error::ArrowError;
use arrow::ipc::root_as_message;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use futures::{Stream, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::error::{arrow_status, bad_stream, come_again};

/// How long a client may take to send its values.
const RECEIVED_WITHIN: Duration = Duration::from_secs(60);
/// What the bytes of all values are counted in.
const UNIT: usize = 1024;
/// How many statements lose their values so that others find room.
const MOST_FORGOTTEN: usize = 16;

/// Values that a client gave, a row for each run; none if it gave no columns.
pub(crate) type Values = Option<Vec<RecordBatch>>;

/// The room that values take, as long as it lives.
pub(crate) type Room = Option<OwnedSemaphorePermit>;

/// Receives values.
pub(crate) struct Receiving {
    /// The bytes of the values of one statement.
    most_bytes: usize,
    /// Units of the bytes of all.
    room: Arc<Semaphore>,
    within: Duration,
}

impl Receiving {
    /// So many bytes for each statement, and so many for all.
    pub(crate) fn new(most_bytes: usize, all_bytes: usize) -> Self {
        let units = all_bytes.max(most_bytes).div_ceil(UNIT).min(Semaphore::MAX_PERMITS);
        Self { most_bytes, room: Arc::new(Semaphore::new(units)), within: RECEIVED_WITHIN }
    }

    /// Reads the values that a client sends. Where they find no room, values of others may be forgotten that nobody used for long;
    /// `forget` says whether there were any.
    pub(crate) async fn values(
        &self,
        stream: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        forget: impl Fn() -> bool + Send,
    ) -> Result<(Values, Room), Status> {
        let received = tokio::time::timeout(self.within, self.received(stream, forget)).await;
        received.unwrap_or_else(|_| {
            let seconds = self.within.as_secs();
            Err(Status::deadline_exceeded(format!(
                "the parameters did not come within {seconds} s: send fewer rows at a time"
            )))
        })
    }

    async fn received(
        &self,
        stream: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        forget: impl Fn() -> bool + Send,
    ) -> Result<(Values, Room), Status> {
        // A client without values sends the name of the statement alone.
        let with_data = stream
            .map_err(|status| FlightError::Tonic(Box::new(status)))
            .try_filter(|data| ready(!data.data_header.is_empty()))
            .and_then(|data| ready(uncompressed(data)));
        let mut batches = FlightRecordBatchStream::new_from_flight_data(with_data);
        let (mut received, mut bytes, mut room) = (Vec::new(), 0_usize, None);
        while let Some(batch) = batches.try_next().await.map_err(bad_stream)? {
            // A row counts as a byte at least, since one of NULLs may have none.
            bytes = bytes.saturating_add(bytes_of(&batch).map_err(arrow_status)?.max(batch.num_rows()));
            if bytes > self.most_bytes {
                return Err(Status::invalid_argument(format!(
                    "the parameters have more than {} bytes: send fewer rows at a time, or raise the limit parameter_bytes of the server",
                    self.most_bytes
                )));
            }
            self.grow(&mut room, bytes, &forget)?;
            if batch.num_rows() > 0 {
                received.push(batch);
            }
        }
        let has_columns = batches.schema().is_some_and(|schema| !schema.fields().is_empty());
        Ok((has_columns.then_some(received), room))
    }

    /// Makes a room as large as these bytes.
    fn grow(&self, room: &mut Room, bytes: usize, forget: &impl Fn() -> bool) -> Result<(), Status> {
        let taken = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(bytes.div_ceil(UNIT).saturating_sub(taken)).unwrap_or(u32::MAX);
        let mut forgotten = 0;
        loop {
            match Arc::clone(&self.room).try_acquire_many_owned(more) {
                Ok(found) => {
                    match room {
                        Some(room) => room.merge(found),
                        None => *room = Some(found),
                    }
                    return Ok(());
                }
                Err(_) if forgotten < MOST_FORGOTTEN && forget() => forgotten += 1,
                Err(_) => {
                    let message = "the server is busy: the parameters of other statements take all the memory that they may have; try again, \
                                   send fewer rows at a time, or raise the limit memory_bytes";
                    return Err(come_again(message, self.within));
                }
            }
        }
    }
}

/// Refuses compressed values: they say themselves how much memory they need, so that a short message could ask for all that there is.
fn uncompressed(data: FlightData) -> Result<FlightData, FlightError> {
    let is_compressed = root_as_message(&data.data_header).is_ok_and(|message| {
        let in_dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
        let batch = message.header_as_record_batch().or(in_dictionary);
        batch.is_some_and(|batch| batch.compression().is_some())
    });
    match is_compressed {
        true => Err(Status::invalid_argument("the parameters are compressed: send them without compression").into()),
        false => Ok(data),
    }
}

/// Bytes of rows; their arrays may share what they were read from.
fn bytes_of(batch: &RecordBatch) -> Result<usize, ArrowError> {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size()).sum()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, NullArray, StringArray};
    use arrow::datatypes::Schema;
    use arrow::ipc::CompressionType;
    use arrow::ipc::writer::IpcWriteOptions;
    use arrow_flight::encode::FlightDataEncoderBuilder;
    use tonic::Code;

    use super::*;

    fn values(names: [&str; 2], rows: usize) -> RecordBatch {
        let columns: [ArrayRef; 2] =
            [Arc::new(Int64Array::from_iter_values((0..).take(rows))), Arc::new(StringArray::from(vec!["x"; rows]))];
        RecordBatch::try_from_iter(names.into_iter().zip(columns)).unwrap()
    }

    /// What a client sends, whose message may be compressed.
    async fn sent(
        rows: RecordBatch,
        compression: Option<CompressionType>,
        most_bytes: usize,
    ) -> Result<Values, Status> {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let encoder = FlightDataEncoderBuilder::new().with_options(options);
        let data = encoder.build(futures::stream::iter([Ok(rows)]));
        let receiving = Receiving::new(most_bytes, 1 << 30);
        let data = data.map_err(|error| Status::internal(error.to_string()));
        receiving.values(data, || false).await.map(|(values, _)| values)
    }

    #[tokio::test]
    async fn values_are_read_up_to_a_limit_and_rows_of_nulls_count_as_well() {
        let rows = || values(["a", "b"], 5);
        assert_eq!(sent(rows(), None, 1000).await.unwrap().unwrap(), [rows()]);
        assert!(sent(rows(), None, 10).await.unwrap_err().message().contains("more than 10 bytes"));
        let nulls = || RecordBatch::try_from_iter([("a", Arc::new(NullArray::new(1000)) as ArrayRef)]).unwrap();
        assert!(sent(nulls(), None, 999).await.is_err());
        assert!(sent(nulls(), None, 1000).await.is_ok());
        let none = RecordBatch::new_empty(Arc::new(Schema::empty()));
        assert_eq!(sent(none, None, 1000).await.unwrap(), None);
        assert_eq!(sent(rows().slice(0, 0), None, 1000).await.unwrap(), Some(Vec::new()));
    }

    #[tokio::test]
    async fn compressed_values_are_refused_before_they_are_unpacked() {
        let refused = sent(values(["a", "b"], 500), Some(CompressionType::LZ4_FRAME), 1 << 20).await.unwrap_err();
        assert!(refused.message().contains("without compression"), "{refused:?}");
    }

    #[tokio::test]
    async fn the_values_of_all_have_one_room_which_those_that_are_forgotten_leave() {
        let receiving = Receiving::new(4 * UNIT, 4 * UNIT);
        let send = |rows: RecordBatch| {
            let data = FlightDataEncoderBuilder::new().build(futures::stream::iter([Ok(rows)]));
            data.map_err(|error| Status::internal(error.to_string()))
        };
        let rows =
            || RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![0; 300])) as ArrayRef)]).unwrap();
        let (_, kept) = receiving.values(send(rows()), || false).await.unwrap();
        let refused = receiving.values(send(rows()), || false).await.unwrap_err();
        assert!(refused.code() == Code::ResourceExhausted && refused.message().contains("busy"), "{refused:?}");
        let kept = std::sync::Mutex::new(kept);
        let forget = || kept.lock().unwrap().take().is_some();
        assert!(receiving.values(send(rows()), forget).await.is_ok());
        assert!(receiving.values(send(rows()), forget).await.is_ok());
    }

    #[tokio::test]
    async fn values_that_do_not_come_are_not_waited_for() {
        let receiving = Receiving { within: Duration::from_millis(1), ..Receiving::new(UNIT, UNIT) };
        let refused = receiving.values(futures::stream::pending(), || false).await.unwrap_err();
        assert!(refused.code() == Code::DeadlineExceeded && refused.message().contains("did not come"), "{refused:?}");
    }
}

//! Damaged data files. The Parquet reader answers some bytes with an error and some with a panic. Both are errors here, so that whoever
//! reads a file can name it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::error::ArrowError;
use futures::{FutureExt, Stream};
use parquet::errors::{ParquetError, Result};

use crate::error::Error;

/// The error of a data file whose bytes make no sense.
#[must_use]
pub fn damaged(name: &str, problem: impl std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "the data file {name} is damaged ({problem}): restore it from a copy or write it again; if other readers read it, please report that"
    ))
}

/// What the Parquet reader does with bytes that nobody has checked.
///
/// # Errors
/// The reader panics.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| stopped(panic.as_ref()))
}

/// The same where it waits in between.
///
/// # Errors
/// The reader panics.
pub async fn guarded_wait<F: Future>(work: F) -> Result<F::Output> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| stopped(panic.as_ref()))
}

fn stopped(panic: &(dyn Any + Send)) -> ParquetError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it does not say why");
    ParquetError::General(format!("the Parquet reader gave up: {text}"))
}

/// What a reader of Parquet gives, up to its first panic, which is an error.
#[derive(Debug)]
pub struct Guarded<S>(Option<S>);

impl<S> Guarded<S> {
    /// Guards a reader.
    pub fn new(reader: S) -> Self {
        Self(Some(reader))
    }

    fn step<T>(&mut self, next: impl FnOnce(&mut S) -> T) -> Option<Result<T>> {
        let reader = self.0.as_mut()?;
        let given = guarded(|| next(reader));
        if given.is_err() {
            // After a panic the reader may be in any state.
            self.0 = None;
        }
        Some(given)
    }
}

impl<T, S: Stream<Item = Result<T>> + Unpin> Stream for Guarded<S> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.step(|reader| Pin::new(reader).poll_next(context)) {
            None => Poll::Ready(None),
            Some(Ok(given)) => given,
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
        }
    }
}

impl<T, S: Iterator<Item = Result<T, ArrowError>>> Iterator for Guarded<S> {
    type Item = Result<T, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.step(Iterator::next)? {
            Ok(given) => given,
            Err(error) => Some(Err(error.into())),
        }
    }
}

//! Writes results to stdout: rows as a table, JSON or CSV, and reports as text or JSON.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json;
use arrow::json::writer::JsonArray;
use arrow::util::display::FormatOptions;
use arrow::util::pretty::pretty_format_batches_with_options;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use lakemark_table::Report;

use crate::args::{Format, TextFormat};
use crate::failure::Failure;

/// Writes lines to stdout.
pub fn text(lines: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{lines}")?;
    Ok(out.flush()?)
}

/// Writes one JSON value to stdout, indented.
pub fn json_value<T: ?Sized + serde::Serialize>(value: &T) -> Result<(), Failure> {
    text(&serde_json::to_string_pretty(value)?)
}

/// Writes a report to stdout.
pub fn report<T: Report>(report: &T, format: TextFormat) -> Result<(), Failure> {
    match format {
        TextFormat::Json => json_value(report),
        TextFormat::Text => text(&report.describe().to_string()),
    }
}

/// Writes all rows of a result; a statement without columns (DDL) writes nothing. `max_rows` limits tables only, 0 is no
/// limit.
pub async fn rows(mut stream: SendableRecordBatchStream, format: Format, max_rows: usize) -> Result<(), Failure> {
    let schema = stream.schema();
    if schema.fields().is_empty() {
        while let Some(batch) = stream.next().await {
            batch?;
        }
        return Ok(());
    }
    let mut writer = RowWriter::new(format, schema, max_rows);
    while let Some(batch) = stream.next().await {
        if writer.write(batch?)?.is_break() {
            break;
        }
    }
    writer.finish()
}

/// Writes rows that are at hand.
pub fn batch(batch: RecordBatch, format: Format) -> Result<(), Failure> {
    let mut writer = RowWriter::new(format, batch.schema(), 0);
    // There is only this batch.
    let _ = writer.write(batch)?;
    writer.finish()
}

/// JSON and CSV are written as rows arrive; a table waits for all of them, because its widths do.
struct RowWriter {
    kind: RowFormat,
    /// Set once the reader of our output is gone.
    closed: Arc<AtomicBool>,
}

enum RowFormat {
    Table { batches: Vec<RecordBatch>, schema: SchemaRef, rows: usize, max_rows: usize },
    Json(Box<json::Writer<Out, JsonArray>>),
    Csv { writer: Box<csv::Writer<Out>>, schema: SchemaRef, rows: usize },
}

impl RowWriter {
    fn new(format: Format, schema: SchemaRef, max_rows: usize) -> Self {
        let closed = Arc::new(AtomicBool::new(false));
        let out = Out { inner: BufWriter::new(io::stdout()), closed: Arc::clone(&closed) };
        let kind = match format {
            Format::Table => {
                let max_rows = if max_rows == 0 { usize::MAX } else { max_rows };
                RowFormat::Table { batches: Vec::new(), schema, rows: 0, max_rows }
            }
            Format::Json => RowFormat::Json(Box::new(json::WriterBuilder::new().with_explicit_nulls(true).build(out))),
            Format::Csv => RowFormat::Csv {
                writer: Box::new(csv::WriterBuilder::new().with_header(true).build(out)),
                schema,
                rows: 0,
            },
        };
        Self { kind, closed }
    }

    /// Breaks when no further row would be shown.
    fn write(&mut self, batch: RecordBatch) -> Result<ControlFlow<()>, Failure> {
        if batch.num_rows() == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        match &mut self.kind {
            RowFormat::Table { batches, rows, max_rows, .. } => {
                *rows += batch.num_rows();
                batches.push(batch);
                // One row too many says that there are more.
                return Ok(if *rows > *max_rows { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
            }
            RowFormat::Json(writer) => writer.write(&batch).map_err(failure)?,
            RowFormat::Csv { writer, rows, .. } => {
                *rows += batch.num_rows();
                writer.write(&batch).map_err(failure)?;
            }
        }
        self.reader_is_there()?;
        Ok(ControlFlow::Continue(()))
    }

    fn reader_is_there(&self) -> Result<(), Failure> {
        if self.closed.load(Ordering::Relaxed) { Err(Failure::PipeClosed) } else { Ok(()) }
    }

    fn finish(self) -> Result<(), Failure> {
        match self.kind {
            RowFormat::Table { mut batches, schema, rows, max_rows } => {
                let cut = rows.saturating_sub(max_rows);
                if let Some(last) = batches.pop() {
                    batches.push(last.slice(0, last.num_rows().saturating_sub(cut)));
                } else {
                    batches.push(RecordBatch::new_empty(schema));
                }
                let options = FormatOptions::default().with_null("NULL");
                let drawn = pretty_format_batches_with_options(&batches, &options).map_err(failure)?;
                text(&drawn.to_string())?;
                if cut > 0 {
                    writeln!(io::stderr(), "only the first {max_rows} rows are shown; --max-rows 0 shows all")?;
                }
                Ok(())
            }
            RowFormat::Json(mut writer) => {
                writer.finish().map_err(failure)?;
                let mut out = writer.into_inner();
                out.write_all(b"\n")?;
                Ok(out.flush()?)
            }
            RowFormat::Csv { mut writer, schema, rows } => {
                if rows == 0 {
                    // The header is written with the first batch, so that no rows need an empty one.
                    writer.write(&RecordBatch::new_empty(schema)).map_err(failure)?;
                }
                Ok(writer.into_inner().flush()?)
            }
        }
    }
}

/// Stdout for writers that turn every error into text: a reader that went away is remembered instead.
struct Out {
    inner: BufWriter<io::Stdout>,
    closed: Arc<AtomicBool>,
}

impl Out {
    fn forgive<T>(&self, outcome: io::Result<T>, instead: T) -> io::Result<T> {
        match outcome {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed.store(true, Ordering::Relaxed);
                Ok(instead)
            }
            other => other,
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = self.inner.write(bytes);
        self.forgive(outcome, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.inner.flush();
        self.forgive(outcome, ())
    }
}

fn failure(error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, inner) => Failure::from(inner),
        other => Failure::Error(format!("the result cannot be printed in this format: {other}")),
    }
}

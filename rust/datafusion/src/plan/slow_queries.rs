//! One line of log for each query that takes at least as long as `lakemark.slow_query_ms` says.
//!
//! ```text
//! session: text, time of its planning ─▶ AskedQuery ─▶ Watch ─▶ WatchedRows ─▶ the line, once the rows end
//!                                        with the plan   since they are asked for
//! ```
//!
//! The time is that of planning, and that for which somebody waited for rows. What a reader takes between two batches is its own time.
//! A line has the shape of a query ([`QueryShape`]) and no value of it. Sessions that log no slow queries make nothing of all this.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::config::{ConfigOptions, Dialect};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};
use futures::{Stream, StreamExt};
use lakemark_table::{LeafReport, Stopwatch};

use crate::config::LakemarkOptions;
use crate::exec::index_aggregate::IndexAggregateExec;
use crate::exec::scan::LakemarkScanExec;
use crate::exec::scan::pages::PageCounts;
use crate::plan::query_shape::QueryShape;
use crate::share::operator::SharedExec;
use crate::share::statements::Execution;

/// The target of the lines about slow queries, by which a subscriber of `tracing` finds them.
pub const SLOW_QUERIES: &str = "lakemark_datafusion::slow_queries";

/// Letters of a query that a line shows.
const SHOWN_LETTERS: usize = 500;

/// A query that somebody asked of a session that logs slow ones. A program's query has it as an extension of the configuration of its session.
#[derive(Debug)]
pub(crate) struct AskedQuery {
    text: String,
    dialect: Dialect,
    /// What it took to plan it from its text.
    planning_seconds: f64,
    /// From how many seconds on it is slow.
    slow_seconds: f64,
}

impl AskedQuery {
    /// A query that was planned just now. None if the session logs no slow queries.
    pub(crate) fn of(text: impl FnOnce() -> String, config: &ConfigOptions, planning: Stopwatch) -> Option<Arc<Self>> {
        let slow_ms = LakemarkOptions::of(config).slow_query_ms.0?;
        let (dialect, planning_seconds) = (config.sql_parser.dialect, planning.seconds());
        Some(Arc::new(Self { text: text(), dialect, planning_seconds, slow_seconds: slow_ms as f64 / 1e3 }))
    }

    fn shape(&self) -> QueryShape {
        match dialect_from_str(self.dialect) {
            Some(dialect) => QueryShape::of(&self.text, dialect.as_ref()),
            None => QueryShape::of(&self.text, &GenericDialect {}),
        }
    }
}

/// A query whose rows somebody asked for.
pub(crate) struct Watch {
    asked: Arc<AskedQuery>,
    since: Stopwatch,
}

impl Watch {
    /// Begins with the making of the physical plan.
    pub(crate) fn begin(asked: Option<Arc<AskedQuery>>) -> Option<Self> {
        asked.map(|asked| Self { asked, since: Stopwatch::start() })
    }
}

/// The rows of an execution, whose end is logged if it is slow.
pub(crate) fn watched(execution: Execution, watch: Option<Watch>) -> SendableRecordBatchStream {
    let Execution { plan, rows } = execution;
    let Some(Watch { asked, since }) = watch else { return rows };
    let is_guest = plan.is::<SharedExec>() && plan.children().is_empty();
    let seconds = asked.planning_seconds + since.seconds();
    let operators = telling(plan);
    Box::pin(WatchedRows { rows, asked, operators, is_guest, since: None, seconds, given: 0, ended: false })
}

/// The operators of a plan that tell what was read. Others are not kept: they would keep what they have in memory.
fn telling(plan: Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let (mut found, mut open) = (Vec::new(), vec![plan]);
    while let Some(operator) = open.pop() {
        let children = operator.children();
        let tells = children.is_empty() || operator.is::<IndexAggregateExec>();
        open.extend(children.into_iter().cloned());
        if tells {
            found.push(operator);
        }
    }
    found
}

/// The rows of a query, with what is known of it so far.
struct WatchedRows {
    rows: SendableRecordBatchStream,
    asked: Arc<AskedQuery>,
    operators: Vec<Arc<dyn ExecutionPlan>>,
    /// Whether the rows are those of another query, whose operators tell nothing here.
    is_guest: bool,
    /// Since when somebody waits for rows; none between two batches.
    since: Option<Stopwatch>,
    /// Seconds of planning, and of waiting for rows.
    seconds: f64,
    /// Rows so far.
    given: u64,
    /// Whether its end was seen.
    ended: bool,
}

impl WatchedRows {
    /// Takes note of the end, once.
    fn end(&mut self, how: &'static str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.seconds += self.since.take().map_or(0.0, Stopwatch::seconds);
        if self.seconds >= self.asked.slow_seconds {
            self.log(how);
        }
    }

    fn log(&self, how: &'static str) {
        let (shape, read) = (self.asked.shape(), ReadTotals::of(&self.operators));
        let reasons = read.reasons.into_iter().collect::<Vec<_>>().join(", ");
        tracing::warn!(
            target: SLOW_QUERIES,
            query = %shape.beginning(SHOWN_LETTERS),
            query_hash = %format_args!("{:016x}", shape.hash),
            ended = how,
            milliseconds = milliseconds(self.seconds),
            planning_milliseconds = milliseconds(self.asked.planning_seconds),
            rows = self.given,
            shared = self.is_guest,
            bytes_read = read.bytes,
            index_bytes_read = read.index_bytes,
            files_skipped = read.files_skipped,
            pages_read = read.pages.read,
            pages_skipped = read.pages.skipped,
            reasons,
            "a slow query"
        );
    }
}

/// Milliseconds, to a thousandth.
fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

impl Stream for WatchedRows {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let since = *this.since.get_or_insert_with(Stopwatch::start);
        let polled = this.rows.poll_next_unpin(context);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Ok(batch))) => {
                this.seconds += since.seconds();
                this.since = None;
                this.given += batch.num_rows() as u64;
            }
            Poll::Ready(Some(Err(_))) => this.end("failed"),
            Poll::Ready(None) => this.end("done"),
        }
        polled
    }
}

impl RecordBatchStream for WatchedRows {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}

impl Drop for WatchedRows {
    /// Its reader has enough.
    fn drop(&mut self) {
        self.end("stopped");
    }
}

/// What the operators of a query read.
#[derive(Default)]
struct ReadTotals {
    /// Bytes of data files.
    bytes: u64,
    index_bytes: u64,
    /// Data files that the indexes left out.
    files_skipped: u64,
    pages: PageCounts,
    /// Why indexes did not answer, with the columns that it is about.
    reasons: BTreeSet<String>,
}

impl ReadTotals {
    fn of(operators: &[Arc<dyn ExecutionPlan>]) -> Self {
        let mut totals = Self::default();
        for operator in operators {
            let metrics = operator.metrics().unwrap_or_default();
            totals.bytes += sum(&metrics, "bytes_scanned");
            totals.index_bytes += sum(&metrics, "index_bytes_read");
            let Some(scan) = operator.downcast_ref::<LakemarkScanExec>() else { continue };
            totals.files_skipped += scan.report().files_pruned;
            totals.pages += scan.page_counts();
            totals.reasons.extend(scan.report().leaves.iter().filter_map(reason));
        }
        totals
    }
}

fn sum(metrics: &MetricsSet, name: &str) -> u64 {
    metrics.sum_by_name(name).map_or(0, |sum| sum.as_usize() as u64)
}

/// Why no index answered a condition, and on which column. The condition itself has values in it.
fn reason(leaf: &LeafReport) -> Option<String> {
    let code = leaf.reason?.code();
    Some(match &leaf.column {
        Some(column) => format!("{code}({column})"),
        None => code.to_owned(),
    })
}

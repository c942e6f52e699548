//! What a job shows on stderr while it runs, and how Ctrl-C stops it.
//!
//! On a terminal that is a bar, elsewhere a line every 10 seconds, which a log can keep.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lakemark_table::metrics::Metrics;
use lakemark_table::{CancelFlag, Progress, Stopwatch, Table};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::failure::{Failure, INTERRUPTED};
use crate::log::Log;
use crate::reached::Reached;

/// The time between two lines.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// What shows how far a verb is with a table.
pub(crate) fn shown(verb: &'static str, table: &Table, log: Log) -> Arc<dyn Progress> {
    let work = Arc::new(Work::new(verb, table));
    if log.is_text() && io::stderr().is_terminal() {
        Arc::new(Bar::new(work))
    } else {
        Arc::new(Lines { work, log, task: Mutex::default() })
    }
}

/// What a job did so far. Rows come from the job, files and bytes are what its table counts.
struct Work {
    verb: &'static str,
    table: String,
    metrics: Arc<Metrics>,
    rows: AtomicU64,
    total_rows: AtomicU64,
    begun: Mutex<Begun>,
}

/// When the job began, and what was counted before.
struct Begun {
    stopwatch: Stopwatch,
    files: u64,
    bytes: u64,
}

impl Begun {
    fn now(metrics: &Metrics) -> Self {
        Self { stopwatch: Stopwatch::start(), files: files(metrics), bytes: metrics.get.bytes.get() }
    }
}

fn files(metrics: &Metrics) -> u64 {
    metrics.indexed_files.get() + metrics.migrated_files.get()
}

impl Work {
    fn new(verb: &'static str, table: &Table) -> Self {
        let metrics = Arc::clone(table.metrics());
        let begun = Mutex::new(Begun::now(&metrics));
        let (rows, total_rows) = (AtomicU64::default(), AtomicU64::default());
        Self { verb, table: table.location().to_owned(), metrics, rows, total_rows, begun }
    }

    /// A command may have several things to read, one after the other.
    fn begin(&self, total_rows: u64) {
        self.rows.store(0, Ordering::Relaxed);
        self.total_rows.store(total_rows, Ordering::Relaxed);
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Begun::now(&self.metrics);
    }

    fn reached(&self) -> Reached {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        Reached {
            rows: self.rows.load(Ordering::Relaxed),
            total_rows: self.total_rows.load(Ordering::Relaxed),
            files: files(&self.metrics).saturating_sub(begun.files),
            bytes: self.metrics.get.bytes.get().saturating_sub(begun.bytes),
            seconds: begun.stopwatch.seconds(),
        }
    }
}

/// A bar on a terminal.
struct Bar {
    work: Arc<Work>,
    bar: ProgressBar,
}

impl Bar {
    /// A bar that waits for the job to begin.
    fn new(work: Arc<Work>) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let template = "{bar:30} {percent:>3}%  {human_pos} of {human_len} rows, {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self { work, bar }
    }
}

impl Progress for Bar {
    fn start(&self, total_rows: u64) {
        self.work.begin(total_rows);
        self.bar.reset();
        self.bar.set_length(total_rows);
    }

    fn advance(&self, rows: u64) {
        self.work.rows.fetch_add(rows, Ordering::Relaxed);
        self.bar.set_message(self.work.reached().rates());
        self.bar.inc(rows);
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A line from time to time.
struct Lines {
    work: Arc<Work>,
    log: Log,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Lines {
    fn stop(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

impl Progress for Lines {
    fn start(&self, total_rows: u64) {
        self.stop();
        self.work.begin(total_rows);
        let (work, log) = (Arc::clone(&self.work), self.log);
        let Ok(runtime) = Handle::try_current() else { return };
        let task = runtime.spawn(async move {
            loop {
                tokio::time::sleep(BETWEEN_LINES).await;
                let reached = work.reached();
                let (line, fields) = (reached.line(work.verb, &work.table), reached.fields(work.verb, &work.table));
                log.line("progress", &line, fields);
            }
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    fn advance(&self, rows: u64) {
        self.work.rows.fetch_add(rows, Ordering::Relaxed);
    }

    fn finish(&self) {
        self.stop();
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Listens for Ctrl-C as long as it lives. The first one asks the build to commit what is finished and to stop. The second one ends the
/// process, which costs what was not committed.
pub struct CtrlC(JoinHandle<()>);

impl CtrlC {
    /// Sets `flag` at the first Ctrl-C. Listens from this call on, not from when the runtime gets to it.
    pub fn sets(flag: CancelFlag) -> Result<Self, Failure> {
        let mut interrupts = signal(SignalKind::interrupt())?;
        Ok(Self(tokio::spawn(async move {
            if interrupts.recv().await.is_none() {
                return;
            }
            flag.cancel();
            let _ = writeln!(
                io::stderr(),
                "stopping once what is finished is committed; press Ctrl-C again to stop at once"
            );
            if interrupts.recv().await.is_some() {
                std::process::exit(INTERRUPTED);
            }
        })))
    }
}

impl Drop for CtrlC {
    fn drop(&mut self) {
        self.0.abort();
    }
}

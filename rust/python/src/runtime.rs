//! The process's one tokio runtime, and waiting on it from Python threads.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use lakemark_table::{CancelFlag, Error, ErrorKind};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{error, warning};

/// What an interrupt says of a change that no caller waits for any more.
pub(crate) const NOT_KNOWN: &str = "it is not known whether the change was made; read the table to see";

/// The error for code of a forked child that uses something of ours: threads are not forked, so that every wait would be for ever.
const FORKED: &str = "this was opened before the process was forked, and its threads are not in the child: \
                      start workers with the `spawn` or `forkserver` method, or open tables in the child only";

/// The error of something that another process made, if this one is another: its child.
pub(crate) fn forked_from(process: u32) -> Option<Error> {
    (process != std::process::id()).then(|| Error::new(ErrorKind::Unsupported, FORKED))
}

/// How often a waiting thread looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(100);

struct Owned {
    runtime: Runtime,
    process: u32,
}

static RUNTIME: OnceLock<Owned> = OnceLock::new();

/// The runtime; an error in a forked child, where its threads do not exist and every wait would be for ever.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    if RUNTIME.get().is_none() {
        warning::listen();
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("lakemark")
            .build()
            .map_err(|cause| error::internal(py, format!("no threads for I/O: {cause}")))?;
        // Two threads may get here at once; the slower one's runtime is dropped unused.
        let _ = RUNTIME.set(Owned { runtime, process: std::process::id() });
    }
    let owned = RUNTIME.get().ok_or_else(|| error::internal(py, "no runtime"))?;
    match forked_from(owned.process) {
        Some(forked) => Err(error::to_python(py, &forked)),
        None => Ok(&owned.runtime),
    }
}

/// Work on the runtime's threads. Dropping it drops the future.
struct Task<T> {
    work: JoinHandle<Option<T>>,
    /// The future ends when this is dropped.
    _keep: oneshot::Sender<()>,
}

impl<T: Send + 'static> Task<T> {
    /// Starts work. The future is made on its thread and stays there, so it need not be `Send`.
    fn start<F, W>(runtime: &Runtime, work: F) -> Self
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = T>,
    {
        let (keep, dropped) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let work = runtime.spawn_blocking(move || {
            handle.block_on(async move {
                tokio::select! {
                    outcome = work() => Some(outcome),
                    _ = dropped => None,
                }
            })
        });
        Self { work, _keep: keep }
    }

    /// Waits for one tick without the GIL; `None` if the work is not done by then.
    fn poll(&mut self, py: Python<'_>, runtime: &Runtime) -> PyResult<Option<T>> {
        let work = &mut self.work;
        let waited = py.detach(|| runtime.block_on(async { tokio::time::timeout(TICK, work).await }));
        match waited {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(lost)) => Err(error::lost_task(py, lost)),
            Err(_) => Ok(None),
        }
    }
}

/// Runs `work` on the runtime and waits without the GIL. Ctrl-C drops the work and raises `KeyboardInterrupt`.
pub(crate) fn wait<T, F, W>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> W + Send + 'static,
    W: Future<Output = lakemark_table::Result<T>>,
{
    let runtime = runtime(py)?;
    let mut task = Task::start(runtime, work);
    let outcome = loop {
        if let Some(outcome) = task.poll(py, runtime)? {
            break outcome;
        }
        py.check_signals()?;
    };
    raised(py, outcome)
}

/// What work gave, after the warnings that were logged meanwhile.
fn raised<T>(py: Python<'_>, outcome: lakemark_table::Result<T>) -> PyResult<T> {
    warning::raise(py)?;
    outcome.map_err(|cause| error::to_python(py, &cause))
}

/// What came of waiting for work that an interrupt does not drop.
enum Waited<T> {
    /// The work ended, after an interrupt or without one.
    Ended { outcome: lakemark_table::Result<T>, interrupt: Option<PyErr> },
    /// A second interrupt came before the work had ended, which dropped it.
    Dropped(PyErr),
}

/// Runs `work` and waits for its end, also after Ctrl-C or an error of `tick`, which counts as one and is called about ten
/// times a second until then. `interrupted` is called at the first of these.
fn wait_for_end<T, F, W>(
    py: Python<'_>,
    work: F,
    tick: &mut impl FnMut(Python<'_>) -> PyResult<()>,
    interrupted: impl Fn(),
) -> PyResult<Waited<T>>
where
    T: Send + 'static,
    F: FnOnce() -> W + Send + 'static,
    W: Future<Output = lakemark_table::Result<T>>,
{
    let runtime = runtime(py)?;
    let mut task = Task::start(runtime, work);
    let mut interrupt: Option<PyErr> = None;
    loop {
        if let Some(outcome) = task.poll(py, runtime)? {
            return Ok(Waited::Ended { outcome, interrupt });
        }
        let first = match (&interrupt, py.check_signals()) {
            (None, Ok(())) => tick(py).err(),
            (None, Err(first)) => Some(first),
            (Some(_), Ok(())) => None,
            (Some(_), Err(second)) => return Ok(Waited::Dropped(second)),
        };
        if first.is_some() {
            interrupted();
            interrupt = first;
        }
    }
}

/// Like [`wait`], for work that stops itself in good order when `cancel` is set: after Ctrl-C, or an error of `tick`,
/// it is given the time to do so. `tick` is called about ten times a second.
pub(crate) fn wait_cancellable<T, F, W>(
    py: Python<'_>,
    work: F,
    cancel: &CancelFlag,
    mut tick: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> W + Send + 'static,
    W: Future<Output = lakemark_table::Result<T>>,
{
    match wait_for_end(py, work, &mut tick, || cancel.cancel())? {
        Waited::Ended { outcome: Err(stopped), interrupt: Some(interrupt) } => {
            Err(with_outcome(py, interrupt, &stopped.to_string()))
        }
        // A second Ctrl-C does not wait for good order. What was committed stays, the rest is never seen.
        Waited::Dropped(interrupt) | Waited::Ended { interrupt: Some(interrupt), .. } => Err(interrupt),
        Waited::Ended { outcome, interrupt: None } => {
            tick(py)?;
            raised(py, outcome)
        }
    }
}

/// Like [`wait`], for work that is finished once it has begun. After Ctrl-C it is waited for, and the `KeyboardInterrupt`
/// says what became of it: `done` if it went well, else its error. A second Ctrl-C does not wait.
pub(crate) fn wait_finished<T, F, W>(py: Python<'_>, work: F, done: impl FnOnce(&T) -> String) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> W + Send + 'static,
    W: Future<Output = lakemark_table::Result<T>>,
{
    wait_reporting(py, work, done, |_| Ok(()))
}

/// [`wait_finished`], with `tick` called about ten times a second, and at the end. Its error is raised as an interrupt is.
pub(crate) fn wait_reporting<T, F, W>(
    py: Python<'_>,
    work: F,
    done: impl FnOnce(&T) -> String,
    mut tick: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T>
where
    T: Send + 'static,
    F: FnOnce() -> W + Send + 'static,
    W: Future<Output = lakemark_table::Result<T>>,
{
    match wait_for_end(py, work, &mut tick, || {})? {
        Waited::Dropped(interrupt) => Err(with_outcome(py, interrupt, NOT_KNOWN)),
        Waited::Ended { outcome, interrupt: Some(interrupt) } => {
            let said = match outcome {
                Ok(outcome) => done(&outcome),
                Err(cause) => format!("the change was not made: {cause}"),
            };
            Err(with_outcome(py, interrupt, &said))
        }
        Waited::Ended { outcome, interrupt: None } => {
            tick(py)?;
            raised(py, outcome)
        }
    }
}

/// An interrupt that says what became of the work. One with words of its own, from a handler of the caller's, keeps them.
pub(crate) fn with_outcome(py: Python<'_>, interrupt: PyErr, said: &str) -> PyErr {
    let value = interrupt.value(py);
    let silent = value.getattr("args").and_then(|args| args.len()).is_ok_and(|words| words == 0);
    if silent {
        // A message that cannot be set is lost; the interrupt must not be.
        let _ = value.setattr("args", (said,));
    }
    interrupt
}

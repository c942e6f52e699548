//! The process's one tokio runtime, and waiting on it from Python threads.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use lakemark_table::CancelFlag;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::{error, warning};

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
    if owned.process != std::process::id() {
        return Err(error::internal(
            py,
            "lakemark was used before this process was forked; start workers with the `spawn` or `forkserver` method",
        ));
    }
    Ok(&owned.runtime)
}

/// Runs `work` on the runtime and waits without the GIL. Ctrl-C drops the work and raises `KeyboardInterrupt`.
pub(crate) fn wait<T, E, F>(py: Python<'_>, work: F) -> PyResult<T>
where
    T: Send + 'static,
    E: Into<lakemark_table::Error> + Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    let runtime = runtime(py)?;
    let mut task = runtime.spawn(work);
    let outcome = loop {
        if let Some(outcome) = poll(py, runtime, &mut task)? {
            break outcome;
        }
        if let Err(interrupt) = py.check_signals() {
            task.abort();
            return Err(interrupt);
        }
    };
    warning::raise(py)?;
    outcome.map_err(|cause| error::to_python(py, &cause.into()))
}

/// Like [`wait`], for work that stops itself in good order when `cancel` is set: after Ctrl-C, or an error of `tick`,
/// it is given the time to do so. `tick` is called about ten times a second.
pub(crate) fn wait_cancellable<T, F>(
    py: Python<'_>,
    work: F,
    cancel: &CancelFlag,
    mut tick: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T>
where
    T: Send + 'static,
    F: Future<Output = lakemark_table::Result<T>> + Send + 'static,
{
    let runtime = runtime(py)?;
    let mut task = runtime.spawn(work);
    let mut interrupt: Option<PyErr> = None;
    let outcome = loop {
        if let Some(outcome) = poll(py, runtime, &mut task)? {
            break outcome;
        }
        let checked = match interrupt {
            None => py.check_signals().and_then(|()| tick(py)),
            Some(_) => py.check_signals(),
        };
        match (checked, interrupt.take()) {
            (Ok(()), pending) => interrupt = pending,
            (Err(first), None) => {
                cancel.cancel();
                interrupt = Some(first);
            }
            // A second Ctrl-C does not wait for good order. What was committed stays, the rest is never seen.
            (Err(_), Some(first)) => {
                task.abort();
                return Err(first);
            }
        }
    };
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    tick(py)?;
    warning::raise(py)?;
    outcome.map_err(|cause| error::to_python(py, &cause))
}

/// Waits for one tick; `None` if the task is not finished by then.
fn poll<R: Send>(py: Python<'_>, runtime: &Runtime, task: &mut JoinHandle<R>) -> PyResult<Option<R>> {
    let waited = py.detach(|| runtime.block_on(async { tokio::time::timeout(TICK, task).await }));
    match waited {
        Ok(Ok(outcome)) => Ok(Some(outcome)),
        Ok(Err(lost)) => Err(error::lost_task(py, lost)),
        Err(_) => Ok(None),
    }
}

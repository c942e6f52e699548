//! Warnings of the library become Python warnings, and lines about slow queries become records of Python's `logging`.
//!
//! They arise on the runtime's threads, which must never wait for the GIL: they are queued there, and raised or logged by
//! the next call that comes back to Python.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use lakemark_datafusion::SLOW_QUERIES;
use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, registry};

use crate::error;

/// More than this many wait only if no call raises them; the oldest are dropped then.
const LIMIT: usize = 100;

/// The logger that is told of slow queries.
const LOGGER: &str = "lakemark.slow_queries";

static WAITING: Mutex<VecDeque<Waiting>> = Mutex::new(VecDeque::new());

/// What waits for a call to come back to Python.
enum Waiting {
    Warning(String),
    SlowQuery(String),
}

struct Queue;

fn is_warning_of_ours(metadata: &Metadata<'_>) -> bool {
    metadata.is_event() && *metadata.level() == Level::WARN && metadata.target().starts_with("lakemark")
}

impl<S: Subscriber> Layer<S> for Queue {
    /// Whatever else is traced costs nothing: it is never made.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_warning_of_ours(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !is_warning_of_ours(event.metadata()) {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() == LIMIT {
            waiting.pop_front();
        }
        let is_slow_query = event.metadata().target() == SLOW_QUERIES;
        let text = text.finish();
        waiting.push_back(if is_slow_query { Waiting::SlowQuery(text) } else { Waiting::Warning(text) });
    }
}

/// Message first, then the other fields as `name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: Vec<String>,
}

impl Text {
    fn finish(self) -> String {
        if self.fields.is_empty() {
            return self.message;
        }
        format!("{} ({})", self.message, self.fields.join(", "))
    }

    fn put(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
        } else {
            self.fields.push(format!("{}={value}", field.name()));
        }
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

/// Begins to queue warnings, unless the process has a subscriber of its own (the shell command has).
pub(crate) fn listen() {
    // An error says that there is a subscriber already, and that is its owner's choice.
    let _ = tracing::subscriber::set_global_default(registry().with(Queue));
}

/// Raises what is waiting as `LakemarkWarning`, or logs it; an error if the user turned warnings into errors.
pub(crate) fn raise(py: Python<'_>) -> PyResult<()> {
    let waiting = std::mem::take(&mut *WAITING.lock().unwrap_or_else(PoisonError::into_inner));
    if waiting.is_empty() {
        return Ok(());
    }
    let category = error::class(py, "LakemarkWarning")?;
    for waiting in waiting {
        match waiting {
            Waiting::Warning(text) => {
                let text = CString::new(text.replace('\0', "\u{fffd}"))?;
                // Level 2 is the caller of the Python layer's method.
                PyErr::warn(py, &category, &text, 2)?;
            }
            Waiting::SlowQuery(text) => {
                let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
                logger.call_method1("warning", ("%s", text))?;
            }
        }
    }
    Ok(())
}

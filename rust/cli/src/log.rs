//! What goes to stderr besides progress bars: lines of text, or one JSON object a line.
//!
//! A line of a job has a name, which programs go by, and a text, which people read. Warnings and whatever else is logged come by the
//! same way, so that a collector finds nothing but objects.

use std::fmt;
use std::io::{self, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::args::{LogArgs, LogFormat};
use crate::failure::Failure;
use crate::spans::Spans;

/// What is logged unless `LAKEMARK_LOG` or `--log` says otherwise: our warnings, and errors of everything below us.
const DEFAULT_LOG: &str = "error,lakemark_cli=warn,lakemark_serve=warn,lakemark_datafusion=warn,\
     lakemark_catalog=warn,lakemark_table=warn,lakemark_index=warn";

/// Writes lines to stderr.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    format: LogFormat,
}

impl Log {
    /// The log of a command; from now on warnings go there, too, and spans to where they are sent.
    pub(crate) fn begin(lines: Option<&LogArgs>, spans: &Spans) -> Self {
        let format = lines.map(|lines| lines.log_format).unwrap_or_default();
        let filter = match lines.and_then(|lines| lines.log.as_ref()) {
            Some(given) => EnvFilter::new(given),
            None => EnvFilter::try_from_env("LAKEMARK_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG)),
        };
        // It fails if this process logs already, as a Python program that embeds us may.
        let _ = match format {
            LogFormat::Json => spans.registry().with(JsonLines.with_filter(filter)).try_init(),
            LogFormat::Text => {
                let text = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false).without_time();
                spans.registry().with(text.with_filter(filter)).try_init()
            }
        };
        spans.tell();
        Self { format }
    }

    /// Whether lines are text.
    pub(crate) fn is_text(self) -> bool {
        self.format == LogFormat::Text
    }

    /// Writes what happened: `text` for people, or `fields` under the name of the event.
    pub(crate) fn line(self, event: &str, text: &str, fields: Map<String, Value>) {
        match self.format {
            LogFormat::Text => print(text),
            LogFormat::Json => print_object("info", event, fields),
        }
    }

    /// Writes what went wrong, where the command goes on.
    pub(crate) fn problem(self, event: &str, text: &str, fields: Map<String, Value>) {
        match self.format {
            LogFormat::Text => print(text),
            LogFormat::Json => print_object("error", event, fields),
        }
    }

    /// Writes why the command failed.
    pub(crate) fn failure(self, failure: &Failure) {
        let message = failure.to_string();
        match self.format {
            _ if message.is_empty() => {}
            LogFormat::Text => print(&format!("error: {message}")),
            LogFormat::Json => print_object("error", "error", object(json!({ "message": message }))),
        }
    }
}

/// The fields of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => Map::from_iter([("value".to_owned(), other)]),
    }
}

fn print(line: &str) {
    // Nothing is left to be done if stderr is closed.
    let _ = writeln!(io::stderr(), "{line}");
}

fn print_object(level: &str, event: &str, fields: Map<String, Value>) {
    let time = DateTime::<Utc>::from(lakemark_table::now()).to_rfc3339_opts(SecondsFormat::Millis, true);
    let mut line = object(json!({ "time": time, "level": level, "event": event }));
    line.extend(fields);
    print(&Value::Object(line).to_string());
}

/// Warnings and other events of the libraries, as objects of the event `log`.
struct JsonLines;

impl<S: Subscriber> Layer<S> for JsonLines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        print_object(&event.metadata().level().as_str().to_ascii_lowercase(), "log", fields.0);
    }
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        // What every line has is not to be replaced.
        let name = match field.name() {
            "time" | "level" | "event" => format!("{}_", field.name()),
            name => name.to_owned(),
        };
        self.0.insert(name, value);
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

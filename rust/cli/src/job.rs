//! A command that runs for a while and that operators look at: its lines, its counters as a file and on a port.

use std::sync::Arc;
use std::time::Duration;

use lakemark_serve::http::{HttpServer, Pages};
use lakemark_table::{Progress, Report, Table};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::args::JobArgs;
use crate::exporter::Exporter;
use crate::failure::Failure;
use crate::log::{Log, object};
use crate::progress;

/// The time after which the file is written again.
const BETWEEN_FILES: Duration = Duration::from_secs(10);

/// A command that operators look at, as long as it lives.
pub(crate) struct Job {
    log: Log,
    exporter: Arc<Exporter>,
    /// Whether somebody collects the counters.
    is_collected: bool,
    _server: Option<HttpServer>,
    writer: Option<JoinHandle<()>>,
}

impl Job {
    /// Begins: the port is open and the file is there, or nothing is begun at all.
    pub(crate) async fn begin(args: &JobArgs, log: Log) -> Result<Self, Failure> {
        let exporter = Arc::new(Exporter::new(args.metrics_file.clone()));
        if let (Err(error), Some(path)) = (exporter.write(), &args.metrics_file) {
            return Err(Failure::Error(format!(
                "the metrics cannot be written to {}: {error}; give --metrics-file a path in a folder that is there",
                path.display()
            )));
        }
        let server = match args.metrics_port {
            None => None,
            Some(address) => {
                let pages: Arc<dyn Pages> = exporter.clone();
                let listening = HttpServer::listen(address, pages).await;
                Some(listening.map_err(|error| {
                    Failure::Error(format!(
                        "{address} cannot be listened on: {error}; give --metrics-port another port"
                    ))
                })?)
            }
        };
        let writer = exporter.has_file().then(|| tokio::spawn(write_from_time_to_time(Arc::clone(&exporter))));
        let is_collected = exporter.has_file() || server.is_some();
        Ok(Self { log, exporter, is_collected, _server: server, writer })
    }

    /// Tells the counters of this table from now on.
    pub(crate) fn add(&self, table: &Arc<Table>) {
        self.exporter.add(table);
    }

    /// What shows how far a verb is with a table; nothing for those who want it quiet.
    pub(crate) fn progress(&self, verb: &'static str, table: &Table, quiet: bool) -> Option<Arc<dyn Progress>> {
        (!quiet).then(|| progress::shown(verb, table, self.log))
    }

    /// Tells what a verb did, if it went well. Who collects counters gets the coverage with them, for one listing more.
    pub(crate) async fn ended<T: Report>(&self, verb: &str, table: &Table, outcome: &lakemark_table::Result<T>) {
        if self.is_collected
            && let Ok(coverage) = table.index_coverage().await
        {
            table.metrics().set_coverage(coverage, lakemark_table::now());
        }
        if let (Ok(report), false) = (outcome, self.log.is_text()) {
            self.log.line("done", "", done(verb, table, report));
        }
        self.exporter.write_or_warn();
    }

    /// Tells something by a line; text for people, fields for programs.
    pub(crate) fn line(&self, event: &str, text: &str, fields: Map<String, Value>) {
        self.log.line(event, text, fields);
    }

    /// Tells what went wrong, where the command goes on.
    pub(crate) fn problem(&self, event: &str, text: &str, fields: Map<String, Value>) {
        self.log.problem(event, text, fields);
    }

    /// Writes the file now.
    pub(crate) fn write(&self) {
        self.exporter.write_or_warn();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(writer) = &self.writer {
            writer.abort();
        }
    }
}

async fn write_from_time_to_time(exporter: Arc<Exporter>) {
    loop {
        tokio::time::sleep(BETWEEN_FILES).await;
        exporter.write_or_warn();
    }
}

/// The fields of what a verb did: its report, and the counters of its table.
pub(crate) fn done<T: Serialize>(verb: &str, table: &Table, report: &T) -> Map<String, Value> {
    object(json!({
        "verb": verb,
        "table": table.location(),
        "report": report,
        "counters": table.metrics().values(lakemark_table::now()),
    }))
}

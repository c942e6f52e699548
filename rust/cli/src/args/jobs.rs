//! What operators see of a job: the options that `index build`, `index compact`, `index watch` and `migrate` share, and `serve` in part.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::TuningArgs;
use super::values::{KeyValue, key_value, listen_address, log_filter, pause};

/// The lines of a job.
#[derive(Clone, Debug, Default, Args)]
pub struct LogArgs {
    /// How lines on stderr are written
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged: error, warn, info, debug or trace, or a filter such as lakemark_table=debug; LAKEMARK_LOG if it is left out
    #[arg(long, value_name = "LEVEL", value_parser = log_filter)]
    pub log: Option<String>,
}

/// What operators see of a job.
#[derive(Clone, Debug, Default, Args)]
pub struct JobArgs {
    /// Its lines.
    #[command(flatten)]
    pub lines: LogArgs,
    /// Write counters and coverage to this file as OpenMetrics text every 10 seconds and at the end, e.g. for node_exporter
    #[arg(long, value_name = "PATH")]
    pub metrics_file: Option<PathBuf>,
    /// Answer GET /metrics on this port while the command runs, for this machine alone unless an address is given
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    pub metrics_port: Option<SocketAddr>,
}

/// How lines on stderr are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text to read; on a terminal with a progress bar
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// `lakemark index watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Folders, files, globs in quotes, or URLs of the tables, or their names in lakemark.toml
    #[arg(value_name = "TABLE", required = true)]
    pub tables: Vec<String>,
    /// Where the store of the one table is, if not in _lakemark beside the data; required for globs and read-only places
    #[arg(long, value_name = "PATH")]
    pub store: Option<String>,
    /// Option of the object store, e.g. aws_region=eu-north-1; may be given several times
    #[arg(long = "storage", value_name = "KEY=VALUE", value_parser = key_value)]
    pub storage: Vec<KeyValue>,
    /// The profile of lakemark.toml that has the credentials; the one whose scope is the closest if it is left out
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// How long to wait between two looks, e.g. 30s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = pause, default_value = "30s")]
    pub every: Duration,
    /// Look once, build what is new, and end
    #[arg(long)]
    pub once: bool,
    /// Leave the segments as they are, however many there are; without it each build merges those that are too many for their sizes
    #[arg(long)]
    pub no_merge: bool,
    /// How the builds run.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// What operators see.
    #[command(flatten)]
    pub job: JobArgs,
}

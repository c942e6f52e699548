//! The options of `key`, `insert`, `upsert`, `update`, `delete`, `flush`, `repair` and `migrate`.

use clap::Args;

use super::jobs::JobArgs;
use super::values::{KeyValue, RepairChoice, key_value, share, size};
use super::{Format, TableArgs, TextFormat, TuningArgs};

/// `lakemark key`.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// Column of the key; several are separated by commas
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',', required = true)]
    pub on: Vec<String>,
    /// Option of buffered updates; may be given several times
    #[arg(long = "with", value_name = "KEY=VALUE", value_parser = key_value)]
    pub options: Vec<KeyValue>,
    /// How the index is built.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// `lakemark insert`, `upsert`, `update` and `delete`.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// File with the rows: .parquet, .csv, .json, .ndjson, .arrow, or - for CSV from stdin
    #[arg(value_name = "FILE")]
    pub file: String,
    /// Declare these columns as the key if the table has none yet
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',')]
    pub key: Option<Vec<String>>,
    /// A name for whoever makes the change, so that it is made once: see --txn-version
    #[arg(long, value_name = "NAME", requires = "txn_version")]
    pub txn_app_id: Option<String>,
    /// The number of the change: if NAME made one with this number, or a higher one, before, nothing is done
    #[arg(long, value_name = "NUMBER", requires = "txn_app_id")]
    pub txn_version: Option<u64>,
    /// No progress bar while a key is declared
    #[arg(long, short)]
    pub quiet: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `lakemark flush`.
#[derive(Debug, Args)]
pub struct FlushArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
}

/// `lakemark repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// `keep` lets them count over what the table has of their keys, `discard` forgets them
    #[arg(long, value_enum)]
    pub buffered: RepairChoice,
}

/// `lakemark migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// How much of what is buffered, above 0 up to 1: the rows with the lowest keys first
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "1")]
    pub fraction: f64,
    /// Migrate in slices of the key range, each in a commit of its own that writes about so many bytes of data files, such as 1G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<u64>,
    /// Do nothing while less of the cache than this is full, such as 50%
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub threshold: Option<f64>,
    /// Let the new data files of a folder be files of the folder, for every reader; those that they replace go to the store
    #[arg(long)]
    pub publish: bool,
    /// No progress: neither a bar nor lines
    #[arg(long, short)]
    pub quiet: bool,
    /// What operators see.
    #[command(flatten)]
    pub job: JobArgs,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

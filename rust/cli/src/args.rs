//! The words of the command line: verbs, options and what `--help` teaches about them.

mod completions;
mod config;
mod help;
mod jobs;
mod links;
mod serve;
mod updates;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub use completions::{CompletionsArgs, ShellName};
pub use config::ConfigArgs;
use help::{
    ABOUT, ADVISE_EXAMPLES, BUILD_NOTE, CHANGE_EXAMPLES, COMPLETIONS_EXAMPLES, CONFIG_EXAMPLES, DOCTOR_NOTE, EXAMPLES,
    HISTORY_EXAMPLES, KEY_EXAMPLES, LINKS_EXAMPLES, LONG_ABOUT, MIGRATE_EXAMPLES, REPAIR_NOTE, SERVE_EXAMPLES,
    SQL_EXAMPLES, WATCH_EXAMPLES,
};
pub use jobs::{JobArgs, LogArgs, LogFormat, WatchArgs};
pub use links::LinksArgs;
pub use serve::ServeArgs;
pub use updates::{ChangeArgs, FlushArgs, KeyArgs, MigrateArgs, RepairArgs};
pub use values::{KeyValue, RepairChoice, ShareChoice};
use values::{age, interval, key_value, share, size};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "lakemark", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do; the SQL shell if it is left out.
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// `lakemark -c …` is short for `lakemark sql -c …`.
    #[command(flatten)]
    pub sql: SqlArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run SQL: statements, files, a pipe, or a shell to type in
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArgs),
    /// Create, build, list, drop and verify indexes
    #[command(subcommand)]
    Index(IndexVerb),
    /// Print how many rows satisfy a predicate, and nothing else
    Count(CountArgs),
    /// Print the rows of some keys, found by an index of the kind key
    Lookup(LookupArgs),
    /// Print what nodes are linked with, what they reach, or a way from one to another
    #[command(after_help = LINKS_EXAMPLES)]
    Links(LinksArgs),
    /// Show which indexes answer a predicate, what is skipped, and why not more
    Explain(ExplainArgs),
    /// Show what Lakemark knows about a table: files, rows, columns, buffered updates, indexes, coverage
    Info(InfoArgs),
    /// Look at everything that goes wrong with a table, and say what to do: coverage, index files, locks, permissions, disk, clock
    #[command(after_help = DOCTOR_NOTE)]
    Doctor(DoctorArgs),
    /// List the versions of a table that can be asked for with --version: commits of a Delta table, manifests of others
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Declare the columns that tell the rows of a table apart, so that it takes updates
    #[command(after_help = KEY_EXAMPLES)]
    Key(KeyArgs),
    /// Add the rows of a file whose keys are not there
    #[command(after_help = CHANGE_EXAMPLES)]
    Insert(ChangeArgs),
    /// Add the rows of a file, in the place of rows with the same keys
    #[command(after_help = CHANGE_EXAMPLES)]
    Upsert(ChangeArgs),
    /// Set the columns that a file has, in the rows with its keys
    #[command(after_help = CHANGE_EXAMPLES)]
    Update(ChangeArgs),
    /// Remove the rows whose keys a file has
    #[command(after_help = CHANGE_EXAMPLES)]
    Delete(ChangeArgs),
    /// Write the buffer of updates to a run now, and not only when it is full
    Flush(FlushArgs),
    /// Decide what becomes of buffered updates whose store does not belong to the Delta table any more
    #[command(after_help = REPAIR_NOTE)]
    Repair(RepairArgs),
    /// Compact buffered rows into the table's files: by one commit of a Delta table, or into the store of a folder
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate(MigrateArgs),
    /// Serve tables to ADBC, JDBC, notebooks and dashboards by Flight SQL, until the command is stopped
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Remove old manifests, index files and runs that nobody needs any more, and with them old versions; the data stays as it is
    Vacuum(VacuumArgs),
    /// Show what the files lakemark.toml and the environment say: names of tables and stores, profiles, catalogs, settings; secrets are masked
    #[command(after_help = CONFIG_EXAMPLES)]
    Config(ConfigArgs),
    /// Print a script by which a shell completes verbs, options and paths
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
}

impl Verb {
    /// The lines that operators want to see of the command, if it is a job.
    pub(crate) fn lines(&self) -> Option<&LogArgs> {
        match self {
            Self::Index(IndexVerb::Build(build)) => Some(&build.run.job.lines),
            Self::Index(IndexVerb::Compact(compact)) => Some(&compact.run.job.lines),
            Self::Index(IndexVerb::Watch(watch)) => Some(&watch.job.lines),
            Self::Migrate(migrate) => Some(&migrate.job.lines),
            Self::Serve(serve) => Some(&serve.lines),
            _ => None,
        }
    }
}

/// What to do with indexes.
#[derive(Debug, Subcommand)]
pub enum IndexVerb {
    /// Declare an index and build it
    Create(CreateArgs),
    /// Say which indexes to build: from statistics and a sample, or for a file of queries
    #[command(after_help = ADVISE_EXAMPLES)]
    Advise(AdviseArgs),
    /// Build whatever is declared and not covered yet; safe to run from cron at any time
    #[command(after_help = BUILD_NOTE)]
    Build(BuildArgs),
    /// Follow tables: build what is new as it comes, until the command is stopped
    #[command(after_help = WATCH_EXAMPLES)]
    Watch(WatchArgs),
    /// Merge the segments of indexes into few, so that a search in many files reads few; the old ones stay until a vacuum
    Compact(CompactArgs),
    /// List the indexes with their coverage and size
    List(ListArgs),
    /// Drop an index; the data stays as it is
    Drop(DropArgs),
    /// Derive every index file from the data again and compare
    Verify(VerifyArgs),
}

/// `lakemark sql`.
#[derive(Debug, Default, Args)]
pub struct SqlArgs {
    /// Run these statements, then exit; may be given several times
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub commands: Vec<String>,
    /// Run the statements of this file, then exit; may be given several times
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "commands")]
    pub files: Vec<PathBuf>,
    /// How results are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Rows shown per result in table format; 0 shows all
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    pub max_rows: usize,
}

/// The table that a verb works on.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// Folder, file, glob in quotes, or URL of the table, or its name in lakemark.toml or in a catalog (uc://CATALOG.SCHEMA.TABLE)
    #[arg(value_name = "TABLE", value_hint = ValueHint::AnyPath)]
    pub table: String,
    /// Where the store is, if not in _lakemark beside the data; required for globs and read-only places
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub store: Option<String>,
    /// Option of the object store, e.g. aws_region=eu-north-1; may be given several times. Others see what is typed: give credentials by a
    /// profile or the environment
    #[arg(long = "storage", value_name = "KEY=VALUE", value_parser = key_value)]
    pub storage: Vec<KeyValue>,
    /// The profile of lakemark.toml that has the credentials; the one whose scope is the closest if it is left out
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

/// `lakemark index create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// Column to index, or a field of a struct as in place.city; an index of the kind key or links may be over several, separated by commas
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',', required = true)]
    pub on: Vec<String>,
    /// Kind of index: bitmap, key, bloom_tree, summary, links, or auto to let Lakemark choose kind and encoding by a sample of the column
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub using: String,
    /// Name of the index; made from kind and column if it is left out
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Columns whose values an index of the kind key keeps beside the key, so that lookups of them read no data
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',')]
    pub include: Vec<String>,
    /// Option of the index; may be given several times
    #[arg(long = "with", value_name = "KEY=VALUE", value_parser = key_value)]
    pub options: Vec<KeyValue>,
    /// Do nothing if an index of that name exists
    #[arg(long)]
    pub if_not_exists: bool,
    /// Only declare it; `lakemark index build` fills it later
    #[arg(long)]
    pub no_build: bool,
    /// How the build runs.
    #[command(flatten)]
    pub tuning: TuningArgs,
}

/// How a build runs.
#[derive(Debug, Default, Args)]
pub struct TuningArgs {
    /// Memory for unfinished parts of the build, e.g. 512M or 2G; a quarter of the machine's if it is left out
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Threads that read and index; one per core if it is left out
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
    /// No progress: neither a bar nor lines
    #[arg(long, short)]
    pub quiet: bool,
}

/// `lakemark index advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// SQL queries that the indexes are to be for; all columns and the usual conditions if it is left out
    #[arg(long, value_name = "FILE.sql")]
    pub queries: Option<PathBuf>,
    /// Create the indexes that are proposed, and build them
    #[arg(long)]
    pub apply: bool,
    /// Short for --format json
    #[arg(long)]
    pub json: bool,
    /// How the build runs.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// How the advice is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark index build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// What compacting has, too.
    #[command(flatten)]
    pub run: RunArgs,
    /// Compare segments with the data first, such a share of them as 1% or 0.01, and build damaged ones again: all of them if no share is
    /// given. Missing ones are built again without it
    #[arg(long, value_name = "SHARE", value_parser = share, num_args = 0..=1, default_missing_value = "1")]
    pub verify: Option<f64>,
    /// How long finished segments wait for a commit, e.g. 30s or 5m; the next build takes over what is not committed if the
    /// process dies
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "30s")]
    pub commit_every: Duration,
    /// Stop once more files than this cannot be indexed; without it the build goes on whatever fails
    #[arg(long, value_name = "N")]
    pub max_failures: Option<u64>,
    /// Leave the segments as they are, however many there are; without it the build merges those that are too many for their sizes
    #[arg(long)]
    pub no_merge: bool,
}

/// `lakemark index compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// What building has, too.
    #[command(flatten)]
    pub run: RunArgs,
    /// Merge all that files_per_segment allows, also segments that are far larger than the rest or more than half full
    #[arg(long)]
    pub full: bool,
}

/// What `lakemark index build` and `lakemark index compact` have in common.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// Only this index
    #[arg(long, value_name = "NAME")]
    pub index: Option<String>,
    /// How the build runs.
    #[command(flatten)]
    pub tuning: TuningArgs,
    /// What operators see.
    #[command(flatten)]
    pub job: JobArgs,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark index list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// How the list is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `lakemark index drop`.
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// Name of the index
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Do nothing if there is no such index
    #[arg(long)]
    pub if_exists: bool,
}

/// `lakemark index verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// A version to read in place of the newest state; `lakemark history TABLE` lists them
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// A condition in SQL, as after WHERE; all rows if it is left out
    #[arg(value_name = "PREDICATE")]
    pub predicate: Option<String>,
}

/// `lakemark lookup`.
#[derive(Debug, Args)]
pub struct LookupArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// A version to read in place of the newest state; `lakemark history TABLE` lists them
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// Values of the key column; of several columns with commas between, quoted as in CSV files where they hold one
    #[arg(value_name = "KEY", required = true)]
    pub keys: Vec<String>,
    /// The columns of the keys; those with an index of the kind key if they are left out
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',')]
    pub on: Vec<String>,
    /// The columns to print, separated by commas; all of them if it is left out
    #[arg(long, value_name = "COL[,COL]", value_delimiter = ',')]
    pub columns: Option<Vec<String>>,
    /// How the rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `lakemark explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// A version to read in place of the newest state; `lakemark history TABLE` lists them
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// A condition in SQL, as after WHERE
    #[arg(value_name = "PREDICATE")]
    pub predicate: String,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// A version to read in place of the newest state; `lakemark history TABLE` lists them
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// How the facts are printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// `lakemark history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// How many versions at most, the newest first
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// How the list is printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// `lakemark vacuum`.
#[derive(Debug, Args)]
pub struct VacuumArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// Only show what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// What has been out of use for so long is removed, e.g. 12h or 30d; at least 1h
    #[arg(long, value_name = "AGE", value_parser = age, default_value = "7d")]
    pub older_than: Duration,
    /// Also remove data files of yours that `migrate --publish` took out of the folder, once no version needs them
    #[arg(long)]
    pub originals: bool,
    /// How the report is printed
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table drawn with lines
    #[default]
    Table,
    /// One array of objects
    Json,
    /// Comma-separated values with a header
    Csv,
}

/// How a report is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TextFormat {
    /// Text to read
    #[default]
    Text,
    /// One JSON object
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bare_command_is_the_shell() {
        let cli = Cli::try_parse_from(["lakemark", "-c", "SELECT 1", "-c", "SELECT 2"]).unwrap();
        assert!(cli.verb.is_none());
        assert_eq!(cli.sql.commands, ["SELECT 1", "SELECT 2"]);
    }
}

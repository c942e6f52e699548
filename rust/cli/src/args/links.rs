//! The words of `lakemark links`.

use clap::Args;

use super::{Format, TableArgs};

/// `lakemark links`.
#[derive(Debug, Args)]
pub struct LinksArgs {
    /// The table.
    #[command(flatten)]
    pub at: TableArgs,
    /// A version to read in place of the newest state; `lakemark history TABLE` lists them
    #[arg(long, value_name = "NUMBER")]
    pub version: Option<u64>,
    /// The node to begin with; may be given several times, but not for a path
    #[arg(long = "from", value_name = "NODE", required = true)]
    pub from: Vec<String>,
    /// Print a shortest way to this node, in place of what the first one is linked with
    #[arg(long, value_name = "NODE")]
    pub to: Option<String>,
    /// The predicate of the links that are followed; may be given several times, and is any if it is left out
    #[arg(long, value_name = "PREDICATE")]
    pub via: Vec<String>,
    /// Follow links back, from objects to subjects
    #[arg(long = "in")]
    pub back: bool,
    /// Follow links either way
    #[arg(long, conflicts_with = "back")]
    pub both: bool,
    /// Print every node that links lead to, over others or not, in place of the nearest ones alone
    #[arg(long, conflicts_with = "to")]
    pub reach: bool,
    /// Links that are followed one after the other, at most; with --reach or --to
    #[arg(long, value_name = "LINKS")]
    pub max_depth: Option<u32>,
    /// Subject, predicate and object, or subject and object; those of the index of the kind links if they are left out
    #[arg(long, value_name = "COL,COL[,COL]", value_delimiter = ',')]
    pub on: Vec<String>,
    /// Rows to print, at most
    #[arg(long, value_name = "ROWS")]
    pub limit: Option<usize>,
    /// How the rows are printed
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

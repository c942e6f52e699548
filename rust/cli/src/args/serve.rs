//! Options of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::LogArgs;
use super::values::{KeyValue, ShareChoice, key_value, listen_address, served_table, size};

/// `lakemark serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A table under the name that it has in SQL: a folder, a file, a glob in quotes, or a URL. A name alone is one of lakemark.toml
    #[arg(value_name = "NAME[=PATH]", value_parser = served_table)]
    pub tables: Vec<KeyValue>,
    /// A folder of this machine whose folders are tables, also those that come later; a folder of such folders is a schema
    #[arg(long, value_name = "FOLDER")]
    pub warehouse: Option<PathBuf>,
    /// Where clients connect: a port of this machine, or an address with a port; 0 for any port. 127.0.0.1:8815 if it is left out.
    /// Addresses that other machines reach need a token and TLS
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,
    /// Where a browser sees tables and running queries, and GET /metrics and /health are answered; for this machine alone
    #[arg(long, value_name = "PORT", value_parser = listen_address)]
    pub http: Option<SocketAddr>,
    /// A file of tokens, one a line, of which a client needs one; a name may stand before it
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The certificates of the server as PEM, its own first
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate as PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Refuse statements that change rows or indexes
    #[arg(long)]
    pub read_only: bool,
    /// Memory that all statements share, beyond which they spill to disk, e.g. 2G; half of the machine's if it is left out
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
    /// Statements that run at a time, while others wait; four per core if it is left out
    #[arg(long, value_name = "N")]
    pub running: Option<std::num::NonZeroUsize>,
    /// Log each query that takes at least so many milliseconds by one line, without the values that are written in it
    #[arg(long, value_name = "MILLISECONDS")]
    pub slow_query_ms: Option<u64>,
    /// What statements share that run at the same time; plans if it is left out
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub share: Option<ShareChoice>,
    /// A file with these options and more, as TOML, in the place of lakemark.toml; what is typed counts over it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Option of the object store of the tables that are typed, e.g. aws_region=eu-north-1; may be given several times
    #[arg(long = "storage", value_name = "KEY=VALUE", value_parser = key_value)]
    pub storage: Vec<KeyValue>,
    /// The profile of lakemark.toml that has the credentials of the tables that are typed
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Its lines.
    #[command(flatten)]
    pub lines: LogArgs,
}

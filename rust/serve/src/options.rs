//! What a server serves, to whom, and how much of it at a time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lakemark_catalog::Setting;
use lakemark_datafusion::Share;
use lakemark_table::{Error, ErrorKind, Result, TableOptions, machine_memory};

/// What a server serves, and to whom.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Tables with their names.
    pub tables: Vec<TableSource>,
    /// A folder whose folders are tables, also those that come later.
    pub warehouse: Option<PathBuf>,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where browsers and collectors look.
    pub http: Option<SocketAddr>,
    /// The file of the tokens, of which a client needs one.
    pub token_file: Option<PathBuf>,
    /// What the connections of clients are encrypted with.
    pub tls: Option<TlsFiles>,
    /// Whether statements that change something are refused.
    pub read_only: bool,
    /// From how many milliseconds on a query is logged as a slow one; none is without it.
    pub slow_query_ms: Option<u64>,
    /// What statements share that run at the same time; without it what the settings say.
    pub share: Option<Share>,
    /// How much at a time.
    pub limits: Limits,
    /// Settings of the session of all clients.
    pub settings: Vec<Setting>,
}

/// A table under a name.
#[derive(Clone, Debug, Default)]
pub struct TableSource {
    /// Its name in SQL, taken as it is.
    pub name: String,
    /// Its path or URL.
    pub path: String,
    /// How it is opened.
    pub options: TableOptions,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificates, that of the server first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// How much a server does at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Statements that run at a time.
    pub running: usize,
    /// Statements that wait for one of these to end.
    pub waiting: usize,
    /// How long a statement waits before it is refused.
    pub wait: Duration,
    /// Bytes of a statement's text.
    pub statement_bytes: usize,
    /// Bytes of the parameters of a statement.
    pub parameter_bytes: usize,
    /// Bytes of memory that all statements share, beyond which they spill.
    pub memory_bytes: usize,
    /// The folder that they spill to; that of the system if none is given.
    pub spill: Option<PathBuf>,
    /// Plans that wait for their rows to be asked for, and prepared statements: so many of either.
    pub plans: usize,
    /// How long a plan waits.
    pub plan_life: Duration,
    /// How long a prepared statement is kept that nobody uses.
    pub prepared_life: Duration,
    /// How long a query waits for a client that takes no rows.
    pub stalled: Duration,
    /// How long a server that was told to end waits for what runs.
    pub grace: Duration,
}

/// Statements that run at a time on each core.
const RUNNING_PER_CORE: usize = 4;

/// The memory of statements where the system does not say how much it has.
const FALLBACK_MEMORY: usize = 2 << 30;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            running: RUNNING_PER_CORE * std::thread::available_parallelism().map_or(2, Into::into),
            waiting: 1024,
            wait: Duration::from_secs(30),
            statement_bytes: 1 << 20,
            parameter_bytes: 16 << 20,
            memory_bytes: half_of_memory(),
            spill: None,
            plans: 10_000,
            plan_life: Duration::from_secs(60),
            prepared_life: Duration::from_secs(3600),
            stalled: Duration::from_secs(300),
            grace: Duration::from_secs(30),
        }
    }
}

fn half_of_memory() -> usize {
    machine_memory().and_then(|bytes| usize::try_from(bytes / 2).ok()).unwrap_or(FALLBACK_MEMORY)
}

impl ServeOptions {
    /// The defaults: nothing is served yet, on a port that the system chooses.
    #[must_use]
    pub fn on(listen: SocketAddr) -> Self {
        Self {
            tables: Vec::new(),
            warehouse: None,
            listen,
            http: None,
            token_file: None,
            tls: None,
            read_only: false,
            slow_query_ms: None,
            share: None,
            limits: Limits::default(),
            settings: Vec::new(),
        }
    }

    /// Fails where options do not go together.
    ///
    /// # Errors
    /// Nothing is served, names are there twice, or others could read what they should not (`InvalidInput`).
    pub(crate) fn check(&self) -> Result<()> {
        if self.tables.is_empty() && self.warehouse.is_none() {
            return Err(invalid("no table is served: give NAME=PATH, or a folder of tables as --warehouse"));
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = self.tables.iter().find(|table| !seen.insert(&table.name)) {
            return Err(invalid(format!("two tables are named {}; give each a name of its own", twice.name)));
        }
        if self.tables.iter().any(|table| table.name.is_empty()) {
            return Err(invalid("a table has no name; write NAME=PATH, as in flights=/lake/flights"));
        }
        let is_open = !self.listen.ip().is_loopback();
        if is_open && (self.token_file.is_none() || self.tls.is_none()) {
            return Err(invalid(format!(
                "{} is reached from other machines: give --token-file, --tls-cert and --tls-key as well, or listen on 127.0.0.1",
                self.listen
            )));
        }
        if let Some(http) = self.http.filter(|http| !http.ip().is_loopback()) {
            return Err(invalid(format!(
                "the page and the counters on {http} would be open to other machines: listen on 127.0.0.1, and put a proxy with a password \
                 in front of it"
            )));
        }
        let Limits { connections, running, plans, memory_bytes, .. } = self.limits;
        if [connections, running, plans, memory_bytes].contains(&0) {
            return Err(invalid("the limits `connections`, `running`, `plans` and `memory_bytes` are at least 1"));
        }
        Ok(())
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

//! The options of a server as files say them: what the command line says, and more. They are the section `serve` of `lakemark.toml`.
//!
//! ```toml
//! [serve]
//! listen = "127.0.0.1:8815"
//! http = "127.0.0.1:8816"
//! read_only = true
//!
//! [serve.limits]
//! running = 8
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lakemark_catalog::{Document, Section};
use lakemark_datafusion::Share;
use lakemark_table::Result;

use crate::options::{Limits, ServeOptions, TableSource, TlsFiles, invalid};

/// What an error about a key adds.
const HINT: &str = "docs/serving.md lists the keys";

/// The port that is listened on unless another one is given.
pub const DEFAULT_PORT: u16 = 8815;

/// Statements that run at a time, unless a number is given, where they share pages or joins: so many queries share the joins of a table.
const SHARING: usize = 64;

/// What a file or a command line says; what it leaves out stays as it is.
#[derive(Clone, Debug, Default)]
pub struct ServeConfig {
    /// See [`ServeOptions`]. A file has them under its own key.
    pub tables: Vec<TableSource>,
    /// See [`ServeOptions`].
    pub warehouse: Option<PathBuf>,
    /// See [`ServeOptions`].
    pub listen: Option<SocketAddr>,
    /// See [`ServeOptions`].
    pub http: Option<SocketAddr>,
    /// See [`ServeOptions`].
    pub token_file: Option<PathBuf>,
    /// See [`TlsFiles`].
    pub tls_cert: Option<PathBuf>,
    /// See [`TlsFiles`].
    pub tls_key: Option<PathBuf>,
    /// See [`ServeOptions`].
    pub read_only: Option<bool>,
    /// See [`ServeOptions`].
    pub slow_query_ms: Option<u64>,
    /// See [`ServeOptions`].
    pub share: Option<Share>,
    /// See [`Limits`].
    pub limits: LimitsConfig,
}

/// Limits that are given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitsConfig {
    /// Numbers by their names.
    numbers: BTreeMap<&'static str, usize>,
    /// The folder that statements spill to.
    pub spill: Option<PathBuf>,
}

/// Sets a number among the limits.
type SetLimit = fn(&mut Limits, usize);

/// The numbers among the limits: a name, and what it sets.
const NUMBERS: [(&str, SetLimit); 12] = [
    ("connections", |limits, value| limits.connections = value),
    ("running", |limits, value| limits.running = value),
    ("waiting", |limits, value| limits.waiting = value),
    ("wait_seconds", |limits, value| limits.wait = seconds(value)),
    ("statement_bytes", |limits, value| limits.statement_bytes = value),
    ("parameter_bytes", |limits, value| limits.parameter_bytes = value),
    ("memory_bytes", |limits, value| limits.memory_bytes = value),
    ("plans", |limits, value| limits.plans = value),
    ("plan_seconds", |limits, value| limits.plan_life = seconds(value)),
    ("prepared_seconds", |limits, value| limits.prepared_life = seconds(value)),
    ("stalled_seconds", |limits, value| limits.stalled = seconds(value)),
    ("grace_seconds", |limits, value| limits.grace = seconds(value)),
];

fn seconds(value: usize) -> Duration {
    Duration::from_secs(value as u64)
}

impl ServeConfig {
    /// What files say, the later ones over the earlier ones; their tables are no part of it.
    ///
    /// # Errors
    /// A file is no TOML, or has a key that there is not (`InvalidInput`); the message names the file, the line and the key.
    pub fn of(documents: &[Document]) -> Result<Self> {
        let mut all = Self::default();
        for document in documents {
            let said = document.take(|mut root| root.section("serve")?.map(Self::section).transpose())?;
            all = said.unwrap_or_default().over(all);
        }
        Ok(all)
    }

    fn section(mut section: Section<'_>) -> Result<Self> {
        let config = Self {
            tables: Vec::new(),
            warehouse: section.location("warehouse")?.map(PathBuf::from),
            listen: section.address("listen")?,
            http: section.address("http")?,
            token_file: section.location("token_file")?.map(PathBuf::from),
            tls_cert: section.location("tls_cert")?.map(PathBuf::from),
            tls_key: section.location("tls_key")?.map(PathBuf::from),
            read_only: section.flag("read_only")?,
            slow_query_ms: section.number_if_given("slow_query_ms")?.map(|number| number as u64),
            share: share(&mut section)?,
            limits: section.section("limits")?.map(limits).transpose()?.unwrap_or_default(),
        };
        section.end(HINT)?;
        Ok(config)
    }

    /// What both say; where they differ, this one.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        let mut tables = other.tables;
        for table in self.tables {
            tables.retain(|known| known.name != table.name);
            tables.push(table);
        }
        let mut numbers = other.limits.numbers;
        numbers.extend(self.limits.numbers);
        Self {
            tables,
            warehouse: self.warehouse.or(other.warehouse),
            listen: self.listen.or(other.listen),
            http: self.http.or(other.http),
            token_file: self.token_file.or(other.token_file),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            read_only: self.read_only.or(other.read_only),
            slow_query_ms: self.slow_query_ms.or(other.slow_query_ms),
            share: self.share.or(other.share),
            limits: LimitsConfig { numbers, spill: self.limits.spill.or(other.limits.spill) },
        }
    }

    /// The options, with defaults for what nobody said.
    ///
    /// # Errors
    /// A certificate is given without its key, or a key without its certificate (`InvalidInput`).
    pub fn options(self) -> Result<ServeOptions> {
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
            (None, None) => None,
            _ => return Err(invalid("TLS takes a certificate and its key: give both --tls-cert and --tls-key")),
        };
        let mut limits = Limits { spill: self.limits.spill, ..Limits::default() };
        if self.share.unwrap_or_default().has_pages() {
            limits.running = limits.running.max(SHARING);
        }
        for (name, set) in NUMBERS {
            if let Some(value) = self.limits.numbers.get(name) {
                set(&mut limits, *value);
            }
        }
        let listen = self.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)));
        Ok(ServeOptions {
            tables: self.tables,
            warehouse: self.warehouse,
            http: self.http,
            token_file: self.token_file,
            tls,
            read_only: self.read_only.unwrap_or(false),
            slow_query_ms: self.slow_query_ms,
            share: self.share,
            limits,
            ..ServeOptions::on(listen)
        })
    }
}

impl LimitsConfig {
    /// Sets a limit that is a number.
    ///
    /// # Errors
    /// There is no such limit (`InvalidInput`).
    pub fn set(&mut self, name: &str, value: usize) -> Result<()> {
        let Some(&(name, _)) = NUMBERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = NUMBERS.iter().map(|(name, _)| *name).collect();
            return Err(invalid(format!("there is no limit {name}; there are {}, spill", known.join(", "))));
        };
        self.numbers.insert(name, value);
        Ok(())
    }
}

fn limits(mut section: Section<'_>) -> Result<LimitsConfig> {
    let mut limits = LimitsConfig { spill: section.location("spill")?.map(PathBuf::from), ..LimitsConfig::default() };
    for name in section.names() {
        let place = section.place_of(&name);
        let value = section.number(&name)?;
        limits.set(&name, value).map_err(|error| place.wrong(error.message()))?;
    }
    Ok(limits)
}

fn share(section: &mut Section<'_>) -> Result<Option<Share>> {
    let (place, path) = (section.place_of("share"), section.path("share"));
    let Some(text) = section.text("share")? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| place.wrong(format!("{path} takes off, plans, pages or stars")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lakemark_catalog::Config;
    use lakemark_table::ErrorKind;

    use super::*;

    fn parse(text: &str) -> Result<ServeConfig> {
        ServeConfig::of(&[Document::new("serve.toml", text)])
    }

    #[test]
    fn a_file_says_what_the_command_line_says_and_more() {
        let config = parse(
            "[serve]\nlisten = '127.0.0.1:1'\nread_only = true\nslow_query_ms = 250\nshare = 'Stars'\n\
             [tables]\nflights = '/lake/flights'\n\
             [serve.limits]\nrunning = 3\nwait_seconds = 7\nspill = '/scratch'\n",
        )
        .unwrap();
        let options = config.options().unwrap();
        assert_eq!(options.listen, SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(options.read_only && options.tables.is_empty());
        assert_eq!((options.slow_query_ms, options.share), (Some(250), Some(Share::Stars)));
        assert_eq!((options.limits.running, options.limits.wait), (3, Duration::from_secs(7)));
        assert_eq!(options.limits.spill, Some(PathBuf::from("/scratch")));
    }

    #[test]
    fn as_many_statements_run_at_a_time_as_share_unless_a_number_is_given() {
        let running = |text: &str| parse(text).unwrap().options().unwrap().limits.running;
        let usual = Limits::default().running;
        assert_eq!(
            (running(""), running("[serve]\nshare = 'off'"), running("[serve]\nshare = 'plans'")),
            (usual, usual, usual)
        );
        for share in ["pages", "stars"] {
            assert!(running(&format!("[serve]\nshare = '{share}'")) >= SHARING, "{share}");
            assert_eq!(running(&format!("[serve]\nshare = '{share}'\n[serve.limits]\nrunning = 3")), 3, "{share}");
        }
    }

    #[test]
    fn the_example_has_every_limit_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve.toml");
        let file = Document::read(&path).unwrap();
        let options = ServeConfig::of(std::slice::from_ref(&file)).unwrap().options().unwrap();
        assert_eq!(options.limits, Limits::default());
        assert_eq!(Config::of([file]).unwrap().table_names(), ["flights", "orders"]);
        let text = std::fs::read_to_string(&path).unwrap();
        for (name, _) in NUMBERS {
            assert!(text.contains(&format!("{name} = ")), "{name}");
        }
    }

    #[test]
    fn what_the_command_line_says_counts_over_the_file_and_a_later_file_over_an_earlier_one() {
        let files = [
            "[serve]\nlisten = '127.0.0.1:3'\nread_only = true\nslow_query_ms = 9\nshare = 'stars'\n[serve.limits]\nrunning = 2",
            "[serve]\nlisten = '127.0.0.1:1'\nhttp = '127.0.0.1:2'\n[serve.limits]\nrunning = 3\nwaiting = 4",
        ];
        let file = ServeConfig::of(&files.map(|text| Document::new("f", text))).unwrap();
        let listen = "127.0.0.1:9".parse().ok();
        let share = Some(Share::Off);
        let mut line = ServeConfig { listen, slow_query_ms: Some(0), share, ..ServeConfig::default() };
        line.tables.push(TableSource { name: "a".to_owned(), path: "z".to_owned(), ..TableSource::default() });
        line.limits.set("running", 5).unwrap();
        let options = line.over(file).options().unwrap();
        assert_eq!((options.listen.port(), options.http.unwrap().port(), options.read_only), (9, 2, true));
        assert_eq!((options.slow_query_ms, options.share), (Some(0), Some(Share::Off)));
        assert_eq!((options.limits.running, options.limits.waiting), (5, 4));
        let tables: Vec<(&str, &str)> = options.tables.iter().map(|t| (t.name.as_str(), t.path.as_str())).collect();
        assert_eq!(tables, [("a", "z")]);
    }

    #[test]
    fn bad_files_are_refused_by_the_name_of_what_is_wrong() {
        for (text, says) in [
            ("serve = ", "serve.toml:1: "),
            ("serve = 1", "serve.toml:1: serve takes a table"),
            ("[serve]\nlisten = 8815", "serve.toml:2: serve.listen takes a text"),
            ("[serve]\nlisten = 'here'", "serve.toml:2: serve.listen takes an address"),
            ("[serve]\nlissten = '127.0.0.1:1'", "serve.toml:2: there is no key serve.lissten"),
            ("[serve]\nread_only = 'yes'", "serve.toml:2: serve.read_only takes true or false"),
            ("[serve]\nslow_query_ms = '1 s'", "serve.toml:2: serve.slow_query_ms takes a whole number"),
            ("[serve]\nshare = 'all'", "serve.toml:2: serve.share takes off, plans, pages or stars"),
            ("[serve.limits]\nrunnin = 1", "serve.toml:2: there is no limit runnin"),
            ("[serve.limits]\nrunning = -1", "serve.toml:2: serve.limits.running takes a whole number"),
            ("[serve.limits]\nrunning = 1.5", "serve.toml:2: serve.limits.running takes a whole number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().starts_with(says), "{text}: {error}");
        }
        let half = ServeConfig { tls_key: Some(PathBuf::from("k")), ..ServeConfig::default() };
        assert!(half.options().unwrap_err().to_string().contains("--tls-cert"));
    }
}

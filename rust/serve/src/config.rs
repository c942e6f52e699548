//! The configuration file, which says what the command line says, and more.
//!
//! ```toml
//! listen = "127.0.0.1:8815"
//! http = "127.0.0.1:8816"
//! read_only = true
//!
//! [tables]
//! flights = "/lake/flights"
//!
//! [tables.orders]
//! path = "s3://lake/orders"
//! storage = { aws_region = "eu-north-1" }
//!
//! [limits]
//! running = 8
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lakemark_table::{Error, ErrorKind, Result};
use toml::de::{DeTable, DeValue};

use crate::options::{Limits, ServeOptions, TableSource, TlsFiles, invalid};

/// The port that is listened on unless another one is given.
pub const DEFAULT_PORT: u16 = 8815;

/// What a file or a command line says; what it leaves out stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServeConfig {
    /// See [`ServeOptions`].
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
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or has a key that there is not (`InvalidInput`); the message names the file and the key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let kind = if error.kind() == std::io::ErrorKind::NotFound { ErrorKind::NotFound } else { ErrorKind::Io };
            Error::new(kind, format!("the configuration {} cannot be read: {error}", path.display()))
        })?;
        Self::parse(&text).map_err(|error| invalid(format!("{}: {}", path.display(), error.message())))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// As of [`ServeConfig::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let document = DeTable::parse(text).map_err(|error| invalid(error.to_string().trim().to_owned()))?;
        let mut section = Section::of("", document.get_ref());
        let config = Self {
            warehouse: section.text("warehouse")?.map(PathBuf::from),
            listen: section.address("listen")?,
            http: section.address("http")?,
            token_file: section.text("token_file")?.map(PathBuf::from),
            tls_cert: section.text("tls_cert")?.map(PathBuf::from),
            tls_key: section.text("tls_key")?.map(PathBuf::from),
            read_only: section.flag("read_only")?,
            slow_query_ms: section.number_if_given("slow_query_ms")?.map(|number| number as u64),
            limits: section.table("limits")?.map(limits).transpose()?.unwrap_or_default(),
            tables: section.table("tables")?.map(tables).transpose()?.unwrap_or_default(),
        };
        section.end()?;
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
    let mut limits = LimitsConfig { spill: section.text("spill")?.map(PathBuf::from), ..LimitsConfig::default() };
    for name in section.names() {
        let value = section.number(&name)?;
        limits.set(&name, value)?;
    }
    Ok(limits)
}

fn tables(mut section: Section<'_>) -> Result<Vec<TableSource>> {
    let mut tables = Vec::new();
    for name in section.names() {
        if let Some(path) = section.text_if_it_is_one(&name) {
            tables.push(TableSource { name, path, ..TableSource::default() });
            continue;
        }
        let Some(mut table) = section.table(&name)? else { continue };
        let path = table.text("path")?.ok_or_else(|| invalid(format!("{} lacks its path", table.name)))?;
        let store = table.text("store")?;
        let mut storage = std::collections::HashMap::new();
        if let Some(mut options) = table.table("storage")? {
            for key in options.names() {
                let value = options.text(&key)?.unwrap_or_default();
                storage.insert(key, value);
            }
        }
        table.end()?;
        tables.push(TableSource { name, path, store, storage });
    }
    Ok(tables)
}

/// A table of the file, of which keys are taken one after the other.
struct Section<'a> {
    /// What it is called in messages.
    name: String,
    left: BTreeMap<&'a str, &'a DeValue<'a>>,
}

impl<'a> Section<'a> {
    fn of(name: &str, table: &'a DeTable<'a>) -> Self {
        let left = table.iter().map(|(key, value)| (&**key.get_ref(), value.get_ref())).collect();
        Self { name: name.to_owned(), left }
    }

    /// The keys that are left.
    fn names(&self) -> Vec<String> {
        self.left.keys().map(|name| (*name).to_owned()).collect()
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    fn wrong<T>(&self, key: &str, wanted: &str) -> Result<T> {
        Err(invalid(format!("{} takes {wanted}", self.path(key))))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.left.remove(key) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text.to_string())),
            Some(_) => self.wrong(key, "a text in quotes"),
        }
    }

    fn text_if_it_is_one(&mut self, key: &str) -> Option<String> {
        let DeValue::String(text) = *self.left.get(key)? else { return None };
        self.left.remove(key);
        Some(text.to_string())
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>> {
        match self.left.remove(key) {
            None => Ok(None),
            Some(DeValue::Boolean(flag)) => Ok(Some(*flag)),
            Some(_) => self.wrong(key, "true or false"),
        }
    }

    fn number_if_given(&mut self, key: &str) -> Result<Option<usize>> {
        if self.left.contains_key(key) { self.number(key).map(Some) } else { Ok(None) }
    }

    fn number(&mut self, key: &str) -> Result<usize> {
        let number = match self.left.remove(key) {
            Some(DeValue::Integer(number)) => usize::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        number.map_or_else(|| self.wrong(key, "a whole number that is not negative"), Ok)
    }

    fn address(&mut self, key: &str) -> Result<Option<SocketAddr>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match text.parse() {
            Ok(address) => Ok(Some(address)),
            Err(_) => self.wrong(key, "an address with a port, as in \"127.0.0.1:8815\""),
        }
    }

    fn table(&mut self, key: &str) -> Result<Option<Section<'a>>> {
        match self.left.remove(key) {
            None => Ok(None),
            Some(DeValue::Table(table)) => Ok(Some(Section::of(&self.path(key), table))),
            Some(_) => self.wrong(key, "a table"),
        }
    }

    /// Fails if a key is left.
    fn end(self) -> Result<()> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(key) => Err(invalid(format!("there is no key {}; docs/serving.md lists them", self.path(key)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_the_command_line_says_and_more() {
        let config = ServeConfig::parse(
            "listen = '127.0.0.1:1'\nread_only = true\nslow_query_ms = 250\n[tables]\nflights = '/lake/flights'\n\
             [tables.orders]\npath = 's3://lake/orders'\nstorage = { aws_region = 'eu-north-1' }\n\
             [limits]\nrunning = 3\nwait_seconds = 7\nspill = '/scratch'\n",
        )
        .unwrap();
        let options = config.options().unwrap();
        assert_eq!(options.listen, SocketAddr::from(([127, 0, 0, 1], 1)));
        assert_eq!((options.read_only, options.slow_query_ms), (true, Some(250)));
        assert_eq!((options.limits.running, options.limits.wait), (3, Duration::from_secs(7)));
        assert_eq!(options.limits.spill, Some(PathBuf::from("/scratch")));
        let [flights, orders] = options.tables.as_slice() else { panic!("{:?}", options.tables) };
        assert_eq!((flights.name.as_str(), flights.path.as_str()), ("flights", "/lake/flights"));
        assert_eq!((orders.path.as_str(), orders.storage["aws_region"].as_str()), ("s3://lake/orders", "eu-north-1"));
    }

    #[test]
    fn the_example_has_every_limit_with_its_default() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let options = ServeConfig::read(&path).unwrap().options().unwrap();
        assert_eq!((options.limits, options.tables.len()), (Limits::default(), 2));
        for (name, _) in NUMBERS {
            assert!(text.contains(&format!("{name} = ")), "{name}");
        }
        assert_eq!(ServeConfig::read(Path::new("/nowhere.toml")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_the_command_line_says_counts_over_the_file() {
        let file = ServeConfig::parse(
            "listen = '127.0.0.1:1'\nhttp = '127.0.0.1:2'\nslow_query_ms = 9\n[tables]\na = 'x'\nb = 'y'\n[limits]\nrunning = 3\nwaiting = 4",
        )
        .unwrap();
        let listen = "127.0.0.1:9".parse().ok();
        let mut line = ServeConfig { listen, slow_query_ms: Some(0), ..ServeConfig::default() };
        line.tables.push(TableSource { name: "a".to_owned(), path: "z".to_owned(), ..TableSource::default() });
        line.limits.set("running", 5).unwrap();
        let options = line.over(file).options().unwrap();
        assert_eq!((options.listen.port(), options.http.unwrap().port(), options.slow_query_ms), (9, 2, Some(0)));
        assert_eq!((options.limits.running, options.limits.waiting), (5, 4));
        let tables: Vec<(&str, &str)> = options.tables.iter().map(|t| (t.name.as_str(), t.path.as_str())).collect();
        assert_eq!(tables, [("b", "y"), ("a", "z")]);
    }

    #[test]
    fn bad_files_are_refused_by_the_name_of_what_is_wrong() {
        for (text, says) in [
            ("listen = ", "listen"),
            ("listen = 8815", "listen takes a text"),
            ("listen = 'here'", "listen takes an address"),
            ("lissten = '127.0.0.1:1'", "no key lissten"),
            ("read_only = 'yes'", "read_only takes true or false"),
            ("slow_query_ms = '1 s'", "slow_query_ms takes a whole number"),
            ("tables = 3", "tables takes a table"),
            ("[tables.a]\nstore = 'x'", "tables.a lacks its path"),
            ("[tables.a]\npath = 'x'\nkind = 'y'", "no key tables.a.kind"),
            ("[limits]\nrunnin = 1", "no limit runnin"),
            ("[limits]\nrunning = -1", "limits.running takes a whole number"),
            ("[limits]\nrunning = 1.5", "limits.running takes a whole number"),
        ] {
            let error = ServeConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let half = ServeConfig { tls_key: Some(PathBuf::from("k")), ..ServeConfig::default() };
        assert!(half.options().unwrap_err().to_string().contains("--tls-cert"));
    }
}

//! What `lakemark.toml` says: names of tables and stores, profiles, catalogs, settings. The server reads its section `serve` itself.
//!
//! ```toml
//! [tables]
//! trips = "s3://lake/trips"
//!
//! [tables.orders]
//! path = "s3://lake/orders"
//! store = "ssd/orders"
//! profile = "lake"
//!
//! [stores]
//! ssd = "/ssd/lakemark"
//!
//! [profiles.lake]
//! scope = "s3://lake/"
//! aws_access_key_id = { env = "LAKE_KEY" }
//! aws_secret_access_key = { file = "/run/secrets/lake" }
//!
//! [catalogs.main]
//! uri = "https://unity.example.com"
//! token = { env = "UNITY_TOKEN" }
//!
//! [settings]
//! "lakemark.use_index" = true
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use lakemark_table::{Error, ErrorKind, Result, StorageOptions, TableOptions};

use crate::address::Address;
use crate::document::{Document, Section};
use crate::place::Place;
use crate::value::Value;

/// What an error about a key adds.
const HINT: &str = "docs/configuration.md lists the keys";

/// A table under a name.
#[derive(Clone, Debug)]
pub struct NamedTable {
    /// Its path or URL.
    pub path: String,
    /// The place of its store.
    pub store: Option<WrittenStore>,
    /// The profile that has its credentials.
    pub profile: Option<String>,
    /// Options of its object store.
    pub storage: BTreeMap<String, Value>,
    /// See [`TableOptions::max_staleness`].
    pub max_staleness: Option<Duration>,
    /// Where it stands.
    pub place: Place,
}

/// The place of a store as a file has it.
#[derive(Clone, Debug)]
pub struct WrittenStore {
    /// A name among the stores, a path below one, a path, or a URL.
    pub written: String,
    /// What it means if it is no name: a relative path begins at the folder of the file.
    pub(crate) located: String,
}

/// A place for stores of indexes under a name.
#[derive(Clone, Debug)]
pub struct NamedStore {
    /// Its path or URL.
    pub path: String,
    /// The profile that has its credentials.
    pub profile: Option<String>,
    /// Options of its object store.
    pub storage: BTreeMap<String, Value>,
    /// Where it stands.
    pub place: Place,
}

/// Credentials and other options of object stores under a name.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Beginnings of URLs that it is for.
    pub scopes: Vec<String>,
    /// Options of the object store.
    pub storage: BTreeMap<String, Value>,
    /// Where it stands.
    pub place: Place,
}

/// A catalog of tables under a name: `uc://NAME.schema.table` is a table of it.
#[derive(Clone, Debug)]
pub struct NamedCatalog {
    /// Where its server is.
    pub address: Address,
    /// The token that requests to the server have.
    pub token: Option<Value>,
    /// What it is called there, if that is something else.
    pub called: Option<String>,
    /// The profile that has options of its tables' object stores.
    pub profile: Option<String>,
    /// Options of its tables' object stores.
    pub storage: BTreeMap<String, Value>,
    /// Where it stands.
    pub place: Place,
}

/// A profile as somebody names it.
#[derive(Clone, Copy)]
pub(crate) struct ProfileName<'a> {
    pub(crate) name: &'a str,
    /// Where a file names it.
    pub(crate) place: Option<&'a Place>,
}

impl<'a> ProfileName<'a> {
    /// As a file has it.
    pub(crate) fn written(name: Option<&'a str>, place: &'a Place) -> Option<Self> {
        name.map(|name| Self { name, place: Some(place) })
    }

    /// As somebody types it.
    pub(crate) fn typed(name: Option<&'a str>) -> Option<Self> {
        name.map(|name| Self { name, place: None })
    }
}

/// A setting of SQL sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As `SET` takes it.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it stands.
    pub place: Place,
}

/// What all files together say.
#[derive(Clone, Debug, Default)]
pub struct Config {
    documents: Vec<Document>,
    pub(crate) tables: BTreeMap<String, NamedTable>,
    pub(crate) stores: BTreeMap<String, NamedStore>,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) catalogs: BTreeMap<String, NamedCatalog>,
    settings: BTreeMap<String, Setting>,
}

impl Config {
    /// What these say together: where two have the same name, the later one.
    ///
    /// # Errors
    /// One is no TOML, or has what no configuration has (`InvalidInput`); the message names file and line.
    pub fn of(documents: impl IntoIterator<Item = Document>) -> Result<Self> {
        let mut all = Self::default();
        for document in documents {
            let Self { tables, stores, profiles, catalogs, settings, .. } = document.take(Self::parse)?;
            all.tables.extend(tables);
            all.stores.extend(stores);
            all.profiles.extend(profiles);
            all.catalogs.extend(catalogs);
            all.settings.extend(settings);
            all.documents.push(document);
        }
        Ok(all)
    }

    fn parse(mut root: Section<'_>) -> Result<Self> {
        let config = Self {
            documents: Vec::new(),
            tables: named(&mut root, "tables", table)?,
            stores: named(&mut root, "stores", store)?,
            profiles: named(&mut root, "profiles", profile)?,
            catalogs: named(&mut root, "catalogs", catalog)?,
            settings: settings(&mut root)?,
        };
        root.leave("serve");
        root.end(HINT)?;
        Ok(config)
    }

    /// The files, what counts more after the rest.
    #[must_use]
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// The names of tables, sorted.
    #[must_use]
    pub fn table_names(&self) -> Vec<String> {
        self.tables.keys().cloned().collect()
    }

    /// The names of catalogs, sorted.
    #[must_use]
    pub fn catalog_names(&self) -> Vec<String> {
        self.catalogs.keys().cloned().collect()
    }

    /// Settings of SQL sessions by their names.
    pub fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.values()
    }

    /// Options for a place: those of the profile that is named, or else of the one whose scope is the closest, and over them its own, what
    /// counts more after the rest.
    ///
    /// # Errors
    /// There is no such profile, or a value cannot be read (`InvalidInput`).
    pub(crate) fn storage(
        &self,
        location: &str,
        profile: Option<ProfileName<'_>>,
        own: &[&BTreeMap<String, Value>],
    ) -> Result<StorageOptions> {
        let profile = match profile {
            Some(named) => Some(self.profile(named)?),
            None => self.profile_for(location),
        };
        let mut options = StorageOptions::default();
        for (name, value) in profile.map(|profile| &profile.storage).into_iter().chain(own.iter().copied()).flatten() {
            options.insert(name, value.read()?.expose());
        }
        Ok(options)
    }

    fn profile(&self, named: ProfileName<'_>) -> Result<&Profile> {
        let ProfileName { name, place } = named;
        self.profiles.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let text = format!("there is no profile {name}; lakemark.toml has {known}");
            place.map_or_else(|| Error::new(ErrorKind::InvalidInput, text.as_str()), |place| place.wrong(&text))
        })
    }

    /// The profile whose scope is the longest beginning of a URL.
    pub(crate) fn profile_for(&self, location: &str) -> Option<&Profile> {
        let fit = |profile: &Profile| {
            let scopes = profile.scopes.iter().filter(|scope| is_within(location, scope));
            scopes.map(String::len).max()
        };
        let fitting = self.profiles.values().filter_map(|profile| Some((fit(profile)?, profile)));
        fitting.max_by_key(|(length, _)| *length).map(|(_, profile)| profile)
    }

    /// The store of a name, or below one, and where it is.
    pub(crate) fn store(&self, written: &str) -> Option<(&NamedStore, String)> {
        if let Some(store) = self.stores.get(written) {
            return Some((store, store.path.clone()));
        }
        let (name, below) = written.split_once('/')?;
        let store = self.stores.get(name)?;
        Some((store, format!("{}/{below}", store.path.trim_end_matches('/'))))
    }
}

/// Whether a URL is below a scope.
fn is_within(location: &str, scope: &str) -> bool {
    // Hadoop has another name for the same buckets.
    let plain = |url: &str| match url.split_once("://") {
        Some(("s3a", rest)) => format!("s3://{rest}"),
        _ => url.to_owned(),
    };
    let scope = plain(scope);
    plain(location)
        .strip_prefix(&scope)
        .is_some_and(|rest| rest.is_empty() || scope.ends_with('/') || rest.starts_with('/'))
}

/// The entries of a section by their names.
fn named<T>(
    root: &mut Section<'_>,
    key: &str,
    read: fn(&mut Section<'_>, &str, Place) -> Result<T>,
) -> Result<BTreeMap<String, T>> {
    let mut entries = BTreeMap::new();
    let Some(mut section) = root.section(key)? else { return Ok(entries) };
    for name in section.names() {
        let place = section.place_of(&name);
        if name.trim().is_empty() || name.contains(['/', ':', '\\']) {
            return Err(place.wrong(format!("{name:?} cannot be a name: give one without slash and colon")));
        }
        let entry = read(&mut section, &name, place)?;
        entries.insert(name, entry);
    }
    Ok(entries)
}

/// The table of an entry; an error if it has something else.
fn section_of<'a>(all: &mut Section<'a>, name: &str, place: &Place) -> Result<Section<'a>> {
    all.section(name)?.ok_or_else(|| place.wrong(format!("{} is not there", all.path(name))))
}

fn table(all: &mut Section<'_>, name: &str, place: Place) -> Result<NamedTable> {
    if let Some(path) = all.text_if_it_is_one(name) {
        let path = all.located(&path);
        let storage = BTreeMap::new();
        return Ok(NamedTable { path, store: None, profile: None, storage, max_staleness: None, place });
    }
    let mut section = section_of(all, name, &place)?;
    let path = section.location("path")?.ok_or_else(|| place.wrong(format!("{} lacks its path", all.path(name))))?;
    let age = section.place_of("max_staleness");
    let max_staleness = section.text("max_staleness")?.map(|text| TableOptions::parse_staleness(&text));
    let table = NamedTable {
        path,
        store: section.text("store")?.map(|written| WrittenStore { located: section.located(&written), written }),
        profile: section.text("profile")?,
        storage: section.values("storage")?,
        max_staleness: max_staleness.transpose().map_err(|error| age.wrong(error.message()))?,
        place,
    };
    section.end(HINT)?;
    Ok(table)
}

fn store(all: &mut Section<'_>, name: &str, place: Place) -> Result<NamedStore> {
    if let Some(path) = all.text_if_it_is_one(name) {
        let path = all.located(&path);
        return Ok(NamedStore { path, profile: None, storage: BTreeMap::new(), place });
    }
    let mut section = section_of(all, name, &place)?;
    let path = section.location("path")?.ok_or_else(|| place.wrong(format!("{} lacks its path", all.path(name))))?;
    let store = NamedStore { path, profile: section.text("profile")?, storage: section.values("storage")?, place };
    section.end(HINT)?;
    Ok(store)
}

fn profile(all: &mut Section<'_>, name: &str, place: Place) -> Result<Profile> {
    let mut section = section_of(all, name, &place)?;
    Ok(Profile { scopes: section.texts("scope")?, storage: section.rest_as_values()?, place })
}

fn catalog(all: &mut Section<'_>, name: &str, place: Place) -> Result<NamedCatalog> {
    let address = |text: &str, place: &Place, key: &str| {
        Address::parse(text).ok_or_else(|| place.wrong(format!("{key} takes {}", Address::WANTED)))
    };
    if let Some(uri) = all.text_if_it_is_one(name) {
        let address = address(&uri, &place, &all.path(name))?;
        return Ok(NamedCatalog { address, token: None, called: None, profile: None, storage: BTreeMap::new(), place });
    }
    let mut section = section_of(all, name, &place)?;
    let (at, key) = (section.place_of("uri"), section.path("uri"));
    let uri = section.text("uri")?.ok_or_else(|| place.wrong(format!("{} lacks its uri", all.path(name))))?;
    let catalog = NamedCatalog {
        address: address(&uri, &at, &key)?,
        token: section.value("token")?,
        called: section.text("catalog")?,
        profile: section.text("profile")?,
        storage: section.values("storage")?,
        place,
    };
    section.end(HINT)?;
    Ok(catalog)
}

fn settings(root: &mut Section<'_>) -> Result<BTreeMap<String, Setting>> {
    let Some(section) = root.section("settings")? else { return Ok(BTreeMap::new()) };
    let mut settings = BTreeMap::new();
    for leaf in section.leaves() {
        let name = leaf.path.strip_prefix("settings.").unwrap_or(&leaf.path).to_owned();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._".contains(letter);
        let Some(value) = leaf.text.filter(|_| name.chars().all(is_plain)) else {
            let wanted = "takes a text, a number, true or false, and has a name as SET takes it";
            return Err(leaf.place.wrong(format!("{} {wanted}", leaf.path)));
        };
        settings.insert(name.clone(), Setting { name, value, place: leaf.place });
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(texts: &[&str]) -> Result<Config> {
        Config::of((1..).zip(texts).map(|(number, text)| Document::new(&format!("f{number}"), *text)))
    }

    #[test]
    fn tables_stores_profiles_and_settings_are_read() {
        let config = config(&["[tables]\ntrips = 's3://lake/trips'\n[tables.orders]\npath = 's3://lake/orders'\n\
             store = 'ssd/orders'\nprofile = 'lake'\nmax_staleness = '30s'\nstorage = { aws_region = 'r' }\n\
             [stores]\nssd = '/ssd/'\n[profiles.lake]\nscope = 's3://lake/'\naws_allow_http = true\n\
             [settings]\n'lakemark.use_index' = false\n[settings.datafusion.execution]\nbatch_size = 64\n\
             [serve]\nlisten = '127.0.0.1:1'\n"])
        .unwrap();
        assert_eq!(config.table_names(), ["orders", "trips"]);
        let orders = &config.tables["orders"];
        assert_eq!((orders.path.as_str(), orders.max_staleness), ("s3://lake/orders", Some(Duration::from_secs(30))));
        assert_eq!(
            (orders.place.to_string().as_str(), config.tables["trips"].path.as_str()),
            ("f1:3", "s3://lake/trips")
        );
        assert_eq!(config.store("ssd/orders").unwrap().1, "/ssd/orders");
        assert_eq!(config.store("ssd").unwrap().1, "/ssd/");
        assert!(config.store("other/orders").is_none());
        let settings: Vec<(&str, &str)> = config.settings().map(|s| (s.name.as_str(), s.value.as_str())).collect();
        assert_eq!(settings, [("datafusion.execution.batch_size", "64"), ("lakemark.use_index", "false")]);
        let options = config.storage("s3://lake/orders", ProfileName::typed(Some("lake")), &[&orders.storage]).unwrap();
        assert_eq!((options.get("aws_allow_http"), options.get("aws_region")), (Some("true"), Some("r")));
    }

    #[test]
    fn catalogs_are_read_and_their_tokens_are_not() {
        let text = "[catalogs]\nplain = 'http://localhost:8080'\n[catalogs.main]\nuri = 'https://uc.example.com/'\n\
            token = { env = 'LAKEMARK_NOBODY_SETS_THIS' }\ncatalog = 'unity'\nprofile = 'p'\nstorage = { aws_region = 'r' }\n";
        let config = config(&[text]).unwrap();
        assert_eq!(config.catalog_names(), ["main", "plain"]);
        let (main, plain) = (&config.catalogs["main"], &config.catalogs["plain"]);
        assert_eq!(
            (main.address.to_string().as_str(), main.called.as_deref()),
            ("https://uc.example.com", Some("unity"))
        );
        assert_eq!((main.place.to_string().as_str(), main.profile.as_deref()), ("f1:3", Some("p")));
        assert_eq!((main.storage.len(), main.token.is_some(), plain.token.is_some()), (1, true, false));
    }

    #[test]
    fn the_example_is_understood() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/configuration/lakemark.toml");
        let config = Config::of([Document::read(&path).unwrap()]).unwrap();
        assert_eq!(
            (config.table_names(), config.settings().count()),
            (vec!["orders".to_owned(), "trips".to_owned()], 2)
        );
        assert!(config.profile_for("s3://lake/trips").is_some());
        assert_eq!(config.store("ssd/orders").unwrap().1, "/ssd/lakemark/orders");
    }

    #[test]
    fn later_files_count_over_earlier_ones_name_by_name() {
        let config = config(&["[tables]\na = '/1/a'\nb = '/1/b'\n", "[tables]\nb = '/2/b'\n"]).unwrap();
        let paths: Vec<&str> = config.tables.values().map(|table| table.path.as_str()).collect();
        assert_eq!(paths, ["/1/a", "/2/b"]);
        assert_eq!(config.documents().iter().map(Document::name).collect::<Vec<_>>(), ["f1", "f2"]);
    }

    #[test]
    fn the_profile_with_the_closest_scope_serves_a_place_that_names_none() {
        let config = config(&["[profiles.wide]\nscope = 's3://lake'\naws_region = 'wide'\n\
             [profiles.close]\nscope = ['s3://lake/orders/', 'gs://x']\naws_region = 'close'\n\
             [profiles.none]\naws_region = 'none'\n"])
        .unwrap();
        let region = |location: &str, profile: Option<&str>| {
            config.storage(location, ProfileName::typed(profile), &[]).unwrap().get("aws_region").map(str::to_owned)
        };
        assert_eq!(region("s3://lake/trips", None).as_deref(), Some("wide"));
        assert_eq!(region("s3a://lake/orders/2024", None).as_deref(), Some("close"));
        assert_eq!(region("s3://lake-of-others/t", None), None);
        assert_eq!(region("/local", None), None);
        assert_eq!(region("s3://lake/orders/x", Some("none")).as_deref(), Some("none"));
        let error = config.storage("x", ProfileName::typed(Some("nobody")), &[]).unwrap_err().to_string();
        assert_eq!(error, "there is no profile nobody; lakemark.toml has close, none, wide");
    }

    #[test]
    fn what_is_wrong_is_named_with_file_and_line() {
        for (text, says) in [
            ("[tabels]\n", "f1:1: there is no key tabels"),
            ("tables = 3", "f1:1: tables takes a table"),
            ("[tables]\na = 3", "f1:2: tables.a takes a table"),
            ("[tables.a]\nstore = 'x'", "f1:1: tables.a lacks its path"),
            ("[tables.a]\npath = 'x'\nkind = 'y'", "f1:3: there is no key tables.a.kind"),
            ("[tables]\n'a/b' = 'x'", "f1:2: \"a/b\" cannot be a name"),
            ("[tables.a]\npath = 'x'\nmax_staleness = 'soon'", "f1:3: max_staleness is"),
            ("[stores.a]\nprofile = 'x'", "f1:1: stores.a lacks its path"),
            ("[profiles.a]\nscope = 3", "f1:2: profiles.a.scope takes"),
            ("[catalogs.a]\ntoken = 'x'", "f1:1: catalogs.a lacks its uri"),
            ("[catalogs.a]\nuri = 'https://u:p@host'", "f1:2: catalogs.a.uri takes an address such as"),
            ("[catalogs]\na = 'host'", "f1:2: catalogs.a takes an address such as"),
            ("[catalogs.a]\nuri = 'http://host'\nkind = 'x'", "f1:3: there is no key catalogs.a.kind"),
            ("[settings]\na = [1]", "f1:2: settings.a takes a text"),
            ("[settings]\n'a; DROP TABLE t' = 1", "f1:2: settings.a; DROP TABLE t takes"),
        ] {
            let error = config(&[text]).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().starts_with(says), "{text}: {error}");
        }
    }
}

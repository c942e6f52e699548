//! What is in force, line by line, for people: what is said, and where. Secrets are not shown.

use std::collections::BTreeMap;

use lakemark_table::{Result, StorageOptions, storage_environment};

use crate::config::Config;
use crate::place::Place;
use crate::unity::server::VARIABLES;
use crate::value::Value;

/// What stands in the place of a value that is not shown.
const MASK: &str = "***";

/// Something that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownEntry {
    /// What it is about: `file`, `table`, `store`, `profile`, `catalog`, `setting`, `serve` or `environment`.
    pub kind: &'static str,
    /// The name of the table, store, profile, catalog, setting or variable; empty for a file.
    pub name: String,
    /// What is said of it; empty where there is but one thing to be said.
    pub key: String,
    /// The value, masked if it may be a secret.
    pub value: String,
    /// The file and the line; empty for variables of the environment.
    pub place: String,
}

struct Rows(Vec<ShownEntry>);

impl Rows {
    fn add(&mut self, kind: &'static str, name: &str, key: &str, value: impl Into<String>, place: &Place) {
        let (name, key, place) = (name.to_owned(), key.to_owned(), place.to_string());
        self.0.push(ShownEntry { kind, name, key, value: value.into(), place });
    }

    fn add_values(&mut self, kind: &'static str, name: &str, prefix: &str, values: &BTreeMap<String, Value>) {
        for (key, value) in values {
            self.add(kind, name, &format!("{prefix}{key}"), value.shown(key), value.place());
        }
    }

    fn add_variable(&mut self, name: &str, value: String) {
        let (name, key, place) = (name.to_ascii_uppercase(), String::new(), String::new());
        self.0.push(ShownEntry { kind: "environment", name, key, value, place });
    }

    fn add_texts(&mut self, kind: &'static str, name: &str, texts: &[(&str, Option<&str>)], place: &Place) {
        for (key, text) in texts {
            if let Some(text) = text {
                self.add(kind, name, key, *text, place);
            }
        }
    }
}

impl Config {
    /// What is in force, with the variables of the environment that count for object stores.
    ///
    /// # Errors
    /// A section that somebody else reads is no table (`InvalidInput`).
    pub fn shown(&self) -> Result<Vec<ShownEntry>> {
        let mut rows = Rows(Vec::new());
        for document in self.documents() {
            let value = document.name().to_owned();
            let (name, key, place) = (String::new(), String::new(), String::new());
            rows.0.push(ShownEntry { kind: "file", name, key, value, place });
        }
        for (name, table) in &self.tables {
            let store = table.store.as_ref().map(|store| store.written.as_str());
            let texts = [("path", Some(table.path.as_str())), ("store", store), ("profile", table.profile.as_deref())];
            rows.add_texts("table", name, &texts, &table.place);
            if let Some(age) = table.max_staleness {
                rows.add("table", name, "max_staleness", format!("{} ms", age.as_millis()), &table.place);
            }
            rows.add_values("table", name, "storage.", &table.storage);
        }
        for (name, store) in &self.stores {
            let texts = [("path", Some(store.path.as_str())), ("profile", store.profile.as_deref())];
            rows.add_texts("store", name, &texts, &store.place);
            rows.add_values("store", name, "storage.", &store.storage);
        }
        for (name, profile) in &self.profiles {
            let scopes = profile.scopes.join(", ");
            rows.add_texts(
                "profile",
                name,
                &[("scope", Some(scopes.as_str()).filter(|text| !text.is_empty()))],
                &profile.place,
            );
            rows.add_values("profile", name, "", &profile.storage);
        }
        self.show_catalogs(&mut rows);
        for setting in self.settings() {
            rows.add("setting", &setting.name, "", setting.value.as_str(), &setting.place);
        }
        for document in self.documents() {
            document.take(|mut root| {
                for leaf in root.section("serve")?.iter().flat_map(|section| section.leaves()) {
                    let name = leaf.path.strip_prefix("serve.").unwrap_or(&leaf.path);
                    rows.add("serve", name, "", leaf.text.unwrap_or_else(|| "…".to_owned()), &leaf.place);
                }
                Ok(())
            })?;
        }
        for (name, value) in ["s3", "gs", "az"].into_iter().flat_map(storage_environment) {
            rows.add_variable(&name, StorageOptions::shown(&name, &value).to_owned());
        }
        for (host, token) in VARIABLES {
            if let Ok(host_value) = std::env::var(host) {
                // An address may have a password in it.
                rows.add_variable(host, if host_value.contains('@') { MASK.to_owned() } else { host_value });
            }
            if std::env::var_os(token).is_some() {
                rows.add_variable(token, MASK.to_owned());
            }
        }
        Ok(rows.0)
    }

    fn show_catalogs(&self, rows: &mut Rows) {
        for (name, catalog) in &self.catalogs {
            let uri = catalog.address.to_string();
            let texts = [
                ("uri", Some(uri.as_str())),
                ("catalog", catalog.called.as_deref()),
                ("profile", catalog.profile.as_deref()),
            ];
            rows.add_texts("catalog", name, &texts, &catalog.place);
            if let Some(token) = &catalog.token {
                rows.add("catalog", name, "token", token.shown("token"), token.place());
            }
            rows.add_values("catalog", name, "storage.", &catalog.storage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    #[test]
    fn what_is_in_force_is_shown_with_its_place_and_without_secrets() {
        let text = "[tables.t]\npath = '/t'\nprofile = 'p'\nstorage = { aws_region = 'r', aws_session_token = 'hidden' }\n\
            [stores]\ns = '/s'\n[profiles.p]\nscope = ['s3://a/', 's3://b/']\naws_secret_access_key = 'hidden'\n\
            aws_access_key_id = { env = 'LAKEMARK_NOBODY_SETS_THIS' }\n\
            [catalogs.c]\nuri = 'http://localhost:8080'\ntoken = 'hidden'\n[settings]\n'lakemark.use_index' = true\n\
            [serve.limits]\nrunning = 3\n";
        let shown = Config::of([Document::new("f", text)]).unwrap().shown().unwrap();
        let lines: Vec<String> = shown
            .iter()
            .filter(|row| row.kind != "environment")
            .map(|row| [row.kind, &row.name, &row.key, &row.value, &row.place].join("|"))
            .collect();
        assert_eq!(
            lines,
            [
                "file|||f|",
                "table|t|path|/t|f:1",
                "table|t|profile|p|f:1",
                "table|t|storage.aws_region|r|f:4",
                "table|t|storage.aws_session_token|***|f:4",
                "store|s|path|/s|f:6",
                "profile|p|scope|s3://a/, s3://b/|f:7",
                "profile|p|aws_access_key_id|env LAKEMARK_NOBODY_SETS_THIS, which is not set|f:10",
                "profile|p|aws_secret_access_key|***|f:9",
                "catalog|c|uri|http://localhost:8080|f:11",
                "catalog|c|token|***|f:13",
                "setting|lakemark.use_index||true|f:15",
                "serve|limits.running||3|f:17",
            ]
        );
    }
}

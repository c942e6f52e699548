//! Settings of a session, under the name `lakemark`.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use datafusion::common::config_namespace;
use datafusion::config::{ConfigEntry, ConfigExtension, ConfigField, ConfigOptions, ExtensionOptions, Visit};
use lakemark_table::{Error, ErrorKind, Result, Transaction};

use crate::error::to_engine;

/// What queries share that run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Nothing: each runs its own plan.
    Off,
    /// Plans: one execution for equal ones.
    #[default]
    Plans,
    /// Plans, and pages of data files that scans of different plans read.
    Pages,
    /// Plans and pages, and of these the joins of star queries.
    Stars,
}

impl Share {
    /// All of them, each with what the one before has.
    pub const ALL: [Self; 4] = [Self::Off, Self::Plans, Self::Pages, Self::Stars];

    /// Whether scans share pages.
    #[must_use]
    pub fn has_pages(self) -> bool {
        matches!(self, Self::Pages | Self::Stars)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Plans => "plans",
            Self::Pages => "pages",
            Self::Stars => "stars",
        })
    }
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_named = |share: &Self| text.trim().eq_ignore_ascii_case(&share.to_string());
        Self::ALL.into_iter().find(is_named).ok_or_else(|| {
            let text = format!("lakemark.share is off, plans, pages or stars, not {text:?}; set it to one of these");
            Error::new(ErrorKind::InvalidInput, text)
        })
    }
}

impl ConfigField for Share {
    fn visit<V: Visit>(&self, v: &mut V, key: &str, description: &'static str) {
        v.some(key, self, description);
    }

    fn set(&mut self, _key: &str, value: &str) -> datafusion::error::Result<()> {
        *self = value.parse::<Self>().map_err(to_engine)?;
        Ok(())
    }

    fn reset(&mut self, _key: &str) -> datafusion::error::Result<()> {
        *self = Self::default();
        Ok(())
    }
}

/// From how many milliseconds on a query is slow; none is without a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowQueryLimit(pub Option<u64>);

impl ConfigField for SlowQueryLimit {
    fn visit<V: Visit>(&self, v: &mut V, key: &str, description: &'static str) {
        match self.0 {
            Some(milliseconds) => v.some(key, milliseconds, description),
            None => v.none(key, description),
        }
    }

    fn set(&mut self, _key: &str, value: &str) -> datafusion::error::Result<()> {
        let value = value.trim();
        self.0 = match value.parse() {
            Ok(milliseconds) => Some(milliseconds),
            Err(_) if value.eq_ignore_ascii_case("off") => None,
            Err(_) => {
                let text = format!(
                    "lakemark.slow_query_ms is a whole number of milliseconds or off, not {value:?}; set it to one"
                );
                return Err(to_engine(Error::new(ErrorKind::InvalidInput, text)));
            }
        };
        Ok(())
    }

    fn reset(&mut self, _key: &str) -> datafusion::error::Result<()> {
        *self = Self::default();
        Ok(())
    }
}

// `extensions_options!` would list the settings without their prefix, and the engine shows what is listed.
config_namespace! {
    /// Settings of a session: `SET lakemark.use_index = false`.
    pub struct LakemarkOptions {
        /// Whether scans may use indexes; without them every file is scanned.
        pub use_index: bool, default = true
        /// Whether rows that an index found before may be taken from memory (at most 256 MiB a process).
        pub selection_cache: bool, default = true
        /// Whether texts are views inside of plans that join, group or compare rows, as they are in the engine's own tables.
        pub use_views: bool, default = true
        /// Whether indexes are asked for the keys of a join's build side (at most 1,048,576 rows and 64 MiB).
        pub use_join_keys: bool, default = true
        /// Whether a scan right below `ORDER BY … LIMIT` reads the first rows alone, where an index knows them.
        pub use_first_rows: bool, default = true
        /// What queries share that run at the same time: `off`, `plans`, `pages` or `stars`.
        pub share: Share, default = Share::default()
        /// From how many milliseconds on a query is logged by one line; `off` for none.
        pub slow_query_ms: SlowQueryLimit, default = SlowQueryLimit::default()
        /// The application that makes the next statement which changes a table, so that it is made once; with `txn_version`.
        pub txn_app_id: Option<String>, default = None
        /// The number that the application gives to the next statement which changes a table. Both are unset when it was made.
        pub txn_version: Option<u64>, default = None
    }
}

impl ConfigExtension for LakemarkOptions {
    const PREFIX: &'static str = "lakemark";
}

impl ExtensionOptions for LakemarkOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    /// Sets what has a name. The engine takes the prefix off before; settings that come from another library have it twice, as the engine
    /// puts it before the names of `entries`.
    fn set(&mut self, key: &str, value: &str) -> datafusion::error::Result<()> {
        let own = key.strip_prefix(Self::PREFIX).and_then(|rest| rest.strip_prefix('.'));
        ConfigField::set(self, own.unwrap_or(key), value)
    }

    /// All settings under their full names, by which `SHOW` and `information_schema.df_settings` know them.
    fn entries(&self) -> Vec<ConfigEntry> {
        let mut listed = Listed::default();
        self.visit(&mut listed, Self::PREFIX, "");
        listed.0
    }
}

/// Settings that were visited.
#[derive(Default)]
struct Listed(Vec<ConfigEntry>);

impl Visit for Listed {
    fn some<V: fmt::Display>(&mut self, key: &str, value: V, description: &'static str) {
        self.0.push(ConfigEntry { key: key.to_owned(), value: Some(value.to_string()), description });
    }

    fn none(&mut self, key: &str, description: &'static str) {
        self.0.push(ConfigEntry { key: key.to_owned(), value: None, description });
    }
}

impl LakemarkOptions {
    /// The options of a session; the defaults for a session that has none.
    pub(crate) fn of(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// The transaction of the next statement that changes a table, if it has one.
    pub(crate) fn transaction(&self) -> Result<Option<Transaction>> {
        match (&self.txn_app_id, self.txn_version) {
            (Some(application), Some(version)) => Ok(Some(Transaction { application: application.clone(), version })),
            (None, None) => Ok(None),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                "lakemark.txn_app_id and lakemark.txn_version go together, and are unset by each statement that changes a table; \
                 set both or none",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_listed_under_the_names_by_which_they_are_set() {
        let mut options = ConfigOptions::default();
        options.extensions.insert(LakemarkOptions { txn_version: Some(7), ..LakemarkOptions::default() });
        let listed = |options: &ConfigOptions| {
            let entries = options.entries().into_iter().filter(|entry| entry.key.starts_with("lakemark."));
            entries.map(|entry| (entry.key, entry.value)).collect::<Vec<_>>()
        };
        let before = listed(&options);
        assert_eq!(before.len(), LakemarkOptions::default().entries().len());
        assert!(before.contains(&("lakemark.share".to_owned(), Some("plans".to_owned()))));
        assert!(before.contains(&("lakemark.slow_query_ms".to_owned(), None)));
        assert!(LakemarkOptions::default().entries().iter().all(|entry| !entry.description.is_empty()));
        // What is listed can be set, also as it comes from another library.
        let mut same = ConfigOptions::default();
        same.extensions.insert(LakemarkOptions::default());
        for (name, value) in &before {
            if let Some(value) = value {
                same.set(name, value).unwrap();
                same.set(&format!("lakemark.{name}"), value).unwrap();
            }
        }
        assert_eq!(listed(&same), before);
        assert!(same.set("lakemark.nosuch", "1").unwrap_err().to_string().contains("nosuch"));
    }
}

//! Names of tables of Unity Catalog.

use std::fmt;

use lakemark_table::{Error, ErrorKind, Result};

/// What a name begins with where a path may stand.
pub(crate) const SCHEME: &str = "uc://";

/// A table of a schema of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnityName {
    pub(crate) catalog: String,
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl UnityName {
    /// What was written, if it is such a name.
    ///
    /// # Errors
    /// It begins like one, and is none (`InvalidInput`).
    pub(crate) fn of(written: &str) -> Result<Option<Self>> {
        let Some(name) = written.strip_prefix(SCHEME) else { return Ok(None) };
        let parts: Vec<&str> = name.trim_end_matches('/').split('.').collect();
        let is_plain =
            |part: &&str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "/?#".contains(c));
        match parts.as_slice() {
            [catalog, schema, table] if parts.iter().all(is_plain) => Ok(Some(Self {
                catalog: (*catalog).to_owned(),
                schema: (*schema).to_owned(),
                table: (*table).to_owned(),
            })),
            _ => {
                let text = format!(
                    "{written} is no name of a table: write catalog, schema and table, as in uc://main.sales.trips"
                );
                Err(Error::new(ErrorKind::InvalidInput, text))
            }
        }
    }
}

impl fmt::Display for UnityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.catalog, self.schema, self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_catalog_a_schema_and_a_table() {
        let name = UnityName::of("uc://main.sales.trips").unwrap().unwrap();
        assert_eq!((name.schema.as_str(), name.to_string().as_str()), ("sales", "main.sales.trips"));
        assert_eq!(UnityName::of("s3://main.sales.trips").unwrap(), None);
        for written in ["uc://trips", "uc://a.b", "uc://a..c", "uc://a.b.c.d", "uc://a/b/c", "uc://a.b.c d", "uc://"] {
            let error = UnityName::of(written).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().starts_with(written), "{error}");
        }
    }
}

//! What a server has against a request, in one sentence that says what to do.

use lakemark_table::{Error, ErrorKind};

use crate::address::Address;
use crate::unity::answer::Answer;
use crate::unity::token::Token;

/// A server, as sentences name it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// The catalog's name.
    pub(crate) catalog: String,
    pub(crate) address: Address,
    /// Where the address is written: a line of a file, or a variable.
    pub(crate) place: String,
}

impl Named {
    fn at(&self) -> String {
        format!("the catalog {} at {}", self.catalog, self.address)
    }

    fn io(text: String) -> Error {
        Error::new(ErrorKind::Io, text)
    }

    /// Nobody says where a catalog is.
    pub(crate) fn unknown(catalog: &str, known: &[&str]) -> Error {
        let known = if known.is_empty() { "no catalogs".to_owned() } else { known.join(", ") };
        let text = format!(
            "there is no catalog {catalog}: lakemark.toml has {known}; write [catalogs.{catalog}] with its uri into it, or set DATABRICKS_HOST"
        );
        Error::new(ErrorKind::InvalidInput, text)
    }

    /// The server did not answer. Why is told as the client says it, which leaves the URL out.
    pub(crate) fn unreachable(&self, why: &impl std::error::Error) -> Error {
        let (at, place) = (self.at(), &self.place);
        Self::io(format!(
            "{at} cannot be reached ({}): see whether it runs, and compare the address in {place}",
            root_of(why)
        ))
    }

    /// A token that no header can have.
    pub(crate) fn unsendable(&self, token: &Token) -> Error {
        let token = token.place().unwrap_or_else(|| self.place.clone());
        Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{} cannot be asked with the token of {token}: write a token without spaces and ends of lines",
                self.at()
            ),
        )
    }

    /// The server answered something else than the protocol says.
    pub(crate) fn strange(&self) -> Error {
        let (at, place) = (self.at(), &self.place);
        Self::io(format!(
            "{at} does not answer as Unity Catalog does: compare the address in {place} with that of the server"
        ))
    }

    /// The server did not do what it was asked for a table.
    pub(crate) fn refused(&self, answer: &Answer, token: &Token, table: &str) -> Error {
        let at = self.at();
        let code = answer.code().map_or_else(|| answer.status.to_string(), str::to_owned);
        match (answer.status, token.place()) {
            (401, None) => Self::io(format!(
                "{at} wants a token: write token into [catalogs.{}] of lakemark.toml, or set DATABRICKS_HOST and DATABRICKS_TOKEN ({code})",
                self.catalog
            )),
            (401, Some(place)) => Self::io(format!(
                "{at} does not accept the token of {place}, which has expired or is of another server: get a new one and put it there ({code})"
            )),
            (403, _) => Self::io(format!(
                "{at} does not give you {table}: let its owner grant USE CATALOG, USE SCHEMA and SELECT, and on Databricks EXTERNAL USE SCHEMA ({code})"
            )),
            (404, _) => {
                let text = format!(
                    "there is no table {table} in {at}: write one that is there, as uc://catalog.schema.table ({code})"
                );
                Error::new(ErrorKind::NotFound, text)
            }
            (429 | 500..=599, _) => {
                Self::io(format!("{at} cannot answer now: try it later, or tell those who run it ({code})"))
            }
            _ => Self::io(format!(
                "{at} does not take the question for {table}: compare its version and the address in {} ({code})",
                self.place
            )),
        }
    }

    /// The server has no credentials for the place of a table.
    pub(crate) fn without_credentials(&self, answer: &Answer, table: &str, location: &str) -> Error {
        let code = answer.code().map_or_else(|| answer.status.to_string(), str::to_owned);
        Self::io(format!(
            "{} gives no credentials for {table}: let those who run it set up {location} there, or write a profile with keys for it into lakemark.toml ({code})",
            self.at()
        ))
    }
}

/// What began an error: that says most.
fn root_of(error: &impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = inner.to_string();
        source = inner.source();
    }
    text
}

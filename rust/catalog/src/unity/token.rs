//! The token that requests to a server have.

use lakemark_table::{Result, Secret};

use crate::value::Value;

/// Where the token is.
#[derive(Clone, Debug)]
pub(crate) enum Token {
    /// Nobody gave one: servers that ask for none take that.
    Nowhere,
    /// A file has it, or says where it is.
    Written(Value),
    /// A variable of the environment has it.
    Variable(&'static str),
}

impl Token {
    /// Reads it: what a file or the environment has now.
    ///
    /// # Errors
    /// A variable or file that should have it is not there (`InvalidInput`).
    pub(crate) fn read(&self) -> Result<Option<Secret>> {
        let read = match self {
            Self::Nowhere => None,
            Self::Written(value) => Some(value.read()?),
            Self::Variable(name) => std::env::var(name).ok().map(Secret::new),
        };
        Ok(read.filter(|token| !token.expose().is_empty()))
    }

    /// Where it stands, for people.
    pub(crate) fn place(&self) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Written(value) => Some(value.place().to_string()),
            Self::Variable(name) => Some((*name).to_owned()),
        }
    }
}

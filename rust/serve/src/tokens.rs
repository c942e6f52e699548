//! Tokens, by which a server knows its clients. They are compared in constant time, and are never printed.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use lakemark_table::{Error, ErrorKind, Result};
use subtle::ConstantTimeEq;

use crate::options::invalid;

/// The least letters of a token: 96 bits, if they are hexadecimal.
const LEAST_LETTERS: usize = 24;

/// How names and passwords are written; some drivers leave the padding out.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The tokens that a server takes.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<Token>);

struct Token {
    /// Who has it.
    owner: Arc<str>,
    secret: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads a file: a token a line, or the name of its owner and the token. Empty lines and lines that begin with `#` count for nothing.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::new(ErrorKind::Io, format!("the tokens in {} cannot be read: {error}", path.display()))
        })?;
        Self::parse(&text).map_err(|error| invalid(format!("{}: {}", path.display(), error.message())))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut tokens: Vec<Token> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (owner, secret) = match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                [secret] => (format!("token {number}"), *secret),
                [owner, secret] => ((*owner).to_owned(), *secret),
                _ => return Err(invalid(format!("line {number} has more words than a name and a token"))),
            };
            if secret.len() < LEAST_LETTERS {
                return Err(invalid(format!(
                    "the token in line {number} is shorter than {LEAST_LETTERS} letters; make one by `openssl rand -hex 32`"
                )));
            }
            if tokens.iter().any(|known| known.secret == secret) {
                return Err(invalid(format!("the token in line {number} is there twice")));
            }
            tokens.push(Token { owner: owner.into(), secret: secret.to_owned() });
        }
        if tokens.is_empty() {
            return Err(invalid("there is no token; write one a line, made by `openssl rand -hex 32`"));
        }
        Ok(Self(tokens))
    }

    /// Who has the token of an `authorization`: as `Bearer`, or as the password of `Basic`, whoever the user is.
    pub(crate) fn owner_of(&self, authorization: &str) -> Option<Arc<str>> {
        let given = secret_of(authorization)?;
        let mut found = None;
        // All of them, so that the time says nothing about which one it was.
        for token in &self.0 {
            if bool::from(token.secret.as_bytes().ct_eq(given.as_bytes())) {
                found = Some(Arc::clone(&token.owner));
            }
        }
        found
    }
}

/// The token that an `authorization` carries.
pub(crate) fn secret_of(authorization: &str) -> Option<String> {
    let (scheme, value) = authorization.trim().split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let plain = String::from_utf8(BASIC.decode(value.trim()).ok()?).ok()?;
    Some(plain.split_once(':')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "0123456789abcdef01234567";
    const OTHER: &str = "89abcdef0123456789abcdef";

    #[test]
    fn a_token_is_known_by_its_owner_as_bearer_and_as_a_password() {
        let tokens = Tokens::parse(&format!("# tokens\n\nann {ONE}\n{OTHER}\n")).unwrap();
        assert_eq!(tokens.owner_of(&format!("Bearer {ONE}")).as_deref(), Some("ann"));
        assert_eq!(tokens.owner_of(&format!("bearer {OTHER}")).as_deref(), Some("token 4"));
        let basic = BASIC.encode(format!("anybody:{ONE}"));
        assert!(basic.ends_with('='));
        for basic in [basic.as_str(), basic.trim_end_matches('=')] {
            assert_eq!(tokens.owner_of(&format!("Basic {basic}")).as_deref(), Some("ann"));
        }
    }

    #[test]
    fn whatever_is_no_token_is_nobodys() {
        let tokens = Tokens::parse(ONE).unwrap();
        let longer = format!("Bearer {ONE}0");
        let user = format!("Basic {}", BASIC.encode(format!("{ONE}:")));
        for wrong in ["", "Bearer", "Bearer ", ONE, &longer, &user, "Basic ?", "Digest x", &longer[..30]] {
            assert_eq!(tokens.owner_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn files_without_good_tokens_are_refused_and_tokens_are_not_printed() {
        for (text, says) in [
            ("", "no token"),
            ("# only words\n", "no token"),
            ("short\n", "line 1 is shorter"),
            (format!("a b {ONE}\n").as_str(), "line 1 has more words"),
            (format!("{ONE}\nann {ONE}\n").as_str(), "line 2 is there twice"),
        ] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains(ONE), "{error}");
        }
        assert!(!format!("{:?}", Tokens::parse(ONE).unwrap()).contains(ONE));
    }
}

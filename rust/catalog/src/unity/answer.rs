//! What a server answers, as the protocol has it: `TableInfo`, `TemporaryCredentials` and errors.

use std::fmt;
use std::time::{Duration, SystemTime};

use lakemark_table::{Credential, Secret, TemporaryCredential};
use serde_json::Value as Json;

/// An answer.
pub(crate) struct Answer {
    /// The status of HTTP.
    pub(crate) status: u16,
    /// What it says; nothing if that is no JSON.
    body: Json,
}

/// It may have credentials.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.status).field(&self.code()).finish()
    }
}

impl Answer {
    pub(crate) fn new(status: u16, body: &[u8]) -> Self {
        Self { status, body: serde_json::from_slice(body).unwrap_or_default() }
    }

    /// Whether the request was served.
    pub(crate) fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether the server may answer otherwise in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.status, 429 | 502..=504)
    }

    /// Whether somebody may not have what was requested.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.status, 400 | 403)
    }

    /// What the server calls the error, if it looks like a name.
    pub(crate) fn code(&self) -> Option<&str> {
        let is_name = |code: &&str| {
            (1..=60).contains(&code.len())
                && code.chars().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_')
        };
        self.text("error_code").filter(is_name)
    }

    /// A text of the answer that is not empty.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.body.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// A secret in an object of the answer.
    fn secret(&self, object: &str, key: &str) -> Option<Secret> {
        let text = self.body.get(object)?.get(key)?.as_str()?;
        Some(text).filter(|text| !text.is_empty()).map(Secret::new)
    }

    /// The credential that it gives, and when that ends.
    pub(crate) fn credential(&self) -> Option<TemporaryCredential> {
        let aws = |object: &str| {
            Some(Credential::Aws {
                key_id: self.secret(object, "access_key_id")?,
                secret_key: self.secret(object, "secret_access_key")?,
                session_token: self.secret(object, "session_token"),
            })
        };
        let credential = aws("aws_temp_credentials")
            .or_else(|| aws("r2_temp_credentials"))
            .or_else(|| self.secret("azure_user_delegation_sas", "sas_token").map(Credential::AzureSas))
            .or_else(|| self.secret("azure_aad", "aad_token").map(Credential::Bearer))
            .or_else(|| self.secret("gcp_oauth_token", "oauth_token").map(Credential::Bearer))?;
        let milliseconds = self.body.get("expiration_time").and_then(Json::as_u64).filter(|time| *time > 0);
        let expires = milliseconds.and_then(|time| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(time)));
        Some(TemporaryCredential { credential, expires })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(body: &str) -> Option<TemporaryCredential> {
        Answer::new(200, body.as_bytes()).credential()
    }

    #[test]
    fn credentials_of_every_cloud_are_understood() {
        let hidden = || Secret::new("hidden");
        let aws = |session_token| Credential::Aws { key_id: Secret::new("id"), secret_key: hidden(), session_token };
        for (body, expected) in [
            (
                r#""aws_temp_credentials":{"access_key_id":"id","secret_access_key":"hidden","session_token":"hidden"}"#,
                aws(Some(hidden())),
            ),
            (
                r#""r2_temp_credentials":{"access_key_id":"id","secret_access_key":"hidden","session_token":""}"#,
                aws(None),
            ),
            (r#""azure_user_delegation_sas":{"sas_token":"hidden"}"#, Credential::AzureSas(hidden())),
            (r#""azure_aad":{"aad_token":"hidden"}"#, Credential::Bearer(hidden())),
            (r#""aws_temp_credentials":null,"gcp_oauth_token":{"oauth_token":"hidden"}"#, Credential::Bearer(hidden())),
        ] {
            let body = format!("{{{body},\"expiration_time\":1700000000000}}");
            let found = credential(&body).unwrap();
            assert_eq!(found.credential, expected, "{body}");
            assert_eq!(found.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)));
            let answer = Answer::new(200, body.as_bytes());
            assert!(!format!("{answer:?} {found:?}").contains("hidden"));
        }
        assert_eq!(credential(r#"{"gcp_oauth_token":{"oauth_token":"t"}}"#).unwrap().expires, None);
    }

    #[test]
    fn an_answer_without_credentials_has_none() {
        for body in ["", "[1]", "{}", r#"{"aws_temp_credentials":{"access_key_id":"id"}}"#, r#"{"azure_aad":[]}"#] {
            assert!(credential(body).is_none(), "{body}");
        }
    }

    #[test]
    fn a_code_is_told_if_it_is_one() {
        let code = |text: &str| {
            let body = format!(r#"{{"error_code":"{text}","message":"m"}}"#);
            Answer::new(403, body.as_bytes()).code().map(str::to_owned)
        };
        assert_eq!(code("PERMISSION_DENIED").as_deref(), Some("PERMISSION_DENIED"));
        for other in ["", "a token", "eyJhbGciOi", &"A".repeat(61)] {
            assert_eq!(code(other), None);
        }
        let numbered = Answer::new(500, br#"{"error_code":500}"#);
        assert_eq!((numbered.code(), numbered.is_good(), numbered.is_passing()), (None, false, false));
    }
}

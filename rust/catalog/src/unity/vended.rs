//! Credentials that a catalog gives for a table.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use lakemark_table::{CredentialSource, Result, Secret, TemporaryCredential};

use crate::unity::answer::Answer;
use crate::unity::server::{Server, UnityTable};

/// Asks a server for credentials, as often as somebody needs new ones.
pub(crate) struct Vended {
    server: Server,
    table: UnityTable,
    /// Whether they are to be for writing, too. A server that does not give such is asked for others from then on.
    to_write: AtomicBool,
    identity: Secret,
}

impl fmt::Debug for Vended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vended").field("server", &self.server).field("table", &self.table).finish_non_exhaustive()
    }
}

impl Vended {
    /// Of a table that a server knows.
    ///
    /// # Errors
    /// The token cannot be read (`InvalidInput`).
    pub(crate) fn new(server: Server, table: UnityTable, to_write: bool) -> Result<Self> {
        // Who has another token may not see the same.
        let token = server.token.read()?.unwrap_or_default();
        let purpose = if to_write { "write" } else { "read" };
        let identity = format!("{}\n{}\n{purpose}\n{}", server.named.address, table.id, token.expose());
        let identity = Secret::new(identity);
        Ok(Self { server, table, to_write: AtomicBool::new(to_write), identity })
    }

    async fn answer(&self) -> Result<Answer> {
        let operation = if self.to_write.load(Ordering::Relaxed) { "READ_WRITE" } else { "READ" };
        self.server.credentials(&self.table, operation).await
    }

    async fn given(&self) -> Result<TemporaryCredential> {
        let mut answer = self.answer().await?;
        if answer.is_denied() && self.to_write.swap(false, Ordering::Relaxed) {
            answer = self.answer().await?;
        }
        let Self { server, table: UnityTable { name, location, .. }, .. } = self;
        match answer.credential() {
            Some(credential) if answer.is_good() => Ok(credential),
            None if answer.is_good() || answer.status == 400 => {
                Err(server.named.without_credentials(&answer, name, location))
            }
            _ => Err(server.named.refused(&answer, &server.token, name)),
        }
    }
}

impl CredentialSource for Vended {
    fn identity(&self) -> Secret {
        self.identity.clone()
    }

    fn renew(&self) -> BoxFuture<'_, Result<TemporaryCredential>> {
        self.given().boxed()
    }
}

#[cfg(test)]
mod tests {
    use lakemark_table::Credential;

    use super::*;
    use crate::config::Config;
    use crate::document::Document;
    use crate::unity::stub::Stub;

    const KEYS: &str =
        r#"{"aws_temp_credentials":{"access_key_id":"id","secret_access_key":"hidden"},"expiration_time":1}"#;
    const DENIED: &str = r#"{"error_code":"PERMISSION_DENIED","message":"hidden"}"#;

    fn vended(url: &str, token: &str, to_write: bool) -> Vended {
        let text = format!("[catalogs.main]\nuri = '{url}'\ntoken = '{token}'\n");
        let server = Server::of(&Config::of([Document::new("f", text)]).unwrap(), "main").unwrap();
        let (name, id, location) = ("main.sales.trips".to_owned(), "7".to_owned(), "s3://lake/trips".to_owned());
        Vended::new(server, UnityTable { name, id, location }, to_write).unwrap()
    }

    #[tokio::test]
    async fn credentials_to_write_are_asked_for_first_and_then_those_to_read() {
        let stub = Stub::new(&[(403, DENIED), (200, KEYS), (200, KEYS)]);
        let vended = vended(&stub.url, "hidden", true);
        for _ in 0..2 {
            let given = vended.renew().await.unwrap();
            assert!(matches!(given.credential, Credential::Aws { session_token: None, .. }));
        }
        let requests = stub.requests();
        assert!(
            requests
                .iter()
                .all(|request| request.starts_with("POST /api/2.1/unity-catalog/temporary-table-credentials "))
        );
        assert!(requests.iter().all(|request| request.contains(r#""table_id":"7""#)), "{requests:?}");
        let writes = requests.iter().map(|request| request.contains(r#""READ_WRITE""#));
        assert_eq!(writes.collect::<Vec<_>>(), [true, false, false]);
    }

    #[tokio::test]
    async fn what_is_refused_says_what_to_do() {
        for (answer, says) in [
            ((403, DENIED), "let its owner grant USE CATALOG, USE SCHEMA and SELECT"),
            ((401, "{}"), "does not accept the token of f:3"),
            ((404, "{}"), "there is no table main.sales.trips"),
            ((200, "{}"), "let those who run it set up s3://lake/trips there, or write a profile with keys"),
            ((400, r#"{"error_code":"INVALID_ARGUMENT"}"#), "gives no credentials for main.sales.trips"),
        ] {
            let stub = Stub::new(&[answer]);
            let said = vended(&stub.url, "hidden", false).renew().await.unwrap_err().to_string();
            assert!(said.contains(says) && !said.contains("hidden"), "{said}");
        }
    }

    #[test]
    fn sources_are_the_same_if_table_token_and_purpose_are() {
        let identity = |token: &str, to_write: bool| vended("http://localhost:1", token, to_write).identity();
        assert!(identity("a", true) == identity("a", true));
        assert!(identity("a", true) != identity("b", true) && identity("a", true) != identity("a", false));
        assert!(!format!("{:?}", vended("http://localhost:1", "hidden", true)).contains("hidden"));
    }
}

//! A server of Unity Catalog, and the two questions that it is asked.

use std::fmt;
use std::time::Duration;

use futures::TryStreamExt;
use lakemark_table::{Error, ErrorKind, Result, Secret};
use object_store::ClientOptions;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, ReqwestConnector};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value as Json, json};

use crate::address::Address;
use crate::config::Config;
use crate::unity::answer::Answer;
use crate::unity::name::UnityName;
use crate::unity::problem::Named;
use crate::unity::token::Token;

/// Variables that have the address of a server and its token where no file names the catalog. Other programs of this kind read them, too.
pub(crate) const VARIABLES: [(&str, &str); 2] =
    [("DATABRICKS_HOST", "DATABRICKS_TOKEN"), ("UNITY_WORKSPACE_URL", "UNITY_ACCESS_TOKEN")];

/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time that it may take to reach a server.
const TO_CONNECT: Duration = Duration::from_secs(10);

/// What is waited before a server that is busy is asked again.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// The most that an answer may have: a table of ten thousand columns has a few megabytes.
const MOST_BYTES: usize = 64 << 20;

/// What stands in a path as it is.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// Kinds of tables that have no files.
const VIEWS: [&str; 3] = ["VIEW", "METRIC_VIEW", "MATERIALIZED_VIEW"];

/// Formats of tables that are served.
const FORMATS: [&str; 2] = ["DELTA", "PARQUET"];

/// A server.
pub(crate) struct Server {
    pub(crate) named: Named,
    pub(crate) token: Token,
    /// What the catalog is called there.
    catalog: String,
    client: HttpClient,
}

/// The client has much to say, and nothing that anybody wants to know.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("named", &self.named).field("token", &self.token).finish_non_exhaustive()
    }
}

/// A table as a server knows it.
#[derive(Clone, Debug)]
pub(crate) struct UnityTable {
    /// Its name, for people.
    pub(crate) name: String,
    /// What the server calls it in questions for credentials.
    pub(crate) id: String,
    /// Its path or URL.
    pub(crate) location: String,
}

impl Server {
    /// That of a catalog: as a file has it, or else the environment.
    ///
    /// # Errors
    /// Neither names it (`InvalidInput`).
    pub(crate) fn of(config: &Config, catalog: &str) -> Result<Self> {
        Self::found(config, catalog, |name| std::env::var(name).ok())
    }

    fn found(config: &Config, catalog: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        if let Some(written) = config.catalogs.get(catalog) {
            let (address, place) = (written.address.clone(), written.place.to_string());
            let named = Named { catalog: catalog.to_owned(), address, place };
            let token = written.token.clone().map_or(Token::Nowhere, Token::Written);
            return Self::new(named, token, written.called.as_deref().unwrap_or(catalog));
        }
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let Some((host, token, value)) = VARIABLES.iter().find_map(|(host, token)| Some((*host, *token, set(host)?)))
        else {
            let known: Vec<&str> = config.catalogs.keys().map(String::as_str).collect();
            return Err(Named::unknown(catalog, &known));
        };
        // Databricks writes its hosts without a scheme.
        let value = if value.contains("://") { value } else { format!("https://{}", value.trim()) };
        let Some(address) = Address::parse(&value) else {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{host} is to be {}", Address::WANTED)));
        };
        let named = Named { catalog: catalog.to_owned(), address, place: host.to_owned() };
        let token = if set(token).is_some() { Token::Variable(token) } else { Token::Nowhere };
        Self::new(named, token, catalog)
    }

    fn new(named: Named, token: Token, catalog: &str) -> Result<Self> {
        let options =
            ClientOptions::new().with_timeout(PATIENCE).with_connect_timeout(TO_CONNECT).with_allow_http(true);
        let client = ReqwestConnector::default().connect(&options).map_err(|error| named.unreachable(&error))?;
        Ok(Self { named, token, catalog: catalog.to_owned(), client })
    }

    /// What it knows of a table.
    ///
    /// # Errors
    /// There is no such table, it has no files that we read, or the server does not say.
    pub(crate) async fn table(&self, name: &UnityName) -> Result<UnityTable> {
        let parts = [&self.catalog, &name.schema, &name.table];
        let full = parts.map(|part| utf8_percent_encode(part, IN_PATHS).to_string()).join(".");
        let answer = self.ask(&format!("tables/{full}"), None).await?;
        let name = name.to_string();
        if !answer.is_good() {
            return Err(self.named.refused(&answer, &self.token, &name));
        }
        let unsupported = |what: &str| Err(Error::new(ErrorKind::Unsupported, format!("{name} is {what}")));
        if answer.text("table_type").is_some_and(|kind| VIEWS.contains(&kind)) {
            return unsupported("a view, which has no files: name a table");
        }
        if answer.text("data_source_format").is_some_and(|format| !FORMATS.contains(&format)) {
            return unsupported("neither a Delta table nor one of Parquet files: name one of these");
        }
        match (answer.text("table_id"), answer.text("storage_location")) {
            (Some(id), Some(location)) => Ok(UnityTable { name, id: id.to_owned(), location: location.to_owned() }),
            _ => Err(self.named.strange()),
        }
    }

    /// Asks for credentials to do something with a table.
    pub(crate) async fn credentials(&self, table: &UnityTable, operation: &str) -> Result<Answer> {
        let question = json!({ "table_id": table.id, "operation": operation });
        self.ask("temporary-table-credentials", Some(&question)).await
    }

    /// Asks, and once more after a moment if the server is busy.
    async fn ask(&self, path: &str, question: Option<&Json>) -> Result<Answer> {
        let mut pauses = PAUSES.iter();
        loop {
            let answer = self.ask_once(path, question).await?;
            match pauses.next().filter(|_| answer.is_passing()) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Ok(answer),
            }
        }
    }

    async fn ask_once(&self, path: &str, question: Option<&Json>) -> Result<Answer> {
        let token = self.token.read()?;
        let request = request(&self.named.address.url_of(path), token.as_ref(), question);
        let request = request.ok_or_else(|| self.named.unsendable(&self.token))?;
        let unreachable = |error: HttpError| self.named.unreachable(&error);
        let response = self.client.execute(request).await.map_err(unreachable)?;
        let status = response.status().as_u16();
        let mut parts = response.into_body().bytes_stream();
        let mut body = Vec::new();
        while let Some(part) = parts.try_next().await.map_err(unreachable)? {
            body.extend_from_slice(&part);
            if body.len() > MOST_BYTES {
                return Err(self.named.strange());
            }
        }
        Ok(Answer::new(status, &body))
    }
}

/// A request: one that asks for something, or puts a question. None if the token is no text for a header.
fn request(url: &str, token: Option<&Secret>, question: Option<&Json>) -> Option<HttpRequest> {
    let body = question.map_or_else(HttpRequestBody::empty, |question| question.to_string().into());
    let mut request = HttpRequest::new(body);
    *request.uri_mut() = url.parse().ok()?;
    if question.is_some() {
        *request.method_mut() = "POST".parse().ok()?;
        request.headers_mut().insert("content-type", "application/json".parse().ok()?);
    }
    request.headers_mut().insert("accept", "application/json".parse().ok()?);
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {}", token.expose()).parse().ok()?);
    }
    // So that no log of the client shows it.
    if let Some(value) = request.headers_mut().get_mut("authorization") {
        value.set_sensitive(true);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use crate::unity::stub::Stub;

    const TABLE: &str =
        r#"{"table_id":"7","storage_location":"s3://lake/trips","table_type":"EXTERNAL","data_source_format":"DELTA"}"#;

    fn config(text: &str) -> Config {
        Config::of([Document::new("f", text)]).unwrap()
    }

    fn server(url: &str, more: &str) -> Server {
        Server::of(&config(&format!("[catalogs.main]\nuri = '{url}'\n{more}")), "main").unwrap()
    }

    async fn asked(answers: &[(u16, &str)], more: &str) -> (Result<UnityTable>, Vec<String>) {
        let stub = Stub::new(answers);
        let name = UnityName::of("uc://main.sales.trips").unwrap().unwrap();
        let table = server(&stub.url, more).table(&name).await;
        (table, stub.requests())
    }

    #[tokio::test]
    async fn a_table_is_asked_for_by_its_name_at_the_server() {
        let (table, requests) = asked(&[(200, TABLE)], "token = 'hidden'\ncatalog = 'unity-1'\n").await;
        let table = table.unwrap();
        assert_eq!((table.id.as_str(), table.location.as_str()), ("7", "s3://lake/trips"));
        assert_eq!(table.name, "main.sales.trips");
        assert!(
            requests[0].starts_with("GET /api/2.1/unity-catalog/tables/unity-1.sales.trips HTTP/1.1"),
            "{requests:?}"
        );
        assert!(requests[0].contains("authorization: Bearer hidden"), "{requests:?}");
        let (_, requests) = asked(&[(200, TABLE)], "").await;
        assert!(!requests[0].contains("authorization"), "{requests:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_busy_is_asked_again() {
        let (table, requests) = asked(&[(503, ""), (200, TABLE)], "").await;
        assert_eq!((table.unwrap().id.as_str(), requests.len()), ("7", 2));
    }

    #[tokio::test]
    async fn every_refusal_says_what_to_do_and_shows_no_token() {
        let token = "token = 'hidden'\n";
        for (answer, more, kind, says) in [
            ((401, "{}"), "", ErrorKind::Io, "wants a token: write token into [catalogs.main] of lakemark.toml"),
            (
                (401, r#"{"error_code":"UNAUTHENTICATED","message":"hidden"}"#),
                token,
                ErrorKind::Io,
                "the token of f:3, which has expired",
            ),
            (
                (403, r#"{"error_code":"PERMISSION_DENIED"}"#),
                token,
                ErrorKind::Io,
                "does not give you main.sales.trips: let its owner grant",
            ),
            (
                (404, r#"{"error_code":"TABLE_DOES_NOT_EXIST"}"#),
                token,
                ErrorKind::NotFound,
                "there is no table main.sales.trips in the catalog main at",
            ),
            ((500, "hidden"), token, ErrorKind::Io, "cannot answer now: try it later, or tell those who run it (500)"),
            ((418, "hidden"), token, ErrorKind::Io, "compare its version and the address in f:1 (418)"),
            ((200, "<html>hidden</html>"), token, ErrorKind::Io, "does not answer as Unity Catalog does"),
            ((200, r#"{"table_type":"VIEW"}"#), token, ErrorKind::Unsupported, "main.sales.trips is a view"),
            ((200, r#"{"data_source_format":"CSV"}"#), token, ErrorKind::Unsupported, "neither a Delta table nor"),
        ] {
            let error = asked(&[answer], more).await.0.unwrap_err();
            let said = error.to_string();
            assert!(error.kind() == kind && said.contains(says) && !said.contains("hidden"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_the_place_of_its_address() {
        let name = UnityName::of("uc://main.sales.trips").unwrap().unwrap();
        let said = server("http://127.0.0.1:9", "token = 'hidden'").table(&name).await.unwrap_err().to_string();
        assert!(said.starts_with("the catalog main at http://127.0.0.1:9 cannot be reached ("), "{said}");
        assert!(said.ends_with("see whether it runs, and compare the address in f:1"), "{said}");
        let said = server("http://127.0.0.1:9", "token = \"a\\nb\"").table(&name).await.unwrap_err().to_string();
        assert!(said.contains("cannot be asked with the token of f:3"), "{said}");
    }

    #[test]
    fn a_catalog_that_no_file_names_is_that_of_the_environment() {
        let config = config("[catalogs]\nother = 'http://localhost:1'\n");
        let found = |pairs: &[(&str, &str)]| {
            let variable =
                |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            Server::found(&config, "main", variable)
        };
        let server =
            found(&[("DATABRICKS_HOST", "adb-1.azuredatabricks.net"), ("DATABRICKS_TOKEN", "hidden")]).unwrap();
        assert_eq!(server.named.address.to_string(), "https://adb-1.azuredatabricks.net");
        assert_eq!(server.token.place().as_deref(), Some("DATABRICKS_TOKEN"));
        let server =
            found(&[("UNITY_WORKSPACE_URL", "http://localhost:8080"), ("DATABRICKS_TOKEN", "hidden")]).unwrap();
        assert_eq!((server.named.place.as_str(), server.token.place()), ("UNITY_WORKSPACE_URL", None));
        assert!(!format!("{server:?}").contains("hidden"));
        let error = found(&[]).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no catalog main: lakemark.toml has other; write [catalogs.main]"),
            "{error}"
        );
        let error = found(&[("DATABRICKS_HOST", "https://u:hidden@host")]).unwrap_err().to_string();
        assert!(error.starts_with("DATABRICKS_HOST is to be an address") && !error.contains("hidden"), "{error}");
    }
}

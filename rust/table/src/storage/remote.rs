//! Object stores of clouds, made of a URL, options, the environment and a source of credentials.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{CredentialProvider, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use crate::error::refusal::AccessProblem;
use crate::error::{Error, Result};
use crate::storage::access::StorageAccess;
use crate::storage::credentials::{ForAws, ForAzure, ForGoogle, Renewal};
use crate::storage::remote_store::RemoteStore;
use crate::storage::secret::{MAIN_CREDENTIALS, StorageOptions, bare_name};

/// Attempts to ask the machine for credentials before it counts as one that has none. The client's own ten take minutes.
const ATTEMPTS: usize = 3;

/// The time that these may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A place in an object store.
pub(super) struct RemotePlace {
    pub(super) object_store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
}

/// The place of a URL.
pub(super) fn connect(url: &Url, access: &StorageAccess) -> Result<RemotePlace> {
    let settings: Vec<(String, String)> = settings(url, &access.options).collect();
    let made = made(url, &settings, access);
    made.map_err(|error| {
        Error::unsupported(format!("no storage for {url}; this build may lack it, or an option is wrong"))
            .with_source(error)
    })
}

fn made(url: &Url, settings: &[(String, String)], access: &StorageAccess) -> object_store::Result<RemotePlace> {
    let (scheme, prefix) = ObjectStoreScheme::parse(url)?;
    let place = place_of(url);
    let renewal = access.credentials.clone().map(|source| Arc::new(Renewal::new(source)));
    let object_store = match scheme {
        ObjectStoreScheme::AmazonS3 => s3(url, settings, renewal.as_ref(), &place)?,
        ObjectStoreScheme::GoogleCloudStorage => google(url, settings, renewal.as_ref(), &place)?,
        ObjectStoreScheme::MicrosoftAzure => azure(url, settings, renewal.as_ref(), &place)?,
        _ => {
            let options = settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let (object_store, prefix) = object_store::parse_url_opts(url, options)?;
            return Ok(RemotePlace { object_store: Arc::from(object_store), prefix });
        }
    };
    Ok(RemotePlace { object_store: Arc::new(RemoteStore::new(object_store, &place, renewal)), prefix })
}

/// Scheme and bucket.
fn place_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.username() {
        "" => format!("{}://{host}", url.scheme()),
        container => format!("{}://{container}@{host}", url.scheme()),
    }
}

fn s3(
    url: &Url,
    settings: &[(String, String)],
    renewal: Option<&Arc<Renewal>>,
    place: &str,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    type Key = AmazonS3ConfigKey;
    let mut builder = AmazonS3Builder::new().with_url(url.as_str());
    for (key, value) in settings {
        if let Ok(key) = key.parse::<Key>() {
            builder = builder.with_config(key, value);
        }
    }
    let given = [
        Key::AccessKeyId,
        Key::SecretAccessKey,
        Key::WebIdentityTokenFile,
        Key::ContainerCredentialsRelativeUri,
        Key::ContainerCredentialsFullUri,
    ];
    let is_given = given.iter().any(|key| builder.get_config_value(key).is_some());
    if let Some(renewal) = renewal {
        builder = builder.with_credentials(Arc::new(ForAws(Arc::clone(renewal))));
    } else if !is_given {
        let asked = builder.clone().with_retry(few_attempts()).build()?;
        builder = builder.with_credentials(Arc::new(OfMachine::new(asked.credentials(), place)));
    }
    Ok(Arc::new(builder.build()?))
}

fn google(
    url: &Url,
    settings: &[(String, String)],
    renewal: Option<&Arc<Renewal>>,
    place: &str,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    type Key = GoogleConfigKey;
    let mut builder = GoogleCloudStorageBuilder::new().with_url(url.as_str());
    for (key, value) in settings {
        if let Ok(key) = key.parse::<Key>() {
            builder = builder.with_config(key, value);
        }
    }
    let given = [Key::ServiceAccount, Key::ServiceAccountKey, Key::ApplicationCredentials];
    let is_given = given.iter().any(|key| builder.get_config_value(key).is_some());
    if let Some(renewal) = renewal {
        builder = builder.with_credentials(Arc::new(ForGoogle(Arc::clone(renewal))));
    } else if !is_given {
        let asked = builder.clone().with_retry(few_attempts()).build()?;
        builder = builder.with_credentials(Arc::new(OfMachine::new(asked.credentials(), place)));
    }
    Ok(Arc::new(builder.build()?))
}

fn azure(
    url: &Url,
    settings: &[(String, String)],
    renewal: Option<&Arc<Renewal>>,
    place: &str,
) -> object_store::Result<Arc<dyn ObjectStore>> {
    type Key = AzureConfigKey;
    let mut builder = MicrosoftAzureBuilder::new().with_url(url.as_str());
    for (key, value) in settings {
        if let Ok(key) = key.parse::<Key>() {
            builder = builder.with_config(key, value);
        }
    }
    let given = [Key::AccessKey, Key::SasKey, Key::Token, Key::ClientSecret, Key::FederatedTokenFile];
    let is_given = given.iter().any(|key| builder.get_config_value(key).is_some());
    if let Some(renewal) = renewal {
        builder = builder.with_credentials(Arc::new(ForAzure(Arc::clone(renewal))));
    } else if !is_given {
        let asked = builder.clone().with_retry(few_attempts()).build()?;
        builder = builder.with_credentials(Arc::new(OfMachine::new(asked.credentials(), place)));
    }
    Ok(Arc::new(builder.build()?))
}

fn few_attempts() -> RetryConfig {
    RetryConfig { max_retries: ATTEMPTS, retry_timeout: PATIENCE, ..RetryConfig::default() }
}

/// Credentials that a machine of a cloud has by itself, or a user by the tools of the cloud. Where there are none, the error says how to
/// give some.
struct OfMachine<T> {
    inner: Arc<dyn CredentialProvider<Credential = T>>,
    place: String,
}

impl<T> OfMachine<T> {
    fn new(inner: &Arc<dyn CredentialProvider<Credential = T>>, place: &str) -> Self {
        Self { inner: Arc::clone(inner), place: place.to_owned() }
    }
}

impl<T> fmt::Debug for OfMachine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfMachine").field(&self.place).finish()
    }
}

#[async_trait]
impl<T: Send + Sync + 'static> CredentialProvider for OfMachine<T> {
    type Credential = T;

    async fn get_credential(&self) -> object_store::Result<Arc<T>> {
        let given = self.inner.get_credential().await;
        given.map_err(|error| AccessProblem::missing(&self.place, &error).into_storage())
    }
}

/// What the object store of a URL is made with, what counts more after the rest. Who gives credentials by options means all of them: those
/// of the environment are left out then, as the token of another key would be.
pub(super) fn settings(url: &Url, options: &StorageOptions) -> impl Iterator<Item = (String, String)> {
    let has_credentials = options.has_credentials();
    let has_endpoint = options.iter().any(|(name, _)| ["endpoint", "endpoint_url"].contains(&bare_name(name)));
    let is_left = move |name: &str| {
        let bare = bare_name(name);
        let is_credential = MAIN_CREDENTIALS.contains(&bare) || OTHER_CREDENTIALS.contains(&bare);
        !(has_credentials && is_credential || has_endpoint && bare == "endpoint_url_s3")
    };
    let environment = environment(url.scheme()).into_iter().filter(move |(name, _)| is_left(name));
    environment.chain(options.iter().map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// Ends of the names of others that go with them.
const OTHER_CREDENTIALS: [&str; 6] =
    ["authority_id", "client_secret", "secret_access_key", "session_token", "tenant_id", "token"];

/// Credentials and settings of the environment for a scheme, such as `AWS_ACCESS_KEY_ID`, by the names that options have; options that are
/// given count over them.
#[must_use]
pub fn environment(scheme: &str) -> Vec<(String, String)> {
    let prefix = match scheme {
        "s3" | "s3a" => "AWS_",
        "gs" => "GOOGLE_",
        "az" | "abfs" | "abfss" | "azure" | "adl" => "AZURE_",
        _ => return Vec::new(),
    };
    let variables =
        std::env::vars_os().filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    variables.filter(|(key, _)| key.starts_with(prefix)).map(|(key, value)| (key.to_ascii_lowercase(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(given: &[(&str, &str)]) -> StorageAccess {
        let options = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        StorageAccess { options, credentials: None }
    }

    fn connected(url: &str, given: &[(&str, &str)]) -> Result<RemotePlace> {
        connect(&Url::parse(url).unwrap(), &access(given))
    }

    #[test]
    fn every_cloud_is_made_of_its_url_and_options_and_prints_no_secret() {
        let key = "aGlkZGVu";
        for (url, given, prefix) in [
            ("s3://lake/t", vec![("aws_access_key_id", "hidden"), ("aws_secret_access_key", "hidden")], "t"),
            (
                "s3a://lake/a/t",
                vec![("aws_skip_signature", "true"), ("aws_access_key_id", "a"), ("aws_secret_access_key", "b")],
                "a/t",
            ),
            ("abfss://lake@account.dfs.core.windows.net/t", vec![("azure_storage_account_key", key)], "t"),
            ("az://lake/t", vec![("account_name", "a"), ("sas_token", "sv=1&sig=hidden")], "t"),
        ] {
            let place = connected(url, &given).unwrap();
            assert_eq!(place.prefix.as_ref(), prefix, "{url}");
            let printed = format!("{:?}", place.object_store);
            assert!(printed.starts_with("RemoteStore(") && !printed.contains("hidden"), "{printed}");
        }
    }

    #[test]
    fn credentials_of_the_environment_do_not_mix_with_those_that_are_given() {
        let url = Url::parse("s3://lake/t").unwrap();
        let given = |options: &[(&str, &str)]| settings(&url, &access(options).options).collect::<Vec<_>>();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let keys = given(&[("aws_access_key_id", "a"), ("aws_secret_access_key", "b")]);
        assert!(keys.ends_with(&[pair("aws_access_key_id", "a"), pair("aws_secret_access_key", "b")]));
        assert!(keys.iter().all(|(name, _)| name != "aws_session_token"), "{}", keys.len());
        assert!(given(&[("aws_region", "r")]).contains(&pair("aws_region", "r")));
        for (name, is_main) in [("aws_access_key_id", true), ("azure_storage_account_key", true), ("aws_token", false)]
        {
            assert_eq!(MAIN_CREDENTIALS.contains(&bare_name(name)), is_main, "{name}");
        }
    }

    #[test]
    fn other_schemes_are_refused_by_name() {
        let error = connected("ftp://host/t", &[]).err().unwrap().to_string();
        assert!(error.contains("no storage for ftp://host/t"), "{error}");
        assert_eq!(connected("memory:///t", &[]).unwrap().prefix.as_ref(), "t");
    }

    #[test]
    fn half_a_key_is_an_error() {
        let error = connected("s3://lake/t", &[("aws_access_key_id", "hidden")]).err().unwrap().to_string();
        assert!(error.contains("Missing SecretAccessKey") && !error.contains("hidden"), "{error}");
    }
}

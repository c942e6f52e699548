//! Credentials that end, and are renewed: before they do, and after a storage refused them.
//!
//! ```text
//! request ─▶ Renewal: has it one that is good for a while? ─▶ sign
//!                     no ─▶ CredentialSource (a catalog, a file, Spark) ─▶ keep, sign
//! refused ─▶ Renewal: has anybody renewed it since?  no ─▶ CredentialSource ─▶ once more
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::AzureCredential;
use object_store::gcp::GcpCredential;
use percent_encoding::percent_decode_str;
use tokio::sync::Mutex;

use crate::error::{Error, ErrorKind, Result};
use crate::storage::clock::{self, Moment};
use crate::storage::secret::Secret;

/// A credential that ends sooner than this is renewed: a request may take minutes.
const MARGIN: Duration = Duration::from_secs(300);

/// The time between two attempts to renew a credential that is still good.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(10);

/// What requests to an object store are signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Keys of S3, and of what speaks its protocol.
    Aws {
        /// The id of the access key.
        key_id: Secret,
        /// The secret access key.
        secret_key: Secret,
        /// The token of a session, which temporary keys have.
        session_token: Option<Secret>,
    },
    /// A shared access signature of Azure, as the query of a URL.
    AzureSas(Secret),
    /// A token of OAuth, which Google Cloud Storage and Azure take.
    Bearer(Secret),
}

/// A credential, and how long it is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporaryCredential {
    /// What requests are signed with.
    pub credential: Credential,
    /// When the credential ends; none if nobody knows.
    pub expires: Option<SystemTime>,
}

/// Gives credentials for the files of one table, as often as they are asked for.
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// Tells sources apart: two that have the same may see the same. It is kept in memory, and never shown.
    fn identity(&self) -> Secret;

    /// A new credential. The error says what to do.
    fn renew(&self) -> BoxFuture<'_, Result<TemporaryCredential>>;
}

/// A source with what it gave last.
#[derive(Debug)]
pub(super) struct Renewal {
    source: Arc<dyn CredentialSource>,
    kept: Mutex<Option<Kept>>,
    /// How often the source gave one.
    renewals: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    temporary: TemporaryCredential,
    /// The last attempt to renew it.
    since: Moment,
}

impl Kept {
    fn is_over(&self) -> bool {
        self.temporary.expires.is_some_and(|expires| expires <= clock::now())
    }

    /// Whether requests go on with it without an attempt to renew it.
    fn is_good(&self) -> bool {
        let ends_soon = self.temporary.expires.is_some_and(|expires| expires <= clock::now() + MARGIN);
        !ends_soon || (!self.is_over() && self.since.is_within(BETWEEN_ATTEMPTS))
    }
}

impl Renewal {
    pub(super) fn new(source: Arc<dyn CredentialSource>) -> Self {
        Self { source, kept: Mutex::default(), renewals: AtomicU64::new(0) }
    }

    /// How often there was a new credential until now.
    pub(super) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::SeqCst)
    }

    /// The credential to sign with. One that is still good serves as long as nobody gives a new one.
    async fn current(&self) -> Result<Credential> {
        let mut kept = self.kept.lock().await;
        if let Some(good) = kept.as_ref().filter(|kept| kept.is_good()) {
            return Ok(good.temporary.credential.clone());
        }
        match (self.renewed(&mut kept).await, kept.as_mut().filter(|kept| !kept.is_over())) {
            (Err(error), Some(kept)) => {
                tracing::warn!(%error, "credentials end soon, and are not renewed");
                kept.since = Moment::now();
                Ok(kept.temporary.credential.clone())
            }
            (renewed, _) => renewed,
        }
    }

    async fn renewed(&self, kept: &mut Option<Kept>) -> Result<Credential> {
        let temporary = self.source.renew().await?;
        let credential = temporary.credential.clone();
        *kept = Some(Kept { temporary, since: Moment::now() });
        self.renewals.fetch_add(1, Ordering::SeqCst);
        Ok(credential)
    }

    /// Renews a credential that was refused, unless somebody has since there were so many `renewals`.
    pub(super) async fn after_refusal(&self, renewals: u64) -> Result<()> {
        let mut kept = self.kept.lock().await;
        if self.renewals() == renewals {
            self.renewed(&mut kept).await?;
        }
        Ok(())
    }
}

/// What a storage says whose source gave credentials of another one.
fn other_storage(storage: &'static str) -> Error {
    let text = format!(
        "the credentials that were given are not for {storage}: look at where the table is, and at who gives them"
    );
    Error::new(ErrorKind::InvalidInput, text)
}

/// An error of ours on its way through the crate for object stores.
pub(super) fn through_storage(error: Error) -> object_store::Error {
    object_store::Error::Generic { store: "credentials", source: Box::new(error) }
}

/// Signs requests to S3.
#[derive(Debug)]
pub(super) struct ForAws(pub(super) Arc<Renewal>);

#[async_trait]
impl CredentialProvider for ForAws {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self.0.current().await.map_err(through_storage)? {
            Credential::Aws { key_id, secret_key, session_token } => Ok(Arc::new(AwsCredential {
                key_id: key_id.expose().to_owned(),
                secret_key: secret_key.expose().to_owned(),
                token: session_token.map(|token| token.expose().to_owned()),
            })),
            Credential::AzureSas(_) | Credential::Bearer(_) => Err(through_storage(other_storage("S3"))),
        }
    }
}

/// Signs requests to Azure.
#[derive(Debug)]
pub(super) struct ForAzure(pub(super) Arc<Renewal>);

#[async_trait]
impl CredentialProvider for ForAzure {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        match self.0.current().await.map_err(through_storage)? {
            Credential::AzureSas(signature) => Ok(Arc::new(AzureCredential::SASToken(query_pairs(signature.expose())))),
            Credential::Bearer(token) => Ok(Arc::new(AzureCredential::BearerToken(token.expose().to_owned()))),
            Credential::Aws { .. } => Err(through_storage(other_storage("Azure"))),
        }
    }
}

/// Names and values of a query. A plus sign is one: base64 has them.
fn query_pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = query.trim().trim_start_matches('?').split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Signs requests to Google Cloud Storage.
#[derive(Debug)]
pub(super) struct ForGoogle(pub(super) Arc<Renewal>);

#[async_trait]
impl CredentialProvider for ForGoogle {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        match self.0.current().await.map_err(through_storage)? {
            Credential::Bearer(token) => Ok(Arc::new(GcpCredential { bearer: token.expose().to_owned() })),
            Credential::Aws { .. } | Credential::AzureSas(_) => {
                Err(through_storage(other_storage("Google Cloud Storage")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::storage::clock::stepped;

    /// Gives keys with a number, each for so long; none once it has given them all.
    #[derive(Debug)]
    struct Numbered {
        given: AtomicU64,
        most: u64,
        lasts: Duration,
    }

    impl CredentialSource for Numbered {
        fn identity(&self) -> Secret {
            Secret::new("numbered")
        }

        fn renew(&self) -> BoxFuture<'_, Result<TemporaryCredential>> {
            async move {
                let number = self.given.fetch_add(1, Ordering::SeqCst);
                if number >= self.most {
                    return Err(Error::io("the catalog is down"));
                }
                let (key_id, secret_key) = (Secret::new(number.to_string()), Secret::new("s"));
                let credential = Credential::Aws { key_id, secret_key, session_token: None };
                Ok(TemporaryCredential { credential, expires: Some(clock::now() + self.lasts) })
            }
            .boxed()
        }
    }

    fn renewal(most: u64, lasts: Duration) -> Renewal {
        Renewal::new(Arc::new(Numbered { given: AtomicU64::new(0), most, lasts }))
    }

    async fn key(renewal: &Renewal) -> String {
        match renewal.current().await.unwrap() {
            Credential::Aws { key_id, .. } => key_id.expose().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_credential_serves_until_it_ends() {
        let lasting = renewal(9, MARGIN * 1000);
        assert_eq!([key(&lasting).await, key(&lasting).await], ["0", "0"]);
        let over = renewal(9, Duration::ZERO);
        assert_eq!([key(&over).await, key(&over).await], ["0", "1"]);
    }

    #[tokio::test]
    async fn one_that_ends_soon_is_renewed_from_time_to_time() {
        let short = renewal(9, MARGIN);
        assert_eq!([key(&short).await, key(&short).await], ["0", "0"]);
        stepped::step(BETWEEN_ATTEMPTS);
        assert_eq!([key(&short).await, key(&short).await], ["1", "1"]);
    }

    #[tokio::test]
    async fn one_that_ends_soon_serves_while_nobody_gives_another() {
        let short = renewal(1, MARGIN);
        assert_eq!(key(&short).await, "0");
        stepped::step(BETWEEN_ATTEMPTS);
        assert_eq!([key(&short).await, key(&short).await], ["0", "0"]);
        assert_eq!(short.renewals(), 1);
        let over = renewal(1, Duration::ZERO);
        assert_eq!(key(&over).await, "0");
        assert!(over.current().await.unwrap_err().to_string().contains("down"));
    }

    #[tokio::test]
    async fn of_several_that_were_refused_one_renews() {
        let lasting = renewal(9, MARGIN * 1000);
        assert_eq!(key(&lasting).await, "0");
        let seen = lasting.renewals();
        lasting.after_refusal(seen).await.unwrap();
        lasting.after_refusal(seen).await.unwrap();
        assert_eq!((key(&lasting).await.as_str(), lasting.renewals()), ("1", 2));
    }

    #[tokio::test]
    async fn a_storage_takes_credentials_of_its_own_alone() {
        let renewal = Arc::new(renewal(9, MARGIN * 1000));
        let taken = ForAws(Arc::clone(&renewal)).get_credential().await.unwrap();
        assert_eq!((taken.key_id.as_str(), &taken.token), ("0", &None));
        let azure = ForAzure(Arc::clone(&renewal)).get_credential().await.unwrap_err();
        let google = ForGoogle(renewal).get_credential().await.unwrap_err();
        assert!(azure.to_string().contains("not for Azure") && google.to_string().contains("not for Google"));
    }

    #[test]
    fn signatures_are_decoded_once_and_keep_their_plus_signs() {
        let pairs = query_pairs("?sv=2024-11-04&sig=a%2Bb+c%3D&se=2030");
        let shown: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(shown, [("sv", "2024-11-04"), ("sig", "a+b+c="), ("se", "2030")]);
    }
}

//! Where the indexes of a table are, and how its files are reached: what Java says of a table beside its path.
//!
//! Credentials that have to be renewed come from Java each time: a class of Hadoop's configuration has them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use jni::objects::{JClass, JString, JValue};
use jni::refs::Global;
use jni::vm::JavaVM;
use jni::{Env, jni_sig, jni_str};
use lakemark_table::{
    Credential, CredentialSource, Error, ErrorKind, Secret, StorageAccess, TableOptions, TemporaryCredential,
};
use serde::{Deserialize, Serialize};

use crate::error::{NativeError, Result};

/// Where the indexes of a table are, and how its files are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableStorage {
    /// Where its indexes are, if not beside the data.
    #[serde(default)]
    pub(crate) store: Option<String>,
    /// How its data files are reached; by the environment if nothing is said.
    #[serde(default)]
    data: Option<AccessSettings>,
    /// How its indexes are reached, where they are elsewhere.
    #[serde(default)]
    indexes: Option<AccessSettings>,
}

/// How an object store is reached. It has credentials, so that it is never printed.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccessSettings {
    /// Options by the names that `object_store` knows.
    options: BTreeMap<String, String>,
    /// What Java makes the class of that gives credentials; none if the options have all.
    provider: Option<String>,
}

impl fmt::Debug for AccessSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessSettings").finish_non_exhaustive()
    }
}

impl TableStorage {
    /// What Java says of a table, if it says something.
    pub(crate) fn read(env: &mut Env<'_>, text: Option<&str>) -> Result<Self> {
        let storage: Self = text.map(serde_json::from_str).transpose()?.unwrap_or_default();
        storage.prepare(env)?;
        Ok(storage)
    }

    /// Lets Java be asked for credentials later, from whatever thread.
    pub(crate) fn prepare(&self, env: &mut Env<'_>) -> Result<()> {
        let is_asked = [&self.data, &self.indexes].into_iter().flatten().any(|access| access.provider.is_some());
        if is_asked { prepare(env) } else { Ok(()) }
    }

    /// A store elsewhere, on the same disk.
    #[cfg(test)]
    pub(crate) fn with_store(store: &str) -> Self {
        Self { store: Some(store.to_owned()), ..Self::default() }
    }

    /// How the table is opened.
    pub(crate) fn options(&self) -> TableOptions {
        TableOptions {
            store: self.store.clone(),
            storage: self.data.as_ref().map(AccessSettings::access).unwrap_or_default(),
            store_storage: self.indexes.as_ref().map(AccessSettings::access),
            ..TableOptions::default()
        }
    }
}

impl AccessSettings {
    fn access(&self) -> StorageAccess {
        let credentials = self.provider.as_ref().map(|provider| {
            let source: Arc<dyn CredentialSource> = Arc::new(FromJava { provider: Secret::new(provider.as_str()) });
            source
        });
        let options = self.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        StorageAccess { options, credentials }
    }
}

/// Java's side of credentials.
struct JavaSide {
    vm: JavaVM,
    /// `io.lakemark.spark.storage.CredentialProviders`. Threads of ours would not find it: they have the class loader of the system.
    class: Global<JClass<'static>>,
}

static JAVA: OnceLock<JavaSide> = OnceLock::new();

/// Remembers the class that is asked, and lets it remember the class loader of this thread, which has the user's jars.
fn prepare(env: &mut Env<'_>) -> Result<()> {
    if JAVA.get().is_none() {
        let class = env.find_class(jni_str!("io/lakemark/spark/storage/CredentialProviders"))?;
        let class = env.new_global_ref(class)?;
        let vm = env.get_java_vm()?;
        // Two threads may get here at once, with the same class.
        let _ = JAVA.set(JavaSide { vm, class });
    }
    if let Some(java) = JAVA.get() {
        env.call_static_method(&java.class, jni_str!("prepare"), jni_sig!("()V"), &[])?;
    }
    Ok(())
}

/// Credentials that a class of Hadoop's configuration gives.
#[derive(Debug)]
struct FromJava {
    /// Which class, and the configuration that it is made with.
    provider: Secret,
}

impl CredentialSource for FromJava {
    fn identity(&self) -> Secret {
        self.provider.clone()
    }

    fn renew(&self) -> Pin<Box<dyn Future<Output = lakemark_table::Result<TemporaryCredential>> + Send + '_>> {
        let provider = self.provider.clone();
        Box::pin(async move {
            // Java may take its time, and must not hold up a thread that others need.
            let asked = tokio::task::spawn_blocking(move || ask(&provider)).await;
            let answer =
                asked.map_err(|error| Error::new(ErrorKind::Internal, format!("nobody asked Java: {error}")))?;
            credential_of(&answer.map_err(|error| Error::new(error.kind, error.message))?)
        })
    }
}

/// What Java answers.
fn ask(provider: &Secret) -> Result<String> {
    let java = JAVA.get().ok_or_else(|| NativeError::internal("nobody knows Java's class for credentials"))?;
    // A thread that stayed attached would keep the JVM from its end.
    java.vm.attach_current_thread_for_scope(|env| -> Result<String> {
        let given = env.new_string(provider.expose())?;
        let arguments = [JValue::Object(&given)];
        let signature = jni_sig!("(Ljava/lang/String;)Ljava/lang/String;");
        let answer = env.call_static_method(&java.class, jni_str!("credentials"), signature, &arguments)?.l()?;
        Ok(env.cast_local::<JString<'_>>(answer)?.try_to_string(env)?)
    })
}

/// Credentials as Java writes them: keys of S3, a signature of Azure, or a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    key_id: Option<String>,
    secret_key: Option<String>,
    session_token: Option<String>,
    signature: Option<String>,
    token: Option<String>,
    /// When they end, in milliseconds since 1970.
    expires_ms: Option<u64>,
    /// Why there are none.
    error: Option<String>,
}

fn credential_of(answer: &str) -> lakemark_table::Result<TemporaryCredential> {
    // The text has secrets in it, so that its error says nothing of it.
    let answer: Answer = serde_json::from_str(answer)
        .map_err(|_| Error::new(ErrorKind::Internal, "Java's credentials are not what was agreed"))?;
    if let Some(error) = answer.error {
        return Err(Error::new(ErrorKind::Io, error));
    }
    let credential = match (answer.key_id, answer.secret_key, answer.signature, answer.token) {
        (Some(key_id), Some(secret_key), None, None) => Credential::Aws {
            key_id: Secret::new(key_id),
            secret_key: Secret::new(secret_key),
            session_token: answer.session_token.map(Secret::new),
        },
        (None, None, Some(signature), None) => Credential::AzureSas(Secret::new(signature)),
        (None, None, None, Some(token)) => Credential::Bearer(Secret::new(token)),
        _ => return Err(Error::new(ErrorKind::Internal, "Java gave credentials of no kind, or of two")),
    };
    let expires = answer.expires_ms.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
    Ok(TemporaryCredential { credential, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TableStorage {
        serde_json::from_str(text).expect("what Java says")
    }

    #[test]
    fn options_of_data_and_indexes_are_told_apart_and_not_printed() {
        let storage = read(
            r#"{"store": "s3a://i/s", "data": {"options": {"aws_access_key_id": "hidden"}, "provider": null},
                "indexes": {"options": {}, "provider": "{\"hidden\": 1}"}}"#,
        );
        let options = storage.options();
        assert_eq!(options.store.as_deref(), Some("s3a://i/s"));
        assert_eq!(options.storage.options.get("aws_access_key_id"), Some("hidden"));
        assert!(options.storage.credentials.is_none());
        let indexes = options.store_storage.clone().expect("access of its own");
        assert_eq!(indexes.credentials.expect("a source").identity(), Secret::new("{\"hidden\": 1}"));
        for printed in [format!("{storage:?}"), format!("{options:?}")] {
            assert!(!printed.contains("hidden"), "{printed}");
        }
        assert!(read("{}").options().store_storage.is_none());
    }

    #[test]
    fn java_gives_credentials_of_one_kind_or_says_why_there_are_none() {
        let keys = credential_of(r#"{"key_id": "k", "secret_key": "s", "session_token": "t", "expires_ms": 1000}"#);
        let keys = keys.expect("keys");
        assert_eq!(keys.expires, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1)));
        let [key_id, secret_key, token] = ["k", "s", "t"].map(Secret::new);
        assert_eq!(keys.credential, Credential::Aws { key_id, secret_key, session_token: Some(token) });
        let signature = credential_of(r#"{"signature": "sv=1"}"#).expect("a signature");
        assert_eq!(signature.credential, Credential::AzureSas(Secret::new("sv=1")));
        let token = credential_of(r#"{"token": "b"}"#).expect("a token");
        assert_eq!((token.credential, token.expires), (Credential::Bearer(Secret::new("b")), None));
        for (wrong, says) in [
            (r#"{"error": "add hadoop-aws"}"#, "add hadoop-aws"),
            (r#"{"key_id": "hidden"}"#, "of no kind"),
            (r#"{"token": "hidden", "signature": "hidden"}"#, "or of two"),
            (r#"{"hidden": 1}"#, "not what was agreed"),
        ] {
            let error = credential_of(wrong).expect_err("no credentials").to_string();
            assert!(error.contains(says) && !error.contains("hidden"), "{wrong}: {error}");
        }
    }
}

//! Values that are never printed, and the options of object stores, of which many are such values.

use std::collections::HashMap;
use std::fmt;

/// What stands in the place of a value that is not printed.
const MASK: &str = "***";

/// A key, a token or a password. It is never printed.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secret(String);

impl Secret {
    /// Keeps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value, for those who send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

/// Options of an object store, by the names that the crate `object_store` knows, such as `aws_region`. What was said last counts.
///
/// Whatever prints them has the values of those options alone that are known not to be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions(Vec<(String, Secret)>);

/// Ends of the names of options that anybody may see.
const PLAIN: [&str; 25] = [
    "account_name",
    "allow_http",
    "allow_invalid_certificates",
    "application_credentials",
    "base_url",
    "bucket",
    "bucket_name",
    "checksum_algorithm",
    "conditional_put",
    "connect_timeout",
    "container_name",
    "default_region",
    "endpoint",
    "endpoint_url",
    "endpoint_url_s3",
    "endpoint_url_sts",
    "region",
    "role_arn",
    "role_session_name",
    "skip_signature",
    "timeout",
    "unsigned_payload",
    "use_emulator",
    "virtual_hosted_style_request",
    "web_identity_token_file",
];

/// Ends of the names of options that say whose credentials these are.
pub(super) const MAIN_CREDENTIALS: [&str; 16] = [
    "access_key",
    "access_key_id",
    "account_key",
    "application_credentials",
    "bearer_token",
    "client_id",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "federated_token_file",
    "master_key",
    "sas_key",
    "sas_token",
    "service_account",
    "service_account_key",
    "service_account_path",
    "web_identity_token_file",
];

/// What names of options may begin with.
const STORES: [&str; 4] = ["aws_", "azure_storage_", "azure_", "google_"];

/// The name of an option without the store that it is for, in which names of options are the same of many stores.
pub(super) fn bare_name(name: &str) -> &str {
    STORES.iter().find_map(|store| name.strip_prefix(*store)).unwrap_or(name)
}

impl StorageOptions {
    /// Says an option, in the place of what was said of it before. Names are the same in capitals.
    pub fn insert(&mut self, name: &str, value: impl Into<String>) {
        let name = name.trim().to_ascii_lowercase();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, Secret::new(value)));
    }

    /// The value of an option.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.expose())
    }

    /// Names and values, what counts more after the rest.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.expose()))
    }

    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they say whose credentials requests have.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        self.iter().any(|(name, _)| MAIN_CREDENTIALS.contains(&bare_name(name)))
    }

    /// What both say; where they differ, what these say.
    #[must_use]
    pub fn over(self, mut other: Self) -> Self {
        for (name, value) in self.0 {
            other.insert(&name, value.0);
        }
        other
    }

    /// A value as everybody may see it.
    #[must_use]
    pub fn shown<'a>(name: &str, value: &'a str) -> &'a str {
        let name = name.trim().to_ascii_lowercase();
        let bare = bare_name(&name);
        // An address may have a password in it.
        if PLAIN.contains(&bare) && !value.contains('@') { value } else { MASK }
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, Self::shown(name, value)))).finish()
    }
}

impl FromIterator<(String, String)> for StorageOptions {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(given: T) -> Self {
        let mut options = Self::default();
        for (name, value) in given {
            options.insert(&name, value);
        }
        options
    }
}

impl From<HashMap<String, String>> for StorageOptions {
    fn from(given: HashMap<String, String>) -> Self {
        given.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(&str, &str)]) -> StorageOptions {
        given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::new("hidden");
        assert_eq!((format!("{secret:?}").as_str(), secret.expose()), ("***", "hidden"));
    }

    #[test]
    fn options_are_printed_with_the_values_that_anybody_may_see() {
        let given = options(&[
            ("AWS_REGION", "eu-north-1"),
            ("aws_secret_access_key", "hidden"),
            ("aws_access_key_id", "hidden"),
            ("aws_session_token", "hidden"),
            ("azure_storage_account_name", "lake"),
            ("azure_storage_account_key", "hidden"),
            ("google_service_account_key", "hidden"),
            ("nobody_knows_it", "hidden"),
            ("endpoint", "http://localhost:9000"),
            ("proxy_url", "http://hidden@proxy"),
            ("aws_endpoint", "http://user:hidden@host"),
        ]);
        let printed = format!("{given:?}");
        assert!(!printed.contains("hidden"), "{printed}");
        for plain in ["\"aws_region\": \"eu-north-1\"", "\"lake\"", "\"http://localhost:9000\""] {
            assert!(printed.contains(plain), "{printed}");
        }
    }

    #[test]
    fn keys_say_whose_credentials_these_are_and_a_region_does_not() {
        for name in [
            "aws_access_key_id",
            "aws_web_identity_token_file",
            "azure_storage_account_key",
            "azure_federated_token_file",
            "google_service_account",
            "access_key_id",
        ] {
            assert!(options(&[("aws_region", "r"), (name, "hidden")]).has_credentials(), "{name}");
        }
        assert!(!options(&[("aws_region", "r"), ("aws_endpoint", "e"), ("aws_token", "t")]).has_credentials());
    }

    #[test]
    fn what_is_said_last_counts_whatever_the_case() {
        let mut given = options(&[("AWS_REGION", "a"), ("aws_endpoint", "e"), ("aws_region", "b")]);
        assert_eq!((given.get("Aws_Region"), given.iter().count()), (Some("b"), 2));
        given = options(&[("aws_region", "c"), ("aws_token", "t")]).over(given);
        assert_eq!(given.iter().collect::<Vec<_>>(), [("aws_endpoint", "e"), ("aws_region", "c"), ("aws_token", "t")]);
    }
}

//! Addresses of servers of Unity Catalog, as people write them.

use std::fmt;

use url::Url;

/// Where the protocol begins at a server.
const PROTOCOL: &str = "/api/2.1/unity-catalog";

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// What an address is, for those who wrote something else.
    pub(crate) const WANTED: &'static str = "an address such as https://unity.example.com, without a user and a query";

    /// None if the text is no address, or may have a secret in it. The end of it that all servers have may be there or not.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        let is_plain = url.username().is_empty() && url.password().is_none();
        let is_whole = url.query().is_none() && url.fragment().is_none() && url.has_host();
        if !is_plain || !is_whole || !["http", "https"].contains(&url.scheme()) {
            return None;
        }
        let text = url.as_str().trim_end_matches('/');
        Some(Self(text.strip_suffix(PROTOCOL).unwrap_or(text).to_owned()))
    }

    /// The URL of a request.
    pub(crate) fn url_of(&self, request: &str) -> String {
        format!("{}{PROTOCOL}/{request}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_the_end_that_all_servers_have() {
        for (text, address) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("https://uc.example.com/", "https://uc.example.com"),
            ("https://uc.example.com/behind/api/2.1/unity-catalog/", "https://uc.example.com/behind"),
        ] {
            let parsed = Address::parse(text).unwrap();
            assert_eq!(parsed.to_string(), address);
            assert_eq!(parsed.url_of("tables/a"), format!("{address}/api/2.1/unity-catalog/tables/a"));
        }
    }

    #[test]
    fn what_is_no_address_or_has_a_password_is_none() {
        for text in [
            "",
            "localhost:8080",
            "s3://lake",
            "https://u:p@host",
            "https://u@host",
            "https://h/?t=1",
            "http://h:99999",
        ] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}

//! What an object store has against the credentials of a request, in one sentence that says what to do.
//!
//! Of the answer of a storage the code alone is told: its text may repeat a token.

use std::error::Error as StdError;
use std::fmt;

use object_store::Error;

use super::Error as OwnError;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody gave credentials.
    Missing,
    /// The credentials have ended.
    Expired,
    /// The storage does not know the credentials.
    Unknown,
    /// The credentials do not allow the request.
    Denied,
    /// The clocks of the two differ.
    Clock,
}

/// What storages call these things in their answers: S3, Azure and Google Cloud Storage. Azure says in words that a signature or a token has
/// ended, and has one code for all that it does not accept.
const CODES: [(&str, Refusal); 17] = [
    ("Signature not valid in the specified time frame", Refusal::Expired),
    ("Lifetime validation failed", Refusal::Expired),
    ("ExpiredToken", Refusal::Expired),
    ("TokenRefreshRequired", Refusal::Expired),
    ("RequestExpired", Refusal::Expired),
    ("InvalidToken", Refusal::Expired),
    ("InvalidAccessKeyId", Refusal::Unknown),
    ("SignatureDoesNotMatch", Refusal::Unknown),
    ("AuthorizationHeaderMalformed", Refusal::Unknown),
    ("AuthenticationFailed", Refusal::Unknown),
    ("InvalidAuthenticationInfo", Refusal::Unknown),
    ("NoAuthenticationInformation", Refusal::Unknown),
    ("AuthenticationRequired", Refusal::Unknown),
    ("RequestTimeTooSkewed", Refusal::Clock),
    ("AuthorizationFailure", Refusal::Denied),
    ("AuthorizationPermissionMismatch", Refusal::Denied),
    ("AccessDenied", Refusal::Denied),
];

/// How the client says the status of an answer that has no such word. Listings that are refused have no kind of error of their own.
const STATUSES: [(&str, Refusal); 2] = [("status code: 401", Refusal::Unknown), ("status code: 403", Refusal::Denied)];

/// How the client for S3 ends what it says of a request whose answer has nothing but its status.
const BARE_REFUSAL: &str = "400 Bad Request:";

/// Credentials that did not serve.
#[derive(Debug)]
pub(crate) struct AccessProblem {
    why: Refusal,
    /// The place: scheme and bucket.
    place: String,
    /// What the storage calls it, or why there are none.
    said: Option<String>,
}

impl AccessProblem {
    /// There are no credentials, as the last place to look for some said.
    pub(crate) fn missing(place: &str, said: &Error) -> Self {
        Self { why: Refusal::Missing, place: place.to_owned(), said: first_line(&said.to_string()) }
    }

    /// What an error has against credentials; none if it is about something else, or says it in such words already.
    pub(crate) fn of(error: &Error, place: &str) -> Option<Self> {
        let (source, kind) = match error {
            Error::PermissionDenied { source, .. } => (source, Some(Refusal::Denied)),
            Error::Unauthenticated { source, .. } => (source, Some(Refusal::Unknown)),
            Error::Generic { source, .. } => (source, None),
            _ => return None,
        };
        if source.is::<Self>() || source.is::<OwnError>() {
            return None;
        }
        let text = source.to_string();
        let said_in = |known: &[(&'static str, Refusal)]| known.iter().find(|(said, _)| text.contains(said)).copied();
        if let Some((code, why)) = said_in(&CODES) {
            return Some(Self { why, place: place.to_owned(), said: Some(code.to_owned()) });
        }
        // A question for a file's size has no answer that says more.
        let bare = || text.trim_end().ends_with(BARE_REFUSAL).then_some(Refusal::Unknown);
        let why = kind.or_else(|| said_in(&STATUSES).map(|(_, why)| why)).or_else(bare)?;
        Some(Self { why, place: place.to_owned(), said: None })
    }

    /// As an error of the storage.
    pub(crate) fn into_storage(self) -> Error {
        Error::Generic { store: "storage", source: Box::new(self) }
    }
}

/// A beginning that is no longer than a line.
fn first_line(text: &str) -> Option<String> {
    let line: String = text.lines().next()?.chars().take(200).collect();
    Some(line)
}

impl fmt::Display for AccessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        let written = match self.why {
            Refusal::Missing => write!(
                f,
                "there are no credentials for {place}: set {} in the environment, or write a profile for it into lakemark.toml",
                variables(place)
            ),
            Refusal::Expired => write!(
                f,
                "the credentials for {place} have expired: get new ones where these came from, and run it again"
            ),
            Refusal::Unknown => {
                write!(
                    f,
                    "{place} does not accept the credentials: compare key, secret and region with those of its owner"
                )
            }
            Refusal::Denied => write!(
                f,
                "the credentials for {place} do not allow this: let its owner allow reading and listing, and writing where the store is"
            ),
            Refusal::Clock => write!(f, "the clock of this machine is not that of {place}: set it, and run it again"),
        };
        written?;
        match &self.said {
            Some(said) => write!(f, " ({said})"),
            None => Ok(()),
        }
    }
}

/// The variables that have credentials for a place.
fn variables(place: &str) -> &'static str {
    match place.split_once("://").map_or(place, |(scheme, _)| scheme) {
        "s3" | "s3a" => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "gs" => "GOOGLE_SERVICE_ACCOUNT",
        _ => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    }
}

impl StdError for AccessProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: &Error) -> Option<String> {
        AccessProblem::of(error, "s3://lake").map(|problem| problem.to_string())
    }

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    fn denied(text: &str) -> Error {
        Error::PermissionDenied { path: "t".to_owned(), source: text.into() }
    }

    #[test]
    fn a_refusal_says_what_to_do_and_repeats_no_token() {
        let expired = generic("400: <Error><Code>ExpiredToken</Code><Token-0>hidden</Token-0></Error>");
        for (error, says) in [
            (expired, "have expired: get new ones where these came from, and run it again (ExpiredToken)"),
            (denied("<Code>InvalidAccessKeyId</Code><AWSAccessKeyId>hidden</AWSAccessKeyId>"), "does not accept"),
            (denied("<Code>AccessDenied</Code> hidden"), "do not allow this: let its owner allow"),
            (denied("hidden"), "do not allow this"),
            (Error::Unauthenticated { path: "t".to_owned(), source: "hidden".into() }, "does not accept"),
            (generic("Server returned non-2xx status code: 401 Unauthorized: hidden"), "does not accept"),
            (generic("Server returned non-2xx status code: 403 Forbidden: hidden"), "do not allow this"),
            (
                denied("AuthenticationFailed: Signature not valid in the specified time frame: Expiry hidden"),
                "have expired",
            ),
            (denied("<Code>AuthenticationFailed</Code> hidden"), "does not accept"),
            (generic("<Code>RequestTimeTooSkewed</Code> hidden"), "the clock of this machine"),
            (generic("HEAD http://hidden - Server returned non-2xx status code: 400 Bad Request: "), "does not accept"),
        ] {
            let said = said(&error).unwrap();
            assert!(said.contains(says) && said.contains("s3://lake") && !said.contains("hidden"), "{said}");
        }
    }

    #[test]
    fn other_errors_and_those_that_say_it_already_are_left_as_they_are() {
        assert_eq!(said(&generic("connection reset")), None);
        assert_eq!(said(&generic("status code: 400 Bad Request: <Code>InvalidArgument</Code>")), None);
        assert_eq!(said(&Error::NotFound { path: "t".to_owned(), source: "AccessDenied".into() }), None);
        let explained = AccessProblem::of(&denied(""), "s3://lake").unwrap().into_storage();
        assert_eq!(said(&explained), None);
        let ours = OwnError::io("the catalog said AccessDenied");
        assert_eq!(said(&Error::Generic { store: "credentials", source: Box::new(ours) }), None);
    }

    #[test]
    fn who_has_no_credentials_learns_where_they_are_looked_for() {
        for (place, variables) in
            [("s3://lake", "AWS_ACCESS_KEY_ID"), ("gs://lake", "GOOGLE_"), ("abfss://c", "AZURE_")]
        {
            let said = AccessProblem::missing(place, &generic("no role\nmore")).to_string();
            assert!(said.contains(variables) && said.contains("lakemark.toml"), "{said}");
            assert!(said.ends_with("(Generic S3 error: no role)"), "{said}");
        }
    }
}

//! Paths of data files, as a Delta log has them and as snapshots have them.
//!
//! ```text
//! in the log                           in a snapshot                    in the object store
//! p=a%20b/x.parquet                    p=a b/x.parquet                  below the table's folder
//! file:///other/x.parquet              file:/other/x.parquet            other/x.parquet
//! s3a://bucket/other/x.parquet         s3:/other/x.parquet              other/x.parquet, in the table's own bucket
//! ```
//!
//! A shallow clone has files of the table that it was made from, by absolute paths. A path of a snapshot that begins with a scheme is one of
//! them: behind the scheme is the place in the object store. No path of the log that is relative is taken for one.

use object_store::path::Path;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{Error, Result};
use crate::storage::location::Location;

/// The path that snapshots have for a file, by the text of the log.
///
/// # Errors
/// The file is in another object store than the table (`Unsupported`).
pub(crate) fn snapshot_path(location: &Location, text: &str) -> Result<String> {
    if is_absolute(text) {
        let scheme = family(location.root.scheme());
        return Ok(format!("{scheme}:/{}", place_outside(location, text)?));
    }
    let path = percent_decode_str(text).decode_utf8_lossy().into_owned();
    match is_absolute(&path) {
        true => Err(elsewhere(location, text)),
        false => Ok(path),
    }
}

/// The place of a file by the path that snapshots have for it.
pub(crate) fn place_of_file(location: &Location, path: &str) -> Path {
    let outside = scheme_of(path).and_then(|(_, place)| Path::parse(place).ok());
    outside.unwrap_or_else(|| location.data_file_path(path))
}

/// Whether a path of a snapshot leads out of the table's folder.
pub(crate) fn is_outside(path: &str) -> bool {
    scheme_of(path).is_some()
}

/// Whether a path of the log is absolute: one with a scheme (`file:/a` has one slash), or one from the root.
fn is_absolute(text: &str) -> bool {
    text.starts_with('/') || scheme_of(text).is_some()
}

/// The scheme of a path, and what is behind it and a slash.
fn scheme_of(path: &str) -> Option<(&str, &str)> {
    path.split_once(":/").filter(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'))
    })
}

/// One name for the schemes of one kind of store.
fn family(scheme: &str) -> &str {
    match scheme {
        "s3a" | "s3n" => "s3",
        other => other,
    }
}

/// The place in the object store of a file with an absolute path.
fn place_outside(location: &Location, text: &str) -> Result<Path> {
    let refused = || elsewhere(location, text);
    if location.local.is_some() {
        let path: std::path::PathBuf = match text.starts_with('/') {
            true => percent_decode_str(text).decode_utf8_lossy().into_owned().into(),
            false => {
                let url = Url::parse(text).ok().filter(|url| url.scheme() == "file").ok_or_else(refused)?;
                url.to_file_path().map_err(|()| refused())?
            }
        };
        return Path::from_absolute_path(path).map_err(|_| refused());
    }
    let (url, root) = (Url::parse(text).map_err(|_| refused())?, &location.root);
    let is_same = family(url.scheme()) == family(root.scheme()) && url.authority() == root.authority();
    // In some addresses the container is a part of the path, and no part of the place.
    let is_place = Path::from_url_path(root.path()).is_ok_and(|path| path == location.prefix);
    match is_same && is_place {
        true => Path::from_url_path(url.path()).map_err(|_| refused()),
        false => Err(refused()),
    }
}

fn elsewhere(location: &Location, text: &str) -> Error {
    Error::unsupported(format!(
        "the Delta table {} has the file {text}, which is in another object store than the table; copy the table, so that it has its \
         files itself",
        location.text
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::ObjectStore;

    use super::*;
    use crate::storage::access::StorageAccess;

    async fn location(text: &str) -> Location {
        let layer = |store: Arc<dyn ObjectStore>| store;
        Location::parse(text, &StorageAccess::default(), &layer).await.unwrap()
    }

    #[tokio::test]
    async fn absolute_paths_lead_to_files_of_the_same_store() {
        let folder = tempfile::tempdir().unwrap();
        let local = location(folder.path().to_str().unwrap()).await;
        for (text, path, place) in [
            ("file:///other/c%20d.parquet", "file:/other/c d.parquet", "other/c d.parquet"),
            ("file:/other/c.parquet", "file:/other/c.parquet", "other/c.parquet"),
            ("/other/c.parquet", "file:/other/c.parquet", "other/c.parquet"),
        ] {
            let found = snapshot_path(&local, text).unwrap();
            assert_eq!((found.as_str(), place_of_file(&local, &found).as_ref()), (path, place), "{text}");
            assert!(is_outside(&found));
        }
        let memory = location("memory:///tables/t").await;
        let found = snapshot_path(&memory, "memory:///other/c.parquet").unwrap();
        assert_eq!(
            (found.as_str(), place_of_file(&memory, &found).as_ref()),
            ("memory:/other/c.parquet", "other/c.parquet")
        );
        for (location, text) in [
            (&local, "s3a://bucket/c.parquet"),
            (&local, "file%3A/c.parquet"),
            (&memory, "file:///c.parquet"),
            (&memory, "/c.parquet"),
        ] {
            let error = snapshot_path(location, text).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Unsupported, "{text}: {error}");
        }
    }

    #[tokio::test]
    async fn relative_paths_are_below_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let local = location(folder.path().to_str().unwrap()).await;
        for (text, path) in [("a.parquet", "a.parquet"), ("p=a%3A%2Fb/x%20y", "p=a:/b/x y"), ("p=a:/b", "p=a:/b")] {
            let found = snapshot_path(&local, text).unwrap();
            assert_eq!((found.as_str(), is_outside(&found)), (path, false), "{text}");
            assert_eq!(place_of_file(&local, &found), local.data_file_path(path), "{text}");
        }
    }
}

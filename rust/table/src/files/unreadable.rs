//! Whose fault it is that a data file cannot be read: the file's own, or that of the storage.
//!
//! Who can do without a file goes on without it. Where the storage itself does not answer there is nothing to go on with.

use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::error::{Error, ErrorKind, Result};

/// Whether a file may give such an error by what is in it, or by what becomes of it while it is read.
pub(crate) fn is_about_the_file(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Corrupt
            | ErrorKind::NotFound
            | ErrorKind::Io
            | ErrorKind::Conflict
            | ErrorKind::Unsupported
            | ErrorKind::SchemaMismatch
    )
}

/// Whether an error of reading a file is the file's own: the storage still says what there is of it.
///
/// # Errors
/// The storage does not answer.
pub(crate) async fn is_of_the_file(store: &dyn ObjectStore, meta: &ObjectMeta, kind: ErrorKind) -> Result<bool> {
    if !is_about_the_file(kind) {
        return Ok(false);
    }
    newest_meta(store, meta).await?;
    Ok(true)
}

/// What there is of a file now; none if it is gone.
///
/// # Errors
/// The storage does not answer.
pub(crate) async fn newest_meta(store: &dyn ObjectStore, meta: &ObjectMeta) -> Result<Option<ObjectMeta>> {
    match store.head(&meta.location).await {
        Ok(now) => Ok(Some(now)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(Error::io(format!("the data file {} cannot be read", meta.location)).with_source(error)),
    }
}

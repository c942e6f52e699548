//! Reading what was listed, while others remove some of it.

use crate::error::{Error, ErrorKind, Result};

/// How often something is listed again before it is an error.
const LISTINGS: usize = 10;

/// Lists and reads, and does so again where `look` finds nothing: a file that it listed was gone when it read it. Vacuums remove manifests,
/// and other programs clean up logs of Delta tables. A process that was stopped for hours between the two finds other files in their place.
///
/// # Errors
/// Those of `look`, and `Conflict` if it found nothing each time.
pub(crate) async fn retry_if_gone<T, F>(place: &str, look: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    for _ in 0..LISTINGS {
        if let Some(found) = look().await? {
            return Ok(found);
        }
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "{LISTINGS} times in a row others removed files of {place} after they were listed and before they were read; try again. If nobody \
             else changes the table, one of them is a link to what is not there: remove the link"
        ),
    ))
}

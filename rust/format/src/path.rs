//! Paths inside a table or a store: relative, so that both can be copied, and never leading out of it.

use crate::error::{FormatError, Result};

/// Checks that `path` is relative, `/`-separated and free of empty, `.` and `..` parts and of NUL.
pub(crate) fn check_path(what: &'static str, path: &str) -> Result<()> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    if path.split('/').all(plain) {
        return Ok(());
    }
    Err(FormatError::invalid(what, format_args!("{path:?}"), "a relative path without empty, `.` or `..` parts"))
}

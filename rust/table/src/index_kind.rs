//! The kinds of index, as statements and options name them.

use crate::error::{Error, Result};

pub use lakemark_format::IndexKind;

/// The kind that leaves the choice to us.
const AUTO: &str = "auto";

/// The kind that a statement or an option names; none for `auto`, and for no name at all.
///
/// # Errors
/// There is no such kind (`InvalidInput`).
pub fn kind_or_auto(name: &str) -> Result<Option<IndexKind>> {
    if name.is_empty() || name == AUTO {
        return Ok(None);
    }
    IndexKind::from_name(name).map(Some).ok_or_else(|| {
        let names = IndexKind::ALL.map(IndexKind::name).join(", ");
        Error::invalid(format!("there is no index kind {name}; this release has {AUTO}, {names}"))
    })
}

//! Links as they are found.

use std::ops::ControlFlow;

use lakemark_format::Key;
use lakemark_format::links::LinkEnd;

use crate::error::Result;

/// What takes links, until it has enough.
pub(super) type Visit<'v> = dyn FnMut(Step<'_>) -> Result<ControlFlow<()>> + Send + 'v;

/// A link that was found: the place of its node in the frontier, its predicate and its other end.
pub(super) struct Step<'a> {
    pub from: usize,
    pub predicate: &'a Option<Key>,
    pub to: LinkEnd<'a>,
}

//! Links as they are found.

use lakemark_format::Key;
use lakemark_format::links::LinkEnd;

/// A link that was found: the place of its node in the frontier, its predicate and its other end.
pub(super) struct Step<'a> {
    pub from: usize,
    pub predicate: &'a Option<Key>,
    pub to: LinkEnd<'a>,
}

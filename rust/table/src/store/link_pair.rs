//! The two indexes of links over a table: one walks links from their subjects, and one back from their objects.
//!
//! ```text
//! edges           subject, predicate, object         the one that users declare
//! edges_back      object, predicate, subject         declared, built and dropped with it
//! ```

use lakemark_format::{ManifestIndex, column};

use crate::index_kind::IndexKind;

/// What is behind the name of an index in the name of its other one.
const BACK: &str = "_back";

/// The name of the index that walks the links of another one back.
pub(crate) fn back_name(name: &str) -> String {
    format!("{name}{BACK}")
}

/// The columns of links as the other index has them.
pub(crate) fn reversed(composite: &str) -> String {
    let columns: Vec<&str> = column::columns(composite).collect();
    column::composite(columns.into_iter().rev())
}

/// Whether an index is of links.
pub(crate) fn is_of_links(index: &ManifestIndex) -> bool {
    index.kind.known() == Some(IndexKind::Links)
}

/// Whether `other` walks the links of an index back.
pub(crate) fn is_back_of(other: &ManifestIndex, index: &ManifestIndex) -> bool {
    is_of_links(index)
        && is_of_links(other)
        && other.name == back_name(&index.name)
        && other.column == reversed(&index.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_links_are_turned_round() {
        let forward = column::composite(["s", "p", "o"]);
        assert_eq!(reversed(&forward), column::composite(["o", "p", "s"]));
        assert_eq!(reversed(&reversed(&forward)), forward);
        assert_eq!(back_name("edges"), "edges_back");
    }
}

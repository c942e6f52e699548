//! The kinds of index, by the names that manifests, statements and options have for them.

use std::fmt;

use crate::name_of::HasName;
use crate::segment::encoding::Encoding;

/// A kind of index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexKind {
    /// Says for every value, or for bins of them, which rows have it.
    #[default]
    Bitmap,
    /// Finds single keys: a packed tree.
    Key,
    /// Bloom filters of zones of rows behind fences, for columns whose values lie together.
    BloomTree,
    /// Bloom filters of all row groups, or parts of them, cut into slices, for columns in no order.
    Summary,
    /// Finds the neighbours of the nodes of an edge table, from one end of its links.
    Links,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Bitmap, Self::Key, Self::BloomTree, Self::Summary, Self::Links];

    /// The name in manifests, statements, options and lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Key => "key",
            Self::BloomTree => "bloom_tree",
            Self::Summary => "summary",
            Self::Links => "links",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind whose segments have an encoding.
    #[must_use]
    pub fn of_encoding(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Packed => Self::Key,
            Encoding::Filtered => Self::BloomTree,
            Encoding::Sliced => Self::Summary,
            Encoding::Linked => Self::Links,
            _ => Self::Bitmap,
        }
    }

    /// The encoding of its segments; of bitmaps the one that is taken if none is named.
    #[must_use]
    pub fn encoding(self) -> Encoding {
        match self {
            Self::Bitmap => Encoding::Equality,
            Self::Key => Encoding::Packed,
            Self::BloomTree => Encoding::Filtered,
            Self::Summary => Encoding::Sliced,
            Self::Links => Encoding::Linked,
        }
    }

    /// Whether it knows which rows have which value, and not only which zones may.
    #[must_use]
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Bitmap | Self::Key | Self::Links)
    }

    /// Whether conditions are answered by it. Links are walked, and nothing else.
    #[must_use]
    pub fn answers_conditions(self) -> bool {
        self != Self::Links
    }

    /// Whether it finds the rows of a condition.
    #[must_use]
    pub fn finds_rows(self) -> bool {
        self.is_exact() && self.answers_conditions()
    }
}

impl HasName for IndexKind {
    fn name(self) -> &'static str {
        Self::name(self)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::from_name(name)
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_encodings_are_found_again() {
        for kind in IndexKind::ALL {
            assert_eq!(IndexKind::from_name(kind.name()), Some(kind));
            assert_eq!(IndexKind::of_encoding(kind.encoding()), kind);
        }
        assert_eq!(IndexKind::from_name("auto"), None);
    }
}

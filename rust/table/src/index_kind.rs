//! The kinds of index, by the names that statements, options and manifests have for them.

use lakemark_format::Encoding;
use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// The kind that leaves the choice to us.
const AUTO: &str = "auto";

/// A kind of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// Says for every value, or for bins of them, which rows have it.
    Bitmap,
    /// Finds single keys: a packed tree.
    Key,
    /// Bloom filters of zones of rows behind fences, for columns whose values lie together.
    BloomTree,
    /// Bloom filters of all row groups, or parts of them, cut into slices, for columns in no order.
    Summary,
}

/// An index kind is written as its name.
impl Serialize for IndexKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Bitmap, Self::Key, Self::BloomTree, Self::Summary];

    /// The name in statements, options and lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bitmap => "bitmap",
            Self::Key => "key",
            Self::BloomTree => "bloom_tree",
            Self::Summary => "summary",
        }
    }

    /// The kind of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind that a statement or an option names; none for `auto`, and for no name at all.
    ///
    /// # Errors
    /// There is no such kind (`InvalidInput`).
    pub fn parse_or_auto(name: &str) -> Result<Option<Self>> {
        if name.is_empty() || name == AUTO {
            return Ok(None);
        }
        Self::from_name(name).map(Some).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::invalid(format!("there is no index kind {name}; this release has {AUTO}, {names}"))
        })
    }

    /// The kind whose segments have an encoding.
    #[must_use]
    pub fn of_encoding(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Packed => Self::Key,
            Encoding::Filtered => Self::BloomTree,
            Encoding::Sliced => Self::Summary,
            _ => Self::Bitmap,
        }
    }
}

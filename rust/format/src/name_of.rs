//! Members of closed sets by their names in files: those that this release knows, and those that a newer one may have written.

use std::fmt;

/// A closed set whose members have names in files.
pub trait HasName: Copy {
    /// The name of a member.
    fn name(self) -> &'static str;

    /// The member of a name.
    fn from_name(name: &str) -> Option<Self>;
}

/// A member of a closed set, as a file names it. It is made of a text by `from`, so that no known name is in [`Self::Unknown`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOf<T> {
    /// A member that this release knows.
    Known(T),
    /// A name that this release does not know. It is kept, as whoever writes the file again must not lose it.
    Unknown(String),
}

impl<T: HasName> NameOf<T> {
    /// The member, if this release knows it.
    #[must_use]
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(member) => Some(*member),
            Self::Unknown(_) => None,
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(member) => member.name(),
            Self::Unknown(name) => name,
        }
    }
}

impl<T: HasName> From<&str> for NameOf<T> {
    fn from(name: &str) -> Self {
        T::from_name(name).map_or_else(|| Self::Unknown(name.to_owned()), Self::Known)
    }
}

impl<T: Default> Default for NameOf<T> {
    fn default() -> Self {
        Self::Known(T::default())
    }
}

impl<T: HasName> fmt::Display for NameOf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_kind::IndexKind;

    #[test]
    fn a_name_is_kept_whether_it_is_known_or_not() {
        let known = NameOf::<IndexKind>::from("key");
        assert_eq!((known.known(), known.as_str()), (Some(IndexKind::Key), "key"));
        let unknown = NameOf::<IndexKind>::from("trie");
        assert_eq!((unknown.known(), unknown.to_string().as_str()), (None, "trie"));
    }
}

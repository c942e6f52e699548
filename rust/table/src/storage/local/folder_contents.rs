//! What a local folder had when it was listed, kept for the next listing.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use object_store::ObjectMeta;
use object_store::path::Path;

use super::files::Stamp;

/// What a local folder had when it was listed.
#[derive(Debug, Default)]
pub(crate) struct KnownFolder {
    /// In the order in which the system names them.
    pub(super) entries: Vec<Arc<KnownEntry>>,
    /// Its files, by location.
    pub objects: Vec<Arc<ObjectMeta>>,
    /// The folders right in it, by path.
    pub folders: Vec<FolderInside>,
    /// Where it is.
    pub(super) place: PathBuf,
    /// The folder itself, before its names were read; none of a folder that is not there.
    pub stamp: Option<Stamp>,
}

impl KnownFolder {
    /// The folder without anything in it.
    pub(crate) fn itself(&self) -> Self {
        Self { place: self.place.clone(), stamp: self.stamp, ..Self::default() }
    }

    /// Whether the folder itself is what it was: names that come to it or leave it give it another time.
    pub(crate) fn has_same_stamp(&self) -> bool {
        // Opened, as network file systems answer a look by path from memory.
        let now = || fs::File::open(&self.place).and_then(|folder| folder.metadata());
        self.stamp.is_some_and(|was| now().is_ok_and(|now| Stamp::of(&now) == was))
    }
}

/// A folder right in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderInside {
    pub path: Path,
    /// Whether it is a symbolic link, where that is known.
    pub is_link: Option<bool>,
}

/// A name in a folder that was listed.
#[derive(Debug)]
pub(super) struct KnownEntry {
    pub name: CString,
    /// What the folder itself says that it is.
    pub kind: EntryKind,
    pub what: What,
}

/// What a folder says of one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Folder,
    Link,
    /// A file, or something that only a look at it tells.
    Other,
}

/// What a name stands for.
#[derive(Debug, PartialEq)]
pub(super) enum What {
    /// A file. Without an object it is named as those that are still being written.
    File(Stamp, Option<Arc<ObjectMeta>>),
    Folder(Option<FolderInside>),
    /// Nothing that has bytes.
    Odd,
}

impl KnownEntry {
    /// The file that is listed under this name.
    pub(super) fn object(&self) -> Option<&Arc<ObjectMeta>> {
        match &self.what {
            What::File(_, object) => object.as_ref(),
            What::Folder(_) | What::Odd => None,
        }
    }
}

//! What lies in local folders: files, also behind symbolic links, and nothing else.
//!
//! A link back to a folder that it lies in is left out with a warning; other links are followed. Links to folders that have links in them
//! make paths without end out of few folders, so that their number has a limit. Links to nowhere, FIFOs, sockets and devices are no data
//! files. A walk lists them all the same: in a store they take the names of files, and whoever reads one learns what it is.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path as FsPath, PathBuf};

use object_store::path::Path;
use object_store::{ListResult, ObjectMeta, Result};

use super::files::{Stamp, what_is};

/// Folders behind symbolic links that one walk goes through.
pub(crate) const MOST_LINKED_FOLDERS: usize = 10_000;

/// Something in a folder that counts.
pub(super) enum FolderEntry {
    File(Metadata),
    Folder {
        is_link: bool,
    },
    /// Something that has a name, and has no bytes.
    Odd(Metadata, &'static str),
}

/// Something in a folder that counts, and where it is.
struct NamedEntry {
    path: PathBuf,
    entry: FolderEntry,
}

/// The files and folders of one folder.
pub(super) fn folder(prefix: &Path, folder: &FsPath) -> Result<ListResult> {
    let mut listed = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
    let mut own = None;
    for NamedEntry { path, entry } in entries(folder, None).map_err(|error| unreadable(folder, error))? {
        let location = location(folder, &mut own, &path)?;
        match entry {
            FolderEntry::Folder { .. } => listed.common_prefixes.extend(folder_below(prefix, &location)),
            FolderEntry::File(metadata) if is_valid(&location) => {
                listed.objects.push(object(location, Stamp::of(&metadata)));
            }
            FolderEntry::File(_) => {}
            FolderEntry::Odd(_, what) => warn(&path, what),
        }
    }
    listed.common_prefixes.sort();
    Ok(listed)
}

/// A folder that a walk is still to go through.
struct FolderToWalk {
    path: PathBuf,
    /// Whether a symbolic link is on the way to it.
    is_linked: bool,
}

/// All files below a folder, folder by folder.
pub(super) struct FolderWalk {
    folders: Vec<FolderToWalk>,
    found: VecDeque<ObjectMeta>,
    after: Option<Path>,
    linked: usize,
}

impl FolderWalk {
    /// A walk of the files behind `after` in the order of paths, if `after` is given.
    pub(super) fn of(folder: PathBuf, after: Option<Path>) -> Self {
        let folders = vec![FolderToWalk { path: folder, is_linked: false }];
        Self { folders, found: VecDeque::new(), after, linked: 0 }
    }

    fn enter(&mut self, folder: &FsPath, is_linked: bool) -> Result<()> {
        if is_linked {
            self.linked += 1;
            if self.linked > MOST_LINKED_FOLDERS {
                return Err(too_many(folder));
            }
        }
        let mut own = None;
        let entries = entries(folder, self.after.as_ref()).map_err(|error| unreadable(folder, error))?;
        for NamedEntry { path, entry } in entries {
            match entry {
                FolderEntry::Folder { is_link } => {
                    self.folders.push(FolderToWalk { path, is_linked: is_linked || is_link });
                }
                FolderEntry::File(metadata) | FolderEntry::Odd(metadata, _) => {
                    let location = location(folder, &mut own, &path)?;
                    let is_wanted = self.after.as_ref().is_none_or(|after| location > *after);
                    if is_wanted && is_valid(&location) {
                        let object = object(location, Stamp::of(&metadata));
                        let size = if metadata.is_file() { object.size } else { 0 };
                        self.found.push_back(ObjectMeta { size, ..object });
                    }
                }
            }
        }
        Ok(())
    }
}

impl Iterator for FolderWalk {
    type Item = Result<ObjectMeta>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(Ok(found));
            }
            let FolderToWalk { path, is_linked } = self.folders.pop()?;
            if let Err(error) = self.enter(&path, is_linked) {
                self.folders.clear();
                return Some(Err(error));
            }
        }
    }
}

/// The error of links that lead to more folders than anybody has.
pub(crate) fn too_many(folder: &FsPath) -> object_store::Error {
    let text = format!(
        "symbolic links lead to more than {MOST_LINKED_FOLDERS} folders, the last of them {}: links to folders that hold links to folders \
         make paths without end; remove some of them",
        folder.display()
    );
    object_store::Error::Generic { store: "LocalFiles", source: text.into() }
}

pub(super) fn unreadable(folder: &FsPath, error: io::Error) -> object_store::Error {
    let text = format!("the folder {} cannot be listed: {error}", folder.display());
    object_store::Error::Generic { store: "LocalFiles", source: io::Error::new(error.kind(), text).into() }
}

/// The place of a file in a folder, whose own place is found at the first file.
pub(super) fn location(folder: &FsPath, own: &mut Option<Path>, path: &FsPath) -> Result<Path> {
    let Some(name) = path.file_name().and_then(OsStr::to_str).filter(|name| is_plain(name)) else {
        // By way of a URL, which takes longer and encodes what has to be.
        return Ok(Path::from_absolute_path(path)?);
    };
    let own = match own {
        Some(own) => own,
        None => own.insert(Path::from_absolute_path(folder)?),
    };
    Ok(own.clone().join(name))
}

/// The place of a folder that lies right in another, encoded as the parts of paths are.
pub(super) fn folder_below(prefix: &Path, location: &Path) -> Option<Path> {
    let name = location.prefix_match(prefix).and_then(|mut parts| parts.next())?;
    Some(prefix.clone().join(name))
}

pub(super) fn object(location: Path, stamp: Stamp) -> ObjectMeta {
    let (last_modified, size) = (stamp.last_modified(), stamp.size);
    ObjectMeta { location, last_modified, size, e_tag: Some(stamp.tag()), version: None }
}

/// Whether a file counts: files that are named like those that the object store is still writing do not.
pub(super) fn is_valid(location: &Path) -> bool {
    let number = location.filename().and_then(|name| name.split_once('#')).map(|(_, number)| number);
    !number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The plain name of a path that lies right in a folder.
fn name_in(folder: &FsPath, path: &Path) -> Option<String> {
    let folder = Path::from_absolute_path(folder).ok()?;
    let mut names = path.prefix_match(&folder)?;
    let name = names.next().filter(|name| is_plain(name.as_ref()))?;
    names.next().is_none().then(|| name.as_ref().to_owned())
}

/// Whether a name is the same in a path of an object store, where others are encoded.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_=".contains(&byte))
}

/// What counts in a folder; nothing where there is none (any more). Files whose plain names come before `after` are not looked up.
fn entries(folder: &FsPath, after: Option<&Path>) -> io::Result<Vec<NamedEntry>> {
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        // A file in the place of a folder has nothing in it.
        Err(error) if error.kind() == ErrorKind::NotADirectory => return Ok(Vec::new()),
        read => read?,
    };
    let after = after.and_then(|after| name_in(folder, after));
    let is_before = |name: &OsStr| {
        let name = name.to_str().filter(|name| is_plain(name));
        name.zip(after.as_deref()).is_some_and(|(name, after)| name <= after)
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry?;
        let (path, file_type) = (entry.path(), entry.file_type()?);
        if file_type.is_file() && is_before(&entry.file_name()) {
            continue;
        }
        match looked_at(folder, &path, file_type, || entry.metadata()) {
            Ok(Some(counts)) => found.push(NamedEntry { path, entry: counts }),
            Ok(None) => {}
            // The entry was there just before.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// What a name of a folder stands for; `own` looks up what is there itself, and not what a link leads to.
pub(super) fn looked_at(
    folder: &FsPath,
    path: &FsPath,
    file_type: FileType,
    own: impl FnOnce() -> io::Result<Metadata>,
) -> io::Result<Option<FolderEntry>> {
    if file_type.is_dir() {
        return Ok(Some(FolderEntry::Folder { is_link: false }));
    }
    let is_link = file_type.is_symlink();
    let odd_link = |what| fs::symlink_metadata(path).map(|metadata| Some(FolderEntry::Odd(metadata, what)));
    // An entry that is no link is looked up in the open folder, which takes less than to walk there. The entry may have become a link.
    let own = if is_link { None } else { Some(own()).filter(|own| !own.as_ref().is_ok_and(Metadata::is_symlink)) };
    let metadata = match own.unwrap_or_else(|| fs::metadata(path)) {
        Ok(metadata) => metadata,
        Err(error) if is_link && error.kind() == ErrorKind::NotFound => return odd_link("a link to what is not there"),
        Err(error) if is_link && is_loop(&error) => return odd_link("a link to itself"),
        Err(error) => return Err(error),
    };
    if metadata.is_file() {
        return Ok(Some(FolderEntry::File(metadata)));
    }
    if !metadata.is_dir() {
        let what = what_is(&metadata);
        return Ok(Some(FolderEntry::Odd(metadata, what)));
    }
    if leads_back(folder, &metadata)? {
        warn(path, "a link to a folder that it lies in");
        return Ok(None);
    }
    Ok(Some(FolderEntry::Folder { is_link }))
}

pub(super) fn warn(path: &FsPath, what: &str) {
    tracing::warn!(path = %path.display(), "it is {what} and is left out: remove it if it is of no use");
}

#[cfg(unix)]
fn is_loop(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(not(unix))]
fn is_loop(_error: &io::Error) -> bool {
    false
}

/// Whether the target of a link is one of the folders on the way to it.
#[cfg(unix)]
fn leads_back(folder: &FsPath, target: &Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    for above in folder.ancestors() {
        let above = fs::metadata(above)?;
        if (above.dev(), above.ino()) == (target.dev(), target.ino()) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(not(unix))]
fn leads_back(_folder: &FsPath, _target: &Metadata) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &FsPath, after: &str) -> Vec<String> {
        let after = Path::from_absolute_path(folder).unwrap().join(after);
        let found = FolderWalk::of(folder.to_owned(), Some(after)).map(|meta| meta.unwrap().location);
        let mut found: Vec<String> = found.map(|location| location.filename().unwrap().to_owned()).collect();
        found.sort();
        found
    }

    #[test]
    fn places_are_those_that_urls_spell() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("a b=%7E");
        fs::create_dir(&folder).unwrap();
        let names = [
            "a.b",
            "part-00001_x.c000",
            "k=v",
            "50%.a",
            "ä",
            "a b",
            "~",
            "..a",
            "a..",
            "a#b",
            "[x]",
            "a+b,c",
            "-",
            "%41",
        ];
        names.iter().for_each(|name| fs::write(folder.join(name), "x").unwrap());
        let mut expected: Vec<Path> =
            names.iter().map(|name| Path::from_absolute_path(folder.join(name)).unwrap()).collect();
        expected.sort();
        let mut found: Vec<Path> = FolderWalk::of(folder, None).map(|meta| meta.unwrap().location).collect();
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_comes_before_is_left_out_without_a_look() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["1.a", "2.a", "10.a", "3 %.a", "2.a.b"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        fs::create_dir(folder.path().join("0")).unwrap();
        fs::write(folder.path().join("0").join("below.a"), "x").unwrap();
        assert_eq!(names(folder.path(), "1.a"), ["10.a", "2.a", "2.a.b", "3 %.a"]);
        assert_eq!(names(folder.path(), "2.a"), ["2.a.b", "3 %.a"]);
        assert_eq!(names(folder.path(), "z"), Vec::<String>::new());
        let looked_at = |after: &str| {
            let after = Path::from_absolute_path(folder.path()).unwrap().join(after);
            entries(folder.path(), Some(&after)).unwrap().len()
        };
        // A folder, and a name that a path may spell in another way, are looked up in any case.
        assert_eq!((looked_at("0"), looked_at("2.a"), looked_at("9")), (6, 3, 2));
        // A link may lead to a folder, whatever it is called.
        symlink(folder.path().join("0"), folder.path().join("00")).unwrap();
        assert_eq!(names(folder.path(), "0"), ["1.a", "10.a", "2.a", "2.a.b", "3 %.a", "below.a", "below.a"]);
    }
}

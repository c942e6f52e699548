//! A local folder beside what it had when it was listed last. Names that are the same cost a look at each, and no memory.
//!
//! ```text
//! getdents   names in the order of last time ─▶ the entry of last time        another name ─▶ looked up among those that are left
//! fstatat    the same inode, size and times  ─▶ the entry of last time        anything else ─▶ a new entry
//! ```
//!
//! What counts in a folder is what [`folder_walk`](super::folder_walk) counts. A folder that is the same in whole is the same [`Arc`].

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path as FsPath;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{ObjectMeta, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, fstat, open, statat};
use rustix::io::Errno;

use super::files::Stamp;
use super::folder_contents::{EntryKind, FolderInside, KnownEntry, KnownFolder, What};
use super::folder_walk::{FolderEntry, folder_below, is_valid, location, looked_at, object, unreadable, warn};

/// Bytes of names that are requested at a time.
const BUFFER_BYTES: usize = 64 * 1024;
/// So many entries of last time are passed over for a name, where those in between are gone.
const NAMES_AHEAD: usize = 8;
/// So many names at least are looked at by a thread of their own.
const NAMES_PER_THREAD: usize = 4096;

/// A name as it is now.
enum Name {
    /// That of an entry of last time, by its place.
    Known(usize),
    New(CString, EntryKind),
}

/// A name that is not what it was; without an entry it is gone.
struct Difference {
    /// The place of the name among all.
    place: usize,
    entry: Option<KnownEntry>,
}

/// A folder that is being listed.
struct Reading<'a> {
    /// Its place in the object store.
    prefix: &'a Path,
    folder: &'a FsPath,
    open: BorrowedFd<'a>,
    before: &'a [Arc<KnownEntry>],
}

/// Names that were read.
struct Names {
    names: Vec<Name>,
    /// Whether they are those of last time in the same order.
    are_same: bool,
}

/// Lists a folder; nothing is in one that is not there (any more). Gives what is known where all of it is the same.
pub(super) fn relist(prefix: &Path, folder: &FsPath, known: Option<&Arc<KnownFolder>>) -> Result<Arc<KnownFolder>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match open(folder, flags, Mode::empty()) {
        // A file in the place of a folder has nothing in it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Arc::default()),
        opened => opened.map_err(|error| unreadable(folder, error.into()))?,
    };
    // Before the names: what comes later gives the folder another one.
    let stamp = fstat(&opened).map(|stat| Stamp::of_stat(&stat)).map_err(|error| unreadable(folder, error.into()))?;
    let before = known.map_or(&[][..], |known| &known.entries);
    let reading = Reading { prefix, folder, open: opened.as_fd(), before };
    let Names { names, are_same } = reading.names().map_err(|error| unreadable(folder, error))?;
    let differences = reading.differences(&names)?;
    match known {
        Some(known) if are_same && differences.is_empty() && known.stamp == Some(stamp) => Ok(Arc::clone(known)),
        _ => Ok(Arc::new(reading.changed(known, stamp, names, differences))),
    }
}

fn kind_of(file_type: FileType) -> EntryKind {
    match file_type {
        FileType::Directory => EntryKind::Folder,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

impl Reading<'_> {
    fn names(&self) -> io::Result<Names> {
        let mut names = Vec::with_capacity(self.before.len());
        let (mut is_found, mut open) = (vec![false; self.before.len()], Vec::new());
        let (mut next, mut are_same) = (0, true);
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        let mut entries = RawDir::new(self.open, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The folder was removed while it was read.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let (name, kind) = (entry.file_name(), kind_of(entry.file_type()));
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let is_at = |place: &usize| {
                self.before.get(*place).is_some_and(|known| known.kind == kind && known.name.as_c_str() == name)
            };
            match (next..=next + NAMES_AHEAD).find(is_at) {
                Some(place) => {
                    are_same &= place == next;
                    next = place + 1;
                    if let Some(found) = is_found.get_mut(place) {
                        *found = true;
                    }
                    names.push(Name::Known(place));
                }
                None => {
                    are_same = false;
                    open.push(names.len());
                    names.push(Name::New(name.to_owned(), kind));
                }
            }
        }
        are_same &= names.len() == self.before.len();
        self.find_moved(&mut names, &open, &is_found);
        Ok(Names { names, are_same })
    }

    /// Finds names that are no new ones, and were in another order last time, among those that nothing was found for.
    fn find_moved(&self, names: &mut [Name], open: &[usize], is_found: &[bool]) {
        if open.is_empty() {
            return;
        }
        let left = self.before.iter().zip(0..).zip(is_found).filter(|(_, found)| !**found);
        let left: HashMap<&CStr, usize> = left.map(|((known, place), _)| (known.name.as_c_str(), place)).collect();
        for place in open {
            let Some(name) = names.get_mut(*place) else { continue };
            let Name::New(text, kind) = &*name else { continue };
            let is_kind = |place: &usize| self.before.get(*place).is_some_and(|known| known.kind == *kind);
            if let Some(known) = left.get(text.as_c_str()).copied().filter(is_kind) {
                *name = Name::Known(known);
            }
        }
    }

    /// Names that are not what they were, in order. Threads share the looks at many names.
    fn differences(&self, names: &[Name]) -> Result<Vec<Difference>> {
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        let part = names.len().div_ceil(threads).max(NAMES_PER_THREAD);
        if names.len() <= part {
            return self.differences_of(0, names);
        }
        let parts: Vec<Result<Vec<Difference>>> = std::thread::scope(|scope| {
            let begin = |(number, names)| scope.spawn(move || self.differences_of(number * part, names));
            let begun: Vec<_> = names.chunks(part).enumerate().map(begin).collect();
            begun.into_iter().map(|part| part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        let mut all = Vec::new();
        for part in parts {
            all.extend(part?);
        }
        Ok(all)
    }

    fn differences_of(&self, first: usize, names: &[Name]) -> Result<Vec<Difference>> {
        let mut own = None;
        let mut differences = Vec::new();
        for (place, name) in (first..).zip(names) {
            match self.look(name, &mut own)? {
                Look::Same => {}
                Look::Now(entry) => differences.push(Difference { place, entry: Some(entry) }),
                Look::Gone => differences.push(Difference { place, entry: None }),
            }
        }
        Ok(differences)
    }

    fn look(&self, name: &Name, own: &mut Option<Path>) -> Result<Look> {
        let (name, kind, known) = match name {
            Name::New(name, kind) => (name.as_c_str(), *kind, None),
            Name::Known(place) => match self.before.get(*place) {
                Some(entry) => (entry.name.as_c_str(), entry.kind, Some(&entry.what)),
                None => return Ok(Look::Gone),
            },
        };
        let is_same = |stamp| matches!(known, Some(What::File(was, _)) if *was == stamp);
        let what = match kind {
            EntryKind::Folder if known.is_some() => return Ok(Look::Same),
            EntryKind::Folder => What::Folder(self.inside(name, own, false)?),
            EntryKind::Link => return self.look_through(name, kind, known, own),
            EntryKind::Other => match statat(self.open, name, AtFlags::SYMLINK_NOFOLLOW) {
                // The name was there just before.
                Err(Errno::NOENT) => return Ok(Look::Gone),
                Err(error) => return Err(unreadable(self.folder, error.into())),
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                    return self.look_through(name, kind, known, own);
                }
                Ok(stat) => {
                    let stamp = Stamp::of_stat(&stat);
                    if is_same(stamp) {
                        return Ok(Look::Same);
                    }
                    self.file(name, own, stamp)?
                }
            },
        };
        Ok(Look::Now(KnownEntry { name: name.to_owned(), kind, what }))
    }

    /// Looks where a link leads, and at whatever is no file.
    fn look_through(&self, name: &CStr, kind: EntryKind, known: Option<&What>, own: &mut Option<Path>) -> Result<Look> {
        let path = self.folder.join(OsStr::from_bytes(name.to_bytes()));
        let found = fs::symlink_metadata(&path)
            .and_then(|itself| looked_at(self.folder, &path, itself.file_type(), move || Ok(itself)));
        let what = match found {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Look::Gone),
            Err(error) => return Err(unreadable(self.folder, error)),
            Ok(None) => What::Odd,
            Ok(Some(FolderEntry::Folder { is_link })) => What::Folder(self.inside(name, own, is_link)?),
            Ok(Some(FolderEntry::File(metadata))) => self.file(name, own, Stamp::of(&metadata))?,
            Ok(Some(FolderEntry::Odd(_, what))) => {
                warn(&path, what);
                What::Odd
            }
        };
        match known {
            Some(known) if *known == what => Ok(Look::Same),
            _ => Ok(Look::Now(KnownEntry { name: name.to_owned(), kind, what })),
        }
    }

    fn place_of(&self, name: &CStr, own: &mut Option<Path>) -> Result<Path> {
        location(self.folder, own, &self.folder.join(OsStr::from_bytes(name.to_bytes())))
    }

    fn inside(&self, name: &CStr, own: &mut Option<Path>, is_link: bool) -> Result<Option<FolderInside>> {
        let path = folder_below(self.prefix, &self.place_of(name, own)?);
        Ok(path.map(|path| FolderInside { path, is_link: Some(is_link) }))
    }

    fn file(&self, name: &CStr, own: &mut Option<Path>, stamp: Stamp) -> Result<What> {
        let place = self.place_of(name, own)?;
        Ok(What::File(stamp, is_valid(&place).then(|| Arc::new(object(place, stamp)))))
    }

    /// The folder with what is not what it was. The order of its objects is kept, so that only new ones have to be put in.
    fn changed(
        &self,
        known: Option<&Arc<KnownFolder>>,
        stamp: Stamp,
        names: Vec<Name>,
        differences: Vec<Difference>,
    ) -> KnownFolder {
        let mut is_kept = vec![false; self.before.len()];
        let mut entries = Vec::with_capacity(names.len());
        let mut added = Vec::new();
        let mut differences = differences.into_iter().peekable();
        for (place, name) in names.into_iter().enumerate() {
            match (differences.next_if(|difference| difference.place == place), name) {
                (Some(Difference { entry, .. }), _) => {
                    added.extend(entry.as_ref().and_then(KnownEntry::object).cloned());
                    entries.extend(entry.map(Arc::new));
                }
                (None, Name::Known(place)) => {
                    if let Some(kept) = is_kept.get_mut(place) {
                        *kept = true;
                    }
                    entries.extend(self.before.get(place).cloned());
                }
                (None, Name::New(..)) => {}
            }
        }
        let lost = self.before.iter().zip(&is_kept).filter(|(_, kept)| !**kept).filter_map(|(entry, _)| entry.object());
        let mut lost: Vec<&Path> = lost.map(|object| &object.location).collect();
        lost.sort_unstable();
        let kept = known.iter().flat_map(|known| &known.objects);
        let kept = kept.filter(|object| lost.binary_search(&&object.location).is_err()).cloned();
        let kept: Vec<Arc<ObjectMeta>> = kept.collect();
        added.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        let objects = put_in(kept, added);
        let inside = entries.iter().filter_map(|entry| match &entry.what {
            What::Folder(inside) => inside.clone(),
            What::File(..) | What::Odd => None,
        });
        let mut folders: Vec<FolderInside> = inside.collect();
        folders.sort_by(|a, b| a.path.cmp(&b.path));
        KnownFolder { entries, objects, folders, place: self.folder.to_owned(), stamp: Some(stamp) }
    }
}

/// Objects in order, with others that are in order, too. Of the first ones few are compared, where the others are few.
fn put_in(kept: Vec<Arc<ObjectMeta>>, added: Vec<Arc<ObjectMeta>>) -> Vec<Arc<ObjectMeta>> {
    let mut all = Vec::with_capacity(kept.len() + added.len());
    let mut kept = kept.into_iter();
    for object in added {
        let before = kept.as_slice().partition_point(|other| other.location < object.location);
        all.extend(kept.by_ref().take(before));
        all.push(object);
    }
    all.extend(kept);
    all
}

/// What became of a name.
enum Look {
    /// It is what it was.
    Same,
    Now(KnownEntry),
    Gone,
}

#[cfg(test)]
mod tests;

//! Steps of the disk that fail, and a journal of them: for tests.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::DiskStep;

/// A step that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A folder was made.
    MakeFolder(PathBuf),
    /// An empty file was made.
    Create(PathBuf),
    /// Bytes were written.
    Write {
        /// The file.
        path: PathBuf,
        /// Their offset.
        at: u64,
        /// What was written.
        bytes: Vec<u8>,
    },
    /// A file was cut off.
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length from then on.
        length: u64,
    },
    /// The bytes of a file were synced, and with them when it was changed last.
    Sync {
        /// The file.
        path: PathBuf,
        /// Its time of modification.
        modified: SystemTime,
    },
    /// The bytes of a file were to be synced and were not. The kernel takes them for synced from now on.
    LostSync(PathBuf),
    /// A file got another name.
    Rename {
        /// The old one.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// A file got one more name.
    Link {
        /// The old one.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// A name was removed.
    Remove(PathBuf),
    /// The names in a folder were synced.
    SyncFolder(PathBuf),
    /// A step on this file or folder failed and changed nothing.
    Failed(PathBuf),
}

/// Which steps fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFailure {
    /// None.
    None,
    /// The step of this number fails once, as if the device did.
    Once(u64),
    /// From this number on whatever needs room fails, as on a full disk.
    Full(u64),
    /// From this number on every step fails, as on a device that is gone.
    Dead(u64),
    /// From this number on names of folders cannot be synced. Whoever sees them may lose them with the machine.
    Folders(u64),
    /// From the sync of this number on so many syncs of files fail, one after the other.
    Syncs(u64, u64),
    /// The link of this number is made and answered with an error.
    Link(u64),
    /// The link of this number is made, requested again, and found to be there: what a network file system makes of a lost answer.
    LinkAgain(u64),
}

/// What happens below a folder.
#[derive(Debug)]
struct Watch {
    root: PathBuf,
    failure: InjectedFailure,
    steps: u64,
    syncs: u64,
    links: u64,
    has_failed: bool,
    /// What was done, if that is to be written down.
    journal: Option<Vec<Event>>,
}

static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());

/// Counts the steps below a folder from now on, and lets some of them fail.
pub fn watch(root: &Path, failure: InjectedFailure, with_journal: bool) {
    let watch = Watch {
        root: root.to_owned(),
        failure,
        steps: 0,
        syncs: 0,
        links: 0,
        has_failed: false,
        journal: with_journal.then(Vec::new),
    };
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    watches.retain(|have| have.root != root);
    watches.push(watch);
}

/// What was seen below a folder since it is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether a step failed.
    pub failed: bool,
    /// How many steps there were.
    pub steps: u64,
}

/// What was seen below the folder by now; nothing if it is not watched.
#[must_use]
pub fn seen(root: &Path) -> Seen {
    let watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let watch = watches.iter().find(|have| have.root == root);
    watch.map_or_else(Seen::default, |watch| Seen { failed: watch.has_failed, steps: watch.steps })
}

/// The journal of a folder so far.
#[must_use]
pub fn journal(root: &Path) -> Vec<Event> {
    let watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    watches.iter().find(|have| have.root == root).and_then(|watch| watch.journal.clone()).unwrap_or_default()
}

/// Lets everything succeed again.
pub fn mend(root: &Path) {
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    watches.iter_mut().filter(|have| have.root == root).for_each(|watch| watch.failure = InjectedFailure::None);
}

pub(super) fn attempt(step: DiskStep<'_>) -> Result<()> {
    if matches!(step, DiskStep::Read(_) | DiskStep::Lock(_) | DiskStep::LockShared(_) | DiskStep::TryLock(_)) {
        // These steps change nothing.
        return Ok(());
    }
    let path = of(step);
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(watch) = watches.iter_mut().find(|watch| path.starts_with(&watch.root)) else { return Ok(()) };
    watch.steps += 1;
    watch.syncs += u64::from(matches!(step, DiskStep::Sync(_)));
    let error = match watch.failure {
        InjectedFailure::Once(at) if watch.steps == at => Some(Error::other("the device failed, as a test wanted")),
        // Names are changed and given up, and bytes that have room are synced.
        InjectedFailure::Full(at) if watch.steps >= at && needs_room(step) => Some(Error::from_raw_os_error(28)),
        InjectedFailure::Dead(at) if watch.steps >= at => Some(Error::other("the device is gone, as a test wanted")),
        InjectedFailure::Folders(at) if watch.steps >= at && matches!(step, DiskStep::SyncFolder(_)) => {
            Some(Error::other("the folder cannot be synced, as a test wanted"))
        }
        InjectedFailure::Syncs(first, count)
            if matches!(step, DiskStep::Sync(_)) && (first..first + count).contains(&watch.syncs) =>
        {
            Some(Error::from_raw_os_error(5))
        }
        _ => None,
    };
    if let Some(error) = error {
        watch.has_failed = true;
        if let Some(journal) = &mut watch.journal {
            let is_lost_sync = matches!(watch.failure, InjectedFailure::Syncs(..));
            let failed = if is_lost_sync { Event::LostSync } else { Event::Failed };
            journal.push(failed(path.to_owned()));
        }
        return Err(error);
    }
    if let Some(journal) = &mut watch.journal {
        journal.extend(events(step)?);
    }
    Ok(())
}

/// The answer to a step that was made.
pub(super) fn answer(step: DiskStep<'_>) -> Result<()> {
    let path = of(step);
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(watch) = watches.iter_mut().find(|watch| path.starts_with(&watch.root)) else { return Ok(()) };
    watch.links += 1;
    let lost = match watch.failure {
        InjectedFailure::Link(at) if watch.links == at => Error::other("the answer was lost, as a test wanted"),
        InjectedFailure::LinkAgain(at) if watch.links == at => ErrorKind::AlreadyExists.into(),
        _ => return Ok(()),
    };
    watch.has_failed = true;
    Err(lost)
}

/// How many links were made below the folder since it is watched.
#[must_use]
pub fn links(root: &Path) -> u64 {
    let watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    watches.iter().find(|have| have.root == root).map_or(0, |watch| watch.links)
}

pub(super) fn of(step: DiskStep<'_>) -> &Path {
    match step {
        DiskStep::MakeFolder(path)
        | DiskStep::Create(path)
        | DiskStep::Write { path, .. }
        | DiskStep::Cut { path, .. }
        | DiskStep::Sync(path)
        | DiskStep::Rename { from: path, .. }
        | DiskStep::Link { from: path, .. }
        | DiskStep::Remove(path)
        | DiskStep::SyncFolder(path)
        | DiskStep::Stored(path)
        | DiskStep::Read(path)
        | DiskStep::Lock(path)
        | DiskStep::LockShared(path)
        | DiskStep::TryLock(path) => path,
    }
}

fn needs_room(step: DiskStep<'_>) -> bool {
    match step {
        DiskStep::MakeFolder(_)
        | DiskStep::Create(_)
        | DiskStep::Write { .. }
        | DiskStep::Link { .. }
        | DiskStep::Stored(_) => true,
        DiskStep::Cut { .. }
        | DiskStep::Sync(_)
        | DiskStep::Rename { .. }
        | DiskStep::Remove(_)
        | DiskStep::SyncFolder(_) => false,
        DiskStep::Read(_) | DiskStep::Lock(_) | DiskStep::LockShared(_) | DiskStep::TryLock(_) => false,
    }
}

fn events(step: DiskStep<'_>) -> Result<Vec<Event>> {
    Ok(match step {
        DiskStep::MakeFolder(path) => vec![Event::MakeFolder(path.to_owned())],
        DiskStep::Create(path) => vec![Event::Create(path.to_owned())],
        DiskStep::Write { path, at, bytes } => vec![Event::Write { path: path.to_owned(), at, bytes: bytes.to_vec() }],
        DiskStep::Cut { path, length } => vec![Event::Cut { path: path.to_owned(), length }],
        DiskStep::Sync(path) => {
            vec![Event::Sync { path: path.to_owned(), modified: std::fs::metadata(path)?.modified()? }]
        }
        DiskStep::Rename { from, to } => vec![Event::Rename { from: from.to_owned(), to: to.to_owned() }],
        DiskStep::Link { from, to } => vec![Event::Link { from: from.to_owned(), to: to.to_owned() }],
        DiskStep::Remove(path) => vec![Event::Remove(path.to_owned())],
        DiskStep::SyncFolder(path) => vec![Event::SyncFolder(path.to_owned())],
        DiskStep::Stored(path) => {
            let bytes = std::fs::read(path)?;
            vec![Event::Create(path.to_owned()), Event::Write { path: path.to_owned(), at: 0, bytes }]
        }
        DiskStep::Read(_) | DiskStep::Lock(_) | DiskStep::LockShared(_) | DiskStep::TryLock(_) => Vec::new(),
    })
}

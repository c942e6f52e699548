//! A disk as POSIX has it: what was written is there for sure once it was synced, and a name once its folder was. Of all else a power
//! cut may leave any part, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lakemark_table::faults::Event;
use rand::Rng;
use rand::rngs::StdRng;

/// A change of a file that was not synced.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Cut(u64),
}

/// Bytes of a file.
#[derive(Clone, Debug, Default)]
struct Bytes {
    synced: Vec<u8>,
    /// What came later, in its order.
    later: Vec<Change>,
    /// When it was changed last, unless something of that is not synced.
    modified: Option<SystemTime>,
}

impl Bytes {
    fn change(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Cut(length) => bytes.resize(usize::try_from(*length).unwrap(), 0),
            Change::Write(at, written) => {
                let (start, end) = (usize::try_from(*at).unwrap(), usize::try_from(*at).unwrap() + written.len());
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[start..end].copy_from_slice(written);
            }
        }
    }
}

/// A change of names that was not synced.
#[derive(Clone, Debug)]
enum Naming {
    Folder(PathBuf),
    Add(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

impl Naming {
    fn folder(&self) -> &Path {
        match self {
            Self::Folder(path) | Self::Add(path, _) | Self::Rename(_, path, _) | Self::Remove(path) => {
                path.parent().unwrap()
            }
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>, folders: &mut BTreeSet<PathBuf>) {
        match self {
            Self::Folder(path) => drop(folders.insert(path.clone())),
            Self::Add(path, file) => drop(names.insert(path.clone(), *file)),
            Self::Rename(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove(path) => drop(names.remove(path)),
        }
    }
}

/// What is on the disk for sure, and what may be.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    files: Vec<Bytes>,
    names: BTreeMap<PathBuf, usize>,
    folders: BTreeSet<PathBuf>,
    later: Vec<Naming>,
    /// Names as programs see them.
    seen: BTreeMap<PathBuf, usize>,
    seen_folders: BTreeSet<PathBuf>,
}

/// What a power cut left.
#[derive(Debug, Default)]
pub struct Left {
    files: BTreeMap<PathBuf, (Vec<u8>, Option<SystemTime>)>,
    folders: BTreeSet<PathBuf>,
    lost: Vec<String>,
}

impl Disk {
    /// A folder that is on the disk for sure.
    pub fn of(root: &Path) -> Self {
        let mut disk = Self::default();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let modified = fs::metadata(&path).unwrap().modified().unwrap();
                    disk.names.insert(path.clone(), disk.files.len());
                    let synced = fs::read(&path).unwrap();
                    disk.files.push(Bytes { synced, modified: Some(modified), ..Bytes::default() });
                }
            }
            disk.folders.insert(folder);
        }
        (disk.seen, disk.seen_folders) = (disk.names.clone(), disk.folders.clone());
        disk
    }

    /// The disk after some steps.
    pub fn after(&self, events: &[Event]) -> Self {
        let mut disk = self.clone();
        events.iter().for_each(|event| disk.step(event));
        disk
    }

    fn step(&mut self, event: &Event) {
        match event {
            Event::MakeFolder(path) => self.make_folder(path),
            Event::Create(path) => {
                // Some folders are made by others, without a word.
                self.make_folder(path.parent().unwrap());
                self.files.push(Bytes::default());
                self.name(Naming::Add(path.clone(), self.files.len() - 1));
            }
            Event::Write { path, at, bytes } => self.write(path, Change::Write(*at, bytes.clone())),
            Event::Cut { path, length } => self.write(path, Change::Cut(*length)),
            Event::Sync { path, modified } => {
                let file = &mut self.files[self.seen[path]];
                file.modified = Some(*modified);
                let later = std::mem::take(&mut file.later);
                later.iter().for_each(|change| Bytes::change(&mut file.synced, change));
            }
            // What programs see is not what the disk has from now on, whatever is synced later.
            Event::LostSync(path) => self.files[self.seen[path]].later.clear(),
            Event::Rename { from, to } => {
                assert_eq!(from.parent(), to.parent(), "a file changes its folder");
                self.name(Naming::Rename(from.clone(), to.clone(), self.seen[from]));
            }
            Event::Link { from, to } => self.name(Naming::Add(to.clone(), self.seen[from])),
            Event::Remove(path) if self.seen.contains_key(path) => self.name(Naming::Remove(path.clone())),
            Event::Remove(_) | Event::Failed(_) => {}
            Event::SyncFolder(path) => {
                let (synced, later) = std::mem::take(&mut self.later).into_iter().partition(|of| of.folder() == path);
                self.later = later;
                let synced: Vec<Naming> = synced;
                synced.iter().for_each(|naming| naming.apply(&mut self.names, &mut self.folders));
            }
        }
    }

    fn make_folder(&mut self, path: &Path) {
        let missing = path.ancestors().take_while(|folder| !self.seen_folders.contains(*folder));
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.into_iter().rev().for_each(|folder| self.name(Naming::Folder(folder)));
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.seen, &mut self.seen_folders);
        self.later.push(naming);
    }

    fn write(&mut self, path: &Path, change: Change) {
        let file = &mut self.files[self.seen[path]];
        file.modified = None;
        file.later.push(change);
    }

    /// Nothing is lost: the program died, the machine did not.
    pub fn all_kept(&self) -> Left {
        self.left(&mut |_| true, &mut |file| {
            let mut bytes = file.synced.clone();
            file.later.iter().for_each(|change| Bytes::change(&mut bytes, change));
            bytes
        })
    }

    /// A state that is possible; the first few are the extreme ones.
    pub fn left_behind(&self, random: &mut StdRng, number: u64) -> Left {
        let synced = |file: &Bytes| file.synced.clone();
        match number {
            0 => self.left(&mut |_| false, &mut |file| synced(file)),
            // Names without bytes.
            1 => self.left(&mut |_| true, &mut |file| synced(file)),
            2 => self.all_kept(),
            _ => {
                let mut of_names = rand::SeedableRng::seed_from_u64(random.random());
                let of_names: &mut StdRng = &mut of_names;
                self.left(&mut |_| of_names.random_bool(0.5), &mut |file| some_of(file, random))
            }
        }
    }

    fn left(&self, keeps: &mut dyn FnMut(&Naming) -> bool, bytes: &mut dyn FnMut(&Bytes) -> Vec<u8>) -> Left {
        let (mut names, mut folders) = (self.names.clone(), self.folders.clone());
        let mut lost = Vec::new();
        for naming in &self.later {
            match keeps(naming) {
                true => naming.apply(&mut names, &mut folders),
                false => lost.push(format!("{naming:?}")),
            }
        }
        // What is in a folder that is not there is not there.
        let is_there = |path: &Path| {
            path.ancestors()
                .skip(1)
                .take_while(|folder| self.seen_folders.contains(*folder))
                .all(|folder| folders.contains(folder))
        };
        let files = names.iter().filter(|(path, _)| is_there(path));
        let files = files.map(|(path, file)| (path.clone(), (bytes(&self.files[*file]), self.files[*file].modified)));
        let files = files.collect();
        let folders = folders.iter().filter(|path| is_there(path)).cloned().collect();
        Left { files, folders, lost }
    }
}

/// Some of what was written, some of that torn.
fn some_of(file: &Bytes, random: &mut StdRng) -> Vec<u8> {
    let mut bytes = file.synced.clone();
    for change in &file.later {
        match (random.random_range(0..3), change) {
            (0, _) => {}
            (1, Change::Write(at, written)) => {
                let part = written[..random.random_range(0..=written.len())].to_vec();
                Bytes::change(&mut bytes, &Change::Write(*at, part));
            }
            _ => Bytes::change(&mut bytes, change),
        }
    }
    bytes
}

impl Left {
    /// Writes the state of what was `root` to another folder.
    pub fn write(&self, root: &Path, to: &Path) {
        let place = |path: &Path| to.join(path.strip_prefix(root).unwrap());
        for folder in self.folders.iter().filter(|folder| folder.starts_with(root)) {
            fs::create_dir_all(place(folder)).unwrap();
        }
        for (path, (bytes, modified)) in &self.files {
            fs::write(place(path), bytes).unwrap();
            if let Some(modified) = modified {
                File::options().write(true).open(place(path)).unwrap().set_modified(*modified).unwrap();
            }
        }
    }

    /// The folder is in this state: no step went past the journal.
    pub fn check_is(&self, root: &Path) {
        let now = Disk::of(root);
        // Locks are made without a word: nobody misses them.
        let is_lock =
            |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "lock") || path.ends_with("lock");
        let names: Vec<&PathBuf> = now.names.keys().filter(|path| !is_lock(path)).collect();
        assert_eq!(names, self.files.keys().filter(|path| !is_lock(path)).collect::<Vec<_>>());
        for (path, (bytes, _)) in &self.files {
            assert!(*bytes == now.files[now.names[path]].synced, "{} has other bytes", path.display());
        }
    }

    /// What is missing.
    pub fn described(&self) -> String {
        format!("without {}", self.lost.join(", "))
    }
}

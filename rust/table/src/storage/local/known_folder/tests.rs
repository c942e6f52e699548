use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, SystemTime};

use object_store::ListResult;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{CWD, mknodat};

use super::super::folder_walk;
use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &FsPath {
        self.0.path()
    }

    fn prefix(&self) -> Path {
        Path::from_absolute_path(self.path()).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn list(&self, known: Option<&Arc<KnownFolder>>) -> Arc<KnownFolder> {
        relist(&self.prefix(), self.path(), known).unwrap()
    }

    /// Lists beside what is known, and compares with a listing that knows nothing.
    fn relist(&self, known: &Arc<KnownFolder>) -> Arc<KnownFolder> {
        let found = self.list(Some(known));
        let ListResult { mut objects, common_prefixes } = folder_walk::folder(&self.prefix(), self.path()).unwrap();
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let listed: Vec<ObjectMeta> = found.objects.iter().map(|object| object.as_ref().clone()).collect();
        assert_eq!(listed, objects);
        let folders: Vec<Path> = found.folders.iter().map(|folder| folder.path.clone()).collect();
        assert_eq!(folders, common_prefixes);
        found
    }
}

/// Waits until the clock of the file system has moved on. On a virtual machine that waits for its core that may take longer than a tick.
fn until_the_clock_ticks() {
    let probe = tempfile::NamedTempFile::new().unwrap();
    let changed = || {
        fs::write(probe.path(), "x").unwrap();
        let metadata = fs::metadata(probe.path()).unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let before = changed();
    while changed() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many objects of one listing are those of another.
fn shared(one: &KnownFolder, other: &KnownFolder) -> usize {
    one.objects.iter().filter(|object| other.objects.iter().any(|known| Arc::ptr_eq(known, object))).count()
}

#[test]
fn a_folder_that_is_the_same_is_the_one_that_is_known() {
    let place = Place::new();
    (0..50).for_each(|file| place.write(&format!("f{file}.parquet"), "x"));
    fs::create_dir(place.path().join("below")).unwrap();
    symlink("f1.parquet", place.path().join("link.parquet")).unwrap();
    let known = place.list(None);
    assert_eq!((known.objects.len(), known.folders.len()), (51, 1));
    assert!(Arc::ptr_eq(&place.relist(&known), &known));
    // What lies in a folder below says nothing of this one.
    fs::write(place.path().join("below/g.parquet"), "x").unwrap();
    assert!(Arc::ptr_eq(&place.relist(&known), &known));
}

#[test]
fn objects_are_made_for_new_and_changed_names_alone() {
    let place = Place::new();
    (0..50).for_each(|file| place.write(&format!("f{file:02}.parquet"), "x"));
    let known = place.list(None);
    place.write("f20.parquet", "longer");
    place.write("a.parquet", "x");
    place.write("f205.parquet", "x");
    fs::remove_file(place.path().join("f30.parquet")).unwrap();
    fs::rename(place.path().join("f40.parquet"), place.path().join("z.parquet")).unwrap();
    let now = place.relist(&known);
    assert_eq!((now.objects.len(), shared(&now, &known)), (51, 47));
    assert!(Arc::ptr_eq(&place.relist(&now), &now));
}

#[test]
fn names_in_another_order_are_those_that_are_known() {
    let place = Place::new();
    (0..50).for_each(|file| place.write(&format!("f{file:02}.parquet"), "x"));
    let known = place.list(None);
    let entries = known.entries.iter().rev().cloned().collect();
    let KnownFolder { objects, folders, place: own, stamp, .. } = &*known;
    let (objects, folders, own) = (objects.clone(), folders.clone(), own.clone());
    let turned = Arc::new(KnownFolder { entries, objects, folders, place: own, stamp: *stamp });
    fs::remove_file(place.path().join("f20.parquet")).unwrap();
    place.write("f505.parquet", "x");
    let now = place.relist(&turned);
    assert_eq!((now.objects.len(), shared(&now, &known)), (50, 49));
    assert!(Arc::ptr_eq(&place.relist(&now), &now));
}

/// The time of modification can be set back, that of the change cannot.
#[test]
fn law_4_a_file_that_is_replaced_under_its_old_name_and_time_is_new() {
    let place = Place::new();
    place.write("f.parquet", "one");
    let path = place.path().join("f.parquet");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let known = place.list(None);
    until_the_clock_ticks();
    place.write("f.parquet", "two");
    File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let now = place.relist(&known);
    assert_eq!((now.objects.len(), shared(&now, &known)), (1, 0));
    assert_eq!(now.objects[0].last_modified, known.objects[0].last_modified);
}

#[test]
fn names_kinds_and_links_may_change_in_any_way() {
    let place = Place::new();
    let names =
        ["a.parquet", "50%.parquet", "a b.parquet", "ä.parquet", "%41.parquet", "k=v", "_hidden", "x#12", "x#y"];
    let mut random = StdRng::seed_from_u64(7);
    let mut known = place.list(None);
    for round in 0..300 {
        let path = place.path().join(names[random.random_range(0..names.len())]);
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            fs::remove_dir(&path).unwrap();
        } else {
            fs::remove_file(&path).ok();
        }
        match random.random_range(0..8) {
            0 | 1 => fs::write(&path, format!("round {round}")).unwrap(),
            2 => fs::create_dir(&path).unwrap(),
            3 => symlink(place.path().join("a.parquet"), &path).unwrap(),
            4 => symlink("nowhere", &path).unwrap(),
            5 => symlink(place.path(), &path).unwrap(),
            6 => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => {}
        }
        known = place.relist(&known);
    }
}

#[test]
fn links_to_folders_are_said_to_be_links() {
    let (place, other) = (Place::new(), Place::new());
    fs::create_dir(place.path().join("own")).unwrap();
    symlink(other.path(), place.path().join("linked")).unwrap();
    let is_link = |folder: &FolderInside| (folder.path.filename().unwrap().to_owned(), folder.is_link);
    let found: Vec<_> = place.list(None).folders.iter().map(is_link).collect();
    assert_eq!(found, [("linked".to_owned(), Some(true)), ("own".to_owned(), Some(false))]);
}

/// So many that threads share them.
#[test]
fn many_names_are_compared_like_few() {
    let place = Place::new();
    let names = NAMES_PER_THREAD * 3;
    (0..names).for_each(|file| place.write(&format!("{file}.parquet"), ""));
    let known = place.list(None);
    assert!(Arc::ptr_eq(&place.relist(&known), &known));
    for file in [0, NAMES_PER_THREAD, names - 1] {
        place.write(&format!("{file}.parquet"), "changed");
    }
    let now = place.relist(&known);
    assert_eq!((now.objects.len(), shared(&now, &known)), (names, names - 3));
}

#[test]
fn a_folder_that_goes_or_becomes_a_file_is_empty() {
    let place = Place::new();
    let folder = place.path().join("below");
    let prefix = Path::from_absolute_path(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("f.parquet"), "x").unwrap();
    let known = relist(&prefix, &folder, None).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    for _ in 0..2 {
        let gone = relist(&prefix, &folder, Some(&known)).unwrap();
        assert_eq!((gone.objects.len(), gone.stamp), (0, None));
        fs::write(&folder, "a file").unwrap();
    }
}

#[test]
fn names_that_come_and_go_leave_a_trace_in_the_folder() {
    let place = Place::new();
    place.write("f.parquet", "x");
    let known = place.list(None);
    until_the_clock_ticks();
    place.write("f.parquet", "other bytes");
    assert!(known.has_same_stamp(), "whoever writes into a file leaves none");
    place.write("g.parquet", "x");
    assert!(!known.has_same_stamp());
    let known = place.list(None);
    until_the_clock_ticks();
    fs::remove_file(place.path().join("g.parquet")).unwrap();
    assert!(!known.has_same_stamp());
    let known = place.list(None);
    fs::remove_dir_all(place.path()).unwrap();
    assert!(!known.has_same_stamp() && !place.list(None).has_same_stamp());
}

#[test]
fn a_folder_that_is_removed_while_it_is_read_ends_there() {
    let place = Place::new();
    let folder = place.path().join("below");
    fs::create_dir(&folder).unwrap();
    let opened = open(&folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    fs::remove_dir(&folder).unwrap();
    let prefix = place.prefix().join("below");
    let reading = Reading { prefix: &prefix, folder: &folder, open: opened.as_fd(), before: &[] };
    assert!(reading.names().unwrap().names.is_empty());
}

#[test]
fn a_name_that_is_no_text_is_the_same_error_as_in_any_listing() {
    let place = Place::new();
    place.write("f.parquet", "x");
    let known = place.list(None);
    fs::write(place.path().join(OsString::from_vec(b"\xff.parquet".to_vec())), "x").unwrap();
    let plain = folder_walk::folder(&place.prefix(), place.path()).map(|_| ()).unwrap_err();
    let compared = relist(&place.prefix(), place.path(), Some(&known)).map(|_| ()).unwrap_err();
    assert_eq!(compared.to_string(), plain.to_string());
}

//! Who holds the locks of a local store. Linux lists the locks of all processes, so that none has to be taken to learn it.
//!
//! ```text
//! /proc/locks      3: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF      process, and device and inode of the file
//! /proc/4711/stat  4711 (lakemark) T …                                     T: stopped
//! ```
//!
//! Nothing is said of locks on other systems, or of processes that the system does not show.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::report::{Problem, ProblemName};
use crate::storage::disk::on_a_thread;
use crate::store::Store;

/// The locks of a store, each with what its holder does.
const LOCKS: [(&str, &str); 4] = [
    ("build.lock", "builds or merges indexes"),
    ("updates/lock", "writes changes"),
    ("updates/merge.lock", "merges runs"),
    ("updates/migration.lock", "migrates or publishes"),
];

/// A process that holds a lock.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    process: u32,
    lock: &'static str,
    doing: &'static str,
    is_stopped: bool,
}

/// Says who holds locks of the store.
pub(super) async fn look_at(store: &Store) -> Vec<Problem> {
    let Some(root) = store.place().local.clone() else { return Vec::new() };
    let found = on_a_thread(move || holders(&root)).await.unwrap_or_default();
    found.iter().map(told).collect()
}

fn told(holder: &Holder) -> Problem {
    let Holder { process, lock, doing, is_stopped } = holder;
    if *is_stopped {
        let problem = format!("process {process} {doing} and is stopped: others wait for its lock ({lock})");
        let remedy = format!(
            "let it go on (`kill -CONT {process}`), or end it: its lock goes with it, and the next one repairs what it left"
        );
        return Problem::new(ProblemName::StoppedProcess, problem, remedy);
    }
    let problem = format!("process {process} {doing} just now ({lock})");
    Problem::new(
        ProblemName::Locked,
        problem,
        "nothing: locks go with their processes; a vacuum leaves more behind meanwhile",
    )
}

fn holders(root: &Path) -> Vec<Holder> {
    let Ok(listed) = std::fs::read_to_string("/proc/locks") else { return Vec::new() };
    let mut holders: Vec<Holder> = Vec::new();
    for (lock, doing) in LOCKS {
        let Ok(metadata) = std::fs::metadata(root.join(lock)) else { continue };
        for process in listed.lines().filter_map(|line| holder_of(line, metadata.ino())) {
            let is_known = holders.iter().any(|holder| (holder.process, holder.lock) == (process.id, lock));
            if !is_known && has_file(&process, &metadata) {
                holders.push(Holder { process: process.id, lock, doing, is_stopped: is_stopped(process.id) });
            }
        }
    }
    holders
}

/// A line of the list that may be about a file.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    id: u32,
    /// Major and minor number of the device.
    device: (u64, u64),
}

/// What a line says of the file of this inode; nothing of whoever waits for a lock.
fn holder_of(line: &str, inode: u64) -> Option<Listed> {
    let mut words = line.split_ascii_whitespace().skip(1);
    // Who waits has an arrow here.
    words.next().filter(|kind| *kind == "FLOCK")?;
    let id = words.nth(2)?.parse().ok()?;
    let mut place = words.next()?.split(':');
    let mut number = || u64::from_str_radix(place.next()?, 16).ok();
    let device = (number()?, number()?);
    (place.next()?.parse::<u64>().ok()? == inode).then_some(Listed { id, device })
}

/// Whether it is this file that a process has locked. Layered file systems list another device than they tell of a file, so that the files
/// that the process has open are asked first.
fn has_file(process: &Listed, metadata: &Metadata) -> bool {
    match std::fs::read_dir(format!("/proc/{}/fd", process.id)) {
        Ok(open) => open
            .filter_map(|file| std::fs::metadata(file.ok()?.path()).ok())
            .any(|file| (file.dev(), file.ino()) == (metadata.dev(), metadata.ino())),
        Err(_) => process.device == device_of(metadata.dev()),
    }
}

/// Major and minor number of a device, as Linux puts them into one.
fn device_of(device: u64) -> (u64, u64) {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & 0xffff_f000);
    let minor = (device & 0xff) | ((device >> 12) & 0xffff_ff00);
    (major, minor)
}

fn is_stopped(process: u32) -> bool {
    let said = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program stands in parentheses, and may have some.
    said.rsplit_once(')').is_some_and(|(_, rest)| matches!(rest.trim_start().bytes().next(), Some(b'T' | b't')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::locks::FileLock;

    #[test]
    fn a_line_of_the_list_says_who_holds_a_lock_and_nothing_of_who_waits() {
        let held = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF";
        assert_eq!(holder_of(held, 1_234_567), Some(Listed { id: 4711, device: (0xfe, 0) }));
        assert_eq!(holder_of(held, 7), None);
        assert_eq!(holder_of("3: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234567 0 EOF", 1_234_567), None);
        assert_eq!(holder_of("4: POSIX  ADVISORY  WRITE 4711 fe:00:1234567 0 EOF", 1_234_567), None);
        assert_eq!(holder_of("", 1), None);
        assert_eq!(device_of(0xfe01), (0xfe, 1));
        assert_eq!(device_of(0x1_0345_6704), (0x567, 0x10_3404));
    }

    #[test]
    fn the_holder_of_a_lock_is_found_and_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(holders(folder.path()), []);
        let lock = FileLock::take(&folder.path().join("build.lock")).unwrap();
        let own = Holder {
            process: std::process::id(),
            lock: "build.lock",
            doing: "builds or merges indexes",
            is_stopped: false,
        };
        // Where the system lists no locks, nothing is said.
        if Path::new("/proc/locks").exists() {
            assert_eq!(holders(folder.path()), [own]);
        }
        drop(lock);
        assert_eq!(holders(folder.path()), []);
    }

    #[test]
    fn a_stopped_process_asks_for_somebody() {
        let holder = |is_stopped| Holder { process: 7, lock: "updates/lock", doing: "writes changes", is_stopped };
        assert_eq!(told(&holder(false)).name, ProblemName::Locked);
        let stopped = told(&holder(true));
        assert_eq!(stopped.name, ProblemName::StoppedProcess);
        assert!(stopped.remedy.contains("kill -CONT 7"), "{}", stopped.remedy);
        assert!(!is_stopped(std::process::id()));
    }
}

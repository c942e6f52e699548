//! The place of the store: permissions, space, and what nobody finished.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access, statvfs};

use super::coverage::{are, files};
use crate::report::{Problem, ProblemName, bytes, count};
use crate::storage::clock;
use crate::storage::disk::on_a_thread;
use crate::store::layout::StoreFileKind;
use crate::store::{ListedStoreFile, Store};

/// Files that are not finished are left by somebody who is gone once they are so old.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Less than this is little space, however small the indexes are.
const LEAST_BYTES: u64 = 64 << 20;
/// Fewer free inodes than this are few.
const LEAST_INODES: u64 = 1_000;

/// Unfinished files and claims that nobody needs any more.
pub(super) fn leftovers(location: &str, listed: &[ListedStoreFile]) -> Vec<Problem> {
    let now = clock::utc();
    let is_left = |file: &&ListedStoreFile| {
        let age = now.signed_duration_since(file.meta.last_modified).to_std();
        let is_unfinished = matches!(file.kind, StoreFileKind::Unfinished | StoreFileKind::Claim);
        is_unfinished && age.is_ok_and(|age| age >= LEFT_AFTER)
    };
    let left: Vec<&ListedStoreFile> = listed.iter().filter(is_left).collect();
    let Some(first) = left.first() else { return Vec::new() };
    let problem = format!(
        "{} ({}) {} left that nobody finished, such as {}",
        files(left.len() as u64),
        bytes(left.iter().map(|file| file.meta.size).sum()),
        are(left.len() as u64),
        first.path
    );
    let remedy = format!("nothing depends on them; `lakemark vacuum {location}` removes them once they are old enough");
    vec![Problem::new(ProblemName::Leftovers, problem, remedy)]
}

/// Folders of a local store that cannot be written.
pub(super) async fn permissions(store: &Store) -> Vec<Problem> {
    let Some(root) = store.place().local.clone() else { return Vec::new() };
    let look = move || folders(&root).into_iter().filter(|folder| !is_writable(folder)).collect::<Vec<_>>();
    let unwritable = on_a_thread(look).await.unwrap_or_default();
    let Some(first) = unwritable.first() else { return Vec::new() };
    let problem = format!(
        "{} of the store cannot be written by this user, such as {}: builds and changes fail, queries do not",
        if unwritable.len() == 1 {
            "1 folder".to_owned()
        } else {
            format!("{} folders", count(unwritable.len() as u64))
        },
        first.display()
    );
    let remedy = "let the user own the folder (chown, chmod, or a mount that is not read-only), or choose another place with --store";
    vec![Problem::new(ProblemName::NotWritable, problem, remedy)]
}

/// The folders of the store, or the nearest one above it that is there.
fn folders(root: &Path) -> Vec<PathBuf> {
    if !root.is_dir() {
        return vec![nearest(root)];
    }
    let inside = std::fs::read_dir(root).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    std::iter::once(root.to_owned()).chain(inside.filter(|path| path.is_dir())).collect()
}

fn is_writable(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// The space that is left where the store is, or for a store that is elsewhere, where builds keep what they have not finished.
pub(super) async fn disk(store: &Store, listed: &[ListedStoreFile]) -> Vec<Problem> {
    let used: u64 = if store.is_local() {
        let is_written_again =
            |file: &&ListedStoreFile| matches!(file.kind, StoreFileKind::Segment | StoreFileKind::Update);
        listed.iter().filter(is_written_again).map(|file| file.meta.size).sum()
    } else {
        0
    };
    let place = store.place().local.clone().unwrap_or_else(|| store.temp_folder());
    let looked = nearest(&place);
    let space = on_a_thread(move || Space::of(&looked)).await;
    match space {
        Ok(Ok(space)) => judged(space, used.max(LEAST_BYTES), &place),
        Ok(Err(error)) => vec![unknown(&place, &error)],
        Err(error) => vec![unknown(&place, &io::Error::other(error))],
    }
}

/// What is left of a file system.
#[derive(Clone, Copy, Debug)]
struct Space {
    bytes: u64,
    /// None where files are not counted.
    inodes: Option<u64>,
}

impl Space {
    fn of(folder: &Path) -> io::Result<Self> {
        let stat = statvfs(folder)?;
        let inodes = (stat.f_files > 0).then_some(stat.f_favail);
        Ok(Self { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), inodes })
    }
}

fn judged(space: Space, wanted: u64, place: &Path) -> Vec<Problem> {
    let mut problems = Vec::new();
    if space.bytes < wanted {
        let problem = format!(
            "{} are left at {}; merging or building the indexes anew may take {}",
            bytes(space.bytes),
            place.display(),
            bytes(wanted)
        );
        let remedy =
            "make room, for instance by `lakemark vacuum`; a build that finds the disk full commits what is finished";
        problems.push(Problem::new(ProblemName::LowDiskSpace, problem, remedy));
    }
    if let Some(inodes) = space.inodes.filter(|inodes| *inodes < LEAST_INODES) {
        let problem = format!("the file system of {} takes {} more files", place.display(), count(inodes));
        problems.push(Problem::new(
            ProblemName::LowDiskSpace,
            problem,
            "remove files, or choose another place with --store",
        ));
    }
    problems
}

fn unknown(place: &Path, error: &io::Error) -> Problem {
    let problem = format!("the space at {} is not known: {error}", place.display());
    Problem::new(ProblemName::NotChecked, problem, "look at it by `df`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_and_few_inodes_are_told_apart() {
        let names = |bytes: u64, inodes: Option<u64>| {
            judged(Space { bytes, inodes }, 100, Path::new("/s"))
                .iter()
                .map(|found| found.problem.clone())
                .collect::<Vec<_>>()
        };
        assert!(names(100, Some(LEAST_INODES)).is_empty() && names(100, None).is_empty());
        assert_eq!(names(99, None), ["99 B are left at /s; merging or building the indexes anew may take 100 B"]);
        assert_eq!(names(100, Some(7)), ["the file system of /s takes 7 more files"]);
    }

    #[test]
    fn a_store_that_is_not_there_yet_is_made_in_the_nearest_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("table/_lakemark");
        assert_eq!(folders(&root), [folder.path()]);
        std::fs::create_dir_all(root.join("indexes")).unwrap();
        std::fs::write(root.join("build.lock"), []).unwrap();
        assert_eq!(folders(&root), [root.clone(), root.join("indexes")]);
        assert!(Space::of(&nearest(&root.join("none"))).unwrap().bytes > 0);
    }
}

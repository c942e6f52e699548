//! Single files: what distinguishes one version from another, and opening without ever waiting for anybody.

use std::fs::{File, Metadata, OpenOptions};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::Path as FsPath;
use std::time::SystemTime;

use chrono::{DateTime, Utc};

/// How entity tags of local files begin.
const TAG_PREFIX: &str = "local-";
/// What ends the part of a tag that a link or new permissions leave alone.
const TAG_CHANGE: &str = "-c";

/// What distinguishes a version of a local file or folder from another. Times are nanoseconds since 1970-01-01 UTC.
///
/// Whoever rewrites a file can set the time of modification back (`touch -r`, `rsync --inplace -t`), but not the time of the change. New
/// permissions, names and links change that time, too: such a file is compared with its fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    /// Bytes.
    pub size: u64,
    /// When somebody says to have written it last.
    pub modified_ns: i128,
    /// When the system last saw it change.
    pub changed_ns: i128,
}

impl Stamp {
    /// The stamp in a file's metadata.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified_ns = metadata.modified().map(nanoseconds).unwrap_or_default();
        Self { inode: inode(metadata), size: metadata.len(), modified_ns, changed_ns: changed(metadata) }
    }

    /// The same of what a system call says.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn of_stat(stat: &rustix::fs::Stat) -> Self {
        let nanoseconds = |seconds: i64, rest| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The entity tag of a file.
    pub(super) fn tag(self) -> String {
        let Self { inode, size, modified_ns, changed_ns } = self;
        format!("{TAG_PREFIX}{inode:x}-{size:x}-{modified_ns:x}{TAG_CHANGE}{changed_ns:x}")
    }

    /// The time of modification as listings give it.
    pub(super) fn last_modified(self) -> DateTime<Utc> {
        let (seconds, rest) = (self.modified_ns.div_euclid(1_000_000_000), self.modified_ns.rem_euclid(1_000_000_000));
        let parts = i64::try_from(seconds).ok().zip(u32::try_from(rest).ok());
        parts.and_then(|(seconds, rest)| DateTime::from_timestamp(seconds, rest)).unwrap_or_default()
    }
}

/// The entity tag of a local file: its inode, length, time of modification, and the time at which the system last saw it change.
pub(crate) fn tag(metadata: &Metadata) -> String {
    Stamp::of(metadata).tag()
}

/// The part of a local file's tag that shows whether somebody wrote into the file or replaced it, unless they set its time back.
pub(crate) fn content_part(tag: &str) -> Option<&str> {
    tag.strip_prefix(TAG_PREFIX)?.rsplit_once(TAG_CHANGE).map(|(content, _)| content)
}

/// When the system last saw a local file change, by its tag.
pub(crate) fn changed_ns(tag: &str) -> Option<i128> {
    let (_, changed) = tag.strip_prefix(TAG_PREFIX)?.rsplit_once(TAG_CHANGE)?;
    i128::from_str_radix(changed, 16).ok()
}

fn nanoseconds(time: SystemTime) -> i128 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |before| -before),
    }
}

#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> u64 {
    0
}

/// When the system last saw a file change, in nanoseconds since 1970-01-01 UTC.
#[cfg(unix)]
fn changed(metadata: &Metadata) -> i128 {
    use std::os::unix::fs::MetadataExt;
    i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
}

#[cfg(not(unix))]
fn changed(_metadata: &Metadata) -> i128 {
    0
}

/// A file that was opened.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub file: File,
    /// The metadata of the file when it was opened.
    pub metadata: Metadata,
}

/// Opens a file to read it.
pub(crate) fn open(path: &FsPath) -> io::Result<OpenedFile> {
    open_with(OpenOptions::new().read(true), path)
}

/// Opens a file, if it is one: whoever opens a FIFO waits until somebody comes to its other end, and a device may give bytes for ever.
pub(crate) fn open_with(options: &mut OpenOptions, path: &FsPath) -> io::Result<OpenedFile> {
    let file = without_waiting(options).open(path).map_err(|error| match odd_one(path) {
        Some(what) => not_a_file(path, what),
        None => error,
    })?;
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok(OpenedFile { file, metadata }) } else { Err(not_a_file(path, what_is(&metadata))) }
}

#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    // The flag says nothing to regular files.
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
}

#[cfg(not(unix))]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn odd_one(path: &FsPath) -> Option<&'static str> {
    std::fs::metadata(path).ok().filter(|metadata| !metadata.is_file()).map(|metadata| what_is(&metadata))
}

fn not_a_file(path: &FsPath, what: &str) -> io::Error {
    // Readers of folders expect this kind of error.
    let kind = if what == FOLDER { ErrorKind::NotFound } else { ErrorKind::InvalidData };
    io::Error::new(kind, format!("{} is {what} and not a file: remove it, or put the file back", path.display()))
}

const FOLDER: &str = "a folder";

/// What people call what has this metadata.
#[cfg(unix)]
pub(super) fn what_is(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => FOLDER,
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_block_device() || kind.is_char_device() => "a device",
        () => "something else",
    }
}

#[cfg(not(unix))]
pub(super) fn what_is(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { FOLDER } else { "something else" }
}

tokio::task_local! {
    /// The version that is to be read of whatever file is read in this scope.
    static LISTED: String;
}

/// Runs `reads`, which read one file whose listing gave it this tag. Where somebody has written into the file or replaced it since, local
/// files answer with an error (a failed precondition), and never with bytes of two versions.
pub fn of_listed<F: Future>(tag: Option<&str>, reads: F) -> impl Future<Output = F::Output> {
    LISTED.scope(tag.and_then(content_part).unwrap_or_default().to_owned(), reads)
}

/// Runs `reads`, which read one file of any version.
pub(crate) fn of_any<F: Future>(reads: F) -> impl Future<Output = F::Output> {
    LISTED.scope(String::new(), reads)
}

/// Whether the version that is to be read has this length and time of modification. True where no version was given.
pub(crate) fn is_listed_version(size: u64, modified_ns: i64) -> bool {
    let Some(listed) = listed() else { return true };
    listed.split_once('-').is_some_and(|(_, version)| version == format!("{size:x}-{:x}", i128::from(modified_ns)))
}

/// The version that the file that is being read has to be; none if no version was given.
pub(super) fn listed() -> Option<String> {
    LISTED.try_with(String::clone).ok().filter(|listed| !listed.is_empty())
}

/// Whether a file is another version than was listed.
pub(super) fn is_another(metadata: &Metadata, listed: Option<&str>) -> bool {
    listed.is_some_and(|listed| content_part(&tag(metadata)) != Some(listed))
}

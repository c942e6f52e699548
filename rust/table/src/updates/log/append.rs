//! The end of the log: one frame is appended at a time, by whoever holds the lock of writers.
//!
//! A sync that fails leaves the kernel with pages that it takes for clean and that the disk may not have. No later sync writes these pages.
//! A power cut would take with them all that was written behind. So nobody appends behind a frame unless the frame is on the disk. Where a
//! sync fails, the writer of the frame writes it once more. The next writer writes the last frame once more, unless the frame is its own.

use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use crate::storage::disk;
use crate::storage::local::open_with;

/// Why a frame may be missing in the log.
pub(crate) enum NotAppended {
    /// The frame is not there, and never will be.
    NotMade(Error),
    /// The frame is there for readers, and may be gone after a power cut.
    Unknown(Error),
}

/// Writes a frame at the end of the log and syncs it.
///
/// A frame that was written whole is not taken back: somebody may have read it.
pub(crate) fn append(path: &Path, end: u64, frame: &[u8]) -> std::result::Result<(), NotAppended> {
    let file = at(File::options().write(true), path, end).map_err(NotAppended::NotMade)?;
    if let Err(error) = disk::write(&file, path, end, frame) {
        // Half a frame counts for nobody. Where it stays, the next writer cuts it off.
        drop(disk::cut(&file, path, end).and_then(|()| disk::sync_bytes(&file, path)));
        return Err(NotAppended::NotMade(error));
    }
    match disk::sync_bytes(&file, path) {
        Ok(()) => Ok(()),
        Err(_) => write_again(&file, path, end, frame).map_err(NotAppended::Unknown),
    }
}

/// Cuts off what is behind the last good frame. Sees to it that this frame, whose bytes are at `last`, is on the disk.
pub(crate) fn secure_last(path: &Path, last: Range<u64>) -> Result<()> {
    let mut file = at(File::options().read(true).write(true), path, last.start)?;
    let mut frame = vec![0; usize::try_from(last.end - last.start).unwrap_or(usize::MAX)];
    file.read_exact(&mut frame)?;
    if file.metadata()?.len() > last.end {
        disk::cut(&file, path, last.end)?;
    }
    write_again(&file, path, last.start, &frame)
}

fn write_again(mut file: &File, path: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    file.seek(SeekFrom::Start(at))?;
    disk::write(file, path, at, bytes)?;
    disk::sync_bytes(file, path)
}

fn at(options: &mut std::fs::OpenOptions, path: &Path, offset: u64) -> Result<File> {
    let mut file = open_with(options, path)?.file;
    file.seek(SeekFrom::Start(offset)).map(|_| file)
}

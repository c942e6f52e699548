//! Reads of several ranges of a file.

use std::fs::File;
use std::io;
use std::ops::Range;

use bytes::Bytes;

/// Longer ranges are announced without a look at whether they are in memory: what is there of one would be read twice.
#[cfg(target_os = "linux")]
const MOST_IN_MEMORY: u64 = 64 * 1024;

/// The bytes of these ranges.
///
/// # Errors
/// One of them is beyond the end of the file (`UnexpectedEof`), before memory is taken for it; or the file cannot be read.
pub(super) fn read(file: &File, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
    if end > file.metadata()?.len() || ranges.iter().any(|range| range.start > range.end) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if !are_scattered(ranges) {
        return ranges.iter().map(|range| read_one(file, range)).collect();
    }
    let in_memory = in_memory(file, ranges)?;
    let others = ranges.iter().zip(&in_memory).filter(|(_, found)| found.is_none());
    others.for_each(|(range, _)| announce(file, range));
    let all = ranges.iter().zip(in_memory);
    all.map(|(range, found)| found.map_or_else(|| read_one(file, range), Ok)).collect()
}

/// Whether more is left out between the ranges than they have. Where nearly everything is read, the system itself reads ahead, and farther
/// than to the end of these ranges.
pub(super) fn are_scattered(ranges: &[Range<u64>]) -> bool {
    let (first, end) = (ranges.iter().map(|range| range.start).min(), ranges.iter().map(|range| range.end).max());
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).fold(0, u64::saturating_add);
    let (Some(first), Some(end)) = (first, end) else { return false };
    bytes <= (end - first) / 2
}

/// The bytes of those ranges that the system has in memory as a whole. None for the others, and none at all where the system does not say.
#[cfg(target_os = "linux")]
fn in_memory(file: &File, ranges: &[Range<u64>]) -> io::Result<Vec<Option<Bytes>>> {
    use std::io::IoSliceMut;

    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut found = vec![None; ranges.len()];
    for (range, found) in ranges.iter().zip(&mut found) {
        let length = range.end - range.start;
        if length > MOST_IN_MEMORY {
            continue;
        }
        let mut bytes = room_of(length)?;
        bytes.resize(length as usize, 0);
        match preadv2(file, &mut [IoSliceMut::new(&mut bytes)], range.start, ReadWriteFlags::NOWAIT) {
            Ok(read) if read as u64 == length => *found = Some(bytes.into()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            // Not every file system supports such a read.
            Err(_) => break,
        }
    }
    Ok(found)
}

#[cfg(not(target_os = "linux"))]
fn in_memory(_file: &File, ranges: &[Range<u64>]) -> io::Result<Vec<Option<Bytes>>> {
    Ok(vec![None; ranges.len()])
}

/// Memory for so many bytes.
fn room_of(length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    Ok(bytes)
}

/// Announces to the system that a range will be read. The system may ignore that.
#[cfg(target_os = "linux")]
fn announce(file: &File, range: &Range<u64>) {
    use rustix::fs::{Advice, fadvise};
    if let Some(length) = std::num::NonZeroU64::new(range.end - range.start) {
        let _may_be_ignored = fadvise(file, range.start, Some(length), Advice::WillNeed);
    }
}

#[cfg(not(target_os = "linux"))]
fn announce(_file: &File, _range: &Range<u64>) {}

#[cfg(unix)]
fn read_one(file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    use rustix::buffer::spare_capacity;
    use rustix::io::{Errno, pread};
    let mut bytes = room_of(range.end - range.start)?;
    let length = (range.end - range.start) as usize;
    while bytes.len() < length {
        let start = range.start + bytes.len() as u64;
        match pread(file, spare_capacity(&mut bytes), start) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Memory may have been given for more.
    bytes.truncate(length);
    Ok(bytes.into())
}

#[cfg(not(unix))]
fn read_one(mut file: &File, range: &Range<u64>) -> io::Result<Bytes> {
    use std::io::{Read, Seek, SeekFrom};
    let mut bytes = room_of(range.end - range.start)?;
    let length = (range.end - range.start) as usize;
    file.seek(SeekFrom::Start(range.start))?;
    let read = file.take(length as u64).read_to_end(&mut bytes)?;
    if read == length { Ok(bytes.into()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

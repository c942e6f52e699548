//! The part of a manifest before its updates: columns whose statistics in the footer of their data file are false. Only manifests that
//! know of one have the part.

use super::ManifestFile;
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};

/// The byte before the part.
pub(super) const FALSE_STATISTICS_TAG: u8 = 3;

pub(super) fn encode(files: &[ManifestFile], out: &mut ByteWriter) {
    let of_files = || (0_u64..).zip(files).filter(|(_, file)| !file.false_statistics.is_empty());
    let count = of_files().count();
    if count == 0 {
        return;
    }
    out.u8(FALSE_STATISTICS_TAG);
    out.length(count);
    for (ordinal, file) in of_files() {
        out.varint(ordinal);
        out.length(file.false_statistics.len());
        for column in &file.false_statistics {
            out.varint(u64::from(*column));
        }
    }
}

/// Reads the part behind its first byte.
pub(super) fn decode(input: &mut ByteReader<'_>, files: &mut [ManifestFile]) -> Result<()> {
    let count = input.count("the number of files with false statistics", 3)?;
    not_empty("the number of files with false statistics", count)?;
    let mut last = None;
    for _ in 0..count {
        let ordinal = input.varint_u32("the ordinal of a file with false statistics")?;
        ascending("the ordinal of a file with false statistics", &mut last, ordinal)?;
        let below = files.len();
        let Some(file) = files.get_mut(ordinal as usize) else {
            let expected = format_args!("below {below}").to_string();
            return Err(FormatError::invalid("the ordinal of a file with false statistics", ordinal, expected));
        };
        let count = input.count("the number of columns with false statistics", 1)?;
        not_empty("the number of columns with false statistics", count)?;
        for _ in 0..count {
            file.false_statistics.push(input.varint_u32("a column with false statistics")?);
        }
    }
    Ok(())
}

/// Checks the columns of a file.
pub(super) fn validate(file: &ManifestFile) -> Result<()> {
    let mut last = None;
    file.false_statistics.iter().try_for_each(|column| ascending("a column with false statistics", &mut last, *column))
}

fn not_empty(what: &'static str, count: usize) -> Result<()> {
    if count > 0 { Ok(()) } else { Err(FormatError::invalid(what, count, "at least one")) }
}

fn ascending(what: &'static str, last: &mut Option<u32>, next: u32) -> Result<()> {
    match last.replace(next) {
        Some(last) if last >= next => Err(FormatError::invalid(what, next, format_args!("above {last}").to_string())),
        _ => Ok(()),
    }
}

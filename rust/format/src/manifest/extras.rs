//! The part of a manifest behind its updates: calls that are made once, what was published of a folder, and which Delta table it is.
//! Only manifests that have some of that have the part.

use std::collections::HashSet;

use super::{check_paths, unique};
use crate::codec::{ByteReader, ByteWriter};
use crate::error::{FormatError, Result};
use crate::limits::{MAX_NAME_LENGTH, MAX_PATH_LENGTH};

/// The byte before the part.
pub(super) const EXTRAS_TAG: u8 = 2;

/// The last call that an application made under a number: it is not made again under that number, or a lower one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestTransaction {
    /// The application's name.
    pub application: String,
    /// The number that it gave to the call.
    pub version: u64,
    /// The sequence number of the call's changes.
    pub sequence: u64,
}

/// Data files of the store that became files of a table's folder, and files of that folder that became files of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestPublication {
    /// The number of the manifest from which on the published files count; 0 while it is under way.
    pub manifest: u64,
    /// Files of the store that are, or are going to be, files of the folder.
    pub files: Vec<PublishedFile>,
    /// Files of the folder that are, or are going to be, files of the store.
    pub originals: Vec<MovedFile>,
}

/// A data file of the store that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedFile {
    /// Path relative to the store.
    pub stored: String,
    /// Path relative to the table's root.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
}

/// A data file that was taken out of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedFile {
    /// Path relative to the table's root, where it was.
    pub path: String,
    /// Path relative to the store.
    pub stored: String,
    /// Length in bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub modified_ns: i64,
}

/// Which Delta table the updates are of, and what its log has of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestDelta {
    /// The id of the table in the metadata of its log.
    pub table_id: String,
    /// Number of the last migration that is known to be in the log; 0 if none is.
    pub last_migration: u64,
    /// The version of the log that has it.
    pub version: u64,
}

/// What stands behind the updates of a manifest.
#[derive(Default)]
pub(super) struct ManifestExtras {
    /// The last call of each application that numbers its calls.
    pub transactions: Vec<ManifestTransaction>,
    /// What was published of a folder, oldest first.
    pub publications: Vec<ManifestPublication>,
    /// Which Delta table the updates are of.
    pub delta: Option<ManifestDelta>,
}

pub(super) fn encode(
    transactions: &[ManifestTransaction],
    publications: &[ManifestPublication],
    delta: Option<&ManifestDelta>,
    out: &mut ByteWriter,
) -> Result<()> {
    out.u8(EXTRAS_TAG);
    out.length(transactions.len());
    for transaction in transactions {
        out.string("the name of an application", &transaction.application, MAX_NAME_LENGTH)?;
        out.varint(transaction.version);
        out.varint(transaction.sequence);
    }
    out.length(publications.len());
    for publication in publications {
        out.varint(publication.manifest);
        out.length(publication.files.len());
        for file in &publication.files {
            out.string("the stored path of a published file", &file.stored, MAX_PATH_LENGTH)?;
            out.string("the path of a published file", &file.path, MAX_PATH_LENGTH)?;
            out.varint(file.size);
        }
        out.length(publication.originals.len());
        for file in &publication.originals {
            out.string("the path of an original", &file.path, MAX_PATH_LENGTH)?;
            out.string("the stored path of an original", &file.stored, MAX_PATH_LENGTH)?;
            out.varint(file.size);
            out.i64(file.modified_ns);
        }
    }
    out.flag(delta.is_some());
    if let Some(delta) = delta {
        out.string("the id of a Delta table", &delta.table_id, MAX_NAME_LENGTH)?;
        out.varint(delta.last_migration);
        out.varint(delta.version);
    }
    Ok(())
}

pub(super) fn decode(input: &mut ByteReader<'_>) -> Result<ManifestExtras> {
    match input.u8()? {
        EXTRAS_TAG => {}
        other => return Err(FormatError::invalid("the byte behind the updates", other, EXTRAS_TAG)),
    }
    let count = input.count("the number of applications", 3)?;
    let mut transactions = Vec::with_capacity(count);
    for _ in 0..count {
        let application = input.string("the name of an application", MAX_NAME_LENGTH)?;
        transactions.push(ManifestTransaction { application, version: input.varint()?, sequence: input.varint()? });
    }
    let count = input.count("the number of publications", 3)?;
    let publications = (0..count).map(|_| ManifestPublication::decode(input)).collect::<Result<Vec<_>>>()?;
    let delta = match input.flag("the presence of a Delta table")? {
        true => Some(ManifestDelta {
            table_id: input.string("the id of a Delta table", MAX_NAME_LENGTH)?,
            last_migration: input.varint()?,
            version: input.varint()?,
        }),
        false => None,
    };
    if transactions.is_empty() && publications.is_empty() && delta.is_none() {
        return Err(FormatError::invalid("the part behind the updates", "empty", "left out where it is"));
    }
    Ok(ManifestExtras { transactions, publications, delta })
}

pub(super) fn validate(
    transactions: &[ManifestTransaction],
    publications: &[ManifestPublication],
    log_begins: u64,
) -> Result<()> {
    let mut applications = HashSet::with_capacity(transactions.len());
    for transaction in transactions {
        unique(&mut applications, "the name of an application", transaction.application.as_str())?;
        if transaction.application.is_empty() {
            return Err(FormatError::invalid("the name of an application", "empty", "not empty"));
        }
        if transaction.sequence >= log_begins {
            let expected = format_args!("below {log_begins}, where the log begins").to_string();
            return Err(FormatError::invalid("the sequence of an application", transaction.sequence, expected));
        }
    }
    let mut before = 0;
    for (place, publication) in publications.iter().enumerate() {
        let is_last = place + 1 == publications.len();
        if publication.manifest <= before && !(is_last && publication.manifest == 0) {
            let expected = format_args!("above {before}, or 0 for the last").to_string();
            return Err(FormatError::invalid("the manifest of a publication", publication.manifest, expected));
        }
        before = publication.manifest;
        let (files, originals) = (&publication.files, &publication.originals);
        check_paths("the path of a published file", files.iter().map(|file| file.path.as_str()))?;
        check_paths("the stored path of a published file", files.iter().map(|file| file.stored.as_str()))?;
        check_paths("the path of an original", originals.iter().map(|file| file.path.as_str()))?;
        check_paths("the stored path of an original", originals.iter().map(|file| file.stored.as_str()))?;
    }
    Ok(())
}

impl ManifestPublication {
    fn decode(input: &mut ByteReader<'_>) -> Result<Self> {
        let manifest = input.varint()?;
        let count = input.count("the number of published files", 3)?;
        let mut files = Vec::with_capacity(count);
        for _ in 0..count {
            let stored = input.string("the stored path of a published file", MAX_PATH_LENGTH)?;
            let path = input.string("the path of a published file", MAX_PATH_LENGTH)?;
            files.push(PublishedFile { stored, path, size: input.varint()? });
        }
        let count = input.count("the number of originals", 11)?;
        let mut originals = Vec::with_capacity(count);
        for _ in 0..count {
            let path = input.string("the path of an original", MAX_PATH_LENGTH)?;
            let stored = input.string("the stored path of an original", MAX_PATH_LENGTH)?;
            originals.push(MovedFile { path, stored, size: input.varint()?, modified_ns: input.i64()? });
        }
        Ok(Self { manifest, files, originals })
    }
}
